use super::*;
use crate::format::cdo::CdoBuilder;
use crate::format::instructions::{Header, InstructionWriter, Transfer};
use crate::format::tile_address;
use Direction::{MemoryToStream, StreamToMemory};
use rstest::rstest;

/// Task queue of MM2S channel 1 of column 2, which [`transfer`] uses.
const TASKS: u64 = 0x0401_D21C;

fn extents(cdo: &CdoBuilder, stream: &InstructionWriter) -> Result<Vec<ArgumentExtent>, ExtentError> {
    let (cdo, stream) = (cdo.finish().unwrap(), stream.finish().unwrap());
    argument_extents(&Cdo::parse(&cdo).unwrap(), &InstructionStream::parse(&stream).unwrap())
}

fn of(stream: &InstructionWriter) -> Result<Vec<ArgumentExtent>, ExtentError> {
    extents(&CdoBuilder::new(), stream)
}

fn stream() -> InstructionWriter {
    InstructionWriter::new(Header { generation: 4, rows: 6, columns: 4, mem_tile_rows: 1 })
}

fn transfer(direction: Direction, argument: u16, shape: ShimBd) -> Transfer {
    Transfer {
        column: 2,
        direction,
        channel: 1,
        descriptor: 3,
        shape,
        argument,
        offset: 0,
        repeat: 0,
        token: direction == StreamToMemory,
    }
}

fn linear(direction: Direction, argument: u16, words: u32) -> Transfer {
    transfer(direction, argument, ShimBd::linear(words, 3))
}

fn extent(range: Range<u64>, bytes: u64, pieces: u64) -> Option<Extent> {
    Some(Extent { range, moved: Traffic { bytes, pieces } })
}

/// Addresses in words that a descriptor touches in `runs` runs, by its counters.
fn walk(bd: &ShimBd, runs: u32) -> Vec<u64> {
    let mut touched = Vec::new();
    let mut iteration = u64::from(bd.iteration);
    for _ in 0..runs {
        let mut counters = [0u64; 3];
        for _ in 0..bd.length {
            let steps = [bd.d0_step, bd.d1_step, bd.d2_step];
            let offset: u64 = counters.iter().zip(steps).map(|(count, step)| count * u64::from(step)).sum();
            touched.push(iteration * u64::from(bd.iteration_step) + offset);
            counters[0] += 1;
            for (dimension, wrap) in [bd.d0_wrap, bd.d1_wrap].into_iter().enumerate() {
                if wrap == 0 || counters[dimension] < u64::from(wrap) {
                    break;
                }
                counters[dimension] = 0;
                counters[dimension + 1] += 1;
            }
        }
        iteration = (iteration + 1) % u64::from(bd.iteration_wrap);
    }
    touched
}

#[test]
fn any_shape_touches_what_its_counters_say() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut strided = 0;
    for _ in 0..20_000 {
        let mut below = |limit: usize| random.usize(..limit) as u32;
        let iteration_wrap = 1 + below(5);
        let shape = ShimBd {
            length: 1 + below(60),
            d0_wrap: below(6),
            d0_step: 1 + below(9),
            d1_wrap: below(5),
            d1_step: 1 + below(40),
            d2_step: 1 + below(40),
            iteration: below(iteration_wrap as usize),
            iteration_wrap,
            iteration_step: 1 + below(100),
            ..ShimBd::linear(0, 2)
        };
        let (offset, repeat) = (4 * u64::from(below(50)), below(8) as u8);
        let mut writer = stream();
        writer.transfer(&Transfer { offset, repeat, ..transfer(MemoryToStream, 0, shape) }).unwrap();
        let touched = walk(&shape, u32::from(repeat) + 1);
        let (first, last) = (*touched.iter().min().unwrap(), *touched.iter().max().unwrap());
        let range = offset + 4 * first..offset + 4 * (last + 1);
        let found = of(&writer).unwrap();
        let pieces = found[0].read.as_ref().unwrap().moved.pieces;
        let read = extent(range, 4 * touched.len() as u64, pieces);
        assert_eq!(found, [ArgumentExtent { read, written: None }], "{shape:?} {repeat}");
        // Steps that happen to go on where words end are not looked for.
        let gaps = touched.windows(2).filter(|words| words[1] != words[0] + 1).count() as u64;
        assert!((gaps + 1..=touched.len() as u64).contains(&pieces), "{shape:?} {repeat}: {pieces}, {gaps} gaps");
        strided += usize::from(last + 1 - first != touched.len() as u64);
    }
    assert!(strided > 10_000, "{strided}");
}

#[test]
fn transfers_of_an_argument_add_up() {
    let mut writer = stream();
    for (column, offset) in [(0, 1024), (1, 512), (2, 0)] {
        let part = Transfer { column, offset, ..linear(StreamToMemory, 2, 128) };
        writer.transfer(&part).unwrap().wait(&part);
    }
    writer.transfer(&linear(MemoryToStream, 0, 64)).unwrap();
    writer.transfer(&Transfer { offset: 256, ..linear(MemoryToStream, 2, 64) }).unwrap();
    let found = of(&writer).unwrap();
    assert_eq!(found[0], ArgumentExtent { read: extent(0..256, 256, 1), written: None });
    assert_eq!(found[1], ArgumentExtent::default());
    assert_eq!(found[2], ArgumentExtent { read: extent(256..512, 256, 1), written: extent(0..1536, 1536, 3) });
}

/// What is behind the innermost dimension without a gap belongs to its piece.
#[rstest]
#[case::one(ShimBd::linear(64, 3), 1)]
#[case::rows(ShimBd { d0_wrap: 8, d1_step: 20, ..ShimBd::linear(64, 3) }, 8)]
#[case::planes_of_whole_rows(ShimBd { d0_wrap: 8, d1_step: 8, d1_wrap: 4, d2_step: 50, ..ShimBd::linear(64, 3) }, 2)]
#[case::words(ShimBd { d0_step: 2, ..ShimBd::linear(64, 3) }, 64)]
#[case::a_row_that_is_cut(ShimBd { d0_wrap: 8, d1_step: 20, ..ShimBd::linear(60, 3) }, 8)]
fn pieces_are_counted(#[case] shape: ShimBd, #[case] pieces: u64) {
    let mut writer = stream();
    writer.transfer(&Transfer { repeat: 1, ..transfer(MemoryToStream, 0, shape) }).unwrap();
    let read = of(&writer).unwrap()[0].read.clone().unwrap();
    assert_eq!(read.moved, Traffic { bytes: 8 * u64::from(shape.length), pieces: 2 * pieces });
}

/// As mlir-aie writes a transfer with an outermost size of 4: an iteration per run, or none when its stride is 0.
#[rstest]
#[case::iterated(4, 100, 0..1456)]
#[case::repeated(1, 1, 0..256)]
fn repeats_go_through_iterations(#[case] wrap: u32, #[case] step: u32, #[case] range: Range<u64>) {
    let shape = ShimBd { iteration_wrap: wrap, iteration_step: step, ..ShimBd::linear(64, 3) };
    let mut writer = stream();
    writer.transfer(&Transfer { repeat: 3, ..transfer(MemoryToStream, 0, shape) }).unwrap();
    assert_eq!(of(&writer).unwrap()[0].read, extent(range, 4 * 256, 4));
}

#[test]
fn iterations_continue_from_task_to_task_until_the_descriptor_is_written_again() {
    let shape = ShimBd { iteration_wrap: 8, iteration_step: 64, ..ShimBd::linear(64, 3) };
    let once = transfer(MemoryToStream, 0, shape);
    let mut writer = stream();
    writer.transfer(&once).unwrap();
    let push =
        Instruction::Write { address: TASKS, value: DmaTask { descriptor: 3, repeat: 1, token: false }.encode() };
    writer.push(&push);
    assert_eq!(of(&writer).unwrap()[0].read, extent(0..768, 768, 3));
    writer.transfer(&once).unwrap();
    assert_eq!(of(&writer).unwrap()[0].read, extent(0..768, 1024, 4));
}

/// Two descriptors in one task, each with its own argument.
#[test]
fn chains_are_followed() {
    let chained = ShimBd { use_next: true, next: 9, ..ShimBd::linear(16, 3) };
    let second = transfer(MemoryToStream, 1, ShimBd::linear(32, 3));
    let mut writer = stream();
    let address = tile_address(2, 0, ShimBd::register(9));
    writer.block_write(address, &second.shape.encode().unwrap());
    writer.push(&Instruction::AddressPatch { register: u64::from(address) + 4, argument: 1, offset: 8 });
    writer.transfer(&Transfer { repeat: 1, ..transfer(MemoryToStream, 0, chained) }).unwrap();
    let found = of(&writer).unwrap();
    assert_eq!(found[0].read, extent(0..64, 128, 2));
    assert_eq!(found[1].read, extent(8..136, 256, 2));
}

#[test]
fn other_tiles_and_harmless_operations_do_not_matter() {
    let mut cdo = CdoBuilder::new();
    cdo.nop(&[]).dma_write(tile_address(2, 1, 0xA_0000).into(), &[7; 8]).dma_write(0x0022_0000, &[9; 300]);
    cdo.mask_write(tile_address(2, 0, 0x1_F000).into(), 0xC00, 0x400);
    let mut writer = stream();
    writer.block_write(tile_address(2, 2, 0x1_D000), &[1; 6]).custom(0x82, &[1]).custom(0x83, &[]).custom(0x84, &[0]);
    writer.push(&Instruction::Write { address: tile_address(2, 2, 0x1_D204).into(), value: 1 });
    writer.transfer(&linear(StreamToMemory, 0, 4)).unwrap();
    assert_eq!(extents(&cdo, &writer).unwrap()[0].written, extent(0..16, 16, 1));
}

#[test]
fn changes_of_single_words_count() {
    let mut writer = stream();
    let whole = linear(MemoryToStream, 0, 64);
    let register = tile_address(2, 0, ShimBd::register(3));
    writer.block_write(register, &whole.shape.encode().unwrap());
    writer.push(&Instruction::Write { address: register.into(), value: 10 });
    writer.push(&Instruction::AddressPatch { register: u64::from(register) + 4, argument: 0, offset: 0 });
    // The packet fields beside the high half of the address leave it alone.
    let fields = Instruction::MaskWrite { address: u64::from(register) + 8, value: 1 << 19, mask: 0x1F << 19 };
    writer.push(&fields);
    writer.push(&Instruction::MaskWrite { address: TASKS, value: 3, mask: u32::MAX });
    assert_eq!(of(&writer).unwrap()[0].read, extent(0..40, 40, 1));
}

/// What mlir-aie writes for several columns.
#[test]
fn an_address_that_is_the_offset_of_its_patch_does_not_count() {
    let mut stream = stream();
    let mut shape = ShimBd::linear(4, 3);
    shape.set_address(64);
    stream.transfer(&Transfer { offset: 64, ..transfer(MemoryToStream, 0, shape) }).unwrap();
    assert_eq!(of(&stream).unwrap(), [ArgumentExtent { read: extent(64..80, 16, 1), written: None }]);
}

#[test]
fn offsets_that_are_no_memory_do_not_wrap() {
    let mut writer = stream();
    writer.transfer(&Transfer { offset: u64::MAX, ..linear(MemoryToStream, 0, 64) }).unwrap();
    assert_eq!(of(&writer).unwrap()[0].read, extent(u64::MAX - 3..u64::MAX, 256, 1));
}

/// What makes the answer unknown, each in an otherwise plain stream.
#[rstest]
#[case::operation(|w: &mut InstructionWriter| { w.custom(0xC8, &[]); }, "operation 0xc8 may change what is moved")]
#[case::pdi(
    |w: &mut InstructionWriter| { w.push(&Instruction::LoadPdi { id: 1, size: 16, address: 0 }); },
    "an operation that loads another PDI may change what is moved"
)]
#[case::out_of_order(
    |w: &mut InstructionWriter| {
        w.push(&Instruction::MaskWrite { address: 0x0401_D208, value: 8, mask: 8 });
        w.transfer(&linear(StreamToMemory, 1, 4)).unwrap();
    },
    "column 2: the packets that arrive decide what S2MM channel 1 of the shim writes"
)]
#[case::tlast(
    |w: &mut InstructionWriter| {
        w.push(&Instruction::Write { address: 0x0401_D208, value: 1 << 16 });
        w.transfer(&linear(StreamToMemory, 1, 4)).unwrap();
    },
    "column 2: the packets that arrive decide what S2MM channel 1 of the shim writes"
)]
#[case::no_descriptor(
    |w: &mut InstructionWriter| { w.push(&Instruction::Write { address: 0x1_D214, value: 5 }); },
    "column 0: descriptor 5 of the shim is started although it is not valid"
)]
#[case::no_argument(
    |w: &mut InstructionWriter| {
        w.block_write(0x1_D000, &ShimBd::linear(4, 3).encode().unwrap());
        w.push(&Instruction::Write { address: 0x1_D214, value: 0 });
    },
    "column 0: descriptor 0 of the shim has an address of no argument"
)]
#[case::address_written_over(
    |w: &mut InstructionWriter| {
        w.transfer(&linear(MemoryToStream, 0, 4)).unwrap();
        w.push(&Instruction::Write { address: 0x0401_D064, value: 0x1000 });
        w.push(&Instruction::Write { address: 0x0401_D214, value: 3 });
    },
    "column 2: descriptor 3 of the shim has an address of no argument"
)]
#[case::two_addresses(
    |w: &mut InstructionWriter| {
        let mut shape = ShimBd::linear(4, 3);
        shape.set_address(64);
        w.transfer(&transfer(MemoryToStream, 0, shape)).unwrap();
    },
    "column 2: descriptor 3 of the shim is patched although it has an address"
)]
#[case::never_started(
    |w: &mut InstructionWriter| {
        w.push(&Instruction::AddressPatch { register: 0x0401_D024, argument: 0, offset: 0 });
    },
    "column 2: descriptor 1 of the shim has the address of an argument and is not started"
)]
#[case::other_register(
    |w: &mut InstructionWriter| {
        w.push(&Instruction::AddressPatch { register: 0x0401_D028, argument: 0, offset: 0 });
    },
    "an address in register 0x401d028 may change what is moved"
)]
#[case::endless(
    |w: &mut InstructionWriter| {
        let shape = ShimBd { use_next: true, next: 3, ..ShimBd::linear(4, 3) };
        w.transfer(&transfer(MemoryToStream, 0, shape)).unwrap();
    },
    "column 2: descriptor 3 of the shim starts a chain without an end"
)]
#[case::iteration(
    |w: &mut InstructionWriter| {
        let shape = ShimBd { iteration: 2, iteration_wrap: 2, ..ShimBd::linear(4, 3) };
        w.transfer(&transfer(MemoryToStream, 0, shape)).unwrap();
    },
    "column 2: descriptor 3 of the shim is at an iteration that it does not have"
)]
#[case::wide_address(
    |w: &mut InstructionWriter| { w.push(&Instruction::Write { address: 1 << 32, value: 5 }); },
    "a write to 0x100000000 may change what is moved"
)]
fn what_cannot_be_determined_says_why(#[case] add: fn(&mut InstructionWriter), #[case] expected: &str) {
    let mut writer = stream();
    writer.transfer(&linear(MemoryToStream, 0, 64)).unwrap();
    assert!(of(&writer).is_ok());
    add(&mut writer);
    assert_eq!(of(&writer).unwrap_err().to_string(), expected);
}

/// The CDO can set up a channel too.
#[test]
fn the_configuration_counts() {
    let mut writer = stream();
    writer.transfer(&linear(StreamToMemory, 0, 64)).unwrap();
    let mut cdo = CdoBuilder::new();
    cdo.mask_write(tile_address(2, 0, 0x1_D208).into(), 3 << 16, 1 << 16);
    let message = extents(&cdo, &writer).unwrap_err().to_string();
    assert_eq!(message, "column 2: the packets that arrive decide what S2MM channel 1 of the shim writes");
    let mut cdo = CdoBuilder::new();
    cdo.push(&CdoCommand::Delay { cycles: 1 });
    assert!(extents(&cdo, &writer).is_ok());
    let words = [0x0001_01FE, 5];
    let payload: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    let payload = crate::format::Words::new(&payload, 0);
    cdo.push(&CdoCommand::Other { opcode: 0x10C, payload });
    let message = extents(&cdo, &writer).unwrap_err().to_string();
    assert_eq!(message, "CDO command 0x10c may change what is moved");
}
