//! What is said when a program cannot continue: every kind of waiting, every kind of error, with its text. Each has an example
//! in `docs/emulator.md`, which is checked here.

use super::rig::{At, Host, Machine, Rig};
use aie_emulator::{ArrayError, LoadError, Outcome};
use aie_hal::format::bd::{CoreBd, MemTileBd, ShimBd};
use aie_hal::format::cdo::{Cdo, CdoBuilder};
use aie_hal::format::dma_channel::Direction::{MemoryToStream, StreamToMemory};
use aie_hal::format::dma_channel::{DmaChannel, DmaTask};
use aie_hal::format::instructions::{ARRAY_OFFSET, Instruction};
use aie_hal::format::register::{RegisterWrite, TileKind};
use aie_hal::format::stream_switch::{PacketSlot, Port};
use aie_isa::Isa;

const CORE: At = (1, 2);
const MEM: At = (1, 1);
const SHIM: At = (1, 0);

fn rig() -> Rig {
    Rig::new(Machine::new(Isa::aie2()))
}

/// A descriptor of consecutive words of a mem tile's own memory.
fn mem_linear(length: u32) -> MemTileBd {
    MemTileBd { address: MemTileBd::OWN_MEMORY, length, valid: true, ..MemTileBd::default() }
}

/// A text with a `#` for each number, hexadecimal ones too.
fn shape(text: &str) -> String {
    let parts = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    parts
        .map(|part| {
            let end = part.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
            if part.starts_with(|c: char| c.is_ascii_digit()) { format!("#{end}") } else { part.into() }
        })
        .collect()
}

/// A text whose kind `docs/emulator.md` explains by an example: what is waited for, or what is behind the place of an error.
fn explained(text: String) -> String {
    let docs = shape(include_str!("../../../../docs/emulator.md"));
    for part in text.split("\n  ") {
        let kind = part.split_once(" waits for ").map_or(part, |(_, what)| what);
        let kind = if kind == part { part.split_once(": ").map_or(part, |(_, what)| what) } else { kind };
        let kind = shape(kind);
        assert!(docs.contains(&kind), "docs/emulator.md has no example of `{kind}`");
    }
    text
}

/// Who waits for what when nothing moves any more.
fn waiting(mut rig: Rig) -> String {
    rig.run().expect("it comes to rest");
    explained(rig.array.report().to_string())
}

/// The error that a run ends with.
fn error(mut rig: Rig) -> String {
    explained(rig.run().expect_err("it ends with an error"))
}

#[test]
fn a_core_waits_for_a_lock() {
    let mut rig = rig();
    rig.lock(CORE, 3, 1);
    rig.program(CORE, "movx r0, #-2\nnop\nacq #51, r0\ndone");
    assert_eq!(waiting(rig), "core (1, 2) at 0x6 waits for lock 3 of tile (1, 2) to be at least 2: it is 1");
}

#[test]
fn a_circle_of_locks_is_seen_whole() {
    let mut rig = rig();
    // Each waits for what the other would release.
    rig.program(CORE, "movx r0, #-1\nacq #48, r0\nmovx r1, #1\nrel #49, r1\ndone");
    let bd = CoreBd {
        length: 4,
        acquire: true,
        acquire_lock: 1,
        acquire_value: -1,
        release_lock: 0,
        release_value: 1,
        valid: true,
        ..CoreBd::default()
    };
    rig.core_bd(CORE, 5, bd);
    rig.start_once(CORE, StreamToMemory, 1, 5);
    assert_eq!(
        waiting(rig),
        "core (1, 2) at 0x4 waits for lock 0 of tile (1, 2) to be at least 1: it is 0\n  \
         S2MM 1 of tile (1, 2), BD 5, waits for lock 1 of tile (1, 2) to be at least 1: it is 0"
    );
}

#[test]
fn a_mem_tile_names_locks_of_its_neighbour() {
    let mut rig = rig();
    let bd = MemTileBd { acquire: true, acquire_lock: 128 + 7, acquire_value: 2, ..mem_linear(4) };
    rig.mem_bd(MEM, 1, bd);
    rig.start_once(MEM, MemoryToStream, 2, 1);
    assert_eq!(waiting(rig), "MM2S 2 of tile (1, 1), BD 1, waits for lock 7 of tile (2, 1) to be 2: it is 0");
}

#[test]
fn streams_starve_and_fill() {
    let mut empty = rig();
    empty.program(CORE, "mov r1, ss\ndone");
    empty.mem_bd(MEM, 0, mem_linear(64));
    empty.start_once(MEM, StreamToMemory, 0, 0);
    assert_eq!(
        waiting(empty),
        "S2MM 0 of tile (1, 1), BD 0, waits for words of its stream after 0 of 64 words\n  \
         core (1, 2) at 0x0 waits for words of its stream"
    );
    let mut full = rig();
    full.mem_bd(MEM, 0, mem_linear(64));
    full.circuit(MEM, Port::Dma(0), Port::North(5));
    full.start_once(MEM, MemoryToStream, 0, 0);
    assert_eq!(
        waiting(full),
        "MM2S 0 of tile (1, 1), BD 0, waits for space in its stream after 12 of 64 words\n  \
         slave port Dma(0) of tile (1, 1), with 6 words, waits for space behind master port North(5)\n  \
         slave port South(5) of tile (1, 2), with 6 words, waits for its configuration: the port is off"
    );
}

#[test]
fn streams_lead_into_nothing() {
    let send = |configure: fn(&mut Rig)| {
        let mut rig = rig();
        rig.mem_bd(MEM, 0, mem_linear(4));
        rig.start_once(MEM, MemoryToStream, 0, 0);
        configure(&mut rig);
        waiting(rig)
    };
    let off = send(|_| {});
    assert_eq!(off, "slave port Dma(0) of tile (1, 1), with 4 words, waits for its configuration: the port is off");
    let unrouted =
        send(|rig| rig.packet_slave(MEM, Port::Dma(0), &[PacketSlot { id: 0, mask: 0, arbiter: 3, msel: 1 }]));
    assert_eq!(
        unrouted,
        "slave port Dma(0) of tile (1, 1), with 4 words, waits for a master that takes its words: there is none"
    );
    let mut edge = rig();
    edge.program((2, 3), "movx r1, #5\nmov ms, r1\ndone");
    edge.circuit((2, 3), Port::Core, Port::East(1));
    assert_eq!(
        waiting(edge),
        "slave port Core of tile (2, 3), with 1 words, waits for space behind master port East(1) (which leads nowhere)"
    );
}

#[test]
fn a_packet_without_end_keeps_its_arbiter() {
    let mut rig = rig();
    let packet = |suppress_tlast| MemTileBd { suppress_tlast, enable_packet: true, packet_id: 4, ..mem_linear(3) };
    rig.mem_bd(MEM, 0, packet(true));
    rig.mem_bd(MEM, 24, packet(false));
    for (channel, port) in [(0, Port::Dma(0)), (1, Port::Dma(1))] {
        rig.packet_slave(MEM, port, &[PacketSlot { id: 4, mask: 0x1f, arbiter: 6, msel: 0 }]);
        rig.start_once(MEM, MemoryToStream, channel, 24 * channel);
    }
    rig.packet_master(MEM, Port::Dma(2), 6, 1, false);
    assert_eq!(
        waiting(rig),
        "slave port Dma(1) of tile (1, 1), with 4 words, waits for arbiter 6, which slave port Dma(0) has"
    );
}

#[test]
fn shims_need_their_multiplexer_and_columns_their_clock() {
    let mut unconnected = rig();
    let buffer = unconnected.buffer(&[1, 2, 3, 4]);
    unconnected.shim_bd(SHIM, 0, buffer, ShimBd::linear(4, 2));
    unconnected.start_once(SHIM, MemoryToStream, 1, 0);
    assert_eq!(
        waiting(unconnected),
        "MM2S 1 of tile (1, 0), BD 0, waits for the shim's multiplexer, which does not connect the DMA"
    );
    let mut stopped = rig();
    stopped.write(SHIM, RegisterWrite::word(0xf_ff20, 0));
    stopped.program(CORE, "nop\ndone");
    assert_eq!(waiting(stopped), "core (1, 2) at 0x0 waits for the clock of its column");
    let mut reset = rig();
    reset.mem_bd(MEM, 0, mem_linear(4));
    reset.write(MEM, DmaChannel::new(TileKind::Mem, MemoryToStream, 0).unwrap().reset(true).unwrap());
    reset.start_once(MEM, MemoryToStream, 0, 0);
    assert_eq!(waiting(reset), "MM2S 0 of tile (1, 1), BD 0, waits for its reset or pause bit to be cleared");
}

#[test]
fn cascades_wait_for_their_neighbour() {
    let mut rig = rig();
    rig.program(CORE, "vmov x0, SCD\ndone");
    // The core of the lowest row sends to the south, where there is none.
    rig.program((2, 2), "vmov MCD, x0\ndone");
    assert_eq!(
        waiting(rig),
        "core (1, 2) at 0x0 waits for a value from its cascade neighbour\n  \
         core (2, 2) at 0x0 waits for its cascade neighbour to take a value"
    );
}

#[test]
fn operations_of_a_stream_are_in_front() {
    let mut rig = rig();
    rig.mem_bd(MEM, 0, mem_linear(8));
    rig.mem_bd(MEM, 24, mem_linear(8));
    rig.start_once(MEM, StreamToMemory, 3, 24);
    rig.load().unwrap();
    let sync = |rig: &mut Rig| {
        rig.execute(|writer| {
            writer.push(&Instruction::Noop);
            writer.push(&Instruction::Sync {
                direction: StreamToMemory,
                column: 1,
                row: 1,
                columns: 1,
                rows: 1,
                channel: 3,
            });
        })
    };
    let Ok(Outcome::Deadlock { operation: 1, report }) = sync(&mut rig) else { panic!("no deadlock of operation 1") };
    assert_eq!(
        explained(report.to_string()),
        "operation 1 of the instruction stream waits for a token of S2MM 3 of tile (1, 1)\n  \
         S2MM 3 of tile (1, 1), BD 24, waits for words of its stream after 0 of 8 words"
    );
    let address = aie_hal::format::tile_address(1, 2, 0x1_f040).into();
    let poll = rig.execute(|writer| {
        writer.push(&Instruction::MaskPoll { address, value: 2, mask: 3 });
    });
    let Ok(Outcome::Deadlock { operation: 0, report }) = poll else { panic!("{poll:?}") };
    assert!(explained(report.to_string()).starts_with(
        "operation 0 of the instruction stream waits for register 0x1f040 of tile (1, 2) to be 0x2 under mask 0x3\n  "
    ));
}

#[test]
fn the_way_from_the_token_to_where_nothing_comes_is_first() {
    let mut rig = rig();
    // One that has nothing to do with it, in a tile in front of all others.
    rig.program((0, 2), "mov r1, ss\ndone");
    rig.program(CORE, "movx r0, #-1\nacq #51, r0\nmov ms, r0\ndone");
    rig.circuit(CORE, Port::Core, Port::South(0));
    rig.circuit(MEM, Port::North(0), Port::Dma(0));
    rig.circuit(MEM, Port::Dma(0), Port::South(0));
    rig.circuit(SHIM, Port::North(0), Port::South(2));
    let filled = MemTileBd { release_lock: 64 + 5, release_value: 1, ..mem_linear(4) };
    rig.mem_bd(MEM, 0, filled);
    rig.mem_bd(MEM, 1, MemTileBd { acquire: true, acquire_lock: 64 + 5, acquire_value: -1, ..mem_linear(4) });
    rig.start_once(MEM, StreamToMemory, 0, 0);
    rig.start_once(MEM, MemoryToStream, 0, 1);
    let buffer = rig.buffer(&[0; 4]);
    rig.shim_bd(SHIM, 2, buffer, ShimBd::linear(4, 2));
    rig.shim_dma(1, StreamToMemory, 0);
    rig.start_once(SHIM, StreamToMemory, 0, 2);
    rig.load().unwrap();
    let outcome = rig.execute(|writer| {
        let (direction, channel) = (StreamToMemory, 0);
        writer.push(&Instruction::Sync { direction, column: 1, row: 0, columns: 1, rows: 1, channel });
    });
    let Ok(Outcome::Deadlock { report, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(
        explained(report.to_string()),
        "operation 0 of the instruction stream waits for a token of S2MM 0 of tile (1, 0)\n  \
         S2MM 0 of tile (1, 0), BD 2, waits for words of its stream after 0 of 4 words\n  \
         MM2S 0 of tile (1, 1), BD 1, waits for lock 5 of tile (1, 1) to be at least 1: it is 0\n  \
         S2MM 0 of tile (1, 1), BD 0, waits for words of its stream after 0 of 4 words\n  \
         core (1, 2) at 0x4 waits for lock 3 of tile (1, 2) to be at least 1: it is 0\n  \
         core (0, 2) at 0x0 waits for words of its stream"
    );
}

#[test]
fn the_way_goes_through_ports_that_are_full() {
    let mut rig = rig();
    rig.program((0, 2), "mov r1, ss\ndone");
    // Its words get stuck in a core's port, which that core never empties.
    rig.mem_bd(MEM, 0, mem_linear(64));
    rig.circuit(MEM, Port::Dma(0), Port::North(5));
    rig.circuit(CORE, Port::South(5), Port::Core);
    rig.program(CORE, "movx r0, #-1\nacq #51, r0\nmov r1, ss\ndone");
    rig.start(MEM, MemoryToStream, 0, DmaTask { descriptor: 0, repeat: 0, token: true });
    rig.load().unwrap();
    let outcome = rig.execute(|writer| {
        let (direction, channel) = (MemoryToStream, 0);
        writer.push(&Instruction::Sync { direction, column: 1, row: 1, columns: 1, rows: 1, channel });
    });
    let Ok(Outcome::Deadlock { report, .. }) = outcome else { panic!("{outcome:?}") };
    let text = report.to_string();
    let order: Vec<&str> = text.split("\n  ").map(|line| line.split_once(" waits").unwrap().0).collect();
    assert_eq!(
        order,
        [
            "operation 0 of the instruction stream",
            "MM2S 0 of tile (1, 1), BD 0,",
            "slave port Dma(0) of tile (1, 1), with 6 words,",
            "slave port South(5) of tile (1, 2), with 6 words,",
            "core (1, 2) at 0x4",
            "core (0, 2) at 0x0",
        ]
    );
}

#[test]
fn a_core_that_never_ends_is_stopped() {
    let mut rig = rig();
    rig.program(CORE, "nop\nagain: j #again\nnop\nnop\nnop\nnop\nnop");
    rig.load().unwrap();
    rig.array.set_cycle_limit(600);
    let error = rig.array.settle(&mut rig.host).unwrap_err();
    let ArrayError::Timeout { cycles: 600, ref report } = error else { panic!("{error}") };
    assert_eq!(report.waiters.len(), 1);
    let text = explained(error.to_string());
    let (front, back) = text.split_at("not at an end after 600 cycles: core (1, 2) at 0x".len());
    assert_eq!(front, "not at an end after 600 cycles: core (1, 2) at 0x");
    // Where in the loop it is does not matter.
    assert!(back.ends_with(" runs") && back.len() <= "10 runs".len(), "{text}");
}

#[test]
fn channels_that_never_end_are_stopped() {
    let mut rig = rig();
    // A chain that closes on itself, in a circle that swallows everything.
    rig.mem_bd(MEM, 0, MemTileBd { use_next: true, next: 0, ..mem_linear(4) });
    rig.mem_bd(MEM, 1, MemTileBd { use_next: true, next: 1, ..mem_linear(4) });
    rig.circuit(MEM, Port::Dma(0), Port::Dma(0));
    rig.start_once(MEM, MemoryToStream, 0, 0);
    rig.start_once(MEM, StreamToMemory, 0, 1);
    assert!(error(rig).starts_with("not at an end after 100000 cycles: S2MM 0 of tile (1, 1), BD 1, waits for "));
}

#[test]
fn wild_addresses_and_locks_name_who_uses_them() {
    let core_bd = |bd: CoreBd| {
        let mut rig = rig();
        rig.core_bd(CORE, 9, CoreBd { valid: true, ..bd });
        rig.start_once(CORE, MemoryToStream, 1, 9);
        error(rig)
    };
    assert_eq!(
        core_bd(CoreBd { address: 0x3ffe, length: 8, ..CoreBd::default() }),
        "MM2S 1 of tile (1, 2), BD 9: there is no memory at 0x10000"
    );
    let mem_bd = |at: At, channel: u8, bd: MemTileBd| {
        let mut rig = rig();
        rig.mem_bd(at, 2, MemTileBd { valid: true, ..bd });
        rig.start_once(at, MemoryToStream, channel, 2);
        error(rig)
    };
    // West of the first column; east of the last; any neighbour from the last two channels.
    assert_eq!(
        mem_bd((0, 1), 0, MemTileBd { length: 1, ..MemTileBd::default() }),
        "MM2S 0 of tile (0, 1), BD 2: there is no memory at 0x0"
    );
    assert_eq!(
        mem_bd((2, 1), 2, MemTileBd { address: 0x4_0010, length: 1, ..MemTileBd::default() }),
        "MM2S 2 of tile (2, 1), BD 2: there is no memory at 0x100040"
    );
    assert_eq!(
        mem_bd(MEM, 4, MemTileBd { address: 0x4_0010, length: 1, ..MemTileBd::default() }),
        "MM2S 4 of tile (1, 1), BD 2: there is no memory at 0x100040"
    );
    assert_eq!(
        mem_bd(MEM, 0, MemTileBd { acquire: true, acquire_lock: 200, acquire_value: -1, ..mem_linear(1) }),
        "MM2S 0 of tile (1, 1), BD 2: there is no lock 200"
    );
    let release = MemTileBd { release_lock: 64 + 3, release_value: -2, ..mem_linear(1) };
    assert_eq!(
        mem_bd(MEM, 0, release),
        "MM2S 0 of tile (1, 1), BD 2: releasing lock 67 makes it -2, outside of 0 to 63"
    );
    let mut host = rig();
    let buffer = host.buffer(&[0; 4]);
    host.shim_bd(SHIM, 3, buffer, ShimBd::linear(5, 2));
    host.shim_dma(1, MemoryToStream, 0);
    host.start_once(SHIM, MemoryToStream, 0, 3);
    let end = Host::address(buffer) + ARRAY_OFFSET + 16;
    assert_eq!(error(host), format!("MM2S 0 of tile (1, 0), BD 3: there is no memory at {end:#x}"));
}

#[test]
fn descriptors_that_cannot_run_say_why() {
    let run = |number: u8, channel: u8, bd: MemTileBd| {
        let mut rig = rig();
        rig.mem_bd(MEM, number, bd);
        rig.write(MEM, RegisterWrite::word(0xa_0630 + 8 * u32::from(channel), 1 << 4));
        rig.start_once(MEM, MemoryToStream, channel, number);
        error(rig)
    };
    let expected = |channel: u8, number: u8, what: &str| format!("MM2S {channel} of tile (1, 1), BD {number}: {what}");
    assert_eq!(run(3, 0, MemTileBd { valid: false, ..mem_linear(1) }), expected(0, 3, "the descriptor is not valid"));
    assert_eq!(run(3, 1, mem_linear(1)), expected(1, 3, "the channel cannot use this descriptor"));
    assert_eq!(run(30, 2, mem_linear(1)), expected(2, 30, "the channel cannot use this descriptor"));
    assert_eq!(run(3, 0, MemTileBd { compress: true, ..mem_linear(8) }), expected(0, 3, "compression is not modelled"));
    assert_eq!(run(3, 0, MemTileBd { enable_packet: true, ..mem_linear(0) }), expected(0, 3, "a packet of no words"));
    let mut rig = rig();
    rig.mem_bd(MEM, 0, MemTileBd { suppress_tlast: true, ..mem_linear(8) });
    rig.mem_bd(MEM, 1, mem_linear(8));
    rig.circuit(MEM, Port::Dma(0), Port::Dma(0));
    rig.write(MEM, RegisterWrite::word(0xa_0600, 1 << 16));
    rig.start_once(MEM, MemoryToStream, 0, 0);
    rig.start_once(MEM, StreamToMemory, 0, 1);
    assert_eq!(error(rig), "S2MM 0 of tile (1, 1), BD 1: no TLAST within the 8 words of the descriptor");
}

#[test]
fn cores_say_what_they_cannot_do() {
    let run = |text: &str| {
        let mut rig = rig();
        rig.program(CORE, text);
        error(rig)
    };
    // (1, 1), a mem tile, is in the south.
    assert_eq!(
        run("movxm p0, #0x40010\nlda r0, [p0, #0]\nnop\nnop\nnop\nnop\nnop\nnop\nnop"),
        "core (1, 2) at 0x6: no memory for 4 bytes at 0x40010"
    );
    assert_eq!(run("movx r0, #-1\nacq #3, r0"), "core (1, 2) at 0x4: there is no lock 3");
    assert_eq!(
        run("movx r0, #-1\nrel #48, r0"),
        "core (1, 2) at 0x4: releasing lock 48 makes it -1, outside of 0 to 63"
    );
    assert_eq!(run("j #0\nj #0\nnop\nnop\nnop\nnop"), "core (1, 2) at 0x6: a branch within the delay slots of another");
    let random =
        run("nop\n.word 0xffff\n.word 0xffff\n.word 0xffff\n.word 0xffff\n.word 0xffff\n.word 0xffff\n.word 0xffff");
    assert_eq!(random, "core (1, 2) at 0x2: no bundle format of aie2 fits the 14 bytes 0xffffffffffffffffffffffffffff");
}

#[test]
fn packets_that_cannot_be_taken_are_shown() {
    let send = |words: &[u32], configure: fn(&mut Rig)| {
        let mut rig = rig();
        rig.words(MEM, 0, words);
        rig.mem_bd(MEM, 0, mem_linear(words.len() as u32));
        rig.start_once(MEM, MemoryToStream, 0, 0);
        configure(&mut rig);
        error(rig)
    };
    let unmatched = send(&[7, 1], |rig| {
        rig.packet_slave(MEM, Port::Dma(0), &[PacketSlot { id: 8, mask: 0x1f, arbiter: 0, msel: 0 }])
    });
    assert_eq!(unmatched, "slave port 0 of tile (1, 1): no slot matches the packet header 0x00000007");
    let to_control: fn(&mut Rig) = |rig| rig.circuit(MEM, Port::Dma(0), Port::TileControl);
    let control = |words: &[u32], problem: &str| {
        assert_eq!(send(words, to_control), format!("control packet {words:08x?} of tile (1, 1): {problem}"));
    };
    control(&[1], "it has no control word");
    control(&[1, 0x8030_0000, 5], "its length is not that of its control word");
    control(&[1, 0x0030_0000, 5], "the parity of its control word is even");
    control(&[1, 0x8080_0000 | 1 << 8, 5], "what its operation does is not public");
    let long = send(&[1, 2, 3, 4, 5, 6, 7], to_control);
    assert!(long.ends_with("it has no end where its longest form ends"), "{long}");
}

#[test]
fn configurations_say_what_is_wrong() {
    let load = |write: &dyn Fn(&mut CdoBuilder)| {
        let mut rig = rig();
        let mut cdo = CdoBuilder::new();
        write(&mut cdo);
        let bytes = cdo.finish().unwrap();
        rig.array.load_cdo(&Cdo::parse(&bytes).unwrap(), &mut rig.host).unwrap_err()
    };
    let address = |column, row, offset| u64::from(aie_hal::format::tile_address(column, row, offset));
    let missing = load(&|cdo| _ = cdo.write(address(3, 2, 0), 1));
    assert_eq!(missing, LoadError::Array(ArrayError::Tile { column: 3, row: 2 }));
    assert_eq!(load(&|cdo| _ = cdo.write(1 << 40, 1)).to_string(), "0x10000000000 is no register address");
    let merge = load(&|cdo| _ = cdo.write(address(1, 2, 0x3_f808), 1));
    assert_eq!(
        explained(merge.to_string()),
        "register 0x3f808 of tile (1, 2): merging packets in a fixed order is not modelled"
    );
    let full = load(&|cdo| (0..5).for_each(|number| _ = cdo.write(address(1, 1, 0xa_0604), number)));
    assert_eq!(
        explained(full.to_string()),
        "the task queue of S2MM 0 of tile (1, 1) holds 4 tasks that have not ended: a fifth push, of BD 4, is lost"
    );
    let lock = load(&|cdo| _ = cdo.write(address(1, 1, 0xc_0030), 74));
    assert_eq!(
        explained(lock.to_string()),
        "setting lock 3 of tile (1, 1) to 74, outside of 0 to 63: silicon keeps its low six bits"
    );
}

/// Bit 12 of its status, as the register reference has it.
#[test]
fn a_core_that_waits_to_send_says_so() {
    let mut rig = rig();
    rig.program(CORE, &format!("movx r1, #5\n{}done", "mov ms, r1\n".repeat(40)));
    rig.circuit(CORE, Port::Core, Port::Fifo);
    rig.run().unwrap();
    // Enabled, and nothing else.
    assert_eq!(rig.read(CORE, 0x3_2004, 1), [1 << 12 | 1]);
}

#[test]
fn words_that_go_round_in_a_circle_are_stopped() {
    let mut rig = rig();
    // Into the switch's own FIFO, which leads to itself.
    rig.program(CORE, "movx r1, #5\nmov ms, r1\nmov ms, r1\ndone");
    rig.circuit(CORE, Port::Core, Port::Fifo);
    rig.run().unwrap();
    rig.circuit(CORE, Port::Fifo, Port::Fifo);
    assert_eq!(
        error(rig),
        "not at an end after 100000 cycles: \
         slave port Fifo of tile (1, 2), with 2 words, is not waiting"
    );
}
