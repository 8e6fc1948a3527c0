//! What all parts of a product core's program use.

use super::memory::{KNOWN, OFFSET_BYTES, OPERAND_LOCKS, PARTS, Place, RESULT_LOCKS, WEIGHTS_LOCKS};
pub(super) use super::parameters::Parameter;
use super::types::Types;
use super::weights::Weights;
use crate::array::{OWN_LOCKS, OWN_MEMORY};
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Count, Reg};
use crate::numerics::{Nibbles, Sixteen};
use aie_isa::InstructionSet;

/// What the program knows of a type, by its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfType {
    /// Bytes of a unit of a column in bf16.
    Bytes,
    /// What is taken off each number of a weight, as bf16 twice.
    Offset,
    /// [`Weights::across`].
    Across,
    /// Bytes of a group once its words are in order.
    Group,
    /// Bytes from the words of eight units to the word in their middle.
    Middle,
    /// Lanes of 16 bits that a scale and the word in the middle exchange.
    Exchanged,
    /// The place of [`Weights::combined`] in [`Weights::combinations`].
    Combination,
    /// Its place among the types of the program.
    Place,
    /// Eights of `k` that have an offset of their own.
    Steps,
    /// Bytes of a group as it arrives, until they are those of a portion.
    Arriving,
    /// [`Weights::phase_bytes`].
    Phase,
    /// The address of its offsets.
    Offsets,
    /// Bytes of tiles, offsets and sums of a column: these follow from the product, too.
    ColumnTiles,
    ColumnOffsets,
    ColumnSums,
    /// Bytes by which what follows the last eight of a row is in front of where it would be.
    Back,
}

/// The locks of a ring, as its core names them.
#[derive(Clone, Copy)]
pub(super) struct Locks {
    pub empty: u8,
    pub full: u8,
}

impl Locks {
    pub const WEIGHTS: Self = Self::of(WEIGHTS_LOCKS);
    pub const X: Self = Self::of(OPERAND_LOCKS);
    pub const RESULT: Self = Self::of(RESULT_LOCKS);

    const fn of(empty: u8) -> Self {
        Self { empty: OWN_LOCKS + empty, full: OWN_LOCKS + empty + 1 }
    }
}

/// Modes of shuffles: pairs of vectors as rows of elements, transposed; the lower or upper half of the result.
pub(super) mod mode {
    use aie_isa::InstructionSet;

    /// Every other byte, and element of 16 bits.
    pub const EVEN_8: i64 = 0;
    pub const ODD_8: i64 = 1;
    pub const EVEN_16: i64 = 2;
    pub const ODD_16: i64 = 3;
    /// Elements of both vectors in turn.
    pub const MIX_32: [i64; 2] = [16, 17];
    pub const MIX_16: i64 = 18;
    pub const MIX_8: [i64; 2] = [20, 21];
    /// The halves of each word exchanged.
    pub const FLIP_16: i64 = 38;
    /// Bytes of 16 words: the first of each, then the second, and so on.
    pub const BYTES_OF_16: i64 = 36;
    /// Parts of 128 bits of both vectors in turn, and halves.
    pub const MIX_128: [i64; 2] = [12, 13];
    pub const MIX_256: [i64; 2] = [10, 11];
    /// Four rows of eight elements of 16 bits as eight rows of four, of one vector.
    pub const TRANSPOSE_8: i64 = 29;

    /// Eight rows of four bytes as four rows of eight, in both halves of one vector: by one shuffle after the other.
    pub const fn transpose_bytes(set: InstructionSet) -> &'static [i64] {
        match set {
            InstructionSet::Aie2 => &[46],
            // Of both halves together, and then the parts of each half from those of 64 bits in turn.
            InstructionSet::Aie2p => &[BYTES_OF_16, 50],
        }
    }
}

/// What all parts of the program use.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    /// The types of weights.
    pub all: Types,
    /// Where the table of types is.
    pub types: u32,
    /// Where the core sees the parameters.
    pub parameters_at: u32,
    pub parameters: AliasRegion,
    /// What is known of the type at hand.
    pub known: AliasRegion,
    /// What is kept between portions.
    pub state: AliasRegion,
    /// What arrives.
    pub x: AliasRegion,
    pub weights: AliasRegion,
    /// A column in bf16.
    pub linear: AliasRegion,
    /// Words in order, where they are read, and where they are written.
    pub words: AliasRegion,
    pub ordered: AliasRegion,
    pub tiles: AliasRegion,
    pub offsets: AliasRegion,
    pub factors: AliasRegion,
    pub sums: AliasRegion,
    pub parts: AliasRegion,
    pub result: AliasRegion,
}

impl Kernel {
    pub fn new(b: &mut CoreBuilder, all: Types, types: u32, parameters_at: u32) -> Self {
        Sixteen::begin(b);
        Nibbles::begin(b);
        if b.isa().set() == InstructionSet::Aie2 {
            // What is widened for scales has no sign.
            for control in ["crUPSSign", "crSRSSign"] {
                let control = b.special(control);
                b.constant_into(control, 0);
            }
        }
        Self {
            all,
            types,
            parameters_at,
            parameters: b.region("parameters"),
            known: b.region("what is known of the type"),
            state: b.region("state of the stream"),
            x: b.region("arriving columns"),
            weights: b.region("weights"),
            linear: b.region("a column in bf16"),
            words: b.region("words"),
            ordered: b.region("words put in order"),
            tiles: b.region("tiles"),
            offsets: b.region("offsets"),
            factors: b.region("factors"),
            sums: b.region("sums of parts"),
            parts: b.region("sums of units"),
            result: b.region("result"),
        }
    }

    pub fn parameter(self, b: &mut CoreBuilder, parameter: Parameter) -> Reg {
        let target = b.reg(Class::Scalar);
        let at = b.pointer_at(self.parameters, self.parameters_at);
        b.load_as("lda.u16", target, at, Address::At(2 * i64::from(parameter as u32)));
        target
    }

    /// A parameter as a number of iterations, one at least.
    pub fn count(self, b: &mut CoreBuilder, parameter: Parameter) -> Count {
        Count::from(self.parameter(b, parameter)).at_least(1)
    }

    /// The address of the sums of a portion of which fewer are kept.
    pub fn unfolded(self, b: &mut CoreBuilder) -> Reg {
        let (groups, end) = (self.parameter(b, Parameter::Groups), b.scalar(i64::from(OWN_MEMORY + PARTS.0 + PARTS.1)));
        let bytes = b.binary("lshl", groups, 6);
        b.binary("sub", end, bytes)
    }

    /// Puts what is known of the type at hand and the product where [`Kernel::of_type`] reads it.
    pub fn know(self, b: &mut CoreBuilder) {
        let (number, place) = (self.parameter(b, Parameter::Weights), b.scalar(0));
        // As many places as there are types up to it, besides the first one.
        Self::reached(b, place, number, self.all.iter().skip(1).map(|weights| weights as usize));
        let entry = b.binary("lshl", place, i64::from(Weights::ENTRY.trailing_zeros()));
        let entry = b.add(entry, i64::from(OWN_MEMORY + self.types));
        let (from, entry) = (self.pointer(b, self.parameters, entry), b.reg(Class::X));
        b.load(entry, from, Address::At(0));
        let to = b.pointer_at(self.known, OWN_MEMORY + KNOWN.0);
        b.store(entry, to, Address::At(0));
        let [bytes, across, arriving, phase] =
            [OfType::Bytes, OfType::Across, OfType::Arriving, OfType::Phase].map(|what| self.of_type(b, what));
        let [phases, groups, portions, kept] =
            [Parameter::Phases, Parameter::Groups, Parameter::Portions, Parameter::Kept]
                .map(|what| self.parameter(b, what));
        let (tiles, units) = (b.binary("mul", phases, phase), b.binary("mul", phases, bytes));
        let offsets = b.binary("lshl", units, i64::from((OFFSET_BYTES / 64).trailing_zeros()));
        let sums = b.binary("mul", portions, kept);
        let sums = b.binary("lshl", sums, 6);
        let are_eights = b.binary("eq", across, phase);
        let (portion, back) = (b.binary("mul", groups, arriving), b.binary("mul", tiles, are_eights));
        for (what, value) in [
            (OfType::Arriving, portion),
            (OfType::ColumnTiles, tiles),
            (OfType::ColumnOffsets, offsets),
            (OfType::ColumnSums, sums),
            (OfType::Back, back),
        ] {
            b.store(value, to, Address::At(4 * i64::from(what as u32)));
        }
    }

    /// What is known of the type at hand.
    pub fn of_type(self, b: &mut CoreBuilder, what: OfType) -> Reg {
        let target = b.reg(Class::Scalar);
        let at = b.pointer_at(self.known, OWN_MEMORY + KNOWN.0);
        b.load(target, at, Address::At(4 * i64::from(what as u32)));
        target
    }

    /// Does what the type at hand needs.
    pub fn choose(self, b: &mut CoreBuilder, mut body: impl FnMut(&mut CoreBuilder, Weights)) {
        let place = self.of_type(b, OfType::Place);
        let all: Vec<Weights> = self.all.iter().collect();
        b.choose(place, all.len() as u32, |b, place| body(b, all[place as usize]));
    }

    /// Does what the type at hand needs, which is the same for types that follow each other with the same way.
    pub fn choose_way<T: Copy + PartialEq>(
        self,
        b: &mut CoreBuilder,
        way: impl Fn(Weights) -> T,
        mut body: impl FnMut(&mut CoreBuilder, T),
    ) {
        let mut ways: Vec<(usize, T)> = self.all.iter().map(way).enumerate().collect();
        ways.dedup_by(|(_, next), (_, before)| next == before);
        let number = b.scalar(0);
        if ways.len() > 1 {
            let place = self.of_type(b, OfType::Place);
            Self::reached(b, number, place, ways[1..].iter().map(|(first, _)| *first));
        }
        b.choose(number, ways.len() as u32, |b, number| body(b, ways[number as usize].1));
    }

    /// Adds how many of some numbers a number reaches.
    fn reached(b: &mut CoreBuilder, sum: Reg, number: Reg, least: impl Iterator<Item = usize>) {
        for least in least {
            let least = b.scalar(least as i64);
            let reaches = b.binary("geu", number, least);
            b.emit("add", [sum, sum, reaches]);
        }
    }

    /// A parameter as a number of iterations of a loop for which more than are needed do no harm: three, so that it is there once.
    pub fn count_three(self, b: &mut CoreBuilder, count: Reg) -> Count {
        let three = b.scalar(3);
        let few = b.binary("ltu", count, three);
        Count::from(b.select(few, three, count)).at_least(3)
    }

    /// A pointer with the address in a scalar.
    pub fn pointer(self, b: &mut CoreBuilder, region: AliasRegion, address: Reg) -> Reg {
        let pointer = b.pointer(region);
        b.mov(pointer, address);
        pointer
    }

    /// A scalar with the address of a place, as the core sees it.
    pub fn address(self, b: &mut CoreBuilder, place: Place) -> Reg {
        b.scalar(i64::from(OWN_MEMORY + place.0))
    }

    /// What a pointer moves by from a tile of the first four of a group to that of the second one, and on to what is `step` bytes behind the
    /// first, where so many phases are left of a row: of eights, the last one's second four is in the first one.
    pub fn across(self, b: &mut CoreBuilder, left: Reg, step: i64) -> [Reg; 2] {
        let (across, back) = (self.of_type(b, OfType::Across), self.of_type(b, OfType::Back));
        let is_last = b.binary("eq", left, 1);
        let back = b.binary("mul", back, is_last);
        let across = b.binary("sub", across, back);
        let step = b.scalar(step);
        let next = b.binary("sub", step, across);
        [across, next].map(|bytes| self.modifier(b, bytes))
    }

    /// A scalar as what a pointer moves by.
    pub fn modifier(self, b: &mut CoreBuilder, value: Reg) -> Reg {
        let modifier = b.reg(Class::Modifier);
        b.mov(modifier, value);
        modifier
    }
}

/// What moves a pointer by `step` bytes, but by `last` bytes every `times` times, of which there were `gone` already.
pub(super) fn turns(b: &mut CoreBuilder, [times, gone]: [Reg; 2], [step, last]: [Reg; 2]) -> Reg {
    let by = b.reg(Class::Dimensions2);
    let size = b.add(times, -1);
    for (part, value) in [(by.size(), size), (by.counter(), gone), (by.jump(), step), (by.modifier(), last)] {
        b.mov(part, value);
    }
    by
}

/// Moves a pointer by what [`turns`] has made.
pub(super) fn turned(b: &mut CoreBuilder, pointer: Reg, by: Reg) {
    // Both are the same; each is the one with evidence.
    let mnemonic = match b.isa().set() {
        InstructionSet::Aie2 => "paddb.2d",
        InstructionSet::Aie2p => "padda.2d",
    };
    b.emit(mnemonic, [pointer, by]);
}

/// A vector with a word in all lanes.
pub(super) fn constant(b: &mut CoreBuilder, word: u32) -> Reg {
    let (scalar, vector) = (b.scalar(word.into()), b.reg(Class::X));
    b.broadcast(32, vector, scalar);
    vector
}

/// A shuffle into a new vector.
pub(super) fn shuffled(b: &mut CoreBuilder, low: Reg, high: Reg, mode: Reg) -> Reg {
    let target = b.reg(Class::X);
    b.shuffle(target, low, high, mode);
    target
}
