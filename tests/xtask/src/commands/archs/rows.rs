//! The table that `test-llama-archs` prints: a row for each model and device, with a verdict for each of three tests.

use anyhow::{Context, Result};
use regex::Regex;
use serde::Serialize;

/// How one test of a row ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    Failed,
    /// The program has no such test for this model.
    Skipped,
    /// The row is not complete: the program ended within it.
    Missing,
}

impl Verdict {
    fn read(text: Option<&str>) -> Self {
        match text.map(str::trim_start) {
            Some(text) if text.starts_with("OK") => Self::Ok,
            Some(text) if text.starts_with("SKIP") => Self::Skipped,
            Some(text) if text.starts_with("FAIL") => Self::Failed,
            _ => Self::Missing,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "FAIL",
            Self::Skipped => "none",
            Self::Missing => "truncated",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub arch: String,
    /// What the device is called there; also a way to use it ("Host experts").
    pub device: String,
    pub config: String,
    /// Logits against the CPU backend.
    pub logits: Verdict,
    /// Normalised mean squared error of the logits.
    pub nmse: Option<f64>,
    /// The model saved, loaded and run again.
    pub roundtrip: Verdict,
    /// Tokens and embeddings in one batch.
    pub mixed: Verdict,
}

pub fn parse(output: &str) -> Result<Vec<Row>> {
    let colour = Regex::new("\u{1b}\\[[0-9;]*m")?;
    let plain = colour.replace_all(output, "");
    let number = Regex::new(r"\(([^)]+)\)")?;
    let mut rows = Vec::new();
    for line in plain.lines().filter(|line| line.starts_with('|') && !line.starts_with("|-")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let cell = |index: usize| cells.get(index).copied();
        let arch = cell(0).context("a row without cells")?;
        if arch == "Model arch." {
            continue;
        }
        let logits = cell(3);
        let nmse = logits.and_then(|text| number.captures(text)).and_then(|found| found[1].parse().ok());
        rows.push(Row {
            arch: arch.to_owned(),
            device: cell(1).unwrap_or_default().to_owned(),
            config: cell(2).unwrap_or_default().to_owned(),
            logits: Verdict::read(logits),
            nmse,
            roundtrip: Verdict::read(cell(4)),
            mixed: Verdict::read(cell(5)),
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "main: using seed 1\n\
        |     Model arch.|               Device|Config|   NMSE vs. CPU|Roundtrip|    Mixed batch|\n\
        |----------------|---------------------|------|---------------|---------|---------------|\n\
        |           qwen3|Simulated NPU (aie2p)| Dense|  \u{1b}[1;32mOK\u{1b}[0m (1.33e-08)|       \u{1b}[1;32mOK\u{1b}[0m|  \u{1b}[1;33mSKIP\u{1b}[0m|\n\
        |            clef|Simulated NPU (aie2p)| Dense|\u{1b}[1;33mSKIP\u{1b}[0m           |     SKIP|SKIP           |\n\
        |             t5 |Simulated NPU (aie2p)|   MoE|FAIL (nan)|FAIL|OK (0.00e+00)|\n\
        |       deepseek2|            MoE cache|   MoE|free(): invalid size\n";

    #[test]
    fn rows_are_read_without_their_colours() {
        let rows = parse(TABLE).unwrap();
        assert_eq!(rows.len(), 4);
        assert_eq!((rows[0].arch.as_str(), rows[0].config.as_str(), rows[0].nmse), ("qwen3", "Dense", Some(1.33e-8)));
        assert_eq!((rows[0].logits, rows[0].roundtrip, rows[0].mixed), (Verdict::Ok, Verdict::Ok, Verdict::Skipped));
        assert_eq!((rows[1].logits, rows[1].nmse), (Verdict::Skipped, None));
        assert!(rows[2].nmse.is_some_and(f64::is_nan) && rows[2].logits == Verdict::Failed);
        assert_eq!((rows[3].logits, rows[3].mixed), (Verdict::Missing, Verdict::Missing));
        assert!(parse("").unwrap().is_empty());
    }
}
