//! What a node asks for, if the family takes it.

use super::arithmetic::Arithmetic;
use super::kernel::Purpose;
use super::weights::{Order, Weights};
use aie_ops::{DataType, Node, Tensor};

/// Columns of which the program for decoded tokens multiplies with all at once.
const MOST_COLUMNS_OF_TOKENS: usize = 4;

/// The types that columns can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// Rounded to bf16 in the cores.
    F32,
    Bf16,
    /// Of weights of i8.
    I8,
}

impl Right {
    /// Those that are multiplied as bf16.
    pub const FLOATS: [Self; 2] = [Self::F32, Self::Bf16];

    /// The columns of a tensor's type, and of the result's, that go with weights.
    fn of(weights: Weights, columns: DataType, result: DataType) -> Option<Self> {
        match (weights.arithmetic(), columns, result) {
            (Arithmetic::Floats, DataType::F32, DataType::F32) => Some(Self::F32),
            (Arithmetic::Floats, DataType::BF16, DataType::F32) => Some(Self::Bf16),
            (Arithmetic::Integers, DataType::I8, DataType::I32) => Some(Self::I8),
            _ => None,
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::I8 => 1,
        }
    }

    /// Elements of a word.
    pub fn per_word(self) -> usize {
        4 / self.bytes()
    }

    /// Cycles, about, in which a core converts a block of columns of 32 elements.
    pub fn convert_cycles(self) -> usize {
        match self {
            Self::F32 => 24,
            Self::Bf16 => 12,
            Self::I8 => 8,
        }
    }
}

/// What a core does to columns that are multiplied as bf16, by a number that its program knows: their type, and whether the weights want `k` interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub right: Right,
    pub interleaved: bool,
}

impl Form {
    pub const COUNT: u32 = 2 * Right::FLOATS.len() as u32;
    /// Those of columns of f32 come first.
    pub const OF_F32: u32 = 2;

    /// The form with a number below [`Form::COUNT`].
    pub fn numbered(number: u32) -> Self {
        Self { right: Right::FLOATS[number as usize / 2 % Right::FLOATS.len()], interleaved: number % 2 == 1 }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        (0..Self::COUNT).find(|number| Self::numbered(*number) == self).unwrap_or_default()
    }
}

/// A product of ggml's form with everything that the array has to know. Strides and offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub weights: Weights,
    /// The type of the columns.
    pub right: Right,
    /// Elements of a row of weights and of a column.
    pub depth: usize,
    /// The fewest of them that the program takes at once.
    pub least_depth: usize,
    /// Rows of weights.
    pub rows: usize,
    /// Columns of one matrix.
    pub columns: usize,
    /// Matrices of columns, in dimensions 2 and 3.
    pub matrices: [usize; 2],
    /// How many of them one matrix of weights serves.
    pub repeats: [usize; 2],
    /// Strides of the weights, from dimension 1 on.
    pub weight_strides: [usize; 3],
    /// Strides of the columns, from dimension 0 on.
    pub column_strides: [usize; 4],
    /// Strides of the result, from dimension 1 on.
    pub result_strides: [usize; 3],
}

impl Problem {
    /// The problem of a node that follows the operation's rules; otherwise why the family does not take it.
    pub fn of(node: &Node) -> Result<Self, String> {
        let (Some(a), Some(b)) = (node.source(0), node.source(1)) else {
            return Err("a product needs sources 0 and 1".into());
        };
        let out = &node.output;
        let weights = Weights::of(a.dtype).ok_or_else(|| {
            let types: Vec<_> = Weights::ALL.iter().map(|weights| weights.dtype().name()).collect();
            format!("source 0 is {}; possible: {}", a.dtype, types.join(", "))
        })?;
        let right = Right::of(weights, b.dtype, out.dtype).ok_or_else(|| {
            let possible = match weights.arithmetic() {
                Arithmetic::Floats => "f32 or bf16, and f32",
                Arithmetic::Integers => "i8 and i32",
            };
            format!("source 1 is {} and the result {}; possible: {possible}", b.dtype, out.dtype)
        })?;
        let sizes = [a.ne[0], a.ne[1], b.ne[1], b.ne[2], b.ne[3], a.ne[2], a.ne[3]];
        if sizes.contains(&0) {
            return Err(format!("extents {:?} and {:?}: nothing to multiply", a.ne, b.ne));
        }
        let depth = a.ne[0];
        let unit = weights.granule().unwrap_or(weights.unit()).max(right.per_word());
        if !depth.is_multiple_of(unit) {
            let (left, right) = (a.dtype, b.dtype);
            return Err(format!("rows of {depth} elements of {left} and {right}; possible: multiples of {unit}"));
        }
        if right != Right::F32 && b.nb[0] != right.bytes() {
            let (dtype, apart) = (b.dtype, b.nb[0]);
            return Err(format!("elements of {dtype} {apart} bytes apart in source 1; possible: none between"));
        }
        if a.nb[0] != a.dtype.block_bytes() || out.nb[0] != 4 {
            let (weights, result) = (a.nb[0], out.nb[0]);
            return Err(format!(
                "elements {weights} bytes apart in source 0 and {result} in the result; possible: none between"
            ));
        }
        for (what, tensor) in [("source 0", a), ("source 1", b), ("the result", out)] {
            let first = usize::from(tensor.dtype != DataType::F32);
            if let Some(stride) = strides(tensor, first).find(|stride| !stride.is_multiple_of(4)) {
                return Err(format!("a stride of {stride} bytes in {what}; possible: multiples of 4"));
            }
        }
        Ok(Self {
            weights,
            right,
            depth,
            least_depth: Purpose::Floats.least_depth() as usize,
            rows: a.ne[1],
            columns: b.ne[1],
            matrices: [b.ne[2], b.ne[3]],
            repeats: [b.ne[2] / a.ne[2], b.ne[3] / a.ne[3]],
            weight_strides: [a.nb[1], a.nb[2], a.nb[3]],
            column_strides: b.nb,
            result_strides: [out.nb[1], out.nb[2], out.nb[3]],
        })
    }
}

impl Problem {
    /// The program for all problems of its arithmetic.
    pub fn purpose(&self) -> Purpose {
        match self.weights.arithmetic() {
            Arithmetic::Floats => Purpose::Floats,
            Arithmetic::Integers => Purpose::Integers,
        }
    }

    /// The same for the program of decoded tokens, if that takes it.
    pub fn for_token(self) -> Option<Self> {
        let few = self.columns <= MOST_COLUMNS_OF_TOKENS && self.right == Right::F32;
        few.then_some(Self { least_depth: Purpose::Token.least_depth() as usize, ..self })
    }

    /// What the cores do to columns.
    pub fn form(&self) -> Form {
        Form { right: self.right, interleaved: self.weights.order() != Order::Plain }
    }

    /// Elements that are whole words in rows of weights and in columns, if zeros can follow them.
    pub fn granule(&self) -> Option<usize> {
        self.weights.granule().map(|granule| granule.max(self.right.per_word()))
    }
}

/// The strides that are used, from dimension `first` on.
fn strides(tensor: &Tensor, first: usize) -> impl Iterator<Item = usize> + '_ {
    (first..4).filter(|dimension| tensor.ne[*dimension] > 1).map(|dimension| tensor.nb[dimension])
}
