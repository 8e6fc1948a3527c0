//! What the commands print: results to standard output, as text or as JSON, problems to standard error; colours on a terminal only, and
//! not where `NO_COLOR` is set.

use anstream::stdout;
use clap::builder::styling::{AnsiColor, Style};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Row, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt::Display;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
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

/// In megabytes.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// A table; `right` are the columns of numbers.
pub fn table<R: Into<Row>>(header: &[&str], right: &[usize], rows: impl IntoIterator<Item = R>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header.to_vec()).add_rows(rows);
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// `bar` with this template, a constant that indicatif understands; without it the bar has another look.
pub fn with_template(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
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
        eprintln!("error: cannot print: {cause}");
    }
}

/// Prints `value` as JSON, or as `text` does.
pub fn show<T: Serialize>(as_json: bool, value: &T, text: impl FnOnce(&T)) {
    if !as_json {
        return text(value);
    }
    match serde_json::to_string_pretty(value) {
        Ok(json) => say(&json),
        Err(cause) => complain(&cause),
    }
}

/// Writes a document into a file; `-` is standard output.
///
/// # Errors
/// The file, and why it cannot be written.
pub fn write(path: &Path, document: &str) -> Result<(), String> {
    if path == Path::new("-") {
        say(&document.trim_end());
        return Ok(());
    }
    fs::write(path, document).map_err(|cause| format!("{} cannot be written: {cause}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{counted, table};

    #[test]
    fn numbers_of_a_table_are_below_each_other() {
        let table = table(&["name", "n"], &[1], [["a", "1"], ["b", "100"]]).to_string();
        assert!(table.contains("┆   1 │") && table.contains("│ a    ┆"), "{table}");
    }

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
