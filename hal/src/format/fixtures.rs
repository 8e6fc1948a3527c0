//! The encoders against the words that AMD's register library (aie-rt) computes, one row for each of its functions.
//!
//! The rows were computed once, on a host, for one call each; the numbers that a call takes are repeated here by hand.
//! Both generations give the same words but for the burst of the shim's descriptor.

use super::bd::{CoreBd, MemTileBd, ShimBd};
use super::core_control::{self, CascadeInput, CascadeOutput};
use super::dma_channel::{ChannelControl, Direction, DmaChannel, DmaTask, FinishOnTlast};
use super::lock::{DONE, Lock, LockRequest};
use super::register::{RegisterWrite, TileKind};
use super::stream_switch::{PacketSlot, Port, StreamSwitch};
use super::{shim_mux, tile_address};

/// A tile of column 0 with what is written to it, in the notation of the rows: `W address value`,
/// `M address mask value`, `D address words...`, `P address mask value timeout`.
struct Tile {
    kind: TileKind,
    row: u8,
}

const CORE: Tile = Tile { kind: TileKind::Core, row: 2 };
const MEM: Tile = Tile { kind: TileKind::Mem, row: 1 };
const SHIM: Tile = Tile { kind: TileKind::Shim, row: 0 };

impl Tile {
    fn at(&self, offset: u32) -> u32 {
        tile_address(0, self.row, offset)
    }

    fn write(&self, write: RegisterWrite) -> String {
        let RegisterWrite { offset, mask, value } = write;
        match mask {
            u32::MAX => format!("W {:08x} {value:08x}", self.at(offset)),
            _ => format!("M {:08x} {mask:08x} {value:08x}", self.at(offset)),
        }
    }

    fn block(&self, offset: u32, words: &[u32]) -> String {
        let words: String = words.iter().map(|word| format!(" {word:08x}")).collect();
        format!("D {:08x}{words}", self.at(offset))
    }

    /// A poll for the lock request to be done, for at most `microseconds`; a CDO counts milliseconds.
    fn poll(&self, lock: u8, request: LockRequest, microseconds: u32) -> String {
        let offset = self.lock(lock).request(request).unwrap();
        format!("P {:08x} {DONE:08x} {DONE:08x} {}", self.at(offset), microseconds / 1000)
    }

    fn lock(&self, id: u8) -> Lock {
        Lock::new(self.kind, id).unwrap()
    }

    fn set_lock(&self, id: u8, value: i8) -> String {
        self.write(self.lock(id).set(value).unwrap())
    }

    fn channel(&self, direction: Direction, channel: u8) -> DmaChannel {
        DmaChannel::new(self.kind, direction, channel).unwrap()
    }

    fn start(&self, direction: Direction, channel: u8, descriptor: u8, runs: u16, token: bool) -> String {
        let task = DmaTask { descriptor, repeat: u8::try_from(runs - 1).unwrap(), token };
        self.write(self.channel(direction, channel).start(task).unwrap())
    }

    /// Master, then slave.
    fn circuit(&self, slave: Port, master: Port) -> [String; 2] {
        StreamSwitch(self.kind).circuit(slave, master).unwrap().map(|write| self.write(write))
    }
}

const S2MM: Direction = Direction::StreamToMemory;
const MM2S: Direction = Direction::MemoryToStream;

fn core_descriptor() -> String {
    let bd = CoreBd {
        acquire: true,
        acquire_lock: 2,
        acquire_value: -1,
        release_lock: 3,
        release_value: 1,
        address: 0x1000 / 4,
        length: 512 / 4,
        d0_step: 1,
        d0_wrap: 8,
        d1_step: 16,
        d1_wrap: 4,
        d2_step: 128,
        iteration_step: 64,
        iteration_wrap: 5,
        iteration: 2,
        enable_packet: true,
        packet_id: 9,
        packet_type: 3,
        next: 7,
        use_next: true,
        out_of_order_id: 17,
        valid: true,
        ..CoreBd::default()
    };
    CORE.block(CoreBd::register(5), &bd.encode().unwrap())
}

fn mem_descriptor() -> String {
    const OWN_LOCKS: u32 = 64;
    let bd = MemTileBd {
        acquire: true,
        acquire_lock: OWN_LOCKS + 10,
        acquire_value: -2,
        release_lock: OWN_LOCKS + 11,
        release_value: 2,
        address: MemTileBd::OWN_MEMORY + 0x2000 / 4,
        length: 2048 / 4,
        d0_step: 1,
        d0_wrap: 8,
        d1_step: 16,
        d1_wrap: 4,
        d2_step: 128,
        d2_wrap: 3,
        d3_step: 1000,
        d0_zero_before: 1,
        d0_zero_after: 2,
        d1_zero_before: 3,
        d1_zero_after: 4,
        d2_zero_before: 5,
        d2_zero_after: 6,
        iteration_step: 77,
        iteration_wrap: 9,
        next: 31,
        use_next: true,
        compress: true,
        valid: true,
        ..MemTileBd::default()
    };
    MEM.block(MemTileBd::register(30), &bd.encode().unwrap())
}

fn shim_descriptor(burst: u32) -> String {
    let mut bd = ShimBd {
        length: 65_536 / 4,
        d0_step: 1,
        d0_wrap: 64,
        d1_step: 256,
        d1_wrap: 32,
        d2_step: 65_536,
        smid: 1,
        burst,
        qos: 3,
        cache: 2,
        secure: true,
        iteration_step: 4096,
        iteration_wrap: 7,
        valid: true,
        ..ShimBd::default()
    };
    bd.set_address(0x1234_5678_9ABC);
    SHIM.block(ShimBd::register(4), &bd.encode().unwrap())
}

#[test]
fn words_are_those_of_the_register_library() {
    let core_reset = |reset| CORE.write(CORE.channel(S2MM, 0).reset(reset).unwrap());
    let control = ChannelControl { controller: 15, finish_on_tlast: FinishOnTlast::WithoutCounts, out_of_order: true };
    let core_switch = StreamSwitch(TileKind::Core);
    let [core_in, core_in_slave] = CORE.circuit(Port::South(1), Port::Dma(0));
    let [core_out, core_out_slave] = CORE.circuit(Port::Dma(1), Port::East(3));
    let [mem_out, mem_out_slave] = MEM.circuit(Port::Dma(2), Port::North(5));
    let [shim_out, shim_out_slave] = SHIM.circuit(Port::North(0), Port::South(2));
    let packet_master = core_switch.packet_master(Port::North(2), 3, 0x5, true).unwrap();
    let slot = PacketSlot { id: 0x13, mask: 0x1F, msel: 2, arbiter: 3 };
    let mux = |direction, channel| SHIM.write(shim_mux::connect(direction, channel).unwrap());

    let rows = [
        // Core (0,2): disable, reset, out of reset.
        (CORE.write(core_control::enable(false)), "M 00232000 00000001 00000000"),
        (CORE.write(core_control::reset(true)), "M 00232000 00000002 00000002"),
        (CORE.write(core_control::reset(false)), "M 00232000 00000002 00000000"),
        // Locks set.
        (CORE.set_lock(3, 1), "W 0021f030 00000001"),
        (MEM.set_lock(63, 2), "W 001c03f0 00000002"),
        (SHIM.set_lock(15, -1), "W 000140f0 0000003f"),
        // Buffer descriptors.
        (core_descriptor(), "D 0021d0a0 01000080 514b0000 0001e000 0081007f 0010803f 3e047fe2"),
        (mem_descriptor(), "D 001a03c0 00000200 05fa0800 00100000 1808000f a806007f 620403e7 0010004c 824bfe4a"),
        // On aie2 with a burst of 256 bytes, on aie2p with 512.
        (shim_descriptor(2), "D 0001d080 00004000 56789abc 00001234 44000000 820000ff 1230ffff 00600fff 02000000"),
        (shim_descriptor(3), "D 0001d080 00004000 56789abc 00001234 44000000 c20000ff 1230ffff 00600fff 02000000"),
        // Channels: reset, tasks, "enable", control.
        (core_reset(true), "M 0021de00 00000002 00000002"),
        (core_reset(false), "M 0021de00 00000002 00000000"),
        (CORE.start(MM2S, 1, 5, 3, true), "W 0021de1c 80020005"),
        (CORE.write(CORE.channel(MM2S, 1).enable()), "M 0021de18 00000000 00000001"),
        (MEM.start(S2MM, 5, 30, 1, false), "W 001a062c 0000001e"),
        (MEM.write(MEM.channel(S2MM, 5).enable()), "M 001a0628 00000000 00000001"),
        (SHIM.start(S2MM, 1, 4, 256, true), "W 0001d20c 80ff0004"),
        (CORE.write(CORE.channel(S2MM, 0).configure(control)), "W 0021de00 00010f08"),
        // Circuits: master, slave.
        (core_in, "W 0023f004 80000006"),
        (core_in_slave, "W 0023f118 80000000"),
        (core_out, "W 0023f058 80000002"),
        (core_out_slave, "W 0023f108 80000000"),
        (mem_out, "W 001b0040 80000002"),
        (mem_out_slave, "W 001b0108 80000000"),
        (shim_out, "W 0003f010 8000000e"),
        (shim_out_slave, "W 0003f138 80000000"),
        // Packets.
        (CORE.write(packet_master), "W 0023f03c c00000ab"),
        (CORE.write(core_switch.packet_slave(Port::West(1)).unwrap()), "W 0023f130 c0000000"),
        (CORE.write(core_switch.slot(Port::West(1), 2, slot).unwrap()), "W 0023f2c8 131f0123"),
        // The shim's DMA on its stream ports: to the array on 3 and 7, from it on 2 and 3.
        (mux(MM2S, 0), "M 0001f000 00000c00 00000400"),
        (mux(MM2S, 1), "M 0001f000 0000c000 00004000"),
        (mux(S2MM, 0), "M 0001f004 00000030 00000010"),
        (mux(S2MM, 1), "M 0001f004 000000c0 00000040"),
        // Cascade, lock requests, enable.
        (CORE.write(core_control::cascade(CascadeInput::North, CascadeOutput::East)), "W 00236060 00000002"),
        (CORE.poll(5, LockRequest::Acquire(-1), 1000), "P 002417fc 00000001 00000001 1"),
        (MEM.poll(40, LockRequest::Release(1), 1000), "P 001da004 00000001 00000001 1"),
        (CORE.write(core_control::enable(true)), "M 00232000 00000001 00000001"),
    ];
    // One of them twice, for both generations.
    assert_eq!(rows.len(), 36 + 1);
    for (found, expected) in rows {
        assert_eq!(found, expected);
    }
}
