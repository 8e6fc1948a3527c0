//! What a machine is to be, on the command line.

use crate::testbed::virtual_machine::KERNELS;
use crate::virtual_machine::{Iommu, Machine, ServedNpu};
use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The word for one machine after another.
const ALL: &str = "all";

/// Options of every command that boots a machine.
#[derive(Debug, Clone, Args)]
pub struct MachineArgs {
    /// The kernel; `all` only with `boot`; by default the oldest one that was downloaded
    #[arg(long, value_name = "KERNEL", value_parser = PossibleValuesParser::new(
        KERNELS.into_iter().chain([ALL])))]
    pub kernel: Option<String>,
    /// The NPU; `all` only with `boot`
    #[arg(long, value_name = "NPU", default_value = "npu4", value_parser = PossibleValuesParser::new(
        ServedNpu::value_variants().iter().map(|npu| npu.name()).chain([ALL])))]
    pub npu: String,
    /// Whether the NPU has addresses of its own, or uses physical ones and takes buffers from a carve-out
    #[arg(long, value_enum, value_name = "WAY", default_value_t = Iommu::Translated)]
    pub iommu: Iommu,
    /// The guest's memory
    #[arg(long, value_name = "MIB", default_value_t = Machine::default().memory_mib)]
    pub memory: u32,
    /// Faults of the NPU, as the device server takes them; see `aie-npu-pci --help`
    #[arg(long, value_name = "LIST")]
    pub device_faults: Option<String>,
    /// Another option of the device server, without its hyphens: `protocol=6.24`, `contexts=2`. Can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub device_option: Vec<String>,
    /// A parameter of the driver for NPUs: `tdr_timeout_ms=500`. Can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub module_parameter: Vec<String>,
    /// A word for the kernel's command line: `loglevel=7`. Can be repeated
    #[arg(long, value_name = "WORD")]
    pub kernel_argument: Vec<String>,
    /// Use this aie-npu-pci and do not build one
    #[arg(long, value_name = "FILE")]
    pub device_server: Option<PathBuf>,
}

/// Takes `NAME=VALUE`.
pub fn assignment(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

impl MachineArgs {
    /// The machines requested, one after the other; `available` are the kernels there are, oldest first.
    pub fn machines(&self, available: &[&str]) -> Vec<Machine> {
        let oldest = || available.first().copied().unwrap_or(KERNELS[0]);
        let wanted = self.kernel.as_deref().unwrap_or_else(oldest);
        let kernels = KERNELS.into_iter().filter(|kernel| wanted == ALL || wanted == *kernel);
        let npus = || ServedNpu::value_variants().iter().filter(|npu| self.npu == ALL || self.npu == npu.name());
        kernels.flat_map(|kernel| npus().map(move |npu| self.machine(kernel, *npu))).collect()
    }

    /// The one machine requested.
    pub fn one(&self, available: &[&str]) -> Result<Machine> {
        match &*self.machines(available) {
            [machine] => Ok(machine.clone()),
            machines => bail!(
                "this command boots one machine and {} were requested; name one kernel and one NPU, or use `vm boot`",
                machines.len()
            ),
        }
    }

    fn machine(&self, kernel: &str, npu: ServedNpu) -> Machine {
        let mut device_options = Vec::new();
        if let Some(faults) = &self.device_faults {
            device_options.extend(["--faults".to_owned(), faults.clone()]);
        }
        for option in &self.device_option {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            device_options.extend([format!("--{}", name.trim_start_matches('-')), value.to_owned()]);
        }
        Machine {
            kernel: kernel.to_owned(),
            npu,
            iommu: self.iommu,
            memory_mib: self.memory,
            device_options,
            module_parameters: self.module_parameter.clone(),
            kernel_arguments: self.kernel_argument.clone(),
            terminal: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        machine: MachineArgs,
    }

    fn parse(line: &str) -> MachineArgs {
        Line::try_parse_from(format!("x {line}").split_whitespace()).unwrap().machine
    }

    #[test]
    fn all_is_every_combination() {
        let machines = parse("--kernel all --npu all").machines(&KERNELS);
        assert_eq!(machines.len(), 8);
        assert_eq!((machines[0].kernel.as_str(), machines[0].npu), ("7.2", ServedNpu::Npu1));
        assert_eq!((machines[7].kernel.as_str(), machines[7].npu), ("7.3", ServedNpu::Npu6));
        assert_eq!(parse("").one(&KERNELS).unwrap().name(), "7.2-npu4-translated");
        assert_eq!(parse("").one(&KERNELS[1..]).unwrap().name(), "7.3-npu4-translated", "Debian has no 7.2 any more");
        assert_eq!(parse("--kernel 7.2").one(&KERNELS[1..]).unwrap().name(), "7.2-npu4-translated");
        assert!(parse("--npu all").one(&KERNELS).unwrap_err().to_string().contains("4 were requested"));
    }

    #[test]
    fn options_are_handed_through() {
        let line = "--device-faults timeout@3 --device-option protocol=6.24 --module-parameter tdr_timeout_ms=500";
        let machine = parse(line).one(&KERNELS).unwrap();
        assert_eq!(machine.device_options, ["--faults", "timeout@3", "--protocol", "6.24"]);
        assert_eq!(machine.module_parameters, ["tdr_timeout_ms=500"]);
        assert!(Line::try_parse_from(["x", "--module-parameter", "quick"]).is_err());
        assert!(Line::try_parse_from(["x", "--kernel", "6.18"]).is_err());
    }
}
