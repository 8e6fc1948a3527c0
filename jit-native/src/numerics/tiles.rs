//! Sixteen sums of eight products each: what products with few columns ask of a unit that multiplies bf16.
//!
//! A *tile* has 8 `k` of the column for each of four units of weights, and is multiplied with 8 numbers of each of them. Every unit has its own
//! part of the column, so that four sums come of it. Four tiles, one after the other, are the sums of sixteen units.
//!
//! AIE2 multiplies matrices: row `i` of the first operand is a unit, column `i` of the second, 8 `k` by four units, what belongs to it, and
//! of the 4 x 4 sums those on the diagonal count. AIE2P has no matrices of bf16 and multiplies 32 lanes: a tile is four units by 8 `k`, and
//! the eight lanes of a unit are added once all parts of its sum are there.

use crate::codegen::{Class, CoreBuilder, Reg};
use aie_isa::InstructionSet;

/// Modes of shuffles.
mod mode {
    /// Four rows of 16 elements of 16 bits as 16 rows of four.
    pub const TRANSPOSE_16: [i64; 2] = [26, 27];
    /// Elements of both vectors in turn.
    pub const MIX_64: [i64; 2] = [14, 15];
    pub const MIX_16: [i64; 2] = [18, 19];
    /// Every other element.
    pub const PART_128: [i64; 2] = [8, 9];
    pub const PART_32: [i64; 2] = [4, 5];
}

/// How a unit multiplies tiles.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    set: InstructionSet,
    configuration: Reg,
}

impl Tiles {
    /// To be written where a loop with tiles begins.
    pub fn new(b: &mut CoreBuilder) -> Self {
        let set = b.isa().set();
        let word = match set {
            InstructionSet::Aie2 => CoreBuilder::MATRIX_BF16,
            InstructionSet::Aie2p => CoreBuilder::LANES_BF16,
        };
        Self { set, configuration: b.scalar(word.into()) }
    }

    /// Tiles that the unit has accumulators for.
    pub fn at_once(b: &CoreBuilder) -> usize {
        match b.isa().set() {
            InstructionSet::Aie2 => 8,
            InstructionSet::Aie2p => 4,
        }
    }

    /// An accumulator for a tile's products.
    pub fn sum(self, b: &mut CoreBuilder) -> Reg {
        match self.set {
            InstructionSet::Aie2 => b.reg(Class::Acc512),
            InstructionSet::Aie2p => b.reg(Class::Acc2048),
        }
    }

    /// One of zeros.
    pub fn zeros(self, b: &mut CoreBuilder) -> Reg {
        let sum = self.sum(b);
        match self.set {
            InstructionSet::Aie2 => {
                let (zero, vector) = (b.scalar(0), b.reg(Class::X));
                b.broadcast(32, vector, zero);
                b.mov(sum, vector);
            }
            InstructionSet::Aie2p => b.emit("vclr", [sum]),
        }
        sum
    }

    /// Numbers times a tile.
    pub fn multiply(self, b: &mut CoreBuilder, sum: Reg, numbers: Reg, tile: Reg) {
        b.mul_f(sum, numbers, tile, self.configuration);
    }

    /// The same, added to what is there.
    pub fn multiply_add(self, b: &mut CoreBuilder, sum: Reg, numbers: Reg, tile: Reg) {
        b.mac_f(sum, sum, numbers, tile, self.configuration);
    }

    /// The same, subtracted.
    pub fn multiply_sub(self, b: &mut CoreBuilder, sum: Reg, numbers: Reg, tile: Reg) {
        b.msc_f(sum, sum, numbers, tile, self.configuration);
    }
}

/// Makes tiles of columns in bf16.
#[derive(Clone, Copy, Debug)]
pub struct Arrangement {
    set: InstructionSet,
    transpose: [Reg; 2],
    mix: [Reg; 2],
}

impl Arrangement {
    /// To be written where a loop that makes tiles begins.
    pub fn new(b: &mut CoreBuilder) -> Self {
        let set = b.isa().set();
        let (transpose, mix) = match set {
            InstructionSet::Aie2 => (mode::TRANSPOSE_16, mode::MIX_64),
            InstructionSet::Aie2p => (mode::PART_128, mode::MIX_16),
        };
        Self { set, transpose: transpose.map(|mode| b.scalar(mode)), mix: mix.map(|mode| b.scalar(mode)) }
    }

    /// Two tiles of sixteen `k` of four units, two of them in each vector.
    pub fn tiles(self, b: &mut CoreBuilder, front: Reg, back: Reg) -> [Reg; 2] {
        both(b, [front, back], self.transpose)
    }

    /// Two tiles whose `k` are those of two others in turn.
    pub fn mixed(self, b: &mut CoreBuilder, first: Reg, second: Reg) -> [Reg; 2] {
        let mixed = both(b, [first, second], self.mix);
        match self.set {
            InstructionSet::Aie2 => mixed,
            // Sixteen `k` of two units each.
            InstructionSet::Aie2p => both(b, mixed, self.transpose),
        }
    }
}

/// Two shuffles of two vectors.
fn both(b: &mut CoreBuilder, [first, second]: [Reg; 2], modes: [Reg; 2]) -> [Reg; 2] {
    modes.map(|mode| {
        let vector = b.reg(Class::X);
        b.shuffle(vector, first, second, mode);
        vector
    })
}

/// The sixteen sums of four tiles: lane `4 m + i` is that of unit `i` of tile `m`.
#[derive(Clone, Copy, Debug)]
pub enum Sums {
    /// Those on the diagonal of products of matrices.
    Diagonal(Diagonal),
    /// Sums of products lane by lane.
    Added(Added),
}

impl Sums {
    /// To be written where a loop with tiles begins.
    pub fn new(b: &mut CoreBuilder) -> Self {
        match b.isa().set() {
            InstructionSet::Aie2 => Self::Diagonal(Diagonal::new(b)),
            InstructionSet::Aie2p => Self::Added(Added::new(b)),
        }
    }

    /// The sums of four accumulators, which are used up.
    pub fn of(self, b: &mut CoreBuilder, tiles: [Reg; 4]) -> Reg {
        match self {
            Self::Diagonal(diagonal) => diagonal.of(b, tiles),
            Self::Added(added) => added.of(b, tiles),
        }
    }
}

/// Adds the eight lanes of each unit.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    parts: [Reg; 2],
    addition: Reg,
}

/// The vectors of an accumulator.
pub(super) fn quarters(sum: Reg) -> [Reg; 4] {
    [sum.lo().lo(), sum.lo().hi(), sum.hi().lo(), sum.hi().hi()]
}

impl Added {
    pub(super) fn new(b: &mut CoreBuilder) -> Self {
        Self { parts: mode::PART_32.map(|mode| b.scalar(mode)), addition: b.scalar(CoreBuilder::LANES_BF16.into()) }
    }

    /// Even and odd lanes are added three times, each time half as many.
    fn of(self, b: &mut CoreBuilder, tiles: [Reg; 4]) -> Reg {
        // There is one accumulator more than tiles; odd lanes go where the first one's were.
        let (even, odd) = (b.reg(Class::Acc2048), tiles[0]);
        b.undefined(even);
        let mut from: Vec<[Reg; 2]> = tiles.into_iter().map(|tile| [tile.lo().lo(), tile.lo().hi()]).collect();
        loop {
            self.halved(b, &from, [even, odd]);
            if from.len() == 1 {
                return even.lo().lo();
            }
            let sums = quarters(even);
            from = sums[..from.len()].chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
        }
    }

    /// Even and odd lanes of two vectors each are apart, then added: into vectors of the first accumulator, in order.
    pub(super) fn halved(self, b: &mut CoreBuilder, from: &[[Reg; 2]], [even, odd]: [Reg; 2]) {
        for (pair, into) in from.iter().zip(quarters(even).into_iter().zip(quarters(odd))) {
            let [first, second] = pair.map(|part| {
                let words = b.reg(Class::X);
                b.mov(words, part);
                words
            });
            b.shuffle(into.0, first, second, self.parts[0]);
            b.shuffle(into.1, first, second, self.parts[1]);
        }
        b.emit("vadd.f", [even, even, odd, self.addition]);
    }
}

/// Chooses the results that count of four tiles: of tile `m` those on the diagonal, as lanes `4 m` to `4 m + 3`.
#[derive(Clone, Copy, Debug)]
pub struct Diagonal {
    /// The lanes of tiles 1 to 3, and of the columns with each bit of their number.
    tiles: [Reg; 3],
    columns: [Reg; 2],
    /// Bytes of one to three rows.
    rows: [Reg; 3],
}

impl Diagonal {
    fn new(b: &mut CoreBuilder) -> Self {
        Self {
            tiles: [0x4218, 0x2184, 0x1842].map(|lanes| b.scalar(lanes)),
            columns: [0xAAAA, 0xCCCC].map(|lanes| b.scalar(lanes)),
            rows: [16, 32, 48].map(|bytes| b.scalar(bytes)),
        }
    }

    /// Rows are moved on by as many as the tile's number, which leaves all in different places, then each column by its own number.
    fn of(self, b: &mut CoreBuilder, tiles: [Reg; 4]) -> Reg {
        let turned = |b: &mut CoreBuilder, x: Reg, rows: usize| {
            let turned = b.reg(Class::X);
            b.emit("vshift", [turned, x, x, self.rows[rows - 1]]);
            turned
        };
        let bits = |b: &mut CoreBuilder, numbers: Reg| {
            let bits = b.reg(Class::X);
            b.mov(bits, numbers);
            bits
        };
        let sum = bits(b, tiles[0]);
        for (index, lanes) in (1..).zip(self.tiles) {
            let words = bits(b, tiles[index]);
            let turned = turned(b, words, 4 - index);
            b.select_lanes(32, sum, sum, turned, lanes);
        }
        for (rows, lanes) in (1..).zip(self.columns) {
            let turned = turned(b, sum, rows);
            b.select_lanes(32, sum, sum, turned, lanes);
        }
        sum
    }
}
