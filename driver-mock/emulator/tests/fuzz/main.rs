//! Random input for everything that reads bytes: bundles, programs, configurations, instruction streams, descriptors.
//!
//! No input may panic, overflow, or run without end; what comes out is not looked at. The generator is seeded by the number of
//! the batch, so that every run is the same; an execution that panics names its batch. The ordinary tests run a small part.
//! `AIE_FUZZ_EXECUTIONS=10000000 cargo test --release -p aie-emulator --test fuzz -- --nocapture` runs more of the same
//! sequence and prints what came out; with `CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true` in front, overflow panics there too.

mod array;
mod bundles;
mod random;

use aie_emulator::core::{Core, Fault, Layout, Stop};
use aie_emulator::{Array, HostMemory};
use aie_isa::Isa;
use bundles::{Around, bundles, executable};
use random::Random;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Executions of the ordinary tests, and of a batch, after which the array starts anew.
const EXECUTIONS: u64 = 4_000;
const BATCH: u64 = 500;
/// Cycles of an execution at most.
const CYCLES: u64 = 2_000;
const COLUMNS: u8 = 2;
const ROWS: u8 = 4;

/// One buffer of host memory.
struct Host(Vec<u8>);

const HOST_AT: u64 = 0x1_0000_0000;

impl Host {
    fn place(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(address.checked_sub(HOST_AT)?).ok()?;
        self.0.get_mut(at..at.checked_add(bytes)?)
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

/// Everything that executions use; one for each batch.
struct Batch<'a> {
    isa: &'static Isa,
    /// Bundles of all rows, and those that a core executes.
    bundles: [&'a [Vec<u8>]; 2],
    random: Random,
    core: Core,
    array: Array,
    host: Host,
    number: u64,
    /// A program that points into the tile's own memory.
    pointers: &'a [u8],
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in batch {} on {}", self.number, self.isa.name());
        }
    }
}

type Counts = BTreeMap<String, u64>;

impl<'a> Batch<'a> {
    fn new(
        isa: &'static Isa,
        bundles: [&'a [Vec<u8>]; 2],
        layout: &Arc<Layout>,
        pointers: &'a [u8],
        number: u64,
    ) -> Self {
        let random = Random(number.wrapping_mul(0x1234_5678_9abc_def1));
        let core = Core::new(isa, Arc::clone(layout), 16 << 10, 0);
        let mut array = Array::new(isa, COLUMNS, ROWS);
        array.set_cycle_limit(CYCLES);
        Self { isa, bundles, random, core, array, host: Host(vec![0x5a; 1 << 16]), number, pointers }
    }

    fn execution(&mut self, index: u64) -> String {
        match index % 8 {
            0 | 1 => self.decode(),
            2..5 => self.core_program(),
            5 => self.configuration(),
            6 => self.stream(),
            _ => self.descriptors(),
        }
    }

    /// Random bytes, and a bundle with a bit changed.
    fn decode(&mut self) -> String {
        let mut bytes = self.random.bytes(16);
        if self.random.one_in(2) {
            bytes = self.bundles[0][self.random.below(self.bundles[0].len())].clone();
            let bit = self.random.below(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        match self.isa.decode(&bytes) {
            Ok(bundle) => {
                let text = self.isa.text(&bundle);
                let again = self.isa.encode(&bundle).expect("what was decoded can be encoded");
                let again = self.isa.decode(&again).expect("what was encoded can be decoded");
                assert_eq!(text, self.isa.text(&again), "{bytes:02x?}");
                "decode: a bundle".into()
            }
            Err(_) => "decode: rejected".into(),
        }
    }

    fn code(&mut self) -> Vec<u8> {
        let mut code = Vec::new();
        while code.len() < 400 {
            let from = self.bundles[usize::from(!self.random.one_in(60))];
            match self.random.below(80) {
                0 => code.extend(self.random.bytes(2)),
                _ => code.extend(&from[self.random.below(from.len())]),
            }
        }
        code
    }

    /// Up to 60 bundles of a core alone, with random registers.
    fn core_program(&mut self) -> String {
        self.core.reset();
        let code = self.code();
        self.core.write_program(0, &code);
        for _ in 0..24 {
            let register = self.random.below(self.isa.registers().len());
            let register = self.isa.register_named(self.isa.registers()[register].name);
            if let Some(register) = register {
                let bytes = self.isa.register(register).bits.div_ceil(8) as usize;
                let bytes = self.random.bytes(bytes);
                self.core.set_register(register, &bytes);
            }
        }
        for name in ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "sp"] {
            if let Some(register) = self.isa.register_named(name) {
                let address = 0x7_0000 + self.random.below(0x800) as u32 * 32;
                self.core.set_register(register, &address.to_le_bytes());
            }
        }
        let seed = self.random.next();
        let mut around = Around { memory: vec![0x3c; 1 << 12], random: Random(seed) };
        match self.core.run(60, &mut around) {
            Stop::Fault { fault: Fault::Decode(_), .. } => "core: no bundle".into(),
            Stop::Fault { fault: Fault::Unmodelled { .. }, .. } => "core: not modelled".into(),
            Stop::Fault { .. } => "core: fault".into(),
            Stop::Waits(_) => "core: waits".into(),
            Stop::Done => "core: done".into(),
            _ => "core: ran".into(),
        }
    }
}

fn fuzz(arch: &str) {
    let isa = Isa::for_arch(arch).unwrap();
    let executions = std::env::var("AIE_FUZZ_EXECUTIONS").ok().and_then(|count| count.parse().ok());
    let executions = executions.unwrap_or(EXECUTIONS);
    let bundles = bundles(isa, &mut Random(7));
    let layout = Arc::new(Layout::new(isa));
    let executable = executable(isa, &layout, &bundles);
    println!("{arch}: {} bundles, {} of them executable", bundles.len(), executable.len());
    assert!(bundles.len() > 1_500 && executable.len() > 1_000);
    let pointers: String = (0..8).map(|number| format!("movxm p{number}, #{}\n", 0x7_1000 + 0x1000 * number)).collect();
    let pointers = isa.assemble(&pointers).expect("every generation has movxm");
    let (mut counts, start) = (Counts::new(), std::time::Instant::now());
    for number in 0..executions.div_ceil(BATCH) {
        let mut batch = Batch::new(isa, [&bundles, &executable], &layout, &pointers, number);
        for index in 0..BATCH {
            *counts.entry(batch.execution(index)).or_insert(0) += 1;
        }
        if number % 1_000 == 999 {
            println!("{arch}: {} executions, {:.0} s", (number + 1) * BATCH, start.elapsed().as_secs_f64());
        }
    }
    println!("{arch}: {executions} executions in {:.1} s: {counts:#?}", start.elapsed().as_secs_f64());
    // Input that is only ever rejected would show nothing.
    for needed in ["decode: a bundle", "core: ran", "CDO: settled", "stream: completed", "descriptors: settled"] {
        assert!(counts.contains_key(needed), "no execution ended as `{needed}`: {counts:#?}");
    }
}

#[test]
fn nothing_panics_on_aie2() {
    fuzz("aie2");
}

#[test]
fn nothing_panics_on_aie2p() {
    fuzz("aie2p");
}
