//! How commands print: tables for people, JSON for machines, colour only on a terminal.

use crate::session::Options;
use crate::settings::NO_COLOR;
use anyhow::{Result, bail};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

const LOG_WIDTH: u16 = 140;

/// A column of a table of `R`: its title, and what a row shows there.
pub type Column<R> = (&'static str, fn(&R) -> String);

/// What a command found: its fields for machines, its text for people, and the problems for both.
#[derive(Debug, Default)]
pub struct Report {
    fields: Map<String, Value>,
    text: String,
    /// The last lines of the text, behind the problems.
    summary: String,
    /// What is not as it has to be.
    pub problems: Vec<String>,
}

impl Report {
    /// A report that starts with these problems.
    pub fn with(problems: Vec<String>) -> Self {
        Self { problems, ..Self::default() }
    }

    pub fn field(&mut self, name: &str, value: impl Serialize) -> Result<()> {
        self.fields.insert(name.to_owned(), serde_json::to_value(value)?);
        Ok(())
    }

    /// Rows as a field of the JSON, and as a table.
    pub fn rows<R: Serialize>(&mut self, name: &str, rows: &[R], columns: &[Column<R>]) -> Result<()> {
        let mut table = table(&columns.iter().map(|(title, _)| *title).collect::<Vec<_>>());
        for row in rows {
            table.add_row(columns.iter().map(|(_, cell)| cell(row)));
        }
        self.line(table);
        self.field(name, rows)
    }

    pub fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// The last line of the text.
    pub fn summary(&mut self, line: impl Display) {
        let _ = writeln!(self.summary, "{line}");
    }

    /// Prints it. Errors when there are problems.
    pub fn finish(mut self, command: &str, options: &Options) -> Result<()> {
        let count = self.problems.len();
        if options.json {
            self.field("ok", count == 0)?;
            let problems = std::mem::take(&mut self.problems);
            self.field("problems", problems)?;
            json(&self.fields)?;
        } else {
            for problem in &self.problems {
                let _ = writeln!(self.text, "{} {problem}", bad("problem:"));
            }
            put(format_args!("{}{}", self.text, self.summary));
        }
        if count > 0 {
            bail!("{command}: {count} problem(s), listed above");
        }
        Ok(())
    }
}

/// An empty table with a header; columns whose name starts with `#` hold numbers and are aligned right.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if !io::stdout().is_terminal() {
        // A log has no width of its own; long messages would make unreadable lines.
        table.set_width(LOG_WIDTH);
    }
    table.set_header(header.iter().map(|name| Cell::new(name.trim_start_matches('#'))));
    for (index, name) in header.iter().enumerate() {
        if name.starts_with('#')
            && let Some(column) = table.column_mut(index)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Prints a value as indented JSON on standard output.
pub fn json<T: Serialize>(value: &T) -> Result<()> {
    put(format_args!("{}\n", serde_json::to_string_pretty(value)?));
    Ok(())
}

/// A line on standard output, as `println!`; see [`put`].
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::output::put(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// What a shell says of a program that a closed pipe has ended: 128 and the number of SIGPIPE.
const PIPE_CLOSED: i32 = 141;

/// Prints on standard output. When its reader is gone (`| head`), the program ends without a word.
pub fn put(text: std::fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    match written(&mut out, text) {
        Ok(true) => {}
        Ok(false) => std::process::exit(PIPE_CLOSED),
        Err(cause) => panic!("cannot write to standard output: {cause}"),
    }
}

/// Whether somebody reads `out`.
fn written(out: &mut impl Write, text: std::fmt::Arguments<'_>) -> io::Result<bool> {
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// `ok` in green or `FAIL` in red on a terminal, plain elsewhere.
pub fn verdict(ok: bool) -> String {
    if ok { good("ok") } else { bad("FAIL") }
}

/// Green on a terminal, plain elsewhere.
pub fn good(text: &str) -> String {
    painted(text, "32")
}

/// Red on a terminal, plain elsewhere.
pub fn bad(text: &str) -> String {
    painted(text, "31")
}

fn painted(text: &str, colour: &str) -> String {
    if io::stdout().is_terminal() && NO_COLOR.get().is_none() {
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// A progress bar on standard error; invisible where that is not a terminal.
pub fn progress(length: u64) -> Result<ProgressBar> {
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed_precise} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(250));
    Ok(bar)
}

pub fn seconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64())
}

pub fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// A count, or a dash where there is none.
pub fn count<T: Display>(count: Option<T>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_error() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(written(&mut writer, format_args!("read")).unwrap());
        drop(reader);
        assert!(!written(&mut writer, format_args!("unread")).unwrap());
    }

    #[test]
    fn other_errors_are_errors() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        assert!(written(&mut full.unwrap(), format_args!("too much")).is_err());
    }
}
