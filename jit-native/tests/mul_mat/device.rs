//! An emulated device that runs kernels.

use aie_emulator::{Array, HostMemory, Outcome, Rules, Timing};
use aie_hal::format::instructions::InstructionStream;
use aie_hal::format::pdi::Pdi;
use aie_hal::{Arch, ArchRegistry, KernelArtifact};
use aie_isa::Isa;

pub fn aie2() -> Arch {
    (*ArchRegistry::builtin().get("aie2").unwrap()).clone()
}

/// Buffers of the host, far from each other.
struct Host<'a>(Vec<&'a mut [u8]>);

const APART: u64 = 1 << 32;

impl Host<'_> {
    fn place(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let buffer = self.0.get_mut(usize::try_from(address / APART).ok()?.checked_sub(1)?)?;
        let at = usize::try_from(address % APART).ok()?;
        buffer.get_mut(at..at + bytes)
    }
}

impl HostMemory for Host<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.place(address, bytes.len()).map(|place| bytes.copy_from_slice(place)).is_some()
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        self.place(address, bytes.len()).map(|place| place.copy_from_slice(bytes)).is_some()
    }
}

/// An array that a PDI was loaded into.
pub struct Device {
    pub array: Array,
}

impl Device {
    pub fn new(kernel: &KernelArtifact) -> Self {
        let arch = aie2();
        let mut rules = Rules::default();
        rules.delays = arch.cost.delays;
        let mut array = Array::with_rules(Isa::aie2(), arch.array.columns as u8, arch.array.rows as u8, rules);
        array.load(&Pdi::parse(kernel.pdi()).unwrap(), &mut Host(Vec::new())).unwrap();
        array.set_cycle_limit(200_000_000);
        Self { array }
    }

    /// Runs a kernel. Panics when it does not end, or a channel still waits afterwards.
    pub fn run(&mut self, kernel: &KernelArtifact, buffers: Vec<&mut [u8]>) -> Timing {
        let mut host = Host(buffers);
        let arguments: Vec<u64> = (1..=host.0.len() as u64).map(|index| index * APART).collect();
        let stream = InstructionStream::for_firmware(kernel.instructions()).unwrap();
        let stream = InstructionStream::parse(&stream).unwrap();
        if let Outcome::Deadlock { operation, report } = self.array.execute(&stream, &arguments, &mut host).unwrap() {
            panic!("operation {operation} waits forever: {report}");
        }
        self.array.settle(&mut host).unwrap();
        let report = self.array.report();
        let mut others = report.waiters.iter().filter(|w| !matches!(w.who, aie_emulator::array::Who::Core { .. }));
        assert!(others.next().is_none(), "{report}");
        self.array.timing().clone()
    }
}
