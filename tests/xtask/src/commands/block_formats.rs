//! `cargo xtask block-formats`: how quantised blocks are read and written, against the stock ggml library.
//!
//! A program with the block formats of the operations runs on the testbed's libraries, gives the same bytes and rows to
//! ggml's functions, and reports what differs. This command fails unless every type was compared and nothing differs.
//! ggml's library is that of the machine's architecture; on one that multiplies and adds in one instruction, its compiler
//! may round sums otherwise than the reference does, and encoded bytes may differ there.

use crate::build;
use crate::output::{self, Report};
use crate::process;
use crate::session::Options;
use crate::testbed::Testbed;
use anyhow::Result;
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
#[command(after_help = "Exit code 1 if any decoded number or encoded byte differs, or a type was not compared.")]
pub struct BlockFormatsArgs {}

/// What the program reports of a type.
#[derive(Debug, Serialize, Deserialize)]
struct Compared {
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

pub fn run(_: &BlockFormatsArgs, options: &Options) -> Result<()> {
    let testbed = Testbed::ensure(&options.testbed, options.offline)?;
    let program = build::program(PACKAGE, options.offline)?;
    let types: Vec<Compared> = process::run(&mut testbed.command_for(&program), LIMIT)?.json(PACKAGE)?;
    let mut report = Report::with(problems(&types));
    let count = |outcome: &Option<Outcome>, count: fn(&Outcome) -> usize| output::count(outcome.as_ref().map(count));
    let mut table = output::table(&["type", "#blocks decoded", "#differ", "#blocks encoded", "#differ"]);
    for Compared { dtype, decoding, encoding } in &types {
        let blocks = [decoding, encoding].map(|outcome| count(outcome, |outcome| outcome.blocks));
        let differ = [decoding, encoding].map(|outcome| count(outcome, |outcome| outcome.differences));
        table.add_row([dtype, &blocks[0], &differ[0], &blocks[1], &differ[1]]);
    }
    report.line(table);
    if report.problems.is_empty() {
        report.summary("every decoded number has ggml's bits, every encoded block ggml's bytes");
    }
    report.field("types", types)?;
    report.finish("block-formats", options)
}

/// What is wrong unless all types were compared and nothing differs.
fn problems(types: &[Compared]) -> Vec<String> {
    let count = |compared: fn(&Compared) -> &Option<Outcome>| {
        types
            .iter()
            .filter_map(|compared_type| compared(compared_type).as_ref())
            .filter(|found| found.blocks > 0)
            .count()
    };
    let found = (count(|compared| &compared.decoding), count(|compared| &compared.encoding));
    let mut problems = Vec::new();
    if found != (READ, WRITTEN) {
        problems
            .push(format!("{} types were decoded and {} encoded; expected are {READ} and {WRITTEN}", found.0, found.1));
    }
    for Compared { dtype, decoding, encoding } in types {
        for (what, outcome) in [("decoding", decoding), ("encoding", encoding)] {
            if let Some(Outcome { blocks, differences: differences @ 1.., first }) = outcome {
                let first = first.as_deref().unwrap_or("(not described)");
                problems.push(format!("{what} {dtype}: {differences} of {blocks} blocks differ; the first: {first}"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(differences: usize) -> Vec<Compared> {
        let outcome = |differences| Outcome { blocks: 9, differences, first: Some("byte 3".to_owned()) };
        (0..READ)
            .map(|i| Compared {
                dtype: format!("t{i}"),
                decoding: Some(outcome(0)),
                encoding: (i < WRITTEN).then(|| outcome(if i == 4 { differences } else { 0 })),
            })
            .collect()
    }

    #[test]
    fn differences_and_missing_types_are_errors() {
        assert!(problems(&types(0)).is_empty());
        assert_eq!(problems(&types(2)), ["encoding t4: 2 of 9 blocks differ; the first: byte 3"]);
        assert!(problems(&types(0)[1..])[0].contains("24 types were decoded"));
        let mut empty = types(0);
        empty[0].encoding = Some(Outcome { blocks: 0, differences: 0, first: None });
        assert!(problems(&empty)[0].contains("17 encoded"));
    }
}
