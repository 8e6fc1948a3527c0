//! What a decoded token costs the device, counted in two runs of `llama-bench` that differ in how many tokens they decode.

use crate::difference::per_piece;
use crate::generation;
use crate::session::Session;
use crate::stats::DeviceStats;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Tokens of the shorter and the longer run. Both fit the same 256 places of the cache.
const TOKENS: (usize, usize) = (16, 48);
const LIMIT: Duration = Duration::from_secs(1800);
/// The least share of a token's dispatches that fusion is to save.
pub const LEAST_SAVED: f64 = 0.3;

type Count = fn(&DeviceStats) -> u64;

/// What is counted, and where it is in the statistics.
pub const COUNTS: [(&str, Count); 7] = [
    (DISPATCHES, |device| device.counters.dispatches),
    (FUSED, |device| device.fusion.dispatches),
    ("the nodes these stand for", |device| device.fusion.nodes),
    ("host calls", |device| device.counters.host_calls),
    ("of them conversions", |device| device.conversions.host_calls),
    ("doorbells", |device| device.counters.doorbells),
    ("submissions", |device| device.counters.submissions),
];
const DISPATCHES: &str = "dispatches";
const FUSED: &str = "of them for several nodes";

/// Counts for a decoded token by their names in [`COUNTS`].
pub type TokenCounts = BTreeMap<&'static str, f64>;

/// The same token with fused operations and with a dispatch for each node.
#[derive(Debug, Clone, Serialize)]
pub struct FusionCounts {
    pub flash_attention: bool,
    /// As the library does it.
    pub fused: TokenCounts,
    /// With `GGML_HSA_FUSION=0`.
    pub apart: TokenCounts,
    /// The share of dispatches that is saved.
    pub saved: f64,
}

impl FusionCounts {
    pub fn measure(session: &Session, model: &Path, threads: Option<usize>, flash_attention: bool) -> Result<Self> {
        let counts = |fusion| -> Result<TokenCounts> {
            let run = |tokens| decode(session, model, threads, flash_attention, fusion, tokens);
            Ok(per_piece(&run(TOKENS.0)?, &run(TOKENS.1)?, TOKENS.1 - TOKENS.0))
        };
        Ok(Self::of(flash_attention, counts(true)?, counts(false)?))
    }

    fn of(flash_attention: bool, fused: TokenCounts, apart: TokenCounts) -> Self {
        let saved = 1.0 - fused[DISPATCHES] / apart[DISPATCHES];
        Self { flash_attention, fused, apart, saved }
    }

    pub fn problems(&self) -> Vec<String> {
        let (fused, apart) = (self.fused[DISPATCHES], self.apart[DISPATCHES]);
        let mut problems = Vec::new();
        if apart <= 0.0 {
            problems
                .push("a decoded token took no dispatch with GGML_HSA_FUSION=0, so nothing was compared".to_owned());
        } else if self.saved < LEAST_SAVED {
            problems.push(format!(
                "fusion saves {:.1} % of the dispatches of a decoded token ({:.1} of {:.1} are left), expected {:.0} %",
                100.0 * self.saved,
                fused,
                apart,
                100.0 * LEAST_SAVED
            ));
        }
        let left = self.apart[FUSED];
        if left > 0.0 {
            problems.push(format!("GGML_HSA_FUSION=0 left {left:.1} fused dispatches for a token"));
        }
        problems
    }

    /// Dispatches node by node and fused.
    pub fn dispatches(&self) -> [f64; 2] {
        [self.apart[DISPATCHES], self.fused[DISPATCHES]]
    }
}

fn decode(
    session: &Session,
    model: &Path,
    threads: Option<usize>,
    flash_attention: bool,
    fusion: bool,
    tokens: usize,
) -> Result<TokenCounts> {
    let run = session.run("llama-bench", LIMIT, |command| {
        command.env("GGML_HSA_FUSION", if fusion { "1" } else { "0" });
        command.arg("-m").arg(model).args(["-p", "0", "-r", "1", "-o", "json"]);
        command.args(["-n", &tokens.to_string(), "-fa", if flash_attention { "1" } else { "0" }]);
        generation::set_threads(command, threads);
    })?;
    Ok(counts(run.device()?))
}

fn counts(device: &DeviceStats) -> TokenCounts {
    COUNTS.iter().map(|(name, count)| (*name, count(device) as f64)).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Counts with so many dispatches, of which some are fused.
    fn counts(dispatches: f64, fused_dispatches: f64) -> TokenCounts {
        let given = |name| match name {
            DISPATCHES => dispatches,
            FUSED => fused_dispatches,
            _ => 1.0,
        };
        COUNTS.iter().map(|(name, _)| (*name, given(*name))).collect()
    }

    /// A comparison that saves a third.
    pub fn third() -> FusionCounts {
        FusionCounts::of(false, counts(200.0, 100.0), counts(300.0, 0.0))
    }

    #[test]
    fn every_count_is_read_from_the_statistics() {
        let stats: crate::stats::Stats = serde_json::from_str(&crate::stats::tests::sample("[]")).unwrap();
        let counts = super::counts(&stats.devices[0]);
        assert_eq!((counts[DISPATCHES], counts["doorbells"], counts["host calls"]), (9.0, 3.0, 1.0));
    }

    #[test]
    fn too_little_saved_is_a_problem() {
        assert!(third().problems().is_empty());
        let little = FusionCounts::of(false, counts(211.0, 89.0), counts(300.0, 0.0));
        let problems = little.problems();
        assert!(problems.len() == 1 && problems[0].contains("29.7 %") && problems[0].contains("211.0 of 300.0"));
    }

    #[test]
    fn a_switch_that_does_nothing_is_a_problem() {
        let same = FusionCounts::of(false, counts(200.0, 100.0), counts(200.0, 100.0));
        assert_eq!(same.problems().len(), 2);
        assert!(FusionCounts::of(false, counts(0.0, 0.0), counts(0.0, 0.0)).problems()[0].contains("no dispatch"));
    }
}
