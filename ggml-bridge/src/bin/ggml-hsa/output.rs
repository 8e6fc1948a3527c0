//! What the commands print: results to standard output, problems to standard error; colours on a terminal only, and not where
//! `NO_COLOR` is set.

use anstream::stdout;
use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;
use std::fmt::Display;
use std::io::Write;

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

/// Prints a problem.
pub fn complain(problem: &impl Display) {
    eprintln!("ggml-hsa: {problem}");
}

/// Prints a line. A reader that has gone away, such as `head`, wants no more.
pub fn say(text: &impl Display) {
    let _ = writeln!(stdout(), "{text}");
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(&text),
        Err(cause) => complain(&cause),
    }
}
