//! Rings of a mem tile that end where they began, and ones that do not.

use super::*;
use aie_hal::format::bd::{MemTileBd, ShimBd};
use aie_hal::format::instructions::{Header, Instruction, InstructionWriter, Transfer};
use rstest::rstest;

const IN: Direction = Direction::MemoryToStream;
const OUT: Direction = Direction::StreamToMemory;

/// A ring of BDs 0 and 1 that a shim fills, and one of BDs 2 and 3 that is sent to it: 64 words a buffer, and 8 of padding where they
/// are sent. Packets get there if their id is 0 as far as a mask counts.
fn rings(packets: Option<u8>) -> Maker {
    let (shim, mem) = ((0, 0), (0, 1));
    let mut maker = Maker::default();
    maker.connect(0, IN, 0).connect(0, OUT, 0).circuit(shim, Port::South(3), Port::North(0));
    if let Some(mask) = packets {
        maker.packets(mem, Port::South(0), 0, PacketSlot { id: 0, mask, arbiter: 0, msel: 0 }, &[Port::Dma(0)]);
    } else {
        maker.circuit(mem, Port::South(0), Port::Dma(0));
    }
    maker.circuit(mem, Port::Dma(0), Port::South(2)).circuit(shim, Port::North(2), Port::South(2));
    for (id, next) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
        let address = MemTileBd::OWN_MEMORY + 0x100 * u32::from(id);
        let (acquire_lock, release_lock) = if id < 2 { (64, 65) } else { (66, 67) };
        let filled = MemTileBd {
            length: 64,
            address,
            acquire: true,
            acquire_lock,
            acquire_value: -1,
            release_lock,
            release_value: 1,
            use_next: true,
            next,
            valid: true,
            ..MemTileBd::default()
        };
        let sent = MemTileBd { length: 72, d0_wrap: 64, d0_zero_before: 8, ..filled };
        let words = if id < 2 { filled } else { sent }.encode().unwrap();
        maker.block(mem, MemTileBd::register(id), &words);
    }
    let task = |descriptor| DmaTask { descriptor, repeat: 0, token: false };
    maker.start(mem, OUT, 0, task(0)).start(mem, IN, 0, task(2));
    maker
}

/// Transfers of 64 words to the first ring, with repetitions, and one of `result` words from the second.
fn stream(repeats: &[u8], result: u32) -> InstructionWriter {
    transfers(false, repeats, result)
}

/// The same, each run of a transfer with a header.
fn packets(repeats: &[u8], result: u32) -> InstructionWriter {
    transfers(true, repeats, result)
}

fn transfers(enable_packet: bool, repeats: &[u8], result: u32) -> InstructionWriter {
    let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    let transfer = |direction, descriptor, words, repeat| Transfer {
        column: 0,
        direction,
        channel: 0,
        descriptor,
        shape: ShimBd { enable_packet: enable_packet && direction == IN, ..ShimBd::linear(words, 2) },
        argument: 0,
        offset: 0,
        repeat,
        token: direction == OUT,
    };
    for (descriptor, repeat) in (1..).zip(repeats) {
        writer.transfer(&transfer(IN, descriptor, 64, *repeat)).unwrap();
    }
    let result = transfer(OUT, 0, result, 0);
    writer.transfer(&result).unwrap().wait(&result);
    writer
}

const SENT: &str = "MM2S 0 sends 128 words to shim (0,0) S2MM 0 in a dispatch, which is not a multiple of the 144 words of its ring of 2 BDs: \
                    it ends 56 words into BD 3, number 2 of them, and the next dispatch begins there unless the configuration is \
                    loaded again";
const FILLED: &str = "S2MM 0 gets 192 words from shim (0,0) MM2S 0 in a dispatch, which is not a multiple of the 128 words of its ring of 2 \
                      BDs: it ends in front of BD 1, number 2 of them, and the next dispatch begins there unless the configuration is \
                      loaded again";

#[rstest]
#[case::whole_turns(None, stream(&[0, 0], 288), &[])]
#[case::whole_turns_by_repetition(None, stream(&[3], 144), &[])]
#[case::nothing(None, stream(&[], 144), &[])]
#[case::a_buffer_less(None, stream(&[0, 1], 144), &[FILLED])]
#[case::without_the_padding(None, stream(&[1], 128), &[SENT])]
#[case::packets(Some(31), packets(&[0, 0], 288), &[])]
#[case::a_packet_less(Some(31), packets(&[0, 1], 144), &[FILLED])]
#[case::packets_of_any_id_are_not_counted(Some(0), packets(&[0, 1], 144), &[])]
#[case::words_without_header_are_not_counted(Some(31), stream(&[0, 1], 144), &[])]
#[case::headers_that_arrive_are_not_counted(None, packets(&[0, 1], 144), &[])]
fn rings_end_where_they_began(
    #[case] by_packets: Option<u8>,
    #[case] stream: InstructionWriter,
    #[case] expected: &[&str],
) {
    let design = rings(by_packets).read(Some(&stream.finish().unwrap()));
    let found: Vec<&str> = design.doubts.iter().map(|doubt| doubt.what.as_str()).collect();
    assert_eq!((found, design.problems), (expected.to_vec(), vec![]));
    assert!(design.doubts.iter().all(|doubt| doubt.tile == Some(position(0, 1))));
}

/// A stream that starts a channel of the tile, or loads another PDI.
#[test]
fn what_the_stream_configures_is_not_counted() {
    let start = DmaChannel::new(TileKind::Mem, OUT, 1).unwrap();
    let start = start.start(DmaTask { descriptor: 24, repeat: 0, token: false }).unwrap();
    let start = Instruction::Write { address: tile_address(0, 1, start.offset).into(), value: start.value };
    for operation in [start, Instruction::LoadPdi { id: 1, size: 16, address: 0 }] {
        let mut stream = stream(&[0, 1], 144);
        stream.push(&operation);
        assert_eq!(rings(None).read(Some(&stream.finish().unwrap())).doubts, []);
    }
}
