//! Rows for a cache, and small copies, through the cores.

use super::are_few;
use crate::array::{ArrayError, Configured, Dispatch, ElementsColumn, Flow, Pass};
use crate::families::copies::mover::Mover;
use crate::families::copies::pack;
use crate::families::elements::dispatch::{Machine, cut, parameters};
use crate::families::elements::functions::Repertoire;
use crate::families::elements::step::{Slot, Step};
use crate::families::elements::walk::BUFFER_WORDS;
use std::sync::Arc;

/// Words that a column reads in a phase: eight rows of a cache.
const MOST_WORDS: u64 = 8 * 4096;
/// Words of a result for which another column is worth its operations: a packed one takes seven cycles, a copied one less than two.
const PACKED_OF_A_COLUMN: u64 = 2048;
const COPIED_OF_A_COLUMN: u64 = 8192;

/// The cores of [`Repertoire::Token`].
#[derive(Debug)]
pub(super) struct Cores(pub Arc<Machine>);

/// Words that are read for a word of a result.
fn factor(format: Option<u32>) -> u64 {
    if format.is_some() { 2 } else { 1 }
}

impl Mover for Cores {
    fn configured(&self) -> &Configured {
        self.0.elements.configured()
    }

    fn columns(&self, words: u64, format: Option<u32>) -> u64 {
        let worth = if format.is_some() { PACKED_OF_A_COLUMN } else { COPIED_OF_A_COLUMN };
        words.div_ceil(worth).clamp(1, self.0.elements.columns().into())
    }

    fn most_words(&self, format: Option<u32>) -> u64 {
        MOST_WORDS / factor(format)
    }

    /// A tile is a row, or an equal part of one.
    fn phase(&self, dispatch: &mut Dispatch<'_>, passes: &[Pass], row: u64, format: Option<u32>) -> Result<(), String> {
        let text = |error: ArrayError| error.to_string();
        let factor = factor(format);
        let fits = |parts: &u64| row.is_multiple_of(*parts) && factor * row / parts <= BUFFER_WORDS;
        let packed = (1..=row).find(fits).map_or(1, |parts| row / parts);
        let read = factor * packed;
        for pass in passes {
            let tiles = pass.words() / packed;
            if !are_few(tiles, read) || !are_few(tiles, packed) {
                return Err(format!("{tiles} tiles of {packed} words for a column"));
            }
        }
        let step = match format {
            Some(pack::F16) => Step::halves(Slot::A, Slot::Result),
            Some(_) => Step::narrow_to(Slot::A, Slot::Result),
            None => Step::bits(Slot::A, !0, 0, Slot::Result),
        };
        for (column, pass) in (0..).zip(passes) {
            let tiles = u32::try_from(pass.words() / packed).unwrap_or(u32::MAX);
            let flow =
                |words, regions: &[_]| Flow { cut: cut(words), tiles: vec![(words, tiles)], regions: regions.to_vec() };
            let lists = [(&[][..], 0), (&[][..], 0), (&[step][..], read)];
            let work = ElementsColumn {
                parameters: parameters(Repertoire::Token, [1, tiles, 0], [read, 0, packed, 0], lists)?,
                a: Some(flow(read, &pass.from)),
                result: flow(packed, &pass.to),
                ..ElementsColumn::default()
            };
            self.0.elements.add(dispatch, column, &work).map_err(text)?;
        }
        dispatch.end_phase().map(|_| ()).map_err(text)
    }
}
