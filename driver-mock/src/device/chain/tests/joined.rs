//! Neighbours with one PDI: what they compute together is what they compute apart.

use super::rig;
use aie_conformance::Rig;
use aie_conformance::compiled::{self, BLOCK_WORDS, ByFirstByte};
use aie_conformance::rig::{contents, part, pattern, record, table, whole};
use aie_hal::format::instructions::{Instruction, InstructionStream, InstructionWriter};
use aie_hal::{BindingTable, Buffer, BufferRef, CommandList, CommandListBuilder, Executable};
use rstest::rstest;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a block.
const BLOCK: usize = 4 * BLOCK_WORDS;
const BLOCKS: usize = 12;

fn add(rig: &Rig, addend: u8, blocks: usize) -> Arc<dyn Executable> {
    rig.device.load_executable(&compiled::add(rig.device.arch(), addend, blocks)).unwrap()
}

/// What the words of a block become.
fn plus(bytes: &[u8], addend: u32) -> Vec<u8> {
    let (words, _) = bytes.as_chunks();
    words.iter().flat_map(|word| u32::from_le_bytes(*word).wrapping_add(addend).to_le_bytes()).collect()
}

/// Sums of blocks of a buffer, or of the one in slot 0, in other blocks of it.
#[derive(Clone, Debug)]
struct Sum {
    addend: u8,
    blocks: usize,
    from: usize,
    to: usize,
    in_slot: bool,
    barrier: bool,
}

impl Sum {
    fn random(random: &mut fastrand::Rng) -> Self {
        let blocks = random.usize(1..=3);
        let half = BLOCKS / 2;
        // What is read and what is written are halves, or a part in place.
        let from = random.usize(0..=half - blocks);
        let to = if random.bool() { from } else { half + random.usize(0..=half - blocks) };
        Self { addend: random.u8(1..=2), blocks, from, to, in_slot: random.bool(), barrier: true }
    }

    fn range(&self, first: usize) -> Range<usize> {
        first * BLOCK..(first + self.blocks) * BLOCK
    }
}

fn list(
    sums: &[Sum],
    kernels: &[[Arc<dyn Executable>; 3]; 2],
    buffer: &Arc<dyn Buffer>,
    apart: bool,
) -> Arc<CommandList> {
    record(|list| {
        if apart {
            list.keep_apart();
        }
        for sum in sums {
            let [from, to] = [sum.from, sum.to].map(|first| {
                let range = sum.range(first);
                match sum.in_slot {
                    true => BufferRef::slot(0, range.start, range.len()),
                    false => part(buffer, range.start, range.len()),
                }
            });
            let kernel = &kernels[usize::from(sum.addend - 1)][sum.blocks - 1];
            list.dispatch(kernel, vec![from, to])?;
            if sum.barrier {
                list.barrier();
            }
        }
        Ok(list)
    })
}

/// Lists of sums with two PDIs, in a buffer and in a slot: joined, apart, and computed on the host.
#[rstest]
fn joined_dispatches_compute_what_they_compute_apart(
    #[values("mock:aie2", "mock:aie2p?coherent=false", "mock:aie2?order=reverse")] uri: &str,
) {
    let rig = rig(uri);
    let kernels = [1, 2].map(|addend| [1, 2, 3].map(|blocks| add(&rig, addend, blocks)));
    let mut random = fastrand::Rng::with_seed(7);
    for seed in 0..12 {
        let sums: Vec<Sum> = (0..random.usize(2..9)).map(|_| Sum::random(&mut random)).collect();
        let start = [1, 2].map(|part| pattern(BLOCKS * BLOCK, 2 * seed + part));
        let mut expected = start.clone();
        for sum in &sums {
            let memory = &mut expected[usize::from(sum.in_slot)];
            let result = plus(&memory[sum.range(sum.from)], sum.addend.into());
            memory[sum.range(sum.to)].copy_from_slice(&result);
        }
        let mut invalidated = Vec::new();
        for apart in [false, true] {
            let buffers = start.each_ref().map(|bytes| rig.buffer(bytes));
            let list = list(&sums, &kernels, &buffers[0], apart);
            let before = rig.device.counters();
            let bindings = if list.slots() == 0 { BindingTable::default() } else { table(&[&buffers[1]]) };
            rig.run_with(&list, bindings);
            let after = rig.device.counters();
            assert_eq!(buffers.each_ref().map(contents), expected, "{sums:?}");
            assert_eq!(after.dispatches - before.dispatches, sums.len() as u64);
            let runs = sums.chunk_by(|a, b| a.addend == b.addend).count();
            let joined = if apart { 0 } else { sums.len() - runs };
            assert_eq!(after.joined - before.joined, joined as u64, "{sums:?}");
            invalidated.push(after.bytes_invalidated - before.bytes_invalidated);
        }
        assert_eq!(invalidated[0], invalidated[1]);
    }
}

/// What is between two barriers has no order: those of a PDI are put next to each other, where the dispatch before or behind has it too.
#[test]
fn between_barriers_those_of_one_pdi_become_neighbours() {
    let rig = rig("mock:aie2");
    let [one, two] = [1, 2].map(|addend| add(&rig, addend, 1));
    let buffer = rig.zeroed(8 * BLOCK);
    let at = |index: usize| part(&buffer, index * BLOCK, BLOCK);
    rig.run(&record(|list| {
        list.dispatch(&one, vec![at(0), at(1)])?.barrier();
        list.dispatch(&two, vec![at(1), at(2)])?;
        list.dispatch(&one, vec![at(1), at(3)])?;
        list.dispatch(&two, vec![at(1), at(4)])?;
        list.dispatch(&one, vec![at(1), at(5)])?.barrier();
        list.dispatch(&two, vec![at(2), at(6)])
    }));
    let counters = rig.device.counters();
    assert_eq!((counters.dispatches, counters.joined), (6, 4));
    let firsts: Vec<u8> = contents(&buffer).chunks(BLOCK).map(|block| block[0]).collect();
    assert_eq!(firsts, [0, 1, 3, 2, 3, 2, 5, 0]);
}

/// A host call sees what was joined before it.
#[rstest]
fn what_the_host_sees_is_complete(#[values("mock:aie2", "mock:aie2?coherent=false")] uri: &str) {
    let rig = rig(uri);
    let one = add(&rig, 1, 1);
    let buffer = rig.zeroed(4 * BLOCK);
    let at = |index: usize| part(&buffer, index * BLOCK, BLOCK);
    let double = aie_hal::host_function::from_fn("double", 1, |inputs, output| {
        output.iter_mut().zip(inputs[0]).for_each(|(to, from)| *to = 2 * from);
        Ok(())
    });
    rig.run(&record(|list| {
        list.dispatch(&one, vec![at(0), at(1)])?.barrier();
        list.dispatch(&one, vec![at(1), at(2)])?.barrier();
        list.host_call(&double, vec![at(2)], at(3))?.barrier();
        list.dispatch(&one, vec![at(3), at(0)])?.barrier();
        list.dispatch(&one, vec![at(0), at(0)])
    }));
    let firsts: Vec<u8> = contents(&buffer).chunks(BLOCK).map(|block| block[0]).collect();
    assert_eq!(firsts, [6, 1, 2, 4]);
    let counters = rig.device.counters();
    assert_eq!((counters.joined, counters.chains), (2, 2));
}

/// 100 dispatches of two arguments are three chains apart, and one of a few dispatches joined.
#[test]
fn joined_dispatches_take_one_place_in_a_chain() {
    let rig = rig("mock:aie2");
    let (one, buffer) = (add(&rig, 1, 1), rig.zeroed(BLOCK));
    for (apart, chains) in [(true, 3), (false, 1)] {
        let before = rig.device.counters().chains;
        let list = record(|list| {
            if apart {
                list.keep_apart();
            }
            for _ in 1..100 {
                list.dispatch(&one, vec![whole(&buffer), whole(&buffer)])?.barrier();
            }
            list.dispatch(&one, vec![whole(&buffer), whole(&buffer)])
        });
        rig.run(&list);
        assert_eq!(rig.device.counters().chains - before, chains);
    }
    assert_eq!(contents(&buffer)[0], 200);
}

/// A stream for the data at hand is a part like any other, made again for each replay.
#[rstest]
fn streams_for_the_data_at_hand_are_joined(#[values("mock:aie2", "mock:aie2?coherent=false")] uri: &str) {
    let rig = rig(uri);
    let artifact = compiled::add_as_many(rig.device.arch(), 1, 2);
    let (rows, one) = (rig.device.load_executable(&artifact).unwrap(), add(&rig, 1, 1));
    let count = rig.buffer(&[[1; BLOCK], [0; BLOCK]].concat());
    let buffer = rig.zeroed(5 * BLOCK);
    let at = |index: usize, blocks: usize| part(&buffer, index * BLOCK, blocks * BLOCK);
    let list = record(|list| {
        list.dispatch(&one, vec![at(0, 1), at(0, 1)])?.barrier();
        list.dispatch(&rows, vec![whole(&count), at(1, 2)])?.barrier();
        list.dispatch(&one, vec![at(1, 1), at(3, 1)])
    });
    let firsts = || -> Vec<u8> { contents(&buffer).chunks(BLOCK).map(|block| block[0]).collect() };
    rig.run(&list);
    assert_eq!(firsts(), [1, 2, 0, 3, 0]);
    aie_conformance::rig::store(&count, 0, &[2]);
    rig.run(&list);
    assert_eq!(firsts(), [2, 3, 1, 4, 0]);
    let counters = rig.device.counters();
    assert_eq!((counters.dispatches, counters.joined, counters.chains), (6, 4, 2));
    aie_conformance::rig::store(&count, 0, &[3]);
    let failure = rig.run_to_failure(&list).to_string();
    assert!(failure.contains("(command 2)") && failure.contains("no such number of blocks"), "{failure}");
}

/// What was joined is not joined again: a replay changes the bytes of the part that depends on data, however long the stream is.
#[rstest]
fn a_replay_changes_what_depends_on_data(#[values(1, 40)] neighbours: usize) {
    let rig = rig("mock:aie2");
    let mut streams: Vec<Vec<u8>> =
        (1..=2).map(|blocks| compiled::add(rig.device.arch(), 1, blocks).instructions().to_vec()).collect();
    // A stream that does not fit where the others were.
    let longer = InstructionStream::parse(&streams[0]).unwrap();
    let mut writer = InstructionWriter::new(longer.header());
    writer.push(&Instruction::Noop);
    longer.operations().for_each(|operation| {
        writer.push(&operation);
    });
    let (longer, piece) = (writer.finish().unwrap(), streams[0].len() as u64 - 16);
    streams.push(longer);
    let artifact = compiled::add(rig.device.arch(), 1, 2).with_stream_maker(Arc::new(ByFirstByte(streams)));
    let (rows, one) = (rig.device.load_executable(&artifact).unwrap(), add(&rig, 1, 1));
    let count = rig.buffer(&[[1; BLOCK], [0; BLOCK]].concat());
    let buffer = rig.zeroed(3 * BLOCK);
    let at = |index: usize, blocks: usize| part(&buffer, index * BLOCK, blocks * BLOCK);
    let list = record(|list| {
        list.dispatch(&rows, vec![whole(&count), at(1, 2)])?;
        for _ in 0..neighbours {
            list.barrier();
            list.dispatch(&one, vec![at(1, 1), at(1, 1)])?;
        }
        Ok(list)
    });
    let mut whole_stream = 0;
    for (run, (number, expected)) in
        [(1, None), (1, Some(0)), (2, Some(piece)), (1, Some(piece)), (3, None), (3, Some(0))].iter().enumerate()
    {
        aie_conformance::rig::store(&count, 0, &[*number]);
        aie_conformance::rig::store(&buffer, 2 * BLOCK, &[9]);
        let before = rig.device.counters();
        rig.run(&list);
        let after = rig.device.counters();
        assert_eq!(after.joined - before.joined, neighbours as u64);
        let found = contents(&buffer);
        let second = if *number == 2 { 1 } else { 9 };
        assert_eq!((found[BLOCK], found[2 * BLOCK]), (number + 1 + neighbours as u8, second), "run {run}");
        let bytes = after.stream_bytes - before.stream_bytes;
        match expected {
            Some(expected) => assert_eq!(bytes, *expected, "run {run}"),
            None => {
                // Neighbours after the first write no descriptor, as each has what it needs.
                assert!(bytes > 2 * piece && bytes > whole_stream, "run {run}: {bytes}");
                whole_stream = bytes;
            }
        }
    }
}

/// What the data at hand decides is not read before a neighbour has written it.
#[test]
fn a_stream_for_what_a_neighbour_writes_waits_for_it() {
    let rig = rig("mock:aie2");
    let artifact = compiled::add_as_many(rig.device.arch(), 1, 2);
    let (rows, one) = (rig.device.load_executable(&artifact).unwrap(), add(&rig, 1, 1));
    let (count, target) = (rig.buffer(&[[1; BLOCK], [0; BLOCK]].concat()), rig.zeroed(2 * BLOCK));
    rig.run(&record(|list| {
        list.dispatch(&one, vec![part(&count, 0, BLOCK), part(&count, 0, BLOCK)])?.barrier();
        list.dispatch(&rows, vec![whole(&count), whole(&target)])
    }));
    assert_eq!((contents(&target)[0], contents(&target)[BLOCK]), (3, 1));
    assert_eq!((rig.device.counters().joined, rig.device.counters().chains), (0, 2));
}

/// Sums of blocks whose sources may run ahead if `ahead`, of blocks `from` in slot 0 to blocks `to` in slot 1. Gives what is in the slots then,
/// and the time of each run: apart, and with one memory for both.
fn sums(ahead: bool, moves: &[(usize, usize)]) -> (Vec<Vec<u8>>, [u64; 2]) {
    let rig = rig("mock:aie2");
    let artifact = compiled::add(rig.device.arch(), 1, 1);
    let artifact = if ahead { artifact.with_ahead([compiled::AHEAD]) } else { artifact };
    let kernel = rig.device.load_executable(&artifact).unwrap();
    let list = record(|list| {
        for (from, to) in moves {
            let [from, to] = [(0, from), (1, to)].map(|(slot, block)| BufferRef::slot(slot, block * BLOCK, BLOCK));
            list.dispatch(&kernel, vec![from, to])?.barrier();
        }
        Ok(list)
    });
    let [source, result, both] = [1, 2, 3].map(|seed| rig.buffer(&pattern(8 * BLOCK, seed)));
    let times = [[&source, &result], [&both, &both]].map(|bound| {
        let before = rig.device.counters().virtual_ns;
        rig.run_with(&list, table(&bound));
        rig.device.counters().virtual_ns - before
    });
    assert_eq!(rig.device.counters().joined, 2 * (moves.len() as u64 - 1));
    ([source, result, both].iter().map(contents).collect(), times)
}

/// The same list may be run with memory that a part writes, and with such that none does.
#[test]
fn only_what_no_part_writes_runs_ahead() {
    let independent = [(0, 4), (1, 5), (2, 6), (3, 7)];
    let [(expected, [slow, slow_too]), (found, [fast, fast_too])] =
        [false, true].map(|ahead| sums(ahead, &independent));
    assert_eq!(found, expected);
    assert!(fast < slow && fast_too < slow_too, "{fast} {slow} {fast_too} {slow_too}");
    // Each reads what the one before writes, where both slots are one memory.
    let chained = [(0, 1), (1, 2), (2, 3), (3, 4)];
    let [(expected, [slow, slow_too]), (found, [fast, fast_too])] = [false, true].map(|ahead| sums(ahead, &chained));
    assert_eq!(found, expected);
    assert!(fast < slow && fast_too == slow_too, "{fast} {slow} {fast_too} {slow_too}");
}

fn three(rig: &Rig, buffer: &Arc<dyn Buffer>) -> Arc<CommandList> {
    let one = add(rig, 1, 1);
    let at = |index: usize| part(buffer, 2 * index * BLOCK, BLOCK);
    let sums = |list: &mut CommandListBuilder| -> Result<(), aie_hal::command_list::RecordError> {
        for index in 0..3 {
            list.dispatch(&one, vec![at(index), at(index + 1)])?.barrier();
        }
        Ok(())
    };
    record(|list| sums(list).map(|()| list))
}

#[rstest]
#[case::timeout(
    "timeout@1",
    "timeout: dispatch of `add_1_1`, `add_1_1`, `add_1_1` joined (commands 0 to 4) never signalled"
)]
#[case::lost(
    "lost@1",
    "device lost: at the dispatch of `add_1_1`, `add_1_1`, `add_1_1` joined (commands 0 to 4), as its fault"
)]
fn a_failure_names_all_that_were_joined(#[case] fault: &str, #[case] expected: &str) {
    let rig = rig(&format!("mock:aie2?fault={fault}"));
    let buffer = rig.zeroed(7 * BLOCK);
    let failure = rig.run_to_failure(&three(&rig, &buffer)).to_string();
    assert!(failure.starts_with(expected), "{failure}");
    assert_eq!((rig.device.counters().dispatches, rig.device.counters().joined), (3, 2));
}

/// The first of two joined dispatches never signals: the failure is one of both, and what comes behind has not run.
#[test]
fn a_joined_stream_that_hangs_times_out() {
    let rig = rig("mock:aie2?cycles=20000");
    let (one, hangs) = (compiled::add(rig.device.arch(), 1, 1), compiled::add(rig.device.arch(), 1, 2));
    // It waits for two blocks and is given one.
    let stream = hangs.instructions().to_vec();
    let given = compiled::add(rig.device.arch(), 1, 1).instructions().to_vec();
    let input = given.len().min(stream.len());
    assert_eq!(input, stream.len(), "the same operations, with other lengths");
    // The first block write is that of the input.
    let mixed = [&given[..16 + 48], &stream[16 + 48..]].concat();
    let hangs = rig.device.load_executable(&hangs.with_instructions(mixed).unwrap()).unwrap();
    let one = rig.device.load_executable(&one).unwrap();
    let buffer = rig.zeroed(6 * BLOCK);
    let at = |index: usize, blocks: usize| part(&buffer, index * BLOCK, blocks * BLOCK);
    let failure = rig.run_to_failure(&record(|list| {
        list.dispatch(&hangs, vec![at(0, 2), at(2, 2)])?.barrier();
        list.dispatch(&one, vec![at(4, 1), at(5, 1)])
    }));
    let failure = failure.to_string();
    assert!(failure.starts_with("timeout: dispatch of `add_1_2`, `add_1_1` joined (commands 0 to 2)"), "{failure}");
    assert_eq!(contents(&buffer)[5 * BLOCK], 0);
    rig.run(&record(|list| list.dispatch(&one, vec![at(4, 1), at(5, 1)])));
    assert_eq!(contents(&buffer)[5 * BLOCK], 1);
}

/// Nonsense and zeros are in what the parts write, and not in what is between it.
#[rstest]
#[case::garbage("garbage@1")]
#[case::zero("zero@1")]
fn faults_stay_in_the_results(#[case] fault: &str) {
    let rig = rig(&format!("mock:aie2?fault={fault}"));
    let bytes = pattern(7 * BLOCK, 3);
    let buffer = rig.buffer(&bytes);
    rig.run(&three(&rig, &buffer));
    let found = contents(&buffer);
    for block in 0..7 {
        let range = block * BLOCK..(block + 1) * BLOCK;
        let kept = found[range.clone()] == bytes[range];
        assert_eq!(kept, block % 2 == 1 || block == 0, "block {block}");
    }
}

/// A stream that leaves its own part is caught, although the memory is an argument.
#[test]
fn a_part_stays_in_its_own_memory() {
    let rig = rig("mock:aie2");
    let (one, two) = (add(&rig, 1, 1), add(&rig, 1, 2));
    let buffer = rig.zeroed(8 * BLOCK);
    let at = |index: usize, blocks: usize| part(&buffer, index * BLOCK, blocks * BLOCK);
    let failure = rig.run_to_failure(&record(|list| {
        // Two blocks, of which the dispatch has one.
        list.dispatch(&two, vec![at(0, 2), at(4, 1)])?.barrier();
        list.dispatch(&one, vec![at(2, 1), at(7, 1)])
    }));
    let failure = failure.to_string();
    assert!(failure.contains("which no part of the dispatch writes"), "{failure}");
}

/// Streams of equal layers are one in the device heap, and go with the list.
#[test]
fn joined_streams_are_shared_and_released_with_their_list() {
    let rig = rig("mock:aie2?heap=64K");
    let one = add(&rig, 1, 1);
    let buffer = rig.zeroed(64 * BLOCK);
    // Pages of the heap that are free.
    let free = || {
        let page = aie_hal::BufferParams { size: 4096, alignment: 64, pool: aie_hal::buffer::MemoryPool::DeviceHeap };
        let mut pages = Vec::new();
        while let Ok(page) = rig.device.allocate(&page) {
            pages.push(page);
        }
        pages.len()
    };
    let layers = |count: usize| {
        record(|list| {
            for layer in 0..count {
                let at = |index: usize| part(&buffer, (4 * layer + index) * BLOCK, BLOCK);
                list.dispatch(&one, vec![at(0), at(1)])?.barrier();
                list.dispatch(&one, vec![at(1), at(2)])?.barrier();
                // Ends what is joined.
                list.fill(&[0], at(3))?.barrier();
            }
            Ok(list)
        })
    };
    let before = free();
    let list = layers(8);
    rig.run(&list);
    assert_eq!(rig.device.counters().joined, 8);
    assert_eq!(free(), before - 1, "one stream for all layers");
    drop(list);
    assert_eq!(free(), before);
}

/// Without room in the heap they stay apart.
#[test]
fn a_full_heap_keeps_dispatches_apart() {
    let rig = rig("mock:aie2?heap=16K");
    let (one, buffer) = (add(&rig, 1, 1), rig.zeroed(BLOCK));
    let page = aie_hal::BufferParams { size: 4096, alignment: 64, pool: aie_hal::buffer::MemoryPool::DeviceHeap };
    let pages: Vec<_> = std::iter::from_fn(|| rig.device.allocate(&page).ok()).collect();
    rig.run(&record(|list| {
        list.dispatch(&one, vec![whole(&buffer), whole(&buffer)])?.barrier();
        list.dispatch(&one, vec![whole(&buffer), whole(&buffer)])
    }));
    assert_eq!((contents(&buffer)[0], rig.device.counters().joined, pages.is_empty()), (2, 0, false));
}
