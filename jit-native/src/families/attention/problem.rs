//! What a node asks for, if the family takes it.

use crate::families::elements::scores::slope;
use crate::numerics::{Heads, terms};
use aie_isa::InstructionSet;
use aie_ops::{DataType, Node, Tensor};

/// A type of keys or values that the cores turn into bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::families) enum Cache {
    F16,
    Bf16,
    F32,
}

impl Cache {
    /// In the order of the numbers by which the core's program knows them.
    pub const ALL: [Self; 3] = [Self::F16, Self::Bf16, Self::F32];

    fn of(dtype: DataType) -> Option<Self> {
        match dtype {
            DataType::F16 => Some(Self::F16),
            DataType::BF16 => Some(Self::Bf16),
            DataType::F32 => Some(Self::F32),
            _ => None,
        }
    }

    /// By this number the core's program knows the type.
    pub fn number(self) -> u32 {
        Self::ALL.iter().position(|cache| *cache == self).unwrap_or_default() as u32
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }

    /// What its numbers have to be multiplied with once a core has converted them: a power of two.
    pub fn missing_exponent(self) -> i32 {
        if self == Self::F16 { 112 } else { 0 }
    }
}

/// Keys or values. Strides are in bytes, from dimension 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::families) struct Operand {
    pub cache: Cache,
    /// Elements of a row.
    pub elements: usize,
    pub strides: [usize; 3],
    /// How many heads and batches of queries one of them serves.
    pub repeats: [usize; 2],
}

impl Operand {
    /// Words of a row.
    pub fn words(&self) -> usize {
        self.elements * self.cache.bytes() / 4
    }
}

/// The mask: bytes from token to token and from batch to batch, and the number of batches that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::families) struct Mask {
    pub token: usize,
    pub batch: usize,
    pub batches: usize,
    /// The position among the arguments.
    pub argument: u16,
}

/// Attention with everything that the array has to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::families) struct Problem {
    /// What computes it.
    pub set: InstructionSet,
    pub tokens: usize,
    /// Heads of queries.
    pub heads: usize,
    pub batch: usize,
    /// Number of keys.
    pub keys: usize,
    pub k: Operand,
    pub v: Operand,
    pub mask: Option<Mask>,
    pub scale: f32,
    /// Scores are held below this.
    pub cap: Option<f32>,
    /// ALiBi's largest bias, if it is not 0.
    pub bias: Option<f32>,
    /// Strides of the queries from dimension 1 on: token, head, batch.
    pub query_strides: [usize; 3],
    /// Strides of the result from dimension 1 on: head, token, batch.
    pub result_strides: [usize; 3],
    /// The position of the sinks among the arguments.
    pub sinks: Option<u16>,
    /// The result's position among the arguments.
    pub result: u16,
}

/// What heads of keys are a multiple of: queries are taken 16 elements at a time.
const UNIT: usize = 16;
pub(in crate::families) const LEAST_KEYS: usize = 16;
/// A mask of minus infinity is -65,536 times the slope: -256 with the least slope of the largest bias.
const MOST_BIAS: f32 = 8.0;
const CAPS: std::ops::Range<f32> = 1e-3..1e4;

impl Problem {
    /// The problem of a node that follows the operation's rules; otherwise why programs of an instruction set do not take it.
    pub fn of(node: &Node, set: InstructionSet) -> Result<Self, String> {
        let (Some(q), Some(k), Some(v)) = (node.source(0), node.source(1), node.source(2)) else {
            return Err("attention needs sources 0, 1 and 2".into());
        };
        let out = &node.output;
        let [scale, bias, cap] = [0, 1, 2].map(|index| node.params.float(index));
        if bias > MOST_BIAS {
            return Err(format!("ALiBi (max_bias {bias}); possible: up to {MOST_BIAS}"));
        }
        if cap != 0.0 && !(CAPS.contains(&cap) && (1e-6..1e4).contains(&(scale / cap).abs())) {
            return Err(format!("a soft cap of {cap} with scale {scale}; possible: {CAPS:?}"));
        }
        if node.source(4).is_some() && cap != 0.0 {
            return Err("sinks and a soft cap; possible: one of both".into());
        }
        if !(1e-6..1e4).contains(&scale.abs()) {
            return Err(format!("scale {scale}; possible: 1e-6 to 1e4"));
        }
        if (q.dtype, out.dtype) != (DataType::F32, DataType::F32) {
            return Err(format!("queries are {} and the result {}; possible: f32", q.dtype, out.dtype));
        }
        if [q, k, v].iter().any(|tensor| tensor.ne.contains(&0)) {
            return Err(format!("extents {:?}, {:?} and {:?}: nothing to compute", q.ne, k.ne, v.ne));
        }
        if k.ne[1] < LEAST_KEYS {
            return Err(format!("{} keys; possible: {LEAST_KEYS} or more", k.ne[1]));
        }
        for (what, tensor) in [("queries", q), ("keys", k), ("values", v), ("the result", out)] {
            if tensor.nb[0] != tensor.dtype.block_bytes() || tensor.nb[1..].iter().any(|nb| !nb.is_multiple_of(4)) {
                return Err(format!("strides {:?} of {what}; possible: no gaps, then whole words", tensor.nb));
            }
        }
        let operand = |what, tensor: &Tensor, unit: usize| {
            let Some(cache) = Cache::of(tensor.dtype) else {
                return Err(format!("{what} are {}; possible: f16, bf16, f32", tensor.dtype));
            };
            if !tensor.ne[0].is_multiple_of(unit) {
                return Err(format!("heads of {} elements of {what}; possible: multiples of {unit}", tensor.ne[0]));
            }
            Ok(Operand {
                cache,
                elements: tensor.ne[0],
                strides: [tensor.nb[1], tensor.nb[2], tensor.nb[3]],
                repeats: [q.ne[2] / tensor.ne[2], q.ne[3] / tensor.ne[3]],
            })
        };
        let (k_operand, v_operand) = (operand("keys", k, UNIT)?, operand("values", v, Heads::value_unit(set))?);
        if k_operand.repeats[0] != v_operand.repeats[0] {
            return Err(format!("{} heads of keys and {} of values; possible: as many", k.ne[2], v.ne[2]));
        }
        let mask = node.source(3).map(|mask| Self::mask(node, mask, k.ne[1])).transpose()?;
        Ok(Self {
            set,
            tokens: q.ne[1],
            heads: q.ne[2],
            batch: q.ne[3],
            keys: k.ne[1],
            k: k_operand,
            v: v_operand,
            mask,
            scale,
            cap: (cap != 0.0).then_some(cap),
            bias: (bias > 0.0).then_some(bias),
            query_strides: [q.nb[1], q.nb[2], q.nb[3]],
            result_strides: [out.nb[1], out.nb[2], out.nb[3]],
            sinks: node.source(4).map(|_| 3 + u16::from(mask.is_some())),
            result: 3 + [3, 4].map(|index| u16::from(node.source(index).is_some())).iter().sum::<u16>(),
        })
    }

    fn mask(node: &Node, mask: &Tensor, keys: usize) -> Result<Mask, String> {
        let tokens = node.source(0).map_or(0, |q| q.ne[1]);
        if mask.dtype != DataType::F16 || mask.nb[0] != 2 {
            return Err(format!("a mask of {} with strides {:?}; possible: f16 without gaps", mask.dtype, mask.nb));
        }
        if mask.ne[2] != 1 {
            return Err(format!("a mask for each of {} heads; possible: one for all", mask.ne[2]));
        }
        if !keys.is_multiple_of(2) {
            return Err(format!("{keys} keys with a mask; possible: an even number"));
        }
        let moves = [(tokens, mask.nb[1]), (mask.ne[3], mask.nb[3])];
        if moves.iter().any(|(size, stride)| *size > 1 && !stride.is_multiple_of(4)) {
            return Err(format!("a mask with strides {:?}; possible: whole words", mask.nb));
        }
        Ok(Mask { token: mask.nb[1], batch: mask.nb[3], batches: mask.ne[3], argument: 3 })
    }

    /// What a head multiplies the mask with. Heads beyond the last are the unused ones of the last four.
    pub fn slope(&self, head: usize) -> f64 {
        self.bias.map_or(1.0, |bias| f64::from(slope(bias, self.heads, head.min(self.heads - 1))))
    }

    /// What the mask of four heads is multiplied with: as bf16, two in a word.
    pub fn slopes(&self, head: usize) -> [u32; 2] {
        [head, head + 2].map(|head| {
            let [low, high] = [0, 1].map(|next| {
                let [slope] = terms(self.slope(head + next) * 2f64.powi(Cache::F16.missing_exponent()));
                u32::from(slope)
            });
            high << 16 | low
        })
    }

    /// Heads of queries for one head of keys.
    pub fn group(&self) -> usize {
        self.k.repeats[0]
    }

    /// Heads of queries that are computed together.
    pub fn together(&self) -> usize {
        self.group().min(4)
    }
}
