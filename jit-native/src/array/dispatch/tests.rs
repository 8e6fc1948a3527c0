//! Dispatches: what they reject, what they wait for, and which descriptors they use again.

use super::super::testing::{Device, adder, aie2};
use super::super::{ArrayProgram, Dimension, Elements};
use super::*;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::instructions::InstructionStream;
use aie_hal::format::tile_location;
use rstest::rstest;

const SHIM: Tile = Tile::new(0, 0);
const MEM: Tile = Tile::new(0, 1);
const CORE: Tile = Tile::new(0, 2);

/// The shim's memory through a ring of the mem tile and back: no core.
struct Loop {
    configured: Configured,
    ring: Ring,
}

const ARRIVES: Channel = Channel::receive(MEM, 0);
const LEAVES: Channel = Channel::send(MEM, 1);
const SOURCE: Channel = Channel::send(SHIM, 0);
const RESULT: Channel = Channel::receive(SHIM, 0);

fn through_mem_tile() -> Loop {
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    let ring = array.ring(MEM, None, 256, 2).unwrap();
    array.stream(SOURCE, [ARRIVES]).unwrap();
    array.stream(LEAVES, [RESULT]).unwrap();
    Loop { configured: array.finish().unwrap(), ring }
}

impl Loop {
    /// A dispatch in which the mem tile takes `count` buffers of `words` words through its ring.
    fn run(&self, words: u64, count: u32) -> Dispatch<'_> {
        let mut dispatch = self.configured.dispatch();
        for channel in [ARRIVES, LEAVES] {
            dispatch.run(channel, &[Part::linear(self.ring, words)], count).unwrap();
        }
        dispatch
    }
}

/// Scattered words in many tasks: each one waits for the task whose descriptor it takes.
#[rstest]
#[case::few(3)]
#[case::as_many_as_descriptors(4)]
#[case::one_more(5)]
#[case::many(50)]
fn scattered_rows_come_in_order(#[case] rows: u64) {
    let design = through_mem_tile();
    let mut dispatch = design.run(16, rows as u32);
    // Rows from the last to the first, each a region of its own, and all of the result in one.
    for row in (0..rows).rev() {
        dispatch.transfer(SOURCE, &Region::linear(0, 4 * 20 * row, 64)).unwrap();
    }
    dispatch.transfer(RESULT, &Region::linear(1, 0, 64 * rows)).unwrap();
    let stream = dispatch.finish().unwrap();
    expect_awaited_descriptors(&stream);
    let source: Vec<u32> = (0..20 * rows as u32).collect();
    let expected: Vec<u32> = (0..rows as u32).rev().flat_map(|row| 20 * row..20 * row + 16).collect();
    let mut buffers = [source, vec![0; 16 * rows as usize]];
    Device::of(&design.configured).dispatch(&stream, &mut buffers).unwrap();
    assert_eq!(buffers[1], expected);
}

/// Both sides in many tasks of different sizes.
#[test]
fn tasks_of_different_sizes_do_not_wait_for_each_other() {
    let design = through_mem_tile();
    let words = 16 * 60;
    let mut dispatch = design.run(16, 60);
    for part in 0..10 {
        dispatch.transfer(SOURCE, &Region::linear(0, 4 * 96 * part, 4 * 96)).unwrap();
    }
    for part in 0..words / 8 {
        dispatch.transfer(RESULT, &Region::linear(1, 32 * part, 32)).unwrap();
    }
    let stream = dispatch.finish().unwrap();
    expect_awaited_descriptors(&stream);
    let mut buffers = [(0..words as u32).collect(), vec![0; words as usize]];
    Device::of(&design.configured).dispatch(&stream, &mut buffers).unwrap();
    assert_eq!(buffers[0], buffers[1]);
}

/// Follows a stream: no descriptor of a shim is written while a task that uses it may run, no queue gets a fifth task, and every
/// token is waited for.
fn expect_awaited_descriptors(bytes: &[u8]) {
    let stream = InstructionStream::parse(bytes).unwrap();
    // Tasks of each channel that may run: descriptor, and whether it sends a token.
    let mut running: BTreeMap<(u8, u8), Vec<(u8, bool)>> = BTreeMap::new();
    let queues = [(0x1_D204, (0, 0)), (0x1_D20C, (0, 1)), (0x1_D214, (1, 0)), (0x1_D21C, (1, 1))];
    for operation in stream.operations() {
        match operation {
            Instruction::BlockWrite { address, .. } => {
                let (_, row, offset) = tile_location(address);
                if row == 0 {
                    let number = ((offset - ShimBd::register(0)) / 0x20) as u8;
                    assert!(running.values().flatten().all(|(used, _)| *used != number), "descriptor {number}");
                }
            }
            Instruction::Write { address, value } => {
                let (_, row, offset) = tile_location(address as u32);
                if let Some((_, channel)) = queues.iter().find(|(queue, _)| row == 0 && *queue == offset) {
                    let tasks = running.entry(*channel).or_default();
                    tasks.push(((value & 15) as u8, value >> 31 == 1));
                    assert!(tasks.len() <= 4, "{channel:?} has {} tasks", tasks.len());
                }
            }
            Instruction::Sync { direction, channel, .. } => {
                let tasks = running.get_mut(&(direction.code(), channel)).unwrap();
                // All up to the first one with a token are done.
                let at = tasks.iter().position(|(_, token)| *token).expect("a wait without a token");
                tasks.drain(..=at);
            }
            _ => {}
        }
    }
    assert!(running.values().flatten().all(|(_, token)| !token), "a token that nothing waits for");
}

#[test]
fn phases_follow_each_other() {
    let design = through_mem_tile();
    let mut dispatch = design.configured.dispatch();
    // More buffers than a channel's tasks can repeat; a smaller cut of the ring in the second phase.
    for (ring, words, first) in [(design.ring, 64u64, 0u64), (design.ring.cut(8, 5).unwrap(), 2, 1000 * 64)] {
        for channel in [ARRIVES, LEAVES] {
            dispatch.run(channel, &[Part::linear(ring, words)], 1000).unwrap();
        }
        let bytes = 4 * words * 1000;
        dispatch.transfer(SOURCE, &Region::linear(0, 4 * first, bytes)).unwrap();
        dispatch.transfer(RESULT, &Region::linear(1, 4 * first, bytes)).unwrap();
        dispatch.end_phase().unwrap();
    }
    let stream = dispatch.finish().unwrap();
    let words = 1000 * 66;
    let mut buffers = [(0..words).map(|word| word ^ 0x55).collect(), vec![0; words as usize]];
    Device::of(&design.configured).dispatch(&stream, &mut buffers).unwrap();
    assert_eq!(buffers[0], buffers[1]);
}

#[test]
fn calls_go_on_with_the_next_buffer() {
    let design = through_mem_tile();
    let mut dispatch = design.configured.dispatch();
    for channel in [ARRIVES, LEAVES] {
        for (words, count) in [(64, 3), (5, 1), (64, 1)] {
            dispatch.run(channel, &[Part::linear(design.ring, words)], count).unwrap();
        }
    }
    let words = 64 * 4 + 5;
    dispatch.transfer(SOURCE, &Region::linear(0, 0, 4 * words)).unwrap();
    dispatch.transfer(RESULT, &Region::linear(1, 0, 4 * words)).unwrap();
    let mut buffers = [(7..7 + words as u32).collect(), vec![0; words as usize]];
    Device::of(&design.configured).dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
    assert_eq!(buffers[0], buffers[1]);
}

#[test]
fn both_ends_of_a_stream_move_the_same() {
    let design = through_mem_tile();
    let mut dispatch = design.run(16, 4);
    dispatch.transfer(SOURCE, &Region::linear(0, 0, 256)).unwrap();
    dispatch.transfer(RESULT, &Region::linear(1, 0, 252)).unwrap();
    let error = dispatch.finish().unwrap_err();
    let message = "MM2S 1 of tile (0,1) sends 64 words in a phase, and S2MM 0 of tile (0,0) receives 63";
    assert_eq!(error.to_string(), message);
}

#[test]
fn limits_have_numbers() {
    let design = through_mem_tile();
    let mut dispatch = design.configured.dispatch();
    let part = Part::linear(design.ring, 1);
    let message = |result: Result<&mut Dispatch<'_>, ArrayError>| result.map(drop).unwrap_err().to_string();
    let tasks = "S2MM 0 of tile (0,1) needs 5 tasks in one phase: it queues 4";
    assert_eq!(message(dispatch.run(ARRIVES, std::slice::from_ref(&part), 1025)), tasks);
    let mut dispatch = design.configured.dispatch();
    let many = vec![part.clone(); 23];
    dispatch.run(LEAVES, &many, 1).unwrap();
    let descriptors = "MM2S 1 of tile (0,1) needs 2 more buffer descriptors: its tile has 1 left for it of 24";
    assert_eq!(message(dispatch.run(LEAVES, &[part.clone(), part.clone()], 1)), descriptors);
    let beyond = Part::linear(Ring { address: 0x7_FF00, ..design.ring }, 1);
    let memory = "bytes 0x7ff00..0x80100 of tile (0,1): it has 0x80000";
    assert_eq!(message(dispatch.run(ARRIVES, &[beyond], 1)), memory);
    for (depth, address, message_of_it) in [
        (0, 0, "the number of buffers of a ring is 0: it has to be 1 to 63"),
        (64, 0, "the number of buffers of a ring is 64: it has to be 1 to 63"),
        (2, 6, "the address of a ring is 6, no multiple of 4"),
    ] {
        let bad = Part::linear(Ring { depth, address, ..design.ring }, 1);
        assert_eq!(message(dispatch.run(ARRIVES, &[bad], 1)), message_of_it);
    }
    let endless = Part::strided(design.ring, 0, &[Dimension::new(u64::MAX, u64::MAX)]);
    let end = format!("the end of what a channel moves in a buffer is {}: it has to be 4 to 256", u64::MAX);
    assert_eq!(message(dispatch.run(ARRIVES, &[endless], 1)), end);
    let unconnected = "MM2S 0 of tile (0,1) has no stream";
    assert_eq!(message(dispatch.run(Channel::send(MEM, 0), std::slice::from_ref(&part), 1)), unconnected);
    assert_eq!(message(dispatch.run(SOURCE, &[part], 1)), "tile (0,0) is no core or mem tile");
    assert_eq!(message(dispatch.transfer(ARRIVES, &Region::linear(0, 0, 4))), "tile (0,1) is no shim tile");
    assert_eq!(message(dispatch.start(CORE, &[])), "core (0,2) has no parameter block");
    let outside = "bytes 0x7fffc..0x80004 of tile (0,1): it has 0x80000";
    assert_eq!(message(dispatch.write(MEM, 0x7_FFFC, &[1, 2])), outside);
    assert_eq!(message(dispatch.lock(MEM, 0, 64)), "value of a lock: expected -64 to 63, found 64");
    let design = Elements::new(&aie2(), 1, &adder(), &[]).unwrap();
    let mut dispatch = design.configured().dispatch();
    let parameters = "the number of parameters is 257: it has to be 0 to 256";
    assert_eq!(message(dispatch.start(CORE, &[0; 257])), parameters);
    let ring = Ring { tile: CORE, address: 0xBFF8, stride: 12, depth: 1, capacity: 12, empty: 0, full: 1 };
    let overlap = "bytes 0xbff8..0xc004 of tile (0,2) are in use from 0xc000 to 0xc400";
    assert_eq!(message(dispatch.run(Channel::receive(CORE, 0), &[Part::linear(ring, 1)], 1)), overlap);
}

/// A region in five dimensions, as a permuted tensor has them.
#[test]
fn permuted_tensors_are_read() {
    let design = through_mem_tile();
    let sizes = [4u64, 3, 5, 2, 3];
    // In memory the dimensions lie in another order.
    let order = [3usize, 0, 4, 2, 1];
    let mut steps = [0; 5];
    let mut step = 1;
    for dimension in order {
        steps[dimension] = step;
        step *= sizes[dimension];
    }
    let words = step;
    let dimensions = sizes.into_iter().zip(steps).map(|(size, step)| Dimension::new(size, step)).collect();
    let mut dispatch = design.run(words / 20, 20);
    dispatch.transfer(SOURCE, &Region { argument: 0, offset: 0, dimensions }).unwrap();
    dispatch.transfer(RESULT, &Region::linear(1, 0, 4 * words)).unwrap();
    let expected: Vec<u32> = (0..words)
        .map(|mut index| {
            let mut word = 0;
            for (size, step) in sizes.into_iter().zip(steps) {
                word += index % size * step;
                index /= size;
            }
            word as u32
        })
        .collect();
    let mut buffers = [(0..words as u32).collect(), vec![0; words as usize]];
    Device::of(&design.configured).dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
    assert_eq!(buffers[1], expected);
}

/// What a stream writes to the locks of the mem tile.
fn lock_writes(bytes: &[u8]) -> Vec<(u32, u32)> {
    let stream = InstructionStream::parse(bytes).unwrap();
    let lock = |operation| match operation {
        Instruction::Write { address, value } => {
            let (_, row, offset) = tile_location(address as u32);
            (row == 1 && offset >= 0xC_0000).then(|| ((offset - 0xC_0000) / 0x10, value))
        }
        _ => None,
    };
    stream.operations().filter_map(lock).collect()
}

/// A dispatch leaves locks as it found them, and writes only those that it needs otherwise.
#[test]
fn locks_are_written_where_rings_are_cut_differently() {
    let design = through_mem_tile();
    let dispatch = |ring: Ring, keep: bool| {
        let mut dispatch = design.configured.dispatch();
        dispatch.run(ARRIVES, &[Part::linear(ring, 2)], 2).unwrap();
        dispatch.run(LEAVES, &[Part { release: !keep, ..Part::linear(ring, 2) }], 2).unwrap();
        dispatch.transfer(SOURCE, &Region::linear(0, 0, 16)).unwrap();
        dispatch.transfer(RESULT, &Region::linear(1, 0, 16)).unwrap();
        dispatch.finish().unwrap()
    };
    let cut = design.ring.cut(8, 5).unwrap();
    let streams = [(design.ring, false), (design.ring, true), (cut, false), (cut, true)].map(|(r, k)| dispatch(r, k));
    assert_eq!(lock_writes(&streams[0]), []);
    // Nothing hands the buffers back: the locks are restored at the end.
    assert_eq!(lock_writes(&streams[1]), [(0, 2), (1, 0)]);
    assert_eq!(lock_writes(&streams[2]), [(0, 5), (0, 2)]);
    assert_eq!(lock_writes(&streams[3]), [(0, 5), (0, 2), (1, 0)]);
    let mut device = Device::of(&design.configured);
    for stream in &streams {
        let mut buffers = [vec![1, 2, 3, 4], vec![0; 4]];
        device.dispatch(stream, &mut buffers).unwrap();
        assert_eq!(buffers[1], [1, 2, 3, 4]);
        assert_eq!(device.locks(MEM, 2), [2, 0]);
    }
}
