//! Reading settings so that none is ignored in silence.

use aie_hal::Environment;
use aie_hal::environment::{Variable, switch};
use std::path::PathBuf;

/// Reads values and keeps what was not understood. An empty value counts as not set.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    environment: &'a Environment,
    /// What was not understood, in sentences.
    pub problems: Vec<String>,
}

impl<'a> Reader<'a> {
    pub fn new(environment: &'a Environment) -> Self {
        Self { environment, problems: Vec::new() }
    }

    /// The value as `parse` reads it. `what` says what it should be and `possible` what it can be, for the message.
    pub fn value<T>(
        &mut self,
        variable: &Variable,
        what: &str,
        possible: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.environment.text(variable)?;
        let value = parse(&text);
        if value.is_none() {
            self.problems.push(format!("{variable}: `{text}` is not {what}; possible: {possible}; it is ignored"));
        }
        value
    }

    /// What a switch says, if it says something.
    pub fn switch(&mut self, variable: &Variable) -> Option<bool> {
        self.value(variable, "a word for yes or no", "1, true, yes, on; 0, false, no, off", switch)
    }

    /// A path.
    pub fn path(&self, variable: &Variable) -> Option<PathBuf> {
        self.environment.path(variable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::environment::table::GGML_HSA_FUSION;
    use rstest::rstest;

    #[rstest]
    #[case("on", Some(true), None)]
    #[case("0", Some(false), None)]
    #[case("", None, None)]
    #[case(
        "perhaps",
        None,
        Some(
            "GGML_HSA_FUSION: `perhaps` is not a word for yes or no; possible: 1, true, yes, on; 0, false, no, off; it is ignored"
        )
    )]
    fn switches(#[case] value: &str, #[case] expected: Option<bool>, #[case] problem: Option<&str>) {
        let environment = Environment::from_pairs([("GGML_HSA_FUSION", value)]);
        let mut reader = Reader::new(&environment);
        assert_eq!(reader.switch(&GGML_HSA_FUSION), expected);
        assert_eq!(reader.problems, Vec::from_iter(problem));
    }
}
