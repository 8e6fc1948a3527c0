//! Vectors and what stands for attention beside products, on the emulator: what comes over shared channels gets to its core. Products with
//! their programs are tested with their family.

use super::super::testing::{ADDER_MEMORY, Device, aie2, assemble, passer};
use super::super::{Configured, Dispatch, ElementsColumn, Flow, TileOrder};
use super::*;
use aie_emulator::Rules;
use aie_emulator::design::{Design, Source as Files};
use aie_hal::format::instructions::{ArgumentPlace, InstructionStream, InstructionWriter};
use aie_hal::format::stream_switch::Port;
use rstest::rstest;
use std::collections::BTreeSet;

/// A column with all cores: those of products wait for an operand, and that of attention is a ring which sends on what arrives.
struct Whole {
    configured: Arc<Configured>,
    vectors: Elements,
    attention: Vec<Ring>,
}

const COLUMNS: u8 = 4;
const BOTH: Shared = Shared { columns: COLUMNS, vectors: true, attention: true };

fn memory() -> CoreMemory {
    CoreMemory {
        weights: (0, 0x800, 2),
        operand: (0x4000, 0x800, 2),
        result: (0x8000, 0x800, 2),
        parameters: (0xC000, 64),
    }
}

fn whole() -> Whole {
    let mut array = ArrayProgram::new(&aie2(), COLUMNS).unwrap();
    // The lock of full buffers of the operand.
    let waits = assemble("movx r0, #-1\nnop\nacq #51, r0\ndone");
    let (passes, mut cores, mut attention) = (passer(), Vec::new(), Vec::new());
    for column in 0..COLUMNS {
        add_products(&mut array, column, [CoreCode { program: &waits, data: &[] }; 2], &memory()).unwrap();
        add_results(&mut array, column, COLUMNS, &memory()).unwrap();
        connect(&mut array, column, BOTH).unwrap();
        let (tile, operands) = (Tile::new(column, Rings::VECTORS_ROW), Operand::Vectors.source(BOTH, column));
        cores.push(ElementsCore::chained(&mut array, tile, &passes, &[], operands, guests_result(column)).unwrap());
        attention.push(array.ring(Tile::new(column, Rings::ATTENTION_ROW), None, 64, 2).unwrap());
    }
    let configured = Arc::new(array.finish().unwrap());
    Whole { vectors: Elements::of(Arc::clone(&configured), cores), configured, attention }
}

impl Whole {
    /// Has attention send on so many buffers that arrive at one of its channels.
    fn echo(&self, dispatch: &mut Dispatch<'_>, column: u8, operand: Operand, count: u32) {
        let ring = self.attention[usize::from(column)];
        let [arrives] = operand.ends(BOTH, column)[..] else { panic!() };
        for channel in [arrives, Channel::send(ring.tile, 0)] {
            dispatch.run(channel, &[Part::linear(ring, 16)], count).unwrap();
        }
        let region = |argument| Region::linear(argument, 0, 64 * u64::from(count));
        dispatch.transfer(operand.source(BOTH, column), &region(0)).unwrap();
        dispatch.transfer(guests_result(column), &region(1)).unwrap();
    }
}

/// Ids where a channel is shared, and none where it is not.
#[test]
fn channels_have_ids_where_they_are_shared() {
    let of = |column| {
        move |shared| {
            Operand::ALL
                .map(|operand| operand.source(shared, column))
                .map(|source| (source.channel.number, source.packet))
        }
    };
    let (first, others) = (of(HUB), of(HUB + 1));
    let only = Shared { vectors: false, attention: false, ..BOTH };
    assert_eq!((first(only)[0], first(only)[2]), ((0, None), (1, None)));
    let vectors = Shared { vectors: true, ..only };
    assert_eq!(first(vectors)[2..4], [(1, Some(2)), (1, Some(3))]);
    assert_eq!((first(vectors)[0], others(vectors)[3]), ((0, None), (1, None)));
    let all = [(0, Some(0)), (0, Some(1)), (1, Some(2)), (1, Some(3)), (1, Some(4))];
    assert_eq!(first(BOTH), all);
    assert_eq!(([0, 1, 3, 4].map(|at| others(BOTH)[at])), [0, 1, 3, 4].map(|at: usize| all[at]));
}

/// All of the table finds its way, over as few lines as that takes: two for weights and one for each channel of the shim upwards, and the
/// operand of products; two of results of products and one of the other results downwards. Results of products come back up from the shim.
#[test]
fn a_column_has_room_for_all() {
    let whole = whole();
    for column in 0..COLUMNS {
        let (mut up, mut down) = (BTreeSet::new(), BTreeSet::new());
        for (_, circuits) in whole.configured.routes() {
            let mem = Tile::new(column, 1);
            up.extend(circuits.iter().filter(|c| c.tile == mem).filter_map(|c| match c.master {
                Port::North(number) => Some(number),
                _ => None,
            }));
            down.extend(circuits.iter().filter(|c| c.tile == mem).filter_map(|c| match c.slave {
                Port::North(number) => Some(number),
                _ => None,
            }));
        }
        assert_eq!((up.len(), down.len()), (4, 3), "column {column}: {up:?}, {down:?}");
    }
}

/// A flow of `count` tiles of an argument.
fn flow(argument: u16, words: u64, count: u32) -> Flow {
    let regions = vec![Region::linear(argument, 0, 4 * words * u64::from(count))];
    Flow { tiles: vec![(words, count)], regions, ..Flow::default() }
}

/// Tiles of the first argument to a result that is the second.
fn pass(words: u64, count: u32) -> ElementsColumn {
    ElementsColumn { a: Some(flow(0, words, count)), result: flow(1, words, count), ..ElementsColumn::default() }
}

/// What arrives is both operands, tile by tile, each up to the end of a turn; what leaves is cut in the same way.
#[rstest]
fn two_operands_come_over_one_channel(#[values(None, Some(1), Some(2), Some(3), Some(4))] seed: Option<u64>) {
    let whole = whole();
    let mut rules = Rules::default();
    rules.interleaving = seed;
    let mut device = Device::load_under(&aie2(), whole.configured.pdi(), rules).unwrap();
    if let Some(seed) = seed {
        device.harness.reload_at_random(seed);
    }
    let order = TileOrder { b_first: 1, a_for_each_b: 2 };
    let (a, b): (Vec<u32>, Vec<u32>) = ((1000..1400).collect(), (0..400).collect());
    for (of_a, of_b, groups) in [(32, 64, 1), (33, 1, 1), (96, 16, 2), (20, 64, 3)] {
        let tiles = [2 * groups, 1 + groups];
        let column = ElementsColumn {
            a: Some(flow(0, of_a, tiles[0])),
            b: Some(flow(1, of_b, tiles[1])),
            order,
            ..ElementsColumn::default()
        };
        let tile = |source: &[u32], words: u64, number: u32| -> Vec<u32> {
            let tile = &source[(words * u64::from(number)) as usize..][..words as usize];
            let missing = words.next_multiple_of(32) - words;
            let fits = missing.is_multiple_of(words);
            let again = (0..missing as usize).map(|word| if fits { tile[word % tile.len()] } else { tile[0] });
            tile.iter().copied().chain(again).collect()
        };
        let mut expected = tile(&b, of_b, 0);
        for group in 0..groups {
            expected.extend(tile(&b, of_b, 1 + group));
            (2 * group..2 * group + 2).for_each(|number| expected.extend(tile(&a, of_a, number)));
        }
        let all = expected.len() as u64;
        let column = ElementsColumn { result: flow(2, all, 1), ..column };
        let mut buffers = [a.clone(), b.clone(), vec![0; all as usize]];
        device.dispatch(&whole.vectors.dispatch(&[column]).unwrap(), &mut buffers).unwrap();
        assert_eq!(buffers[2], expected, "{of_a} and {of_b} words, {groups} groups");
    }
}

/// The last words of a result that is no whole turns are its first one, which is where they go.
#[test]
fn results_are_what_their_tiles_are() {
    let whole = whole();
    let result = ElementsColumn { a: Some(flow(0, 64, 1)), result: flow(1, 41, 1), ..ElementsColumn::default() };
    let mut source: Vec<u32> = (100..164).collect();
    source[41..].fill(100);
    let mut buffers = [source.clone(), vec![7; 50]];
    Device::of(&whole.configured).dispatch(&whole.vectors.dispatch(&[result]).unwrap(), &mut buffers).unwrap();
    assert_eq!((&buffers[1][..41], &buffers[1][41..]), (&source[..41], &[7; 9][..]));
}

/// Dispatches of either, in any order; in one dispatch both if each has its own columns.
#[rstest]
fn vectors_and_attention_take_turns(#[values(1, 2, 3, 4)] seed: u64) {
    let whole = whole();
    let mut rules = Rules::default();
    rules.interleaving = Some(seed);
    let mut device = Device::load_under(&aie2(), whole.configured.pdi(), rules).unwrap();
    device.harness.reload_at_random(seed);
    let a: Vec<u32> = (0..64).map(|at| at ^ 0x55).collect();
    for step in ["v", "k", "q", "v", "kv", "q"] {
        let mut dispatch = whole.configured.dispatch();
        for what in step.chars() {
            match what {
                'v' => whole.vectors.add(&mut dispatch, 2, &pass(64, 1)).unwrap(),
                // Its result is where that of vectors goes afterwards, or nowhere else.
                'k' => whole.echo(&mut dispatch, 0, Operand::Keys, 4),
                _ => whole.echo(&mut dispatch, 3, Operand::Queries, 4),
            }
            if step.len() > 1 && what == 'k' {
                dispatch.end_phase().unwrap();
            }
        }
        let mut buffers = [a.clone(), vec![0; 64]];
        device.dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
        assert_eq!(buffers[1], a, "{step}");
    }
}

/// Tiles that do not go with each other would be taken for others.
#[test]
fn tiles_without_an_order_are_rejected() {
    let whole = whole();
    let message = |column: ElementsColumn| whole.vectors.dispatch(&[column]).unwrap_err().to_string();
    let odd = ElementsColumn { b: Some(flow(1, 16, 2)), ..pass(16, 3) };
    let expected = "core (0,4) takes 3 tiles of its first operand and 2 of its second over one channel, and its order is 0 of the second, then \
                    1 of the first for each of the second";
    assert_eq!(message(odd), expected);
    let long = ElementsColumn {
        b: Some(Flow { regions: vec![Region::linear(1, 0, 4 * 49)], ..flow(1, 16, 3) }),
        ..pass(16, 3)
    };
    let unbalanced = "MM2S 1 of tile (0,0), packet 3 sends 49 words in a phase, and S2MM 0 of tile (0,4) receives 48";
    assert_eq!(message(long), unbalanced);
    let parameters = ElementsColumn { parameters: vec![0; 257], ..pass(16, 3) };
    assert_eq!(message(parameters), "the number of parameters is 257: it has to be 0 to 256");
}

/// What the reader of designs says of all of it.
#[test]
fn designs_are_read_without_problems() {
    let whole = whole();
    let mut dispatch = whole.configured.dispatch();
    whole.vectors.add(&mut dispatch, 0, &pass(20, 9)).unwrap();
    whole.echo(&mut dispatch, 1, Operand::Keys, 3);
    let stream = dispatch.finish().unwrap();
    let design = Design::read(&aie2(), &Files::parse(whole.configured.pdi(), Some(&stream)).unwrap()).unwrap();
    assert_eq!((&design.problems[..], &design.doubts[..]), (&[][..], &[][..]));
}

/// Without others beside them products are as they were: nothing has an id, and the rows above have no program.
#[test]
fn products_alone_have_no_packets() {
    let code = [0; 16];
    let products = [CoreCode { program: &code, data: &[] }; 2];
    let alone = Rings::new(&aie2(), 1, (products, &ADDER_MEMORY), None, None).unwrap();
    assert!(alone.vectors().is_none() && alone.configured().routes().all(|(stream, _)| stream.packet.is_none()));
    let with_vectors = Rings::new(&aie2(), 1, (products, &ADDER_MEMORY), Some(products[0]), None).unwrap();
    assert_eq!(with_vectors.vectors().unwrap().core(0).unwrap().tile, Tile::new(0, 4));
    assert!(with_vectors.vectors().unwrap().core(1).is_err());
}

/// The streams of neighbours become one, without anything between them.
#[rstest]
fn dispatches_become_one(#[values(1, 2, 3, 4)] seed: u64) {
    let whole = whole();
    let mut rules = Rules::default();
    rules.interleaving = Some(seed);
    let mut device = Device::load_under(&aie2(), whole.configured.pdi(), rules).unwrap();
    let keys = |operand| {
        let mut dispatch = whole.configured.dispatch();
        whole.echo(&mut dispatch, 0, operand, 2);
        dispatch.finish().unwrap()
    };
    let passes = |words, count| whole.vectors.dispatch(&[pass(words, count)]).unwrap();
    let streams = [passes(20, 4), keys(Operand::Keys), passes(24, 3), keys(Operand::Queries), passes(32, 1)];
    let mut writer = InstructionWriter::new(InstructionStream::parse(&streams[0]).unwrap().header());
    for (number, stream) in (0..).zip(&streams) {
        // Results have places of their own.
        let places = [0, 1 + number].map(|argument| ArgumentPlace { argument, offset: 0 });
        writer.append(&InstructionStream::parse(stream).unwrap(), &places).unwrap();
    }
    let a: Vec<u32> = (0..80).map(|at| at + 7).collect();
    let mut buffers = vec![a.clone(), vec![0; 80], vec![0; 32], vec![0; 72], vec![0; 32], vec![0; 32]];
    for _ in 0..2 {
        buffers[1..].iter_mut().for_each(|result| result.fill(0));
        device.dispatch(&writer.clone().finish().unwrap(), &mut buffers).unwrap();
        assert_eq!(buffers[1..], [&a[..80], &a[..32], &a[..72], &a[..32], &a[..32]]);
    }
}
