//! `cargo xtask block-formats`: how quantised blocks are read and written, against the stock ggml library.
//!
//! A program with the block formats of the operations runs on the testbed's libraries, gives the same bytes and rows to
//! ggml's functions, and reports what differs. This command fails unless every type was compared and nothing differs.
//! ggml's library is that of the machine's architecture; on one that multiplies and adds in one instruction, its compiler
//! may round sums otherwise than the reference does, and encoded bytes may differ there.

use crate::build;
use crate::output;
use crate::process;
use crate::session::Options;
use crate::testbed::Testbed;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::time::Duration;

const PACKAGE: &str = "aie-block-formats";
const LIMIT: Duration = Duration::from_secs(300);
/// Quantised types that GGUF has, and those of them that ggml's CPU backend converts to.
const READ: usize = 25;
const WRITTEN: usize = 18;

/// Compare the block formats of the operations with stock ggml, bit for bit.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask block-formats
  cargo xtask block-formats --json

Exit code 1 if any decoded number or encoded byte differs, or a type was not compared.")]
pub struct BlockFormatsArgs {}

/// What the program reports of a type.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    dtype: String,
    decoding: Option<Outcome>,
    encoding: Option<Outcome>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Outcome {
    blocks: usize,
    differences: usize,
    first: Option<String>,
}

/// Runs the command.
pub fn run(_: &BlockFormatsArgs, options: &Options) -> Result<()> {
    let testbed = Testbed::ensure(&options.testbed, options.offline)?;
    let program =
        build::cargo(&["build", "--release", "--package", PACKAGE], options.offline)?.executable("bin", PACKAGE)?;
    let finished = process::run(&mut testbed.command_for(&program), LIMIT)?;
    ensure!(finished.success(), "{PACKAGE}: {}\n{}", finished.describe(), finished.last_words(8));
    let reports: Vec<Report> = serde_json::from_str(&finished.stdout)
        .with_context(|| format!("{PACKAGE} printed no report but {:?}", finished.stdout))?;
    if options.json {
        output::json(&reports)?;
    } else {
        print(&reports);
    }
    judge(&reports)?;
    if !options.json {
        println!("every decoded number has ggml's bits, every encoded block ggml's bytes");
    }
    Ok(())
}

fn print(reports: &[Report]) {
    let mut table = output::table(&["type", "#blocks decoded", "#differ", "#blocks encoded", "#differ"]);
    for Report { dtype, decoding, encoding } in reports {
        let cells = [decoding, encoding].into_iter().flat_map(|outcome| match outcome {
            Some(outcome) => [outcome.blocks.to_string(), outcome.differences.to_string()],
            None => ["-".to_owned(), "-".to_owned()],
        });
        table.add_row(std::iter::once(dtype.clone()).chain(cells));
    }
    println!("{table}");
}

/// Errors unless all types were compared and nothing differs.
fn judge(reports: &[Report]) -> Result<()> {
    let count = |compared: fn(&Report) -> &Option<Outcome>| {
        reports.iter().filter_map(|report| compared(report).as_ref()).filter(|outcome| outcome.blocks > 0).count()
    };
    let found = (count(|report| &report.decoding), count(|report| &report.encoding));
    if found != (READ, WRITTEN) {
        bail!("{} types were decoded and {} encoded; expected are {READ} and {WRITTEN}", found.0, found.1);
    }
    let mut problems = Vec::new();
    for Report { dtype, decoding, encoding } in reports {
        for (what, outcome) in [("decoding", decoding), ("encoding", encoding)] {
            if let Some(Outcome { blocks, differences: differences @ 1.., first }) = outcome {
                let first = first.as_deref().unwrap_or("(not described)");
                problems.push(format!("{what} {dtype}: {differences} of {blocks} blocks differ; the first: {first}"));
            }
        }
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(differences: usize) -> Vec<Report> {
        let outcome = |differences| Outcome { blocks: 9, differences, first: Some("byte 3".to_owned()) };
        (0..READ)
            .map(|i| Report {
                dtype: format!("t{i}"),
                decoding: Some(outcome(0)),
                encoding: (i < WRITTEN).then(|| outcome(if i == 4 { differences } else { 0 })),
            })
            .collect()
    }

    #[test]
    fn differences_and_missing_types_are_errors() {
        judge(&reports(0)).unwrap();
        let error = judge(&reports(2)).unwrap_err().to_string();
        assert_eq!(error, "encoding t4: 2 of 9 blocks differ; the first: byte 3");
        assert!(judge(&reports(0)[1..]).unwrap_err().to_string().contains("24 types were decoded"));
        let mut empty = reports(0);
        empty[0].encoding = Some(Outcome { blocks: 0, differences: 0, first: None });
        assert!(judge(&empty).unwrap_err().to_string().contains("17 encoded"));
    }
}
