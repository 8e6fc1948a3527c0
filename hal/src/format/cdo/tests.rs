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
    let (low, address, wide) = (0x0021_DE04, 0x0021_DE04, 0x2_0021_DE04);
    let (mask, value, expected, timeout) = (0xF0, 0x30, 0x20, 1000);
    vec![
        (vec![0x100], CdoCommand::End),
        (vec![0x111], CdoCommand::Nop { payload: none }),
        (vec![0x0003_0111, 1, 2, 3], CdoCommand::Nop { payload: data }),
        (vec![0x0002_0103, low, value], CdoCommand::Write { address, value }),
        (vec![0x0003_0102, low, mask, value], CdoCommand::MaskWrite { address, mask, value }),
        (vec![0x0004_0101, low, mask, expected, timeout], CdoCommand::MaskPoll { address, mask, expected, timeout }),
        (vec![0x0001_0104, 77], CdoCommand::Delay { cycles: 77 }),
        (vec![0x0005_0105, 2, low, 1, 2, 3], CdoCommand::DmaWrite { address: wide, data }),
        (vec![0x0002_0105, 2, low], CdoCommand::DmaWrite { address: wide, data: none }),
        (vec![0x0003_0108, 2, low, value], CdoCommand::Write { address: wide, value }),
        (vec![0x0004_0107, 2, low, mask, value], CdoCommand::MaskWrite { address: wide, mask, value }),
        (
            vec![0x0005_0106, 2, low, mask, expected, timeout],
            CdoCommand::MaskPoll { address: wide, mask, expected, timeout },
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
#[case::no_header(&[4, 0x004F_4443], "CDO at offset 0x0: expected a header of 20 bytes, found 8 bytes")]
#[case::count(
    &[5, 0x004F_4443, 0x200, 0, 0],
    "CDO header at offset 0x0: expected remaining header words 0x4, found 0x5",
)]
#[case::magic(
    &[4, 0x584E_4C58, 0x200, 0, 0],
    "CDO header at offset 0x4: expected magic \"CDO\\0\" 0x4f4443, found 0x584e4c58",
)]
#[case::version(&[4, 0x004F_4443, 0x150, 0, 0], "CDO header at offset 0x8: expected version 0x200, found 0x150")]
#[case::checksum(
    &[4, 0x004F_4443, 0x200, 0, 7],
    "CDO header checksum at offset 0x10: expected 0xffb0b9b8, found 0x00000007",
)]
fn headers_are_checked(#[case] file: &[u32], #[case] expected: &str) {
    let mut bytes = Vec::new();
    extend(&mut bytes, file.iter().copied());
    assert_eq!(Cdo::parse(&bytes).unwrap_err().to_string(), expected);
}

#[rstest]
#[case::reserved(&[0x0100_0111], "at offset 0x14: expected bits 31:24 to be 0, found command word 0x01000111")]
#[case::overrun(
    &[0x111, 0x0003_0111, 1],
    "0x111 at offset 0x18: expected 3 words of payload, found the end of the CDO after 1",
)]
#[case::no_length_word(
    &[0x00FF_0105],
    "0x105 at offset 0x14: expected 255 words of payload, found the end of the CDO after 0",
)]
#[case::huge_length(
    &[0x00FF_0105, u32::MAX],
    "0x105 at offset 0x14: expected 4294967295 words of payload, found the end of the CDO after 0",
)]
#[case::end(&[0x0001_0100, 0], "0x100 at offset 0x14: expected 0 words of payload, found 1")]
#[case::mask_poll(&[0x101], "0x101 at offset 0x14: expected 4 words of payload, found 0")]
#[case::mask_write(&[0x102], "0x102 at offset 0x14: expected 3 words of payload, found 0")]
#[case::write(&[0x0003_0103, 1, 2, 3], "0x103 at offset 0x14: expected 2 words of payload, found 3")]
#[case::delay(&[0x104], "0x104 at offset 0x14: expected 1 words of payload, found 0")]
#[case::dma_write(&[0x0001_0105, 0], "0x105 at offset 0x14: expected 2 words of payload, found 1")]
#[case::mask_poll64(&[0x106], "0x106 at offset 0x14: expected 5 words of payload, found 0")]
#[case::mask_write64(&[0x107], "0x107 at offset 0x14: expected 4 words of payload, found 0")]
#[case::write64(&[0x108], "0x108 at offset 0x14: expected 3 words of payload, found 0")]
fn commands_are_checked(#[case] commands: &[u32], #[case] expected: &str) {
    let message = Cdo::parse(&cdo(commands)).unwrap_err().to_string();
    assert_eq!(message, format!("CDO command {expected}"));
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
    let expected = format!("CDO length at offset 0xc: expected 28 bytes by the header, found {found} bytes");
    assert_eq!(Cdo::parse(&bytes).unwrap_err().to_string(), expected);
}

#[test]
fn errors_name_offsets_in_the_containing_file() {
    let error = Cdo::parse_at(&cdo(&[0x0100_0111]), 0x150).unwrap_err();
    assert_eq!(error.offset, 0x164);
}

#[test]
fn what_cannot_be_read_is_not_written() {
    let mut builder = CdoBuilder::new();
    builder.push(&CdoCommand::Other { opcode: opcode::WRITE, payload: Words::new(&[0; 4], 0) });
    let message = builder.finish().unwrap_err().to_string();
    assert_eq!(message, "CDO command 0x103 at offset 0x14: expected 2 words of payload, found 1");
}

#[test]
fn more_than_the_device_heap_is_rejected() {
    let mut builder = CdoBuilder::new();
    builder.nop(&vec![0; MAX_WORDS - HEADER_WORDS - 2]);
    assert_eq!(builder.finish().unwrap().len(), MAX_WORDS * WORD);
    builder.nop(&[]);
    assert_eq!(builder.finish(), Err(FormatError::too_long("CDO", MAX_WORDS + 1)));
}

/// The commands that do something.
fn meaning(cdo: Cdo<'_>) -> impl Iterator<Item = CdoCommand<'_>> {
    cdo.commands().filter(|command| !matches!(command, CdoCommand::Nop { .. }))
}

#[test]
fn mutated_files_are_read_or_rejected_and_what_is_read_is_consistent() {
    let commands: Vec<u32> = every_kind().into_iter().flat_map(|(words, _)| words).collect();
    let file = cdo(&commands);
    let (mut read, mut rejected) = (0, 0);
    mutate(&file[20..], 20_000, |mutated| {
        // A right header gets the mutations to the commands.
        let bytes = cdo(&words(mutated));
        match Cdo::parse(&bytes) {
            Ok(parsed) => {
                read += 1;
                let again = CdoBuilder::new().append(&parsed).finish().unwrap();
                let again = Cdo::parse(&again).unwrap();
                assert!(meaning(parsed).eq(meaning(again)));
            }
            Err(_) => rejected += 1,
        }
        let _ = Cdo::parse(mutated);
    });
    assert!(read > 1000 && rejected > 1000, "{read} read, {rejected} rejected");
}
