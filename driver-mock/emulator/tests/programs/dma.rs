//! DMA: relays through mem tiles, dimensions, padding, iterations, chains, packets that end transfers.

use super::rig::{At, Check, Machine, Rig, same};
use aie_emulator::Outcome;
use aie_hal::format::bd::{CoreBd, MemTileBd, ShimBd};
use aie_hal::format::dma_channel::Direction::{MemoryToStream, StreamToMemory};
use aie_hal::format::dma_channel::{ChannelControl, Direction, DmaChannel, DmaTask, FinishOnTlast};
use aie_hal::format::instructions::Transfer;
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::Port;

const MEM: At = (1, 1);
/// Where the second half of a mem tile's memory is in these tests, in bytes and in words of a descriptor.
const FAR: u32 = 0x4_0000;
const FAR_WORDS: u32 = MemTileBd::OWN_MEMORY + FAR / 4;

/// A descriptor that moves consecutive words of the tile's own memory.
fn mem_linear(address: u32, length: u32) -> MemTileBd {
    MemTileBd { address, length, valid: true, ..MemTileBd::default() }
}

/// Sends what a descriptor reads from `input` at the beginning of a mem tile to its middle, and compares it there.
fn through_mem_tile(machine: Machine, input: &[u32], bd: MemTileBd, task: DmaTask, expected: &[u32]) -> Check {
    let mut rig = Rig::new(machine);
    rig.words(MEM, 0, input);
    let address = MemTileBd::OWN_MEMORY + bd.address;
    rig.mem_bd(MEM, 0, MemTileBd { address, valid: true, ..bd });
    rig.mem_bd(MEM, 1, mem_linear(FAR_WORDS, expected.len() as u32));
    rig.circuit(MEM, Port::Dma(0), Port::Dma(0));
    rig.start(MEM, MemoryToStream, 0, task);
    rig.start_once(MEM, StreamToMemory, 0, 1);
    rig.run_to_end()?;
    rig.expect(MEM, FAR, expected)
}

const ONCE: DmaTask = DmaTask { descriptor: 0, repeat: 0, token: false };

/// A matrix of 8 rows and 6 columns, transposed by the dimensions of the reader.
pub fn transposition(machine: Machine) -> Check {
    let input: Vec<u32> = (0..48).map(|index| 0x100 + index).collect();
    let bd = MemTileBd { length: 48, d0_step: 6, d0_wrap: 8, d1_step: 1, ..MemTileBd::default() };
    let expected: Vec<u32> = (0..6).flat_map(|column| (0..8).map(move |row| 0x100 + 6 * row + column)).collect();
    through_mem_tile(machine, &input, bd, ONCE, &expected)
}

/// Four dimensions: blocks of 2 by 3 of a matrix with 8 columns, over two planes of 6 rows.
pub fn four_dimensions(machine: Machine) -> Check {
    let input: Vec<u32> = (0..96).map(|index| index * 5).collect();
    let bd = MemTileBd {
        length: 96,
        d0_wrap: 2,
        d1_step: 8,
        d1_wrap: 3,
        d2_step: 2,
        d2_wrap: 4,
        d3_step: 24,
        ..MemTileBd::default()
    };
    let blocks = (0..4).flat_map(|high| (0..4).map(move |block| 24 * high + 2 * block));
    let block = |first: u32| (0..3).flat_map(move |row| (0..2).map(move |column| first + 8 * row + column));
    let expected: Vec<u32> = blocks.flat_map(block).map(|index| index * 5).collect();
    through_mem_tile(machine, &input, bd, ONCE, &expected)
}

/// Zeros (on AIE2P what a register says) around 3 rows of 4 words: 1 before and 2 after each, 1 row before, 2 after.
pub fn padding(machine: Machine) -> Check {
    let input: Vec<u32> = (1..=12).collect();
    let length = (1 + 4 + 2) * (1 + 3 + 2);
    let bd = MemTileBd {
        length,
        d0_wrap: 4,
        d0_zero_before: 1,
        d0_zero_after: 2,
        d1_step: 4,
        d1_wrap: 3,
        d1_zero_before: 1,
        d1_zero_after: 2,
        ..MemTileBd::default()
    };
    let pad = if machine.isa.name() == "aie2p" { 0xabcd_0123 } else { 0 };
    let mut rig = Rig::new(machine);
    rig.words(MEM, 0, &input);
    rig.words(MEM, 0xa_06e0, &[0xabcd_0123]);
    rig.mem_bd(MEM, 0, MemTileBd { address: MemTileBd::OWN_MEMORY, valid: true, ..bd });
    rig.mem_bd(MEM, 1, mem_linear(FAR_WORDS, length));
    rig.circuit(MEM, Port::Dma(0), Port::Dma(0));
    rig.start(MEM, MemoryToStream, 0, ONCE);
    rig.start_once(MEM, StreamToMemory, 0, 1);
    rig.run_to_end()?;
    let mut expected = vec![pad; 7];
    for row in 0..3 {
        expected.extend([pad, 4 * row + 1, 4 * row + 2, 4 * row + 3, 4 * row + 4, pad, pad]);
    }
    expected.extend([pad; 14]);
    rig.expect(MEM, FAR, &expected)
}

/// A descriptor that runs five times, each time 16 words on, and starts over after the third.
pub fn iterations(machine: Machine) -> Check {
    let input: Vec<u32> = (0..48).collect();
    let bd = MemTileBd { length: 4, iteration_step: 16, iteration_wrap: 3, ..MemTileBd::default() };
    let task = DmaTask { repeat: 4, ..ONCE };
    let firsts = [0, 16, 32, 0, 16];
    let expected: Vec<u32> = firsts.into_iter().flat_map(|first| first..first + 4).collect();
    through_mem_tile(machine, &input, bd, task, &expected)
}

/// The iteration is in the descriptor's own register: after two of three loads it reads 2.
pub fn iteration_register(machine: Machine) -> Check {
    let bd = MemTileBd { length: 4, iteration_step: 16, iteration_wrap: 3, ..MemTileBd::default() };
    let mut rig = Rig::new(machine);
    rig.mem_bd(MEM, 0, MemTileBd { address: MemTileBd::OWN_MEMORY, valid: true, ..bd });
    rig.mem_bd(MEM, 1, mem_linear(FAR_WORDS, 8));
    rig.circuit(MEM, Port::Dma(0), Port::Dma(0));
    rig.start(MEM, MemoryToStream, 0, DmaTask { repeat: 1, ..ONCE });
    rig.start_once(MEM, StreamToMemory, 0, 1);
    rig.run_to_end()?;
    let word = rig.read(MEM, MemTileBd::register(0) + 24, 1)[0];
    same("iteration", &[word >> 23 & 0x3f], &[2])
}

/// A mem tile's DMA reads from the tile in its west and writes to the one in its east.
pub fn neighbours_of_mem_tiles(machine: Machine) -> Check {
    let input: Vec<u32> = (0..32).map(|index| index ^ 0xff).collect();
    let mut rig = Rig::new(machine);
    rig.words((0, 1), 0x80, &input);
    rig.mem_bd(MEM, 0, mem_linear(0x80 / 4, 32));
    rig.mem_bd(MEM, 1, mem_linear(2 * MemTileBd::OWN_MEMORY + 0x100 / 4, 32));
    rig.circuit(MEM, Port::Dma(0), Port::Dma(0));
    rig.start(MEM, MemoryToStream, 0, ONCE);
    rig.start_once(MEM, StreamToMemory, 0, 1);
    rig.run_to_end()?;
    rig.expect((2, 1), 0x100, &input)
}

/// A core that adds `by` to each of 8 words that its DMA brings, and has them sent: locks 0, 1 around the input at 0, locks 2,
/// 3 around the output at 0x100.
fn adding_core(rig: &mut Rig, at: At, by: u32, rounds: u32) {
    rig.program(
        at,
        &format!(
            "
        movxm r9, #{rounds}
        movxm r3, #{by}
        movx r0, #-1
        movx r1, #1
        .align 16
again:  movxm p0, #0x70000
        movxm p1, #0x70100
        movx r5, #8
        acq #49, r0
        acq #50, r0
        .align 16
word:   lda r2, [p0], #4
        add r5, r5, #-1
        nop
        nop
        nop
        nop
        nop
        add r2, r2, r3
        st r2, [p1], #4
        jnz r5, #word
        nop
        nop
        nop
        nop
        nop
        rel #48, r1
        rel #51, r1
        add r9, r9, #-1
        jnz r9, #again
        nop
        nop
        nop
        nop
        nop
        done"
        ),
    );
    for (lock, value) in [(0, 1), (1, 0), (2, 1), (3, 0)] {
        rig.lock(at, lock, value);
    }
    let bd = |number: u32, address, acquire_lock, release_lock| CoreBd {
        length: 8,
        address,
        acquire: true,
        acquire_lock,
        acquire_value: -1,
        release_lock,
        release_value: 1,
        use_next: true,
        next: number,
        valid: true,
        ..CoreBd::default()
    };
    rig.core_bd(at, 0, bd(0, 0, 0, 1));
    rig.core_bd(at, 1, bd(1, 0x40, 3, 2));
    rig.start_once(at, StreamToMemory, 0, 0);
    rig.start_once(at, MemoryToStream, 0, 1);
}

/// From the host through a mem tile, which splits the words between two cores and joins what they make of them, and back:
/// with locks at every step, and an instruction stream that waits for tokens.
pub fn split_and_join(machine: Machine) -> Check {
    const ROUNDS: u32 = 4;
    let (low, high): (At, At) = ((1, 2), (1, 3));
    let mut rig = Rig::new(machine);
    adding_core(&mut rig, low, 1000, ROUNDS);
    adding_core(&mut rig, high, 2000, ROUNDS);
    // Down from the host, up to the cores.
    rig.shim_dma(1, MemoryToStream, 0);
    rig.circuit((1, 0), Port::South(3), Port::North(0));
    rig.circuit(MEM, Port::South(0), Port::Dma(0));
    rig.circuit(MEM, Port::Dma(1), Port::North(0));
    rig.circuit(MEM, Port::Dma(2), Port::North(1));
    rig.circuit(low, Port::South(0), Port::Dma(0));
    rig.circuit(low, Port::South(1), Port::North(1));
    rig.circuit(high, Port::South(1), Port::Dma(0));
    // And back.
    rig.circuit(low, Port::Dma(0), Port::South(0));
    rig.circuit(high, Port::Dma(0), Port::South(1));
    rig.circuit(low, Port::North(1), Port::South(1));
    rig.circuit(MEM, Port::North(0), Port::Dma(3));
    rig.circuit(MEM, Port::North(1), Port::Dma(4));
    rig.circuit(MEM, Port::Dma(0), Port::South(2));
    rig.circuit((1, 0), Port::North(2), Port::South(2));
    rig.shim_dma(1, StreamToMemory, 0);
    // Two locks of the mem tile for each half of the input, then of the output: empty, full.
    for half in 0..4 {
        rig.lock(MEM, 2 * half, 1);
        rig.lock(MEM, 2 * half + 1, 0);
    }
    let bd = |address: u32, acquire: u32, release: u32, next: u32| MemTileBd {
        acquire: true,
        acquire_lock: 64 + acquire,
        acquire_value: -1,
        release_lock: 64 + release,
        release_value: 1,
        use_next: true,
        next,
        ..mem_linear(MemTileBd::OWN_MEMORY + address, 8)
    };
    rig.mem_bd(MEM, 0, bd(0, 0, 1, 1));
    rig.mem_bd(MEM, 1, bd(8, 2, 3, 0));
    rig.mem_bd(MEM, 24, bd(0, 1, 0, 24));
    rig.mem_bd(MEM, 2, bd(8, 3, 2, 2));
    rig.mem_bd(MEM, 25, bd(0x100, 4, 5, 25));
    rig.mem_bd(MEM, 3, bd(0x108, 6, 7, 3));
    rig.mem_bd(MEM, 4, bd(0x100, 5, 4, 5));
    rig.mem_bd(MEM, 5, bd(0x108, 7, 6, 4));
    rig.start_once(MEM, StreamToMemory, 0, 0);
    rig.start_once(MEM, MemoryToStream, 1, 24);
    rig.start_once(MEM, MemoryToStream, 2, 2);
    rig.start_once(MEM, StreamToMemory, 3, 25);
    rig.start_once(MEM, StreamToMemory, 4, 3);
    rig.start_once(MEM, MemoryToStream, 0, 4);
    rig.load()?;
    let input: Vec<u32> = (0..16 * ROUNDS).map(|index| index * index).collect();
    rig.buffer(&input);
    rig.buffer(&vec![0; input.len()]);
    let transfer = |direction, argument: u16| Transfer {
        column: 1,
        direction,
        channel: 0,
        descriptor: argument as u8,
        shape: ShimBd::linear(16 * ROUNDS, 2),
        argument,
        offset: 0,
        repeat: 0,
        token: direction == StreamToMemory,
    };
    let (input_transfer, output_transfer) = (transfer(MemoryToStream, 0), transfer(StreamToMemory, 1));
    let outcome = rig.execute(|writer| {
        writer.transfer(&output_transfer).unwrap();
        writer.transfer(&input_transfer).unwrap();
        writer.wait(&output_transfer);
    })?;
    if outcome != Outcome::Completed {
        return Err(match outcome {
            Outcome::Deadlock { report, .. } => report.to_string(),
            other => format!("{other:?}"),
        });
    }
    let by = |index: usize| if index % 16 < 8 { 1000 } else { 2000 };
    let expected: Vec<u32> = input.iter().enumerate().map(|(index, value)| value + by(index)).collect();
    rig.expect_buffer(1, &expected)
}

/// The host's buffer read in three dimensions by a shim, and written reversed by blocks through dimensions of the writer.
pub fn shim_dimensions(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    let input: Vec<u32> = (0..64).map(|index| 7 * index).collect();
    let (from, to) = (rig.buffer(&input), rig.buffer(&[0; 24]));
    let read = ShimBd { length: 24, d0_wrap: 3, d1_step: 8, d1_wrap: 4, d2_step: 32, valid: true, ..ShimBd::default() };
    let write = ShimBd { length: 24, d0_step: 2, d0_wrap: 12, d1_step: 1, valid: true, ..ShimBd::default() };
    rig.shim_bd((0, 0), 0, from, read);
    rig.shim_bd((0, 0), 1, to, write);
    rig.shim_dma(0, MemoryToStream, 1);
    rig.shim_dma(0, StreamToMemory, 1);
    rig.circuit((0, 0), Port::South(7), Port::South(3));
    rig.start_once((0, 0), MemoryToStream, 1, 0);
    rig.start_once((0, 0), StreamToMemory, 1, 1);
    rig.run_to_end()?;
    let places =
        (0..2).flat_map(|plane| (0..4).flat_map(move |row| (0..3).map(move |word| 32 * plane + 8 * row + word)));
    let stream: Vec<u32> = places.map(|place| 7 * place).collect();
    // Word k goes to 2 k, the second half between.
    let expected: Vec<u32> = (0..24).map(|at| stream[at / 2 + 12 * (at % 2)]).collect();
    rig.expect_buffer(to, &expected)
}

fn control(rig: &mut Rig, at: At, direction: Direction, channel: u8, control: ChannelControl) {
    let kind = if at.1 == 1 { TileKind::Mem } else { TileKind::Core };
    let channel = DmaChannel::new(kind, direction, channel).unwrap();
    rig.write(at, channel.configure(control));
}

/// Three packets of different lengths end three runs of one descriptor; a register tells how long each was.
pub fn finish_on_tlast(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    rig.words(MEM, 0, &(1..=15).collect::<Vec<u32>>());
    let mut first = 0;
    for (number, length) in [(0, 5), (1, 3), (2, 7)] {
        let bd = mem_linear(MemTileBd::OWN_MEMORY + first, length);
        rig.mem_bd(MEM, number, MemTileBd { use_next: number < 2, next: u32::from(number) + 1, ..bd });
        first += length;
    }
    let bd = MemTileBd { iteration_step: 16, iteration_wrap: 4, ..mem_linear(FAR_WORDS, 16) };
    rig.mem_bd(MEM, 3, bd);
    let counted = ChannelControl { finish_on_tlast: FinishOnTlast::CountsInRegister, ..ChannelControl::default() };
    control(&mut rig, MEM, StreamToMemory, 0, counted);
    rig.circuit(MEM, Port::Dma(0), Port::Dma(0));
    rig.start_once(MEM, MemoryToStream, 0, 0);
    rig.start(MEM, StreamToMemory, 0, DmaTask { descriptor: 3, repeat: 2, token: false });
    rig.run_to_end()?;
    for (row, values) in [(0, 1..=5), (1, 6..=8), (2, 9..=15)] {
        rig.expect(MEM, FAR + 64 * row, &values.collect::<Vec<u32>>())?;
    }
    let counts: Vec<u32> = (0..4).map(|_| rig.array.access(1, 1, 0xa_06c8).unwrap()).collect();
    let valid = |words: u32, last: u32| 1 << 31 | last << 30 | 3 << 24 | words;
    same("counts", &counts, &[valid(5, 0), valid(3, 0), valid(7, 1), 0])
}

/// Packets whose headers name the descriptors that store them, in another order than they are sent.
pub fn out_of_order(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    rig.words(MEM, 0, &(1..=12).collect::<Vec<u32>>());
    for (number, place) in [(0, 5), (1, 4), (2, 6)] {
        let bd = mem_linear(MemTileBd::OWN_MEMORY + 4 * u32::from(number), 4);
        let bd = MemTileBd { enable_packet: true, packet_id: 1, out_of_order_id: place, ..bd };
        rig.mem_bd(MEM, number, MemTileBd { use_next: number < 2, next: u32::from(number) + 1, ..bd });
    }
    for place in 4..7 {
        rig.mem_bd(MEM, place, mem_linear(FAR_WORDS + 4 * (u32::from(place) - 4), 4));
    }
    let chosen = ChannelControl { out_of_order: true, ..ChannelControl::default() };
    control(&mut rig, MEM, StreamToMemory, 0, chosen);
    rig.circuit(MEM, Port::Dma(0), Port::Dma(0));
    rig.start_once(MEM, MemoryToStream, 0, 0);
    rig.start(MEM, StreamToMemory, 0, DmaTask { descriptor: 0, repeat: 2, token: true });
    rig.run_to_end()?;
    rig.expect(MEM, FAR, &[5, 6, 7, 8, 1, 2, 3, 4, 9, 10, 11, 12])?;
    match rig.array.take_token(1, 1, StreamToMemory, 0) {
        Ok(true) => Ok(()),
        other => Err(format!("token: {other:?}")),
    }
}

/// A sender whose receiver has not begun stops when the buffers on the way are full, and continues when it begins.
pub fn back_pressure(machine: Machine) -> Check {
    let core: At = (1, 2);
    let mut rig = Rig::new(machine);
    let input: Vec<u32> = (0..100).map(|index| 3 * index + 1).collect();
    rig.words(MEM, 0, &input);
    rig.mem_bd(MEM, 0, mem_linear(MemTileBd::OWN_MEMORY, 100));
    rig.circuit(MEM, Port::Dma(0), Port::North(3));
    rig.circuit(core, Port::South(3), Port::Dma(1));
    rig.start_once(MEM, MemoryToStream, 0, 0);
    rig.run()?;
    let report = rig.array.report().to_string();
    if !report.contains("MM2S 0 of tile (1, 1), BD 0, waits for space in its stream after 18 of 100 words") {
        return Err(report);
    }
    // 6 words in each of the two slave ports and in front of the channel.
    let bd = CoreBd { length: 100, address: 0x40, valid: true, ..CoreBd::default() };
    rig.core_bd(core, 2, bd);
    rig.start_once(core, StreamToMemory, 1, 2);
    rig.run_to_end()?;
    rig.expect(core, 0x100, &input)
}
