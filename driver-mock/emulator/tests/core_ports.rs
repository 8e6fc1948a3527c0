//! What a core sends and receives, beside values worked out from the formats of headers and registers.

use aie_emulator::core::{Core, Fault, Layout, Stop, Surroundings};
use aie_isa::Isa;
use std::sync::Arc;

/// Memory, a stream with some words in it and space for some, and a cascade that counts up.
struct Ports {
    memory: Vec<u8>,
    words: Vec<(u32, bool)>,
    sent: Vec<(u32, bool)>,
    space: usize,
    cascades: u8,
}

impl Surroundings for Ports {
    fn load(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        let at = address as usize;
        bytes.copy_from_slice(&self.memory[at..at + bytes.len()]);
        Ok(())
    }
    fn store(&mut self, address: u32, bytes: &[u8]) -> Result<(), Fault> {
        let at = address as usize;
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn read_stream(&mut self) -> Option<(u32, bool)> {
        self.words.pop()
    }
    fn stream_readable(&mut self) -> bool {
        !self.words.is_empty()
    }
    fn stream_writable(&mut self) -> bool {
        self.sent.len() < self.space
    }
    fn write_stream(&mut self, word: u32, last: bool) {
        self.sent.push((word, last));
    }
    fn cascade_readable(&mut self) -> bool {
        true
    }
    fn read_cascade(&mut self) -> Option<[u8; 64]> {
        self.cascades += 1;
        Some([self.cascades; 64])
    }
}

/// Runs a program in column 1, row 3; gives the core and what is around it.
fn run(arch: &str, program: &str, words: &[(u32, bool)], space: usize) -> (Core, Ports) {
    let isa = Isa::for_arch(arch).unwrap();
    let mut core = Core::new(isa, Arc::new(Layout::new(isa)), 16 << 10, 1 << 16 | 3);
    let program = program.replace("wait", &"nop\n".repeat(12));
    assert!(core.write_program(0, &isa.assemble(&format!("{program}\ndone")).unwrap()));
    let words = words.iter().rev().copied().collect();
    let mut ports = Ports { memory: vec![0; 0x1000], words, sent: Vec::new(), space, cascades: 0 };
    assert_eq!(core.run(1000, &mut ports), Stop::Done);
    (core, ports)
}

fn register(arch: &str, core: &Core, name: &str) -> Vec<u8> {
    core.register(Isa::for_arch(arch).unwrap().register_named(name).unwrap())
}

#[test]
fn values_of_the_cascade_fill_parts_of_an_accumulator() {
    let (core, _) = run("aie2", "vmov.hi cm0, SCD\nvmov.lo cm0, SCD\nvmov x1, SCD", &[], 0);
    assert_eq!(register("aie2", &core, "cm0"), [[2; 64], [1; 64]].concat());
    assert_eq!(register("aie2", &core, "x1"), [3; 64]);
    let (core, _) = run("aie2p", "vmov.3 dm1, scd\nvmov.0 dm1, scd\nvmov.1 cmh0, scd", &[], 0);
    assert_eq!(register("aie2p", &core, "dm1"), [[2; 64], [0; 64], [0; 64], [1; 64]].concat());
    assert_eq!(register("aie2p", &core, "dm0"), [[0; 64], [0; 64], [0; 64], [3; 64]].concat());
}

#[test]
fn a_read_that_does_not_wait_says_whether_a_word_came() {
    let program =
        "mov.nb r0, SS\nwait\nmov r1, srSS0\nmov.nb r2, SS\nwait\nmov r3, srSS0\nmov.nb r4, SS\nwait\nmov r5, srSS0";
    let (core, _) = run("aie2", program, &[(7, false), (8, true)], 0);
    let words = [0, 1, 2, 3, 5].map(|number| register("aie2", &core, &format!("r{number}"))[0]);
    assert_eq!(words, [7, 2, 8, 3, 0]);
}

#[test]
fn words_are_marked_last_and_dropped_without_space() {
    let program = "movx r0, #5\nmovx r28, #1\nwait\nmov ms, r0\nmov.tlast ms, r0\nmov ms, r0, r28\nmov.nb ms, r0\nwait\nmov r1, srMS0";
    let (core, ports) = run("aie2", program, &[], 3);
    assert_eq!(ports.sent, [(5, false), (5, true), (5, true)]);
    assert_eq!(register("aie2", &core, "r1"), [0; 4]);
    let (core, _) = run("aie2", program, &[], 4);
    assert_eq!(register("aie2", &core, "r1")[0], 1);
}

#[test]
fn headers_are_made_of_numbers() {
    let program = "movx r0, #6\nmovxm m1, #126976\nwait\nmov.ph ms, r0, #2\nmov.cph ms, m1, #3, #1, r0";
    let (_, ports) = run("aie2", program, &[], 2);
    // Id 6, type 2, row 3, column 1: six ones. Register 0x1f000, four words, a read, answer 6: ten ones.
    let packet = 1 << 31 | 1 << 21 | 3 << 16 | 2 << 12 | 6;
    let control = 1 << 31 | 6 << 24 | 1 << 22 | 3 << 20 | 0x1_f000;
    assert_eq!(ports.sent, [(packet, false), (control, false)]);
}

/// A half word is stored by reading, changing and writing the word; what accesses memory meanwhile waits.
#[test]
fn a_load_after_a_store_of_a_half_word_finds_it() {
    let program = "movxm p0, #256\nmovxm r0, #0x1234\nwait\nst.s16 r0, [p0, #0]\nlda r1, [p0, #0]\nwait";
    for arch in ["aie2", "aie2p"] {
        let (core, _) = run(arch, program, &[], 0);
        let (without, _) = run(arch, &program.replace("lda r1, [p0, #0]", "nop"), &[], 0);
        assert_eq!(core.cycles() - without.cycles(), 6, "{arch}");
        assert_eq!(register(arch, &core, "r1"), [0x34, 0x12, 0, 0], "{arch}");
    }
}
