//! Virtual registers, their classes, and what a register of a class consists of.

use aie_isa::{Isa, Register};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// Kinds of registers that a program's variables can have.
///
/// Widths of accumulators differ between generations: `aie2` has quarters of 256 bits ([`Class::Acc256`]), `aie2p` has
/// accumulators of 2048 bits ([`Class::Acc2048`]). A class that a generation does not have is an error when it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Class {
    /// `r`: 32 bits.
    Scalar,
    /// `l`: two scalars, 64 bits.
    Pair,
    /// `p`: an address of 20 bits.
    Pointer,
    /// `m`: what a pointer moves by.
    Modifier,
    /// `dj`: an index, and the inner step of a 2D modifier.
    Jump,
    /// `dn`: the inner dimension of a 2D modifier, steps minus one.
    Size,
    /// `dc`: the counter of a 2D modifier.
    Counter,
    /// `d`: the four of them, for 2D addressing.
    Dimensions2,
    /// Two `d`, for 3D addressing.
    Dimensions3,
    /// `s`: a shift of ups and srs.
    Shift,
    /// `w`: 256 bits.
    W,
    /// `x`: 512 bits, two `w`.
    X,
    /// `y`: 1024 bits, two `x`.
    Y,
    /// `ex`: block floating point, an `x` of 64 mantissas and an `e` of eight exponents.
    Blocks,
    /// `el`, `eh`: four of the exponents.
    Exponents,
    /// `am`: 256 bits of an accumulator.
    Acc256,
    /// `bm`: 512 bits of accumulators.
    Acc512,
    /// `cm`: 1024 bits of accumulators.
    Acc1024,
    /// `dm`: 2048 bits of accumulators.
    Acc2048,
    /// `q`: a mask of 128 bits.
    Mask,
    /// A control, status or other single register by name: `crRnd`.
    Special,
}

impl Class {
    /// The class of a register of the tables.
    pub(super) fn of(isa: &Isa, register: Register) -> Self {
        let name = isa.register(register).name;
        let family = name.replace(|c: char| c.is_ascii_digit(), "");
        match family.as_str() {
            "r" => Self::Scalar,
            "l" => Self::Pair,
            "p" => Self::Pointer,
            "m" => Self::Modifier,
            "dj" => Self::Jump,
            "dn" => Self::Size,
            "dc" => Self::Counter,
            "d" => Self::Dimensions2,
            // The digit of `3d` goes with the number.
            "d_d" => Self::Dimensions3,
            "s" => Self::Shift,
            "wl" | "wh" => Self::W,
            "x" => Self::X,
            "y" => Self::Y,
            "ex" => Self::Blocks,
            "el" | "eh" => Self::Exponents,
            "amll" | "amlh" | "amhl" | "amhh" => Self::Acc256,
            "bml" | "bmh" | "bmll" | "bmlh" | "bmhl" | "bmhh" => Self::Acc512,
            "cm" | "cml" | "cmh" => Self::Acc1024,
            "dm" => Self::Acc2048,
            "q" => Self::Mask,
            _ => Self::Special,
        }
    }

    /// How it is called in errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "r",
            Self::Pair => "l",
            Self::Pointer => "p",
            Self::Modifier => "m",
            Self::Jump => "dj",
            Self::Size => "dn",
            Self::Counter => "dc",
            Self::Dimensions2 => "d",
            Self::Dimensions3 => "d_3d",
            Self::Shift => "s",
            Self::W => "w",
            Self::X => "x",
            Self::Y => "y",
            Self::Blocks => "ex",
            Self::Exponents => "e",
            Self::Acc256 => "am",
            Self::Acc512 => "bm",
            Self::Acc1024 => "cm",
            Self::Acc2048 => "dm",
            Self::Mask => "q",
            Self::Special => "special",
        }
    }

    /// The class of its halves.
    fn half(self) -> Option<Self> {
        Some(match self {
            Self::Pair => Self::Scalar,
            Self::X => Self::W,
            Self::Y => Self::X,
            Self::Acc512 => Self::Acc256,
            Self::Acc1024 => Self::Acc512,
            Self::Acc2048 => Self::Acc1024,
            Self::Dimensions3 => Self::Dimensions2,
            _ => return None,
        })
    }
}

/// A variable of a program, or a part of one. Only valid with the builder that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reg {
    /// Which variable.
    pub(super) variable: u32,
    /// What this part of it is.
    pub(super) class: Class,
    /// The part's first leaf (a register without parts) within the variable.
    pub(super) first: u8,
    /// How many leaves it has; 0 for a part that does not exist, which is an error when it is used.
    pub(super) leaves: u8,
}

impl Reg {
    /// What it is.
    pub fn class(self) -> Class {
        self.class
    }

    fn part(self, class: Option<Class>, first: u8, leaves: u8) -> Self {
        let class = class.filter(|_| leaves > 0);
        Self {
            class: class.unwrap_or(self.class),
            first: self.first + first,
            leaves: if class.is_some() { leaves } else { 0 },
            ..self
        }
    }

    /// The lower half: `w` of `x`, `bm` of `cm`, `r` of `l`, the inner `d` of a 3D modifier.
    #[must_use]
    pub fn lo(self) -> Self {
        self.part(self.class.half(), 0, self.leaves / 2)
    }

    /// The upper half.
    #[must_use]
    pub fn hi(self) -> Self {
        self.part(self.class.half(), self.leaves / 2, self.leaves / 2)
    }

    /// The `x` of an `ex`.
    #[must_use]
    pub fn mantissas(self) -> Self {
        self.part((self.class == Class::Blocks).then_some(Class::X), 0, 2)
    }

    /// The lower and upper four exponents of an `ex`.
    #[must_use]
    pub fn exponents(self) -> [Self; 2] {
        let class = (self.class == Class::Blocks).then_some(Class::Exponents);
        [2, 3].map(|leaf| self.part(class, leaf, 1))
    }

    fn of_dimensions(self, class: Class, leaf: u8) -> Self {
        self.part((self.class == Class::Dimensions2).then_some(class), leaf, 1)
    }

    /// `m` of a 2D modifier: what the pointer moves by when the inner dimension is through.
    #[must_use]
    pub fn modifier(self) -> Self {
        self.of_dimensions(Class::Modifier, 0)
    }

    /// `dn` of a 2D modifier: steps of the inner dimension, minus one.
    #[must_use]
    pub fn size(self) -> Self {
        self.of_dimensions(Class::Size, 1)
    }

    /// `dj` of a 2D modifier: what the pointer moves by within the inner dimension.
    #[must_use]
    pub fn jump(self) -> Self {
        self.of_dimensions(Class::Jump, 2)
    }

    /// `dc` of a 2D modifier: where it is in the inner dimension; 0 at first.
    #[must_use]
    pub fn counter(self) -> Self {
        self.of_dimensions(Class::Counter, 3)
    }
}

/// A part of memory that pointers point into: see the module's documentation for what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AliasRegion(pub(super) u32);

/// What is known of a variable.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    /// For errors and listings.
    pub name: String,
    pub class: Class,
    pub leaves: u8,
    /// The registers it may get.
    pub candidates: Vec<Register>,
    /// For pointers.
    pub region: Option<AliasRegion>,
    /// The author has chosen its register.
    pub fixed: bool,
    /// May be read before it is written.
    pub undefined: bool,
    /// Parts that nothing writes may be those of other variables.
    pub shares_parts: bool,
    /// How many operations write it, and the number that the last of them sets it to.
    pub writes: u32,
    pub constant: Option<i64>,
}

/// The registers of an instruction set.
type Classes = HashMap<Class, Vec<Register>>;

/// All registers of a class.
pub(super) fn members(isa: &'static Isa, class: Class) -> &'static [Register] {
    static KNOWN: Mutex<BTreeMap<&'static str, &'static Classes>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // Kept for as long as the instruction set, which is there for ever. Another timing changes no register.
    let classes: &'static Classes = known.entry(isa.name()).or_insert_with(|| Box::leak(Box::new(by_class(isa))));
    classes.get(&class).map_or(&[], Vec::as_slice)
}

fn by_class(isa: &Isa) -> Classes {
    let mut classes = Classes::new();
    for register in isa.registers().iter().filter_map(|info| isa.register_named(info.name)) {
        classes.entry(Class::of(isa, register)).or_default().push(register);
    }
    classes
}

/// The register that is a part of another: the one of a class, or the largest, whose leaves are these.
pub(super) fn part_of(isa: &Isa, whole: Register, first: u8, leaves: u8) -> Option<Register> {
    let info = isa.register(whole);
    if first == 0 && usize::from(leaves) == info.leaves.len() {
        return Some(whole);
    }
    let mut begin = 0;
    for part in &info.parts {
        let count = isa.register(*part).leaves.len() as u8;
        if first >= begin && first + leaves <= begin + count {
            return part_of(isa, *part, first - begin, leaves);
        }
        begin += count;
    }
    None
}
