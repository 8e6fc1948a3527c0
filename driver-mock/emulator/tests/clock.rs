//! The clock and the threads: cycles that follow from what a program does, and nothing that depends on the host.

mod relay;

use aie_emulator::{Array, ArrayError, Resource};
use aie_hal::format::core_control;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{Header, Instruction, InstructionStream, InstructionWriter};
use aie_hal::format::lock::Lock;
use aie_hal::format::register::TileKind;
use aie_isa::Isa;
use relay::{At, Host, relay, words, write};

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

/// Cycles of the relay.
fn relay_cycles(buffers: u8) -> u64 {
    let mut array = relay(RELAYED, BUFFER, buffers);
    let mut writer = InstructionWriter::new(Header::aie2(1));
    let direction = Direction::StreamToMemory;
    writer.push(&Instruction::Sync { direction, column: 0, row: 0, columns: 1, rows: 1, channel: 0 });
    let stream = writer.finish().unwrap();
    let mut host = Host::with_words(RELAYED as usize);
    array.execute(&InstructionStream::parse(&stream).unwrap(), &[], &mut host).unwrap();
    assert!(host.0[0] == host.0[1]);
    let timing = array.timing();
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
