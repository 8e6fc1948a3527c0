//! Products for four heads at once: what attention asks of a unit that multiplies bf16.
//!
//! Scores are sixteen keys times the queries of four heads; sums of values are four heads' exponentials of keys, times the elements of these.
//! On both units scores come out as vectors of 4 keys x 4 heads, exponentials go in as vectors of 8 keys x 4 heads, and sums are kept as vectors
//! of 4 heads x 4 elements.
//!
//! AIE2 multiplies matrices ([`matrices`]), whose blocks arrive in order. AIE2P multiplies lanes ([`lanes`]): those of sixteen keys, two elements
//! each, or of 32 elements of a value, with what a head has for them in all lanes.

mod lanes;
mod matrices;

use crate::codegen::{AliasRegion, Class, CoreBuilder, Reg};
use aie_isa::InstructionSet;

/// How a unit multiplies for four heads.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    set: InstructionSet,
    configuration: Reg,
}

/// Keys and queries of a tile.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// The first block of sixteen keys, as an address.
    pub keys: Reg,
    /// What they are in.
    pub cache: AliasRegion,
    /// Queries, as an address.
    pub queries: Reg,
    /// What they are in.
    pub converted: AliasRegion,
    /// Bytes from a block of all keys to the next, as a modifier.
    pub next: Reg,
    /// Elements by sixteen, as a scalar.
    pub sixteens: Reg,
}

/// Values and exponentials of a tile.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// Values, as an address.
    pub values: Reg,
    /// What they are in.
    pub cache: AliasRegion,
    /// Exponentials, as an address.
    pub exponentials: Reg,
    /// What they are in.
    pub bf16: AliasRegion,
    /// Where the sums are, as a pointer that is moved on.
    pub state: Reg,
    /// Keys by eight, as a scalar.
    pub eights: Reg,
    /// Elements by sixteen, as a scalar.
    pub sixteens: Reg,
}

/// Adds the mask of keys to their scores.
#[derive(Clone, Copy, Debug)]
pub enum Mask {
    /// As one more step of products of matrices.
    Rows(matrices::Rows),
    /// As one more step of products of lanes.
    Lanes(lanes::Mask),
}

/// Puts queries where the loops of scores take them.
#[derive(Clone, Copy, Debug)]
pub struct Queries(Option<[Reg; 2]>);

impl Heads {
    /// To be written once, where a program begins.
    pub fn new(b: &mut CoreBuilder) -> Self {
        let set = b.isa().set();
        let word = match set {
            InstructionSet::Aie2 => CoreBuilder::MATRIX_BF16,
            InstructionSet::Aie2p => CoreBuilder::LANES_BF16,
        };
        Self { set, configuration: b.scalar(word.into()) }
    }

    /// Elements of a key that are to be beside each other, before those of the next key.
    #[must_use]
    pub const fn key_block(set: InstructionSet) -> usize {
        match set {
            InstructionSet::Aie2 => 8,
            InstructionSet::Aie2p => 2,
        }
    }

    /// The same of a value.
    #[must_use]
    pub const fn value_block(set: InstructionSet) -> usize {
        match set {
            InstructionSet::Aie2 => 4,
            InstructionSet::Aie2p => 32,
        }
    }

    /// What elements of values have to be a multiple of.
    #[must_use]
    pub const fn value_unit(set: InstructionSet) -> usize {
        match set {
            InstructionSet::Aie2 => 16,
            InstructionSet::Aie2p => Self::value_block(set),
        }
    }

    /// Bytes of the blocks of sixteen keys.
    #[must_use]
    pub fn block_bytes(self) -> i64 {
        2 * 16 * Self::key_block(self.set) as i64
    }

    /// Four accumulators of zeros.
    pub fn zeros(self, b: &mut CoreBuilder) -> [Reg; 4] {
        let class = match self.set {
            InstructionSet::Aie2 => Class::Acc512,
            InstructionSet::Aie2p => Class::Acc2048,
        };
        [(); 4].map(|()| {
            let sum = b.reg(class);
            b.emit("vclr", [sum]);
            sum
        })
    }

    /// Adds the products of sixteen keys and four queries to accumulators.
    pub fn scores(self, b: &mut CoreBuilder, of: &Keys, sums: [Reg; 4]) {
        match self.set {
            InstructionSet::Aie2 => matrices::scores(b, of, sums, self.configuration),
            InstructionSet::Aie2p => lanes::scores(b, of, sums, self.configuration),
        }
    }

    /// Puts the scores of sixteen keys into memory; accumulators are used up.
    pub fn store(self, b: &mut CoreBuilder, sums: [Reg; 4], pointer: Reg) {
        match self.set {
            InstructionSet::Aie2 => matrices::store(b, sums, pointer),
            InstructionSet::Aie2p => lanes::store(b, sums, pointer),
        }
    }

    /// Adds a tile's values, times its exponentials, to sums in memory.
    pub fn values(self, b: &mut CoreBuilder, of: &Values) {
        match self.set {
            InstructionSet::Aie2 => matrices::values(b, of, self.configuration),
            InstructionSet::Aie2p => lanes::values(b, self, of),
        }
    }

    /// For the mask at an address, which is that of a word, and the slopes of four heads behind a pointer.
    pub fn mask(self, b: &mut CoreBuilder, region: AliasRegion, address: Reg, slopes: Reg) -> Mask {
        let mask = b.pointer(region);
        match self.set {
            InstructionSet::Aie2 => {
                b.mov(mask, address);
                Mask::Rows(matrices::Rows::new(b, mask, slopes))
            }
            InstructionSet::Aie2p => Mask::Lanes(lanes::Mask::new(b, mask, address, slopes)),
        }
    }

    /// To be written in front of the loop that makes queries.
    pub fn queries(self, b: &mut CoreBuilder) -> Queries {
        let has_blocks = self.set == InstructionSet::Aie2;
        Queries(has_blocks.then(|| matrices::TRANSPOSE.map(|mode| b.scalar(mode))))
    }
}

impl Queries {
    /// Of sixteen elements of four heads, two heads in each vector.
    pub fn of(self, b: &mut CoreBuilder, [front, back]: [Reg; 2]) -> [Reg; 2] {
        let Some(modes) = self.0 else { return [front, back] };
        modes.map(|mode| {
            let block = b.reg(Class::X);
            b.shuffle(block, front, back, mode);
            block
        })
    }
}

impl Mask {
    /// To the accumulators of the next sixteen keys.
    pub fn add(&self, b: &mut CoreBuilder, heads: Heads, sums: [Reg; 4]) {
        match self {
            Self::Rows(rows) => sums.into_iter().for_each(|sum| rows.add(b, sum, heads.configuration)),
            Self::Lanes(mask) => mask.add(b, sums, heads.configuration),
        }
    }

    /// To the scores of the next sixteen keys in memory.
    pub fn add_late(&self, b: &mut CoreBuilder, heads: Heads, scores: Reg) {
        match self {
            Self::Rows(rows) => rows.add_late(b, scores, heads.configuration),
            Self::Lanes(mask) => mask.add_late(b, heads, scores),
        }
    }
}
