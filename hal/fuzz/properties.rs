//! What must hold for any bytes, one function per fuzz target, and the seeds of the corpus.
//!
//! The fuzz targets and the replay of the corpus in the crate's tests both include this file.

use super::artifact::KernelArtifact;
use super::format::Words;
use super::format::bd::ShimBd;
use super::format::cdo::{Cdo, CdoBuilder, CdoCommand};
use super::format::dma_channel::Direction;
use super::format::instructions::{Header, Instruction, InstructionStream, InstructionWriter, Transfer};
use super::format::{pdi as container, reference};

/// A PDI is read or rejected. One that is read can be written again with the same commands, and bytes that
/// are not a PDI are tried as the description inside one.
pub fn pdi(bytes: &[u8]) {
    match container::Pdi::parse(bytes) {
        Ok(pdi) => {
            let cdo = pdi.cdo();
            let written = container::write(&rebuild(&cdo)).expect("what was read can be written");
            let again = container::Pdi::parse(&written).expect("what was written can be read");
            assert!(effects(&cdo).eq(effects(&again.cdo())));
            description(&cdo);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let wrapped = reference::wrap(bytes).expect("inputs are far smaller than the device heap");
    let pdi = container::Pdi::parse(&wrapped).expect("what was written can be read");
    assert_eq!(reference::extract(&pdi.cdo()).expect("it is whole").as_deref(), Some(bytes));
}

/// A CDO is read or rejected; the same for a CDO with `bytes` as its commands.
pub fn cdo(bytes: &[u8]) {
    check_cdo(bytes);
    let words = bytes.len() / 4;
    let header = [4, u32::from_le_bytes(*b"CDO\0"), 0x200, words as u32];
    let checksum = !header.iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
    let mut file: Vec<u8> = header.into_iter().chain([checksum]).flat_map(u32::to_le_bytes).collect();
    file.extend_from_slice(&bytes[..words * 4]);
    check_cdo(&file);
}

fn check_cdo(bytes: &[u8]) {
    let Ok(cdo) = Cdo::parse(bytes) else { return };
    let once = rebuild(&cdo).finish().expect("what was read can be written");
    let again = Cdo::parse(&once).expect("what was written can be read");
    assert!(effects(&cdo).eq(effects(&again)));
    // Block writes are aligned now, so writing it again changes nothing.
    let twice = rebuild(&again).finish().expect("what was read can be written");
    assert_eq!(once, twice);
    for command in again.commands() {
        if let CdoCommand::DmaWrite { data, .. } = command {
            // The command word is three words before the data, or four in the long form.
            let front = if data.len() + 2 < 255 { 12 } else { 16 };
            assert_eq!((data.offset(0) - front) % 16, 0);
        }
    }
    description(&cdo);
    // Merging shortens addresses and must still give a readable CDO.
    let mut merged = CdoBuilder::new();
    merged.append(&cdo).append(&again);
    let merged = merged.finish().expect("what was read can be merged");
    Cdo::parse(&merged).expect("what was merged can be read");
}

/// A stream is read or rejected, and one that is read comes back equal; the same with a right header put in
/// front of `bytes`.
pub fn instructions(bytes: &[u8]) {
    check_instructions(bytes);
    // The count is in the input, so that the fuzzer can find the right one.
    let (count, operations) = bytes.split_first().map_or((0, bytes), |(count, rest)| (*count, rest));
    let operations = &operations[..operations.len() / 4 * 4];
    let size = 16 + operations.len() as u32;
    let header = [0x0604_0100, 0x0000_0101, u32::from(count), size];
    let mut file: Vec<u8> = header.into_iter().flat_map(u32::to_le_bytes).collect();
    file.extend_from_slice(operations);
    check_instructions(&file);
}

fn check_instructions(bytes: &[u8]) {
    let Ok(stream) = InstructionStream::parse(bytes) else { return };
    let mut writer = InstructionWriter::new(stream.header());
    for operation in stream.operations() {
        writer.push(&operation);
        if let Instruction::BlockWrite { data, .. } = operation {
            descriptor(data);
        }
    }
    let written = writer.finish().expect("what was read can be written");
    let again = InstructionStream::parse(&written).expect("what was written can be read");
    assert_eq!(stream.header(), again.header());
    assert!(stream.operations().eq(again.operations()));
    assert_eq!(stream.argument_count(), again.argument_count());
    assert_eq!(stream.has_completion_token(), again.has_completion_token());
}

/// Any eight words are a buffer descriptor whose fields fit.
fn descriptor(words: Words<'_>) {
    if let Ok(words) = <[u32; 8]>::try_from(words.to_vec()) {
        let bd = ShimBd::decode(&words);
        let again = bd.encode().expect("decoded fields fit");
        assert_eq!(ShimBd::decode(&again), bd);
    }
}

/// An artifact is made or rejected. The input is the byte length of the PDI, the PDI, the instructions.
pub fn artifact(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return };
    let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
    let (pdi, instructions) = rest.split_at(length);
    match KernelArtifact::new("kernel", "aie2p", 4, pdi, instructions) {
        Ok(artifact) => {
            assert_eq!((artifact.pdi(), artifact.instructions()), (pdi, instructions));
            assert!(artifact.argument_count() <= instructions.len() / 48 * 0xFFFF);
            match artifact.argument_extents() {
                Ok(extents) => {
                    assert_eq!(extents.len(), artifact.argument_count());
                    let parts = extents.iter().flat_map(|extent| [&extent.read, &extent.written]);
                    assert!(parts.flatten().all(|part| part.range.start <= part.range.end && part.moved.bytes > 0));
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        Err(error) => assert!(error.to_string().starts_with("kernel kernel: ")),
    }
}

fn rebuild(cdo: &Cdo<'_>) -> CdoBuilder {
    let mut builder = CdoBuilder::new();
    builder.append(cdo);
    builder
}

fn effects<'a>(cdo: &Cdo<'a>) -> impl Iterator<Item = CdoCommand<'a>> + use<'a> {
    cdo.commands().filter(|command| !matches!(command, CdoCommand::Nop { .. }))
}

/// A description that can be read can be written, and read again.
fn description(cdo: &Cdo<'_>) {
    if let Ok(Some(description)) = reference::extract(cdo) {
        let wrapped = reference::wrap(&description).expect("it came out of a CDO");
        let pdi = container::Pdi::parse(&wrapped).expect("what was written can be read");
        assert_eq!(reference::extract(&pdi.cdo()), Ok(Some(description)));
    }
}

/// The seeds of a target: names and contents, made with the writers.
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let files = match target {
        "pdi" => pdi_seeds(),
        "cdo" => cdo_seeds(),
        "instructions" => instruction_seeds(),
        "artifact" => artifact_seeds(),
        _ => Vec::new(),
    };
    files.into_iter().map(|(name, bytes)| (format!("seed-{name}"), bytes)).collect()
}

/// CdoCommand lists: what a compiled design has, every command, long payloads, a description.
fn command_lists() -> Vec<(&'static str, CdoBuilder)> {
    let core = 0x0020_0000u64;
    let mut design = CdoBuilder::new();
    design.nop(&[]).mask_write(core + 0x3_2000, 1, 0).mask_write(core + 0x1_DE10, 2, 2);
    design.dma_write(core + 0x2_0000, &(0..300).collect::<Vec<u32>>());
    design.write(core + 0x1_F000, 0).dma_write(core + 0x1_D000, &[16, 0, 0, 0, 0, 1 << 25]);
    design.write(core + 0x1_DE04, 0).mask_write(core + 0x3_2000, 1, 1);

    let mut every = CdoBuilder::new();
    every.push(&CdoCommand::End).nop(&[1, 2]).push(&CdoCommand::Delay { cycles: 5 });
    every.push(&CdoCommand::MaskPoll { address: 0x10, mask: 1, expected: 1, timeout: 9 });
    let address = 0x1_0000_0010;
    every.push(&CdoCommand::MaskPoll { address, mask: 1, expected: 1, timeout: 9 });
    every.write(address, 5).mask_write(address, 6, 7).dma_write(address, &[]);

    let mut long = CdoBuilder::new();
    long.nop(&[3; 254]).nop(&[4; 255]).dma_write(core, &[5; 252]).dma_write(core, &[6; 253]);

    let mut described = CdoBuilder::new();
    described.nop(&[]);
    reference::describe(&mut described, b"a kernel").expect("it is short");

    let mut empty_description = CdoBuilder::new();
    reference::describe(&mut empty_description, b"").expect("it is short");

    vec![
        ("empty", CdoBuilder::new()),
        ("design", design),
        ("every-command", every),
        ("long-payloads", long),
        ("description", described),
        ("empty-description", empty_description),
    ]
}

fn pdi_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let write = |cdo: &CdoBuilder| container::write(cdo).expect("seeds are small");
    let mut seeds: Vec<_> = command_lists().iter().map(|(name, cdo)| (*name, write(cdo))).collect();
    let mut truncated = write(&command_lists()[1].1);
    truncated.truncate(0x170);
    let mut changed = write(&command_lists()[1].1);
    changed[0xD4] ^= 1;
    // The image header's word that bootgen for other architectures fills with ones, and its checksum.
    let mut other = write(&command_lists()[1].1);
    other[0xC8..0xCC].fill(0xFF);
    let words = other[0x90..0xCC].as_chunks().0;
    let sum = words.iter().fold(0u32, |sum, word| sum.wrapping_add(u32::from_le_bytes(*word)));
    other[0xCC..0xD0].copy_from_slice(&(!sum).to_le_bytes());
    // The revoke id, which bootgen does not set. All ones, so that the checksum is the one above.
    let mut revoked = write(&command_lists()[1].1);
    revoked[0x98..0x9C].fill(0xFF);
    revoked[0xCC..0xD0].copy_from_slice(&(!sum).to_le_bytes());
    seeds.extend([("truncated", truncated), ("changed", changed), ("other-bootgen", other), ("revoke-id", revoked)]);
    seeds
}

fn cdo_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let write = |cdo: &CdoBuilder| cdo.finish().expect("seeds are small");
    let mut seeds: Vec<_> = command_lists().iter().map(|(name, cdo)| (*name, write(cdo))).collect();
    // Without a header: the target puts one in front.
    let commands = write(&command_lists()[2].1)[20..].to_vec();
    let overrun = [0x00FF_0105u32, u32::MAX, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    seeds.extend([("commands", commands), ("overrun", overrun)]);
    seeds
}

/// Streams: what a compiled design has, and the operations it does not have.
fn streams() -> Vec<(&'static str, InstructionWriter)> {
    let transfer = |direction, descriptor, argument, token| Transfer {
        column: 0,
        direction,
        channel: 0,
        descriptor,
        shape: ShimBd::linear(128, 3),
        argument,
        offset: 0,
        repeat: 0,
        token,
    };
    let header = Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 };
    let mut design = InstructionWriter::new(header);
    let input = transfer(Direction::MemoryToStream, 0, 0, false);
    let output = transfer(Direction::StreamToMemory, 1, 1, true);
    design.transfer(&input).and_then(|writer| writer.transfer(&output)).expect("the fields fit");
    design.wait(&output);

    let mut polls = InstructionWriter::new(header);
    let (address, value, mask) = (0x1_D204, 5, 7);
    polls.push(&Instruction::MaskPoll { address, value, mask });
    polls.push(&Instruction::MaskPollBusy { address, value, mask }).push(&Instruction::Noop);
    polls.push(&Instruction::Preempt { level: 1 });
    polls.push(&Instruction::LoadPdi { id: 1, size: 2992, address: 0x4_0000_0000 });

    let mut custom = InstructionWriter::new(header);
    custom.custom(0x82, &[1, 2]).custom(0x83, &[]).custom(0x84, &[0]).custom(0xC8, &[9; 5]);

    let mut many = InstructionWriter::new(header);
    for (argument, offset) in [(0, 1 << 33), (7, 1 << 30), (65534, 4)] {
        many.push(&Instruction::AddressPatch { register: 0x1_D004, argument, offset });
    }
    vec![
        ("empty", InstructionWriter::new(header)),
        ("design", design),
        ("polls", polls),
        ("custom", custom),
        ("patches", many),
        ("aie2-array", InstructionWriter::new(Header { generation: 3, rows: 6, columns: 4, mem_tile_rows: 1 })),
    ]
}

fn instruction_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let write = |writer: &InstructionWriter| writer.finish().expect("seeds are small");
    let mut seeds: Vec<_> = streams().iter().map(|(name, writer)| (*name, write(writer))).collect();
    // A count and operations: the target puts a header in front.
    let mut counted = vec![8];
    counted.extend_from_slice(&write(&streams()[1].1)[16..]);
    let mut truncated = write(&streams()[1].1);
    truncated.truncate(200);
    // Masked operations of 32 bytes, as aie-rt writes them: a stated size of 32 and a word of padding.
    let masked = [3u32, 4, 7].into_iter().flat_map(|code| [code, 0, 0x1_D200, 0, 0xF00, 0x1F00, 32, 0]);
    let words = [0x0604_0100, 0x101, 3, 16 + 3 * 32].into_iter().chain(masked);
    let padded = words.flat_map(u32::to_le_bytes).collect();
    seeds.extend([("counted", counted), ("truncated", truncated), ("padded-masks", padded)]);
    seeds
}

fn artifact_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let design = container::write(&command_lists()[1].1).expect("seeds are small");
    let described = container::write(&command_lists()[4].1).expect("seeds are small");
    let join = |pdi: &[u8], instructions: &[u8]| [&(pdi.len() as u32).to_le_bytes()[..], pdi, instructions].concat();
    let mut seeds = Vec::new();
    for (name, writer) in streams() {
        let instructions = writer.finish().expect("seeds are small");
        let pdi = if seeds.len() % 2 == 0 { &design } else { &described };
        seeds.push((name, join(pdi, &instructions)));
    }
    seeds.extend([("no-instructions", join(&design, &[])), ("nothing", join(&[], &[]))]);
    seeds
}
