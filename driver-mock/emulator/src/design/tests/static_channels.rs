//! Designs whose channels the configuration starts, and streams that do what they may, or more.

use super::*;
use aie_hal::format::bd::{CoreBd, MemTileBd, ShimBd};
use aie_hal::format::dma_channel::ChannelControl;
use aie_hal::format::instructions::{Header, Instruction, InstructionWriter, Transfer};
use rstest::rstest;

const IN: Direction = Direction::MemoryToStream;
const OUT: Direction = Direction::StreamToMemory;
const MEM: (u8, u8) = (0, 1);
const CORE: (u8, u8) = (0, 2);

/// A ring of 64 words for each of its descriptors, between two locks.
struct Ring {
    tile: (u8, u8),
    direction: Direction,
    channel: u8,
    ids: std::ops::Range<u8>,
    acquire: (u8, i8),
    release: (u8, i8),
    words: u32,
}

impl Ring {
    fn mem(direction: Direction, channel: u8, ids: std::ops::Range<u8>, locks: [u8; 2]) -> Self {
        let [acquire, release] = locks.map(|lock| (lock, 1));
        Self { tile: MEM, direction, channel, ids, acquire, release, words: 64 }
    }

    fn add(&self, maker: &mut Maker) {
        for id in self.ids.clone() {
            let next = if id + 1 == self.ids.end { self.ids.start } else { id + 1 };
            let (own, offset) = if self.tile == MEM { (64, MemTileBd::OWN_MEMORY) } else { (0, 0x100) };
            let bd = MemTileBd {
                length: self.words,
                address: offset + 0x40 * u32::from(id),
                acquire: self.acquire.1 != 0,
                acquire_lock: own + u32::from(self.acquire.0),
                acquire_value: -self.acquire.1,
                release_lock: own + u32::from(self.release.0),
                release_value: self.release.1,
                use_next: true,
                next: next.into(),
                valid: true,
                ..MemTileBd::default()
            };
            if self.tile == MEM {
                maker.block(MEM, MemTileBd::register(id), &bd.encode().unwrap());
                continue;
            }
            let MemTileBd { length, address, acquire, acquire_lock, acquire_value, .. } = bd;
            let MemTileBd { release_lock, release_value, use_next, next, valid, .. } = bd;
            let bd =
                CoreBd { length, address, acquire, acquire_lock, acquire_value, release_lock, ..CoreBd::default() };
            let bd = CoreBd { release_value, use_next, next, valid, ..bd };
            maker.block(self.tile, CoreBd::register(id), &bd.encode().unwrap());
        }
        let task = DmaTask { descriptor: self.ids.start, repeat: 0, token: false };
        maker.start(self.tile, self.direction, self.channel, task);
    }
}

/// Two ways through the mem tile, each with two buffers: channels 0 of the shim, and channels 1.
fn two_ways() -> [Ring; 4] {
    [
        Ring::mem(OUT, 0, 0..2, [0, 1]),
        Ring::mem(IN, 0, 2..4, [1, 0]),
        Ring::mem(OUT, 1, 24..26, [2, 3]),
        Ring::mem(IN, 1, 26..28, [3, 2]),
    ]
}

fn design(rings: &[Ring], stream: &InstructionWriter) -> Design {
    let mut maker = Maker::default();
    for channel in 0..2 {
        maker.connect(0, IN, channel).connect(0, OUT, channel);
        let (slave, master) = (Port::South(3 + 4 * channel), Port::South(2 + channel));
        maker.circuit((0, 0), slave, Port::North(channel)).circuit((0, 0), Port::North(channel), master);
        maker.circuit(MEM, Port::South(channel), Port::Dma(channel));
        maker.circuit(MEM, Port::Dma(channel), Port::South(channel));
        maker.lock(MEM, 2 * channel, 2);
    }
    rings.iter().for_each(|ring| ring.add(&mut maker));
    maker.read(Some(&stream.finish().unwrap()))
}

/// 128 words: a turn of the rings of either way.
fn transfer(direction: Direction, channel: u8, descriptor: u8) -> Transfer {
    Transfer {
        column: 0,
        direction,
        channel,
        descriptor,
        shape: ShimBd::linear(128, 2),
        argument: 0,
        offset: 0,
        repeat: 0,
        token: direction == OUT,
    }
}

fn texts(problems: &[Problem]) -> Vec<&str> {
    problems.iter().map(|problem| problem.what.as_str()).collect()
}

/// Six operands and results through each way. `waits` says which of the two results is waited for before the next pair.
fn pairs(waits: [bool; 2], result_first: bool) -> InstructionWriter {
    let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    for _ in 0..3 {
        for channel in 0..2 {
            let [operand, result] = [transfer(IN, channel, channel), transfer(OUT, channel, 2 + channel)];
            for moved in if result_first { [result, operand] } else { [operand, result] } {
                writer.transfer(&moved).unwrap();
            }
        }
        for (channel, _) in (0..).zip(waits).filter(|(_, waits)| *waits) {
            writer.wait(&transfer(OUT, channel, 0));
        }
    }
    for (channel, _) in (0..).zip(waits).filter(|(_, waits)| !*waits) {
        for _ in 0..3 {
            writer.wait(&transfer(OUT, channel, 0));
        }
    }
    writer
}

/// A token of a result ends the operands that it is made of, and no others.
#[rstest]
#[case::all_results([true, true], false, &[])]
#[case::one_result([true, false], false, &[
    "operation 22 writes BD 1 while a task with it may not have ended",
    "operation 25 writes BD 3 while a task with it may not have ended",
])]
#[case::operands_behind_results([true, true], true, &[
    "operation 20 writes BD 0 while a task with it may not have ended",
    "operation 27 writes BD 1 while a task with it may not have ended",
])]
fn results_end_what_they_are_made_of(#[case] waits: [bool; 2], #[case] result_first: bool, #[case] expected: &[&str]) {
    let found = design(&two_ways(), &pairs(waits, result_first));
    assert_eq!((texts(&found.problems), texts(&found.doubts)), (expected.to_vec(), vec![]));
}

fn push(channel: u8, descriptor: u8) -> Instruction<'static> {
    let channel = DmaChannel::new(TileKind::Mem, OUT, channel).unwrap();
    let RegisterWrite { offset, value, .. } = channel.start(DmaTask { descriptor, repeat: 0, token: false }).unwrap();
    Instruction::Write { address: tile_address(0, 1, offset).into(), value }
}

fn control(reset: bool) -> Instruction<'static> {
    let channel = DmaChannel::new(TileKind::Mem, OUT, 0).unwrap();
    let value = ChannelControl::default().encode() | if reset { 2 } else { 0 };
    Instruction::MaskWrite { address: tile_address(0, 1, channel.control()).into(), value, mask: 2 }
}

const BOTH: &str = "which belongs to a channel that the configuration starts: a channel is static or pushed";

#[rstest]
#[case::a_task(&[push(0, 0)], "pushes a task of S2MM 0", true)]
#[case::a_control_register(&[control(false)], "writes the control register of S2MM 0", true)]
#[case::a_lock(&[Instruction::Write { address: 0x10_0000 + 0xC_0030, value: 2 }], "sets lock 3", true)]
#[case::a_descriptor(&[Instruction::Write { address: 0x10_0000 + 0xA_0034, value: 2 }], "writes BD 1", true)]
#[case::a_repair(&[control(true), control(false), push(0, 0)], "pushes a task of S2MM 0", false)]
#[case::another_channel(&[push(2, 4)], "", true)]
#[case::another_lock(&[Instruction::Write { address: 0x10_0000 + 0xC_0040, value: 2 }], "", true)]
fn streams_leave_static_channels_alone(
    #[case] operations: &[Instruction<'static>],
    #[case] expected: &str,
    #[case] is_error: bool,
) {
    let mut stream = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    for operation in operations {
        stream.push(operation);
    }
    let found = design(&two_ways(), &stream);
    let both =
        |problems: &[Problem]| problems.iter().filter(|found| found.what.ends_with(BOTH)).cloned().collect::<Vec<_>>();
    let (problems, doubts) = (both(&found.problems), both(&found.doubts));
    if expected.is_empty() {
        assert_eq!((problems, doubts), (vec![], vec![]));
        return;
    }
    let (list, other) = if is_error { (problems, doubts) } else { (doubts, problems) };
    assert!(list.iter().any(|found| found.what.contains(expected) && found.tile == Some(position(0, 1))), "{list:?}");
    assert_eq!(other, []);
}

#[rstest]
#[case::both_locks(1, 1, 64, "")]
#[case::no_acquire(0, 1, 64, "acquires no lock")]
#[case::no_release(1, 0, 64, "releases no lock")]
#[case::no_lock(0, 0, 64, "uses no lock")]
#[case::no_words(1, 1, 0, "moves nothing")]
fn endless_chains_hand_buffers_over(
    #[case] acquire: i8,
    #[case] release: i8,
    #[case] words: u32,
    #[case] expected: &str,
) {
    let ring = Ring { acquire: (0, acquire), release: (1, release), words, ..Ring::mem(OUT, 0, 0..2, [0, 1]) };
    let found =
        design(&[ring], &InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 }));
    let texts = texts(&found.doubts);
    let missing: Vec<String> = (0..2)
        .filter(|_| !expected.is_empty())
        .map(|id| format!("S2MM 0 runs BD {id} in an endless chain, and it {expected}"))
        .collect();
    assert_eq!(texts, missing);
}

/// What a shim sends to a core by way of the mem tile: rings of so many buffers there, and in the core.
fn chain(sent: u8, release: i8, cores: u8, words: u32) -> Vec<String> {
    let mut maker = Maker::default();
    maker.connect(0, IN, 0).circuit((0, 0), Port::South(3), Port::North(0));
    maker.circuit(MEM, Port::South(0), Port::Dma(0)).circuit(MEM, Port::Dma(0), Port::North(0));
    maker.circuit(CORE, Port::South(0), Port::Dma(0));
    let filled = Ring::mem(OUT, 0, 0..2, [0, 1]);
    Ring { release: (1, release), ..filled }.add(&mut maker);
    Ring::mem(IN, 0, 2..2 + sent, [1, 0]).add(&mut maker);
    Ring { tile: CORE, ..Ring::mem(OUT, 0, 0..cores, [0, 1]) }.add(&mut maker);
    let mut stream = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    let operand = Transfer { shape: ShimBd::linear(words, 2), token: true, ..transfer(IN, 0, 0) };
    stream.transfer(&operand).unwrap().wait(&operand);
    let design = maker.read(Some(&stream.finish().unwrap()));
    assert_eq!(texts(&design.problems), [""; 0]);
    design.doubts.into_iter().map(|doubt| doubt.what).collect()
}

#[rstest]
#[case::whole_turns(2, 1, 2, 256, "")]
#[case::more_buffers_in_turn(4, 1, 4, 256, "")]
#[case::a_ring_behind_a_lock(
    3,
    1,
    2,
    256,
    "S2MM 0 releases lock 1 of (0,1) by 4 in a dispatch; MM2S 0 of mem (0,1) acquires it by 3 in a turn of 192 words, which would end \
     within a turn: the lock does not end as it began"
)]
#[case::a_core_behind_it(
    2,
    1,
    3,
    256,
    "S2MM 0 gets 256 words from mem (0,1) MM2S 0 in a dispatch, which is not a multiple of the 192 words of its ring of 3 BDs: it ends in \
     front of BD 1, number 2 of them, and the next dispatch begins there unless the configuration is loaded again"
)]
#[case::a_lock_that_gains(
    2,
    2,
    2,
    128,
    "MM2S 0 acquires lock 1 of (0,1) by 2 in a dispatch; S2MM 0 of mem (0,1) releases it by 4 in a turn of 128 words, which moves 128 words: \
     the lock does not end as it began"
)]
fn rings_are_followed_through_locks(
    #[case] sent: u8,
    #[case] release: i8,
    #[case] cores: u8,
    #[case] words: u32,
    #[case] expected: &str,
) {
    let found = chain(sent, release, cores, words);
    match expected {
        "" => assert_eq!(found, [""; 0]),
        _ => assert!(found.iter().any(|what| what == expected), "{found:#?}"),
    }
}
