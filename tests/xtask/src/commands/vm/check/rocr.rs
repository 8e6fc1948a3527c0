//! AMD's runtime ROCR on the kernel's own driver, with a stand-in for KFD.

use super::{Checks, require};
use crate::build;
use crate::session::DriverName;
use crate::virtual_machine::{Guest, Rocr};
use anyhow::Result;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

impl Checks {
    /// Dispatches with checked results, and but for CI the conformance suite.
    pub(super) fn rocr(&mut self, guest: &mut Guest) -> Result<String> {
        let rocr = Rocr::ensure(&self.host, self.offline)?;
        let mut load = self.load(&["dispatches", "--dispatches", "2000", "--device", DriverName::Rocr.first_device()]);
        rocr.prepare(&mut load);
        require(&guest.run(&load, LIMIT)?)?;
        if self.is_ci {
            return Ok("2,000 dispatches".into());
        }
        let suite = ["test", "--package", "aie-conformance", "--test", "rocr", "--no-run"];
        let suite = build::cargo(&suite, self.offline)?.executable("test", "rocr")?;
        let mut suite = self.host.testbed.command_for(&suite);
        rocr.prepare(&mut suite);
        Ok(format!("2,000 dispatches; conformance: {}", super::suites::conformance(guest, &suite)?))
    }
}
