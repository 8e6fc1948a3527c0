//! Runs kernels on the emulated array.

use crate::device::{Device, aie2};
use aie_emulator::Timing;
use aie_jit_native::NativeCompiler;
use aie_ops::Node;
use std::error::Error;

/// Runs a node on zeros: how long it takes does not depend on values.
///
/// # Errors
/// When there is no such kernel.
pub fn run(node: &Node, compiler: &NativeCompiler) -> Result<Timing, Box<dyn Error>> {
    let kernel = compiler.build(node, &aie2())?;
    let mut buffers: Vec<Vec<u8>> = node.arguments().map(|tensor| vec![0; tensor.span_bytes()]).collect();
    Ok(Device::new(&kernel).run(&kernel, buffers.iter_mut().map(Vec::as_mut_slice).collect()))
}
