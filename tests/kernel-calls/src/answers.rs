//! What the scripts are answered, one line for each: short enough to be checked in, so that a changed answer of a simulated kernel shows
//! without a real one beside it.

use crate::record::Record;
use aie_hal::artifact::Digest;
use std::collections::BTreeMap;

/// Answers by script: the results of its calls in order, and a digest of all that is recorded of them.
pub type Answers = BTreeMap<String, String>;

/// The answers of a run.
pub fn answers(records: &[Record]) -> Answers {
    records
        .chunk_by(|one, next| one.script == next.script)
        .map(|script| (script[0].script.clone(), line(script)))
        .collect()
}

fn line(script: &[Record]) -> String {
    let results = script.chunk_by(|one, next| one.result == next.result).map(|same| match same.len() {
        1 => same[0].result.clone(),
        count => format!("{count}*{}", same[0].result),
    });
    let lines: Vec<String> =
        script.iter().map(|record| serde_json::to_string(record).expect("records are plain")).collect();
    let digest = Digest::of(lines.join("\n").as_bytes()).to_string();
    format!("{} #{}", results.collect::<Vec<_>>().join(" "), &digest[..12])
}

/// The scripts whose answers are not those of before, with both.
pub fn changes(before: &Answers, now: &Answers) -> Vec<String> {
    let scripts = before.keys().chain(now.keys().filter(|script| !before.contains_key(*script)));
    let shown = |answers: &Answers, script: &str| answers.get(script).map_or_else(|| "none".to_owned(), Clone::clone);
    let both = scripts.map(|script| (script, shown(before, script), shown(now, script)));
    both.filter(|(_, before, now)| before != now)
        .map(|(script, before, now)| format!("`{script}`: {before} | {now}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(handle: &str) -> Answers {
        let line = |step: usize, result: &str| {
            format!(r#"{{"script":"a","step":{step},"call":"C","result":"{result}","out":{{"handle":"{handle}"}}}}"#)
        };
        answers(&crate::record::read(&[line(1, "ok"), line(2, "ok"), line(3, "EIO")].join("\n")).unwrap())
    }

    #[test]
    fn results_and_fields_are_part_of_a_scripts_answers() {
        assert!(run("bo1")["a"].starts_with("2*ok EIO #"), "{:?}", run("bo1"));
        assert!(changes(&run("bo1"), &run("bo1")).is_empty());
        assert_eq!(changes(&run("bo1"), &run("bo2")).len(), 1, "the results are the same, a field is not");
        assert!(changes(&Answers::new(), &run("bo1"))[0].starts_with("`a`: none | 2*ok"));
    }
}
