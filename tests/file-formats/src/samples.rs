//! The files that are shown: kernels of every operation, the designs of native kernels, and what else our writers can write.

use aie_hal::format::bd::ShimBd;
use aie_hal::format::cdo::{CdoBuilder, CdoCommand};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{Instruction, InstructionWriter, Transfer};
use aie_hal::format::pdi;
use aie_hal::{Arch, ArchRegistry};
use aie_isa::Isa;
use aie_jit_native::array::{CoreMemory, Dimension, Elements, ElementsColumn, Flow, MemMemory, Part, Product, Region};
use aie_ops::artifact::reference_artifact;
use aie_ops::{DataType, F16Policy, Placement, normalise, table};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is written in one file. Kernels often have the same instruction stream, which is shown once.
pub enum File {
    Pdi(Vec<u8>),
    Instructions(Vec<u8>),
    /// Both, for the program that packs them into one.
    Kernel {
        pdi: Vec<u8>,
        instructions: Vec<u8>,
    },
}

pub struct Sample {
    pub name: String,
    pub file: File,
}

/// What is shown: a kernel for each form of each operation, and its files.
pub struct Kernels {
    /// Operations of the table that run on the array.
    pub operations: usize,
    /// Over both generations.
    pub count: usize,
    pub samples: Vec<Sample>,
}

pub fn generations() -> Result<Vec<Arc<Arch>>> {
    let registry = ArchRegistry::builtin();
    registry.names().map(|name| registry.get(name).with_context(|| format!("no generation {name}"))).collect()
}

pub fn kernels() -> Result<Kernels> {
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
pub fn writers(arch: &Arch) -> Result<Vec<Sample>> {
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
    let mut stream = InstructionWriter::new(arch.stream_header(arch.array.columns));
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
pub fn designs(arch: &Arch) -> Result<Vec<Sample>> {
    let columns = u8::try_from(arch.array.columns)?;
    let program =
        arch.instruction_set.as_deref().and_then(Isa::for_arch).context("no instruction tables")?.assemble("nop")?;
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
        ..ElementsColumn::default()
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
