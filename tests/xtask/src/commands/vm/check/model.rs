//! Stock llama.cpp with the small model, in the guest and on the simulated device.

use super::{Checks, require};
use crate::generation::{self, Request};
use crate::model;
use crate::process;
use crate::session::{DEVICE_NAME, DriverName};
use crate::stats::Stats;
use crate::virtual_machine::Guest;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(900);
/// Places in the cache: enough, and little memory.
const CONTEXT: &str = "256";
const PROMPT: &str = "The three states of matter are";
/// Tokens in CI, and otherwise.
const TOKENS: [usize; 2] = [8, 32];

impl Checks {
    /// The text has to be that of the simulated device, byte for byte.
    pub(super) fn demo(&mut self, guest: &mut Guest) -> Result<String> {
        let request = Request {
            model: model::locate(None, &self.host.testbed, self.offline)?,
            prompt: PROMPT.to_owned(),
            tokens: TOKENS[usize::from(!self.is_ci)],
            threads: Some(1),
        };
        let stats = guest.shared_folder().join("stats.json");
        // The checkout is read-only there.
        let mut there = self.llama(DriverName::Xdna, &request, Path::new("/tmp/kernel-cache"))?;
        there.env("GGML_HSA_STATS", &stats);
        let finished = guest.run(&there, LIMIT)?;
        require(&finished)?;
        let mut here = self.llama(DriverName::Mock, &request, &workspace::target().join("kernel-cache"))?;
        let expected = process::run(&mut here, LIMIT)?;
        generation::require_success(&expected).context("on the simulated device")?;
        ensure!(
            finished.stdout == expected.stdout,
            "the text differs from that of the simulated device:\n{}\nand there\n{}",
            finished.stdout.trim_end(),
            expected.stdout.trim_end()
        );
        let stats = Stats::read(&stats)?;
        let device = stats.used()?;
        ensure!(device.array() > 0, "no operation ran on {DEVICE_NAME}'s array");
        Ok(format!(
            "the same text; {} dispatches in {} chains, {:.1} s",
            device.counters.dispatches,
            device.counters.chains,
            finished.elapsed.as_secs_f64()
        ))
    }

    fn llama(&self, driver: DriverName, request: &Request, cache: &Path) -> Result<Command> {
        let mut command = self.host.testbed.command("llama-completion")?;
        request.arguments(&mut command);
        command.args(["-c", CONTEXT]);
        command.env("GGML_BACKEND_PATH", &self.library).env("GGML_HSA_DEVICES", driver.first_device());
        // Nothing else executes on a simulated array.
        command.env("GGML_HSA_REFERENCE_KERNELS", "1").env("GGML_HSA_KERNEL_CACHE_DIR", cache);
        Ok(command)
    }
}
