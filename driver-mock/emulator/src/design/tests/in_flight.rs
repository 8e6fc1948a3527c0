//! Streams that count on what is not there, beside ones that do not.

use super::*;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::instructions::{Header, Instruction, InstructionWriter, Transfer};
use rstest::rstest;

/// A result of 64 words through S2MM 0 of column 0, or an operand through MM2S 0.
fn transfer(direction: Direction, descriptor: u8) -> Transfer {
    Transfer {
        column: 0,
        direction,
        channel: 0,
        descriptor,
        shape: ShimBd::linear(64, 2),
        argument: 0,
        offset: 0,
        repeat: 0,
        token: direction == Direction::StreamToMemory,
    }
}

fn result(descriptor: u8) -> Transfer {
    transfer(Direction::StreamToMemory, descriptor)
}

fn operand(descriptor: u8) -> Transfer {
    transfer(Direction::MemoryToStream, descriptor)
}

/// The same without an address of an argument: only the push.
fn start(descriptor: u8) -> Instruction<'static> {
    let channel = DmaChannel::new(TileKind::Shim, Direction::StreamToMemory, 0).unwrap();
    let RegisterWrite { offset, value, .. } = channel.start(DmaTask { descriptor, repeat: 0, token: true }).unwrap();
    Instruction::Write { address: tile_address(0, 0, offset).into(), value }
}

/// Many results, each waited for before there are more than `ahead`.
fn results(writer: &mut InstructionWriter, ahead: usize, descriptors: u8) {
    for number in 0..12_u8 {
        if usize::from(number) >= ahead {
            writer.wait(&result(0));
        }
        writer.transfer(&result(number % descriptors)).unwrap();
    }
    for _ in 0..ahead {
        writer.wait(&result(0));
    }
}

#[rstest]
#[case::four_ahead(|writer: &mut InstructionWriter| results(writer, 4, 4), "")]
#[case::five_ahead(
    |writer: &mut InstructionWriter| results(writer, 5, 5),
    "operation 19 pushes task 5 of S2MM 0 before it has waited for an earlier one"
)]
#[case::a_descriptor_that_is_live(
    |writer: &mut InstructionWriter| results(writer, 2, 1),
    "operation 4 writes BD 0 while a task with it may not have ended"
)]
#[case::an_operand_behind_its_result(
    |writer: &mut InstructionWriter| {
        for _ in 0..8 {
            writer.transfer(&operand(1)).unwrap().transfer(&result(0)).unwrap().wait(&result(0));
        }
    },
    ""
)]
#[case::an_operand_that_nothing_has_taken(
    |writer: &mut InstructionWriter| {
        writer.transfer(&result(0)).unwrap().transfer(&operand(1)).unwrap().wait(&result(0));
        writer.transfer(&operand(1)).unwrap();
    },
    "operation 8 writes BD 1 while a task with it may not have ended"
)]
#[case::a_token_that_is_left(
    |writer: &mut InstructionWriter| {
        writer.transfer(&result(0)).unwrap().transfer(&result(1)).unwrap().wait(&result(0));
    },
    "the stream does not wait for all tokens of S2MM 0 that it asks for (1 left)"
)]
#[case::an_address_without_a_descriptor(
    |writer: &mut InstructionWriter| {
        let register = tile_address(0, 0, ShimBd::register(3) + 4).into();
        writer.push(&Instruction::AddressPatch { register, argument: 0, offset: 0 });
    },
    "operation 0 puts an address into BD 3, which the stream has not written"
)]
#[case::an_address_that_is_overwritten(
    |writer: &mut InstructionWriter| {
        let register = tile_address(0, 0, ShimBd::register(0) + 4).into();
        writer.push(&Instruction::AddressPatch { register, argument: 0, offset: 0 });
        writer.block_write(tile_address(0, 0, ShimBd::register(0)), &ShimBd::linear(64, 2).encode().unwrap());
        writer.push(&start(0));
        writer.wait(&result(0));
    },
    "S2MM 0 runs BD 0, whose address 0x0 is below the host's memory, which begins at 0x80000000"
)]
#[case::an_address_of_the_host(
    |writer: &mut InstructionWriter| {
        let mut bd = ShimBd::linear(64, 2);
        bd.set_address(0x1_8000_1000);
        writer.block_write(tile_address(0, 0, ShimBd::register(0)), &bd.encode().unwrap());
        writer.push(&start(0)).wait(&result(0));
    },
    ""
)]
#[case::a_lock_that_is_too_great(
    |writer: &mut InstructionWriter| {
        writer.push(&Instruction::Write { address: tile_address(0, 1, 0xC_0030).into(), value: 63 });
        writer.push(&Instruction::Write { address: tile_address(0, 1, 0xC_0030).into(), value: 74 });
    },
    "operation 1 sets lock 3 to 74: a lock holds 0 to 63"
)]
#[case::a_clock_that_is_off(
    |writer: &mut InstructionWriter| {
        writer.push(&Instruction::Write { address: tile_address(0, 0, 0xF_FF20).into(), value: 0 });
    },
    "the clock of its column is switched off"
)]
#[case::a_clock_that_is_on(
    |writer: &mut InstructionWriter| {
        writer.push(&Instruction::Write { address: tile_address(0, 0, 0xF_FF20).into(), value: 1 });
    },
    ""
)]
#[case::nothing_to_move(
    |writer: &mut InstructionWriter| {
        let empty = Transfer { shape: ShimBd::linear(0, 2), ..result(0) };
        writer.transfer(&empty).unwrap().wait(&empty);
    },
    "S2MM 0 runs BD 0, which moves nothing"
)]
fn streams(#[case] write: fn(&mut InstructionWriter), #[case] expected: &str) {
    let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    write(&mut writer);
    let mut maker = Maker::default();
    maker.connect(0, Direction::StreamToMemory, 0).connect(0, Direction::MemoryToStream, 0);
    maker.circuit((0, 0), Port::South(3), Port::South(2));
    let design = maker.read(Some(&writer.finish().unwrap()));
    let found: Vec<&str> = design.problems.iter().map(|problem| problem.what.as_str()).collect();
    match expected {
        "" => assert_eq!(found, [""; 0]),
        _ => assert!(found.iter().any(|what| what.starts_with(expected)), "{found:?}"),
    }
}

#[rstest]
#[case::single_lines(ShimBd { iteration_wrap: 2, iteration_step: 64, ..ShimBd::linear(32, 2) }, true)]
#[case::rows(ShimBd { iteration_wrap: 2, iteration_step: 64, d0_wrap: 8, d0_step: 1, d1_step: 16, ..ShimBd::linear(32, 2) }, false)]
#[case::no_iteration(ShimBd::linear(32, 2), false)]
fn iterations_over_single_lines_are_a_doubt(#[case] shape: ShimBd, #[case] expected: bool) {
    let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    let operand = Transfer { shape, repeat: 1, token: true, ..operand(0) };
    writer.transfer(&operand).unwrap().wait(&operand);
    let mut maker = Maker::default();
    maker.connect(0, Direction::StreamToMemory, 0).connect(0, Direction::MemoryToStream, 0);
    maker.circuit((0, 0), Port::South(3), Port::South(2));
    let design = maker.read(Some(&writer.finish().unwrap()));
    assert_eq!(design.problems, []);
    let start = "MM2S 0 runs BD 0, an iteration over single lines";
    assert_eq!(design.doubts.iter().any(|doubt| doubt.what.starts_with(start)), expected, "{:?}", design.doubts);
}

#[test]
fn what_a_switch_does_not_have_is_named() {
    let mut maker = Maker::default();
    maker.circuit((0, 1), Port::South(0), Port::North(4));
    let slot = PacketSlot { id: 1, mask: 31, arbiter: 1, msel: 0 };
    maker.packets((0, 1), Port::North(1), 0, slot, &[Port::South(2)]);
    let slot = PacketSlot { id: 1, mask: 31, arbiter: 6, msel: 0 };
    maker.packets((0, 2), Port::Dma(0), 0, slot, &[Port::South(0)]);
    let found: Vec<String> = maker.read(None).problems.into_iter().map(|problem| problem.what).collect();
    for expected in [
        "its switch has no wire from South 0 to North 4",
        "its switch has no wire for packets from North 1 to South 2",
        "packets of DMA 0 go to arbiter 6; a switch has 6",
    ] {
        assert!(found.iter().any(|what| what == expected), "{expected}: {found:?}");
    }
}
