//! Kernels for AMD's XRT: `cargo xtask xrt` puts containers around them, and `judge.py` and `program.py` run those.
//!
//! Reference kernels of a few operations, and one of machine code. Each is a PDI and an instruction stream in a folder of its own;
//! what they are is printed as JSON.

use aie_conformance::compiled;
use aie_hal::{Arch, ArchRegistry, KernelArtifact};
use aie_ops::artifact::reference_artifact;
use aie_ops::{DataType, F16Policy, Node, OpParams, Tensor, normalise, table};
use anyhow::{Context, Result};
use clap::Parser;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Write kernels of a generation into a folder.
#[derive(Debug, Parser)]
struct Args {
    /// The generation, by its name in the arch files
    generation: String,
    /// The folder, which is made
    folder: PathBuf,
}

/// What is written.
#[derive(Debug, Serialize)]
struct Kernels {
    /// A kernel for each of a few operations.
    operations: Vec<Operation>,
    code: Code,
}

/// A reference kernel.
#[derive(Debug, Serialize)]
struct Operation {
    name: &'static str,
    /// Of both sources and of the result, columns first.
    shapes: [[usize; 2]; 3],
    kernel: Kernel,
}

/// A kernel whose core adds a number to every 32-bit word of its first argument.
#[derive(Debug, Serialize)]
struct Code {
    addend: u32,
    words: usize,
    kernel: Kernel,
}

#[derive(Debug, Serialize)]
struct Kernel {
    pdi: PathBuf,
    instructions: PathBuf,
    /// Arguments that are buffers.
    buffers: usize,
    /// Columns of the array that it takes.
    columns: usize,
}

/// Both sources and the result, columns first.
const OPERATIONS: [(&str, [[usize; 2]; 3]); 3] = [
    ("ADD", [[256, 4], [256, 4], [256, 4]]),
    ("MUL_MAT", [[64, 32], [64, 16], [32, 16]]),
    ("MUL", [[512, 2], [512, 2], [512, 2]]),
];
/// What the machine code adds, and to how many blocks of words.
const ADDEND: u8 = 5;
const BLOCKS: usize = 64;

fn main() -> Result<()> {
    let Args { generation, folder } = Args::parse();
    let arch = ArchRegistry::builtin().get(&generation).with_context(|| format!("no generation {generation}"))?;
    let operations = OPERATIONS.iter().map(|(name, shapes)| {
        let artifact = reference(name, shapes, &arch)?;
        Ok(Operation { name, shapes: *shapes, kernel: write(&folder.join(name), &artifact, arch.array.columns)? })
    });
    let operations = operations.collect::<Result<_>>()?;
    let code = write(&folder.join("code"), &compiled::add(&arch, ADDEND, BLOCKS), 1)?;
    let code = Code { addend: ADDEND.into(), words: BLOCKS * compiled::BLOCK_WORDS, kernel: code };
    println!("{}", serde_json::to_string(&Kernels { operations, code })?);
    Ok(())
}

fn reference(name: &str, [first, second, output]: &[[usize; 2]; 3], arch: &Arch) -> Result<KernelArtifact> {
    let op = table::lookup(name).with_context(|| format!("no operation {name}"))?;
    let tensor = |shape: &[usize; 2]| Tensor::contiguous(DataType::F32, [shape[0], shape[1], 1, 1]);
    let node = Node::new(name, OpParams::default(), tensor(output), vec![Some(tensor(first)), Some(tensor(second))]);
    op.check(&node)?;
    let node = normalise::normalise(op, &node, F16Policy::default())?.node;
    Ok(reference_artifact(op, &node, arch)?)
}

fn write(folder: &Path, artifact: &KernelArtifact, columns: usize) -> Result<Kernel> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let [pdi, instructions] = ["design.pdi", "insts.bin"].map(|name| folder.join(name));
    fs::write(&pdi, artifact.pdi())?;
    fs::write(&instructions, artifact.instructions())?;
    Ok(Kernel { pdi, instructions, buffers: artifact.argument_count(), columns })
}
