//! The machine and the programs a measurement was made with, so that figures can be read later.

use crate::testbed::Stamp;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its CPU's name, as `/proc/cpuinfo` has it.
    pub processor: String,
    /// Widest vectors of the CPU that kernels are made for.
    pub vectors: &'static str,
    /// Cores this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Programs {
    pub llama_cpp: String,
    pub ggml: String,
}

impl Machine {
    pub fn read() -> Result<Self> {
        let read = |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self::of(&read("/proc/cpuinfo")?, &read("/proc/meminfo")?, cores))
    }

    fn of(cpuinfo: &str, meminfo: &str, cores: usize) -> Self {
        let value = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
            line.map(|value| value.trim().to_owned())
        };
        // Other architectures than x86 have no name there.
        let processor = value(cpuinfo, "model name").unwrap_or_else(|| format!("{} CPU", std::env::consts::ARCH));
        let flags = value(cpuinfo, "flags").or_else(|| value(cpuinfo, "Features")).unwrap_or_default();
        let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
        let known = [("avx512f", "AVX-512"), ("avx2", "AVX2"), ("sve", "SVE"), ("asimd", "NEON")];
        let vectors = known.into_iter().find(|(flag, _)| has(flag)).map_or("no known vectors", |(_, name)| name);
        let kilobytes = value(meminfo, "MemTotal");
        let kilobytes = kilobytes.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        Self { processor, vectors, cores, memory: kilobytes.unwrap_or(0) * 1024 }
    }

    pub fn describe(&self) -> String {
        let Self { processor, vectors, cores, memory } = self;
        format!("{processor}, {cores} cores, {vectors}, {:.0} GiB of memory", *memory as f64 / (1_u64 << 30) as f64)
    }
}

impl Programs {
    pub fn of(stamp: &Stamp) -> Self {
        let version = |name: &str| stamp.packages.get(name).cloned().unwrap_or_else(|| "unknown".to_owned());
        Self { llama_cpp: version("llama.cpp-tools"), ggml: version("libggml0") }
    }

    pub fn describe(&self) -> String {
        format!("Debian's llama.cpp {}, ggml {}", self.llama_cpp, self.ggml)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn small() -> Machine {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx2 avx512f\n";
        Machine::of(cpuinfo, "MemTotal:       16777216 kB\nMemFree: 1 kB\n", 2)
    }

    #[test]
    fn a_machine_is_described() {
        assert_eq!(small().describe(), "Some CPU @ 2 GHz, 2 cores, AVX-512, 16 GiB of memory");
        let arm = Machine::of("processor : 0\nFeatures : fp asimd\n", "", 4);
        assert_eq!((arm.vectors, arm.memory), ("NEON", 0));
        assert!(arm.processor.ends_with(" CPU"));
    }

    #[test]
    fn this_machine_is_read() {
        let machine = Machine::read().unwrap();
        assert!(machine.cores > 0 && machine.memory > 0 && !machine.processor.is_empty());
    }
}
