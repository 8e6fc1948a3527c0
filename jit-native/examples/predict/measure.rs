//! Cycles of a kernel on the emulated array.

use crate::device::{Device, aie2};
use crate::model::Kernel;
use aie_jit_native::kernels;
use aie_ops::Node;
use std::error::Error;

/// Kernels that read up to so many bytes are emulated whole; parts of larger ones read up to so many.
const WHOLE_BYTES: u64 = 40 << 20;
const PART_BYTES: u64 = 16 << 20;
/// Sizes of emulated parts are multiples of this: rows of all cores, keys of several tiles.
const UNIT: usize = 256;

/// What a kernel takes.
pub struct Measured {
    pub cycles: u64,
    /// Whether that follows from a smaller one.
    pub scaled: bool,
}

/// The cycles of a kernel. Those of a large one are in proportion to those of a part, which also has what a dispatch takes
/// once: they are a little too many.
///
/// # Errors
/// When there is no such kernel.
pub fn measure(kernel: &Kernel) -> Result<Measured, Box<dyn Error>> {
    if kernel.bytes <= WHOLE_BYTES {
        return Ok(Measured { cycles: run(&(kernel.node)(kernel.size))?, scaled: false });
    }
    let share = (kernel.size as u64 * PART_BYTES / kernel.bytes) as usize;
    let part = (share / UNIT).max(1) * UNIT;
    let cycles = run(&(kernel.node)(part))? as f64 * kernel.size as f64 / part as f64;
    Ok(Measured { cycles: cycles as u64, scaled: true })
}

/// Runs a node on zeros: how long it takes does not depend on values.
fn run(node: &Node) -> Result<u64, Box<dyn Error>> {
    let kernel = kernels::build(node, &aie2())?;
    let mut buffers: Vec<Vec<u8>> = node.arguments().map(|tensor| vec![0; tensor.span_bytes()]).collect();
    let timing = Device::new(&kernel).run(&kernel, buffers.iter_mut().map(Vec::as_mut_slice).collect());
    Ok(timing.cycles)
}
