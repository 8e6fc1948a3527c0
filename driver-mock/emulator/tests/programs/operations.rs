//! Operations of instruction streams: addresses patched into descriptors, tokens, configurations loaded from memory, and those
//! that do nothing to the array.

use super::rig::{At, Check, Host, Machine, Rig, same};
use aie_emulator::Outcome;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::dma_channel::Direction::{MemoryToStream, StreamToMemory};
use aie_hal::format::dma_channel::{DmaChannel, DmaTask};
use aie_hal::format::instructions::{ARRAY_OFFSET, Header, Instruction, InstructionStream, InstructionWriter};
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::Port;
use aie_hal::format::{pdi, tile_address};

const SHIM: At = (0, 0);

/// Custom operations: reading registers, a time stamp, tokens of any channels.
const READ_REGISTERS: u8 = 0x82;
const RECORD_TIMER: u8 = 0x83;
const MERGE_SYNC: u8 = 0x84;

/// A shim whose both directions of channel 0 are connected with each other.
fn loopback(machine: Machine, column: u8) -> Rig {
    let mut rig = Rig::new(machine);
    rig.shim_dma(column, MemoryToStream, 0);
    rig.shim_dma(column, StreamToMemory, 0);
    rig.circuit((column, 0), Port::South(3), Port::South(2));
    rig
}

fn completed(outcome: Outcome) -> Check {
    match outcome {
        Outcome::Completed => Ok(()),
        Outcome::Deadlock { operation, report } => Err(format!("operation {operation}: {report}")),
    }
}

fn start(
    writer: &mut InstructionWriter,
    column: u8,
    direction: aie_hal::format::dma_channel::Direction,
    task: DmaTask,
) {
    let queue = DmaChannel::new(TileKind::Shim, direction, 0).unwrap().task_queue();
    writer.push(&Instruction::Write { address: tile_address(column, 0, queue).into(), value: task.encode() });
}

/// The address of an argument and an offset go into a descriptor; what else is in its second address word stays.
pub fn address_patches(machine: Machine) -> Check {
    let mut rig = loopback(machine, 0);
    let input: Vec<u32> = (50..70).collect();
    rig.buffer(&input);
    rig.buffer(&[0; 12]);
    rig.load()?;
    let bd = ShimBd { length: 8, out_of_order_id: 33, valid: true, ..ShimBd::default() }.encode().unwrap();
    let register = |number| tile_address(0, 0, ShimBd::register(number));
    let outcome = rig.execute(|writer| {
        for (number, argument, offset) in [(2, 0, 40), (3, 1, 16)] {
            writer.block_write(register(number), &bd);
            let register = u64::from(register(number)) + 4;
            writer.push(&Instruction::AddressPatch { register, argument, offset });
        }
        start(writer, 0, StreamToMemory, DmaTask { descriptor: 3, repeat: 0, token: true });
        start(writer, 0, MemoryToStream, DmaTask { descriptor: 2, repeat: 0, token: false });
        writer.push(&Instruction::Sync {
            direction: StreamToMemory,
            column: 0,
            row: 0,
            columns: 1,
            rows: 1,
            channel: 0,
        });
    })?;
    completed(outcome)?;
    let mut expected = vec![0; 12];
    expected[4..].copy_from_slice(&input[10..18]);
    rig.expect_buffer(1, &expected)?;
    let words = rig.read(SHIM, ShimBd::register(3), 3);
    let address = Host::address(1) + ARRAY_OFFSET + 16;
    same("descriptor", &words, &[8, address as u32, bd[2] | (address >> 32) as u32])
}

/// Firmware adds the array's offset for five arguments, the stream for those behind them. Without it a shim DMA misses the host's memory.
pub fn late_arguments(machine: Machine) -> Check {
    let input: Vec<u32> = (50..58).collect();
    let run = |argument: u16, at: u64, is_for_firmware: bool| {
        let mut rig = loopback(machine, 0);
        for _ in 0..6 {
            rig.buffer(&input);
        }
        rig.buffer(&[0; 8]);
        rig.load()?;
        let bd = ShimBd { length: 8, valid: true, ..ShimBd::default() }.encode().unwrap();
        let register = |number| tile_address(0, 0, ShimBd::register(number));
        let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
        for (number, argument, offset) in [(2, argument, at), (3, 6, 0)] {
            writer.block_write(register(number), &bd);
            writer.push(&Instruction::AddressPatch { register: u64::from(register(number)) + 4, argument, offset });
        }
        start(&mut writer, 0, StreamToMemory, DmaTask { descriptor: 3, repeat: 0, token: true });
        start(&mut writer, 0, MemoryToStream, DmaTask { descriptor: 2, repeat: 0, token: false });
        writer.push(&Instruction::Sync {
            direction: StreamToMemory,
            column: 0,
            row: 0,
            columns: 1,
            rows: 1,
            channel: 0,
        });
        let bytes = writer.finish().unwrap();
        let bytes = if is_for_firmware { InstructionStream::for_firmware(&bytes).unwrap().into_owned() } else { bytes };
        completed(rig.execute_bytes(&bytes)?)?;
        rig.expect_buffer(6, &input)
    };
    run(4, 0, true)?;
    run(5, 0, true)?;
    for argument in [4, 5] {
        match run(argument, 0, false) {
            Err(problem) if problem.contains("there is no memory at") => {}
            other => return Err(format!("argument {argument} without the offset: {other:?}")),
        }
    }
    Ok(())
}

/// Tokens of two columns are waited for together; every token counts once.
pub fn merged_tokens(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    let input = rig.buffer(&[1, 2, 3, 4]);
    for column in 0..2 {
        let output = rig.buffer(&[0; 4]);
        rig.shim_dma(column, MemoryToStream, 0);
        rig.shim_dma(column, StreamToMemory, 0);
        rig.circuit((column, 0), Port::South(3), Port::South(2));
        rig.shim_bd((column, 0), 0, input, ShimBd::linear(4, 2));
        rig.shim_bd((column, 0), 1, output, ShimBd::linear(4, 2));
    }
    rig.load()?;
    let outcome = rig.execute(|writer| {
        for column in 0..2 {
            start(writer, column, StreamToMemory, DmaTask { descriptor: 1, repeat: 0, token: true });
            start(writer, column, MemoryToStream, DmaTask { descriptor: 0, repeat: 0, token: false });
        }
        writer.custom(MERGE_SYNC, &[u32::from_le_bytes([2, 2, 0, 0])]);
    })?;
    completed(outcome)?;
    rig.expect_buffer(1, &[1, 2, 3, 4])?;
    rig.expect_buffer(2, &[1, 2, 3, 4])?;
    // Both tokens are gone.
    match rig.execute(|writer| _ = writer.custom(MERGE_SYNC, &[u32::from_le_bytes([1, 2, 0, 0])]))? {
        Outcome::Deadlock { operation: 0, .. } => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// A configuration in the host's memory replaces the one that is there, unless the last one was at its address; one of no bytes only
/// removes it.
pub fn loaded_configurations(machine: Machine) -> Check {
    let core: At = (1, 2);
    let mut rig = Rig::new(machine);
    rig.lock(core, 2, 5);
    rig.words(core, 0, &[77]);
    rig.load()?;
    let mut cdo = CdoBuilder::new();
    cdo.write(tile_address(1, 2, 0x1_f030).into(), 9);
    let image = pdi::write(&cdo).unwrap();
    let size = image.len() as u32;
    rig.host.0.push(image);
    let (address, elsewhere) = (Host::address(0), Host::address(1));
    let load = |size, address| {
        move |writer: &mut InstructionWriter| _ = writer.push(&Instruction::LoadPdi { id: 1, size, address })
    };
    completed(rig.execute(load(size, address))?)?;
    // Locks start at 0 again; data memory survives.
    same("locks", &[rig.read(core, 0x1_f020, 1)[0], rig.read(core, 0x1_f030, 1)[0]], &[0, 9])?;
    rig.expect(core, 0, &[77])?;
    completed(rig.execute(load(0, address))?)?;
    same("locks", &rig.read(core, 0x1_f030, 1), &[9])?;
    completed(rig.execute(load(0, elsewhere))?)?;
    same("locks", &rig.read(core, 0x1_f030, 1), &[0])?;
    let error = rig.execute(load(size - 4, address)).err().unwrap_or_default();
    let expected = format!("the PDI of {} bytes at {address:#x}: ", size - 4);
    if error.starts_with(&expected) { Ok(()) } else { Err(format!("`{error}` does not begin with `{expected}`")) }
}

/// Time stamps, reads into a log, points for preemption do nothing; an operation without a model is named.
pub fn operations_without_effect(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    let outcome = rig.execute(|writer| {
        writer.push(&Instruction::Noop).push(&Instruction::Preempt { level: 2 });
        writer.custom(RECORD_TIMER, &[7]).custom(READ_REGISTERS, &[1, 0x1_f000, 0]);
    })?;
    completed(outcome)?;
    match rig.execute(|writer| _ = writer.custom(0x90, &[1])) {
        Err(error) if error.contains("is not modelled") && error.contains("opcode: 144") => Ok(()),
        other => Err(format!("{other:?}")),
    }
}
