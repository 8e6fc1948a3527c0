//! What silicon loses or breaks without a word is an error here, at the operation that does it.

use super::rig::{At, Machine, Rig};
use aie_emulator::{Array, Jumps, LeftTokens, LockValues, Loops, Outcome, Rules, Undefined};
use aie_hal::format::bd::{CoreBd, MemTileBd, ShimBd};
use aie_hal::format::cdo::{Cdo, CdoBuilder};
use aie_hal::format::dma_channel::Direction::{MemoryToStream, StreamToMemory};
use aie_hal::format::dma_channel::{Direction, DmaChannel, DmaTask};
use aie_hal::format::instructions::{Instruction, InstructionWriter};
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::Port;
use aie_hal::format::tile_address;
use aie_isa::Isa;
use rstest::rstest;

const MEM: At = (1, 1);
const CORE: At = (1, 2);
const SHIM: At = (1, 0);

fn rig() -> Rig {
    Rig::new(Machine::new(Isa::aie2()))
}

fn kind((_, row): At) -> TileKind {
    [TileKind::Shim, TileKind::Mem, TileKind::Core][usize::from(row)]
}

fn push(writer: &mut InstructionWriter, at: At, direction: Direction, descriptor: u8, token: bool) {
    let channel = DmaChannel::new(kind(at), direction, 0).unwrap();
    let address = u64::from(tile_address(at.0, at.1, channel.task_queue()));
    writer.push(&Instruction::Write { address, value: DmaTask { descriptor, repeat: 0, token }.encode() });
}

fn wait(writer: &mut InstructionWriter, at: At, direction: Direction) {
    let (column, row) = at;
    writer.push(&Instruction::Sync { direction, column, row, columns: 1, rows: 1, channel: 0 });
}

/// A mem tile that copies four words within itself: BD 0 reads them, BD 1 writes them.
fn copying() -> Rig {
    copying_under(Rules::default())
}

fn copying_under(rules: Rules) -> Rig {
    let mut rig = Rig::under(Machine::new(Isa::aie2()), rules);
    let linear = |address| MemTileBd { address, length: 4, valid: true, ..MemTileBd::default() };
    rig.words(MEM, 0x100, &[9; 4]);
    rig.mem_bd(MEM, 0, linear(MemTileBd::OWN_MEMORY + 0x40));
    rig.mem_bd(MEM, 1, linear(MemTileBd::OWN_MEMORY + 0x1000));
    rig.circuit(MEM, Port::Dma(0), Port::Dma(0));
    rig.load().unwrap();
    rig
}

#[test]
fn a_fifth_push_is_lost() {
    let both = [(MemoryToStream, 0), (StreamToMemory, 1)];
    // Tasks that would end by themselves do not make room: how fast they do is not what a stream may count on.
    let full = copying().execute(|writer| {
        for (direction, descriptor) in (0..5).flat_map(|_| both) {
            push(writer, MEM, direction, descriptor, false);
        }
    });
    let lost =
        "the task queue of MM2S 0 of tile (1, 1) holds 4 tasks that have not ended: a fifth push, of BD 0, is lost";
    assert_eq!(full, Err(lost.to_owned()));
}

#[test]
fn a_task_waited_for_makes_room() {
    let outcome = copying().execute(|writer| {
        for number in 0..20 {
            if number >= 4 {
                wait(writer, MEM, StreamToMemory);
            }
            push(writer, MEM, MemoryToStream, 0, false);
            push(writer, MEM, StreamToMemory, 1, true);
        }
        (0..4).for_each(|_| wait(writer, MEM, StreamToMemory));
    });
    assert_eq!(outcome, Ok(Outcome::Completed));
}

#[test]
fn a_circuit_needs_a_wire() {
    for (master, expected) in [(Port::North(4), "no wire from South 0 to North 4"), (Port::North(0), "")] {
        let mut rig = rig();
        rig.circuit(MEM, Port::South(0), master);
        let loaded = rig.load();
        let is_right = if expected.is_empty() {
            loaded.is_ok()
        } else {
            loaded.as_ref().is_err_and(|problem| problem.ends_with(expected))
        };
        assert!(is_right, "{master}: {loaded:?}");
    }
}

#[rstest]
#[case::of_a_task_that_has_ended(true)]
#[case::of_a_task_that_will_end(false)]
fn a_token_that_is_not_waited_for_is_an_error(#[case] has_ended: bool) {
    let run = |rules, waits: bool| {
        let mut rig = copying_under(rules);
        rig.execute(|writer| {
            push(writer, MEM, StreamToMemory, 1, true);
            push(writer, MEM, MemoryToStream, 0, has_ended);
            if has_ended {
                wait(writer, MEM, MemoryToStream);
            }
            if waits {
                wait(writer, MEM, StreamToMemory);
            }
        })
    };
    let left = "completion tokens of S2MM 0 of tile (1, 1) that the stream asks for and does not wait for: 1; the next stream that waits \
                there goes on too early";
    let mut keep = Rules::default();
    keep.left_tokens = LeftTokens::Keep;
    assert_eq!(run(Rules::default(), true), Ok(Outcome::Completed));
    assert_eq!(run(Rules::default(), false), Err(left.to_owned()));
    assert_eq!(run(keep, false), Ok(Outcome::Completed));
}

/// Pushes a task of BD 2, which leads to BD 3, and then writes a word of BD 3; with a wait between them if `waits`.
fn rewritten(at: At, waits: bool) -> Result<Outcome, String> {
    let mut rig = rig();
    let buffer = rig.buffer(&[7; 8]);
    for (number, next) in [(2, true), (3, false)] {
        match kind(at) {
            TileKind::Shim => {
                let bd = ShimBd { use_next: next, next: 3, ..ShimBd::linear(4, 2) };
                rig.shim_bd(at, number, buffer, bd);
            }
            TileKind::Mem => {
                let address = MemTileBd::OWN_MEMORY + 0x40;
                let bd = MemTileBd { address, length: 4, use_next: next, next: 3, valid: true, ..MemTileBd::default() };
                rig.mem_bd(at, number, bd);
            }
            TileKind::Core => {
                let bd = CoreBd { address: 0x40, length: 4, use_next: next, next: 3, valid: true, ..CoreBd::default() };
                rig.core_bd(at, number, bd);
            }
        }
    }
    // The words go round through the tile's own switch to a channel that takes them.
    match kind(at) {
        TileKind::Shim => {
            rig.shim_dma(at.0, MemoryToStream, 0);
            rig.shim_dma(at.0, StreamToMemory, 0);
            rig.circuit(at, Port::South(3), Port::South(2));
            rig.shim_bd(at, 4, buffer, ShimBd::linear(8, 2));
        }
        TileKind::Mem => {
            rig.circuit(at, Port::Dma(0), Port::Dma(0));
            let address = MemTileBd::OWN_MEMORY + 0x80;
            rig.mem_bd(at, 4, MemTileBd { address, length: 8, valid: true, ..MemTileBd::default() });
        }
        TileKind::Core => {
            rig.circuit(at, Port::Dma(0), Port::Dma(0));
            rig.core_bd(at, 4, CoreBd { address: 0x80, length: 8, valid: true, ..CoreBd::default() });
        }
    }
    rig.load()?;
    rig.execute(|writer| {
        push(writer, at, StreamToMemory, 4, false);
        push(writer, at, MemoryToStream, 2, true);
        if waits {
            wait(writer, at, MemoryToStream);
        }
        let register = match kind(at) {
            TileKind::Shim => ShimBd::register(3),
            TileKind::Mem => MemTileBd::register(3),
            TileKind::Core => CoreBd::register(3),
        };
        writer.push(&Instruction::Write { address: tile_address(at.0, at.1, register + 4).into(), value: 0 });
    })
}

#[test]
fn descriptors_of_tasks_that_have_not_ended_are_not_written() {
    for at in [SHIM, MEM, CORE] {
        let error =
            format!("BD 3 of tile (1, {}) is written while a task of MM2S 0, which begins at BD 2, uses it", at.1);
        assert_eq!(rewritten(at, false), Err(error));
        assert_eq!(rewritten(at, true), Ok(Outcome::Completed));
    }
}

#[test]
fn a_configuration_does_not_write_live_descriptors_either() {
    let mut rig = rig();
    rig.start_once(CORE, StreamToMemory, 0, 5);
    rig.words(CORE, CoreBd::register(6), &[0; 6]);
    rig.words(CORE, CoreBd::register(5), &[0; 6]);
    let error = "BD 5 of tile (1, 2) is written while a task of S2MM 0, which begins at BD 5, uses it";
    assert_eq!(rig.load(), Err(error.to_owned()));
}

#[test]
fn locks_keep_six_bits_where_that_is_asked_for() {
    let truncating = || {
        let mut rules = Rules::default();
        rules.lock_values = LockValues::Truncate;
        Array::with_rules(Isa::aie2(), 1, 3, rules)
    };
    let mut cdo = CdoBuilder::new();
    cdo.write(tile_address(0, 1, 0xc_0000).into(), 74);
    let bytes = cdo.finish().unwrap();
    let cdo = Cdo::parse(&bytes).unwrap();
    let mut host = super::rig::Host::default();
    let mut array = truncating();
    array.load_cdo(&cdo, &mut host).unwrap();
    assert_eq!(array.read(0, 1, 0xc_0000), Ok(10));
    // A release of 60 by reading: 10 + 60 is 70, of which 6 stays.
    assert_eq!(array.access(0, 1, 0xd_0000 | 60 << 2), Ok(1));
    assert_eq!(array.read(0, 1, 0xc_0000), Ok(6));
    assert!(Array::new(Isa::aie2(), 1, 3).load_cdo(&cdo, &mut host).is_err());
    // Below zero stays an error.
    assert!(truncating().access(0, 1, 0xd_0000 | 0x7f << 2).is_err());
}

/// Stores 1 to its memory behind a jump that leads to `pad` bytes behind a line's beginning, where the bytes before are `front`.
fn jumping(isa: &'static Isa, jumps: Jumps, front: &str) -> Result<u32, String> {
    let mut rules = Rules::default();
    rules.jumps = jumps;
    let mut rig = Rig::under(Machine::new(isa), rules);
    let program = format!(
        "movxm p0, #0x70400\nmovx r1, #1\nmovx r2, #2\nj #there\nnop\nnop\nnop\nnop\nnop\n.align 16\n{front}\nthere: st r1, [p0], #4\nnop\nnop\nnop\nnop\ndone"
    );
    rig.program(CORE, &program);
    rig.words(CORE, 0x400, &[0]);
    rig.run_to_end()?;
    Ok(rig.read(CORE, 0x400, 1)[0])
}

#[test]
fn jumps_into_a_line_are_rejected_on_aie2p() {
    let skipped = "movx r1, #7";
    for jumps in [Jumps::Reject, Jumps::Silicon] {
        assert_eq!(jumping(Isa::aie2(), jumps, skipped), Ok(1));
        assert_eq!(jumping(Isa::aie2p(), jumps, ""), Ok(1));
        assert_eq!(jumping(Isa::aie2p(), jumps, "nop"), Ok(1));
    }
    let fault = jumping(Isa::aie2p(), Jumps::Reject, skipped).unwrap_err();
    assert!(fault.contains("which is not a multiple of 16: silicon goes on at 0x"), "{fault}");
    // The instruction in front of the target in its line runs too.
    assert_eq!(jumping(Isa::aie2p(), Jumps::Silicon, skipped), Ok(7));
}

/// A hardware loop of four iterations behind a jump to `front` and the loop's setup.
fn looping(front: &str, loops: Loops) -> Result<u32, String> {
    let mut rules = Rules::default();
    (rules.jumps, rules.loops) = (Jumps::Silicon, loops);
    let mut rig = Rig::under(Machine::new(Isa::aie2p()), rules);
    let nops = "nop\n".repeat(70);
    rig.program(
        CORE,
        &format!(
            "movxm p0, #0x70400\nmovx r1, #0\nj #there\nnop\nnop\nnop\nnop\nnop\n.align 16\n{front}\nthere: movxm ls, #body\n\
             movxm le, #last\nmovxm lc, #4\n{nops}.align 16\nbody: .128 add r1, r1, #1\nlast: .128 nop\nst r1, [p0], #4\n\
             nop\nnop\nnop\nnop\ndone"
        ),
    );
    rig.words(CORE, 0x400, &[0]);
    rig.run_to_end()?;
    Ok(rig.read(CORE, 0x400, 1)[0])
}

#[test]
fn a_loop_behind_a_jump_into_a_line_runs_once() {
    assert_eq!(looping("", Loops::Close), Ok(4));
    assert_eq!(looping("nop", Loops::Close), Ok(1));
}

#[test]
fn loops_run_once_where_that_is_asked_for() {
    assert_eq!(looping("", Loops::RunOnce), Ok(1));
}

/// What a loop leaves that stores a byte for each of four iterations, with the store so many bundles before its last.
fn stored_bytes(isa: &'static Isa, before_last: usize) -> u32 {
    let mut rig = Rig::new(Machine::new(isa));
    let body: String = (0..8)
        .map(|bundle| {
            let label = match bundle {
                0 => ".align 16\nbody: ",
                7 => ".align 16\nlast: ",
                _ => "",
            };
            let what = if bundle == 7 - before_last { "st.s8 r1, [p0], #1" } else { "nop" };
            format!("{label}{what}\n")
        })
        .collect();
    let nops = "nop\n".repeat(70);
    rig.program(
        CORE,
        &format!(
            "movxm p0, #0x70400\nmovx r1, #1\nmovxm ls, #body\nmovxm le, #last\nmovxm lc, #4\n{nops}{body}{}done",
            "nop\n".repeat(12)
        ),
    );
    rig.words(CORE, 0x400, &[0]);
    rig.run_to_end().unwrap();
    rig.read(CORE, 0x400, 1)[0]
}

#[test]
fn a_store_of_part_of_a_word_at_the_end_of_a_loop_is_lost() {
    for isa in [Isa::aie2(), Isa::aie2p()] {
        assert_eq!(stored_bytes(isa, 1), 0x0101_0101);
        // The last iteration does not jump back.
        assert_eq!(stored_bytes(isa, 0), 0x0100_0000);
    }
}

#[test]
fn a_core_that_is_done_goes_on_only_after_a_reset() {
    let mut rig = rig();
    rig.program(CORE, "movxm p0, #0x70400\nlda r1, [p0]\nnop\nnop\nnop\nnop\nnop\nnop\nadd r1, r1, #1\nst r1, [p0], #4\nnop\nnop\nnop\nnop\nnop\nnop\ndone".replace("lda r1, [p0]", "lda r1, [p0, #0]").as_str());
    rig.words(CORE, 0x400, &[0]);
    rig.run_to_end().unwrap();
    let control = |rig: &mut Rig, value| {
        rig.array.write(CORE.0, CORE.1, 0x3_2000, value, u32::MAX).unwrap();
        rig.array.settle(&mut rig.host).unwrap();
        (rig.read(CORE, 0x400, 1)[0], rig.read(CORE, 0x3_2004, 1)[0])
    };
    // The status that was read on silicon.
    assert_eq!(control(&mut rig, 1), (1, 0x10_0000));
    assert_eq!(control(&mut rig, 2), (1, 2));
    assert_eq!(control(&mut rig, 1), (2, 0x10_0000));
}

#[test]
fn shims_have_no_quality_of_service() {
    for (qos, expected) in [(0, Ok(())), (15, Err(()))] {
        let mut rig = rig();
        let buffer = rig.buffer(&[7; 4]);
        rig.shim_bd(SHIM, 0, buffer, ShimBd { qos, ..ShimBd::linear(4, 2) });
        rig.shim_dma(1, MemoryToStream, 0);
        rig.start_once(SHIM, MemoryToStream, 0, 0);
        let found = rig.run();
        if let Err(problem) = &found {
            let reason =
                "its quality of service is 15: on silicon other values than 0 have stopped the NPU until a reboot";
            assert_eq!(*problem, format!("MM2S 0 of tile (1, 0), BD 0: {reason}"));
        }
        assert_eq!(found.map_err(|_| ()), expected);
    }
}

/// Stores register `r1`, after `prologue`, and what memory has at 0x100.
fn undefined(prologue: &str, memory: &[u32]) -> [u32; 2] {
    let mut rig = rig();
    rig.words(CORE, 0x100, memory);
    rig.program(
        CORE,
        &format!("movxm p0, #0x70400\nmovxm p1, #0x70100\n{prologue}lda r2, [p1], #4\nst r1, [p0], #4\n{}st r2, [p0], #4\nnop\nnop\ndone", "nop\n".repeat(7)),
    );
    rig.load().unwrap();
    rig.array.settle(&mut rig.host).unwrap();
    [0x400, 0x404].map(|at| rig.array.read(CORE.0, CORE.1, at).unwrap())
}

#[test]
fn nothing_is_zero_that_nobody_has_defined() {
    assert_eq!(undefined("movx r1, #42\n", &[7]), [42, 7]);
    let [register, memory] = undefined("", &[]);
    assert!(register != 0 && memory != 0 && register != memory, "{register:#x} {memory:#x}");
    // The noise is the same in every run, and another for each tile.
    assert_eq!(undefined("", &[]), [register, memory]);
    let array = rig().array;
    assert_ne!(array.read(0, 1, 0x100), array.read(1, 1, 0x100));
    let mut zero = Rules::default();
    zero.undefined = Undefined::Zero;
    assert_eq!(Array::with_rules(Isa::aie2(), 1, 3, zero).read(0, 1, 0x100), Ok(0));
}
