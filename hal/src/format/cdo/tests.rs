use super::*;
use crate::format::mutation::mutate;
use rstest::rstest;

/// The words of a CDO with `commands`, header included.
fn cdo(commands: &[u32]) -> Vec<u8> {
    let header = [4, 0x004F_4443, 0x200, commands.len() as u32];
    let mut bytes = Vec::new();
    extend(&mut bytes, header);
    extend(&mut bytes, [checksum(header)]);
    extend(&mut bytes, commands.iter().copied());
    bytes
}

fn words(bytes: &[u8]) -> Vec<u32> {
    Words::new(bytes, 0).to_vec()
}

/// One command of each kind with its words.
fn every_kind() -> Vec<(Vec<u32>, CdoCommand<'static>)> {
    static PAYLOAD: [u8; 12] = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
    let data = Words::new(&PAYLOAD, 0);
    let none = Words::new(&[], 0);
    let (address, wide) = (0x0021_DE04, 0x2_0021_DE04);
    let (mask, value, expected, timeout) = (0xF0, 0x30, 0x20, 1000);
    vec![
        (vec![0x100], CdoCommand::End),
        (vec![0x111], CdoCommand::Nop { payload: none }),
        (vec![0x0003_0111, 1, 2, 3], CdoCommand::Nop { payload: data }),
        (vec![0x0002_0103, address, value], CdoCommand::Write { address, value }),
        (vec![0x0003_0102, address, mask, value], CdoCommand::MaskWrite { address, mask, value }),
        (
            vec![0x0004_0101, address, mask, expected, timeout],
            CdoCommand::MaskPoll { address, mask, expected, timeout },
        ),
        (vec![0x0001_0104, 77], CdoCommand::Delay { cycles: 77 }),
        (vec![0x0005_0105, 2, address, 1, 2, 3], CdoCommand::DmaWrite { address: wide, data }),
        (vec![0x0002_0105, 2, address], CdoCommand::DmaWrite { address: wide, data: none }),
        (vec![0x0003_0108, 2, address, value], CdoCommand::Write64 { address: wide, value }),
        (vec![0x0004_0107, 2, address, mask, value], CdoCommand::MaskWrite64 { address: wide, mask, value }),
        (
            vec![0x0005_0106, 2, address, mask, expected, timeout],
            CdoCommand::MaskPoll64 { address: wide, mask, expected, timeout },
        ),
        (vec![0x0003_010C, 1, 2, 3], CdoCommand::Other { opcode: 0x10C, payload: data }),
        (vec![0x0003_2A07, 1, 2, 3], CdoCommand::Other { opcode: 0x2A07, payload: data }),
    ]
}

#[test]
fn every_kind_is_read_and_written() {
    for (encoded, command) in every_kind() {
        let bytes = cdo(&encoded);
        let read: Vec<CdoCommand> = Cdo::parse(&bytes).unwrap().commands().collect();
        assert_eq!(read, [command]);
        // Three words in front put the command on a 16-byte offset, where block writes need no NOP.
        let front = [0x0002_0111, 0, 0];
        let mut builder = CdoBuilder::new();
        let written = builder.nop(&front[1..]).push(&command).finish().unwrap();
        assert_eq!(written, cdo(&[&front[..], &encoded].concat()), "{command:?}");
    }
}

#[rstest]
#[case::longest_short_form(254, &[0x00FE_0111])]
#[case::shortest_long_form(255, &[0x00FF_0111, 255])]
#[case::longer(256, &[0x00FF_0111, 256])]
#[case::beyond_16_bits(70_000, &[0x00FF_0111, 70_000])]
fn payloads_of_255_words_and_more_have_the_long_form(#[case] length: usize, #[case] front: &[u32]) {
    let payload: Vec<u32> = (0..length as u32).collect();
    let written = CdoBuilder::new().nop(&payload).finish().unwrap();
    assert_eq!(written, cdo(&[front, &payload].concat()));
    let read: Vec<CdoCommand> = Cdo::parse(&written).unwrap().commands().collect();
    assert!(matches!(read[..], [CdoCommand::Nop { payload: found }] if found.to_vec() == payload));
}

#[test]
fn a_short_length_in_the_long_form_is_accepted() {
    let bytes = cdo(&[0x00FF_0103, 2, 0x10, 5]);
    let read: Vec<CdoCommand> = Cdo::parse(&bytes).unwrap().commands().collect();
    assert_eq!(read, [CdoCommand::Write { address: 0x10, value: 5 }]);
}

#[rstest]
#[case::three_words_off(0, &[0x0002_0111, 0, 0])]
#[case::two_words_off(1, &[0x0001_0111, 0])]
#[case::one_word_off(2, &[0x111])]
#[case::aligned(3, &[])]
fn block_writes_are_aligned_with_a_nop(#[case] words_before: usize, #[case] padding: &[u32]) {
    let mut builder = CdoBuilder::new();
    for _ in 0..words_before {
        builder.nop(&[]);
    }
    let mut expected = vec![0x111; words_before];
    expected.extend(padding);
    assert_eq!((HEADER_WORDS + expected.len()) % 4, 0);
    expected.extend([0x0004_0105, 0, 0x0022_0000, 8, 9]);
    assert_eq!(builder.dma_write(0x0022_0000, &[8, 9]).finish().unwrap(), cdo(&expected));
}

#[test]
fn appended_files_are_merged_as_bootgen_does() {
    let address = 0x0023_2000;
    let elfs = cdo(&[0x111, 0x0004_0107, 0, address, 1, 0, 0x0003_0105, 0, 0x0022_0000, 42]);
    let init = cdo(&[0x111, 0x0003_0108, 0, address, 5, 0x0003_0108, 1, address, 6]);
    let mut builder = CdoBuilder::new();
    builder.append(&Cdo::parse(&elfs).unwrap()).append(&Cdo::parse(&init).unwrap());
    let expected = cdo(&[
        &[0x111, 0x0003_0102, address, 1, 0][..],
        // Ten words so far with the header: two more bring the block write to 12.
        &[0x0001_0111, 0, 0x0003_0105, 0, 0x0022_0000, 42],
        &[0x111, 0x0002_0103, address, 5, 0x0003_0108, 1, address, 6],
    ]
    .concat());
    assert_eq!(words(&builder.finish().unwrap()), words(&expected));
}

#[test]
fn addresses_choose_the_form_of_writes() {
    let mut builder = CdoBuilder::new();
    builder.write(0xFFFF_FFFF, 1).write(0x1_0000_0000, 2);
    builder.mask_write(0xFFFF_FFFF, 3, 1).mask_write(0x1_0000_0000, 3, 2);
    let expected = cdo(&[
        &[0x0002_0103, u32::MAX, 1][..],
        &[0x0003_0108, 1, 0, 2],
        &[0x0003_0102, u32::MAX, 3, 1],
        &[0x0004_0107, 1, 0, 3, 2],
    ]
    .concat());
    assert_eq!(builder.finish().unwrap(), expected);
}

#[test]
fn header_constants_are_those_of_version_2() {
    let bytes = CdoBuilder::new().nop(&[]).finish().unwrap();
    let sum = 4u32 + 0x004F_4443 + 0x200 + 1;
    assert_eq!(words(&bytes), [4, 0x004F_4443, 0x200, 1, !sum, 0x111]);
    assert!(Cdo::parse(&CdoBuilder::new().finish().unwrap()).unwrap().is_empty());
}

#[rstest]
#[case::no_header(&[4, 0x004F_4443], CdoError::Truncated { offset: 0, found: 8 })]
#[case::count(
    &[5, 0x004F_4443, 0x200, 0, 0],
    CdoError::Header { offset: 0, field: "remaining header words", expected: 4, found: 5 },
)]
#[case::magic(
    &[4, 0x584E_4C58, 0x200, 0, 0],
    CdoError::Header { offset: 4, field: "magic \"CDO\\0\"", expected: 0x004F_4443, found: 0x584E_4C58 },
)]
#[case::version(
    &[4, 0x004F_4443, 0x150, 0, 0],
    CdoError::Header { offset: 8, field: "version", expected: 0x200, found: 0x150 },
)]
#[case::checksum(
    &[4, 0x004F_4443, 0x200, 0, 7],
    CdoError::Checksum { offset: 16, expected: !(4 + 0x004F_4443 + 0x200), found: 7 },
)]
fn headers_are_checked(#[case] file: &[u32], #[case] expected: CdoError) {
    let mut bytes = Vec::new();
    extend(&mut bytes, file.iter().copied());
    assert_eq!(Cdo::parse(&bytes), Err(expected));
}

#[rstest]
#[case::reserved(&[0x0100_0111], CdoError::Reserved { offset: 20, found: 0x0100_0111 })]
#[case::overrun(
    &[0x111, 0x0003_0111, 1],
    CdoError::Overrun { offset: 24, opcode: 0x111, expected: 3, found: 1 },
)]
#[case::no_length_word(&[0x00FF_0105], CdoError::Overrun { offset: 20, opcode: 0x105, expected: 255, found: 0 })]
#[case::huge_length(
    &[0x00FF_0105, u32::MAX],
    CdoError::Overrun { offset: 20, opcode: 0x105, expected: u32::MAX as usize, found: 0 },
)]
#[case::end(&[0x0001_0100, 0], CdoError::Payload { offset: 20, opcode: 0x100, expected: 0, found: 1 })]
#[case::mask_poll(&[0x101], CdoError::Payload { offset: 20, opcode: 0x101, expected: 4, found: 0 })]
#[case::mask_write(&[0x102], CdoError::Payload { offset: 20, opcode: 0x102, expected: 3, found: 0 })]
#[case::write(&[0x0003_0103, 1, 2, 3], CdoError::Payload { offset: 20, opcode: 0x103, expected: 2, found: 3 })]
#[case::delay(&[0x104], CdoError::Payload { offset: 20, opcode: 0x104, expected: 1, found: 0 })]
#[case::dma_write(&[0x0001_0105, 0], CdoError::Payload { offset: 20, opcode: 0x105, expected: 2, found: 1 })]
#[case::mask_poll64(&[0x106], CdoError::Payload { offset: 20, opcode: 0x106, expected: 5, found: 0 })]
#[case::mask_write64(&[0x107], CdoError::Payload { offset: 20, opcode: 0x107, expected: 4, found: 0 })]
#[case::write64(&[0x108], CdoError::Payload { offset: 20, opcode: 0x108, expected: 3, found: 0 })]
fn commands_are_checked(#[case] commands: &[u32], #[case] expected: CdoError) {
    assert_eq!(Cdo::parse(&cdo(commands)), Err(expected));
}

#[rstest]
#[case::one_byte_short(-1)]
#[case::one_word_short(-4)]
#[case::one_byte_over(1)]
#[case::one_word_over(4)]
fn the_length_must_fit(#[case] change: isize) {
    let mut bytes = cdo(&[0x111, 0x111]);
    let found = bytes.len().checked_add_signed(change).unwrap();
    bytes.resize(found, 0);
    assert_eq!(Cdo::parse(&bytes), Err(CdoError::Length { offset: 12, expected: 28, found }));
}

#[test]
fn errors_name_offsets_in_the_containing_file() {
    let bytes = cdo(&[0x0100_0111]);
    let error = Cdo::parse_at(&bytes, 0x150).unwrap_err();
    assert_eq!(error, CdoError::Reserved { offset: 0x164, found: 0x0100_0111 });
    assert_eq!(
        error.to_string(),
        "CDO command at offset 0x164: expected bits 31:24 to be 0, found command word 0x01000111"
    );
}

#[test]
fn what_cannot_be_read_is_not_written() {
    let mut builder = CdoBuilder::new();
    builder.push(&CdoCommand::Other { opcode: opcode::WRITE, payload: Words::new(&[0; 4], 0) });
    assert!(matches!(builder.finish(), Err(CdoError::Payload { opcode: opcode::WRITE, .. })));
}

#[test]
fn more_than_the_device_heap_is_refused() {
    let mut builder = CdoBuilder::new();
    builder.nop(&vec![0; MAX_WORDS - HEADER_WORDS - 2]);
    assert_eq!(builder.finish().unwrap().len(), MAX_WORDS * WORD);
    builder.nop(&[]);
    assert_eq!(builder.finish(), Err(CdoError::TooLong { found: MAX_WORDS + 1 }));
}

/// The commands that do something.
fn meaning(cdo: Cdo<'_>) -> impl Iterator<Item = CdoCommand<'_>> {
    cdo.commands().filter(|command| !matches!(command, CdoCommand::Nop { .. }))
}

#[test]
fn mutated_files_are_read_or_refused_and_what_is_read_is_consistent() {
    let commands: Vec<u32> = every_kind().into_iter().flat_map(|(words, _)| words).collect();
    let file = cdo(&commands);
    let (mut read, mut refused) = (0, 0);
    mutate(&file[20..], 20_000, |mutated| {
        // A right header gets the mutations to the commands.
        let bytes = cdo(&words(mutated));
        match Cdo::parse(&bytes) {
            Ok(parsed) => {
                read += 1;
                let mut builder = CdoBuilder::new();
                parsed.commands().for_each(|command| {
                    builder.push(&command);
                });
                let again = builder.finish().unwrap();
                let again = Cdo::parse(&again).unwrap();
                assert!(meaning(parsed).eq(meaning(again)));
            }
            Err(_) => refused += 1,
        }
        let _ = Cdo::parse(mutated);
    });
    assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
}
