//! What stock ggml prints about a machine: what a user has to know, once, whether or not logging is on.

use super::machine::Machine;
use crate::process;
use crate::session::Options;
use crate::steps::Steps;
use crate::testbed::Testbed;
use anyhow::{Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A machine, and what is said of it.
struct Case {
    name: &'static str,
    variables: &'static [(&'static str, &'static str)],
    /// What is said exactly once; `None` where the backend has nothing to say.
    said: Option<&'static str>,
}

/// No simulated device at all.
const NO_NPU: (&str, &str) = ("AMDXDNA_SIM_DEVICES", ",");
const LOG: (&str, &str) = ("GGML_HSA_ENABLE_LOG", "1");
/// In parts, since what is in quotes has to be a setting.
const MISSPELT: &str = concat!("GGML_HSA_", "DEVCIES");

const CASES: &[Case] = &[
    Case {
        name: "an invalid value",
        variables: &[("GGML_HSA_ENABLE_LOG", "banana")],
        said: Some("GGML_HSA_ENABLE_LOG: `banana` is not valid"),
    },
    Case { name: "a misspelt name", variables: &[(MISSPELT, "mock")], said: Some("did you mean GGML_HSA_DEVICES?") },
    Case { name: "no NPU, with logging", variables: &[NO_NPU, LOG], said: Some("this machine has no NPU") },
    Case { name: "no NPU", variables: &[NO_NPU], said: None },
    Case {
        name: "an NPU that is disabled",
        variables: &[("AMDXDNA_SIM_MACHINE", "node=forbidden")],
        said: Some("is not used: no permission to read and write /dev/accel/accel0"),
    },
    Case {
        name: "an NPU that is hidden",
        variables: &[("AIE_HAL_VISIBLE_DEVICES", "")],
        said: Some("AIE_HAL_VISIBLE_DEVICES hides xdna://pci-0000:c5:00.1, so no NPU is used"),
    },
    Case {
        name: "a scheme of no driver",
        variables: &[("GGML_HSA_DEVICES", "bogus://x")],
        said: Some("available in this build: [xdna, mock]"),
    },
    Case {
        name: "a backend that is off, with logging",
        variables: &[("GGML_HSA", "off"), LOG],
        said: Some("GGML_HSA is off"),
    },
];

/// Starts a program of the testbed on each machine.
pub fn check(machine: &Machine, options: &Options, steps: &mut Steps) {
    let testbed = steps.take("stock ggml", || {
        let testbed = Testbed::ensure(&options.testbed, options.offline)?;
        Ok((testbed, "for the messages below".to_owned()))
    });
    let Some(testbed) = testbed else { return };
    for case in CASES {
        steps.check(&format!("ggml says once: {}", case.name), || said(machine, &testbed, case));
    }
}

/// A program that loads the backends and, without a backend to test, ends. Others may end before their logger has written all.
fn said(machine: &Machine, testbed: &Testbed, case: &Case) -> Result<String> {
    let program = testbed.program("test-backend-ops")?;
    let mut command = testbed.command_with(&program, Some(&machine.preload));
    command.args(["test", "-b", "NONE"]);
    command.env("GGML_BACKEND_PATH", &machine.library).env("GGML_HSA_REFERENCE_KERNELS", "1");
    command.env("GGML_HSA_KERNEL_CACHE_DIR", machine.folder().join("cache")).envs(case.variables.iter().copied());
    let end = process::run(&mut command, LIMIT)?;
    ensure!(end.status.code().is_some() && !end.timed_out, "{}", end.describe());
    let printed = format!("{}{}", end.stdout, end.stderr);
    match case.said {
        None => {
            ensure!(!printed.contains("ggml-hsa: "), "{printed}");
            Ok("nothing".to_owned())
        }
        Some(words) => {
            let count = printed.matches(words).count();
            ensure!(count == 1, "`{words}` is there {count} times in\n{printed}");
            Ok(words.to_owned())
        }
    }
}
