//! What cannot work is named, and nothing panics.

use super::*;
use aie_hal::format::bd::CoreBd;
use aie_hal::format::instructions::{Header, Instruction, InstructionWriter};

fn problems(design: &Design) -> Vec<String> {
    design.problems.iter().map(|problem| problem.what.clone()).collect()
}

#[test]
fn descriptors_that_stop_a_channel_are_named() {
    let mut maker = Maker::default();
    let bd = CoreBd { length: 0x100, address: 0x3FFF, ..CoreBd::default() };
    maker.block((0, 2), CoreBd::register(1), &bd.encode().unwrap());
    maker.start((0, 2), Direction::StreamToMemory, 0, DmaTask { descriptor: 1, repeat: 0, token: false });
    maker.start((0, 2), Direction::StreamToMemory, 1, DmaTask { descriptor: 9, repeat: 0, token: false });
    let found = problems(&maker.read(None));
    for expected in [
        "S2MM 0 runs BD 1, which is not valid",
        "S2MM 0 runs BD 1, whose bytes 0xfffc to 0x103fc are outside of the memory",
        "S2MM 0 has a task, and no route ends there",
        "S2MM 1 runs BD 9, which is not written",
    ] {
        assert!(found.iter().any(|problem| problem == expected), "{expected}: {found:?}");
    }
}

#[test]
fn code_that_is_none_is_listed_as_such() {
    let mut maker = Maker::default();
    maker.block((0, 2), PROGRAM_MEMORY, &[0xFFFF_FFFF; 8]);
    let design = maker.read(None);
    assert!(
        problems(&design)[0].contains("bundles cannot be decoded (a program of another generation?); at 0x"),
        "{:?}",
        design.problems
    );
    assert!(design.to_string().contains("???"));
    assert_eq!(serde_json::to_value(&design).unwrap()["tiles"][0]["core"]["program"]["bundles"], 0);
}

#[test]
fn addresses_of_no_tile_and_unknown_commands_are_problems() {
    let mut maker = Maker::default();
    maker.0.write(tile_address(0, 6, 0).into(), 1).write(1 << 40, 1);
    maker.0.push(&CdoCommand::Other { opcode: 0x1FF, payload: empty() });
    let found = problems(&maker.read(None));
    assert_eq!(found[0], "0x600000 is written, which is in no tile of aie2 (rows 0 to 5)");
    assert_eq!(found[1], "0x10000000000 is written, which is in no tile of aie2 (rows 0 to 5)");
    assert_eq!(found[2], "CDO command 0x1ff of 0 words is not known");
}

fn empty() -> aie_hal::format::Words<'static> {
    let stream: &'static [u8] = Box::leak(
        InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 })
            .custom(0x99, &[])
            .finish()
            .unwrap()
            .into_boxed_slice(),
    );
    let operation = InstructionStream::parse(stream).unwrap().operations().next();
    let Some(Instruction::Custom { payload, .. }) = operation else { unreachable!() };
    payload
}

#[test]
fn a_token_that_nobody_sends_is_named() {
    let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    writer.push(&Instruction::Sync {
        direction: Direction::StreamToMemory,
        column: 0,
        row: 0,
        columns: 1,
        rows: 1,
        channel: 1,
    });
    let design = Maker::default().read(Some(&writer.finish().unwrap()));
    let expected = "operation 0 waits for a token of (0,0) S2MM 1, and no task of the stream sends it";
    assert_eq!(problems(&design), [expected]);
}

#[test]
fn every_kind_of_operation_has_a_line() {
    let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 2, mem_tile_rows: 1 });
    let at = |row, offset| u64::from(tile_address(1, row, offset));
    writer.block_write(tile_address(1, 2, 0x100), &[1, 2, 3]);
    writer.push(&Instruction::Write { address: at(1, 0xC_0020), value: 5 });
    writer.push(&Instruction::MaskWrite { address: at(2, 0x3_2038), value: 1, mask: 1 });
    writer.push(&Instruction::MaskWrite { address: at(2, 0x1_D000), value: 9, mask: 0xFF });
    writer.push(&Instruction::MaskPoll { address: at(0, 0x1_D220), value: 0, mask: 0x70_0000 });
    writer.push(&Instruction::AddressPatch { register: at(2, 0x3_0000), argument: 2, offset: 4 });
    writer.push(&Instruction::Noop).push(&Instruction::Preempt { level: 2 });
    writer.push(&Instruction::LoadPdi { id: 3, size: 99, address: 0x1000 }).custom(0x83, &[7]);
    writer.push(&Instruction::Write { address: at(9, 0), value: 0 });
    let text = Maker::default().read(Some(&writer.finish().unwrap())).to_string();
    for line in [
        "0  core (1,2) data memory 0x00100 = 0x1, 0x2, 0x3\n",
        "1  mem (1,1) lock 2 = 5\n",
        "2  core (1,2) 0x32038 (core processor bus) = 0x00000001 under mask 0x00000001\n",
        "3  core (1,2) BD 0 word 0 = 0x00000009 under mask 0x000000ff\n",
        "4  wait until shim (1,0) 0x1d220 (S2MM status 0) is 0x00000000 under mask 0x00700000\n",
        "5  core (1,2) 0x30000 = address of argument 2 + 4\n",
        "6  nothing\n",
        "7  another context may take over (level 2)\n",
        "8  load PDI 3, 99 bytes at 0x1000\n",
        "9  record timer 0x7\n",
        "10  0x2900000, which is in no tile\n",
    ] {
        assert!(text.contains(&format!("  {line}")), "no line `{line}` in\n{text}");
    }
}

/// Offsets around everything that has a meaning.
const OFFSETS: [(u32, u32); 12] = [
    (0, 0x100),
    (0x2_0000, 0x100),
    (0x1_4000, 0x100),
    (0x1_D000, 0x300),
    (0x1_DE00, 0x20),
    (0x1_F000, 0x100),
    (0x3_2000, 0x40),
    (0x3_F000, 0x400),
    (0xA_0000, 0x660),
    (0xB_0000, 0x400),
    (0xC_0000, 0x400),
    (0x3_6060, 8),
];

/// More of the same with `AIE_FUZZ_EXECUTIONS=100000`.
#[test]
fn random_configurations_and_streams_are_read_shown_and_drawn() {
    let mut random = fastrand::Rng::with_seed(1);
    let arch = aie2();
    let mut routes = 0;
    let executions = std::env::var("AIE_FUZZ_EXECUTIONS").ok().and_then(|count| count.parse().ok());
    for _ in 0..executions.unwrap_or(60) {
        let (mut cdo, mut writer) = (
            CdoBuilder::new(),
            InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 }),
        );
        for _ in 0..random.u64(..1000) {
            let row = if random.u64(..10) == 0 { random.u8(..8) } else { random.u8(..3) };
            let (start, length) = match random.u64(..3) {
                // Masters and slaves of the switch of the tile, so that there are routes.
                0 => (if row == 1 { 0xB_0000 } else { 0x3_F000 } + 0x100 * random.u32(..2), 0x64),
                _ => OFFSETS[random.usize(..OFFSETS.len())],
            };
            let offset = start + random.u32(..length) / 4 * 4;
            let address = tile_address(random.u8(..2), row, offset);
            // Ports and slots are on in half of the cases.
            let value = random.u32(..) | if random.u64(..2) == 0 { 0x8000_0100 } else { 0 };
            match random.u64(..6) {
                0 => cdo.mask_write(address.into(), random.u32(..), value),
                1 => cdo.dma_write(address.into(), &[value, random.u32(..), 0, u32::MAX]),
                2 => {
                    writer.block_write(address, &[value; 9]);
                    &mut cdo
                }
                3 => {
                    let argument = random.u16(..4);
                    writer.push(&Instruction::AddressPatch {
                        register: address.into(),
                        argument,
                        offset: value.into(),
                    });
                    writer.push(&Instruction::Write { address: address.into(), value });
                    &mut cdo
                }
                _ => cdo.write(address.into(), value),
            };
        }
        let (file, stream) = (pdi::write(&cdo).unwrap(), writer.finish().unwrap());
        let design = Design::read(&arch, &Source::parse(&file, Some(&stream)).unwrap()).unwrap();
        routes += design.routes.len();
        assert!(!design.to_string().is_empty());
        assert!(svg(&design, "random").ends_with("</svg>\n"));
        assert!(serde_json::to_string(&design).is_ok());
    }
    assert!(routes > 1000, "{routes}");
}
