//! What is wrong with one run of test-backend-ops: nothing it does not print counts as passed.

use crate::ops_output::{Listing, Outcome};
use crate::process::Finished;
use std::collections::HashMap;

/// Everything wrong with one operation's run.
pub fn judge(
    operation: &str,
    backend: &str,
    finished: &Finished,
    listing: &Listing,
    wanted: &[String],
    expected: Option<usize>,
) -> Vec<String> {
    let mut problems = listing.problems("test-backend-ops", finished, backend);
    let passed = listing.count(Outcome::Passed);
    let missing = missing_cases(listing, wanted);
    if !missing.is_empty() {
        problems.push(format!("{} case(s) that the CPU backend supports did not pass:", missing.len()));
        const SHOWN: usize = 20;
        problems.extend(missing.iter().take(SHOWN).map(|parameters| format!("{operation}({parameters})")));
        if missing.len() > SHOWN {
            problems.push(format!("and {} more; see them with -o {operation}", missing.len() - SHOWN));
        }
    }
    if let Some(expected) = expected
        && passed < expected
    {
        problems.push(format!("{passed} cases passed, the table has {expected}"));
    }
    problems
}

/// Cases of `wanted` that are not among the passed ones; a case printed twice must pass twice.
fn missing_cases<'a>(listing: &Listing, wanted: &'a [String]) -> Vec<&'a str> {
    let mut left: HashMap<&str, usize> = HashMap::new();
    for case in listing.cases.iter().filter(|case| case.outcome == Outcome::Passed) {
        *left.entry(case.parameters.as_str()).or_default() += 1;
    }
    wanted
        .iter()
        .map(String::as_str)
        .filter(|parameters| match left.get_mut(parameters) {
            Some(count @ 1..) => {
                *count -= 1;
                false
            }
            _ => true,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::ended;

    fn problems(stdout: &str, wanted: &[&str], expected: usize) -> Vec<String> {
        let end = ended(0, stdout, "");
        let wanted: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
        judge("ADD", "HSA0", &end, &Listing::parse(stdout), &wanted, Some(expected))
    }

    const GOOD: &str = "  ADD(a=1): OK\n  ADD(a=1): OK\n  2/2 tests passed\n  Backend HSA0: OK\n";

    #[test]
    fn a_good_run_has_no_problem() {
        assert_eq!(problems(GOOD, &["a=1", "a=1"], 2), Vec::<String>::new());
    }

    #[test]
    fn exit_code_zero_without_our_backend_is_a_problem() {
        let found = problems("  Skipping\n2/2 backends passed\nOK\n", &["a=1"], 1);
        assert!(found.iter().any(|problem| problem.contains("Backend HSA0: OK")));
        assert!(found.iter().any(|problem| problem.contains("did not pass")));
    }

    #[test]
    fn a_case_that_became_unsupported_is_named() {
        let text = "  ADD(a=1): OK\n  ADD(a=2): not supported [HSA0]\n  1/1 tests passed\n  Backend HSA0: OK\n";
        let found = problems(text, &["a=1", "a=2"], 2);
        assert!(found.contains(&"ADD(a=2)".to_owned()), "{found:?}");
        assert!(found.iter().any(|problem| problem.contains("the table has 2")));
    }

    #[test]
    fn a_repeated_case_must_pass_as_often_as_it_is_wanted() {
        assert!(!problems(GOOD, &["a=1", "a=1", "a=1"], 2).is_empty());
    }

    #[test]
    fn a_failed_case_and_a_crash_are_problems() {
        let text = "  ADD(a=1): [ADD] NMSE = 1 > 0.1 FAIL\n  0/1 tests passed\n  Backend HSA0: FAIL\n";
        assert!(problems(text, &["a=1"], 1).iter().any(|problem| problem.contains("NMSE")));
        let found = judge("ADD", "HSA0", &ended(11, GOOD, ""), &Listing::parse(GOOD), &[], None);
        assert!(found[0].contains("SIGSEGV"));
    }
}
