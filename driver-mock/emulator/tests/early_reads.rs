//! Reads of registers that a result is on its way to, as they are recorded for whoever asks.

use aie_emulator::core::{Core, Fault, Layout, Stop, Surroundings};
use aie_isa::Isa;
use std::sync::Arc;

/// Memory in which every byte is 1.
struct Ones;

impl Surroundings for Ones {
    fn load(&mut self, _address: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        bytes.fill(1);
        Ok(())
    }
}

const BEFORE: &str = "movxm p0, #0x70000\nmovx r2, #3\nmovx r3, #3\n";

/// Runs a program after some moves; gives what was recorded as text, with addresses after the moves.
fn recorded(arch: &str, program: &str, is_on: bool) -> Vec<String> {
    let isa = Isa::for_arch(arch).unwrap();
    let mut core = Core::new(isa, Arc::new(Layout::new(isa)), 16 << 10, 0);
    let begin = isa.assemble(BEFORE).unwrap().len() as u32;
    let text = format!("{BEFORE}{program}\n{}done", "nop\n".repeat(12));
    assert!(core.write_program(0, &isa.assemble(&text).unwrap()));
    core.record_early_reads(is_on);
    assert_eq!(core.run(1000, &mut Ones), Stop::Done);
    let reads = core.early_reads().into_iter().map(|mut read| {
        (read.reader, read.writer) = (read.reader - begin, read.writer - begin);
        read.to_string()
    });
    reads.collect()
}

#[test]
fn a_value_that_has_not_arrived_is_recorded() {
    // A load takes seven cycles: the sixth bundle behind it is one cycle too early, the seventh is not.
    let load = "lda r1, [p0, #0]\nnop\nnop\nnop\nnop\nnop\nadd r4, r1, #0\nadd r5, r1, #0";
    let size = Isa::aie2().assemble("lda r1, [p0, #0]").unwrap().len() + 5 * Isa::aie2().assemble("nop").unwrap().len();
    let expected = format!("{size:#x} reads r1 1 cycle before the result of 0x0 is there, once");
    assert_eq!(recorded("aie2", load, true), [expected]);
    assert_eq!(recorded("aie2", load, false), [""; 0]);
    // So is one that an address needs.
    let pointer = "lda p0, [p0, #0]\nnop\nlda r4, [p0, #0]";
    let size = Isa::aie2p().assemble("lda p0, [p0, #0]\nnop").unwrap().len();
    let expected = format!("{size:#x} reads p0 5 cycles before the result of 0x0 is there, once");
    assert_eq!(recorded("aie2p", pointer, true), [expected]);
}

#[test]
fn what_is_there_in_time_is_not() {
    // One bundle reads and writes a register; the next sees it. A product takes two cycles, and is waited for.
    let program = "add r2, r2, r3\nadd r2, r2, r3\nmul r4, r2, r3\nnop\nadd r5, r4, r2";
    assert_eq!(recorded("aie2", program, true), [""; 0]);
    // A register that gets a new value after it is read, and before that in a later bundle, is not read early.
    let later = "lda r4, [p0, #0]\nnop\nnop\nnop\nnop\nnop\nnop\nadd r5, r4, r3\nadd r4, r2, r3";
    assert_eq!(recorded("aie2p", later, true), [""; 0]);
}
