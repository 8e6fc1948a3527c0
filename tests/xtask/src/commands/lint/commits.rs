//! The subjects of commits: what CONTRIBUTING asks of them, as far as a program can tell.

use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use std::process::Command;

/// The last commit from before the rule.
const BEFORE: &str = "80076be8";
const LONGEST: usize = 72;

/// Judges the commits since the rule. Where the history does not reach back to it, as in a shallow clone, the newest one is judged.
pub fn check() -> Result<()> {
    let known = git(&["merge-base", "--is-ancestor", BEFORE, "HEAD"])?.status.success();
    let since = format!("{BEFORE}..HEAD");
    let range: &[&str] = if known { &[&since] } else { &["--max-count=1", "HEAD"] };
    let log = git(&[&["log", "--no-merges", "--format=%h %s"], range].concat())?;
    ensure!(log.status.success(), "git log: {}", String::from_utf8_lossy(&log.stderr).trim());
    let log = String::from_utf8_lossy(&log.stdout);
    let findings = log.lines().filter_map(|line| {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        problem(subject).map(|problem| format!("{commit} \"{subject}\": {problem}"))
    });
    let findings: Vec<String> = findings.collect();
    if !findings.is_empty() {
        bail!("{}\ncorrect them with `git rebase -i {BEFORE}`", findings.join("\n"));
    }
    crate::say!("{} commit subjects checked", log.lines().count());
    Ok(())
}

fn git(arguments: &[&str]) -> Result<std::process::Output> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(workspace::root());
    command.output().context("cannot start git; install it with your system's package manager")
}

/// What is wrong with a subject. `area: ` may come first.
fn problem(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    let text = subject.split_once(": ").map_or(subject, |(_, text)| text);
    let verb = text.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
    let other_form = verb.ends_with("ing") && verb.len() > 5
        || verb.ends_with("ed") && !["embed", "need", "feed", "seed"].contains(&verb);
    if length > LONGEST {
        Some(format!("{length} characters, at most {LONGEST} are shown"))
    } else if verb.is_empty() {
        Some("it does not say what the commit does".to_owned())
    } else if text.ends_with('.') {
        Some("a subject has no full stop".to_owned())
    } else if other_form || verb.ends_with('s') && !verb.ends_with("ss") {
        Some(format!("\"{verb}\" is not imperative: what the commit does when it is applied, as in \"fix\" or \"add\""))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::problem;
    use rstest::rstest;

    #[rstest]
    #[case("hal: bound what a chain holds", true)]
    #[case("Add ggml-hsa check: what silicon would not forgive", true)]
    #[case("docs: address the review", true)]
    #[case("docs: corrected figures", false)]
    #[case("Fixes a hang", false)]
    #[case("xdna: adding a test", false)]
    #[case("docs: fix a figure.", false)]
    #[case("", false)]
    #[case("hal: ", false)]
    fn subjects_are_judged(#[case] subject: &str, #[case] good: bool) {
        assert_eq!(problem(subject).is_none(), good, "{:?}", problem(subject));
    }

    #[test]
    fn a_long_subject_is_found() {
        assert!(problem(&format!("add {}", "x".repeat(68))).is_none());
        assert!(problem(&format!("add {}", "x".repeat(69))).unwrap().contains("73 characters"));
    }
}
