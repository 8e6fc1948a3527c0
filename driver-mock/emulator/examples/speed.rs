//! Measures how fast the emulator is, with programs of its own: `speed [THREADS]`.
//!
//! For each program: bundles (and words of streams) that a second of the host executes, best of five runs. Run it with
//! `--release`.

use aie_emulator::{Array, HostMemory};
use aie_hal::format::bd::{MemTileBd, ShimBd};
use aie_hal::format::core_control;
use aie_hal::format::dma_channel::{Direction, DmaChannel, DmaTask};
use aie_hal::format::lock::Lock;
use aie_hal::format::register::{RegisterWrite, TileKind};
use aie_hal::format::shim_mux;
use aie_hal::format::stream_switch::{Port, StreamSwitch};
use aie_isa::Isa;
use std::time::Instant;

/// Words that the relay moves.
const RELAYED: usize = 1 << 20;
/// Words of a buffer of the relay.
const BUFFER: u32 = 1024;

/// Two numbers added, exclusive or'ed, stored and loaded: ten bundles an iteration.
const SCALAR: &str = "
        movxm r0, #400000
        movxm p0, #0x70000
        mova r1, #0
        mova r2, #0
loop:   add r0, r0, #-1
        add r1, r1, r0; st r2, [p0, #0]
        lda r3, [p0, #4]
        jnz r0, #loop
        xor r2, r1, r0
        add r4, r1, r2
        lshl r5, r4, r1
        sub r6, r4, r5
        st r6, [p0, #4]
        done
";

/// Two loads and a multiply-accumulate of 4x4x4 16-bit numbers in each bundle of a hardware loop, as compiled GEMMs have.
const MULTIPLY: &str = "
        movxm p0, #0x70000
        movxm p1, #0x71000
        movxm r1, #0x33a
        movxm ls, #loop
        movxm le, #last
        movxm lc, #250000
        nop
        nop
        nop
        nop
        nop
        nop
        .align 16
loop:   vlda wl1, [p0, #0]; vldb wl3, [p1, #0]; vmac cm0, cm0, x1, x3, r1
        vlda wl5, [p0, #32]; vldb wl7, [p1, #32]; vmac cm1, cm1, x5, x7, r1
        vlda wl1, [p0, #64]; vldb wl3, [p1, #64]; vmac cm2, cm2, x1, x3, r1
last:   vlda wl5, [p0, #96]; vldb wl7, [p1, #96]; vmac cm3, cm3, x5, x7, r1
        done
";

/// Two buffers of the host, far from each other.
struct Host([Vec<u8>; 2]);

const APART: u64 = 1 << 32;

impl Host {
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

fn write(array: &mut Array, (column, row): (u8, u8), write: RegisterWrite) {
    array.write(column, row, write.offset, write.value, write.mask).expect("a register of the array");
}

fn words(array: &mut Array, (column, row): (u8, u8), offset: u32, words: impl IntoIterator<Item = u32>) {
    for (offset, word) in (offset..).step_by(4).zip(words) {
        array.write(column, row, offset, word, u32::MAX).expect("a register of the array");
    }
}

/// A program on the first cores of so many columns.
fn cores(text: &str, columns: u8) -> Array {
    let isa = Isa::aie2();
    let mut code = isa.assemble(text).expect("the program is one");
    code.resize(code.len().next_multiple_of(4), 0);
    let mut array = Array::new(isa, columns, 3);
    for column in 0..columns {
        let (chunks, _) = code.as_chunks();
        words(&mut array, (column, 2), 0x2_0000, chunks.iter().map(|word| u32::from_le_bytes(*word)));
        write(&mut array, (column, 2), core_control::enable(true));
    }
    array
}

/// Host memory through a shim and a mem tile with two buffers, and back.
fn relay() -> Array {
    use Direction::{MemoryToStream, StreamToMemory};
    let mut array = Array::new(Isa::aie2(), 1, 3);
    let (shim, mem) = ((0, 0), (0, 1));
    write(&mut array, shim, shim_mux::connect(MemoryToStream, 0).expect("a channel"));
    write(&mut array, shim, shim_mux::connect(StreamToMemory, 0).expect("a channel"));
    let circuits = [
        (shim, TileKind::Shim, Port::South(3), Port::North(0)),
        (mem, TileKind::Mem, Port::South(0), Port::Dma(0)),
        (mem, TileKind::Mem, Port::Dma(0), Port::South(0)),
        (shim, TileKind::Shim, Port::North(0), Port::South(2)),
    ];
    for (at, kind, slave, master) in circuits {
        for register in StreamSwitch(kind).circuit(slave, master).expect("a circuit") {
            write(&mut array, at, register);
        }
    }
    let lock = |id, value| Lock::new(TileKind::Mem, id).expect("a lock").set(value).expect("a value");
    write(&mut array, mem, lock(0, 2));
    write(&mut array, mem, lock(1, 0));
    // Locks 64 to 127 are the mem tile's own.
    for (number, other, acquired, released) in [(0u8, 1, 64, 65), (1, 0, 64, 65), (2, 3, 65, 64), (3, 2, 65, 64)] {
        let bd = MemTileBd {
            length: BUFFER,
            address: (0x8_0000 / 4) + u32::from(number % 2) * BUFFER,
            d0_step: 1,
            d1_step: 1,
            d2_step: 1,
            d3_step: 1,
            iteration_step: 1,
            iteration_wrap: 1,
            acquire: true,
            acquire_lock: acquired,
            acquire_value: -1,
            release_lock: released,
            release_value: 1,
            use_next: true,
            next: other,
            valid: true,
            ..MemTileBd::default()
        };
        words(&mut array, mem, MemTileBd::register(number), bd.encode().expect("a descriptor"));
    }
    for (number, buffer) in [(0u8, 0u64), (1, 1)] {
        let mut bd = ShimBd {
            length: RELAYED as u32,
            d0_step: 1,
            d1_step: 1,
            d2_step: 1,
            iteration_step: 1,
            iteration_wrap: 1,
            valid: true,
            ..ShimBd::default()
        };
        bd.set_address(buffer * APART);
        words(&mut array, shim, ShimBd::register(number), bd.encode().expect("a descriptor"));
    }
    let tasks = [
        (mem, TileKind::Mem, StreamToMemory, 0),
        (mem, TileKind::Mem, MemoryToStream, 2),
        (shim, TileKind::Shim, StreamToMemory, 1),
        (shim, TileKind::Shim, MemoryToStream, 0),
    ];
    for (at, kind, direction, descriptor) in tasks {
        let task = DmaTask { descriptor, repeat: 0, token: false };
        let channel = DmaChannel::new(kind, direction, 0).expect("a channel");
        write(&mut array, at, channel.start(task).expect("a task"));
    }
    array
}

/// Seconds of the fastest of five runs, and the array after it.
fn best(build: impl Fn() -> Array, threads: Option<usize>, host: &mut Host) -> (f64, Array) {
    let run = |host: &mut Host| {
        let mut array = build();
        if let Some(threads) = threads {
            array.set_threads(threads);
        }
        let start = Instant::now();
        array.settle(host).expect("the program has a model");
        (start.elapsed().as_secs_f64(), array)
    };
    let mut best = run(host);
    for _ in 1..5 {
        let next = run(host);
        if next.0 < best.0 {
            best = next;
        }
    }
    best
}

fn main() {
    let threads = std::env::args().nth(1).map(|threads| threads.parse().expect("a number of threads"));
    let source: Vec<u8> = (0..4 * RELAYED).map(|byte| ((byte * 7) >> 3) as u8).collect();
    let mut host = Host([source, vec![0; 4 * RELAYED]]);
    for (name, text) in [("scalar loop", SCALAR), ("multiply-accumulate loop", MULTIPLY)] {
        for columns in [1, 4] {
            let (seconds, array) = best(|| cores(text, columns), threads, &mut host);
            let bundles = array.bundles();
            let rate = bundles as f64 / seconds / 1e6;
            println!("{name}, {columns} cores: {bundles} bundles, {rate:.2} million a second");
        }
    }
    let (seconds, _) = best(relay, threads, &mut host);
    assert!(host.0[0] == host.0[1], "the relay has changed what it relays");
    println!("relay: {RELAYED} words, {:.2} million a second", RELAYED as f64 / seconds / 1e6);
}
