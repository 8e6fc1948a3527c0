//! The scripts in virtual machines: real kernels with their own driver.

use super::{LIMIT, played};
use crate::session::Options;
use crate::testbed::virtual_machine::KERNELS;
use crate::virtual_machine::{BOOT_LIMIT, Guest, Host, Machine, Npu};
use anyhow::{Result, ensure};
use clap::ValueEnum;
use kernel_calls::record::Record;
use std::path::Path;

/// The word for all of [`EVERY`].
const ALL: &str = "all";
/// NPUs whose drivers differ in what they answer.
const EVERY: [Npu; 2] = [Npu::Npu4, Npu::Npu1];

/// A kernel and an NPU, by the name of a run: `7.2 npu4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestRun {
    kernel: &'static str,
    npu: Npu,
}

impl GuestRun {
    pub fn name(&self) -> String {
        format!("{} {}", self.kernel, self.npu.name())
    }
}

/// What was asked for.
#[derive(Debug, Clone)]
pub struct GuestRuns(Vec<GuestRun>);

/// Reads a name, or `all`.
pub fn list(text: &str) -> Result<GuestRuns, String> {
    if text == ALL {
        let every = KERNELS.into_iter().flat_map(|kernel| EVERY.map(|npu| GuestRun { kernel, npu }));
        return Ok(GuestRuns(every.collect()));
    }
    let (kernel, npu) = text.split_once(' ').ok_or("it has to be like `7.2 npu4`, or `all`")?;
    let kernel = KERNELS.into_iter().find(|known| *known == kernel);
    let kernel = kernel.ok_or_else(|| format!("there are the kernels {}", KERNELS.join(" and ")))?;
    Ok(GuestRuns(vec![GuestRun { kernel, npu: Npu::from_str(npu, false)? }]))
}

/// Plays the scripts in each machine; what the runs are called, with their records.
pub fn play(
    lists: &[GuestRuns],
    program: &Path,
    server: Option<&Path>,
    options: &Options,
) -> Result<Vec<(String, Vec<Record>)>> {
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let host = Host::ensure(options, server)?;
    lists.iter().flat_map(|list| &list.0).map(|wanted| Ok((wanted.name(), play_in(&host, wanted, program)?))).collect()
}

fn play_in(host: &Host, wanted: &GuestRun, program: &Path) -> Result<Vec<Record>> {
    let machine = Machine { kernel: wanted.kernel.to_owned(), npu: wanted.npu, ..Machine::default() };
    let mut guest = Guest::boot(host, &machine, BOOT_LIMIT)?;
    guest.npu()?;
    let mut command = host.testbed.command_for(program);
    let records = played(&wanted.name(), &mut |arguments| {
        let finished = guest.run(command.args(arguments), LIMIT)?;
        ensure!(finished.success(), "{}\n{}", finished.describe(), finished.last_words(8));
        Ok(finished.stdout)
    })?;
    guest.power_off()?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_named_as_runs_are() {
        let names = |text| list(text).map(|list| list.0.iter().map(GuestRun::name).collect::<Vec<_>>());
        assert_eq!(names("7.2 npu6").unwrap(), ["7.2 npu6"]);
        assert_eq!(names("all").unwrap(), ["7.2 npu4", "7.2 npu1", "7.3 npu4", "7.3 npu1"]);
        assert!(names("6.1 npu4").unwrap_err().contains("7.2"));
        assert!(names("7.2").is_err() && names("7.2 npu9").is_err());
    }
}
