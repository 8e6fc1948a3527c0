//! Assertions that say what was expected and what was found, also when they hold.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::panic::PanicHookInfo;
use std::thread;

thread_local! {
    /// What the case of this thread compared.
    static LOG: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `case`; with its result, what it compared in this thread and where it panicked.
pub fn logged<T>(case: impl FnOnce() -> T) -> (T, String) {
    LOG.set(Some(String::new()));
    (case(), LOG.take().unwrap_or_default())
}

/// A line for the log of the case that runs in this thread.
pub fn add_to_log(line: &dyn std::fmt::Display) -> bool {
    LOG.with_borrow_mut(|log| log.as_mut().is_some_and(|log| writeln!(log, "{line}").is_ok()))
}

/// A panic hook: panics of cases go to their log, others to standard error, without the backtrace.
pub fn log_panic(panic: &PanicHookInfo<'_>) {
    if !add_to_log(panic) {
        eprintln!("thread {}: {panic}", thread::current().name().unwrap_or("without a name"));
    }
}

macro_rules! note {
    ($($text:tt)*) => {{
        $crate::expect::add_to_log(&format_args!($($text)*));
    }};
}
pub(crate) use note;

fn shorten(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(400) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// `found` is `expected`.
#[track_caller]
pub fn equal<T: PartialEq + Debug>(what: &str, found: T, expected: T) {
    let (e, f) = (shorten(&expected), shorten(&found));
    note!("{what}: expected {e}, found {f}");
    assert!(found == expected, "{what}: expected {e}, found {f}");
}

/// `found` is at least `least`.
#[track_caller]
pub fn at_least<T: PartialOrd + Debug>(what: &str, found: T, least: T) {
    note!("{what}: expected at least {least:?}, found {found:?}");
    assert!(found >= least, "{what}: expected at least {least:?}, found {found:?}");
}

/// `found` is at most `most`.
#[track_caller]
pub fn at_most<T: PartialOrd + Debug>(what: &str, found: T, most: T) {
    note!("{what}: expected at most {most:?}, found {found:?}");
    assert!(found <= most, "{what}: expected at most {most:?}, found {found:?}");
}

/// A statement about `found` is true.
#[track_caller]
pub fn holds(what: &str, found: &impl Debug, truth: bool) {
    let f = shorten(found);
    note!("expected that {what}, found {f}");
    assert!(truth, "expected that {what}, found {f}");
}

/// The bytes are equal; reports the first difference.
#[track_caller]
pub fn bytes(what: &str, found: &[u8], expected: &[u8]) {
    note!("{what}: expected {} bytes {}, found {}", expected.len(), shorten(&expected), shorten(&found));
    assert_eq!(found.len(), expected.len(), "{what}: number of bytes");
    let different: Vec<usize> = (0..found.len()).filter(|&i| found[i] != expected[i]).collect();
    if let Some(&first) = different.first() {
        panic!(
            "{what}: {} of {} bytes differ, first at {first}: expected {}, found {}",
            different.len(),
            found.len(),
            expected[first],
            found[first]
        );
    }
}

/// The message of an error names each of `parts`, ignoring case.
#[track_caller]
pub fn mentions(message: &impl ToString, parts: &[&str]) {
    let message = message.to_string();
    note!("expected a message with {parts:?}, found `{message}`");
    let lower = message.to_lowercase();
    for part in parts {
        assert!(lower.contains(&part.to_lowercase()), "expected a message that mentions `{part}`, found `{message}`");
    }
}

/// A result is the pattern; evaluates to what the pattern binds.
macro_rules! expect_match {
    ($what:expr, $found:expr, $pattern:pat $(if $guard:expr)? $(=> $value:expr)?) => {{
        let found = $found;
        $crate::expect::note!("{}: expected {}, found {:?}", $what, stringify!($pattern $(if $guard)?), found);
        #[allow(clippy::redundant_pattern_matching)]
        match found {
            $pattern $(if $guard)? => ($($value)?),
            #[allow(unreachable_patterns)]
            other => panic!("{}: expected {}, found {:?}", $what, stringify!($pattern $(if $guard)?), other),
        }
    }};
}
pub(crate) use expect_match;
