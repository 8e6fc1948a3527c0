//! Running the cases of modes as a test program, and judging the result of each.

use crate::backend::{Backend, Exclusion, Tag};
use crate::expect;
use crate::registry::{CASES, Case};
use crate::rig::Context;
use aie_hal::host_function::panic_text;
use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use std::panic::AssertUnwindSafe;
use std::sync::PoisonError;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::{panic, thread};

/// Fewest cases that have to apply to a mode.
const MINIMUM_CASES: usize = 80;

/// Cases that use up what all devices on one NPU share. No other case of the mode runs meanwhile: it could not load a kernel.
const ALONE: &[&str] = &[
    "limits::the_device_heap_is_limited",
    "limits::a_full_heap_refuses_kernels",
    "limits::dropped_kernels_give_their_heap_back",
];

/// The `main` of a test program: every case in every mode is a test `mode::area::case`, beside a test `mode::summary` of the
/// mode's own data. Takes the arguments of Rust's test programs.
///
/// A case that does not apply to a mode, or fails as its exclusion says, counts as ignored, with the reason.
pub fn run(backends: Vec<Backend>) -> Conclusion {
    panic::set_hook(Box::new(expect::log_panic));
    let arguments = Arguments::from_args();
    let is_verbose = arguments.nocapture;
    let mut trials = Vec::new();
    for backend in backends {
        // For the whole process: a case that hangs keeps using its mode.
        let backend: &'static Backend = Box::leak(Box::new(backend));
        trials.push(Trial::test(format!("{}::summary", backend.name), || summary(backend).map_err(Failed::from)));
        trials.extend(CASES.iter().map(|case| {
            Trial::ignorable_test(format!("{}::{}", backend.name, case.name), move || {
                let (verdict, log) = evaluate(backend, case);
                if is_verbose {
                    println!("{} on {}:\n{log}", case.name, backend.name);
                }
                Ok(match verdict.map_err(|failure| format!("{log}{failure}"))? {
                    None => Completion::Completed,
                    Some(reason) => Completion::ignored_with(reason),
                })
            })
        }));
    }
    libtest_mimic::run(&arguments, trials)
}

/// Runs `case` when its turn comes, alone or beside others; the result with what it compared.
fn take_turn(backend: &'static Backend, case: &Case) -> (Result<(), String>, String) {
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
fn attempt(backend: &'static Backend, case: &Case) -> (Result<(), String>, String) {
    let (ended, end) = mpsc::sync_channel(1);
    let function = case.function;
    let thread = thread::Builder::new().name(case.name.into()).spawn(move || {
        // Of what a panic may leave half changed the mode's locks say so themselves.
        let case = AssertUnwindSafe(|| function(&Context::new(backend)));
        let attempt = expect::logged(|| panic::catch_unwind(case));
        // The other end is gone when the case took too long.
        let _ = ended.send(attempt);
    });
    if let Err(error) = thread {
        return (Err(format!("no thread for the case: {error}")), String::new());
    }
    match end.recv_timeout(backend.deadline) {
        Ok((Ok(()), log)) => (Ok(()), log),
        Ok((Err(panic), log)) => (Err(panic_text(&*panic).to_owned()), log),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            (Err(format!("it did not end within {:?}", backend.deadline)), String::new())
        }
    }
}

fn missing(backend: &Backend, case: &Case) -> Option<String> {
    let missing: Vec<String> = case.needs.iter().filter(|&&tag| !backend.has(tag)).map(Tag::to_string).collect();
    (!missing.is_empty()).then(|| format!("needs {}", missing.join(" and ")))
}

/// Runs `case` on `backend` and judges the result against the mode's tags and exclusions: `Ok(None)` when it holds, `Ok` with
/// the reason when it does not have to. With it, what the case compared.
pub fn evaluate(backend: &'static Backend, case: &Case) -> (Result<Option<String>, String>, String) {
    if let Some(missing) = missing(backend, case) {
        return (Ok(Some(missing)), String::new());
    }
    let (result, log) = take_turn(backend, case);
    let exclusion = backend.exclusions.iter().find(|e| e.case == case.name);
    let verdict = match (result, exclusion) {
        (Ok(()), None) => Ok(None),
        (Err(failure), None) => Err(failure),
        (Err(_), Some(e)) => Ok(Some(format!("fails, as excluded: {}", e.reason))),
        (Ok(()), Some(e)) => Err(format!("unexpected pass: excluded because \"{}\"; remove the exclusion", e.reason)),
    };
    (verdict, log)
}

fn problem(exclusion: &Exclusion) -> Option<String> {
    let Exclusion { case, reason } = exclusion;
    if !CASES.iter().any(|c| c.name == *case) {
        return Some(format!("exclusion of `{case}`: there is no such case"));
    }
    let sentence = reason.split_whitespace().count() >= 5
        && reason.ends_with('.')
        && reason.chars().next().is_some_and(char::is_uppercase);
    (!sentence).then(|| format!("exclusion of `{case}`: the reason `{reason}` is not a full sentence"))
}

/// Checks the mode's data: enough cases apply, every exclusion has a case and a sentence for a reason.
fn summary(backend: &Backend) -> Result<(), String> {
    let applies = CASES.iter().filter(|case| missing(backend, case).is_none()).count();
    if applies < MINIMUM_CASES {
        return Err(format!("{applies} cases apply; at least {MINIMUM_CASES} have to"));
    }
    let problems: Vec<String> = backend.exclusions.iter().filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::{Device, DeviceListing, DeviceUri, Driver, DriverError};
    use std::collections::BTreeSet;
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
            Err(DriverError::Runtime { reason: format!("`{uri}` has no devices"), remedy: None })
        }
    }

    fn judged(
        exclusions: &[Exclusion],
        function: fn(&Context),
        needs: &'static [Tag],
    ) -> Result<Option<String>, String> {
        let backend = Backend::new("test", Arc::new(NoDriver), "none").exclusions(exclusions);
        let backend = Backend { deadline: Duration::from_millis(500), ..backend.tags(&[Tag::Coherent]) };
        let backend = Box::leak(Box::new(backend));
        evaluate(backend, &Case { name: "area::case", needs, function }).0
    }

    const REASON: &str = "The driver of this test has no devices at all.";
    const EXCLUDED: &[Exclusion] = &[Exclusion { case: "area::case", reason: REASON }];

    fn passes(_: &Context) {}

    fn fails(_: &Context) {
        panic!("found {}", 1);
    }

    fn hangs(_: &Context) {
        thread::sleep(Duration::from_secs(5));
    }

    #[test]
    fn cases_pass_and_fail() {
        assert_eq!(judged(&[], passes, &[Tag::Coherent]), Ok(None));
        assert_eq!(judged(&[], fails, &[]), Err("found 1".into()));
        assert!(judged(&[], hangs, &[]).unwrap_err().contains("500ms"));
    }

    #[test]
    fn excluded_cases_have_to_fail() {
        let excluded = judged(EXCLUDED, fails, &[]).unwrap();
        assert!(excluded.is_some_and(|text| text.contains(REASON)));
        assert!(judged(EXCLUDED, passes, &[]).unwrap_err().starts_with("unexpected pass: "));
        let other = [Exclusion { case: "area::other", ..EXCLUDED[0] }];
        assert_eq!(judged(&other, passes, &[]), Ok(None), "exclusions are by name");
    }

    #[test]
    fn missing_tags_make_a_case_not_applicable() {
        let reason = judged(&[], fails, &[Tag::Coherent, Tag::Faults, Tag::HostImport]).unwrap().unwrap();
        assert!(reason.contains("fault plans") && reason.contains("host memory") && !reason.contains("coherent"));
    }

    #[test]
    fn exclusions_need_a_case_and_a_sentence() {
        let real = CASES[0].name;
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
    fn names_are_unique() {
        let names: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        assert!(ALONE.iter().all(|name| names.contains(name)), "a case that runs alone does not exist: {ALONE:?}");
    }
}
