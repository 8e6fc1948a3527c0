//! An emulated device for the tests of array programs.

use super::Configured;
use aie_emulator::{Array, HostMemory, Outcome};
use aie_hal::format::instructions::InstructionStream;
use aie_hal::format::pdi::Pdi;
use aie_hal::{Arch, ArchRegistry};
use aie_isa::Isa;

pub fn aie2() -> Arch {
    (*ArchRegistry::builtin().get("aie2").unwrap()).clone()
}

/// Buffers of the host, far from each other.
struct Host(Vec<Vec<u8>>);

const APART: u64 = 1 << 32;

impl Host {
    fn place(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let buffer = self.0.get_mut(usize::try_from(address / APART).ok()?.checked_sub(1)?)?;
        let at = usize::try_from(address % APART).ok()?;
        buffer.get_mut(at..at + bytes)
    }
}

impl HostMemory for Host {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.place(address, bytes.len()).map(|place| bytes.copy_from_slice(place)).is_some()
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        self.place(address, bytes.len()).map(|place| place.copy_from_slice(bytes)).is_some()
    }
}

/// An array with a configuration.
pub struct Device {
    pub array: Array,
}

impl Device {
    /// Loads a PDI into a new array.
    pub fn new(pdi: &[u8]) -> Self {
        let arch = aie2();
        let mut array = Array::new(Isa::aie2(), arch.array.columns as u8, arch.array.rows as u8);
        array.load(&Pdi::parse(pdi).unwrap(), &mut Host(Vec::new())).unwrap();
        array.set_cycle_limit(20_000_000);
        Self { array }
    }

    /// The device of a finished program.
    pub fn of(configured: &Configured) -> Self {
        Self::new(configured.pdi())
    }

    /// Runs a dispatch over buffers of words. An error when it does not end, or something is still under way at its end.
    pub fn dispatch(&mut self, stream: &[u8], buffers: &mut [Vec<u32>]) -> Result<(), String> {
        let mut host = Host(buffers.iter().map(|words| bytes_of(words)).collect());
        let arguments: Vec<u64> = (1..=buffers.len() as u64).map(|index| index * APART).collect();
        let stream = InstructionStream::parse(stream).map_err(|error| error.to_string())?;
        let outcome = self.array.execute(&stream, &arguments, &mut host).map_err(|error| error.to_string())?;
        if let Outcome::Deadlock { operation, report } = outcome {
            return Err(format!("operation {operation} waits forever: {report}"));
        }
        self.array.settle(&mut host).map_err(|error| error.to_string())?;
        // Cores wait for their go lock, and nothing else waits.
        let report = self.array.report();
        let channels: Vec<String> = report
            .waiters
            .iter()
            .filter(|waiter| !matches!(waiter.who, aie_emulator::array::Who::Core { .. }))
            .map(|waiter| format!("{waiter:?}"))
            .collect();
        for (words, bytes) in buffers.iter_mut().zip(&host.0) {
            *words = words_of(bytes);
        }
        if channels.is_empty() { Ok(()) } else { Err(format!("still waiting: {}", channels.join(", "))) }
    }
}

pub fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// A program's bytes from its text.
pub fn assemble(text: &str) -> Vec<u8> {
    Isa::aie2().assemble(text).unwrap_or_else(|error| panic!("{error}"))
}
