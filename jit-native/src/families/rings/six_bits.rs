//! q6_K: blocks of 105 halves of a word, which are put in order, decoded and scaled in ways of their own.
//!
//! A block is a unit, as rows may have any number of them. Interleaved as halves of words, three times like others, sixteen are a matrix
//! of halves of the eight even units and one of the odd ones, which begins 16 bytes beside a vector's place. So its vectors are taken out of
//! two neighbours.
//!
//! A vector of four halves of eight units becomes eight bytes of each. The low and high halves of bytes belong to elements that are 64
//! apart, whose upper two bits are in one byte, too: those of elements `l` and `l + 64` of the first 32 of a half block, shifted by two
//! bits those of the other 32. The lower bits go through first, then all with the shift. A scale of eight bits belongs to 16 elements.

use super::kernel::{Kernel, constant, mode, shuffled, turned, turns};
use super::memory::{PART_FACTORS, PORTION, Place, SUMS};
use super::units::{Combined, LOW_BITS, SIGN_BIT, UPPER_BYTES};
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Reg};
use crate::numerics::{HalfWords, Nibbles, Sums, Tiles};

/// The words of a portion, behind place for the scales of its units.
pub(super) const WORDS: Place = (PORTION.0 + 64, PORTION.1 - 64);

/// Halves of words of a unit, and where those of the odd units begin: a vector's place, and bytes behind it.
const HALVES: usize = 105;
const ODD: u32 = 1664;
const BESIDE: i64 = 16;
const _: () = assert!(ODD as usize + BESIDE as usize == 16 * HALVES);
/// The halves of what units have behind their low bits.
const HIGH_BITS: u32 = 64;
const SCALES: u32 = 96;
const SCALE: u32 = 104;
/// Bytes of a half of eight units.
const HALF_BYTES: u32 = 16;

/// Interleaves the halves of a group.
pub(super) fn words(b: &mut CoreBuilder, k: Kernel, [from, to]: [Reg; 2]) {
    let second = b.add(from, i64::from(ODD));
    let [first, second] = [from, second].map(|at| k.pointer(b, k.words, at));
    let to = k.pointer(b, k.ordered, to);
    let [low, both] = [(); 2].map(|()| constant(b, 0));
    let (beside, mode) = (b.scalar(BESIDE), b.scalar(mode::MIX_16));
    b.name_loop("halves of words of q6_K in turn");
    b.repeat(HALVES.div_ceil(2) as u32, |b| {
        b.load_as("vlda", low.lo(), first, Address::Then(32));
        b.load_as("vlda", both.lo(), second, Address::Then(32));
        b.load_as("vlda", both.hi(), second, Address::At(0));
        let high = b.reg(Class::X);
        b.emit("vshift", [high, both, both, beside]);
        let mixed = shuffled(b, low, high, mode);
        b.store(mixed, to, Address::Then(64));
    });
}

/// Where halves of even and odd units are read.
#[derive(Clone, Copy)]
struct Halves {
    pointers: [Reg; 2],
    beside: Reg,
}

impl Halves {
    /// From this half of all units on.
    fn new(b: &mut CoreBuilder, region: AliasRegion, half: u32) -> Self {
        let at = OWN_MEMORY + WORDS.0 + HALF_BYTES * half;
        let pointers = [at, at + ODD].map(|at| {
            let pointer = b.pointer(region);
            b.constant_into(pointer, at.into());
            pointer
        });
        Self { pointers, beside: b.scalar(BESIDE) }
    }

    /// Loads four halves of the even or the odd units, from the pointer's vector of this number on. The lower half of `last` gets what is
    /// behind a vector of the odd ones.
    fn load(self, b: &mut CoreBuilder, vector: Reg, last: Reg, parity: usize, number: i64) {
        let pointer = self.pointers[parity];
        b.load(vector, pointer, Address::At(64 * number));
        if parity == 1 {
            b.load(last.lo(), pointer, Address::At(64 * number + 64));
            b.emit("vshift", [vector, vector, last, self.beside]);
        }
    }
}

/// The factors of all parts as bytes below those of 128, and the scales of units in front of the words.
pub(super) fn scales(b: &mut CoreBuilder, k: Kernel) {
    let last = constant(b, 0);
    let halves = Halves::new(b, k.words, SCALES);
    let [even, odd] = [0, 1].map(|parity| {
        [0, 1].map(|number| {
            let vector = b.reg(Class::X);
            halves.load(b, vector, last, parity, number);
            vector
        })
    });
    let to = b.pointer_at(k.factors, OWN_MEMORY + PART_FACTORS.0);
    let upper = constant(b, UPPER_BYTES);
    let [in_turn, apart] = [mode::MIX_128, mode::MIX_256].map(|modes| modes.map(|mode| b.scalar(mode)));
    let [eights, mix] = [[mode::EVEN_8, mode::ODD_8], mode::MIX_8].map(|modes| modes.map(|mode| b.scalar(mode)));
    // Halves 0 and 2, and 1 and 3, of sixteen units each: scales four apart, of both halves of blocks.
    let pairs = [0, 1].map(|half: usize| {
        let both = in_turn.map(|mode| shuffled(b, even[half], odd[half], mode));
        apart.map(|mode| shuffled(b, both[0], both[1], mode))
    });
    for which in 0..2 {
        for pair in pairs {
            for mode in eights {
                let bytes = shuffled(b, pair[which], pair[which], mode);
                let factors = shuffled(b, bytes, upper, mix[0]);
                b.store(factors, to, Address::Then(64));
            }
        }
    }
    let at = OWN_MEMORY + WORDS.0 + HALF_BYTES * SCALE;
    let [even, odd] = [at, at + ODD].map(|at| {
        let (pointer, vector) = (b.pointer_at(k.words, at), constant(b, 0));
        b.load(vector.lo(), pointer, Address::At(0));
        vector
    });
    let (lanes, mode) = (b.scalar(0xFF00), b.scalar(mode::MIX_16));
    b.select_lanes(16, even, even, odd, lanes);
    let zero = constant(b, 0);
    let scales = shuffled(b, even, zero, mode);
    let to = b.pointer_at(k.words, OWN_MEMORY + PORTION.0);
    b.store(scales, to, Address::At(0));
}

/// Numbers of quants times the tiles of both fours: the sums of all sixteens of elements.
pub(super) fn products(b: &mut CoreBuilder, k: Kernel, tiles: [Reg; 2]) {
    let low_bits = Halves::new(b, k.words, 0);
    let to = b.pointer_at(k.sums, OWN_MEMORY + SUMS.0);
    let (upper, two_bits) = (constant(b, UPPER_BYTES), constant(b, 0x3030_3030));
    let unit = Tiles::new(b);
    let (transpose, mix) = (b.scalar(mode::TRANSPOSE_8), mode::MIX_8.map(|mode| b.scalar(mode)));
    let sorted = [mode::EVEN_8, mode::ODD_8].map(|mode| b.scalar(mode));
    let sums_of = Sums::new(b);
    // Registers are few, so steps share them in turn.
    let [low, high, quants, two, numbers, columns] = [(); 6].map(|()| b.reg(Class::X));
    let nibbles = Nibbles::new(b);
    let zero = b.scalar(0);
    b.broadcast(32, nibbles.bytes[1], zero);
    let bits = b.scalar(0);
    let shifts = [4, 0, 4].map(|bits| {
        let shift = b.reg(Class::Shift);
        b.constant_into(shift, bits);
        shift
    });
    HalfWords::within(b, |b, half_words| {
        b.repeat(2, |b| {
            let high_bits = Halves::new(b, k.words, HIGH_BITS);
            let ([times, none], [step, last]) =
                ([2, 0].map(|count| b.scalar(count)), [128, 384].map(|bytes| b.scalar(bytes)));
            let over = low_bits.pointers.map(|_| turns(b, [times, none], [step, last]));
            b.name_loop("products of q6_K");
            b.repeat(4, |b| {
                // Both parts, or one after the other, with the same words and between each other's tiles.
                let both: &[&[usize]] = if Tiles::at_once(b) < 8 { &[&[0], &[1]] } else { &[&[0, 1]] };
                for parts in both {
                    let sums: Vec<[Reg; 4]> = parts.iter().map(|_| [(); 4].map(|()| unit.sum(b))).collect();
                    for eight in 0..2 {
                        for parity in 0..2 {
                            let [first, second] = nibbles.bytes;
                            for (halves, vector) in [(low_bits, low), (high_bits, high)] {
                                halves.load(b, vector, second, parity, eight);
                                b.shuffle(vector, vector, vector, transpose);
                            }
                            nibbles.unpack(b, low);
                            let wide = b.reg(Class::Acc1024);
                            half_words.widened(b, wide, high, shifts[0]);
                            for (part, sums) in parts.iter().zip(&sums) {
                                half_words.narrowed(b, two, wide, shifts[1 + part]);
                                b.shuffle(quants, first, second, sorted[*part]);
                                b.emit("vband", [two, two, two_bits]);
                                b.emit("vbor", [quants, quants, two]);
                                for (four, mode) in mix.into_iter().enumerate() {
                                    b.shuffle(numbers, quants, upper, mode);
                                    b.load(columns, tiles[four], Address::Then(64));
                                    let sum = sums[2 * parity + four];
                                    match eight {
                                        0 => unit.multiply(b, sum, numbers, columns),
                                        _ => unit.multiply_add(b, sum, numbers, columns),
                                    }
                                }
                            }
                            if parts.len() == 1 {
                                tiles.iter().for_each(|tiles| b.advance(*tiles, 64));
                            }
                        }
                    }
                    for sums in sums {
                        let words = sums_of.of(b, sums);
                        b.store(words, to, Address::Then(64));
                    }
                    match parts {
                        [0] => tiles.iter().for_each(|tiles| b.advance(*tiles, 64 - 512)),
                        [1] => tiles.iter().for_each(|tiles| b.advance(*tiles, -64)),
                        _ => {}
                    }
                }
                low_bits.pointers.into_iter().zip(over).for_each(|(pointer, by)| turned(b, pointer, by));
                high_bits.pointers.into_iter().for_each(|pointer| b.advance(pointer, 128));
            });
            // The second 32 elements of both halves of blocks.
            low_bits.pointers.into_iter().for_each(|pointer| b.advance(pointer, 256 - 1024));
            b.binary_into(bits, "add", bits, 2);
            let more = b.add(bits, 4);
            b.mov(shifts[1], bits);
            b.mov(shifts[2], more);
        })
    });
}

impl Combined {
    /// Sixteens with a scale of eight bits each: two at once, the sums of both as one vector, of what is near and of the rest.
    pub(super) fn q6_k(self, b: &mut CoreBuilder) -> Reg {
        let totals = self.totals(b);
        let masks = [LOW_BITS, SIGN_BIT].map(|mask| constant(b, mask));
        b.name_loop("parts of q6_K");
        b.repeat(8, |b| {
            let two = self.two_parts(b, 64);
            let factor = Self::vector(b, self.part_factors, 64);
            let [low, sign] = masks.map(|mask| {
                let masked = b.reg(Class::X);
                b.emit("vband", [masked, factor, mask]);
                masked
            });
            self.add_scaled(b, totals, two, low, sign);
        });
        self.total(b, totals)
    }
}
