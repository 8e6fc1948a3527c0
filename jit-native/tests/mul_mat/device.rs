//! An emulated device that runs kernels.

use aie_emulator::{Harness, Timing};
use aie_hal::{Arch, ArchRegistry, KernelArtifact};

pub fn aie2() -> Arch {
    (*ArchRegistry::builtin().get("aie2").unwrap()).clone()
}

/// An array that a PDI was loaded into.
pub struct Device(Harness);

impl Device {
    pub fn new(kernel: &KernelArtifact) -> Self {
        Self(Harness::load(&aie2(), kernel.pdi()).unwrap_or_else(|error| panic!("{error}")))
    }

    /// Runs a kernel. Panics when it does not end, or a channel still waits afterwards.
    pub fn run(&mut self, kernel: &KernelArtifact, mut buffers: Vec<&mut [u8]>) -> Timing {
        self.0.run(kernel, &mut buffers).unwrap_or_else(|error| panic!("{error}")).timing
    }
}
