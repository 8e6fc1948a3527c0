//! Splits and merges on the emulator: a dispatch sends packets to several places over one channel, and several send to one.

use super::super::testing::{Device, aie2};
use super::super::{ArrayError, ArrayProgram, Channel, Configured, Dimension, Dispatch, Part, Region, Ring, Source};
use super::*;
use aie_emulator::Rules;
use aie_emulator::design::{self, Design};
use aie_hal::format::bd::ShimBd;
use aie_hal::format::cdo::{CdoBuilder, CdoCommand};
use aie_hal::format::instructions::{Instruction, InstructionStream};
use aie_hal::format::pdi::{self, Pdi};
use aie_hal::format::tile_location;
use rstest::rstest;

const SHIM: Tile = Tile::new(0, 0);
const MEM: Tile = Tile::new(0, 1);
const WORDS: u64 = 16;

/// A channel of a core that receives, and one that sends the same buffers on.
struct Echo {
    arrives: Channel,
    leaves: Channel,
    ring: Ring,
}

const fn core(row: u8) -> Tile {
    Tile::new(0, row)
}

/// A ring of a tile between two of its channels.
fn echo(array: &mut ArrayProgram, tile: Tile, number: u8, depth: u8) -> Echo {
    let ring = array.ring(tile, None, 4 * WORDS as u32, depth).unwrap();
    Echo { arrives: Channel::receive(tile, number), leaves: Channel::send(tile, number), ring }
}

/// Three places of a column that get packets of one channel: both channels of the core in row 3, and one in row 5. What they get comes back
/// through one channel each, or through one for the two upper rows.
struct Column {
    configured: Configured,
    echoes: [Echo; 3],
    results: [Channel; 3],
}

const SOURCE: Channel = Channel::send(SHIM, 1);
const IDS: [u8; 3] = [3, 4, 17];

impl Column {
    /// The channels that share the second result channel are merged in the order of `merged`.
    fn new(merged: [usize; 2]) -> Self {
        let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
        let echoes = [(3, 0), (4, 1), (5, 0)].map(|(row, number)| echo(&mut array, core(row), number, 2));
        let results = [Channel::receive(SHIM, 0), Channel::receive(SHIM, 1), Channel::receive(SHIM, 1)];
        let to = echoes.each_ref().map(|echo| [echo.arrives]);
        array.split(SOURCE, &[(IDS[0], &to[0]), (IDS[1], &to[1]), (IDS[2], &to[2])]).unwrap();
        array.stream(echoes[0].leaves, [results[0]]).unwrap();
        array.merge(&merged.map(|index| echoes[index].leaves), results[1]).unwrap();
        Self { configured: array.finish().unwrap(), echoes, results }
    }

    /// A dispatch in which so many buffers go to each place and back, in turn.
    fn pass(&self, counts: [u32; 3]) -> Dispatch<'_> {
        let mut dispatch = self.configured.dispatch();
        for (echo, count) in self.echoes.iter().zip(counts) {
            for channel in [echo.arrives, echo.leaves] {
                dispatch.run(channel, &[Part::linear(echo.ring, WORDS)], count).unwrap();
            }
        }
        dispatch
    }
}

fn bytes(count: u32) -> u64 {
    4 * WORDS * u64::from(count)
}

/// What comes back is what was sent under each id; through a merge it comes in any order, buffer by buffer.
#[rstest]
fn packets_go_to_their_places_and_come_back(
    #[values([1, 2], [2, 1])] merged: [usize; 2],
    #[values(None, Some(1), Some(2), Some(3), Some(4))] seed: Option<u64>,
) {
    let column = Column::new(merged);
    let mut rules = Rules::default();
    rules.interleaving = seed;
    let mut device = Device::load_under(&aie2(), column.configured.pdi(), rules).unwrap();
    if let Some(seed) = seed {
        device.harness.reload_at_random(seed);
    }
    for counts in [[1, 1, 1], [3, 0, 0], [2, 5, 3], [0, 4, 1], [0, 0, 2], [6, 1, 1]] {
        let mut dispatch = column.pass(counts);
        let mut at = 0;
        // A turn around the ids, as long as one has buffers left.
        let (mut sent, most) = ([const { Vec::new() }; 3], counts.into_iter().max().unwrap());
        for turn in 0..most {
            for (place, id) in IDS.into_iter().enumerate().filter(|(place, _)| turn < counts[*place]) {
                dispatch.transfer(Source::packet(SOURCE, id), &Region::linear(0, bytes(at), bytes(1))).unwrap();
                sent[place].push(at);
                at += 1;
            }
        }
        let backs = [counts[0], counts[1] + counts[2]];
        for ((argument, result), count) in (1..).zip(&column.results).zip(backs).filter(|(_, count)| *count > 0) {
            dispatch.transfer(*result, &Region::linear(argument, 0, bytes(count))).unwrap();
        }
        let source: Vec<u32> = (0..at * WORDS as u32).map(|word| word ^ 0xA5A5_0000).collect();
        let nothing = |count: u32| vec![0; (count * WORDS as u32) as usize];
        let mut buffers = [source.clone(), nothing(backs[0]), nothing(backs[1])];
        device.dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
        let buffer = |at: &u32| &source[*at as usize * WORDS as usize..][..WORDS as usize];
        assert_eq!(buffers[1], sent[0].iter().flat_map(buffer).copied().collect::<Vec<_>>());
        // Each of the merged flows keeps its own order.
        let mut left = [&sent[1][..], &sent[2][..]];
        for found in buffers[2].chunks(WORDS as usize) {
            let of = left.iter().position(|flow| flow.first().is_some_and(|at| buffer(at) == found));
            let of = of.unwrap_or_else(|| panic!("{counts:?}: {found:x?} is not next"));
            left[of] = &left[of][1..];
        }
        for row in 3..6 {
            assert_eq!(device.locks(core(row), 2), [2, 0]);
        }
    }
}

/// The bits of a register that say what the ports of a row do.
fn modes(pdi: &[u8], tile: Tile) -> (usize, usize, usize) {
    let kind = [TileKind::Shim, TileKind::Mem].get(usize::from(tile.row)).copied().unwrap_or(TileKind::Core);
    let switch = StreamSwitch(kind);
    let masters: Vec<u32> =
        (0..switch.masters().count() as u32).map(|at| tile.address(switch.master_register(at))).collect();
    let (mut circuits, mut packets, mut dropping) = (0, 0, 0);
    for command in Pdi::parse(pdi).unwrap().cdo().commands() {
        let CdoCommand::Write { address, value } = command else { continue };
        if !masters.contains(&(address as u32)) || value == 0 {
            continue;
        }
        match value >> 30 {
            0b10 => circuits += 1,
            _ if value >> 7 & 1 == 1 => dropping += 1,
            _ => packets += 1,
        }
    }
    (circuits, packets, dropping)
}

/// Packets are told apart only where they part: rows 1 and 2 are circuits, and so is the way from where two flows have met.
#[rstest]
fn ports_are_circuits_where_all_packets_go_one_way(#[values([1, 2], [2, 1])] merged: [usize; 2]) {
    let column = Column::new(merged);
    let of = |tile| modes(column.configured.pdi(), tile);
    // Circuits, packets with headers, packets without: two results and the packets for all, beside the tokens in the shim.
    assert_eq!([of(SHIM), of(MEM), of(core(2))], [(3, 1, 0), (3, 0, 0), (3, 0, 0)]);
    // One channel here, the others further up; two results come from above or from here.
    assert_eq!(of(core(3)), (2, 1, 1));
    // One channel, one further up, and where the results meet.
    assert_eq!(of(core(4)), (0, 1, 2));
    assert_eq!(of(core(5)), (1, 0, 1));
}

/// Slots that another configuration may have left on are off.
#[test]
fn all_slots_of_a_port_are_written() {
    let column = Column::new([1, 2]);
    let switch = StreamSwitch(TileKind::Core);
    let slots = |tile: Tile, port: Port| -> Vec<Option<(u8, u8)>> {
        let index = switch.slave_index(port).unwrap();
        let register = |number| tile.address(switch.slot_register(index, number));
        let commands = Pdi::parse(column.configured.pdi()).unwrap();
        let written = |address: u32| {
            commands.cdo().commands().find_map(|command| match command {
                CdoCommand::Write { address: at, value } if at == u64::from(address) => Some(value),
                _ => None,
            })
        };
        (0..4)
            .filter_map(|number| written(register(number)))
            .map(|word| PacketSlot::decode(word).map(|slot| (slot.id, slot.msel)))
            .collect()
    };
    let of = |row: u8| {
        (0..6).map(|port| slots(core(row), Port::South(port))).filter(|found| !found.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(of(3), [[Some((3, 0)), Some((4, 1)), Some((17, 1)), None]]);
    assert_eq!(of(4), [[Some((4, 0)), Some((17, 1)), None, None]]);
    assert_eq!(of(5), [[Some((17, 0)), None, None, None]]);
}

/// One id may have several ends, and a mem tile's channel may be one of them.
#[rstest]
fn an_id_can_have_several_ends(#[values(0, 1, 2, 3)] seed: u64) {
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    let echoes = [(core(2), 1), (core(3), 1), (MEM, 0)].map(|(tile, number)| echo(&mut array, tile, number, 2));
    let [low, high, mem] = &echoes;
    array.split(SOURCE, &[(2, &[low.arrives, high.arrives]), (9, &[mem.arrives])]).unwrap();
    array.merge(&[high.leaves, low.leaves, mem.leaves], Channel::receive(SHIM, 0)).unwrap();
    let configured = array.finish().unwrap();
    let mut rules = Rules::default();
    rules.interleaving = Some(seed);
    let mut device = Device::load_under(&aie2(), configured.pdi(), rules).unwrap();
    for (both, one) in [(2, 3), (0, 1), (4, 0)] {
        let mut dispatch = configured.dispatch();
        for (echo, count) in echoes.iter().zip([both, both, one]) {
            for channel in [echo.arrives, echo.leaves] {
                dispatch.run(channel, &[Part::linear(echo.ring, WORDS)], count).unwrap();
            }
        }
        for (id, count, first) in [(2, both, 0), (9, one, 1)] {
            for _ in 0..count {
                dispatch.transfer(Source::packet(SOURCE, id), &Region::linear(0, bytes(first), bytes(1))).unwrap();
            }
        }
        let all = 2 * both + one;
        dispatch.transfer(Channel::receive(SHIM, 0), &Region::linear(1, 0, bytes(all))).unwrap();
        let source: Vec<u32> = (0..2 * WORDS as u32).collect();
        let mut buffers = [source.clone(), vec![0; (all * WORDS as u32) as usize]];
        device.dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
        let found: Vec<&[u32]> = buffers[1].chunks(WORDS as usize).collect();
        let of = |half: usize| {
            found.iter().filter(|found| **found == source.chunks(WORDS as usize).nth(half).unwrap()).count()
        };
        assert_eq!((of(0), of(1)), (2 * both as usize, one as usize));
    }
}

/// A shim's task whose descriptor runs several times sends a header each time: so its runs are as good as tasks.
#[test]
fn each_run_of_a_task_is_a_packet() {
    let column = Column::new([1, 2]);
    // Eight rows of four words: the fourth dimension is an iteration. And the same row of a buffer three times: that is a repeat count.
    let region = |dimensions: &[(u64, u64)]| {
        let dimensions = dimensions.iter().map(|(size, step)| Dimension::new(*size, *step)).collect();
        Region { argument: 0, offset: 0, dimensions }
    };
    let (rows, again) = (region(&[(4, 1), (2, 6), (2, 32), (2, 100)]), region(&[(16, 1), (3, 0)]));
    let mut dispatch = column.pass([2, 3, 0]);
    dispatch.transfer(Source::packet(SOURCE, IDS[0]), &rows).unwrap();
    dispatch.transfer(Source::packet(SOURCE, IDS[1]), &again).unwrap();
    dispatch.transfer(column.results[0], &Region::linear(1, 0, bytes(2))).unwrap();
    dispatch.transfer(column.results[1], &Region::linear(2, 0, bytes(3))).unwrap();
    let stream = dispatch.finish().unwrap();
    let descriptors = InstructionStream::parse(&stream).unwrap();
    let headers: Vec<(u32, u32)> = descriptors
        .operations()
        .filter_map(|operation| match operation {
            Instruction::BlockWrite { address, data } if tile_location(address).1 == 0 => {
                let bd = ShimBd::decode(data.iter().collect::<Vec<u32>>().as_slice().try_into().ok()?);
                bd.enable_packet.then_some((bd.packet_id, bd.iteration_wrap))
            }
            _ => None,
        })
        .collect();
    assert_eq!(headers, [(3, 2), (4, 1)]);
    let source: Vec<u32> = (0..200).collect();
    let mut buffers = [source.clone(), vec![0; 32], vec![0; 48]];
    Device::of(&column.configured).dispatch(&stream, &mut buffers).unwrap();
    let expected: Vec<u32> = [0, 6, 32, 38, 100, 106, 132, 138].iter().flat_map(|row| *row..row + 4).collect();
    assert_eq!((&buffers[1], &buffers[2]), (&expected, &source[..16].repeat(3)));
}

type Step = fn(&Column, &mut Dispatch<'_>) -> Result<(), ArrayError>;

#[rstest]
#[case::without_an_id(
    |_: &Column, d: &mut Dispatch<'_>| d.transfer(SOURCE, &Region::linear(0, 0, 64)).map(drop),
    "words without a packet id on MM2S 1 of tile (0,0): it has the ids 3, 4, 17"
)]
#[case::another_id(
    |_: &Column, d: &mut Dispatch<'_>| d.transfer(Source::packet(SOURCE, 5), &Region::linear(0, 0, 64)).map(drop),
    "words with packet id 5 on MM2S 1 of tile (0,0): it has the ids 3, 4, 17"
)]
#[case::on_a_circuit(
    |c: &Column, d: &mut Dispatch<'_>| d.transfer(Source::packet(c.results[0], 3), &Region::linear(1, 0, 64)).map(drop),
    "words with packet id 3 on S2MM 0 of tile (0,0): it leads to one place, and has no ids"
)]
fn ids_are_those_of_the_channel(#[case] step: Step, #[case] message: &str) {
    let column = Column::new([1, 2]);
    assert_eq!(step(&column, &mut column.configured.dispatch()).unwrap_err().to_string(), message);
}

/// Words are counted for each id, and those of all that send to one end together.
#[test]
fn words_are_counted_for_each_id() {
    let column = Column::new([1, 2]);
    let message = |words: [u64; 2], result: u64| {
        let mut dispatch = column.pass([0, 1, 1]);
        for (id, words) in IDS[1..].iter().zip(words) {
            dispatch.transfer(Source::packet(SOURCE, *id), &Region::linear(0, 0, 4 * words)).unwrap();
        }
        dispatch.transfer(column.results[1], &Region::linear(1, 0, 4 * result)).unwrap();
        dispatch.finish().map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(message([16, 16], 32), Ok(()));
    let unbalanced = "MM2S 1 of tile (0,0), packet 4 sends 17 words in a phase, and S2MM 1 of tile (0,4) receives 16";
    assert_eq!(message([17, 15], 32).unwrap_err(), unbalanced);
    let unbalanced = "S2MM 1 of tile (0,0) receives 31 words in a phase, and the 2 channels that send to it send 32";
    assert_eq!(message([16, 16], 31).unwrap_err(), unbalanced);
}

type Build = fn(&mut ArrayProgram) -> Result<(), ArrayError>;

const ENDS: [Channel; 5] = [
    Channel::receive(core(2), 0),
    Channel::receive(core(2), 1),
    Channel::receive(core(3), 0),
    Channel::receive(core(3), 1),
    Channel::receive(core(4), 0),
];

#[rstest]
#[case::core(|a: &mut ArrayProgram| a.split(Channel::send(core(2), 0), &[]), "tile (0,2) is no shim tile")]
#[case::id(|a: &mut ArrayProgram| a.split(SOURCE, &[(32, &ENDS[..1])]), "the id of a packet is 32: it has to be 0 to 31")]
#[case::twice(
    |a: &mut ArrayProgram| a.split(SOURCE, &[(1, &ENDS[..1]), (1, &ENDS[1..2])]),
    "packet id 1 of tile (0,0) is in use already"
)]
#[case::nowhere(
    |a: &mut ArrayProgram| a.split(SOURCE, &[(1, &ENDS[..1]), (2, &[])]),
    "the number of channels that packets of an id go to is 0: it has to be 1 to 255"
)]
#[case::end_twice(
    |a: &mut ArrayProgram| a.split(SOURCE, &[(1, &ENDS[..1]), (2, &ENDS[..1])]),
    "S2MM channel 0 of tile (0,2) is in use already"
)]
#[case::beginning_twice(
    |a: &mut ArrayProgram| a.split(SOURCE, &[(1, &ENDS[..1])]).and_then(|()| a.stream(SOURCE, [ENDS[1]])),
    "MM2S channel 1 of tile (0,0) is in use already"
)]
#[case::slots(
    |a: &mut ArrayProgram| a.split(SOURCE, &[(1, &ENDS[..1]), (2, &ENDS[1..2]), (3, &ENDS[2..3]), (4, &ENDS[3..4]), (5, &ENDS[4..])]),
    "tile (0,2) has 4 slots for packet ids at a port, all in use"
)]
#[case::merged_shim(|a: &mut ArrayProgram| a.merge(&[SOURCE, Channel::send(MEM, 0)], ENDS[0]), "tile (0,0) is no core or mem tile")]
#[case::chain(
    |a: &mut ArrayProgram| {
        let ring = a.ring(MEM, None, 64, 2)?;
        a.chain(Channel::send(MEM, 0), &[Part::linear(ring, 16)])?;
        a.merge(&[Channel::send(MEM, 1), Channel::send(MEM, 0)], ENDS[0])
    },
    "MM2S 0 of tile (0,1) has a chain that the configuration starts: it takes no task, and its rings and locks are for it alone"
)]
fn packets_have_limits(#[case] build: Build, #[case] message: &str) {
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    let error = build(&mut array).and_then(|()| array.finish().map(drop)).unwrap_err();
    assert_eq!(error.to_string(), message);
}

/// Of a merge of one nothing is left to meet.
#[test]
fn one_channel_is_a_stream() {
    let routes = |merge: bool| {
        let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
        let (from, to) = (Channel::send(core(4), 0), Channel::receive(SHIM, 1));
        if merge {
            array.merge(&[from], to).unwrap()
        } else {
            array.stream(from, [to]).unwrap()
        }
        array.finish().unwrap().pdi().to_vec()
    };
    assert_eq!(routes(true), routes(false));
}

/// What the reader of designs says of packets.
#[rstest]
fn designs_with_packets_are_read_without_problems(#[values([1, 2], [2, 1])] merged: [usize; 2]) {
    let column = Column::new(merged);
    let mut dispatch = column.pass([1, 2, 1]);
    for (id, count) in IDS.into_iter().zip([1, 2, 1]) {
        dispatch.transfer(Source::packet(SOURCE, id), &Region::linear(0, 0, bytes(count))).unwrap();
    }
    dispatch.transfer(column.results[0], &Region::linear(1, 0, bytes(1))).unwrap();
    dispatch.transfer(column.results[1], &Region::linear(2, 0, bytes(3))).unwrap();
    let stream = dispatch.finish().unwrap();
    let source = design::Source::parse(column.configured.pdi(), Some(&stream)).unwrap();
    let design = Design::read(&aie2(), &source).unwrap();
    assert_eq!((&design.problems[..], &design.doubts[..]), (&[][..], &[][..]));
    // Three ids, three results, and the tokens.
    assert_eq!(design.routes.len(), 7);
    assert!(design.to_string().contains("packets 17"));
}

/// Whether dispatches give what they should with this configuration.
fn is_right(column: &Column, pdi: &[u8]) -> bool {
    let counts = [2, 1, 2];
    let mut dispatch = column.pass(counts);
    let mut at = 0;
    for (id, count) in IDS.into_iter().zip(counts) {
        dispatch.transfer(Source::packet(SOURCE, id), &Region::linear(0, bytes(at), bytes(count))).unwrap();
        at += count;
    }
    dispatch.transfer(column.results[0], &Region::linear(1, 0, bytes(2))).unwrap();
    dispatch.transfer(column.results[1], &Region::linear(2, 0, bytes(3))).unwrap();
    let stream = dispatch.finish().unwrap();
    let source: Vec<u32> = (0..at * WORDS as u32).collect();
    let (low, high) = source.split_at(2 * WORDS as usize);
    let Ok(mut device) = Device::load(pdi) else { return false };
    // Twice: a word that is left in a stream by the first is in the way of the second.
    (0..2).all(|_| {
        let mut buffers = [source.clone(), vec![0; low.len()], vec![0; high.len()]];
        let ran = device.dispatch(&stream, &mut buffers).is_ok();
        let mut found: Vec<&[u32]> = buffers[2].chunks(WORDS as usize).collect();
        found.sort_unstable();
        ran && buffers[1] == low && found.concat() == high
    })
}

/// Bits of the registers for packets that are changed by one: of slots the id, the selector, the arbiter and whether they are on; of masters
/// the selectors that they have, the arbiter, and whether they leave headers out.
fn bits(tile: Tile, address: u32, value: u32) -> Vec<u32> {
    let switch = StreamSwitch(if tile.row == 1 { TileKind::Mem } else { TileKind::Core });
    let is_slot = (0..switch.slaves().count() as u32)
        .any(|slave| (0..4).any(|slot| tile.address(switch.slot_register(slave, slot)) == address));
    let is_master = (0..switch.masters().count() as u32).any(|at| tile.address(switch.master_register(at)) == address);
    match value {
        0 => Vec::new(),
        _ if is_slot => vec![0, 4, 8, 24],
        _ if is_master && value >> 30 == 0b11 => {
            [0, 7].into_iter().chain((3..7).filter(|bit| value >> bit & 1 == 1)).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn every_wrong_rule_for_packets_is_noticed() {
    let column = Column::new([1, 2]);
    let pdi = column.configured.pdi();
    assert!(is_right(&column, pdi));
    let commands: Vec<CdoCommand<'_>> = Pdi::parse(pdi).unwrap().cdo().commands().collect();
    let (mut checked, mut missed) = (0, Vec::new());
    for (number, command) in commands.iter().enumerate() {
        let CdoCommand::Write { address, value } = *command else { continue };
        let (of_column, row, _) = tile_location(address as u32);
        for bit in bits(Tile::new(of_column, row), address as u32, value).into_iter().filter(|_| row > 0) {
            let mut cdo = CdoBuilder::new();
            for (at, command) in commands.iter().enumerate() {
                match *command {
                    CdoCommand::Write { address, value } if at == number => cdo.write(address, value ^ 1 << bit),
                    other => cdo.push(&other),
                };
            }
            checked += 1;
            if is_right(&column, &pdi::write(&cdo).unwrap()) {
                missed.push(format!("{address:#x}: {value:#x}, bit {bit}"));
            }
        }
    }
    assert!(checked > 40 && missed.is_empty(), "{checked} changes, missed: {missed:#?}");
}
