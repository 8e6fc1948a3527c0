//! A whole kernel: shim to mem tile to core and back.

use super::*;
use aie_hal::format::bd::{CoreBd, MemTileBd, ShimBd};
use aie_hal::format::instructions::{Header, InstructionWriter, Transfer as ShimTransfer};

const IN: Direction = Direction::MemoryToStream;
const OUT: Direction = Direction::StreamToMemory;

/// Argument 0 goes through the mem tile to the core, and argument 1 comes from the core. 64 words in rows of 16.
fn kernel() -> Maker {
    let (shim, mem, core) = ((0, 0), (0, 1), (0, 2));
    let mut maker = Maker::default();
    maker.connect(0, IN, 0).connect(0, OUT, 0);
    maker.circuit(shim, Port::South(3), Port::North(0)).circuit(shim, Port::North(2), Port::South(2));
    maker.circuit(mem, Port::South(0), Port::Dma(0)).circuit(mem, Port::Dma(0), Port::North(1));
    maker.circuit(mem, Port::North(2), Port::South(2));
    maker.circuit(core, Port::South(1), Port::Dma(0)).circuit(core, Port::Dma(1), Port::South(2));
    let own = 64;
    let filled = MemTileBd {
        length: 64,
        address: MemTileBd::OWN_MEMORY + 0x100,
        acquire: true,
        acquire_lock: own,
        acquire_value: -1,
        release_lock: own + 1,
        release_value: 1,
        use_next: true,
        next: 0,
        valid: true,
        ..MemTileBd::default()
    };
    let sent = MemTileBd {
        d0_wrap: 4,
        d1_step: 16,
        acquire_lock: own + 1,
        release_lock: own,
        next: 1,
        d0_zero_before: 2,
        length: 96,
        enable_packet: true,
        packet_id: 3,
        ..filled
    };
    maker.block(mem, MemTileBd::register(0), &filled.encode().unwrap());
    maker.block(mem, MemTileBd::register(1), &sent.encode().unwrap());
    maker.lock(mem, 0, 2).lock(mem, 1, 0);
    let task = |descriptor| DmaTask { descriptor, repeat: 0, token: false };
    maker.start(mem, OUT, 0, task(0)).start(mem, IN, 0, task(1));
    let input = CoreBd {
        length: 64,
        address: 0x40,
        acquire: true,
        acquire_lock: 0,
        acquire_value: -1,
        release_lock: 1,
        release_value: 1,
        use_next: true,
        next: 1,
        valid: true,
        ..CoreBd::default()
    };
    let output = CoreBd { address: 0x200, acquire_lock: 3, release_lock: 2, use_next: false, ..input };
    maker.block(core, CoreBd::register(0), &input.encode().unwrap());
    maker.block(core, CoreBd::register(1), &CoreBd { address: 0x80, next: 0, ..input }.encode().unwrap());
    maker.block(core, CoreBd::register(4), &output.encode().unwrap());
    maker.lock(core, 0, 2).lock(core, 2, 1);
    maker.start(core, OUT, 0, task(0)).start(core, IN, 1, DmaTask { descriptor: 4, repeat: 3, token: false });
    maker.block(core, 0x400, &[0, 0, 7, 0]);
    maker.program(core, "acq #49, r0\nacq #50, r1\nrel #48, r2\nrel #51, r3\nmovxm r4, #0x1234\ndone\n.align 16");
    maker
}

fn stream() -> Vec<u8> {
    let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    let input = ShimTransfer {
        column: 0,
        direction: IN,
        channel: 0,
        descriptor: 0,
        shape: ShimBd { d0_wrap: 16, d0_step: 1, d1_step: 32, ..ShimBd::linear(64, 2) },
        argument: 0,
        offset: 128,
        repeat: 0,
        token: false,
    };
    let output = ShimTransfer {
        direction: OUT,
        descriptor: 1,
        shape: ShimBd::linear(64, 2),
        argument: 1,
        offset: 0,
        repeat: 3,
        token: true,
        ..input
    };
    writer.transfer(&input).unwrap().transfer(&output).unwrap().wait(&output);
    writer.finish().unwrap()
}

#[test]
fn tiles_are_read_back() {
    let design = kernel().read(None);
    assert_eq!((design.columns, design.rows, design.tiles.len()), (1, 6, 3));
    assert_eq!(design.problems, []);
    let core = design.tile(0, 2).unwrap();
    let state = core.core.as_ref().unwrap();
    assert!(state.enabled && !state.in_reset && state.cascade.is_none());
    let program = state.program.as_ref().unwrap();
    let texts: Vec<&str> = program.lines.iter().filter_map(|line| line.text.as_deref()).collect();
    assert_eq!(texts[..2], ["acq #49, r0", "acq #50, r1"]);
    assert_eq!((program.undecoded, program.bytes % 16, program.lines[0].address), (0, 0, 0));
    assert_eq!(core.memory, [Region { start: 0x400, bytes: 16, nonzero_words: 1 }]);
    let chains: Vec<(Direction, &[u8], bool, u16)> = core
        .channels
        .iter()
        .map(|channel| {
            let task = &channel.tasks[0];
            (channel.id.direction, &task.chain[..], task.endless, task.runs)
        })
        .collect();
    assert_eq!(chains, [(OUT, &[0, 1][..], true, 1), (IN, &[4][..], false, 4)]);
    let mem = design.tile(0, 1).unwrap();
    let sent = mem.descriptor(1).unwrap();
    assert_eq!(sent.address, Address::Tile { owner: Owner::Own, byte: 0x400 });
    let of = |size, step, zeros_before| Dimension { size, step, zeros_before, zeros_after: 0 };
    // 96 words in rows of 2 zeros and 4 words.
    assert_eq!(sent.dimensions, [of(16, 16, 0), of(4, 1, 2)]);
    assert_eq!(sent.packet, Some(PacketHeader { id: 3, packet_type: 0 }));
    assert_eq!(sent.acquire, Some(LockUse { owner: Owner::Own, lock: 1, value: -1 }));
}

#[test]
fn locks_know_their_users() {
    let design = kernel().read(None);
    let core = design.tile(0, 2).unwrap();
    let core_user = User::Core { column: 0, row: 2 };
    let bd = |descriptor| User::Descriptor { column: 0, row: 2, descriptor };
    let expected = [(0, 2, vec![bd(0), bd(1)], vec![core_user]), (1, 0, vec![core_user], vec![bd(0), bd(1)])];
    let found: Vec<_> = core
        .locks
        .iter()
        .map(|lock| (lock.lock, lock.value, lock.acquired_by.clone(), lock.released_by.clone()))
        .collect();
    assert_eq!(found[..2], expected);
    assert_eq!(found[2], (2, 1, vec![core_user], vec![bd(4)]));
    assert_eq!(found[3], (3, 0, vec![bd(4)], vec![core_user]));
}

#[test]
fn the_text_has_a_section_for_each_tile() {
    let stream = stream();
    let text = kernel().read(Some(&stream)).to_string();
    for line in [
        "aie2 (XDNA): 1 column, 3 tiles, 1 program of",
        "  argument 0: reads bytes 128 to 576",
        "  argument 1: writes bytes 0 to 256",
        "  shim (0,0) MM2S 0 (argument 0) -> mem (0,1) S2MM 0\n",
        "  mem (0,1) MM2S 0               -> core (0,2) S2MM 0\n",
        "  core (0,2) MM2S 1              -> shim (0,0) S2MM 0 (argument 1) by mem (0,1)\n",
        "shim tile, column 0, row 0\n  connected     S2MM 0 at South 2 (argument 1)\n",
        "mem tile, column 0, row 1\n  locks          0 =  2  acquired by BD 0; released by BD 1\n",
        "  1  0x00400  96 words  [16 x 16, 4 x 1] zeros [0+0, 2+0]  acquires lock 1 >= 1, releases lock 0 +1  then BD 1, sends packet 3\n",
        "S2MM 0  runs BD 0, again and again\n",
        "core tile, column 0, row 2\n  core          enabled, program of",
        "  memory        0x00400 to 0x00410, 16 bytes, 1 word not zero\n",
        "MM2S 1  runs BD 4, 4 times\n",
        "  switch        DMA 1 -> South 2\n                South 1 -> DMA 0\n",
        "  code\n        0  ",
        "instruction stream: 8 operations, 2 arguments, for 1 column\n",
        "      0  shim (0,0) BD 0: 64 words, [4 x 32, 16 x 1]\n",
        "      1  shim (0,0) BD 0 address = argument 0 + 128\n",
        "      2  shim (0,0) MM2S 0 runs BD 0: 64 words at argument 0 + 128\n",
        "      5  shim (0,0) S2MM 0 tokens have packet id 15\n",
        "      6  shim (0,0) S2MM 0 runs BD 1, 4 times, then sends a token: 64 words at argument 1\n",
        "      7  wait for the token of shim (0,0) S2MM 0\n",
    ] {
        assert!(text.contains(line), "no line `{line}` in\n{text}");
    }
    assert!(!text.contains("problem"), "{text}");
}

#[test]
fn parts_can_be_shown() {
    let design = kernel().read(None);
    let one = Shown { design: &design, code: false, tiles: &[(0, 1)] }.to_string();
    assert!(one.starts_with("\nmem tile, column 0, row 1\n") && !one.contains("core tile"), "{one}");
    let code = |code| Shown { design: &design, code, tiles: &[] }.to_string().contains("movxm r4, #4660");
    assert!(code(true) && !code(false));
}

#[test]
fn equal_programs_are_listed_once() {
    let mut maker = Maker::default();
    maker.program((0, 2), "movxm r1, #77\ndone").program((0, 3), "movxm r1, #77\ndone").program((1, 2), "done");
    let text = maker.read(None).to_string();
    assert_eq!(text.matches("movxm r1, #77").count(), 1);
    assert!(text.contains("  code          the same as of core (0,2)\n"), "{text}");
}

#[test]
fn json_has_the_same() {
    let stream = stream();
    let design = kernel().read(Some(&stream));
    let json = serde_json::to_value(&design).unwrap();
    assert_eq!(json["tiles"][2]["kind"], "core");
    assert_eq!(
        json["tiles"][2]["descriptors"][0]["address"],
        serde_json::json!({"in": "tile", "owner": "own", "byte": 0x100})
    );
    assert_eq!(json["tiles"][2]["core"]["program"]["lines"][0]["text"], "acq #49, r0");
    assert_eq!(json["routes"][0]["from"]["direction"], "MM2S");
    assert_eq!(json["routes"][0]["hops"][0]["slave"], "South 3");
    assert_eq!(json["stream"]["steps"][6]["actions"][0]["task"]["runs"], 4);
    assert_eq!(json["stream"]["steps"][7]["actions"][0]["action"], "wait_token");
}

#[test]
fn neighbours_of_mem_tiles_are_named() {
    let mut maker = Maker::default();
    let bd = MemTileBd {
        length: 8,
        address: 2 * MemTileBd::OWN_MEMORY + 4,
        acquire: true,
        acquire_lock: 128 + 5,
        acquire_value: -2,
        release_lock: 6,
        release_value: 1,
        valid: true,
        ..MemTileBd::default()
    };
    maker.block((1, 1), MemTileBd::register(2), &bd.encode().unwrap()).lock((2, 1), 5, 4).lock((0, 1), 6, 1);
    let design = maker.read(None);
    let found = design.tile(1, 1).unwrap().descriptor(2).unwrap().clone();
    assert_eq!(found.address, Address::Tile { owner: Owner::East, byte: 16 });
    assert_eq!(found.acquire.map(|lock| (lock.owner, lock.lock)), Some((Owner::East, 5)));
    assert_eq!(found.release.map(|lock| (lock.owner, lock.lock)), Some((Owner::West, 6)));
    let user = User::Descriptor { column: 1, row: 1, descriptor: 2 };
    assert_eq!(design.tile(2, 1).unwrap().locks[0].acquired_by, [user]);
    assert_eq!(design.tile(0, 1).unwrap().locks[0].released_by, [user]);
    let text = design.to_string();
    assert!(text.contains("east 0x00010") && text.contains("acquires east lock 5 >= 2"), "{text}");
}
