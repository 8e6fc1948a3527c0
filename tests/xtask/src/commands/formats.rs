//! `cargo xtask formats`: AMD's own programs read the files we write.
//!
//! For each operation of the table, with each type it takes, on each generation, the reference compiler's PDI is shown to bootgen
//! and its instruction stream to aiebu; so are the designs of native kernels, and files with everything else our writers can
//! write. bootgen's reading of the headers and the CDO it writes itself, the disassembly, and the ELF file that aiebu-asm makes are
//! compared word for word with what our readers say. aiebu-asm also packs PDI and stream into the ELF that XRT loads, from which our
//! reader has to get both back.

use crate::judges::aiebu::Aiebu;
use crate::judges::bootgen::Bootgen;
use crate::output::{self, Report};
use crate::process;
use crate::session::Options;
use crate::testbed::Testbed;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::cdo::{CdoBuilder, CdoCommand};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{Header, Instruction, InstructionWriter, Transfer};
use aie_hal::format::pdi;
use aie_hal::{Arch, ArchRegistry};
use aie_isa::Isa;
use aie_jit_native::array::{CoreMemory, Dimension, Elements, ElementsColumn, Flow, MemMemory, Part, Product, Region};
use aie_ops::artifact::reference_artifact;
use aie_ops::{DataType, F16Policy, Placement, normalise, table};
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Show the PDIs and instruction streams we write to AMD's bootgen, aiebu-dump and aiebu-asm.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask formats
  cargo xtask formats --only mul_mat        kernels whose name contains this
  cargo xtask formats --json

Exit code 1 if a program rejects a file or interprets it differently than we do.")]
pub struct FormatsArgs {
    /// Only files whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// What is written in one file. Kernels often have the same instruction stream, which is shown once.
enum File {
    Pdi(Vec<u8>),
    Instructions(Vec<u8>),
    /// Both, for the program that packs them into one.
    Kernel {
        pdi: Vec<u8>,
        instructions: Vec<u8>,
    },
}

struct Sample {
    name: String,
    file: File,
}

/// What is shown: a kernel for each form of each operation, and its files.
struct Kernels {
    /// Operations of the table that run on the array.
    operations: usize,
    /// Over both generations.
    count: usize,
    samples: Vec<Sample>,
}

pub fn run(args: &FormatsArgs, options: &Options) -> Result<()> {
    let started = Instant::now();
    let testbed = Testbed::ensure(&options.testbed, options.offline)?;
    let judges = Judges { bootgen: Bootgen::of(&testbed)?, aiebu: Aiebu::of(&testbed)? };
    let Kernels { operations, count, mut samples } = kernels()?;
    for generation in generations()? {
        samples.extend(writers(&generation)?);
        samples.extend(designs(&generation)?);
    }
    if let Some(only) = &args.only {
        samples.retain(|sample| sample.name.contains(only));
        ensure!(!samples.is_empty(), "no file has `{only}` in its name");
    }
    let (confirmed, problems) = judges.all(&samples)?;
    let mut report = Report::with(problems);
    let mut table = output::table(&["program: what it confirmed", "#count"]);
    for (what, count) in &confirmed {
        table.add_row([*what, &count.to_string()]);
    }
    report.line(table);
    let (seconds, problems) = (started.elapsed().as_secs_f64(), report.problems.len());
    report.summary(format!(
        "{count} kernels of {operations} operations on the array, {problems} problems, {seconds:.1} s"
    ));
    report.field("kernels", count)?;
    report.field("operations", operations)?;
    report.field("confirmed", confirmed)?;
    report.field("seconds", seconds)?;
    report.finish("formats", options)
}

fn generations() -> Result<Vec<Arc<Arch>>> {
    let registry = ArchRegistry::builtin();
    registry.names().map(|name| registry.get(name).with_context(|| format!("no generation {name}"))).collect()
}

fn kernels() -> Result<Kernels> {
    let (mut count, mut samples) = (0, Vec::new());
    let (mut operations, mut streams) = (BTreeSet::new(), BTreeSet::new());
    for arch in generations()? {
        let mut names = BTreeSet::new();
        for op in table::all() {
            for node in DataType::ALL.iter().flat_map(|dtype| op.examples(*dtype)) {
                if op.check(&node).is_err() || op.placement(&node) != Placement::Array {
                    continue;
                }
                let node = normalise::normalise(op, &node, F16Policy::default())?.node;
                let artifact =
                    reference_artifact(op, &node, &arch).with_context(|| format!("{} on {}", op.name(), arch.name))?;
                if !names.insert(artifact.name().to_owned()) {
                    continue;
                }
                operations.insert(op.name());
                let name = format!("{}/{}", arch.name, artifact.name());
                let (pdi, instructions) = (artifact.pdi().to_vec(), artifact.instructions().to_vec());
                samples.push(Sample { name: name.clone(), file: File::Pdi(pdi.clone()) });
                if streams.insert(instructions.clone()) {
                    samples.push(Sample { name: name.clone(), file: File::Instructions(instructions.clone()) });
                    samples.push(Sample { name, file: File::Kernel { pdi, instructions } });
                }
            }
        }
        count += names.len();
    }
    Ok(Kernels { operations: operations.len(), count, samples })
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
                    direction,
                    channel,
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

/// Both designs of native kernels with a dispatch that uses all their channels. What their cores execute does not matter here.
fn designs(arch: &Arch) -> Result<Vec<Sample>> {
    let columns = u8::try_from(arch.array.columns)?;
    let program = Isa::for_arch(&arch.name).context("no instruction tables")?.assemble("nop")?;
    let elements = Elements::new(arch, columns, &program, &[])?;
    let flow = |argument, lane: u8| Flow {
        cut: (1024, 2),
        tiles: vec![(256, 600), (7, 1)],
        regions: vec![Region::linear(argument, 4 * (600 * 256 + 7) * u64::from(lane), 4 * (600 * 256 + 7))],
    };
    let column = |index| ElementsColumn {
        parameters: vec![601, 256],
        a: Some(flow(0, index)),
        b: Some(flow(1, index)),
        result: flow(2, index),
    };
    let dispatch = elements.dispatch(&(0..columns).map(column).collect::<Vec<_>>())?;
    let memory = CoreMemory {
        weights: (0, 0x2000, 2),
        operand: (0x4000, 0x2000, 2),
        result: (0x8000, 0x2000, 2),
        parameters: (0xC000, 256),
    };
    let product = Product::new(arch, columns, &program, &[], &memory, MemMemory::default())?;
    let mut stream = product.configured().dispatch();
    for column in product.columns() {
        // Blocks of 4 x 8 words of a tile of 8 x 16.
        let blocks = [(8, 1), (4, 16), (2, 8), (2, 64)].map(|(size, step)| Dimension::new(size, step));
        let linear = |ring| Part::linear(ring, 128);
        let [low, high] = [&column.parts[..2], &column.parts[2..]]
            .map(|half| half.iter().map(|part| linear(part.weights.0)).collect::<Vec<_>>());
        stream.run(column.arrival[0], &[&[linear(column.operand.0)], &low[..]].concat(), 3)?;
        stream.run(column.arrival[1], &high, 3)?;
        stream.run(column.operand.1, &[linear(column.operand.0)], 3)?;
        let results: Vec<Part> = column.parts.iter().map(|part| linear(part.result.0)).collect();
        stream.run(column.departure, &results, 3)?;
        for (part, core) in column.parts.iter().zip(&column.cores) {
            stream.run(part.weights.1, &[Part::strided(part.weights.0, 0, &blocks)], 3)?;
            stream.run(part.result.1, &[Part::strided(part.result.0, 0, &blocks)], 3)?;
            for (ring, channel) in [core.weights, core.operand, core.result] {
                stream.run(channel, &[linear(ring)], 3)?;
            }
            stream.start(core.tile, &[3, 128])?;
        }
        for (channel, tiles) in [(column.sources[0], 3), (column.sources[1], 2), (column.result, 4)] {
            // Rows of 128 words, each a task of its own.
            for row in 0..3 * tiles {
                stream.transfer(channel, &Region::linear(channel.number.into(), 1024 * row, 512))?;
            }
        }
    }
    let name = |design: &str| format!("{}/native-{design}", arch.name);
    let kernels = [
        ("lanes", elements.configured().pdi().to_vec(), dispatch),
        ("product", product.configured().pdi().to_vec(), stream.finish()?),
    ];
    let samples = kernels.into_iter().flat_map(|(design, pdi, instructions)| {
        let parts = [File::Pdi(pdi.clone()), File::Instructions(instructions.clone())];
        let files = parts.into_iter().chain([File::Kernel { pdi, instructions }]);
        files.map(|file| Sample { name: name(design), file }).collect::<Vec<_>>()
    });
    Ok(samples.collect())
}

struct Judges<'a> {
    bootgen: Bootgen<'a>,
    aiebu: Aiebu<'a>,
}

impl Judges<'_> {
    /// Shows everything to the programs, on all processors; returns what they confirm, and what they reject or read
    /// differently.
    fn all(&self, samples: &[Sample]) -> Result<(BTreeMap<&'static str, usize>, Vec<String>)> {
        let verdicts = process::parallel(samples, process::processors(), |sample| {
            let folder = tempfile::Builder::new().prefix("formats-").tempdir()?;
            Ok(match &sample.file {
                File::Pdi(bytes) => self.bootgen.judge(bytes, folder.path()),
                File::Instructions(bytes) => self.aiebu.judge(bytes, folder.path()),
                File::Kernel { pdi, instructions } => self.aiebu.pack(pdi, instructions, folder.path()),
            })
        })?;
        let (mut confirmed, mut problems) = (BTreeMap::new(), Vec::new());
        for (sample, verdict) in samples.iter().zip(verdicts) {
            match verdict {
                Ok(found) => found.into_iter().for_each(|(what, count)| *confirmed.entry(what).or_default() += count),
                Err(error) => problems.push(format!("{}: {error:#}", sample.name)),
            }
        }
        Ok((confirmed, problems))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::format::instructions::InstructionStream;
    use aie_hal::format::pdi::Pdi;

    #[test]
    fn every_operation_of_the_array_has_a_kernel_on_both_generations() {
        let Kernels { operations, samples, .. } = kernels().unwrap();
        let array: BTreeSet<&str> = table::rows()
            .into_iter()
            .filter(|row| row.places.iter().any(|place| place.placement == Placement::Array))
            .map(|row| row.name)
            .collect();
        assert_eq!(operations, array.len());
        for arch in ["aie2/", "aie2p/"] {
            let pdis = samples.iter().filter(|sample| matches!(sample.file, File::Pdi(_)));
            assert!(pdis.filter(|sample| sample.name.starts_with(arch)).count() >= array.len());
        }
    }

    #[test]
    fn the_designs_are_made_for_both_generations() {
        for arch in generations().unwrap() {
            assert_eq!(designs(&arch).unwrap().len(), 6);
        }
    }

    #[test]
    fn the_writers_samples_are_readable() {
        for arch in generations().unwrap() {
            for sample in writers(&arch).unwrap() {
                match &sample.file {
                    File::Pdi(bytes) => assert!(Pdi::parse(bytes).unwrap().cdo().commands().count() > 20),
                    File::Kernel { .. } => {}
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
