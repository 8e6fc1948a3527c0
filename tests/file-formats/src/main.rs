//! AMD's own programs read the files we write; `cargo xtask formats` runs this with those of the testbed.
//!
//! For each operation of the table, with each type it takes, on each generation, the reference compiler's PDI is shown to bootgen
//! and its instruction stream to aiebu; so are the designs of native kernels, and files with everything else our writers can
//! write. bootgen's reading of the headers and the CDO it writes itself, the disassembly, and the ELF file that aiebu-asm makes are
//! compared word for word with what our readers say; an exit code alone proves little. aiebu-asm also packs PDI and stream into the
//! ELF that XRT loads, from which our reader has to get both back.
//!
//! It prints a line of JSON with what was confirmed and what was not. Exit code 1 only if it cannot compare.

mod aiebu;
mod bootgen;
mod samples;
mod tool;

use aiebu::Aiebu;
use anyhow::{Result, ensure};
use bootgen::Bootgen;
use clap::Parser;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use samples::{File, Kernels, Sample};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use tool::Tool;

/// Show the PDIs and instruction streams we write to AMD's bootgen, aiebu-dump and aiebu-asm.
#[derive(Debug, Parser)]
struct Args {
    /// AMD's maker of PDIs
    #[arg(long, value_name = "PROGRAM", default_value = "bootgen")]
    bootgen: PathBuf,
    /// AMD's disassembler of instruction streams
    #[arg(long, value_name = "PROGRAM", default_value = "aiebu-dump")]
    aiebu_dump: PathBuf,
    /// AMD's assembler of instruction streams
    #[arg(long, value_name = "PROGRAM", default_value = "aiebu-asm")]
    aiebu_asm: PathBuf,
    /// Only files whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// What starts these programs: a dynamic loader with its options; by default they start themselves
    #[arg(last = true, value_name = "WORD")]
    loader: Vec<OsString>,
}

/// What a program confirmed of one file, and how much of it.
type Confirmed = Vec<(&'static str, usize)>;

#[derive(Debug, Serialize)]
struct Report {
    /// Over all generations.
    kernels: usize,
    /// Operations of the table that run on the array.
    operations: usize,
    confirmed: BTreeMap<&'static str, usize>,
    /// What a program rejects or reads differently.
    problems: Vec<String>,
}

struct Judges {
    bootgen: Bootgen,
    aiebu: Aiebu,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let tool = |program| Tool { loader: args.loader.clone(), program };
    let judges = Judges {
        bootgen: Bootgen(tool(args.bootgen)),
        aiebu: Aiebu { disassembler: tool(args.aiebu_dump), assembler: tool(args.aiebu_asm) },
    };
    let Kernels { operations, count, mut samples } = samples::kernels()?;
    for generation in samples::generations()? {
        samples.extend(samples::writers(&generation)?);
        samples.extend(samples::designs(&generation)?);
    }
    if let Some(only) = &args.only {
        samples.retain(|sample| sample.name.contains(only));
        ensure!(!samples.is_empty(), "no file has `{only}` in its name");
    }
    let (confirmed, problems) = judges.all(&samples);
    println!("{}", serde_json::to_string(&Report { kernels: count, operations, confirmed, problems })?);
    Ok(())
}

impl Judges {
    /// Shows everything to the programs, on all processors; returns what they confirm, and what they reject or read
    /// differently.
    fn all(&self, samples: &[Sample]) -> (BTreeMap<&'static str, usize>, Vec<String>) {
        let verdicts: Vec<Result<Confirmed>> = samples.par_iter().map(|sample| self.one(sample)).collect();
        let (mut confirmed, mut problems) = (BTreeMap::new(), Vec::new());
        for (sample, verdict) in samples.iter().zip(verdicts) {
            match verdict {
                Ok(found) => found.into_iter().for_each(|(what, count)| *confirmed.entry(what).or_default() += count),
                Err(error) => problems.push(format!("{}: {error:#}", sample.name)),
            }
        }
        (confirmed, problems)
    }

    fn one(&self, sample: &Sample) -> Result<Confirmed> {
        let folder = tempfile::Builder::new().prefix("formats-").tempdir()?;
        match &sample.file {
            File::Pdi(bytes) => self.bootgen.judge(bytes, folder.path()),
            File::Instructions(bytes) => self.aiebu.judge(bytes, folder.path()),
            File::Kernel { pdi, instructions } => self.aiebu.pack(pdi, instructions, folder.path()),
        }
    }
}
