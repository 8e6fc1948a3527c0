//! A core on the emulator: memory before, a program, memory after.

use aie_emulator::{Array, NoHost};
use aie_isa::Isa;
use aie_jit_native::codegen::{Build, CoreBuilder, CoreProgram, LoopForm, Scheduling};

/// Where the core sees its own memory.
pub const OWN: u32 = CoreBuilder::OWN_MEMORY;

/// A core of tile (0, 2) that has run.
pub struct Ran {
    array: Array,
}

/// Runs a program with these words in data memory until it is done.
pub fn run(isa: &'static Isa, program: &CoreProgram, memory: &[(u32, Vec<u32>)]) -> Ran {
    let mut array = Array::new(isa, 1, 6);
    let mut write = |offset: u32, bytes: &[u8]| {
        for (index, word) in bytes.as_chunks().0.iter().enumerate() {
            array.write(0, 2, offset + 4 * index as u32, u32::from_le_bytes(*word), u32::MAX).unwrap();
        }
    };
    write(0x2_0000, &program.code);
    for section in &program.data {
        let mut bytes = section.bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        write(section.offset, &bytes);
    }
    for (offset, words) in memory {
        write(*offset, &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    }
    array.write(0, 2, 0x3_2000, 1, u32::MAX).unwrap();
    array.set_cycle_limit(1_000_000);
    array.settle(&mut NoHost).unwrap_or_else(|error| panic!("{error}\n{}", program.listing()));
    let report = array.report();
    assert!(report.waiters.is_empty(), "{report}\n{}", program.listing());
    Ran { array }
}

impl Ran {
    pub fn words(&mut self, offset: u32, count: usize) -> Vec<u32> {
        (offset..).step_by(4).take(count).map(|offset| self.array.read(0, 2, offset).unwrap()).collect()
    }
}

/// All ways in which a program can be made.
pub fn all() -> impl Iterator<Item = Build> {
    let schedulings = [Scheduling::Naive, Scheduling::Straight, Scheduling::Pipelined];
    schedulings
        .into_iter()
        .flat_map(|scheduling| [LoopForm::Hardware, LoopForm::Jnz].map(|loops| Build { scheduling, loops }))
}

/// Whether a program uses the loop registers.
pub fn has_hardware_loops(isa: &'static Isa, program: &CoreProgram) -> bool {
    let bundles = isa.listing(&program.code).map(|line| line.bundle.unwrap());
    let text: Vec<String> = bundles.map(|bundle| isa.text(&bundle)).collect();
    text.iter().any(|text| {
        ["ls", "le", "lc"].iter().any(|name| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == *name))
    })
}

/// Makes a program for both generations in all ways of scheduling, and says whether each leaves the expected words behind.
pub fn expect(write: impl Fn(&mut CoreBuilder), memory: &[(u32, Vec<u32>)], offset: u32, expected: &[u32]) {
    for isa in [Isa::aie2(), Isa::aie2p()] {
        expect_on(isa, &write, memory, offset, expected);
    }
}

/// The same for one generation: what is written has instructions of its own.
pub fn expect_on(
    isa: &'static Isa,
    write: impl Fn(&mut CoreBuilder),
    memory: &[(u32, Vec<u32>)],
    offset: u32,
    expected: &[u32],
) {
    for build in all() {
        let mut b = CoreBuilder::new(isa);
        b.set_data_area(0x8000, 0x1000);
        write(&mut b);
        b.done();
        let program = b.finish_with(build).unwrap();
        assert!(build.loops == LoopForm::Hardware || !has_hardware_loops(isa, &program), "{}", program.listing());
        let found = run(isa, &program, memory).words(offset, expected.len());
        assert_eq!(found, expected, "{} {build:?}\n{}", isa.name(), program.listing());
    }
}
