//! Programs of the core builder on the emulator.

mod flow;
mod memory;
mod pipelines;
mod random;
mod rig;
mod vectors;
