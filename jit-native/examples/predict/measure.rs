//! What a kernel takes on the emulated array.

use crate::model::Kernel;
use crate::zeros::run;
use aie_hal::Arch;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::extent::Traffic;
use aie_jit_native::NativeCompiler;
use std::error::Error;

/// Kernels that read up to so many bytes are emulated whole; parts of larger ones read up to so many.
const WHOLE_BYTES: u64 = 40 << 20;
const PART_BYTES: u64 = 16 << 20;
/// Sizes of emulated parts are multiples of this: rows of all cores, keys of several tiles.
const UNIT: usize = 256;
/// Columns of a product that are emulated; more take in proportion, since all are gone through in panels of fewer.
const COLUMNS: usize = 64;

/// What one dispatch of a kernel takes.
#[derive(Debug)]
pub struct Measured {
    /// Cycles of the array.
    pub cycles: u64,
    /// Bytes that its shims read.
    pub bytes: u64,
    /// Pieces without a gap that these are.
    pub pieces: u64,
    /// Operations of its stream, a block write once for every eight words.
    pub operations: u64,
    /// Whether cycles and bytes follow from a smaller one.
    pub scaled: bool,
}

/// What a kernel takes with so many columns. Cycles and bytes of a large one are in proportion to those of a part, which also has
/// what a dispatch takes once: they are a little too many.
///
/// # Errors
/// When there is no such kernel.
pub fn measure(
    kernel: &Kernel,
    columns: usize,
    compiler: &NativeCompiler,
    arch: &Arch,
) -> Result<Measured, Box<dyn Error>> {
    let whole = compiler.build(&(kernel.node)(kernel.size, columns), arch)?;
    let size = match kernel.bytes <= WHOLE_BYTES {
        true => kernel.size,
        false => ((kernel.size as u64 * PART_BYTES / kernel.bytes) as usize / UNIT).max(1) * UNIT,
    };
    let part = columns.min(COLUMNS);
    let timing = run(&(kernel.node)(size, part), compiler)?;
    // Kernels without a size are emulated whole.
    let factor = kernel.size.max(1) as f64 / size.max(1) as f64 * columns as f64 / part as f64;
    let scale = |count: u64| (count as f64 * factor) as u64;
    let Traffic { bytes, pieces } = timing.host_traffic(Direction::MemoryToStream);
    Ok(Measured {
        cycles: scale(timing.cycles),
        bytes: scale(bytes),
        pieces: scale(pieces),
        operations: whole.charged_operations(),
        scaled: factor != 1.0,
    })
}
