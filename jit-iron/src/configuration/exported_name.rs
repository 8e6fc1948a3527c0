//! Names under which kernels are written.
//!
//! They come from a file that somebody else may have written and become file names, so only names are taken that cannot
//! leave their folder, hide in it, or exceed what file systems allow.

use super::document::quoted;
use thiserror::Error;

/// Longest name in bytes: file systems allow 255, and the endings `_insts.bin` and those of temporary files are added.
const MAX_BYTES: usize = 200;

/// A name cannot be that of a kernel's files.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum ExportedNameError {
    /// Nothing.
    #[error("the name is empty; leave 'exported_name' out to use the name that the backend looks for")]
    Empty,
    /// A hidden file, or a folder above.
    #[error("`{}` begins with a dot; begin with a letter or a digit", quoted(.0))]
    Dot(String),
    /// Something that is not plain in a file name.
    #[error(
        "`{}` has {character:?} in it; possible: letters a-z and A-Z, digits, and the characters . _ -",
        quoted(name)
    )]
    Character {
        /// The name.
        name: String,
        /// The first character that is not possible.
        character: char,
    },
    /// Too long.
    #[error("`{}` has {} bytes, at most {MAX_BYTES} are possible; choose a shorter one", quoted(.0), .0.len())]
    Long(String),
}

/// Whether a kernel's files may have this name.
///
/// # Errors
/// What is wrong with it.
pub fn check_exported_name(name: &str) -> Result<(), ExportedNameError> {
    if name.is_empty() {
        return Err(ExportedNameError::Empty);
    }
    if let Some(character) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        return Err(ExportedNameError::Character { name: name.into(), character });
    }
    if name.starts_with('.') {
        return Err(ExportedNameError::Dot(name.into()));
    }
    if name.len() > MAX_BYTES {
        return Err(ExportedNameError::Long(name.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("add_f32_1024")]
    #[case("add-1024f32-1024f32-1024f32")]
    #[case("A.b..c-")]
    fn plain_names_pass(#[case] name: &str) {
        assert_eq!(check_exported_name(name), Ok(()));
    }

    #[rstest]
    #[case("", "is empty")]
    #[case("..", "begins with a dot")]
    #[case(".hidden", "begins with a dot")]
    #[case("../up", "has '/' in it")]
    #[case("/etc/passwd", "has '/' in it")]
    #[case("a\\b", "has '\\\\' in it")]
    #[case("a\0b", "has '\\0' in it")]
    #[case("a b", "has ' ' in it")]
    #[case("\u{e4}", "has '\u{e4}' in it")]
    fn names_that_could_escape_are_refused(#[case] name: &str, #[case] expected: &str) {
        let message = check_exported_name(name).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains('\0'), "{message:?}");
    }

    #[test]
    fn long_names_are_refused() {
        assert_eq!(check_exported_name(&"a".repeat(200)), Ok(()));
        let message = check_exported_name(&"a".repeat(201)).unwrap_err().to_string();
        assert!(message.contains("has 201 bytes, at most 200 are possible"), "{message}");
    }
}
