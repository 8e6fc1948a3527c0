//! What the commands print: results to standard output, problems to standard error.

use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};

/// Prints a problem.
pub fn complain(problem: &impl Display) {
    eprintln!("ggml-hsa: {problem}");
}

/// Prints a line. A reader that has gone away, such as `head`, wants no more.
pub fn say(text: &impl Display) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => say(&text),
        Err(cause) => complain(&cause),
    }
}
