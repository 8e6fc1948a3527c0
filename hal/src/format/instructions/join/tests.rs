use super::*;
use crate::format::bd::ShimBd;
use crate::format::dma_channel::Direction;
use crate::format::instructions::{Header, Transfer};
use crate::format::mutation::{mutate, put_word};
use rstest::rstest;

const HEADER: Header = Header { generation: 3, rows: 6, columns: 4, mem_tile_rows: 1 };

/// Moves `words` words of argument 0 to argument 1, from byte 8 of both on, and waits.
fn moving(words: u32) -> Vec<u8> {
    let mut writer = InstructionWriter::new(HEADER);
    for (argument, direction) in [(0, Direction::MemoryToStream), (1, Direction::StreamToMemory)] {
        let (descriptor, token, shape) = (argument as u8, argument == 1, ShimBd::linear(words, 2));
        let transfer =
            Transfer { column: 0, direction, channel: 0, descriptor, shape, argument, offset: 8, repeat: 0, token };
        writer.transfer(&transfer).unwrap();
        if token {
            writer.wait(&transfer);
        }
    }
    writer.finish().unwrap()
}

fn at(argument: u16, offset: u64) -> ArgumentPlace {
    ArgumentPlace { argument, offset }
}

fn patches(stream: &[u8]) -> Vec<(u16, u64)> {
    let stream = InstructionStream::parse(stream).unwrap();
    let patch = |operation| match operation {
        Instruction::AddressPatch { argument, offset, .. } => Some((argument, offset)),
        _ => None,
    };
    stream.operations().filter_map(patch).collect()
}

#[test]
fn operations_stay_and_arguments_move() {
    let parts = [moving(4), moving(7)];
    let streams = parts.each_ref().map(|bytes| InstructionStream::parse(bytes).unwrap());
    assert!(streams.iter().all(InstructionStream::can_be_joined));
    let mut writer = InstructionWriter::new(HEADER);
    writer.append(&streams[0], &[at(2, 0), at(0, 0x100)]).unwrap();
    writer.append(&streams[1], &[at(0, 0x100), at(1, 0x7000_0000)]).unwrap();
    let joined = writer.finish().unwrap();
    assert_eq!(patches(&joined), [(2, 8), (0, 0x108), (0, 0x108), (1, 0x7000_0008)]);
    let joined = InstructionStream::parse(&joined).unwrap();
    assert_eq!((joined.argument_count(), joined.has_completion_token()), (3, true));
    let is_other = |operation: &Instruction<'_>| !matches!(operation, Instruction::AddressPatch { .. });
    let expected = streams.iter().flat_map(InstructionStream::operations).filter(is_other);
    assert!(joined.operations().filter(is_other).eq(expected));
}

#[rstest]
#[case::preempt(Instruction::Preempt { level: 1 }, "lets another context take over")]
#[case::load(Instruction::LoadPdi { id: 1, size: 16, address: 0 }, "loads another PDI")]
#[case::custom(Instruction::Custom { opcode: 0x83, payload: crate::format::words::Words::new(&[], 0) }, "has code 0x83")]
fn what_is_not_known_to_go_together_is_refused(#[case] operation: Instruction<'_>, #[case] expected: &str) {
    let bytes = InstructionWriter::new(HEADER).push(&operation).finish().unwrap();
    let stream = InstructionStream::parse(&bytes).unwrap();
    assert!(!stream.can_be_joined());
    let error = InstructionWriter::new(HEADER).append(&stream, &[]).unwrap_err().to_string();
    assert!(error.starts_with("operation 0 of the stream ") && error.contains(expected), "{error}");
}

#[test]
fn a_stream_without_a_token_is_refused() {
    let bytes = InstructionWriter::new(HEADER).push(&Instruction::Noop).finish().unwrap();
    assert!(!InstructionStream::parse(&bytes).unwrap().can_be_joined());
}

#[test]
fn arguments_need_a_place_and_streams_the_same_partition() {
    let bytes = moving(4);
    let stream = InstructionStream::parse(&bytes).unwrap();
    let error = |header, places: &[ArgumentPlace]| {
        InstructionWriter::new(header).append(&stream, places).unwrap_err().to_string()
    };
    assert_eq!(error(HEADER, &[at(0, 0)]), "operation 4 of the stream uses argument 1 of 1");
    // Beyond what firmware can add to the address of an argument, also a late one.
    for place in [at(0, u64::MAX - 7), at(0, 0xffff_fff8), at(5, 0x7fff_fff8)] {
        let far = error(HEADER, &[place]);
        assert_eq!(far, "operation 1 of the stream has an address 0x8 bytes behind its argument");
    }
    assert!(
        error(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 }, &[at(0, 0), at(1, 0)])
            .contains("is for another partition")
    );
}

/// Whatever is read is joined or refused; what was joined has all operations.
#[test]
fn mutated_streams_are_joined_or_refused() {
    let (first, places) = (moving(4), [at(1, 16), at(0, 0)]);
    let first = InstructionStream::parse(&first).unwrap();
    let (mut joined, mut refused) = (0, 0);
    mutate(&moving(7), 20_000, |mutated| {
        let mut mutated = mutated.to_vec();
        if mutated.len() >= 16 {
            let size = mutated.len() as u32;
            put_word(&mut mutated, 12, size);
        }
        let Ok(stream) = InstructionStream::parse(&mutated) else { return };
        let mut writer = InstructionWriter::new(HEADER);
        writer.append(&first, &places).unwrap();
        if writer.append(&stream, &places).is_err() {
            refused += 1;
            return;
        }
        joined += 1;
        let bytes = writer.finish().unwrap();
        let count = InstructionStream::parse(&bytes).unwrap().operations().count();
        assert_eq!(count, first.operations().count() + stream.operations().count());
        assert!(patches(&bytes).iter().all(|(argument, _)| *argument < 2));
    });
    assert!(joined > 1000 && refused > 100, "{joined} joined, {refused} refused");
}
