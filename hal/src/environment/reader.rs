//! Reading values, so that no invalid one is ignored silently.

use super::{Environment, Variable};
use std::str::FromStr;
use thiserror::Error;

/// Words that mean yes; other spellings do not.
pub const TRUTHY: [&str; 10] = ["1", "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"];

/// Words that mean no.
pub const FALSY: [&str; 10] = ["0", "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"];

/// What a switch with `value` says: yes, no, or neither. Constant, so that defaults of a build can be checked with it.
pub const fn switch(value: &str) -> Option<bool> {
    let mut at = 0;
    while at < TRUTHY.len() {
        if same(value.as_bytes(), TRUTHY[at].as_bytes()) {
            return Some(true);
        }
        if same(value.as_bytes(), FALSY[at].as_bytes()) {
            return Some(false);
        }
        at += 1;
    }
    None
}

/// `a == b`, which the compiler cannot evaluate yet.
const fn same(a: &[u8], b: &[u8]) -> bool {
    match (a, b) {
        ([], []) => true,
        ([x, a @ ..], [y, b @ ..]) => *x == *y && same(a, b),
        _ => false,
    }
}

/// A size in bytes: digits, perhaps with K, M, G or T (powers of 1024), perhaps with B or iB behind.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// What is wrong with the value of a variable. It prints as a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct Problem {
    /// The variable's name.
    pub variable: &'static str,
    /// Names the variable, the value, and the possible ones.
    pub text: String,
}

/// Reads values and collects what was not understood. An empty value counts as not set.
#[derive(Debug)]
pub struct Reader<'a> {
    /// What is read.
    pub environment: &'a Environment,
    /// What was not understood.
    pub problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    /// A reader of `environment`.
    pub fn new(environment: &'a Environment) -> Self {
        Self { environment, problems: Vec::new() }
    }

    /// The value as `parse` reads it; `None` when it is not set or not understood.
    pub fn value<T>(&mut self, variable: &Variable, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = self.environment.text(variable)?;
        let value = parse(&text);
        if value.is_none() {
            let possible = possible(variable);
            let text = format!("{variable}: `{text}` is not valid; possible: {possible}; it is ignored");
            self.problems.push(Problem { variable: variable.name, text });
        }
        value
    }

    /// The value of a switch, if it is valid.
    pub fn switch(&mut self, variable: &Variable) -> Option<bool> {
        self.value(variable, switch)
    }

    /// A size in bytes that is at least `least`.
    pub fn bytes(&mut self, variable: &Variable, least: u64) -> Option<u64> {
        self.value(variable, |text| parse_bytes(text).filter(|&bytes| bytes >= least))
    }

    /// A number in `range`.
    pub fn number<T: FromStr + PartialOrd>(
        &mut self,
        variable: &Variable,
        range: std::ops::RangeInclusive<T>,
    ) -> Option<T> {
        self.value(variable, |text| text.trim().parse().ok().filter(|number| range.contains(number)))
    }
}

/// The possible values of `variable` as plain text.
fn possible(variable: &Variable) -> String {
    let values = variable.values.replace('`', "");
    let values = values.replacen("a switch", "1, true, yes, on; 0, false, no, off", 1);
    values.replacen("a size", "bytes, or a number with K, M, G or T", 1)
}

#[cfg(test)]
mod tests {
    use super::super::examples::{TOOL_RUN, TOOL_RUN_STATS, TOOL_RUN_WEIGHTS_MAX, TOOL_RUN_WORKERS};
    use super::*;
    use rstest::rstest;

    #[rstest]
    fn every_usual_word_is_understood(
        #[values(("1", "0"), ("true", "false"), ("yes", "no"), ("on", "off"))] words: (&str, &str),
        #[values(0, 1, 2)] spelling: usize,
    ) {
        let spell = |word: &str| match spelling {
            0 => word.to_owned(),
            1 => word[..1].to_uppercase() + &word[1..],
            _ => word.to_uppercase(),
        };
        assert_eq!((switch(&spell(words.0)), switch(&spell(words.1))), (Some(true), Some(false)));
    }

    #[rstest]
    fn anything_else_is_neither(#[values("", " 1", "1 ", "2", "tRUE", "oN", "y", "enabled")] word: &str) {
        assert_eq!(switch(word), None);
    }

    #[rstest]
    #[case("17", Some(17))]
    #[case("2K", Some(2048))]
    #[case("3 MiB", Some(3 << 20))]
    #[case("1g", Some(1 << 30))]
    #[case("16T", Some(16 << 40))]
    #[case("", None)]
    #[case("x", None)]
    #[case("1.5G", None)]
    #[case("99999999999999999999", None)]
    #[case("18446744073709551615K", None)]
    fn sizes(#[case] text: &str, #[case] expected: Option<u64>) {
        assert_eq!(parse_bytes(text), expected);
    }

    #[rstest]
    #[case(TOOL_RUN, "on", "", Some(1))]
    #[case(TOOL_RUN, "0", "", Some(0))]
    #[case(TOOL_RUN, "", "", None)]
    #[case(TOOL_RUN, "banana", "1, true, yes, on; 0, false, no, off", None)]
    #[case(TOOL_RUN_WEIGHTS_MAX, "2K", "", Some(2048))]
    #[case(TOOL_RUN_WEIGHTS_MAX, "0", "bytes, or a number with K, M, G or T, above 0", None)]
    #[case(TOOL_RUN_WORKERS, " 256", "", Some(256))]
    #[case(TOOL_RUN_WORKERS, "257", "0 to 256", None)]
    #[case(TOOL_RUN_STATS, "csv", "", Some(3))]
    #[case(TOOL_RUN_STATS, "xml", "json, csv", None)]
    fn values_and_what_is_said_of_those_that_are_none(
        #[case] variable: Variable,
        #[case] value: &str,
        #[case] possible: &str,
        #[case] expected: Option<u64>,
    ) {
        let environment = Environment::from_pairs([(variable.name, value)]);
        let mut reader = Reader::new(&environment);
        let read = match variable {
            TOOL_RUN => reader.switch(&variable).map(u64::from),
            TOOL_RUN_WEIGHTS_MAX => reader.bytes(&variable, 1),
            TOOL_RUN_WORKERS => reader.number(&variable, 0..=256),
            _ => reader.value(&variable, |text| ["json", "csv"].contains(&text).then_some(text.len() as u64)),
        };
        let text = format!("{variable}: `{value}` is not valid; possible: {possible}; it is ignored");
        let problem = Problem { variable: variable.name, text };
        assert_eq!((read, reader.problems), (expected, Vec::from_iter((!possible.is_empty()).then_some(problem))));
    }
}
