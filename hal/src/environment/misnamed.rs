//! Variables that are set under a name that is not, or no longer, a setting's.
//!
//! A typing mistake in a name has no effect at all, so it would go unnoticed. The nearest name is found by
//! the letters to change, and where that finds none, by words left out (`TOOL_LOG` for `TOOL_ENABLE_LOG`).

use super::{Removed, Settings};
use thiserror::Error;

/// A variable whose name is wrong. It prints as a message for the user.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misnamed {
    /// No setting has this name, but one has a name like it.
    #[error("{name} is not a setting; did you mean {nearest}?")]
    Misspelt {
        /// The name.
        name: String,
        /// The setting that was probably meant.
        nearest: &'static str,
    },
    /// No setting has this name or one like it.
    #[error("{0} is not a setting and has no effect; docs/environment.md lists all settings")]
    Unknown(String),
    /// It is a removed setting.
    #[error("{} has no effect any more: {}", .0.name, .0.instead)]
    Removed(Removed),
    /// It still works.
    #[error("{name} is an older name, still accepted; use {replacement}")]
    Older {
        /// The older name.
        name: &'static str,
        /// The name to use.
        replacement: &'static str,
    },
}

impl Misnamed {
    /// The name that is set.
    pub fn name(&self) -> &str {
        match self {
            Self::Misspelt { name, .. } | Self::Unknown(name) => name,
            Self::Removed(removed) => removed.name,
            Self::Older { name, .. } => name,
        }
    }

    /// What is wrong with a name that is set; `None` when nothing is, or when it is not a name like those of `declared`.
    pub(super) fn check(name: &str, declared: &[Settings]) -> Option<Self> {
        let variables = || declared.iter().flat_map(|settings| settings.variables);
        if variables().any(|variable| variable.name == name) {
            return None;
        }
        if let Some((older, variable)) = variables().find_map(|v| Some((v.older.filter(|&older| older == name)?, v))) {
            return Some(Self::Older { name: older, replacement: variable.name });
        }
        if let Some(removed) = declared.iter().flat_map(|settings| settings.removed).find(|r| r.name == name) {
            return Some(Self::Removed(*removed));
        }
        own_part(name, declared)?;
        Some(match nearest(name, declared) {
            Some(nearest) => Self::Misspelt { name: name.to_owned(), nearest },
            None => Self::Unknown(name.to_owned()),
        })
    }
}

/// The part of a name by which settings differ, in upper case: without the prefix, which would make all names look alike.
/// `None` for a name that begins with no prefix of `declared`.
fn own_part(name: &str, declared: &[Settings]) -> Option<String> {
    declared.iter().find_map(|settings| {
        let (start, rest) = name.split_at_checked(settings.prefix.len())?;
        let ours = start.eq_ignore_ascii_case(settings.prefix);
        ours.then(|| rest.trim_start_matches('_').to_ascii_uppercase())
    })
}

fn nearest(name: &str, declared: &[Settings]) -> Option<&'static str> {
    let wrong = own_part(name, declared)?;
    let names = || declared.iter().flat_map(|settings| settings.variables).map(|variable| variable.name);
    let known = || names().filter_map(|known| Some((known, own_part(known, declared)?)));
    let foreign = |known: &str| known.get(..4) != name.get(..4);
    let by_letters = known().filter_map(|(known, own)| {
        let distance = strsim::osa_distance(&wrong, &own);
        // A third of the letters: with more, short names would be near to everything.
        (distance <= (own.len().min(wrong.len()) / 3)).then(|| (distance, foreign(known), known))
    });
    let words: Vec<&str> = wrong.split('_').filter(|word| !word.is_empty()).collect();
    let has_words = |own: &str| !words.is_empty() && words.iter().all(|word| own.split('_').any(|own| own == *word));
    let by_words = || known().filter(|(_, own)| has_words(own)).min_by_key(|(known, _)| (foreign(known), known.len()));
    by_letters.min().map(|(_, _, known)| known).or_else(|| by_words().map(|(known, _)| known))
}
