//! Kernels with one thing wrong: each has to be noticed, by the emulator, by the result, or by what is left behind.
//!
//! Every word of a dispatch that is a lock's value, a descriptor's length, address, size, step or lock is changed by one, and every
//! circuit of a configuration is led elsewhere, one at a time.

use super::product::MemMemory;
use super::testing::Device;
use super::testing::{ADDER_MEMORY, adder, aie2};
use super::{Channel, Part, Product, Region, Tile};
use aie_hal::format::cdo::{CdoBuilder, CdoCommand};
use aie_hal::format::instructions::{Instruction, InstructionStream, InstructionWriter};
use aie_hal::format::pdi::{self, Pdi};
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::{Port, StreamSwitch};
use aie_hal::format::tile_location;

/// A column of the product design: locks, descriptors of all three kinds, chains, circuits with several ends.
struct Kernel {
    pdi: Vec<u8>,
    stream: Vec<u8>,
}

const WORDS: u64 = 64;
const TILES: u32 = 3;

fn kernel() -> Kernel {
    let product = Product::new(&aie2(), 1, &adder(), &[], &ADDER_MEMORY, MemMemory::default()).unwrap();
    let column = &product.columns()[0];
    let mut dispatch = product.configured().dispatch();
    let mut run = |channel: Channel, rings: &[super::Ring]| {
        let part = |ring: &super::Ring| Part::linear(ring.cut(4 * WORDS as u32, 2).unwrap(), WORDS);
        let parts: Vec<Part> = rings.iter().map(part).collect();
        dispatch.run(channel, &parts, TILES).unwrap();
    };
    for (half, cores) in [[0, 1], [2, 3]].into_iter().enumerate() {
        let mut rings = cores.map(|core| column.parts[core].weights.0).to_vec();
        if half == 0 {
            rings.push(column.operand.0);
        }
        run(column.arrival[half], &rings);
    }
    run(column.operand.1, &[column.operand.0]);
    for (part, core) in column.parts.iter().zip(&column.cores) {
        for (ring, channel) in [part.weights, part.result, core.weights, core.operand, core.result] {
            run(channel, &[ring]);
        }
    }
    run(column.departure, &column.parts.iter().map(|part| part.result.0).collect::<Vec<_>>());
    for core in &column.cores {
        dispatch.start(core.tile, &[TILES, WORDS as u32, 4 * WORDS as u32]).unwrap();
    }
    let bytes = |tiles: u64| 4 * WORDS * tiles * u64::from(TILES);
    dispatch.transfer(column.sources[0], &Region::linear(0, 0, bytes(3))).unwrap();
    dispatch.transfer(column.sources[1], &Region::linear(0, bytes(3), bytes(2))).unwrap();
    dispatch.transfer(column.result, &Region::linear(1, 0, bytes(4))).unwrap();
    Kernel { pdi: product.configured().pdi().to_vec(), stream: dispatch.finish().unwrap() }
}

/// Whether a kernel gives the right sums and leaves everything as it was.
fn is_right(pdi: &[u8], stream: &[u8]) -> bool {
    let (words, tiles) = (WORDS as usize, TILES as usize);
    let source: Vec<u32> = (0..5 * words as u32 * TILES).map(|word| word.wrapping_mul(0x9E37_79B9)).collect();
    let (low, high) = source.split_at(3 * words * tiles);
    let expected: Vec<u32> = (0..4 * words * tiles)
        .map(|at| {
            let (tile, core, word) = (at / (4 * words), at / words % 4, at % words);
            let weight = if core < 2 {
                low[(3 * tile + core) * words + word]
            } else {
                high[(2 * tile + core - 2) * words + word]
            };
            weight.wrapping_add(low[(3 * tile + 2) * words + word])
        })
        .collect();
    // Bytes behind the arguments, so that one too many is not an error by itself.
    let mut buffers = [[source.clone(), vec![7; 64]].concat(), vec![9; expected.len() + 64]];
    let Ok(mut device) = Device::load(pdi) else { return false };
    // Twice: a word that is left in a stream by the first is in the way of the second.
    if (0..2).any(|_| device.dispatch(stream, &mut buffers).is_err()) {
        return false;
    }
    // Empty, full, for each ring; then locks that nothing uses.
    let rest = |count: usize| [2, 0].repeat(count);
    let cores = (2..6).all(|row| device.locks(Tile::new(0, row), 16) == [rest(3), vec![0; 10]].concat());
    let mem = device.locks(Tile::new(0, 1), 20) == [rest(9), vec![0; 2]].concat();
    buffers[1] == [expected, vec![9; 64]].concat() && cores && mem
}

/// The stream with the words of its operations changed.
fn rewritten(stream: &[u8], mut change: impl FnMut(u32, usize, u32) -> u32) -> Vec<u8> {
    let stream = InstructionStream::parse(stream).unwrap();
    let mut writer = InstructionWriter::new(stream.header());
    for operation in stream.operations() {
        match operation {
            Instruction::Write { address, value } => {
                writer.push(&Instruction::Write { address, value: change(address as u32, 0, value) });
            }
            Instruction::BlockWrite { address, data } => {
                let words: Vec<u32> =
                    data.iter().enumerate().map(|(index, word)| change(address, index, word)).collect();
                writer.block_write(address, &words);
            }
            other => {
                writer.push(&other);
            }
        }
    }
    writer.finish().unwrap()
}

/// Bits of a descriptor's fields that are changed by one: word and lowest bit. Steps of dimensions that a linear descriptor does not
/// have are left out, and so are high halves of addresses.
fn fields(address: u32, index: usize) -> &'static [u32] {
    let (_, row, offset) = tile_location(address);
    match (row, offset, index) {
        (0, 0x1_D000..0x1_D200, 0) => &[0],
        (1, 0xA_0000..0xA_0600, 0 | 1) => &[0],
        // Iteration: step, wrap and current. Locks: acquired and its value, released and its value.
        (1, 0xA_0000..0xA_0600, 6) => &[0, 17, 23],
        (1, 0xA_0000..0xA_0600, 7) => &[0, 8, 16, 24],
        (2..6, 0x1_D000..0x1_D200, 0) => &[0, 14],
        (2..6, 0x1_D000..0x1_D200, 4) => &[0, 13, 19],
        (2..6, 0x1_D000..0x1_D200, 5) => &[0, 5, 13, 18],
        // Repeat counts.
        (1, 0xA_0600..0xA_0660, _) | (2..6, 0x1_DE00..0x1_DE20, _) => &[16],
        // Locks.
        (1, 0xC_0000..0xC_0400, _) | (2..6, 0x1_F000..0x1_F100, _) => &[0],
        _ => &[],
    }
}

#[test]
fn every_changed_number_of_a_dispatch_is_noticed() {
    let Kernel { pdi, stream } = kernel();
    assert!(is_right(&pdi, &stream));
    let mut places = Vec::new();
    let mut count = 0;
    rewritten(&stream, |address, index, word| {
        // One core and one half of the mem tile's descriptors: the others are alike.
        let (_, row, _) = tile_location(address);
        if row < 3 {
            places.extend(fields(address, index).iter().map(|bit| (count, *bit)));
        }
        count += 1;
        word
    });
    let (mut checked, mut missed) = (0, Vec::new());
    for (place, bit) in places {
        let (mut at, mut changed) = (0, None);
        let other = rewritten(&stream, |address, index, word| {
            at += 1;
            if at != place + 1 {
                return word;
            }
            let flipped = word ^ 1 << bit;
            changed = Some(format!("{address:#x}[{index}]: {word:#x} -> {flipped:#x}"));
            flipped
        });
        checked += 1;
        if is_right(&pdi, &other) {
            missed.extend(changed);
        }
    }
    println!("{checked} changes, {} missed", missed.len());
    assert!(checked > 150 && missed.is_empty(), "{checked} changes, missed: {missed:#?}");
}

/// The PDI with one master port's source changed to the next slave; none if there is no such port.
fn misled(file: &[u8], number: usize) -> Option<Vec<u8>> {
    let (mut cdo, mut seen, mut changed) = (CdoBuilder::new(), 0, false);
    for command in Pdi::parse(file).unwrap().cdo().commands() {
        let CdoCommand::Write { address, value } = command else {
            cdo.push(&command);
            continue;
        };
        let (_, row, offset) = tile_location(address as u32);
        let kind = [TileKind::Shim, TileKind::Mem].get(usize::from(row)).copied().unwrap_or(TileKind::Core);
        let switch = StreamSwitch(kind);
        let mut masters = (0..switch.masters().count() as u32).map(|index| (index, switch.master_register(index)));
        let master = masters.find(|(_, register)| *register == offset).and_then(|(index, _)| switch.master(index));
        let is_circuit = value >> 30 == 0b10;
        let value = match master {
            Some(port) if is_circuit && port != Port::South(0) => {
                seen += 1;
                if seen == number + 1 {
                    changed = true;
                    value + 1
                } else {
                    value
                }
            }
            _ => value,
        };
        cdo.write(address, value);
    }
    changed.then(|| pdi::write(&cdo).unwrap())
}

#[test]
fn every_wrong_route_is_noticed() {
    let Kernel { pdi, stream } = kernel();
    let wrong: Vec<Vec<u8>> = (0..).map_while(|number| misled(&pdi, number)).collect();
    let missed = wrong.iter().filter(|pdi| is_right(pdi, &stream)).count();
    assert!(wrong.len() > 30 && missed == 0, "{} changes, {missed} missed", wrong.len());
}

/// The locks of rings start one too high, one at a time.
#[test]
fn every_wrong_start_of_a_lock_is_noticed() {
    let Kernel { pdi, stream } = kernel();
    let wrong = |number: usize| {
        let (mut cdo, mut seen) = (CdoBuilder::new(), 0);
        for command in Pdi::parse(&pdi).unwrap().cdo().commands() {
            match command {
                CdoCommand::Write { address, value } if is_ring_lock(address as u32) => {
                    seen += 1;
                    cdo.write(address, value + u32::from(seen == number + 1));
                }
                other => drop(cdo.push(&other)),
            }
        }
        (seen > number).then(|| pdi::write(&cdo).unwrap())
    };
    let wrong: Vec<Vec<u8>> = (0..).map_while(wrong).collect();
    let missed = wrong.iter().filter(|pdi| is_right(pdi, &stream)).count();
    // Nine rings of the mem tile and three of each core.
    assert_eq!((wrong.len(), missed), (2 * (9 + 4 * 3), 0));
}

fn is_ring_lock(address: u32) -> bool {
    let (_, row, offset) = tile_location(address);
    match row {
        1 => (0xC_0000..0xC_0000 + 0x10 * 18).contains(&offset),
        2.. => (0x1_F000..0x1_F000 + 0x10 * 6).contains(&offset),
        _ => false,
    }
}
