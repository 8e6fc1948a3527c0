//! Host memory through a shim and a mem tile, and back: words on their way through DMA, streams and locks, without a core.
//!
//! The tests of the clock use it, and the example that measures speed.

use aie_emulator::{Array, HostMemory, Rules};
use aie_hal::format::bd::{MemTileBd, ShimBd};
use aie_hal::format::dma_channel::{Direction, DmaChannel, DmaTask};
use aie_hal::format::instructions::ARRAY_OFFSET;
use aie_hal::format::lock::Lock;
use aie_hal::format::register::{RegisterWrite, TileKind};
use aie_hal::format::shim_mux;
use aie_hal::format::stream_switch::{Port, StreamSwitch};
use aie_isa::Isa;

/// Column and row.
pub type At = (u8, u8);

/// Two buffers of the host, far from each other.
pub struct Host(pub [Vec<u8>; 2]);

const APART: u64 = 1 << 32;

impl Host {
    /// So many words in the first buffer, and place for them in the second.
    pub fn with_words(words: usize) -> Self {
        Self([(0..4 * words).map(|byte| ((byte * 7) >> 3) as u8).collect(), vec![0; 4 * words]])
    }

    fn place(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let buffer = self.0.get_mut(usize::try_from(address / APART).ok()?)?;
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

/// Writes a register.
pub fn write(array: &mut Array, (column, row): At, write: RegisterWrite) {
    array.write(column, row, write.offset, write.value, write.mask).unwrap();
}

/// Writes words that follow each other.
pub fn words(array: &mut Array, (column, row): At, offset: u32, words: impl IntoIterator<Item = u32>) {
    for (offset, word) in (offset..).step_by(4).zip(words) {
        array.write(column, row, offset, word, u32::MAX).unwrap();
    }
}

/// An array that moves `length` words from the first buffer of the host to the second, through one or two buffers of so many
/// words in a mem tile. The last gives a token of the shim's S2MM 0.
pub fn relay(length: u32, buffer_words: u32, buffers: u8) -> Array {
    relay_under(Rules::default(), length, length, buffer_words, buffers)
}

/// The same under other rules, and with as many tasks as it takes to read all words with tasks of so many, at most four: each reads
/// the first words of the buffer.
pub fn relay_under(rules: Rules, length: u32, read: u32, buffer_words: u32, buffers: u8) -> Array {
    use Direction::{MemoryToStream, StreamToMemory};
    let mut array = Array::with_rules(Isa::aie2(), 1, 3, rules);
    let (shim, mem) = ((0, 0), (0, 1));
    write(&mut array, shim, shim_mux::connect(MemoryToStream, 0).unwrap());
    write(&mut array, shim, shim_mux::connect(StreamToMemory, 0).unwrap());
    let circuits = [
        (shim, TileKind::Shim, Port::South(3), Port::North(0)),
        (mem, TileKind::Mem, Port::South(0), Port::Dma(0)),
        (mem, TileKind::Mem, Port::Dma(0), Port::South(0)),
        (shim, TileKind::Shim, Port::North(0), Port::South(2)),
    ];
    for (at, kind, slave, master) in circuits {
        for register in StreamSwitch(kind).circuit(slave, master).unwrap() {
            write(&mut array, at, register);
        }
    }
    write(&mut array, mem, Lock::new(TileKind::Mem, 0).unwrap().set(buffers as i8).unwrap());
    for number in 0..4u8 {
        let (writes, buffer) = (number < 2, number % 2);
        let (acquire_lock, release_lock) = if writes { (64, 65) } else { (65, 64) };
        let bd = MemTileBd {
            length: buffer_words,
            address: 0x2_0000 + u32::from(buffer) * buffer_words,
            d0_step: 1,
            d1_step: 1,
            d2_step: 1,
            d3_step: 1,
            iteration_step: 1,
            iteration_wrap: 1,
            acquire: true,
            acquire_lock,
            acquire_value: -1,
            release_lock,
            release_value: 1,
            use_next: true,
            next: u32::from(if buffers == 2 { number ^ 1 } else { number }),
            valid: true,
            ..MemTileBd::default()
        };
        words(&mut array, mem, MemTileBd::register(number), bd.encode().unwrap());
    }
    for (number, length) in [(0u8, read), (1, length)] {
        let mut bd = ShimBd {
            length,
            d0_step: 1,
            d1_step: 1,
            d2_step: 1,
            iteration_step: 1,
            iteration_wrap: 1,
            valid: true,
            ..ShimBd::default()
        };
        bd.set_address(u64::from(number) * APART + ARRAY_OFFSET);
        words(&mut array, shim, ShimBd::register(number), bd.encode().unwrap());
    }
    let tasks = [
        (mem, TileKind::Mem, StreamToMemory, 0, false),
        (mem, TileKind::Mem, MemoryToStream, 2, false),
        (shim, TileKind::Shim, StreamToMemory, 1, true),
    ];
    let reads = (0..length / read).map(|_| (shim, TileKind::Shim, MemoryToStream, 0, false));
    for (at, kind, direction, descriptor, token) in tasks.into_iter().chain(reads) {
        let task = DmaTask { descriptor, repeat: 0, token };
        write(&mut array, at, DmaChannel::new(kind, direction, 0).unwrap().start(task).unwrap());
    }
    array
}
