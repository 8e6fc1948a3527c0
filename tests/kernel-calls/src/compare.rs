//! The differences between two runs, call by call.
//!
//! Scripts make the same calls whatever the answers are, but for what a rejection leaves out (no one waits for a submission that
//! was rejected). So calls are matched by what they ask, and those that have no counterpart are differences themselves.

use crate::record::Record;
use serde::Serialize;
use serde_json::Value;
use std::fmt::{Display, Formatter};

/// How far a counterpart is looked for.
const LOOKAHEAD: usize = 12;

/// Something that is not the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// The script.
    pub script: String,
    /// Number of the call in the first run; in the second when only that one has it.
    pub step: usize,
    /// The call.
    pub call: String,
    /// What the call asks, for people.
    pub about: String,
    /// `result`, a field of the answer, or `made` when only one of the runs has the call.
    pub field: String,
    /// The first run's side.
    pub first: String,
    /// The second run's.
    pub second: String,
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { script, step, call, about, field, first, second } = self;
        write!(f, "{script} {step}: {call} {about}: {field}: {first} | {second}")
    }
}

/// All differences, in the order of the first run.
pub fn differences(first: &[Record], second: &[Record]) -> Vec<Difference> {
    let (first, second) = (by_script(first), by_script(second));
    let only_second = second.iter().filter(|(name, _)| first.iter().all(|(other, _)| other != name));
    let names: Vec<&str> = first.iter().chain(only_second).map(|(name, _)| *name).collect();
    names.into_iter().flat_map(|name| in_script(of(&first, name), of(&second, name))).collect()
}

/// The calls of each script, in the order of their first ones.
type Runs<'a> = Vec<(&'a str, Vec<&'a Record>)>;

fn by_script(records: &[Record]) -> Runs<'_> {
    let mut runs = Runs::new();
    for record in records {
        match runs.iter_mut().find(|(name, _)| *name == record.script) {
            Some((_, list)) => list.push(record),
            None => runs.push((&record.script, vec![record])),
        }
    }
    runs
}

fn of<'a, 'b>(runs: &'b Runs<'a>, script: &str) -> &'b [&'a Record] {
    runs.iter().find(|(name, _)| *name == script).map_or(&[], |(_, list)| list)
}

fn in_script(first: &[&Record], second: &[&Record]) -> Vec<Difference> {
    let mut found = Vec::new();
    let (mut a, mut b) = (0, 0);
    loop {
        match (first.get(a), second.get(b)) {
            (None, None) => return found,
            (Some(one), Some(other)) if is_same(one, other) => {
                found.extend(answers(one, other));
                (a, b) = (a + 1, b + 1);
            }
            (one, other) => {
                let after = one.and_then(|one| place(second, b, one));
                let before = other.and_then(|other| place(first, a, other));
                // What is nearer continues; a call that the other run does not have is a difference.
                match (one, other, after, before) {
                    (Some(_), Some(other), Some(after), before) if before.is_none_or(|before| after <= before) => {
                        found.push(only(other, false));
                        b += 1;
                    }
                    (Some(one), Some(_), _, Some(_)) | (Some(one), None, ..) => {
                        found.push(only(one, true));
                        a += 1;
                    }
                    (None, Some(other), ..) => {
                        found.push(only(other, false));
                        b += 1;
                    }
                    (Some(one), Some(other), ..) => {
                        found.extend([only(one, true), only(other, false)]);
                        (a, b) = (a + 1, b + 1);
                    }
                    (None, None, ..) => return found,
                }
            }
        }
    }
}

/// How far ahead a call's counterpart is.
fn place(records: &[&Record], from: usize, wanted: &Record) -> Option<usize> {
    records[from..].iter().take(LOOKAHEAD).position(|record| is_same(record, wanted))
}

/// Whether two calls ask the same. Numbers of names do not count: one rejection shifts all that come later.
fn is_same(one: &Record, other: &Record) -> bool {
    let input = |record: &Record| unnumbered(&Value::Object(record.input.clone()));
    one.call == other.call && one.structure == other.structure && input(one) == input(other)
}

fn unnumbered(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let name = text.trim_end_matches(|c: char| c.is_ascii_digit());
            let kind = name.rsplit(' ').next().unwrap_or(name);
            let is_name = name.len() < text.len() && ["bo", "context", "syncobj", "fd"].contains(&kind);
            Value::from(if is_name { format!("{name}#") } else { text.clone() })
        }
        // A handle that was rejected is 0.
        Value::Array(values) => values.iter().map(unnumbered).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), unnumbered(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn about(record: &Record) -> String {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields = record.input.iter().filter(|(_, value)| *value != "pointer");
    fields.map(|(name, value)| format!("{name}={}", shown(value))).collect::<Vec<_>>().join(" ")
}

fn difference(record: &Record, field: &str, first: String, second: String) -> Difference {
    Difference {
        script: record.script.clone(),
        step: record.step,
        call: record.call.clone(),
        about: about(record),
        field: field.to_owned(),
        first,
        second,
    }
}

fn only(record: &Record, is_first: bool) -> Difference {
    let (here, there) = (record.result.clone(), "not made".to_owned());
    let (first, second) = if is_first { (here, there) } else { (there, here) };
    difference(record, "made", first, second)
}

fn answers(one: &Record, other: &Record) -> Vec<Difference> {
    if one.result != other.result {
        // What a rejected call leaves in its fields follows from that.
        return vec![difference(one, "result", one.result.clone(), other.result.clone())];
    }
    let mut names: Vec<&String> = one.output.keys().chain(other.output.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let shown = |record: &Record, name: &String| {
        record.output.get(name).map_or_else(|| "unchanged".to_owned(), |value| unnumbered(value).to_string())
    };
    let pairs = names.into_iter().map(|name| (name, shown(one, name), shown(other, name)));
    pairs.filter(|(_, a, b)| a != b).map(|(name, a, b)| difference(one, name, a, b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of one script: input and answer of each call.
    fn run(calls: &[(&str, &str, &str)]) -> Vec<Record> {
        let lines = calls.iter().enumerate().map(|(index, (input, result, output))| {
            format!(
                r#"{{"script":"s","step":{},"call":"C","in":{{"x":{input}}},"result":"{result}","out":{{"y":{output}}}}}"#,
                index + 1
            )
        });
        crate::record::read(&lines.collect::<Vec<_>>().join("\n")).unwrap()
    }

    fn found(first: &[(&str, &str, &str)], second: &[(&str, &str, &str)]) -> Vec<String> {
        differences(&run(first), &run(second)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn results_and_fields_are_compared() {
        let first = [("1", "ok", "5"), ("2", "ok", "5")];
        assert!(found(&first, &first).is_empty());
        assert_eq!(
            found(&first, &[("1", "EINVAL", "6"), ("2", "ok", "6")]),
            ["s 1: C x=1: result: ok | EINVAL", "s 2: C x=2: y: 5 | 6"]
        );
    }

    #[test]
    fn calls_that_only_one_run_has_do_not_shift_the_others() {
        let short = [("1", "ok", "5"), ("3", "ok", "5")];
        let long = [("1", "ok", "5"), ("2", "EIO", "5"), ("3", "ok", "6")];
        assert_eq!(found(&short, &long), ["s 2: C x=2: made: not made | EIO", "s 2: C x=3: y: 5 | 6"]);
        assert_eq!(found(&long, &short), ["s 2: C x=2: made: EIO | not made", "s 3: C x=3: y: 6 | 5"]);
        assert_eq!(found(&long, &[("1", "ok", "5")]).len(), 2);
        assert_eq!(found(&[("1", "ok", "5")], &[("9", "ok", "5")]).len(), 2);
    }

    #[test]
    fn numbers_of_names_do_not_count() {
        let first = [(r#""bo3""#, "ok", r#""again bo3""#)];
        assert!(found(&first, &[(r#""bo4""#, "ok", r#""again bo4""#)]).is_empty());
        assert_eq!(found(&first, &[(r#""bo4""#, "ok", r#""bo5""#)]), [r##"s 1: C x=bo3: y: "again bo#" | "bo#""##]);
    }

    #[test]
    fn a_script_that_only_one_run_has_is_a_difference() {
        let one = run(&[("1", "ok", "5")]);
        assert_eq!(differences(&one, &[]).len(), 1);
        assert_eq!(differences(&[], &one)[0].to_string(), "s 1: C x=1: made: not made | ok");
    }
}
