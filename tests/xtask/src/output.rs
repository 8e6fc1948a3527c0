//! How commands print: tables for people, JSON for machines, colour only on a terminal.

use crate::settings::NO_COLOR;
use aie_hal::Environment;
use anyhow::Result;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::time::Duration;

const LOG_WIDTH: u16 = 140;

/// An empty table with a header; columns whose name starts with `#` hold numbers and are aligned right.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if !std::io::stdout().is_terminal() {
        // A log has no width of its own; long messages would make lines nobody can read.
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
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
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
    if std::io::stdout().is_terminal() && Environment::process().get(&NO_COLOR).is_none() {
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// A progress bar on standard error; invisible where that is no terminal.
pub fn progress(length: u64) -> Result<ProgressBar> {
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed_precise} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(250));
    Ok(bar)
}

/// Seconds with one decimal.
pub fn seconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64())
}
