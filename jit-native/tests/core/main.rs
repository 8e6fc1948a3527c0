//! Programs of the core builder on the emulator.

mod flow;
mod memory;
mod rig;
mod vectors;
