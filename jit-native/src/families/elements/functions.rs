//! The functions of the programs, and which program has which.
//!
//! A program holds 16 KiB, so there are several: one for arithmetic and what activates the layers of models, one for rows, and one for
//! functions of elements that are less common. Each has a PDI, and its functions are numbered by their place in its list. One more has what
//! a decoded token needs of all of them, so that it has one PDI.

/// What a step computes. `x` is the first source, `y` the second, `c` and `d` constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `x + y`.
    Add,
    /// `x - y`.
    Sub,
    /// `x * y`.
    Mul,
    /// `x / y`.
    Div,
    /// `x * c + d`.
    Scale,
    /// `x + c`.
    Offset,
    /// `x` between `c` and `d`.
    Clamp,
    /// The bits of `x` that are in `c`, plus `d`.
    Bits,
    /// `x` with the sign of `y`, if `x` is not negative.
    Sign,
    /// `y` where `x > c`, else what the target has.
    Choose,
    /// `c` where `x` is positive, `d` where it is negative, else 0.
    Signum,
    /// The largest whole number that is not above `x`.
    Floor,
    /// `sqrt(x)`.
    Root,
    /// `1 / sqrt(x)`.
    ReciprocalRoot,
    /// `1 / x`.
    Reciprocal,
    /// `e^x`.
    Exp,
    /// `e^x - 1`, of x up to 87.
    Expm1,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `y / (1 + e^-x)`, to 2^-16 of `y`.
    Gate,
    /// The polynomial of [`normal_tail`](crate::numerics::exponential::normal_tail).
    NormalTail,
    /// `ln x`.
    Log,
    /// The sine of `x` plus `c` quarters of a turn.
    Sine,
    /// The sum of all elements, in all lanes of one vector.
    Sum,
    /// The sum of their squares, those of the vector behind an odd number of them included.
    SumOfSquares,
    /// The largest of them.
    Largest,
    /// `x` or `y`, whichever is larger.
    Larger,
    /// `x` where the bit of its lane in `c` is set, else `d`: for what is behind the end of a row.
    Pad,
    /// The first element of `x` in all lanes.
    First,
    /// f32 from the bf16 that a tile's first half has, in place.
    Widen,
    /// bf16 from f32, to nearest even; in place, or to another slot.
    Narrow,
    /// f16 from f32, to nearest even; in place, or to another slot.
    Half,
    /// Words of `x`, each some times.
    Repeat,
    /// Vectors of `x`, all of them some times.
    Again,
    /// Words of `x`, all of them some times.
    AgainWords,
    /// Words of `x` by a list of their offsets.
    Gather,
    /// Cosines and sines for positions.
    Turns,
    /// The rotation of pairs that lie beside each other.
    RotatePairs,
    /// The rotation of pairs whose elements are half a row apart: of one half.
    RotateHalves,
}

/// How the loop of a function is written and scheduled, by what was measured (docs/native-elements.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A vector an iteration, iterations overlap: bodies of some tens of operations.
    Overlapped,
    /// Two vectors an iteration, iterations overlap: what keeps its intermediate results longer than their computation takes.
    OverlappedTwins,
    /// Two vectors an iteration, one iteration after the other: bodies of a hundred operations that wait for each other.
    Twins,
    /// A vector an iteration, one iteration after the other: what is rarely computed, or for one vector only.
    InTurn,
}

impl Function {
    /// How its loop is written.
    #[must_use]
    pub fn form(self) -> Form {
        match self {
            Self::Mul | Self::Scale | Self::SumOfSquares => Form::OverlappedTwins,
            Self::Exp | Self::Div | Self::Root | Self::Sigmoid | Self::Half => Form::Twins,
            Self::ReciprocalRoot
            | Self::Reciprocal
            | Self::Expm1
            | Self::NormalTail
            | Self::Log
            | Self::Sine
            | Self::First
            | Self::Repeat
            | Self::Turns
            | Self::RotatePairs
            | Self::RotateHalves => Form::InTurn,
            _ => Form::Overlapped,
        }
    }

    /// How many of a step's constants it uses.
    #[must_use]
    pub fn constants(self) -> usize {
        match self {
            Self::Scale | Self::RotateHalves => 4,
            Self::Clamp | Self::Bits | Self::Signum | Self::Pad | Self::Repeat | Self::RotatePairs => 2,
            Self::Offset | Self::Choose | Self::Sine | Self::Widen | Self::Again | Self::AgainWords => 1,
            _ => 0,
        }
    }

    /// How many vectors an iteration computes. Where that is two, a last single vector is computed together with what is
    /// behind it: buffers are whole pairs of vectors, and such a function has one vector as source and as target or neither.
    #[must_use]
    pub fn vectors_at_once(self) -> u32 {
        if matches!(self.form(), Form::Twins | Form::OverlappedTwins) { 2 } else { 1 }
    }
}

/// The programs, by what they have functions for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repertoire {
    /// Arithmetic, and the activations of models.
    Elements,
    /// Other functions of elements: logarithms, sines, roots and what is made of them.
    Curves,
    /// Functions of rows: sums, exponentials, rotations.
    Rows,
    /// What a decoded token has besides products and attention; see [`rings::vectors`](crate::families::rings::vectors).
    Token,
}

impl Repertoire {
    /// Those that a node is given by its functions.
    pub const ALL: [Self; 3] = [Self::Elements, Self::Curves, Self::Rows];

    /// Whether its program is for chains ([`Elements::ARRIVING`](crate::array::Elements::ARRIVING)).
    #[must_use]
    pub fn is_chained(self) -> bool {
        self == Self::Token
    }

    /// Words of the parameters in front of the steps.
    #[must_use]
    pub fn header_words(self) -> u32 {
        if self.is_chained() { 5 } else { 4 }
    }

    /// The functions by their numbers in the parameters.
    #[must_use]
    pub fn functions(self) -> &'static [Function] {
        use Function as F;
        match self {
            Self::Elements => &[
                F::Add,
                F::Sub,
                F::Mul,
                F::Div,
                F::Scale,
                F::Offset,
                F::Clamp,
                F::Bits,
                F::Choose,
                F::Signum,
                F::Exp,
                F::Sigmoid,
                F::Gate,
                F::First,
                F::Repeat,
                F::Again,
                F::AgainWords,
                F::Widen,
                F::Narrow,
            ],
            Self::Curves => &[
                F::Add,
                F::Sub,
                F::Mul,
                F::Div,
                F::Scale,
                F::Offset,
                F::Clamp,
                F::Bits,
                F::Sign,
                F::Choose,
                F::Floor,
                F::Root,
                F::Reciprocal,
                F::Exp,
                F::Expm1,
                F::NormalTail,
                F::Log,
                F::Sine,
                F::Widen,
                F::Narrow,
            ],
            Self::Rows => &[
                F::Add,
                F::Sub,
                F::Mul,
                F::Scale,
                F::Clamp,
                F::Bits,
                F::ReciprocalRoot,
                F::Reciprocal,
                F::Exp,
                F::Sum,
                F::SumOfSquares,
                F::Largest,
                F::Larger,
                F::Pad,
                F::First,
                F::Widen,
                F::Repeat,
                F::Gather,
                F::Turns,
                F::RotatePairs,
                F::RotateHalves,
            ],
            Self::Token => &[
                F::Add,
                F::Sub,
                F::Mul,
                F::Scale,
                F::Clamp,
                F::Bits,
                F::Gate,
                F::ReciprocalRoot,
                F::Reciprocal,
                F::Sum,
                F::SumOfSquares,
                F::Pad,
                F::First,
                F::Repeat,
                F::Gather,
                F::Turns,
                F::RotatePairs,
                F::RotateHalves,
                F::Narrow,
                F::Half,
            ],
        }
    }

    /// The first program that has all of these functions.
    #[must_use]
    pub fn with(functions: impl Iterator<Item = Function> + Clone) -> Option<Self> {
        Self::ALL.into_iter().find(|program| functions.clone().all(|function| program.number(function).is_some()))
    }

    /// The number of a function, if this program has it.
    #[must_use]
    pub fn number(self, function: Function) -> Option<u32> {
        self.functions().iter().position(|known| *known == function).map(|number| number as u32)
    }
}
