//! What a decoded token costs the device, counted.
//!
//! Two runs of `llama-bench` that differ only in how many tokens they decode are compared. What they share, from loading to
//! the warm-up, cancels out, and what is left is the steady state.

use crate::generation::{self, StatsFile};
use crate::process;
use crate::session::Session;
use crate::stats::{DeviceStats, Stats};
use anyhow::Result;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Tokens of the shorter and the longer run. Both fit the same 256 places of the cache.
const TOKENS: (usize, usize) = (16, 48);
const LIMIT: Duration = Duration::from_secs(1800);
/// The least share of a token's dispatches that fusion is to save.
pub const LEAST_SAVED: f64 = 0.3;

/// Counts for a decoded token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TokenCounts {
    /// Kernels run on the array.
    pub dispatches: f64,
    /// Of them, those that stand for several nodes.
    pub fused_dispatches: f64,
    /// The nodes these stand for.
    pub fused_nodes: f64,
    /// Functions run on the host in the command list: operations and conversions.
    pub host_calls: f64,
    /// Of them, conversions.
    pub conversions: f64,
    /// Doorbells.
    pub doorbells: f64,
    /// Submissions.
    pub submissions: f64,
}

/// The same token with fused operations and with a dispatch for each node.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FusionCounts {
    /// Whether attention was one operation.
    pub flash_attention: bool,
    /// As the library does it.
    pub fused: TokenCounts,
    /// With `GGML_HSA_FUSION=0`.
    pub apart: TokenCounts,
    /// The share of dispatches that is saved.
    pub saved: f64,
}

impl FusionCounts {
    /// Runs both.
    pub fn measure(session: &Session, model: &Path, threads: Option<usize>, flash_attention: bool) -> Result<Self> {
        let counts = |fusion| -> Result<TokenCounts> {
            let run = |tokens| decode(session, model, threads, flash_attention, fusion, tokens);
            Ok(TokenCounts::between(&run(TOKENS.0)?, &run(TOKENS.1)?, TOKENS.1 - TOKENS.0))
        };
        Ok(Self::of(flash_attention, counts(true)?, counts(false)?))
    }

    fn of(flash_attention: bool, fused: TokenCounts, apart: TokenCounts) -> Self {
        Self { flash_attention, fused, apart, saved: 1.0 - fused.dispatches / apart.dispatches }
    }

    /// What is not as it has to be.
    pub fn problems(&self) -> Vec<String> {
        let (fused, apart) = (&self.fused, &self.apart);
        let mut problems = Vec::new();
        if apart.dispatches <= 0.0 {
            problems
                .push("a decoded token took no dispatch with GGML_HSA_FUSION=0, so nothing was compared".to_owned());
        } else if self.saved < LEAST_SAVED {
            problems.push(format!(
                "fusion saves {:.1} % of the dispatches of a decoded token ({:.1} of {:.1} are left), expected {:.0} %",
                100.0 * self.saved,
                fused.dispatches,
                apart.dispatches,
                100.0 * LEAST_SAVED
            ));
        }
        if apart.fused_dispatches > 0.0 {
            problems.push(format!("GGML_HSA_FUSION=0 left {:.1} fused dispatches for a token", apart.fused_dispatches));
        }
        problems
    }
}

fn decode(
    session: &Session,
    model: &Path,
    threads: Option<usize>,
    flash_attention: bool,
    fusion: bool,
    tokens: usize,
) -> Result<DeviceStats> {
    let file = StatsFile::new()?;
    let mut command = session.on_device("llama-bench", Some(&file.path()))?;
    command.env("GGML_HSA_FUSION", if fusion { "1" } else { "0" });
    command.arg("-m").arg(model).args(["-p", "0", "-r", "1", "-o", "json"]);
    command.args(["-n", &tokens.to_string(), "-fa", if flash_attention { "1" } else { "0" }]);
    generation::set_threads(&mut command, threads);
    generation::require_success(&process::run(&mut command, LIMIT)?)?;
    session.kernel_report()?;
    Ok(Stats::read(&file.path())?.used()?.clone())
}

impl TokenCounts {
    /// What `longer` did more than `shorter`, for each of `tokens`.
    fn between(shorter: &DeviceStats, longer: &DeviceStats, tokens: usize) -> Self {
        let each = |count: fn(&DeviceStats) -> u64| (count(longer) as f64 - count(shorter) as f64) / tokens as f64;
        Self {
            dispatches: each(|device| device.counters.dispatches),
            fused_dispatches: each(|device| device.fusion.dispatches),
            fused_nodes: each(|device| device.fusion.nodes),
            host_calls: each(|device| device.counters.host_calls),
            conversions: each(|device| device.conversions.host_calls),
            doorbells: each(|device| device.counters.doorbells),
            submissions: each(|device| device.counters.submissions),
        }
    }

    /// Names and numbers, for tables.
    pub fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("dispatches", self.dispatches),
            ("of them for several nodes", self.fused_dispatches),
            ("the nodes these stand for", self.fused_nodes),
            ("host calls", self.host_calls),
            ("of them conversions", self.conversions),
            ("doorbells", self.doorbells),
            ("submissions", self.submissions),
        ]
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::stats::Stats;

    /// Counts with so many dispatches, of which some are fused.
    pub fn counts(dispatches: f64, fused_dispatches: f64) -> TokenCounts {
        TokenCounts {
            dispatches,
            fused_dispatches,
            fused_nodes: 2.0 * fused_dispatches,
            host_calls: 5.0,
            conversions: 1.0,
            doorbells: 4.0,
            submissions: 1.0,
        }
    }

    /// A comparison that saves a third.
    pub fn third() -> FusionCounts {
        FusionCounts::of(false, counts(200.0, 100.0), counts(300.0, 0.0))
    }

    #[test]
    fn what_runs_share_cancels_out() {
        let text = crate::stats::tests::sample("[]");
        let read = |text: &str| serde_json::from_str::<Stats>(text).unwrap().devices[0].clone();
        let shorter = read(&text);
        let longer =
            read(&text.replace("\"dispatches\":9", "\"dispatches\":73").replace("\"doorbells\":3", "\"doorbells\":35"));
        let counts = TokenCounts::between(&shorter, &longer, 32);
        assert_eq!((counts.dispatches, counts.doorbells, counts.host_calls), (2.0, 1.0, 0.0));
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
