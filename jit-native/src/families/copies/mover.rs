//! What moves the words of copies: an array, and how work is dealt over its columns.
//!
//! Which words go where is the same for all ([`Movement`](super::movement::Movement), [`rows`](super::rows)). Through mem tiles they go
//! in any number; through the cores that have the functions of vectors, in the numbers of a decoded token.

use super::design::columns;
use crate::array::{ArrayError, Configured, Dispatch, Pass, Passes};
use std::fmt::Debug;

/// An array that moves words from one argument into another.
pub(in crate::families) trait Mover: Debug + Send + Sync {
    /// The array.
    fn configured(&self) -> &Configured;

    /// How many columns share so many words of a result, of a [format](super::design::format_of) if they are packed.
    fn columns(&self, words: u64, format: Option<u32>) -> u64;

    /// The most words of a result that a column moves in a phase.
    fn most_words(&self, format: Option<u32>) -> u64;

    /// Adds what each column does in a phase, and ends it. What is written is rows of `row` words, none of which may wait for words of the
    /// next.
    ///
    /// # Errors
    /// When there are not as many columns, or it takes more memory, tasks or descriptors than there are.
    fn phase(&self, dispatch: &mut Dispatch<'_>, passes: &[Pass], row: u64, format: Option<u32>) -> Result<(), String>;
}

impl Mover for Passes {
    fn configured(&self) -> &Configured {
        Self::configured(self)
    }

    fn columns(&self, words: u64, _: Option<u32>) -> u64 {
        columns(self, words)
    }

    fn most_words(&self, format: Option<u32>) -> u64 {
        if format.is_some() { Self::MOST_PACKED } else { Self::MOST_PASSED }
    }

    fn phase(&self, dispatch: &mut Dispatch<'_>, passes: &[Pass], _: u64, format: Option<u32>) -> Result<(), String> {
        let text = |error: ArrayError| error.to_string();
        for (column, pass) in (0..).zip(passes) {
            match format {
                Some(format) => self.pack(dispatch, column, pass, format),
                None => self.pass(dispatch, column, pass),
            }
            .map_err(text)?;
        }
        dispatch.end_phase().map(|_| ()).map_err(text)
    }
}
