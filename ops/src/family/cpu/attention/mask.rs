//! The mask of a tile for one block of keys.

use super::super::element::load;
use super::tile::{BLOCK, Tile};
use crate::tensor::DataType;
use std::ops::Range;

/// What a line of the mask does to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// All zero: nothing.
    None,
    /// Adds [`Mask::line`].
    Adds,
    /// All minus infinity: no key takes part.
    Forbids,
}

/// Lines of the mask, one for each token, or for each row if heads have masks of their own.
#[derive(Debug, Default)]
pub struct Mask {
    effects: Vec<Effect>,
    lines: Vec<f32>,
    /// Rows that share a line.
    share: usize,
}

impl Mask {
    /// Reads the lines of a tile for `keys`. Without a mask every line has no effect.
    #[inline(always)]
    pub fn load(&mut self, tile: &Tile, keys: Range<usize>) {
        let (rows, heads) = (tile.rows(), tile.heads.len());
        self.effects.clear();
        let (Some(mask), Some(bytes)) = (&tile.attention.mask, tile.sources.mask) else {
            self.share = rows;
            self.effects.push(Effect::None);
            return;
        };
        self.share = if mask.ne[2] == 1 { heads } else { 1 };
        self.lines.resize(rows / self.share * BLOCK, 0.0);
        let size = mask.dtype.block_bytes();
        for (line, target) in self.lines.chunks_exact_mut(BLOCK).enumerate() {
            let (head, token) = tile.place(line * self.share);
            let start = token * mask.nb[1] + head % mask.ne[2] * mask.nb[2] + tile.batch % mask.ne[3] * mask.nb[3];
            let source = &bytes[start + keys.start * size..start + keys.end * size];
            let effect = effect(source);
            self.effects.push(effect);
            if effect == Effect::Adds {
                load(DataType::F16, source, &mut target[..keys.len()]);
                target[keys.len()..].fill(f32::NEG_INFINITY);
            }
        }
    }

    /// What the mask does to a row.
    #[inline(always)]
    pub fn effect(&self, row: usize) -> Effect {
        self.effects[row / self.share]
    }

    /// What is added to a row's scores, before its head's slope.
    #[inline(always)]
    pub fn line(&self, row: usize) -> &[f32] {
        let line = row / self.share;
        &self.lines[line * BLOCK..(line + 1) * BLOCK]
    }

    /// Whether no row of `rows` may see any key.
    pub fn forbids_all(&self, rows: Range<usize>) -> bool {
        self.effects[rows.start / self.share..=(rows.end - 1) / self.share].iter().all(|e| *e == Effect::Forbids)
    }
}

/// The effect of f16 elements, by their bits.
#[inline(always)]
fn effect(source: &[u8]) -> Effect {
    let (mut infinite, mut any) = (true, 0);
    for element in source.as_chunks::<2>().0 {
        let bits = u16::from_le_bytes(*element);
        infinite &= bits == 0xfc00;
        any |= bits & 0x7fff;
    }
    match (infinite, any != 0) {
        (true, _) => Effect::Forbids,
        (false, true) => Effect::Adds,
        (false, false) => Effect::None,
    }
}
