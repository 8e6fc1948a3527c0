//! The clock and the threads: cycles that follow from what a program does, and nothing that depends on the host.

mod relay;

use aie_emulator::{Array, ArrayError, Outcome, Resource, Rules, Timing};
use aie_hal::arch::{Delays, Estimate};
use aie_hal::format::core_control;
use aie_hal::format::dma_channel::{Direction, DmaChannel, DmaTask};
use aie_hal::format::extent::Traffic;
use aie_hal::format::instructions::{Header, Instruction, InstructionStream, InstructionWriter};
use aie_hal::format::lock::Lock;
use aie_hal::format::register::TileKind;
use aie_hal::format::tile_address;
use aie_isa::Isa;
use relay::{At, Host, relay, relay_under, words, write};
use rstest::rstest;

const PROGRAM: u32 = 0x2_0000;
/// Values that go from one core to the next.
const VALUES: u32 = 300;
/// Iterations of the cores that work alone, so many that threads are used.
const ITERATIONS: u32 = 20_000;

/// Sends multiples of three through its own memory: lock 0 says that the place is free, lock 1 that it is full.
const PRODUCER: &str = "
        movxm p0, #0x70000
        mova r1, #0
        mova r16, #-1
        mova r17, #1
        movxm r0, #300
        nop
        nop
loop:   acq #48, r16
        add r1, r1, #3
        add r0, r0, #-1
        st r1, [p0, #0]
        rel #49, r17
        jnz r0, #loop
        nop
        nop
        nop
        nop
        nop
        done
";

/// Adds up what it finds in its south neighbour's memory.
const CONSUMER: &str = "
        movxm p0, #0x40000
        movxm p1, #0x70000
        mova r3, #0
        mova r16, #-1
        mova r17, #1
        movxm r0, #300
        nop
        nop
loop:   acq #1, r16
        lda r2, [p0, #0]
        add r0, r0, #-1
        nop
        nop
        nop
        nop
        nop
        nop
        rel #0, r17
        add r3, r3, r2
        jnz r0, #loop
        st r3, [p1, #0]
        nop
        nop
        nop
        nop
        done
";

/// x = 5 x + 1, again and again.
const ALONE: &str = "
        movxm p0, #0x70000
        mova r1, #1
        movxm r0, #20000
        nop
        nop
loop:   lshl r2, r1, r3
        add r0, r0, #-1
        add r1, r1, r2
        jnz r0, #loop
        add r1, r1, #1
        nop
        nop
        nop
        nop
        st r1, [p0, #0]
        done
";

fn program(array: &mut Array, at: At, text: &str) {
    let mut code = array.isa().assemble(text).unwrap();
    code.resize(code.len().next_multiple_of(4), 0);
    words(array, at, PROGRAM, code.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)));
}

fn no_host() -> Host {
    Host([Vec::new(), Vec::new()])
}

/// In each of three columns a producer, a consumer that reaches into its memory, and two cores that work alone.
fn columns(threads: usize) -> Array {
    let mut array = Array::new(Isa::aie2(), 3, 6);
    array.set_threads(threads);
    for column in 0..3 {
        program(&mut array, (column, 2), PRODUCER);
        program(&mut array, (column, 3), CONSUMER);
        for row in [4, 5] {
            program(&mut array, (column, row), &ALONE.replace("mova r1, #1", "mova r1, #1; mov r3, #2"));
        }
        let lock = Lock::new(TileKind::Core, 0).unwrap().set(1).unwrap();
        write(&mut array, (column, 2), lock);
        for row in 2..6 {
            write(&mut array, (column, row), core_control::enable(true));
        }
    }
    array
}

#[test]
fn threads_change_nothing() {
    let sum = (1..=VALUES).map(|value| 3 * value).sum::<u32>();
    let alone = (0..ITERATIONS).fold(1u32, |x, _| x.wrapping_mul(5).wrapping_add(1));
    let states = [1, 2, 3, 16].map(|threads| {
        let mut array = columns(threads);
        array.settle(&mut no_host()).unwrap();
        for column in 0..3 {
            assert_eq!(array.read(column, 3, 0).unwrap(), sum, "{threads} threads");
            assert_eq!(array.read(column, 4, 0).unwrap(), alone, "{threads} threads");
            assert_eq!(array.read(column, 5, 0).unwrap(), alone, "{threads} threads");
        }
        array
    });
    // Everything: registers, memory, locks, times, groups of tiles, all of which print in one order. Only the number of threads
    // differs.
    let [one, others @ ..] = states.map(|mut array| {
        array.set_threads(1);
        format!("{array:?}")
    });
    for (other, threads) in others.iter().zip([2, 3, 16]) {
        assert!(one == *other, "{threads} threads");
    }
}

#[test]
fn of_several_faults_the_first_tile_is_reported_on_any_number_of_threads() {
    for threads in [1, 2, 16] {
        let mut array = columns(threads);
        // Runs off the end of what it has: zeros, and the end of program memory.
        for at in [(2, 4), (1, 5)] {
            program(&mut array, at, &ALONE.replace("p0, #0x70000", "p0, #0x10000"));
        }
        let error = array.settle(&mut no_host()).unwrap_err();
        assert!(matches!(error, ArrayError::Core { column: 1, row: 5, .. }), "{threads} threads: {error}");
    }
}

const RELAYED: u32 = 16 << 10;
const BUFFER: u32 = 1 << 10;

/// Waits for the relay's token.
const END: Instruction<'_> =
    Instruction::Sync { direction: Direction::StreamToMemory, column: 0, row: 0, columns: 1, rows: 1, channel: 0 };

fn execute(array: &mut Array, host: &mut Host, operations: &[Instruction<'_>]) -> Timing {
    let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    for operation in operations {
        writer.push(operation);
    }
    let stream = writer.finish().unwrap();
    let outcome = array.execute(&InstructionStream::parse(&stream).unwrap(), &[], host).unwrap();
    assert_eq!(outcome, Outcome::Completed);
    array.timing().clone()
}

/// Cycles of the relay.
fn relay_cycles(buffers: u8) -> u64 {
    let mut array = relay(RELAYED, BUFFER, buffers);
    let mut host = Host::with_words(RELAYED as usize);
    let timing = execute(&mut array, &mut host, &[END]);
    assert!(host.0[0] == host.0[1]);
    let bound = timing.bound().unwrap();
    assert!(matches!(bound.resource, Resource::Channel { .. }), "{bound}");
    assert_eq!((bound.column, bound.row, bound.busy), (0, 0, u64::from(RELAYED)));
    timing.cycles
}

/// Two buffers: what comes out is one buffer behind what goes in. Ports hold a few words, which is all that may be added.
#[test]
fn two_buffers_overlap() {
    let expected = u64::from(RELAYED + BUFFER);
    let cycles = relay_cycles(2);
    assert!((expected..expected + 32).contains(&cycles), "{cycles} cycles, expected {expected}");
}

/// One buffer: either words come in, or they go out; those in the buffers of ports are there already when it is free again.
#[test]
fn one_buffer_does_not() {
    let expected = u64::from(2 * RELAYED);
    let cycles = relay_cycles(1);
    let ported = u64::from(RELAYED / BUFFER) * 32;
    assert!((expected - ported..expected + 32).contains(&cycles), "{cycles} cycles, expected {expected}");
}

fn rules(delays: Delays) -> Rules {
    let mut rules = Rules::default();
    rules.delays = delays;
    rules
}

/// Cycles of a relay of so many words, read by tasks of so many.
fn delayed_cycles(delays: Delays, length: u32, read: u32) -> u64 {
    let mut array = relay_under(rules(delays), length, read, 64, 2);
    execute(&mut array, &mut Host::with_words(length as usize), &[END]).cycles
}

#[test]
fn hops_and_the_first_word_are_waited_for_once() {
    let none = Delays::default();
    let plain = delayed_cycles(none, 256, 256);
    assert_eq!(delayed_cycles(Delays { first_read: 750, ..none }, 256, 256), plain + 750);
    // From the shim to the mem tile and back.
    assert_eq!(delayed_cycles(Delays { hop: 4, ..none }, 256, 256), plain + 2 * 4);
    // That has come to its start long before the first word comes.
    assert_eq!(delayed_cycles(Delays { first_read: 750, first_write: 170, ..none }, 256, 256), plain + 750);
}

#[test]
fn tasks_in_a_queue_start_apart() {
    let none = Delays::default();
    let delays = Delays { task_start_busy: Estimate::exactly(520), task_start_idle: Estimate::exactly(2800), ..none };
    assert_eq!(delayed_cycles(delays, 256, 64), delayed_cycles(none, 256, 64) + 3 * (520 - 64));
    // Tasks that take longer than that follow each other.
    assert_eq!(delayed_cycles(delays, 1600, 800), delayed_cycles(none, 1600, 800));
}

#[test]
fn operations_take_time_while_words_move() {
    let cycles = |operation_cycles, count| {
        let mut rules = Rules::default();
        rules.operation_cycles = operation_cycles;
        let mut array = relay_under(rules, 256, 256, 64, 2);
        let operations = [vec![Instruction::Noop; count], vec![END]].concat();
        execute(&mut array, &mut Host::with_words(256), &operations).cycles
    };
    let words = cycles(0, 1);
    // The wait is an operation, too.
    assert_eq!(cycles(100, 1), words);
    assert_eq!(cycles(100, 9), 1000);
}

#[test]
fn memory_can_be_slower_than_channels() {
    let cycles = |read_cycles| {
        let mut rules = Rules::default();
        rules.read_cycles = read_cycles;
        let mut array = relay_under(rules, 4096, 4096, 64, 2);
        execute(&mut array, &mut Host::with_words(4096), &[END]).cycles
    };
    let words = cycles(0);
    assert_eq!(cycles(1024), words);
    let slower = cycles(1024 + 512);
    assert!((words + 2040..words + 2060).contains(&slower), "{slower} cycles, {words} without");
}

#[test]
fn a_task_for_an_idle_channel_starts_late() {
    let delays = Delays {
        task_start_busy: Estimate::exactly(520),
        task_start_idle: Estimate::exactly(2800),
        ..Delays::default()
    };
    let push = |direction, descriptor, token| {
        let channel = DmaChannel::new(TileKind::Shim, direction, 0).unwrap();
        let address = u64::from(tile_address(0, 0, channel.task_queue()));
        Instruction::Write { address, value: DmaTask { descriptor, repeat: 0, token }.encode() }
    };
    let again = [push(Direction::StreamToMemory, 1, true), push(Direction::MemoryToStream, 0, false), END];
    let twice = [&[END][..], &again].concat();
    let cycles = |delays, operations: &[Instruction<'_>]| {
        let mut array = relay_under(rules(delays), 64, 64, 64, 2);
        execute(&mut array, &mut Host::with_words(64), operations).cycles
    };
    let once = cycles(Delays::default(), &[END]);
    assert_eq!(cycles(delays, &[END]), once);
    assert_eq!(cycles(delays, &twice), 2800 + once);
    // Another dispatch begins anew.
    let mut array = relay_under(rules(delays), 64, 64, 64, 2);
    let mut host = Host::with_words(64);
    execute(&mut array, &mut host, &[END]);
    assert!(execute(&mut array, &mut host, &again).cycles < 2 * once);
}

#[test]
fn pieces_of_host_memory_are_counted() {
    let mut array = relay(256, 64, 2);
    let timing = execute(&mut array, &mut Host::with_words(256), &[END]);
    assert_eq!(timing.host_traffic(Direction::MemoryToStream), Traffic { bytes: 1024, pieces: 1 });
    let mut array = relay_under(Rules::default(), 256, 64, 64, 2);
    let timing = execute(&mut array, &mut Host::with_words(256), &[END]);
    assert_eq!(timing.host_traffic(Direction::MemoryToStream), Traffic { bytes: 1024, pieces: 4 });
    assert_eq!(timing.host_traffic(Direction::StreamToMemory), Traffic { bytes: 1024, pieces: 1 });
}

/// Bits of a core's status: whether it has come to `done`.
const CORE_STATUS: u32 = 0x3_2004;
const CORE_DONE: u32 = 1 << 20;

/// The second access of a bundle waits for the first where both need a bank, and each request of a lock takes a cycle.
#[rstest]
#[case::loads_in_one_bank("vlda wl0, [p0, #0]; vldb wl2, [p1, #0]", 0x7_0000, 0x7_2000, 1)]
#[case::loads_in_two("vlda wl0, [p0, #0]; vldb wl2, [p1, #0]", 0x7_0000, 0x7_4000, 0)]
#[case::a_load_and_a_store("vldb wl0, [p0, #0]; vst wl2, [p1, #0]", 0x7_0000, 0x7_2000, 1)]
#[case::words_in_two_halves("lda r0, [p0, #0]; st r1, [p1, #0]", 0x7_0000, 0x7_2010, 0)]
#[case::words_in_one_half("lda r0, [p0, #0]; st r1, [p1, #0]", 0x7_0000, 0x7_2020, 1)]
#[case::a_lock("rel #48, r17", 0x7_0000, 0x7_0000, 10)]
fn what_a_core_waits_for(#[case] bundle: &str, #[case] first: u32, #[case] second: u32, #[case] cycles: u64) {
    let text = format!(
        "movxm p0, #{first:#x}\nmovxm p1, #{second:#x}\nmova r17, #1\nnop\nnop\nnop\n{}done",
        format!("{bundle}\n").repeat(7)
    );
    let delays = Delays { bank_conflict: 1, lock_request: 10, ..Delays::default() };
    let mut array = Array::with_rules(Isa::aie2(), 1, 3, rules(delays));
    let core = (0, 2);
    program(&mut array, core, &text);
    write(&mut array, core, core_control::enable(true));
    let address = u64::from(tile_address(0, 2, CORE_STATUS));
    let done = Instruction::MaskPoll { address, value: CORE_DONE, mask: CORE_DONE };
    let timing = execute(&mut array, &mut no_host(), &[done]);
    assert_eq!(timing.core().unwrap().stalled, 7 * cycles);
}
