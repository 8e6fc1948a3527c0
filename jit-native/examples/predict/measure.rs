//! Cycles of a kernel on the emulated array.

use crate::model::Kernel;
use crate::zeros::run;
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
        return Ok(Measured { cycles: run(&(kernel.node)(kernel.size))?.cycles, scaled: false });
    }
    let share = (kernel.size as u64 * PART_BYTES / kernel.bytes) as usize;
    let part = (share / UNIT).max(1) * UNIT;
    let cycles = run(&(kernel.node)(part))?.cycles as f64 * kernel.size as f64 / part as f64;
    Ok(Measured { cycles: cycles as u64, scaled: true })
}
