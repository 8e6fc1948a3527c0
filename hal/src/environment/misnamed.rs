//! Variables that are set under a name that is not, or no longer, a setting's.
//!
//! A typing mistake in a name has no effect at all, so nobody would notice it but by wondering. The nearest name is found by
//! the letters to change, and where that finds none, by words left out (`GGML_HSA_LOG` for `GGML_HSA_ENABLE_LOG`).

use super::removed::{self, Removed};
use super::table::TABLE;
use super::{PREFIXES, Variable, is_ours, table};
use std::fmt;

/// A variable whose name is wrong. It prints as a message for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misnamed {
    /// No setting has this name.
    Unknown {
        /// The name.
        name: String,
        /// The setting that was probably meant, when there is one with a name like it.
        nearest: Option<&'static Variable>,
    },
    /// It was a setting once.
    Removed(&'static Removed),
    /// It still works.
    Older {
        /// The older name.
        variable: &'static Variable,
        /// The name to use.
        replacement: &'static Variable,
    },
}

impl Misnamed {
    /// What is wrong with a name that is set; `None` when nothing is, or when it is no name of ours.
    pub(super) fn check(name: &str) -> Option<Self> {
        match table::find(name) {
            Some(variable) => variable.replacement().map(|replacement| Self::Older { variable, replacement }),
            None if removed::find(name).is_some() => removed::find(name).map(Self::Removed),
            None if is_ours(name) => Some(Self::Unknown { name: name.to_owned(), nearest: nearest(name) }),
            None => None,
        }
    }
}

impl fmt::Display for Misnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, nearest: Some(nearest) } => {
                write!(f, "{name} is not a setting; did you mean {nearest}?")
            }
            Self::Unknown { name, nearest: None } => {
                write!(f, "{name} is not a setting and has no effect; docs/environment.md lists all there are")
            }
            Self::Removed(Removed { name, instead }) => write!(f, "{name} has no effect any more: {instead}"),
            Self::Older { variable, replacement } => {
                write!(f, "{variable} is an older name, still understood; use {replacement}")
            }
        }
    }
}

/// The part of a name by which settings differ, in upper case: without the prefix, which would make all names look alike.
fn own_part(name: &str) -> String {
    let rest = PREFIXES.iter().find_map(|prefix| {
        let (start, rest) = name.split_at_checked(prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then_some(rest)
    });
    rest.unwrap_or(name).trim_start_matches('_').to_ascii_uppercase()
}

fn nearest(name: &str) -> Option<&'static Variable> {
    let wrong = own_part(name);
    let same_prefix = |known: &Variable| known.name().get(..4) == name.get(..4);
    let known = || TABLE.iter().filter(|known| is_ours(known.name()) && known.replacement().is_none());
    let by_letters = known().filter_map(|known| {
        let own = own_part(known.name());
        let distance = edits(&wrong, &own);
        // A third of the letters: with more, short names would be near to everything.
        (distance <= (own.len().min(wrong.len()) / 3)).then_some((distance, !same_prefix(known), known))
    });
    if let Some((_, _, nearest)) = by_letters.min_by_key(|&(distance, foreign, _)| (distance, foreign)) {
        return Some(nearest);
    }
    let words: Vec<&str> = wrong.split('_').filter(|word| !word.is_empty()).collect();
    let by_words = known().filter(|known| {
        let own = own_part(known.name());
        words.iter().all(|word| own.split('_').any(|own| own == *word))
    });
    by_words.min_by_key(|known| (!same_prefix(known), known.name().len()))
}

/// How many letters have to be inserted, left out, replaced, or swapped with their neighbour to turn `a` into `b`.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // The last rows of the table of distances between the beginnings of both; the next one needs two of them, for swaps.
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::same("JIT", "JIT", 0)]
    #[case::inserted("KERNELDIR", "KERNEL_DIR", 1)]
    #[case::left_out("STATSS", "STATS", 1)]
    #[case::replaced("F15", "F16", 1)]
    #[case::swapped("FUSOIN", "FUSION", 1)]
    #[case::empty("", "STATS", 5)]
    #[case::two("DEVCIE_TIPE", "DEVICE_TYPE", 2)]
    fn letters_to_change(#[case] a: &str, #[case] b: &str, #[case] expected: usize) {
        assert_eq!((edits(a, b), edits(b, a)), (expected, expected));
    }

    #[rstest]
    #[case::underscore("GGML_HSA_KERNELDIR", Some("GGML_HSA_KERNEL_DIR"))]
    #[case::letter("GGML_HSA_DEVICE", Some("GGML_HSA_DEVICES"))]
    #[case::swap("GGML_HSA_FUSOIN", Some("GGML_HSA_FUSION"))]
    #[case::case("GGML_HSA_Stats", Some("GGML_HSA_STATS"))]
    #[case::lower("ggml_hsa_stats", Some("GGML_HSA_STATS"))]
    #[case::no_underscore("GGML_HSAJIT_TIMEOUT", Some("GGML_HSA_JIT_TIMEOUT"))]
    #[case::word_left_out("GGML_HSA_LOG", Some("GGML_HSA_ENABLE_LOG"))]
    #[case::word_left_out("GGML_HSA_CACHE_DIR", Some("GGML_HSA_KERNEL_CACHE_DIR"))]
    #[case::other_prefix("GGML_HSA_VISIBLE_DEVICES", Some("AIE_HAL_VISIBLE_DEVICES"))]
    #[case::other_prefix("AIE_HAL_STATS", Some("GGML_HSA_STATS"))]
    #[case::own_prefix("AIE_HAL_LIBHSA", Some("AIE_HAL_LIBHSA_PATH"))]
    #[case::far("GGML_HSA_COLOUR_OF_THE_CASE", None)]
    #[case::nothing_behind_it("GGML_HSA_", Some("GGML_HSA"))]
    #[case::not_ascii("GGML_HSA_É", None)]
    fn the_nearest_name(#[case] wrong: &str, #[case] expected: Option<&str>) {
        let Some(Misnamed::Unknown { name, nearest }) = Misnamed::check(wrong) else {
            panic!("{wrong} is taken for a setting");
        };
        assert_eq!((name.as_str(), nearest.map(Variable::name)), (wrong, expected));
    }

    #[test]
    fn without_a_near_name_the_page_is_named() {
        let told = Misnamed::check("GGML_HSA_COLOUR_OF_THE_CASE").unwrap().to_string();
        let expected =
            "GGML_HSA_COLOUR_OF_THE_CASE is not a setting and has no effect; docs/environment.md lists all there are";
        assert_eq!(told, expected);
    }

    #[test]
    fn a_removed_setting_says_so_and_is_no_typing_mistake() {
        for removed in removed::REMOVED {
            let told = Misnamed::check(removed.name).unwrap().to_string();
            assert!(told.starts_with(&format!("{} has no effect any more: ", removed.name)), "{told}");
            assert_eq!(table::find(removed.name), None);
        }
    }

    #[test]
    fn no_setting_and_no_foreign_name_is_misnamed() {
        for variable in TABLE.iter().filter(|variable| variable.replacement().is_none()) {
            assert_eq!(Misnamed::check(variable.name()), None, "{variable}");
        }
        for name in ["GGML_BACKEND_PATH", "GGML", "AIE_HA", "", "É", "AMDXDNA_SIM_FAULTS"] {
            assert_eq!(Misnamed::check(name), None, "{name}");
        }
    }

    #[test]
    fn an_older_name_is_never_proposed() {
        let Some(Misnamed::Unknown { nearest, .. }) = Misnamed::check("GGML_HSA_JIT_CLEAR_CACH") else { panic!() };
        assert_ne!(nearest.map(Variable::name), Some("GGML_HSA_JIT_CLEAR_CACHE"));
    }
}
