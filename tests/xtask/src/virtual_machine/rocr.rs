//! AMD's HSA runtime for programs in a guest.
//!
//! ROCR does not start without KFD. Kernels have KFD with AMD graphics only, and a guest has none. So the preload library stands in
//! for KFD, and for nothing else: the accel node is the one of the guest's own kernel.

use super::machine::Host;
use crate::library;

use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// The setting of the preload library that leaves it nothing to simulate but what the machine lacks.
const DEVICES: (&str, &str) = ("AMDXDNA_SIM_DEVICES", "host");

/// What programs need to use an NPU through AMD's runtime.
#[derive(Debug, Clone)]
pub struct Rocr {
    preload: PathBuf,
    library: PathBuf,
}

impl Rocr {
    /// The testbed's runtime, which knows NPUs. Builds the preload library.
    pub fn ensure(host: &Host, offline: bool) -> Result<Self> {
        // Both are in folders that guests see at the same path.
        Ok(Self { library: host.testbed.rocr()?, preload: library::preload(offline)? })
    }

    /// Gives a command for a guest what it needs. It may be started by the guest's loader or by the testbed's.
    pub fn prepare(&self, command: &mut Command) {
        command.env(DEVICES.0, DEVICES.1).env("AIE_HAL_LIBHSA_PATH", &self.library).env("LD_PRELOAD", &self.preload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_command_gets_the_runtime_and_a_kfd_and_keeps_what_it_had() {
        let rocr = Rocr { preload: "/t/lib/preload.so".into(), library: "/t/libhsa.so.1".into() };
        let mut command = Command::new("/t/stress");
        command.arg("pdis").env("RUST_LOG", "debug");
        rocr.prepare(&mut command);
        let settings: BTreeMap<_, _> = command.get_envs().filter_map(|(name, value)| Some((name, value?))).collect();
        let expected = [
            ("AIE_HAL_LIBHSA_PATH", "/t/libhsa.so.1"),
            ("AMDXDNA_SIM_DEVICES", "host"),
            ("LD_PRELOAD", "/t/lib/preload.so"),
            ("RUST_LOG", "debug"),
        ];
        assert_eq!(settings, expected.map(|(name, value)| (name.as_ref(), value.as_ref())).into());
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["pdis"]);
    }
}
