//! What the commands print: results to standard output, problems to standard error; colours on a terminal only, and not where
//! `NO_COLOR` is set.

use anstream::stdout;
use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// How a word is shown on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shade {
    /// All is well.
    Good,
    /// Works, with a reservation.
    Doubtful,
    /// Does not work.
    Bad,
    /// A heading, or what can be pasted.
    Strong,
    /// Beside the point.
    Faint,
}

/// `text` in the colour of `shade`, which [`say`] leaves out where there is no terminal.
pub fn shaded(shade: Shade, text: &impl Display) -> String {
    let style = match shade {
        Shade::Good => AnsiColor::Green.on_default().bold(),
        Shade::Doubtful => AnsiColor::Yellow.on_default().bold(),
        Shade::Bad => AnsiColor::Red.on_default().bold(),
        Shade::Strong => Style::new().bold(),
        Shade::Faint => Style::new().dimmed(),
    };
    format!("{style}{text}{style:#}")
}

/// `1 error`, `2 errors`, `1 batch`, `2 batches`, `1 entry`, `2 entries`.
pub fn counted(number: impl Into<Count>, what: &str) -> String {
    let Count(number) = number.into();
    match what.strip_suffix('y') {
        _ if number == 1 => format!("1 {what}"),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        None if what.ends_with("ch") => format!("{number} {what}es"),
        _ => format!("{number} {what}s"),
    }
}

/// How many, whatever it was counted in.
pub struct Count(u64);

impl From<usize> for Count {
    fn from(number: usize) -> Self {
        Self(number as u64)
    }
}

impl From<u64> for Count {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// Prints a problem.
pub fn complain(problem: &impl Display) {
    eprintln!("ggml-hsa: {problem}");
}

/// Whether something could not be printed.
static INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Whether everything was printed that somebody wanted to read.
pub fn is_complete() -> bool {
    !INCOMPLETE.load(Ordering::Relaxed)
}

/// Prints a line. A reader that has gone away, such as `head`, wants no more; other errors are said once.
pub fn say(text: &impl Display) {
    if let Err(cause) = writeln!(stdout(), "{text}")
        && cause.kind() != ErrorKind::BrokenPipe
        && !INCOMPLETE.swap(true, Ordering::Relaxed)
    {
        complain(&format!("cannot write to standard output: {cause}"));
    }
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(&text),
        Err(cause) => complain(&cause),
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_no_plural() {
        let said = ["kernel", "batch", "entry", "key"].map(|what| [0_usize, 1, 2].map(|number| counted(number, what)));
        let expected = [
            ["0 kernels", "1 kernel", "2 kernels"],
            ["0 batches", "1 batch", "2 batches"],
            ["0 entries", "1 entry", "2 entries"],
            ["0 keys", "1 key", "2 keys"],
        ];
        assert_eq!(said, expected);
    }
}
