//! Chains on the emulator and in registers, and what a dispatch may not do to them.

use super::super::testing::{Device, aie2};
use super::super::{ArrayProgram, Configured, Dimension, Dispatch, Region, Ring, Tile};
use super::*;
use aie_hal::format::bd::MemTileBd;
use aie_hal::format::instructions::{AheadChannel, KeptMemory};
use rstest::rstest;

const SHIM: Tile = Tile::new(0, 0);
const MEM: Tile = Tile::new(0, 1);
const ARRIVES: Channel = Channel::receive(MEM, 0);
const LEAVES: [Channel; 2] = [Channel::send(MEM, 0), Channel::send(MEM, 1)];
const SOURCE: Channel = Channel::send(SHIM, 0);
const RESULTS: [Channel; 2] = [Channel::receive(SHIM, 0), Channel::receive(SHIM, 1)];

/// Words of a buffer of each ring, and how many buffers it has.
const WORDS: u64 = 16;
const DEPTHS: [u8; 2] = [2, 3];
/// Buffers of each ring in a turn of what fills them.
const ROUNDS: u64 = 6;
const TURN: u64 = 2 * ROUNDS * WORDS;

struct Split {
    configured: Configured,
    rings: [Ring; 2],
}

/// The shim's memory through two rings of the mem tile and back, over chains alone.
fn split() -> Split {
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    let rings = DEPTHS.map(|depth| array.ring(MEM, None, 4 * WORDS as u32, depth).unwrap());
    let parts = rings.map(|ring| Part::linear(ring, WORDS));
    array.chain(ARRIVES, &parts).unwrap();
    array.stream(SOURCE, [ARRIVES]).unwrap();
    for ((leaves, result), part) in LEAVES.into_iter().zip(RESULTS).zip(parts) {
        array.chain(leaves, &[part]).unwrap();
        array.stream(leaves, [result]).unwrap();
        array.tokens(result).unwrap();
    }
    Split { configured: array.finish().unwrap(), rings }
}

impl Split {
    /// A dispatch of so many words.
    fn pass(&self, words: u64) -> Result<Vec<u8>, ArrayError> {
        let mut dispatch = self.configured.dispatch();
        dispatch.transfer(SOURCE, &Region::linear(0, 0, 4 * words))?;
        for (argument, result) in RESULTS.into_iter().enumerate() {
            dispatch.transfer(result, &Region::linear(1 + argument as u16, 0, 2 * words))?;
        }
        dispatch.finish()
    }
}

/// Dispatches follow each other, and each finds the chains at their first buffers.
#[test]
fn chains_stay_from_dispatch_to_dispatch() {
    let split = split();
    let mut device = Device::of(&split.configured);
    // What arrives first has its buffer already, before any word has come.
    let locks = || [1, 0, 3, 0];
    assert_eq!(device.locks(MEM, 4), locks());
    for turns in [1, 3, 2] {
        let words = turns * TURN;
        let source: Vec<u32> = (0..words as u32).map(|word| word + 1000 * turns as u32).collect();
        let half = |first: usize| -> Vec<u32> {
            source.chunks(WORDS as usize).skip(first).step_by(2).flatten().copied().collect()
        };
        let expected = [half(0), half(1)];
        let mut buffers = [source.clone(), vec![0; words as usize / 2], vec![0; words as usize / 2]];
        device.dispatch(&split.pass(words).unwrap(), &mut buffers).unwrap();
        assert_eq!(buffers[1..], expected, "{turns} turns");
        assert_eq!(device.locks(MEM, 4), locks());
    }
}

/// What runs ahead waits in chains, up to the cores: nothing else is in its way.
#[test]
fn only_what_goes_through_chains_runs_ahead() {
    let finished = |channel, chains: &[Channel]| {
        let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
        let core = Tile::new(0, 2);
        let (passed, taken) = (array.ring(MEM, None, 64, 2).unwrap(), array.ring(core, None, 64, 2).unwrap());
        let rings = [(ARRIVES, passed), (LEAVES[0], passed), (Channel::receive(core, 0), taken)];
        for (channel, ring) in rings.into_iter().filter(|(channel, _)| chains.contains(channel)) {
            array.chain(channel, &[Part::linear(ring, WORDS)])?;
        }
        array.stream(SOURCE, [ARRIVES])?;
        array.stream(LEAVES[0], [Channel::receive(core, 0)])?;
        array.run_ahead(channel, RESULTS[0])?;
        array.finish().map(|configured| configured.ahead().to_vec())
    };
    let all = [ARRIVES, LEAVES[0], Channel::receive(Tile::new(0, 2), 0)];
    let expected =
        AheadChannel { column: 0, channel: 0, packet: None, first_descriptor: 8, descriptors: 4, results: 0 };
    assert_eq!(finished(SOURCE, &all), Ok(vec![expected]));
    for missing in 0..3 {
        let others: Vec<Channel> = all.iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, c)| *c).collect();
        assert_eq!(finished(SOURCE, &others), Err(ArrayError::Ahead(SOURCE.into())));
    }
    assert_eq!(finished(RESULTS[0], &all), Err(ArrayError::Ahead(RESULTS[0].into())));
    assert!(matches!(finished(LEAVES[0], &all), Err(ArrayError::Kind { .. })));
}

/// Memory that nothing but streams writes is of no chain, and no task goes through it.
#[test]
fn kept_memory_is_of_no_channel() {
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    let core = Tile::new(0, 2);
    let (arrives, part) = (Channel::receive(core, 0), Part::linear(array.ring(core, Some(0), 64, 2).unwrap(), WORDS));
    array.stream(SOURCE, [arrives]).unwrap();
    array.keep(core, 64, 64).unwrap();
    assert!(matches!(array.keep(core, 0xFFFC, 8), Err(ArrayError::Memory { .. })));
    assert!(matches!(array.keep(MEM, 0, 8), Err(ArrayError::Kind { .. })));
    let mut chained = array.clone();
    chained.chain(arrives, std::slice::from_ref(&part)).unwrap();
    assert!(matches!(chained.finish(), Err(ArrayError::Overlap { .. })));
    let configured = array.finish().unwrap();
    assert_eq!(configured.kept(), [KeptMemory { column: 0, row: 2, offset: 64, bytes: 64 }]);
    let error = configured.dispatch().run(arrives, &[part], 1).unwrap_err();
    assert!(matches!(error, ArrayError::Overlap { .. }), "{error}");
}

/// Each descriptor has its buffer, and the last one leads back to the first.
#[test]
fn there_is_a_descriptor_for_each_buffer() {
    let split = split();
    let chain = split.configured.chain(ARRIVES).unwrap();
    assert_eq!((chain.first, chain.descriptors.len(), chain.rounds(), chain.turn()), (0, 12, ROUNDS, TURN));
    let bds = chain.descriptors.iter().map(|(_, words)| MemTileBd::decode(words.as_slice().try_into().unwrap()));
    for (number, bd) in (0..).zip(bds) {
        let (ring, slot) = (split.rings[number as usize % 2], number / 2 % u32::from(DEPTHS[number as usize % 2]));
        assert_eq!((bd.use_next, bd.next), (true, (number + 1) % 12));
        assert_eq!(bd.address, MemTileBd::OWN_MEMORY + (ring.address + slot * ring.stride) / 4);
        assert_eq!((bd.acquire, bd.acquire_lock, bd.acquire_value), (true, 64 + u32::from(ring.empty), -1));
        assert_eq!((bd.release_lock, bd.release_value), (64 + u32::from(ring.full), 1));
        assert_eq!((bd.length, bd.iteration_wrap, bd.iteration, bd.valid), (WORDS as u32, 1, 0, true));
    }
    let firsts = LEAVES.map(|channel| split.configured.chain(channel).unwrap().first);
    assert_eq!(firsts, [12, 24]);
}

/// What is not a whole turn would leave the next dispatch in the middle of one.
#[rstest]
#[case(TURN / 2, "S2MM 0 of tile (0,1) moves 96 words in a phase: its chain has turns of 192 words, and has to end where it began")]
#[case(TURN + 2, "S2MM 0 of tile (0,1) moves 194 words in a phase: its chain has turns of 192 words, and has to end where it began")]
fn dispatches_are_whole_turns(#[case] words: u64, #[case] message: &str) {
    assert_eq!(split().pass(words).unwrap_err().to_string(), message);
}

/// What comes out of a chain is what went into the one on the other side of its ring.
#[test]
fn what_leaves_a_ring_is_what_has_arrived() {
    let split = split();
    let transfers = |words: [u64; 3]| {
        let mut dispatch = split.configured.dispatch();
        for ((channel, argument), words) in [(SOURCE, 0), (RESULTS[0], 1), (RESULTS[1], 2)].into_iter().zip(words) {
            dispatch.transfer(channel, &Region::linear(argument, 0, 4 * words)).unwrap();
        }
        dispatch.finish().map_err(|error| error.to_string())
    };
    assert!(transfers([2 * TURN, TURN, TURN]).is_ok());
    for words in
        [[2 * TURN, TURN, TURN / 2], [2 * TURN, TURN / 2, TURN], [TURN, TURN, TURN], [0, TURN, TURN], [TURN, 0, 0]]
    {
        let error = transfers(words).unwrap_err();
        assert!(error.contains(" words in a phase, and ") || error.contains("turns of"), "{error}");
    }
}

type Step = fn(&Split, &mut Dispatch<'_>) -> Result<(), ArrayError>;

const OWNED: &str = "S2MM 0 of tile (0,1) has a chain that the configuration starts: it takes no task, and its rings and locks are for it alone";

#[rstest]
#[case::task(|split: &Split, d: &mut Dispatch<'_>| d.run(ARRIVES, &[Part::linear(split.rings[0], WORDS)], 1).map(drop), OWNED)]
#[case::lock(|_: &Split, d: &mut Dispatch<'_>| d.lock(MEM, 0, 1).map(drop), OWNED)]
#[case::memory(
    |_: &Split, d: &mut Dispatch<'_>| d.write(MEM, 0x7C, &[0; 2]).map(drop),
    "bytes 0x7c..0x84 of tile (0,1) are in use from 0x0 to 0x80"
)]
fn dispatches_leave_chains_alone(#[case] step: Step, #[case] message: &str) {
    let split = split();
    assert_eq!(step(&split, &mut split.configured.dispatch()).unwrap_err().to_string(), message);
}

/// A channel without a chain beside those with one: it has other descriptors, and neither their rings nor their locks.
#[test]
fn tasks_beside_chains_have_descriptors_of_their_own() {
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    let [chained, pushed] = [0, 1].map(|_| array.ring(MEM, None, 64, 2).unwrap());
    let [arrives, leaves] = [Channel::receive(MEM, 2), Channel::send(MEM, 2)];
    array.stream(SOURCE, [ARRIVES]).unwrap();
    array.stream(LEAVES[0], [RESULTS[0]]).unwrap();
    array.stream(Channel::send(SHIM, 1), [arrives]).unwrap();
    array.stream(leaves, [RESULTS[1]]).unwrap();
    array.chain(ARRIVES, &[Part::linear(chained, 16)]).unwrap();
    array.chain(LEAVES[0], &[Part::linear(chained, 16)]).unwrap();
    let configured = array.finish().unwrap();
    let mut device = Device::of(&configured);
    for count in [2, 4] {
        let mut dispatch = configured.dispatch();
        for channel in [arrives, leaves] {
            let error = dispatch.run(channel, &[Part::linear(chained, 16)], 1).unwrap_err();
            assert!(matches!(error, ArrayError::Overlap { .. }), "{error}");
            let error = dispatch.run(channel, &[Part::linear(Ring { empty: 0, ..pushed }, 16)], 1).unwrap_err();
            assert_eq!(error, ArrayError::Chained(ARRIVES));
            dispatch.run(channel, &[Part::linear(pushed, 16)], count).unwrap();
        }
        let bytes = 64 * u64::from(count);
        for (source, argument) in [(SOURCE, 0), (Channel::send(SHIM, 1), 2)] {
            dispatch.transfer(source, &Region::linear(argument, 0, bytes)).unwrap();
        }
        for (result, argument) in RESULTS.into_iter().zip([1, 3]) {
            dispatch.transfer(result, &Region::linear(argument, 0, bytes)).unwrap();
        }
        let words = 16 * count;
        let sources = [0, 1].map(|number| (0..words).map(|word| word + 100 * number).collect::<Vec<_>>());
        let nothing = || vec![0; words as usize];
        let mut buffers = [sources[0].clone(), nothing(), sources[1].clone(), nothing()];
        device.dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
        assert_eq!([&buffers[1], &buffers[3]], [&sources[0], &sources[1]]);
    }
}

type Build = fn(&mut ArrayProgram, Ring) -> Result<(), ArrayError>;

#[rstest]
#[case::shim(|a: &mut ArrayProgram, ring| a.chain(SOURCE, &[Part::linear(ring, 16)]), "tile (0,0) is no core or mem tile")]
#[case::twice(
    |a: &mut ArrayProgram, ring| a.chain(ARRIVES, &[Part::linear(ring, 16)]).and(a.chain(ARRIVES, &[Part::linear(ring, 16)])),
    OWNED
)]
#[case::nothing(
    |a: &mut ArrayProgram, _| a.chain(ARRIVES, &[]),
    "a part of the chain of S2MM 0 of tile (0,1) does not wait for each buffer, hand it over and go on to the next"
)]
#[case::kept(
    |a: &mut ArrayProgram, ring| a.chain(ARRIVES, &[Part { release: false, ..Part::linear(ring, 16) }]),
    "a part of the chain of S2MM 0 of tile (0,1) does not wait for each buffer, hand it over and go on to the next"
)]
#[case::long(
    |a: &mut ArrayProgram, ring| a.chain(ARRIVES, &[Part::linear(ring, 17)]),
    "the end of what a channel moves in a buffer is 68: it has to be 4 to 64"
)]
#[case::descriptors(
    |a: &mut ArrayProgram, ring: Ring| a.chain(ARRIVES, &[Part::linear(ring.cut(4, 25).unwrap(), 1)]),
    "S2MM 0 of tile (0,1) needs 25 more buffer descriptors: its tile has 24 left for it of 24"
)]
#[case::no_stream(
    |a: &mut ArrayProgram, ring| a.chain(ARRIVES, &[Part::linear(ring, 16)]).and_then(|()| a.clone().finish().map(drop)),
    "S2MM 0 of tile (0,1) has no stream"
)]
#[case::tokens(|a: &mut ArrayProgram, _| a.tokens(ARRIVES), "tile (0,1) is no shim tile")]
fn chains_have_limits(#[case] build: Build, #[case] message: &str) {
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    let ring = array.ring(MEM, None, 64, 2).unwrap();
    assert_eq!(build(&mut array, ring).unwrap_err().to_string(), message);
}

/// Layouts change on the way as they do in tasks.
#[test]
fn parts_of_chains_have_dimensions() {
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    let ring = array.ring(MEM, None, 32, 2).unwrap();
    array.stream(SOURCE, [ARRIVES]).unwrap();
    array.stream(LEAVES[0], [RESULTS[0]]).unwrap();
    array.chain(ARRIVES, &[Part::linear(ring, 8)]).unwrap();
    let transposed = [Dimension::new(2, 4), Dimension::new(4, 1)];
    array.chain(LEAVES[0], &[Part::strided(ring, 0, &transposed)]).unwrap();
    let configured = array.finish().unwrap();
    let mut dispatch = configured.dispatch();
    dispatch.transfer(SOURCE, &Region::linear(0, 0, 64)).unwrap();
    dispatch.transfer(RESULTS[0], &Region::linear(1, 0, 64)).unwrap();
    let mut buffers = [(0..16).collect(), vec![0; 16]];
    Device::of(&configured).dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
    assert_eq!(buffers[1], [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]);
}
