//! Vectors and what stands for attention beside products, on the emulator: what comes over shared channels gets to its core. Products with
//! their programs are tested with their family.

use super::super::testing::{ADDER_MEMORY, Device, adder, aie2, assemble};
use super::super::{Configured, ElementsColumn, Flow, TileOrder};
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
const BOTH: Shared = Shared { vectors: true, attention: true };

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
    let (adds, mut cores, mut attention) = (adder(), Vec::new(), Vec::new());
    for column in 0..COLUMNS {
        add_products(&mut array, column, CoreCode { program: &waits, data: &[] }, &memory()).unwrap();
        connect(&mut array, column, BOTH).unwrap();
        let operands = [Operand::VectorsA, Operand::VectorsB].map(|operand| operand.source(BOTH, column));
        let tile = Tile::new(column, Rings::VECTORS_ROW);
        cores.push(ElementsCore::place(&mut array, tile, &adds, &[], operands, guests_result(column)).unwrap());
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
        dispatch.transfer(guests_result(column), &region(2)).unwrap();
    }
}

/// Ids where a channel is shared, and none where it is not.
#[test]
fn channels_have_ids_where_they_are_shared() {
    let of = |shared| {
        Operand::ALL.map(|operand| operand.source(shared, 1)).map(|source| (source.channel.number, source.packet))
    };
    let only = Shared::default();
    assert_eq!((of(only)[0], of(only)[2]), ((0, None), (1, None)));
    let vectors = Shared { vectors: true, ..only };
    assert_eq!(of(vectors)[2..5], [(1, Some(2)), (1, Some(3)), (1, Some(4))]);
    assert_eq!(of(vectors)[0], (0, None));
    assert_eq!(of(BOTH), [(0, Some(0)), (0, Some(1)), (1, Some(2)), (1, Some(3)), (1, Some(4)), (1, Some(5))]);
}

/// All of the table finds its way, each column within itself, over as few lines as that takes: two for weights and one for each channel of
/// the shim upwards, two of results of products and one of the other results downwards.
#[test]
fn a_column_has_room_for_all() {
    let whole = whole();
    for column in 0..COLUMNS {
        let (mut up, mut down) = (BTreeSet::new(), BTreeSet::new());
        for (stream, circuits) in whole.configured.routes() {
            let of_column = |tile: Tile| tile.column == column;
            assert_eq!(of_column(stream.from.tile()), circuits.iter().any(|circuit| of_column(circuit.tile)));
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

/// A flow of `count` tiles of an argument with a ring of so many buffers.
fn flow(argument: u16, words: u64, count: u32, depth: u8) -> Flow {
    let bytes = 4 * words;
    Flow {
        cut: (bytes as u32, depth),
        tiles: vec![(words, count)],
        regions: vec![Region::linear(argument, 0, bytes * u64::from(count))],
    }
}

/// The adder takes a tile of each; its rings have two buffers or one.
fn addition(words: u64, count: u32, depth: u8) -> ElementsColumn {
    let stride = if depth == 1 { 0 } else { 4 * words as u32 };
    ElementsColumn {
        parameters: vec![count, words as u32, stride],
        a: Some(flow(0, words, count, depth)),
        b: Some(flow(1, words, count, depth)),
        result: flow(2, words, count, depth),
        order: TileOrder::default(),
    }
}

/// Operands with more tiles than their rings have buffers come over one channel, each when its turn is.
#[rstest]
fn two_operands_come_over_one_channel(#[values(None, Some(1), Some(2), Some(3), Some(4))] seed: Option<u64>) {
    let whole = whole();
    let mut rules = Rules::default();
    rules.interleaving = seed;
    let mut device = Device::load_under(&aie2(), whole.configured.pdi(), rules).unwrap();
    if let Some(seed) = seed {
        device.harness.reload_at_random(seed);
    }
    for (words, count, depth) in [(64, 3, 2), (16, 1, 1), (16, 9, 1), (8, 40, 2), (1024, 4, 2)] {
        let all = (words * u64::from(count)) as u32;
        let [a, b] = [0x9E37_79B9, 0x0101_0101]
            .map(|factor: u32| (0..all).map(|at| at.wrapping_mul(factor)).collect::<Vec<_>>());
        let expected: Vec<u32> = a.iter().zip(&b).map(|(a, b)| a.wrapping_add(*b)).collect();
        let stream = whole.vectors.dispatch(&[addition(words, count, depth)]).unwrap();
        let mut buffers = [a, b, vec![0; all as usize]];
        device.dispatch(&stream, &mut buffers).unwrap();
        assert_eq!(buffers[2], expected, "{count} tiles of {words} words, {depth} buffers");
    }
}

/// All of one operand before the other: the second buffer of the first stands in front of what the core waits for.
#[test]
fn another_order_stops() {
    let whole = whole();
    let core = whole.vectors.core(0).unwrap();
    let ElementsColumn { parameters, a, b, result, .. } = addition(16, 3, 1);
    let mut dispatch = whole.configured.dispatch();
    let inside = ElementsCore::arrives(core.tile).into_iter().chain([ElementsCore::leaves(core.tile)]);
    for (channel, ring) in inside.zip(core.rings()) {
        dispatch.run(channel, &[Part::linear(ring.cut(64, 1).unwrap(), 16)], 3).unwrap();
    }
    for (source, flow) in core.operands.into_iter().zip([a.unwrap(), b.unwrap()]) {
        dispatch.transfer(source, &flow.regions[0]).unwrap();
    }
    dispatch.transfer(core.result, &result.regions[0]).unwrap();
    dispatch.start(core.tile, &parameters).unwrap();
    let stream = dispatch.finish().unwrap();
    let mut buffers = [vec![1; 48], vec![2; 48], vec![0; 48]];
    let error = Device::of(&whole.configured).dispatch(&stream, &mut buffers).unwrap_err();
    assert!(error.contains("waits forever"), "{error}");
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
    let b: Vec<u32> = (0..64).map(|at| 1000 * at).collect();
    let sum: Vec<u32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    for step in ["v", "k", "q", "v", "kv", "q"] {
        let mut dispatch = whole.configured.dispatch();
        let mut expected = &a;
        for what in step.chars() {
            match what {
                'v' => {
                    whole.vectors.add(&mut dispatch, 2, &addition(16, 4, 2)).unwrap();
                    expected = &sum;
                }
                // Its result is where the sum goes afterwards, or nowhere else.
                'k' => whole.echo(&mut dispatch, 0, Operand::Keys, 4),
                _ => whole.echo(&mut dispatch, 3, Operand::Queries, 4),
            }
            if step.len() > 1 && what == 'k' {
                dispatch.end_phase().unwrap();
            }
        }
        let mut buffers = [a.clone(), b.clone(), vec![0; 64]];
        device.dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
        assert_eq!(&buffers[2], expected, "{step}");
    }
}

/// Tiles that do not go with each other could stop for ever: the caller has to take another design.
#[test]
fn tiles_without_an_order_are_rejected() {
    let whole = whole();
    let odd = ElementsColumn { b: Some(flow(1, 16, 2, 2)), ..addition(16, 3, 2) };
    let error = whole.vectors.dispatch(&[odd]).unwrap_err();
    let message = "core (0,4) takes 3 tiles of its first operand and 2 of its second over one channel, and its order is 0 of the second, then \
                   1 of the first for each of the second";
    assert_eq!(error.to_string(), message);
    let long = ElementsColumn {
        b: Some(Flow { regions: vec![Region::linear(1, 0, 4 * 49)], ..flow(1, 16, 3, 2) }),
        ..addition(16, 3, 2)
    };
    let error = whole.vectors.dispatch(&[long]).unwrap_err();
    let unbalanced = "MM2S 1 of tile (0,0), packet 4 sends 49 words in a phase, and S2MM 1 of tile (0,4) receives 48";
    assert_eq!(error.to_string(), unbalanced);
}

/// What the reader of designs says of all of it.
#[test]
fn designs_are_read_without_problems() {
    let whole = whole();
    let mut dispatch = whole.configured.dispatch();
    whole.vectors.add(&mut dispatch, 0, &addition(16, 9, 1)).unwrap();
    whole.echo(&mut dispatch, 1, Operand::Keys, 3);
    let stream = dispatch.finish().unwrap();
    let design = Design::read(&aie2(), &Files::parse(whole.configured.pdi(), Some(&stream)).unwrap()).unwrap();
    assert_eq!((&design.problems[..], &design.doubts[..]), (&[][..], &[][..]));
}

/// Without others beside them products are as they were: nothing has an id, and the rows above have no program.
#[test]
fn products_alone_have_no_packets() {
    let code = [0; 16];
    let products = CoreCode { program: &code, data: &[] };
    let alone = Rings::new(&aie2(), 1, (products, &ADDER_MEMORY), None, None).unwrap();
    assert!(alone.vectors().is_none() && alone.configured().routes().all(|(stream, _)| stream.packet.is_none()));
    let with_vectors = Rings::new(&aie2(), 1, (products, &ADDER_MEMORY), Some(products), None).unwrap();
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
    let sums = |words, count| whole.vectors.dispatch(&[addition(words, count, 2)]).unwrap();
    let streams = [sums(16, 5), keys(Operand::Keys), sums(8, 9), keys(Operand::Queries), sums(16, 2)];
    let mut writer = InstructionWriter::new(InstructionStream::parse(&streams[0]).unwrap().header());
    for (number, stream) in (0..).zip(&streams) {
        // Results have places of their own.
        let places = [0, 1, 2 + number].map(|argument| ArgumentPlace { argument, offset: 0 });
        writer.append(&InstructionStream::parse(stream).unwrap(), &places).unwrap();
    }
    let a: Vec<u32> = (0..80).map(|at| at + 7).collect();
    let b: Vec<u32> = (0..80).map(|at| 3 * at).collect();
    let sum: Vec<u32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let mut buffers = vec![a.clone(), b, vec![0; 80], vec![0; 32], vec![0; 72], vec![0; 32], vec![0; 32]];
    for _ in 0..2 {
        buffers[2..].iter_mut().for_each(|result| result.fill(0));
        device.dispatch(&writer.clone().finish().unwrap(), &mut buffers).unwrap();
        assert_eq!(buffers[2..], [&sum[..80], &a[..32], &sum[..72], &a[..32], &sum[..32]]);
    }
}
