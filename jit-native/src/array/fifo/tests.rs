//! Fifos on the emulator: forwarded, broadcast, and read by a core as a stream.

use super::super::testing::{ADDER_MEMORY, Device, adder, aie2, assemble};
use super::super::{Dimension, Elements, End, Part, Region};
use super::*;

const SHIM: Tile = Tile::new(0, 0);
const MEM: Tile = Tile::new(0, 1);

/// A matrix tile that is transposed on its way through a mem tile, and doubled by a core that gets it twice.
#[test]
fn a_forwarded_and_broadcast_fifo() {
    let core = Tile::new(0, 2);
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    array.core(core, &adder()).unwrap();
    array.parameters(core, ADDER_MEMORY.parameters.0, 16).unwrap();
    let mut ring = |(address, stride, depth)| array.ring(core, Some(address), stride, depth).unwrap();
    let (a, b, sum) = (ring(ADDER_MEMORY.weights), ring(ADDER_MEMORY.operand), ring(ADDER_MEMORY.result));
    let arrives = array.fifo(SHIM, [MEM], 4 * 64, 2).unwrap();
    let kept = arrives.to[0].ring.unwrap();
    let twice = array.fifo(kept, [a, b], 4 * 64, 2).unwrap();
    let back = array.fifo(sum, [SHIM], 4 * 64, 2).unwrap();
    assert_eq!((arrives.from.ring, back.to[0].ring), (None, None));
    let configured = array.finish().unwrap();
    let mut dispatch = configured.dispatch();
    dispatch.transfer(arrives.from.channel, &Region::linear(0, 0, 4 * 64 * 3)).unwrap();
    dispatch.run(arrives.to[0].channel, &[Part::linear(kept, 64)], 3).unwrap();
    // 16 rows of 4 become 4 rows of 16.
    let transposed = [(16, 4), (4, 1)].map(|(size, step)| Dimension::new(size, step));
    dispatch.run(twice.from.channel, &[Part::strided(kept, 0, &transposed)], 3).unwrap();
    for end in twice.to.iter().chain([&back.from]) {
        dispatch.run(end.channel, &[Part::linear(end.ring.unwrap().cut(256, 2).unwrap(), 64)], 3).unwrap();
    }
    dispatch.transfer(back.to[0].channel, &Region::linear(1, 0, 4 * 64 * 3)).unwrap();
    dispatch.start(core, &[3, 64, 256]).unwrap();
    let source: Vec<u32> = (0..64 * 3).map(|word| 1000 + word * word).collect();
    let expected: Vec<u32> =
        (0..64 * 3).map(|at: usize| 2 * source[at / 64 * 64 + at % 16 * 4 + at % 64 / 16]).collect();
    let mut buffers = [source, vec![0; 64 * 3]];
    Device::of(&configured).dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
    assert_eq!(buffers[1], expected);
}

#[test]
fn channels_run_out() {
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    for _ in 0..2 {
        array.fifo(SHIM, [MEM], 64, 2).unwrap();
    }
    let error = array.fifo(SHIM, [MEM], 64, 2).unwrap_err();
    assert_eq!(error.to_string(), "tile (0,0) has 2 MM2S channels, all in use");
}

/// A core that adds what it reads from its stream, word by word, and sends the sums.
#[test]
fn a_core_reads_and_writes_streams() {
    let core = Tile::new(0, 3);
    let delay = "nop\n".repeat(7);
    let program = assemble(&format!(
        "
        movx r0, #-1
        .align 16
begin:  acq #{go}, r0
        movxm p0, #0x70000
        lda r5, [p0, #0]
        {delay}
        movx r4, #0
        .align 16
word:   mov r2, SS
        {delay}
        add r4, r4, r2
        nop
        mov ms, r4
        add r5, r5, #-1
        jnz r5, #word
        {delay}
        j #begin
        {delay}",
        go = Elements::GO,
    ));
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    array.core(core, &program).unwrap();
    array.parameters(core, 0, 1).unwrap();
    let (source, result) = (Channel::send(SHIM, 0), Channel::receive(SHIM, 0));
    array.stream(source, [End::Core(core)]).unwrap();
    array.stream(End::Core(core), [result]).unwrap();
    let configured = array.finish().unwrap();
    let mut device = Device::of(&configured);
    for words in [9, 100] {
        let mut dispatch = configured.dispatch();
        dispatch.start(core, &[words]).unwrap();
        dispatch.transfer(source, &Region::linear(0, 0, 4 * u64::from(words))).unwrap();
        dispatch.transfer(result, &Region::linear(1, 0, 4 * u64::from(words))).unwrap();
        let mut buffers = [(1..=words).collect(), vec![0; words as usize]];
        device.dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
        let expected: Vec<u32> = (1..=words).map(|last| last * (last + 1) / 2).collect();
        assert_eq!(buffers[1], expected);
    }
}
