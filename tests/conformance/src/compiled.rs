//! A kernel with machine code: its core adds a number to every 32-bit word.
//!
//! A shim DMA channel sends the source up the first column, a core works on it in blocks, and another channel brings the blocks
//! back. The core and its DMA hand two buffers to each other by locks and never end, so the same PDI serves any number of
//! dispatches and, as the extents are in the instruction stream, any number of blocks.

use aie_hal::format::bd::{CoreBd, ShimBd};
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::dma_channel::{Direction, DmaChannel, DmaTask};
use aie_hal::format::instructions::{AheadChannel, InstructionWriter, Transfer};
use aie_hal::format::lock::Lock;
use aie_hal::format::register::{RegisterWrite, TileKind};
use aie_hal::format::stream_switch::{Port, StreamSwitch};
use aie_hal::format::{core_control, pdi, shim_mux, tile_address};
use aie_hal::{Arch, HostFunctionError, KernelArtifact, StreamMaker};
use aie_isa::Isa;
use std::sync::Arc;

/// Words that the core takes at a time.
pub const BLOCK_WORDS: usize = 16;

/// Row of the core; below it a mem tile passes the streams on.
const CORE: u8 = 2;
const ROWS: [TileKind; 3] = [TileKind::Shim, TileKind::Mem, TileKind::Core];
/// Buffers in the core's data memory, in bytes.
const SOURCE: u32 = 0x400;
const RESULT: u32 = 0x800;
/// Program memory.
const PROGRAM: u32 = 0x2_0000;

/// A lock id of the core's own tile is 48 and more, its memory begins at 0x70000, and a branch has five delay slots. Results are
/// used no earlier than either generation has them, and requests to locks are four bundles apart.
const TEXT: &str = "
        movx r10, #-1
        movx r11, #1
        .align 16
block:  acq #49, r10
        nop
        nop
        nop
        acq #50, r10
        movxm p0, #0x70400
        movxm p1, #0x70800
        movx r2, #16
        nop
        .align 16
word:   lda r1, [p0], #4
        add r2, r2, #-1
        nop
        nop
        nop
        nop
        nop
        nop
        add r1, r1, #ADDEND
        nop
        st r1, [p1], #4
        jnz r2, #word
        nop
        nop
        nop
        nop
        nop
        nop
        nop
        rel #48, r11
        nop
        nop
        nop
        rel #51, r11
        j #block
        nop
        nop
        nop
        nop
        nop";

/// Ids of the core tile's locks: how many of each buffer are free, and how many are filled.
const SOURCE_FREE: u8 = 0;
const SOURCE_FILLED: u8 = 1;
const RESULT_FREE: u8 = 2;
const RESULT_FILLED: u8 = 3;

/// The instructions of a generation's cores, if there are tables of them.
pub fn isa(arch: &Arch) -> Option<&'static Isa> {
    arch.instruction_set.as_deref().and_then(Isa::for_arch)
}

/// The kernel that adds `addend`, below 64, to `blocks` times [`BLOCK_WORDS`] words: argument 0 is the source, argument 1 the result.
///
/// # Panics
/// When there are no instruction tables of the generation, or more blocks than one buffer descriptor has words for.
pub fn add(arch: &Arch, addend: u8, blocks: usize) -> KernelArtifact {
    let isa = isa(arch).unwrap_or_else(|| panic!("no instruction tables of `{}`", arch.name));
    let mut code = isa.assemble(&TEXT.replace("ADDEND", &addend.to_string())).expect("a program");
    code.resize(code.len().next_multiple_of(4), 0);
    let code: Vec<u32> = code.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();

    let mut cdo = CdoBuilder::new();
    cdo.nop(&[]);
    for tile in [Direction::MemoryToStream, Direction::StreamToMemory].map(|way| shim_mux::connect(way, 0)) {
        write(&mut cdo, 0, tile.expect("channel 0"));
    }
    let ports = [
        (Port::South(3), Port::North(0), Port::North(0), Port::South(2)),
        (Port::South(0), Port::North(0), Port::North(0), Port::South(0)),
        (Port::South(0), Port::Dma(0), Port::Dma(0), Port::South(0)),
    ];
    for (row, (up, above, down, below)) in (0..).zip(ports) {
        let switch = StreamSwitch(ROWS[usize::from(row)]);
        for (slave, master) in [(up, above), (down, below)] {
            for port in switch.circuit(slave, master).expect("ports of the tile") {
                write(&mut cdo, row, port);
            }
        }
    }
    for (id, value) in [(SOURCE_FREE, 1), (SOURCE_FILLED, 0), (RESULT_FREE, 1), (RESULT_FILLED, 0)] {
        write(&mut cdo, CORE, Lock::new(TileKind::Core, id).and_then(|lock| lock.set(value)).expect("a lock"));
    }
    let buffers = [
        (Direction::StreamToMemory, SOURCE, SOURCE_FREE, SOURCE_FILLED),
        (Direction::MemoryToStream, RESULT, RESULT_FILLED, RESULT_FREE),
    ];
    for (descriptor, (direction, address, acquired, released)) in (0..).zip(buffers) {
        let bd = CoreBd {
            length: BLOCK_WORDS as u32,
            address: address / 4,
            d0_step: 1,
            d1_step: 1,
            d2_step: 1,
            iteration_step: 1,
            acquire: true,
            acquire_lock: acquired.into(),
            acquire_value: -1,
            release_lock: released.into(),
            release_value: 1,
            use_next: true,
            next: descriptor.into(),
            valid: true,
            ..CoreBd::default()
        };
        let words = bd.encode().expect("fields that fit");
        cdo.dma_write(tile_address(0, CORE, CoreBd::register(descriptor)).into(), &words);
        let channel = DmaChannel::new(TileKind::Core, direction, 0).expect("channel 0");
        let task = DmaTask { descriptor, repeat: 0, token: false };
        write(&mut cdo, CORE, channel.start(task).expect("a task"));
    }
    cdo.dma_write(tile_address(0, CORE, PROGRAM).into(), &code);
    for control in [core_control::reset(true), core_control::reset(false), core_control::enable(true)] {
        write(&mut cdo, CORE, control);
    }
    let pdi = pdi::write(&cdo).expect("a short CDO");

    let mut stream = InstructionWriter::new(arch.stream_header(arch.array.columns));
    let shape = ShimBd::linear((blocks * BLOCK_WORDS) as u32, 2);
    for (argument, direction) in [(0, Direction::MemoryToStream), (1, Direction::StreamToMemory)] {
        let token = argument == 1;
        // Each channel has descriptors of its own.
        let descriptor = 8 * argument as u8;
        let transfer =
            Transfer { column: 0, direction, channel: 0, descriptor, shape, argument, offset: 0, repeat: 0, token };
        stream.transfer(&transfer).expect("a linear transfer");
        if token {
            stream.wait(&transfer);
        }
    }
    let (stream, name) = (stream.finish().expect("a short stream"), format!("add_{addend}_{blocks}"));
    KernelArtifact::new(name, arch.name.as_str(), arch.dev_gen, pdi, stream).expect("a valid kernel")
}

/// The channel that brings its source, whose tasks may run ahead: the core works on blocks as they come, and results wait for their task.
pub const AHEAD: AheadChannel =
    AheadChannel { column: 0, channel: 0, packet: None, first_descriptor: 0, descriptors: 4, results: 0 };

/// Gives the instruction stream that the first byte of argument 0 says, counted from 1.
#[derive(Debug)]
pub struct ByFirstByte(pub Vec<Vec<u8>>);

impl StreamMaker for ByFirstByte {
    fn reads(&self) -> &[usize] {
        &[0]
    }

    fn make(&self, arguments: &[&[u8]]) -> Result<Vec<u8>, HostFunctionError> {
        let stream = usize::from(arguments[0][0]).checked_sub(1).and_then(|index| self.0.get(index));
        let none = || HostFunctionError::Data { kernel: "rows".into(), reason: "no such number of blocks".into() };
        stream.cloned().ok_or_else(none)
    }
}

/// As [`add`], to as many blocks as the first byte of its source says, of which there are `most`.
///
/// # Panics
/// As [`add`].
pub fn add_as_many(arch: &Arch, addend: u8, most: usize) -> KernelArtifact {
    let streams = (1..=most).map(|blocks| add(arch, addend, blocks).instructions().to_vec()).collect();
    add(arch, addend, most).with_stream_maker(Arc::new(ByFirstByte(streams)))
}

fn write(cdo: &mut CdoBuilder, row: u8, write: RegisterWrite) {
    let address = tile_address(0, row, write.offset).into();
    match write.mask {
        u32::MAX => cdo.write(address, write.value),
        mask => cdo.mask_write(address, mask, write.value),
    };
}
