//! AMD's XRT, with its own driver for amdxdna.

use super::{Checks, require};
use crate::judges::xrt_job::{self, JUDGE, PARTS, Printed};
use crate::virtual_machine::{Guest, Machine, NPU_ADDRESS};
use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
/// By how much less is done in CI.
const CI_SHARE: u32 = 10;

impl Checks {
    /// `xrt-smi examine` lists the NPU.
    pub(super) fn examine(&mut self, guest: &mut Guest) -> Result<String> {
        let mut command = self.host.testbed.command_for(&self.host.testbed.xrt("xrt-smi")?);
        command.arg("examine");
        let finished = guest.run(&command, LIMIT)?;
        require(&finished)?;
        let line = finished.stdout.lines().find(|line| line.contains(NPU_ADDRESS));
        let line = line.with_context(|| format!("it lists no NPU at {NPU_ADDRESS}:\n{}", finished.stdout))?;
        Ok(line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(", "))
    }

    /// Our program on XRT's Python module, with reference kernels in xclbins.
    pub(super) fn xrt(&mut self, guest: &mut Guest, machine: &Machine) -> Result<String> {
        let testbed = &self.host.testbed;
        let folder = guest.shared_folder();
        let kernels = xrt_job::kernels(testbed, &folder, machine.npu.arch())?;
        let python = testbed.xrt("python3")?;
        let mut dispatches = 0;
        for (part, count) in PARTS {
            let count = if self.is_ci { count.div_ceil(CI_SHARE) } else { count };
            let file = folder.join("job.json");
            fs::write(&file, serde_json::to_vec(&xrt_job::job(&kernels, part, count))?)?;
            let mut command = testbed.command_for(&python);
            command.env("PYTHONDONTWRITEBYTECODE", "1").arg(workspace::root().join(JUDGE)).arg(&file);
            let finished = guest.run(&command, LIMIT)?;
            require(&finished).with_context(|| part.to_owned())?;
            let printed: Printed = serde_json::from_str(&finished.stdout).with_context(|| part.to_owned())?;
            ensure!(printed.part == part && printed.dispatches > 0, "{part}: it ran nothing");
            dispatches += printed.dispatches;
        }
        Ok(format!("{dispatches} dispatches with checked results from {} xclbins", kernels.len()))
    }
}
