//! What counts of the products of tiles.
//!
//! The matrix unit multiplies four units with four columns; each unit has a column of its own, so that of the 4 x 4 results those on the
//! diagonal count. Four tiles have sixteen of them, which become one vector.

use crate::codegen::{Class, CoreBuilder, Reg};

/// Chooses the results that count of four tiles: of tile `m` those on the diagonal, as lanes `4 m` to `4 m + 3`.
#[derive(Clone, Copy)]
pub(super) struct Diagonal {
    /// The lanes of tiles 1 to 3, and of the columns with each bit of their number.
    tiles: [Reg; 3],
    columns: [Reg; 2],
    /// Bytes of one to three rows.
    rows: [Reg; 3],
}

impl Diagonal {
    pub fn new(b: &mut CoreBuilder) -> Self {
        Self {
            tiles: [0x4218, 0x2184, 0x1842].map(|lanes| b.scalar(lanes)),
            columns: [0xAAAA, 0xCCCC].map(|lanes| b.scalar(lanes)),
            rows: [16, 32, 48].map(|bytes| b.scalar(bytes)),
        }
    }

    /// Rows are moved on by as many as the tile's number, which leaves all in different places, then each column by its own number.
    pub fn of(self, b: &mut CoreBuilder, tiles: [Reg; 4]) -> Reg {
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
