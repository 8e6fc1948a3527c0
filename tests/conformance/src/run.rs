//! Running one case on one mode and judging the result.

use crate::MINIMUM_CASES;
use crate::backend::{Backend, Exclusion, Tag};
use crate::registry::{Case, cases};
use crate::rig::Context;
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Passed,
    /// The mode does not have what the case needs.
    NotApplicable(Vec<Tag>),
    /// It is excluded and fails, as its exclusion says.
    Excluded {
        /// The exclusion's reason.
        reason: &'static str,
        /// What the case found.
        failure: String,
    },
    /// It does not hold.
    Failed(String),
    /// It is excluded, and holds.
    UnexpectedPass {
        /// The reason that is no longer true.
        reason: &'static str,
    },
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&s| s.to_owned()))
        .unwrap_or_else(|| "a panic without text".into())
}

/// Cases that use up what all devices on one NPU share. No other case of the mode runs meanwhile: it could not load a kernel.
const ALONE: &[&str] = &[
    "limits::the_device_heap_is_limited",
    "limits::a_full_heap_refuses_kernels",
    "limits::dropped_kernels_give_their_heap_back",
];

/// Runs `case` when its turn comes, alone or beside others.
fn take_turn(backend: &'static Backend, case: &Case) -> Result<(), String> {
    // The lock guards no data that a panic could leave half changed.
    if ALONE.contains(&case.name) {
        let _alone = backend.turns.write().unwrap_or_else(PoisonError::into_inner);
        attempt(backend, case)
    } else {
        let _beside = backend.turns.read().unwrap_or_else(PoisonError::into_inner);
        attempt(backend, case)
    }
}

/// Runs `case` in a thread of its own. `Err` says why it does not hold.
fn attempt(backend: &'static Backend, case: &Case) -> Result<(), String> {
    let (running, ended) = mpsc::channel::<()>();
    let function = case.function;
    let thread = thread::Builder::new().name(case.name.into()).spawn(move || {
        let _running = running;
        function(&Context::new(backend));
    });
    let thread = thread.map_err(|e| format!("no thread for the case: {e}"))?;
    match ended.recv_timeout(backend.deadline) {
        Err(RecvTimeoutError::Timeout) => Err(format!("it did not end within {:?}", backend.deadline)),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => thread.join().map_err(|panic| message(panic.as_ref())),
    }
}

/// Runs `case` on `backend` and judges the result against the mode's tags and exclusions.
pub fn evaluate(backend: &'static Backend, case: &Case) -> Verdict {
    let missing: Vec<Tag> = case.needs.iter().copied().filter(|&tag| !backend.has(tag)).collect();
    if !missing.is_empty() {
        return Verdict::NotApplicable(missing);
    }
    let exclusion = backend.exclusions.iter().find(|e| e.case == case.name);
    match (take_turn(backend, case), exclusion) {
        (Ok(()), None) => Verdict::Passed,
        (Ok(()), Some(e)) => Verdict::UnexpectedPass { reason: e.reason },
        (Err(failure), Some(e)) => Verdict::Excluded { reason: e.reason, failure },
        (Err(failure), None) => Verdict::Failed(failure),
    }
}

/// Runs the case called `name` (`area::case`) on `backend`; the body of each test that [`conformance_suite!`] makes.
///
/// [`conformance_suite!`]: crate::conformance_suite
///
/// # Panics
/// When the case fails, passes although it is excluded, or does not exist.
pub fn run(backend: &'static Backend, name: &str) {
    let case = cases().iter().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("there is no case `{name}`"));
    match evaluate(backend, case) {
        Verdict::Passed => println!("passed"),
        Verdict::NotApplicable(missing) => println!("does not apply to {}: {}", backend.name, sentence(&missing)),
        Verdict::Excluded { reason, failure } => println!("fails, as excluded ({reason}): {failure}"),
        Verdict::Failed(failure) => panic!("{name} on {}: {failure}", backend.name),
        Verdict::UnexpectedPass { reason } => {
            panic!("unexpected pass: {name} on {} is excluded because \"{reason}\"; remove the exclusion", backend.name)
        }
    }
}

fn sentence(missing: &[Tag]) -> String {
    let missing: Vec<String> = missing.iter().map(Tag::to_string).collect();
    format!("needs {}", missing.join(" and "))
}

fn problem(exclusion: &Exclusion) -> Option<String> {
    let Exclusion { case, reason } = exclusion;
    if !cases().iter().any(|c| c.name == *case) {
        return Some(format!("exclusion of `{case}`: there is no such case"));
    }
    let sentence = reason.split_whitespace().count() >= 5
        && reason.ends_with('.')
        && reason.chars().next().is_some_and(char::is_uppercase);
    (!sentence).then(|| format!("exclusion of `{case}`: the reason `{reason}` is not a full sentence"))
}

/// Checks the suite and the mode's data, and prints how many cases apply; a test of its own for each mode.
///
/// # Panics
/// When there are fewer than [`MINIMUM_CASES`] cases, or fewer apply to this mode, names repeat, or an exclusion has no case or
/// no sentence for a reason.
pub fn summary(backend: &Backend) {
    let names: BTreeSet<&str> = cases().iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases().len(), "two cases have the same name");
    assert!(ALONE.iter().all(|name| names.contains(name)), "a case that runs alone does not exist: {ALONE:?}");
    let (applies, rest): (Vec<&Case>, Vec<&Case>) =
        cases().iter().partition(|case| case.needs.iter().all(|&tag| backend.has(tag)));
    println!(
        "{}: {} cases, {} apply, {} do not, {} excluded",
        backend.name,
        cases().len(),
        applies.len(),
        rest.len(),
        backend.exclusions.len()
    );
    for case in rest {
        let missing: Vec<Tag> = case.needs.iter().copied().filter(|&tag| !backend.has(tag)).collect();
        println!("  does not apply: {} {}", case.name, sentence(&missing));
    }
    for exclusion in &backend.exclusions {
        println!("  excluded: {}: {}", exclusion.case, exclusion.reason);
    }
    assert!(applies.len() >= MINIMUM_CASES, "{} cases apply; at least {MINIMUM_CASES} have to", applies.len());
    let problems: Vec<String> = backend.exclusions.iter().filter_map(problem).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::{Device, DeviceListing, DeviceUri, Driver, DriverError};
    use std::sync::Arc;
    use std::time::Duration;

    #[derive(Debug)]
    struct NoDriver;

    impl Driver for NoDriver {
        fn scheme(&self) -> &'static str {
            "none"
        }

        fn enumerate(&self) -> Result<Vec<DeviceListing>, DriverError> {
            Ok(Vec::new())
        }

        fn open(&self, uri: &DeviceUri) -> Result<Vec<Arc<dyn Device>>, DriverError> {
            Err(DriverError::Runtime(format!("`{uri}` has no devices")))
        }
    }

    fn backend(exclusions: &[Exclusion]) -> &'static Backend {
        with_deadline(exclusions, Duration::from_secs(60))
    }

    fn with_deadline(exclusions: &[Exclusion], deadline: Duration) -> &'static Backend {
        let backend = Backend::new("test", Arc::new(NoDriver), "none").exclusions(exclusions);
        Box::leak(Box::new(backend.tags(&[Tag::Coherent]).deadline(deadline)))
    }

    fn case(function: fn(&Context), needs: &'static [Tag]) -> Case {
        Case { name: "area::case", needs, function }
    }

    const REASON: &str = "The driver of this test has no devices at all.";
    const EXCLUDED: &[Exclusion] = &[Exclusion { case: "area::case", reason: REASON }];

    fn passes(_: &Context) {}

    fn fails(_: &Context) {
        panic!("found {}", 1);
    }

    fn hangs(_: &Context) {
        thread::sleep(Duration::from_secs(2));
    }

    #[test]
    fn cases_pass_and_fail() {
        assert_eq!(evaluate(backend(&[]), &case(passes, &[Tag::Coherent])), Verdict::Passed);
        assert_eq!(evaluate(backend(&[]), &case(fails, &[])), Verdict::Failed("found 1".into()));
    }

    #[test]
    fn excluded_cases_have_to_fail() {
        let failure = "found 1".into();
        assert_eq!(evaluate(backend(EXCLUDED), &case(fails, &[])), Verdict::Excluded { reason: REASON, failure });
        assert_eq!(evaluate(backend(EXCLUDED), &case(passes, &[])), Verdict::UnexpectedPass { reason: REASON });
    }

    #[test]
    fn exclusions_are_by_name() {
        let other = [Exclusion { case: "area::other", ..EXCLUDED[0] }];
        assert_eq!(evaluate(backend(&other), &case(passes, &[])), Verdict::Passed);
    }

    #[test]
    fn missing_tags_make_a_case_not_applicable() {
        let needs = &[Tag::Coherent, Tag::Faults, Tag::HostImport];
        let missing = vec![Tag::Faults, Tag::HostImport];
        assert_eq!(evaluate(backend(&[]), &case(fails, needs)), Verdict::NotApplicable(missing));
    }

    #[test]
    fn hanging_cases_fail() {
        let verdict = evaluate(with_deadline(&[], Duration::from_millis(200)), &case(hangs, &[]));
        assert!(matches!(&verdict, Verdict::Failed(text) if text.contains("200ms")), "{verdict:?}");
    }

    #[test]
    fn exclusions_need_a_case_and_a_sentence() {
        let real = cases()[0].name;
        let problem = |case, reason| problem(&Exclusion { case, reason });
        assert_eq!(problem(real, REASON), None);
        for (case, reason, text) in [
            ("area::none", REASON, "no such case"),
            (real, "flaky", "full sentence"),
            (real, "it does not work with this driver.", "full sentence"),
            (real, "It does not work with this driver", "full sentence"),
        ] {
            let found = problem(case, reason).expect("a problem");
            assert!(found.contains(text), "{found}");
        }
    }

    #[test]
    #[should_panic(expected = "there is no case `area::none`")]
    fn unknown_cases_are_not_skipped() {
        run(backend(&[]), "area::none");
    }

    #[test]
    fn the_suite_is_large_and_its_names_are_unique() {
        let names: BTreeSet<&str> = cases().iter().map(|case| case.name).collect();
        assert!(names.len() >= MINIMUM_CASES, "{} cases", names.len());
        assert_eq!(names.len(), cases().len());
    }
}
