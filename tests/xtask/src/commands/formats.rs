//! `cargo xtask formats`: AMD's own programs read the files we write.
//!
//! For each operation of the table, with each type it takes, on each generation, the reference compiler's PDI is shown to bootgen
//! and its instruction stream to aiebu; so are files with everything else our writers can write. bootgen's reading of the
//! headers and the CDO it writes itself, the disassembly, and the ELF file that aiebu-asm makes are compared word for word
//! with what our readers say.

use crate::judges::aiebu::{self, Aiebu};
use crate::judges::bootgen::{self, Bootgen};
use crate::output;
use crate::session::Options;
use crate::testbed::Testbed;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::cdo::{CdoBuilder, CdoCommand};
use aie_hal::format::instructions::{Header, Instruction, InstructionWriter, Transfer};
use aie_hal::format::pdi;
use aie_hal::format::task_queue::{Direction, ShimChannel};
use aie_hal::{Arch, ArchRegistry};
use aie_ops::artifact::{BuildError, reference_artifact};
use aie_ops::{DataType, F16Policy, Placement, normalise, table};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Show the PDIs and instruction streams we write to AMD's bootgen, aiebu-dump and aiebu-asm.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask formats
  cargo xtask formats --only mul_mat        kernels whose name has this in it
  cargo xtask formats --json

Exit code 1 if a program refuses a file or reads something else in it than we do.")]
pub struct FormatsArgs {
    /// Only files whose name has this in it
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// What is written in one file. Kernels often have the same instruction stream, which is shown once.
enum File {
    Pdi(Vec<u8>),
    Instructions(Vec<u8>),
}

struct Sample {
    name: String,
    file: File,
}

#[derive(Default, Serialize)]
struct Report {
    ok: bool,
    seconds: f64,
    /// Operations of the table that run on the array.
    operations: usize,
    /// Kernels they make, over both generations.
    kernels: usize,
    pdis: usize,
    /// Header words that bootgen printed.
    header_words: usize,
    /// Commands of the CDOs that bootgen wrote.
    commands: usize,
    /// PDIs that bootgen makes byte for byte.
    identical: usize,
    streams: usize,
    /// Lines of disassembly.
    lines: usize,
    /// Bytes of instructions in the ELF files.
    bytes: usize,
    /// Addresses of arguments in the ELF files.
    relocations: usize,
    problems: Vec<String>,
}

/// Runs the command.
pub fn run(args: &FormatsArgs, options: &Options) -> Result<()> {
    let started = Instant::now();
    let testbed = Testbed::ensure(&options.testbed, options.offline)?;
    let judges = Judges { bootgen: Bootgen::of(&testbed)?, aiebu: Aiebu::of(&testbed)? };
    let (mut report, mut samples) = kernels()?;
    for generation in generations()? {
        samples.extend(writers(&generation)?);
    }
    if let Some(only) = &args.only {
        samples.retain(|sample| sample.name.contains(only));
        ensure!(!samples.is_empty(), "no file has `{only}` in its name");
    }
    judges.all(&samples, &mut report)?;
    report.ok = report.problems.is_empty();
    report.seconds = started.elapsed().as_secs_f64();
    if options.json {
        output::json(&report)?;
    } else {
        print(&report);
    }
    if !report.ok {
        bail!("formats: {} file(s) refused or read differently, listed above", report.problems.len());
    }
    Ok(())
}

fn generations() -> Result<Vec<Arc<Arch>>> {
    let registry = ArchRegistry::builtin();
    registry.names().map(|name| registry.get(name).with_context(|| format!("no generation {name}"))).collect()
}

/// A kernel for each form of each operation, and its two files.
fn kernels() -> Result<(Report, Vec<Sample>)> {
    let (mut report, mut samples) = (Report::default(), Vec::new());
    let (mut operations, mut streams) = (BTreeSet::new(), BTreeSet::new());
    for arch in generations()? {
        let mut names = BTreeSet::new();
        for op in table::all() {
            for node in DataType::ALL.iter().flat_map(|dtype| op.examples(*dtype)) {
                if op.check(&node).is_err() || op.placement(&node) != Placement::Array {
                    continue;
                }
                let node = normalise::normalise(op, &node, F16Policy::default())?.node;
                let artifact = match reference_artifact(op, &node, &arch) {
                    Ok(artifact) => artifact,
                    // Larger than this generation's memories; another form of the operation fits.
                    Err(BuildError::Unsupported(_)) => continue,
                    Err(error) => return Err(error).with_context(|| format!("{} on {}", op.name(), arch.name)),
                };
                if !names.insert(artifact.name().to_owned()) {
                    continue;
                }
                operations.insert(op.name());
                let name = format!("{}/{}", arch.name, artifact.name());
                samples.push(Sample { name: name.clone(), file: File::Pdi(artifact.pdi().to_vec()) });
                if streams.insert(artifact.instructions().to_vec()) {
                    samples.push(Sample { name, file: File::Instructions(artifact.instructions().to_vec()) });
                }
            }
        }
        report.kernels += names.len();
    }
    report.operations = operations.len();
    Ok((report, samples))
}

/// What the writers can write and the kernels above do not have.
fn writers(arch: &Arch) -> Result<Vec<Sample>> {
    let small = |value: usize| u8::try_from(value).context("a number of tiles above 255");
    let mut cdo = CdoBuilder::new();
    cdo.nop(&[]).nop(&[1, 2, 3]);
    cdo.mask_write(0x0023_2000, 1, 0).write(0x0021_F030, 1).write(0x1_0000_0004, 9).mask_write(0x1_0000_0008, 3, 2);
    // Lengths on both sides of the long form, at every alignment.
    for words in [1, 8, 252, 253, 254, 255, 256, 4096] {
        cdo.dma_write(0x0022_0000, &vec![words; words as usize]).write(0x0021_DE04, words);
    }
    cdo.push(&CdoCommand::MaskPoll { address: 0x0021_DF00, mask: 3, expected: 1, timeout: 1000 });
    cdo.push(&CdoCommand::Delay { cycles: 100 });
    let mut stream = InstructionWriter::new(Header {
        generation: arch.dev_gen,
        rows: small(arch.array.rows)?,
        columns: small(arch.array.columns)?,
        mem_tile_rows: small(arch.array.mem_rows)?,
    });
    for column in 0..small(arch.array.columns)? {
        for (index, direction) in [Direction::MemoryToStream, Direction::StreamToMemory].into_iter().enumerate() {
            for channel in 0..2 {
                let descriptor = 4 * column % 12 + 2 * index as u8 + channel;
                let shape = ShimBd {
                    d0_wrap: 16,
                    d0_step: 1,
                    d1_wrap: 8,
                    d1_step: 64,
                    d2_step: 1024,
                    iteration_wrap: 4,
                    iteration_step: 4096,
                    ..ShimBd::linear(512 + u32::from(column), 2)
                };
                let transfer = Transfer {
                    column,
                    channel: ShimChannel { direction, channel },
                    descriptor,
                    shape,
                    argument: (2 * index) as u16 + u16::from(channel),
                    offset: 0x1000 * u64::from(column),
                    repeat: 3,
                    token: true,
                };
                stream.transfer(&transfer)?.wait(&transfer);
            }
        }
    }
    stream.block_write(0x001A_0000, &[1, 2, 3, 4, 5, 6, 7, 8]).block_write(0x0021_D000, &[9; 6]);
    stream.push(&Instruction::MaskPoll { address: 0x0001_D228, value: 1, mask: 3 });
    stream.push(&Instruction::MaskPollBusy { address: 0x0001_D228, value: 1, mask: 3 }).push(&Instruction::Noop);
    Ok(vec![
        Sample { name: format!("{}/every-command", arch.name), file: File::Pdi(pdi::write(&cdo)?) },
        Sample { name: format!("{}/every-operation", arch.name), file: File::Instructions(stream.finish()?) },
    ])
}

struct Judges<'a> {
    bootgen: Bootgen<'a>,
    aiebu: Aiebu<'a>,
}

enum Confirmed {
    Pdi(bootgen::Confirmed),
    Instructions(aiebu::Confirmed),
}

impl Judges<'_> {
    /// Shows everything to the programs, on all processors.
    fn all(&self, samples: &[Sample], report: &mut Report) -> Result<()> {
        let next = AtomicUsize::new(0);
        let verdicts = Mutex::new(BTreeMap::new());
        let work = || -> Result<()> {
            let folder = tempfile::Builder::new().prefix("formats-").tempdir()?;
            while let Some((index, sample)) = {
                let index = next.fetch_add(1, Ordering::Relaxed);
                samples.get(index).map(|sample| (index, sample))
            } {
                let verdict = match &sample.file {
                    File::Pdi(bytes) => self.bootgen.judge(bytes, folder.path()).map(Confirmed::Pdi),
                    File::Instructions(bytes) => self.aiebu.judge(bytes, folder.path()).map(Confirmed::Instructions),
                };
                verdicts.lock().map_err(|_| anyhow::anyhow!("another thread ended early"))?.insert(index, verdict);
            }
            Ok(())
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(_) => bail!("a thread of this program ended early"),
            })
        })?;
        let verdicts = verdicts.into_inner().map_err(|_| anyhow::anyhow!("a thread of this program ended early"))?;
        ensure!(verdicts.len() == samples.len(), "{} of {} files were judged", verdicts.len(), samples.len());
        for (index, verdict) in verdicts {
            match verdict {
                Ok(Confirmed::Pdi(found)) => {
                    report.pdis += 1;
                    report.header_words += found.header_words;
                    report.commands += found.commands;
                    report.identical += usize::from(found.identical);
                }
                Ok(Confirmed::Instructions(found)) => {
                    report.streams += 1;
                    report.lines += found.lines;
                    report.bytes += found.bytes;
                    report.relocations += found.relocations;
                }
                Err(error) => report.problems.push(format!("{}: {error:#}", samples[index].name)),
            }
        }
        Ok(())
    }
}

fn print(report: &Report) {
    let mut table = output::table(&["program", "what it confirmed", "#count"]);
    for (program, what, count) in [
        ("bootgen -read", "PDIs read", report.pdis),
        ("", "values of their headers", report.header_words),
        ("bootgen -image", "CDO commands read and written again", report.commands),
        ("", "PDIs that it makes byte for byte", report.identical),
        ("aiebu-dump", "instruction streams read", report.streams),
        ("", "lines of their disassembly", report.lines),
        ("aiebu-asm", "bytes of instructions in its ELF files", report.bytes),
        ("", "addresses of arguments, with the argument's size", report.relocations),
    ] {
        table.add_row([program.to_owned(), what.to_owned(), count.to_string()]);
    }
    println!("{table}");
    for problem in &report.problems {
        println!("{} {problem}", output::bad("problem:"));
    }
    println!(
        "{} kernels of {} operations on the array, {} problems, {:.1} s",
        report.kernels,
        report.operations,
        report.problems.len(),
        report.seconds
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::format::instructions::InstructionStream;
    use aie_hal::format::pdi::Pdi;

    #[test]
    fn every_operation_of_the_array_has_a_kernel_on_both_generations() {
        let (report, samples) = kernels().unwrap();
        let array: BTreeSet<&str> = generations()
            .unwrap()
            .iter()
            .flat_map(|arch| table::rows(arch))
            .filter(|row| row.places.iter().any(|place| place.placement == Placement::Array))
            .map(|row| row.name)
            .collect();
        assert_eq!(report.operations, array.len());
        for arch in ["aie2/", "aie2p/"] {
            let pdis = samples.iter().filter(|sample| matches!(sample.file, File::Pdi(_)));
            assert!(pdis.filter(|sample| sample.name.starts_with(arch)).count() >= array.len());
        }
    }

    #[test]
    fn the_writers_samples_are_readable() {
        for arch in generations().unwrap() {
            for sample in writers(&arch).unwrap() {
                match &sample.file {
                    File::Pdi(bytes) => assert!(Pdi::parse(bytes).unwrap().cdo().commands().count() > 20),
                    File::Instructions(bytes) => {
                        // Five for each of the four channels of a column, and five more.
                        let count = InstructionStream::parse(bytes).unwrap().operations().count();
                        assert_eq!(count, 20 * arch.array.columns + 5);
                    }
                }
            }
        }
    }
}
