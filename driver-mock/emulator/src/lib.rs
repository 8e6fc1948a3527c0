//! An emulated AI Engine array: cores that execute machine code, DMA, locks and streams.
//!
//! It is what a simulated NPU runs compiled kernels on, and what a program can be tested on that is to run on silicon one day. So
//! it does what the instruction set says, to the cycle where that can be seen: a result that is read before its latency has
//! passed is the old one. And it guesses nothing: what it has no model of stops it, with the place and the bytes.
//!
//! - [`core`] executes bundles of one core: decoded once, with exposed latencies, delay slots and hardware loops.
//! - [`array`](mod@array) is everything around the cores, driven register by register, by PDIs and by instruction streams.
//! - [`design`] reads what a PDI and a stream configure, without running them.
//! - [`markup`] writes drawings, and pages of others.
//! - [`Harness`] runs a kernel with buffers as its arguments.
//!
//! ```
//! use aie_emulator::{Array, NoHost};
//! use aie_isa::Isa;
//!
//! // The core of tile (0, 2) stores 42 in its own memory.
//! let isa = Isa::aie2();
//! let mut code = isa.assemble("movxm p0, #0x70400\nmovx r1, #42\nst r1, [p0], #4\nnop\nnop\ndone")?;
//! code.resize(code.len().next_multiple_of(4), 0);
//! let mut array = Array::new(isa, 1, 6);
//! for (index, word) in code.as_chunks().0.iter().enumerate() {
//!     array.write(0, 2, 0x2_0000 + 4 * index as u32, u32::from_le_bytes(*word), u32::MAX)?;
//! }
//! array.write(0, 2, 0x3_2000, 1, u32::MAX)?;
//! array.settle(&mut NoHost)?;
//! assert_eq!(array.read(0, 2, 0x400)?, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod array;
pub mod core;
pub mod design;
mod harness;
pub mod markup;
mod reloads;

pub use array::{
    Array, ArrayError, HostMemory, Interval, LeftTokens, LoadError, LockValues, NoHost, Occupation, Outcome, Resource,
    Rules, Timing, Use,
};
pub use core::{Jumps, Loops, Undefined};
pub use harness::{Harness, HarnessError, Run, design_of};
pub use reloads::Reloads;
