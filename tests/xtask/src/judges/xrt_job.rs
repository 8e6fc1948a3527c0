//! What AMD's XRT is asked to run by our program `tests/xrt/judge.py`: kernels in containers, and what to do with them.

use super::xclbin;
use crate::testbed::Testbed;
use aie_hal::ArchRegistry;
use aie_ops::artifact::reference_artifact;
use aie_ops::{DataType, F16Policy, Node, OpParams, Tensor, normalise, table};
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The program that uses XRT's Python module, from the root of the checkout.
pub const JUDGE: &str = "tests/xrt/judge.py";
/// Dispatches of a list.
pub const LIST: u32 = 24;
/// What XRT is asked to do with each kernel, and how often.
pub const PARTS: [(&str, u32); 4] = [("single", 1), ("repeated", 200), ("runlist", LIST), ("contexts", 50)];

/// What the program prints.
#[derive(Deserialize)]
pub struct Printed {
    /// Which part it was.
    pub part: String,
    /// Dispatches with checked results.
    pub dispatches: u64,
}

/// The kernels of a generation: their containers and instructions, made in `folder`, as the program wants them described.
pub fn kernels(testbed: &Testbed, folder: &Path, generation: &str) -> Result<Vec<Value>> {
    let arch = ArchRegistry::builtin().get(generation).with_context(|| format!("no generation {generation}"))?;
    // Both sources and the output, columns first.
    let shapes = [
        ("ADD", [[256, 4], [256, 4], [256, 4]]),
        ("MUL_MAT", [[64, 32], [64, 16], [32, 16]]),
        ("MUL", [[512, 2], [512, 2], [512, 2]]),
    ];
    let mut kernels = Vec::new();
    for (name, [first, second, output]) in shapes {
        let op = table::lookup(name).with_context(|| format!("no operation {name}"))?;
        let tensor = |shape: [usize; 2]| Tensor::contiguous(DataType::F32, [shape[0], shape[1], 1, 1]);
        let sources = vec![Some(tensor(first)), Some(tensor(second))];
        let node = Node::new(name, OpParams::default(), tensor(output), sources);
        op.check(&node)?;
        let node = normalise::normalise(op, &node, F16Policy::default())?.node;
        let artifact = reference_artifact(op, &node, &arch)?;
        let folder = folder.join(format!("{generation}-{name}"));
        let container = xclbin::make(testbed, &folder, artifact.pdi(), artifact.argument_count(), arch.array.columns)?;
        let instructions = folder.join("insts.bin");
        fs::write(&instructions, artifact.instructions())?;
        kernels.push(json!({
            "operation": name, "xclbin": container, "instructions": instructions, "shapes": [first, second, output],
        }));
    }
    Ok(kernels)
}

/// One part for `kernels`, as the program reads it.
pub fn job(kernels: &[Value], part: &str, count: u32) -> Value {
    json!({"kernels": kernels, "part": part, "count": count})
}
