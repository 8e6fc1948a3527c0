//! The conformance suite: what every driver has to do, as cases.
//!
//! Choices that shape this crate:
//!
//! - **A case is a function.** It takes a [`Context`], prints what it expected and what it found, and panics when they differ.
//!   Cases know the traits of `aie-hal` and nothing of any driver.
//! - **A mode is a [`Backend`].** A driver, a device URI with its parameters, and tags that say what the device can do.
//!   [`run`] makes every case in every mode a test of its own.
//! - **As users use it.** The driver is wrapped in the validation layer of `aie-hal`, always.
//! - **Exclusions are data.** An [`Exclusion`] names a case and gives the reason in a sentence. The case runs anyway, and
//!   fails when it passes: the list can only shrink.
//! - **Nothing is skipped in silence.** A case that needs what a mode does not have is reported as ignored with the reason, and
//!   the mode's tags are themselves checked against the device.
//! - **A hang is a failure.** Each case has a time limit.
//!
//! The kernels of the dispatch cases are in [`kernels`]: artifacts made with the writers of `aie-hal`, and an executor for
//! simulated devices. No operation library is needed. Those in [`compiled`] are machine code:
//!
//! ```
//! use aie_conformance::compiled::{self, BLOCK_WORDS};
//! use aie_hal::ArchRegistry;
//!
//! let arch = ArchRegistry::builtin().get("aie2").expect("a built-in generation");
//! let kernel = compiled::add(&arch, 3, 8);
//! let extents = kernel.argument_extents().expect("linear transfers");
//! let read = extents[0].read.as_ref().expect("the source");
//! assert_eq!(read.range, 0..8 * 4 * BLOCK_WORDS as u64);
//! ```
#![forbid(unsafe_code)]

mod backend;
mod cases;
pub mod compiled;
mod expect;
pub mod kernels;
mod registry;
pub mod rig;
mod run;

pub use backend::{Backend, Exclusion, Tag};
pub use registry::{CASES, Case};
pub use rig::{Context, Rig};
pub use run::{evaluate, run};
