//! What starts, stops, resets and clears tiles.

use super::rig::{At, Check, Machine, Rig, same};
use aie_hal::format::bd::MemTileBd;
use aie_hal::format::core_control;
use aie_hal::format::dma_channel::Direction::{MemoryToStream, StreamToMemory};
use aie_hal::format::register::RegisterWrite;
use aie_hal::format::stream_switch::Port;

const CORE: At = (1, 2);
const MEM: At = (1, 1);
const SHIM: At = (1, 0);
const OUT: u32 = 0x400;

/// Adds 5 to the word at [`OUT`] whenever it runs. The register that it counts in is what a reset makes of it, and not what the run before
/// left.
const COUNT: &str = "
        movxm p0, #0x70400
        lda r1, [p0, #0]
        add r9, r9, #1
        nop
        nop
        nop
        nop
        nop
        add r1, r1, #5
        st r1, [p0, #0]
        st r9, [p0, #4]
        done";

/// A reset begins the program again, and nothing of its registers is left; memory and program stay.
pub fn restart(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    rig.words(CORE, OUT, &[0]);
    rig.program(CORE, COUNT);
    rig.run_to_end()?;
    let first = rig.read(CORE, OUT + 4, 1)[0];
    rig.expect(CORE, OUT, &[5])?;
    for _ in 0..2 {
        rig.write(CORE, core_control::enable(false));
        rig.write(CORE, core_control::reset(true));
        rig.write(CORE, core_control::reset(false));
        rig.write(CORE, core_control::enable(true));
        rig.run_to_end()?;
    }
    rig.expect(CORE, OUT, &[15, first])
}

/// A core that is disabled stays where it is, and continues from there when it is enabled.
pub fn stop_and_go_on(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    let text = "movxm p0, #0x70400\nmovx r1, #3\nmovx r0, #-1\nacq #48, r0\nst r1, [p0, #0]\nnop\nnop\nnop\nnop\ndone";
    rig.words(CORE, OUT, &[0]);
    rig.program(CORE, text);
    rig.run()?;
    rig.write(CORE, core_control::enable(false));
    rig.write(CORE, RegisterWrite::word(0x1_f000, 1));
    rig.run_to_end()?;
    rig.expect(CORE, OUT, &[0])?;
    rig.write(CORE, core_control::enable(true));
    rig.run_to_end()?;
    rig.expect(CORE, OUT, &[3])
}

/// Without its column's clock nothing moves; with it again everything continues.
pub fn column_clock(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    rig.words(CORE, OUT, &[0]);
    rig.program(CORE, COUNT);
    rig.words(MEM, 0, &[1, 2, 3, 4]);
    rig.words(MEM, 0x100, &[0; 4]);
    let bd = MemTileBd { address: MemTileBd::OWN_MEMORY, length: 4, valid: true, ..MemTileBd::default() };
    rig.mem_bd(MEM, 0, bd);
    rig.mem_bd(MEM, 1, MemTileBd { address: MemTileBd::OWN_MEMORY + 0x40, ..bd });
    rig.circuit(MEM, Port::Dma(0), Port::Dma(0));
    rig.start_once(MEM, MemoryToStream, 0, 0);
    rig.start_once(MEM, StreamToMemory, 0, 1);
    rig.write(SHIM, RegisterWrite::word(0xf_ff20, 0));
    rig.run()?;
    rig.expect(CORE, OUT, &[0])?;
    rig.expect(MEM, 0x100, &[0; 4])?;
    rig.write(SHIM, RegisterWrite::word(0xf_ff20, 1));
    rig.run_to_end()?;
    rig.expect(CORE, OUT, &[5])?;
    rig.expect(MEM, 0x100, &[1, 2, 3, 4])
}

/// The reset of a column clears locks, switches, channels and cores of all its tiles, those of no other, and no memory.
pub fn column_reset(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    let other: At = (0, 2);
    for at in [CORE, other] {
        rig.lock(at, 4, 6);
        rig.words(at, 0x20, &[1234]);
    }
    rig.program(CORE, "movx r0, #-1\nacq #48, r0\ndone");
    rig.mem_bd(MEM, 0, MemTileBd { address: MemTileBd::OWN_MEMORY, length: 4, valid: true, ..MemTileBd::default() });
    rig.start_once(MEM, StreamToMemory, 0, 0);
    rig.run()?;
    rig.write(SHIM, RegisterWrite::word(0xf_ff28, 1));
    rig.run_to_end()?;
    let expected = if machine.fault.is_some_and(|fault| fault == super::rig::Fault::Lock) { 7 } else { 6 };
    let locks = [rig.read(CORE, 0x1_f040, 1)[0], rig.read(other, 0x1_f040, 1)[0]];
    same("locks", &locks, &[0, expected])?;
    rig.expect(CORE, 0x20, &[1234])?;
    rig.expect(other, 0x20, &[1234])?;
    same("descriptor", &rig.read(MEM, MemTileBd::register(0) + 28, 1), &[0])
}

/// One bit each makes data memory and program memory zero, and reads as zero afterwards.
pub fn zeroed_memory(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    rig.words(CORE, 0x8000, &[1, 2]);
    rig.words(CORE, 0x2_0100, &[3, 4]);
    rig.words(MEM, 0x4_0000, &[5, 6]);
    for (at, register) in [(CORE, 0x1_6010), (CORE, 0x3_6070), (MEM, 0x9_6048)] {
        rig.write(at, RegisterWrite::masked(register, 1, 1));
    }
    rig.run_to_end()?;
    rig.expect(CORE, 0x8000, &[0, 0])?;
    rig.expect(CORE, 0x2_0100, &[0, 0])?;
    rig.expect(MEM, 0x4_0000, &[0, 0])?;
    same("register", &rig.read(MEM, 0x9_6048, 1), &[0])
}

/// Events are raised by their number, and cleared by writing ones.
pub fn events_by_number(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    for (at, generate, event) in [(CORE, 0x3_4008, 125), (CORE, 0x1_4008, 33), (MEM, 0x9_4008, 160)] {
        rig.write(at, RegisterWrite::word(generate, event));
    }
    rig.write(CORE, RegisterWrite::word(0x3_420c, 1 << 28));
    rig.run_to_end()?;
    let status = [rig.read(CORE, 0x3_420c, 1)[0], rig.read(CORE, 0x1_4204, 1)[0], rig.read(MEM, 0x9_4214, 1)[0]];
    same("event status", &status, &[1 << 29, 1 << 1, 1])
}
