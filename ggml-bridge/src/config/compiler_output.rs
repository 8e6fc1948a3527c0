//! Where the output of compilers is shown.

use aie_hal::environment::switch;
use std::path::PathBuf;

/// Where the output of compilers is shown when it is shown at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CompilerOutput {
    /// In the log, line by line.
    #[default]
    Log,
    /// On the program's standard error, as it is.
    StandardError,
    /// At the end of this file.
    File(PathBuf),
}

impl CompilerOutput {
    /// Reads a setting: a word for yes or no, or a file. Empty is the default.
    pub fn parse(text: &str) -> Self {
        match switch(text) {
            Some(true) => Self::Log,
            Some(false) => Self::StandardError,
            None if text.is_empty() => Self::Log,
            None => Self::File(text.into()),
        }
    }

    /// The same for a value of the environment, which is a file when it is not a text.
    pub fn from_setting(value: PathBuf) -> Self {
        match value.to_str() {
            Some(text) => Self::parse(text),
            None => Self::File(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[rstest]
    #[case("", CompilerOutput::Log)]
    #[case("ON", CompilerOutput::Log)]
    #[case("1", CompilerOutput::Log)]
    #[case("OFF", CompilerOutput::StandardError)]
    #[case("0", CompilerOutput::StandardError)]
    #[case("jit.log", CompilerOutput::File("jit.log".into()))]
    #[case("./1", CompilerOutput::File("./1".into()))]
    fn words_and_files(#[case] text: &str, #[case] expected: CompilerOutput) {
        assert_eq!(CompilerOutput::parse(text), expected);
        assert_eq!(CompilerOutput::from_setting(text.into()), expected);
    }

    #[test]
    fn a_file_name_need_not_be_text() {
        let odd = PathBuf::from(OsStr::from_bytes(b"/log\xff"));
        assert_eq!(CompilerOutput::from_setting(odd.clone()), CompilerOutput::File(odd));
    }
}
