//! Packet streams: senders that share a way, headers that are dropped or stored, control packets and their answers.

use super::rig::{At, Check, Machine, Rig, same};
use aie_hal::format::bd::{CoreBd, MemTileBd, ShimBd};
use aie_hal::format::dma_channel::Direction::{MemoryToStream, StreamToMemory};
use aie_hal::format::dma_channel::DmaTask;
use aie_hal::format::stream_switch::{PacketSlot, Port};

const LOW: At = (1, 2);
const HIGH: At = (1, 3);

/// A packet header by its fields' places: id, type, source row and column, odd parity.
fn header(id: u32, kind: u32, column: u32, row: u32) -> u32 {
    odd(id | kind << 12 | row << 16 | column << 21)
}

/// A word with bit 31 as its odd parity.
fn odd(word: u32) -> u32 {
    word | u32::from(word.count_ones().is_multiple_of(2)) << 31
}

/// A sender of three packets of four words each, from 0 on, with the id `id`.
fn sender(rig: &mut Rig, at: At, id: u32, first: u32) {
    rig.words(at, 0, &(first..first + 12).collect::<Vec<u32>>());
    let bd = CoreBd {
        length: 4,
        enable_packet: true,
        packet_id: id,
        packet_type: 2,
        iteration_step: 4,
        iteration_wrap: 3,
        valid: true,
        ..CoreBd::default()
    };
    rig.core_bd(at, 0, bd);
    rig.start(at, MemoryToStream, 0, DmaTask { descriptor: 0, repeat: 2, token: false });
}

/// Two senders on one way to one receiver. Packets stay whole, take turns, and come with their headers.
pub fn two_senders(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    sender(&mut rig, LOW, 5, 100);
    sender(&mut rig, HIGH, 9, 200);
    let slot = |id, msel| PacketSlot { id, mask: 0x1f, arbiter: 4, msel };
    rig.packet_slave(HIGH, Port::Dma(0), &[slot(9, 0)]);
    rig.packet_master(HIGH, Port::South(2), 4, 1, false);
    // Both have packets in front of the lower tile's switch before it takes any.
    rig.run()?;
    rig.packet_slave(LOW, Port::Dma(0), &[slot(5, 1)]);
    rig.packet_slave(LOW, Port::North(2), &[slot(9, 2)]);
    rig.packet_master(LOW, Port::South(1), 4, 0b110, false);
    rig.circuit((1, 1), Port::North(1), Port::Dma(0));
    rig.mem_bd(
        (1, 1),
        0,
        MemTileBd { address: MemTileBd::OWN_MEMORY, length: 30, valid: true, ..MemTileBd::default() },
    );
    rig.start_once((1, 1), StreamToMemory, 0, 0);
    rig.run_to_end()?;
    let found = rig.read((1, 1), 0, 30);
    // All six packets, each whole and those of one sender in order.
    let (mut low, mut high, mut turns) = (Vec::new(), Vec::new(), Vec::new());
    for packet in found.chunks(5) {
        turns.push(packet[0] & 0x1f);
        let (list, expected) =
            if packet[0] & 0x1f == 5 { (&mut low, header(5, 2, 1, 2)) } else { (&mut high, header(9, 2, 1, 3)) };
        same("header", &packet[..1], &[expected])?;
        list.extend(packet[1..].iter().copied());
    }
    same("packets of the lower sender", &low, &(100..112).collect::<Vec<u32>>())?;
    same("packets of the upper sender", &high, &(200..212).collect::<Vec<u32>>())?;
    same("senders in turn", &turns, &[5, 9, 5, 9, 5, 9])
}

/// One sender, whose packets' ids lead to two receivers; one of them drops the headers.
pub fn two_receivers(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    let mem: At = (1, 1);
    rig.words(mem, 0, &(0..16).collect::<Vec<u32>>());
    for (number, id) in [(0, 3), (1, 20), (2, 7), (3, 21)] {
        let bd = MemTileBd {
            address: MemTileBd::OWN_MEMORY + 4 * u32::from(number),
            length: 4,
            enable_packet: true,
            packet_id: id,
            use_next: number < 3,
            next: u32::from(number) + 1,
            valid: true,
            ..MemTileBd::default()
        };
        rig.mem_bd(mem, number, bd);
    }
    rig.circuit(mem, Port::Dma(0), Port::North(0));
    // Ids below 8 go to channel 0, ids 20 to 23 to channel 1.
    let low = PacketSlot { id: 0, mask: 0x18, arbiter: 0, msel: 0 };
    let high = PacketSlot { id: 20, mask: 0x1c, arbiter: 1, msel: 3 };
    rig.packet_slave(LOW, Port::South(0), &[low, high]);
    rig.packet_master(LOW, Port::Dma(0), 0, 0b0001, true);
    rig.packet_master(LOW, Port::Dma(1), 1, 0b1000, false);
    let bd = |address, length| CoreBd { address, length, valid: true, ..CoreBd::default() };
    rig.core_bd(LOW, 0, bd(0, 8));
    rig.core_bd(LOW, 1, bd(0x40, 10));
    rig.start_once(LOW, StreamToMemory, 0, 0);
    rig.start_once(LOW, StreamToMemory, 1, 1);
    rig.start_once(mem, MemoryToStream, 0, 0);
    rig.run_to_end()?;
    rig.expect(LOW, 0, &[0, 1, 2, 3, 8, 9, 10, 11])?;
    let (first, second) = (header(20, 0, 1, 1), header(21, 0, 1, 1));
    rig.expect(LOW, 0x100, &[first, 4, 5, 6, 7, second, 12, 13, 14, 15])
}

/// A control word: operation, register, words, id of the answer.
fn control_word(operation: u32, register: u32, words: u32, answer: u32) -> u32 {
    odd(register | (words - 1) << 20 | operation << 22 | answer << 24)
}

/// Control packets from the host set a lock, write data memory, and read it back: the answer comes to the host.
pub fn control_packets(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    let shim: At = (1, 0);
    let packets: [&[u32]; 3] = [
        &[header(1, 0, 0, 0), control_word(0, 0x1_f030, 1, 0), 17],
        &[header(1, 0, 0, 0), control_word(0, 0x200, 4, 0), 0xaaaa, 0xbbbb, 0xcccc, 0xdddd],
        &[header(1, 0, 0, 0), control_word(1, 0x200, 4, 6)],
    ];
    let (input, output) = (rig.buffer(&packets.concat()), rig.buffer(&[0; 5]));
    let mut first = 0;
    for (number, packet) in packets.iter().enumerate() {
        let length = packet.len() as u32;
        let bd = ShimBd { length, use_next: number < 2, next: number as u32 + 1, valid: true, ..ShimBd::default() };
        let mut bd = bd;
        bd.set_address(4 * first);
        rig.shim_bd(shim, number as u8, input, bd);
        first += u64::from(length);
    }
    rig.shim_bd(shim, 8, output, ShimBd { length: 5, valid: true, ..ShimBd::default() });
    rig.shim_dma(1, MemoryToStream, 0);
    rig.shim_dma(1, StreamToMemory, 1);
    rig.circuit(shim, Port::South(3), Port::North(4));
    rig.circuit((1, 1), Port::South(4), Port::North(4));
    let any = PacketSlot { id: 1, mask: 0x1f, arbiter: 0, msel: 0 };
    rig.packet_slave(LOW, Port::South(4), &[any]);
    rig.packet_master(LOW, Port::TileControl, 0, 1, false);
    let answer = PacketSlot { id: 6, mask: 0x1f, arbiter: 2, msel: 1 };
    rig.packet_slave(LOW, Port::TileControl, &[answer]);
    rig.packet_master(LOW, Port::South(3), 2, 2, false);
    rig.circuit((1, 1), Port::North(3), Port::South(3));
    rig.circuit(shim, Port::North(3), Port::South(3));
    rig.start_once(shim, MemoryToStream, 0, 0);
    rig.start_once(shim, StreamToMemory, 1, 8);
    rig.run_to_end()?;
    same("lock 3", &rig.read(LOW, 0x1_f030, 1), &[17])?;
    rig.expect(LOW, 0x200, &[0xaaaa, 0xbbbb, 0xcccc, 0xdddd])?;
    rig.expect_buffer(output, &[header(6, 0, 1, 2), 0xaaaa, 0xbbbb, 0xcccc, 0xdddd])
}
