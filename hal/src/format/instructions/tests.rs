use super::*;
use crate::format::bd::ShimBd;
use crate::format::mutation::{mutate, put_word, word};
use crate::format::words::extend;
use rstest::rstest;

/// The operations of a design with one input and one output on one column of aie2p.
const ONE_IN_ONE_OUT: [&[u32]; 8] = [
    &[1, 0, 0x1_D000, 48, 128, 0, 0, 0, 0xC000_0000, 0x0200_0000, 0, 0x0200_0000],
    &[0x81, 48, 0, 0, 0, 0, 0x1_D004, 0, 0, 0, 0, 0],
    &[0, 0, 0x1_D214, 0, 0, 24],
    &[1, 0, 0x1_D020, 48, 0x1000, 0, 0, 0, 0xC000_0000, 0x0200_0000, 0, 0x0200_0000],
    &[0x81, 48, 0, 0, 0, 0, 0x1_D024, 0, 1, 0, 0, 0],
    &[3, 0, 0x1_D200, 0, 0xF00, 0x1F00, 28],
    &[0, 0, 0x1_D204, 0, 0x8000_0001, 24],
    &[0x80, 16, 0, 0x0001_0100],
];

fn bytes(words: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    extend(&mut bytes, words.iter().copied());
    bytes
}

/// A one-column aie2p stream of `count` operations.
fn stream(count: u32, operations: &[u32]) -> Vec<u8> {
    let size = (HEADER_WORDS + operations.len()) * WORD;
    bytes(&[&[0x0604_0100, 0x101, count, size as u32], operations].concat())
}

fn transfer(direction: Direction, descriptor: u8, words: u32, argument: u16, token: bool) -> Transfer {
    Transfer {
        column: 0,
        direction,
        channel: 0,
        descriptor,
        shape: ShimBd::linear(words, 3),
        argument,
        offset: 0,
        repeat: 0,
        token,
    }
}

#[test]
fn one_in_one_out_is_written_word_for_word() {
    let input = transfer(Direction::MemoryToStream, 0, 128, 0, false);
    let output = transfer(Direction::StreamToMemory, 1, 0x1000, 1, true);
    let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
    writer.transfer(&input).unwrap().transfer(&output).unwrap().wait(&output);
    let written = Words::new(&writer.finish().unwrap(), 0).to_vec();
    assert_eq!(written[..4], [0x0604_0100, 0x0000_0101, 8, 300]);
    assert_eq!(written[4..], ONE_IN_ONE_OUT.concat());
}

#[test]
fn block_writes_are_charged_by_their_words() {
    let charge = |words: usize| {
        let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
        writer.block_write(0, &vec![0; words]);
        InstructionStream::parse(&writer.finish().unwrap()).unwrap().charged_operations()
    };
    assert_eq!([0, 1, 6, 8, 9, 16, 17, 128].map(charge), [1, 1, 1, 1, 2, 2, 3, 16]);
    let file = stream(8, &ONE_IN_ONE_OUT.concat());
    assert_eq!(InstructionStream::parse(&file).unwrap().charged_operations(), 8);
}

#[test]
fn one_in_one_out_is_read() {
    let file = stream(8, &ONE_IN_ONE_OUT.concat());
    let stream = InstructionStream::parse(&file).unwrap();
    assert_eq!(stream.header(), Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
    assert_eq!(stream.argument_count(), 2);
    assert!(stream.has_completion_token());
    let operations: Vec<Instruction> = stream.operations().collect();
    assert_eq!(operations.len(), 8);
    assert!(matches!(operations[0], Instruction::BlockWrite { address: 0x1_D000, data } if data.len() == 8));
    assert_eq!(operations[1], Instruction::AddressPatch { register: 0x1_D004, argument: 0, offset: 0 });
    assert_eq!(operations[2], Instruction::Write { address: 0x1_D214, value: 0 });
    assert_eq!(operations[5], Instruction::MaskWrite { address: 0x1_D200, value: 0xF00, mask: 0x1F00 });
    let sync =
        Instruction::Sync { direction: Direction::StreamToMemory, column: 0, row: 0, columns: 1, rows: 1, channel: 0 };
    assert_eq!(operations[7], sync);
}

#[rstest]
#[case::aie2_array(Header { generation: 3, rows: 6, columns: 4, mem_tile_rows: 1 }, [0x0603_0100, 0x104])]
#[case::aie2p_array(Header { generation: 4, rows: 6, columns: 8, mem_tile_rows: 1 }, [0x0604_0100, 0x108])]
fn headers(#[case] header: Header, #[case] words: [u32; 2]) {
    let file = InstructionWriter::new(header).finish().unwrap();
    assert_eq!(file, bytes(&[words[0], words[1], 0, 16]));
    let stream = InstructionStream::parse(&file).unwrap();
    assert_eq!((stream.header(), stream.argument_count()), (header, 0));
    assert!(!stream.has_completion_token());
}

/// One operation of each kind with its words.
fn every_kind() -> Vec<(Vec<u32>, Instruction<'static>)> {
    static DATA: [u8; 8] = [1, 0, 0, 0, 2, 0, 0, 0];
    let data = Words::new(&DATA, 0);
    let none = Words::new(&[], 0);
    let (address, value, mask) = (0x2_0021_D204, 5, 7);
    let (direction, column, row) = (Direction::MemoryToStream, 3, 0);
    vec![
        (vec![0, 0, 0x0021_D204, 2, 5, 24], Instruction::Write { address, value }),
        (vec![1, 0, 0x1_D000, 24, 1, 2], Instruction::BlockWrite { address: 0x1_D000, data }),
        (vec![1, 0, 0x1_D000, 16], Instruction::BlockWrite { address: 0x1_D000, data: none }),
        (vec![3, 0, 0x0021_D204, 2, 5, 7, 28], Instruction::MaskWrite { address, value, mask }),
        (vec![4, 0, 0x0021_D204, 2, 5, 7, 28], Instruction::MaskPoll { address, value, mask }),
        (vec![7, 0, 0x0021_D204, 2, 5, 7, 28], Instruction::MaskPollBusy { address, value, mask }),
        (vec![5], Instruction::Noop),
        (vec![0x206], Instruction::Preempt { level: 2 }),
        (vec![0x0009_0008, 3000, 0x1000, 4], Instruction::LoadPdi { id: 9, size: 3000, address: 0x4_0000_1000 }),
        (
            vec![0x80, 16, 0x0003_0001, 0x0102_0100],
            Instruction::Sync { direction, column, row, columns: 2, rows: 1, channel: 1 },
        ),
        (
            vec![0x81, 48, 0, 0, 0, 0, 0x0601_D004, 0, 4, 0, 0x100, 1],
            Instruction::AddressPatch { register: 0x0601_D004, argument: 4, offset: 0x1_0000_0100 },
        ),
        (vec![0x82, 16, 1, 2], Instruction::Custom { opcode: opcode::READ_REGISTERS, payload: data }),
        (vec![0x83, 8], Instruction::Custom { opcode: opcode::RECORD_TIMER, payload: none }),
        (vec![0x84, 16, 1, 2], Instruction::Custom { opcode: opcode::MERGE_SYNC, payload: data }),
        (vec![0xF7, 16, 1, 2], Instruction::Custom { opcode: 0xF7, payload: data }),
    ]
}

#[test]
fn every_kind_is_read_and_written() {
    for (words, operation) in every_kind() {
        let file = stream(2, &[&words[..], &[5]].concat());
        let read: Vec<Instruction> = InstructionStream::parse(&file).unwrap().operations().collect();
        assert_eq!(read, [operation, Instruction::Noop]);
        let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
        writer.push(&operation).push(&Instruction::Noop);
        assert_eq!(writer.finish().unwrap(), file, "{operation:?}");
    }
}

/// aie-rt's structure of these operations ends with a word of padding, whose content means nothing.
#[rstest]
fn masked_operations_of_aie_rt_are_read(#[values(3, 4, 7)] code: u32, #[values(0, 0xDEAD_BEEF)] padding: u32) {
    let words = [code, 0, 0x0021_D204, 2, 5, 7];
    let (short, long) = ([&words[..], &[28, 5]].concat(), [&words[..], &[32, padding, 5]].concat());
    let (short, long) = (stream(2, &short), stream(2, &long));
    let operations = |file| InstructionStream::parse(file).unwrap().operations().collect::<Vec<_>>();
    assert_eq!(operations(&long), operations(&short));
    let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
    operations(&long).iter().fold(&mut writer, InstructionWriter::push);
    assert_eq!(writer.finish().unwrap(), short);
}

#[test]
fn slices_are_written_like_words() {
    let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
    writer.block_write(0x1_D000, &[1, 2]).custom(0xF7, &[1, 2]);
    assert_eq!(writer.finish().unwrap(), stream(2, &[1, 0, 0x1_D000, 24, 1, 2, 0xF7, 16, 1, 2]));
}

#[test]
fn transfers_on_other_columns_have_their_addresses() {
    let mut output = transfer(Direction::StreamToMemory, 15, 64, 2, true);
    output.column = 3;
    output.channel = 1;
    output.repeat = 4;
    output.offset = 256;
    let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 4, mem_tile_rows: 1 });
    writer.transfer(&output).unwrap().wait(&output);
    let file = writer.finish().unwrap();
    let operations: Vec<Instruction> = InstructionStream::parse(&file).unwrap().operations().collect();
    assert!(matches!(operations[0], Instruction::BlockWrite { address: 0x0601_D1E0, .. }));
    let patch = Instruction::AddressPatch { register: 0x0601_D1E4, argument: 2, offset: 256 };
    assert_eq!(operations[1], patch);
    assert_eq!(operations[2], Instruction::MaskWrite { address: 0x0601_D208, value: 0xF00, mask: 0x1F00 });
    assert_eq!(operations[3], Instruction::Write { address: 0x0601_D20C, value: 0x8004_000F });
    assert!(matches!(operations[4], Instruction::Sync { column: 3, channel: 1, .. }));
}

#[test]
fn a_transfer_that_does_not_fit_adds_nothing() {
    let mut wrong = transfer(Direction::MemoryToStream, 0, 1, 0, false);
    wrong.shape.d0_wrap = 5000;
    let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
    assert_eq!(writer.transfer(&wrong).unwrap_err().what, "shim BD field d0_wrap");
    let wrong = Transfer { channel: 2, ..transfer(Direction::MemoryToStream, 0, 1, 0, false) };
    assert_eq!(writer.transfer(&wrong).unwrap_err().what, "DMA channel of a shim tile");
    assert_eq!(writer.finish().unwrap(), stream(0, &[]));
}

#[test]
fn merged_waits_count_as_completion() {
    let file = stream(1, &[0x84, 8]);
    assert!(InstructionStream::parse(&file).unwrap().has_completion_token());
}

#[rstest]
#[case::empty(&[], "instructions at offset 0x0: expected a header of 16 bytes, found 0 bytes")]
#[case::no_size(
    &[0x0604_0100, 0x101, 0],
    "instructions at offset 0x0: expected a header of 16 bytes, found 12 bytes",
)]
#[case::optimised(
    &[0x0604_0001, 0x101, 0, 16],
    "instructions at offset 0x0: expected transaction format 0.1, found 1.0 (1.0 is the optimised format of XRT's ELF \
     files: use the insts.bin that mlir-aie writes)",
)]
#[case::too_short(
    &[0x0604_0100, 0x101, 0, 20],
    "instructions size at offset 0xc: expected 20 bytes by the header, found 16 bytes",
)]
#[case::too_long(
    &[0x0604_0100, 0x101, 0, 16, 5],
    "instructions size at offset 0xc: expected 16 bytes by the header, found 20 bytes",
)]
#[case::fewer(
    &[0x0604_0100, 0x101, 2, 20, 5],
    "instructions at offset 0x8: expected 2 operations by the header, found 1",
)]
#[case::more(
    &[0x0604_0100, 0x101, 0, 20, 5],
    "instructions at offset 0x8: expected 0 operations by the header, found 1",
)]
fn headers_are_checked(#[case] file: &[u32], #[case] expected: &str) {
    assert_eq!(InstructionStream::parse(&bytes(file)).unwrap_err().to_string(), expected);
}

#[test]
fn sizes_are_whole_words() {
    let mut file = stream(1, &[5]);
    file.push(0);
    put_word(&mut file, 12, 21);
    let message = InstructionStream::parse(&file).unwrap_err().to_string();
    assert_eq!(message, "instructions size at offset 0xc: expected 21 bytes by the header, found 21 bytes");
}

const UNKNOWN: &str = "an operation of known length";

#[rstest]
#[case::block_set(&[2, 0, 0, 16], UNKNOWN, "code 0x02")]
#[case::load_pm(&[9, 0, 0, 0], UNKNOWN, "code 0x09")]
#[case::last_unknown(&[0x7F], UNKNOWN, "code 0x7f")]
#[case::short_write(&[0, 0, 0], "24 bytes", "the end of the stream after 12")]
#[case::short_block(&[1, 0, 0, 48, 1, 2], "48 bytes", "the end of the stream after 24")]
#[case::huge_block(&[1, 0, 0, 0xFFFF_FFFC], "4294967292 bytes", "the end of the stream after 16")]
#[case::short_mask(&[3, 0], "28 bytes", "the end of the stream after 8")]
#[case::short_load(&[8], "16 bytes", "the end of the stream after 4")]
#[case::short_sync(&[0x80, 16], "16 bytes", "the end of the stream after 8")]
#[case::short_patch(&[0x81, 48], "48 bytes", "the end of the stream after 8")]
#[case::short_custom(&[0x90], "8 bytes", "the end of the stream after 4")]
#[case::long_custom(&[0x90, 16], "16 bytes", "the end of the stream after 8")]
#[case::write_size(&[0, 0, 0, 0, 0, 20], "24", "20 bytes")]
#[case::block_size(&[1, 0, 0, 12], "a multiple of 4 of at least 16", "12 bytes")]
#[case::odd_block(&[1, 0, 0, 18, 0], "a multiple of 4 of at least 16", "18 bytes")]
#[case::mask_size(&[4, 0, 0, 0, 0, 0, 24], "28 or 32", "24 bytes")]
#[case::mask_between(&[3, 0, 0, 0, 0, 0, 30, 0], "28 or 32", "30 bytes")]
#[case::mask_beyond(&[7, 0, 0, 0, 0, 0, 36, 0, 0], "28 or 32", "36 bytes")]
#[case::padded_mask_cut(&[3, 0, 0, 0, 0, 0, 32], "32 bytes", "the end of the stream after 28")]
#[case::sync_size(&[0x80, 20, 0, 0], "16", "20 bytes")]
#[case::patch_size(&[0x81, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "48", "40 bytes")]
#[case::custom_size(&[0x90, 4], "a multiple of 4 of at least 8", "4 bytes")]
#[case::odd_custom(&[0x90, 10, 0], "a multiple of 4 of at least 8", "10 bytes")]
#[case::direction(&[0x80, 16, 2, 0], "direction 0 or 1", "0x2")]
#[case::action(&[0x81, 48, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], "action 0", "0x1")]
#[case::argument(&[0x81, 48, 0, 0, 0, 0, 0, 0, 0xFFFF, 0, 0, 0], "argument index below 65535", "0xffff")]
#[case::wide_argument(&[0x81, 48, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0], "argument index below 65535", "0x100000001")]
fn operations_are_checked(#[case] operations: &[u32], #[case] expected: &str, #[case] found: &str) {
    let error = InstructionStream::parse(&stream(1, operations)).unwrap_err();
    let what = if expected == UNKNOWN { "instruction".into() } else { format!("instruction {:#04x}", operations[0]) };
    assert_eq!(error, FormatError::new(what, 16, expected, found));
}

#[test]
fn what_cannot_be_read_is_not_written() {
    let writer = || InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
    let known = writer().custom(opcode::ADDRESS_PATCH, &[1, 2]).finish().unwrap_err();
    assert_eq!(&*known.found, "the end of the stream after 16");
    let patch = Instruction::AddressPatch { register: 0, argument: u16::MAX, offset: 0 };
    let wide = writer().push(&patch).finish().unwrap_err();
    assert_eq!(&*wide.expected, "argument index below 65535");
}

#[test]
fn more_than_the_device_heap_is_rejected() {
    let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
    writer.block_write(0, &vec![0; MAX_WORDS - HEADER_WORDS - 4]);
    assert_eq!(writer.finish().unwrap().len(), MAX_WORDS * WORD);
    writer.push(&Instruction::Noop);
    assert_eq!(writer.finish(), Err(FormatError::too_long("instructions", MAX_WORDS + 1)));
}

#[test]
fn every_truncation_is_an_error() {
    let file = stream(8, &ONE_IN_ONE_OUT.concat());
    for length in 0..file.len() {
        assert!(InstructionStream::parse(&file[..length]).is_err(), "{length}");
        let mut consistent = file[..length].to_vec();
        if length >= 16 {
            put_word(&mut consistent, 12, length as u32);
            assert!(InstructionStream::parse(&consistent).is_err(), "{length}");
        }
    }
}

#[test]
fn mutated_streams_are_read_or_rejected_and_what_is_read_comes_back() {
    let operations: Vec<u32> = every_kind().into_iter().flat_map(|(words, _)| words).collect();
    let file = stream(every_kind().len() as u32, &operations);
    let (mut read, mut rejected) = (0, 0);
    mutate(&file, 40_000, |mutated| {
        let mut mutated = mutated.to_vec();
        if mutated.len() >= 16 && word(&mutated, 0) & 1 == 0 {
            let size = mutated.len() as u32;
            put_word(&mut mutated, 12, size);
        }
        match InstructionStream::parse(&mutated) {
            Ok(stream) => {
                read += 1;
                let mut writer = InstructionWriter::new(stream.header());
                stream.operations().fold(&mut writer, |writer, operation| writer.push(&operation));
                let again = writer.finish().unwrap();
                let again = InstructionStream::parse(&again).unwrap();
                assert_eq!(again, InstructionStream { operations: again.operations, ..stream });
                assert!(again.operations().eq(stream.operations()));
            }
            Err(_) => rejected += 1,
        }
    });
    assert!(read > 1000 && rejected > 1000, "{read} read, {rejected} rejected");
}
