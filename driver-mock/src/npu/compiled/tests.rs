use super::*;
use crate::npu::SimulatedNpu;
use aie_device_memory::Region;
use aie_hal::ArchRegistry;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{Header, Instruction, InstructionWriter, Transfer};
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::{PacketSlot, Port, StreamSwitch};
use aie_hal::format::{pdi, shim_mux, tile_address};
use rstest::rstest;

/// As if each range was looked at.
#[test]
fn addresses_are_in_one_of_the_ranges() {
    let ranges = [40..50, 10..20, 12..30, 15..18, 30..35, 60..60];
    let index = Ranges::new(&ranges);
    for start in 0..70 {
        for end in start..70 {
            let expected = ranges.iter().any(|range| range.start <= start && end <= range.end);
            assert_eq!(index.have(start, end), expected, "{start}..{end}");
        }
    }
    assert!(!Ranges::new(&[]).have(0, 0));
}

/// The value of lock 0 of a core.
const LOCK: u32 = 0x1_f000;

/// A kernel that completes once after its PDI was loaded: it waits for the value that the PDI gave a lock, and changes it.
fn once(arch: &Arch) -> KernelArtifact {
    let lock = tile_address(0, 2, LOCK);
    let mut cdo = CdoBuilder::new();
    cdo.write(lock.into(), 5);
    let mut stream = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    stream.push(&Instruction::MaskPoll { address: lock.into(), value: 5, mask: u32::MAX });
    stream.push(&Instruction::Write { address: lock.into(), value: 6 });
    let instructions = stream.finish().unwrap();
    KernelArtifact::new("once", &*arch.name, arch.dev_gen, pdi::write(&cdo).unwrap(), instructions).unwrap()
}

#[test]
fn the_first_word_of_a_mem_tile_is_lost_between_dispatches() {
    let arch = ArchRegistry::builtin().get("aie2p").unwrap();
    let context = SimulatedNpu::new(Arc::clone(&arch), 1 << 20).create_context(1).unwrap();
    let word = |offset| u64::from(tile_address(0, 1, offset));
    let mut cdo = CdoBuilder::new();
    for offset in 0..8 {
        cdo.write(word(4 * offset), 7);
    }
    let completes = |offset, expected| {
        let mut stream = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
        stream.push(&Instruction::MaskPoll { address: word(offset), value: expected, mask: u32::MAX });
        stream.finish().unwrap()
    };
    let pdi = pdi::write(&cdo).unwrap();
    let kernel = KernelArtifact::new("kept", &*arch.name, arch.dev_gen, pdi, completes(0, 7)).unwrap();
    let mut array = CompiledArray::new(arch);
    let place = PdiPlace { context, address: 0 };
    let mut run = |stream: &[u8]| array.run(place, &kernel, stream, &[], None).map(|_| ());
    assert_eq!(run(kernel.instructions()), Ok(()));
    assert_eq!(run(&completes(0, WRITTEN_BETWEEN)), Ok(()));
    assert_eq!(run(&completes(4, 7)), Ok(()));
}

/// A dispatch changes a word that the PDI writes and one that it does not. The next one finds neither of them when the context has lost
/// the array in between.
#[rstest]
#[case::never(None, [true, false])]
#[case::at_random(Some(7), [true, true])]
fn an_array_is_loaded_again_at_random(#[case] reloads: Option<u64>, #[case] expected: [bool; 2]) {
    let arch = ArchRegistry::builtin().get("aie2").unwrap();
    let place =
        PdiPlace { context: SimulatedNpu::new(Arc::clone(&arch), 1 << 20).create_context(1).unwrap(), address: 0 };
    let word = |offset| u64::from(tile_address(0, 2, offset));
    let header = arch.stream_header(1);
    let stream = |is_first: bool, value: u32| {
        let mut stream = InstructionWriter::new(header);
        for (offset, value) in [(0x100, value), (0x200, !value)] {
            match is_first {
                true => stream.push(&Instruction::Write { address: word(offset), value }),
                false => stream.push(&Instruction::MaskPoll { address: word(offset), value, mask: u32::MAX }),
            };
        }
        stream.finish().unwrap()
    };
    let mut cdo = CdoBuilder::new();
    cdo.write(word(0x100), 7);
    let kernel = KernelArtifact::new("kept", &*arch.name, arch.dev_gen, pdi::write(&cdo).unwrap(), stream(true, 1));
    let (kernel, mut array) = (kernel.unwrap(), CompiledArray::new(arch));
    array.set_order(None, 0, reloads);
    // Whether both words were ever there, and whether they were ever lost.
    let mut seen = [false; 2];
    for value in 0..32 {
        let mut run = |is_first| array.run(place, &kernel, &stream(is_first, value), &[], None).is_ok();
        assert!(run(true));
        seen[usize::from(!run(false))] = true;
    }
    assert_eq!(seen, expected);
}

/// A kernel that copies its first two arguments to the same words of the third one, on two channels, and waits for both at the end or
/// for one before the other begins.
fn racing(arch: &Arch, in_turn: bool) -> KernelArtifact {
    let mut cdo = CdoBuilder::new();
    let switch = StreamSwitch(TileKind::Shim);
    let mut writes = Vec::new();
    for (channel, slave) in [(0, Port::South(3)), (1, Port::South(7))] {
        writes.extend(
            [Direction::MemoryToStream, Direction::StreamToMemory]
                .map(|direction| shim_mux::connect(direction, channel).unwrap()),
        );
        writes.extend(switch.circuit(slave, Port::South(2 + channel)).unwrap());
    }
    // What a completion token takes to the firmware.
    writes.extend(switch.slot(Port::TileControl, 0, PacketSlot { id: 15, mask: 31, arbiter: 5, msel: 3 }));
    writes.extend(switch.packet_slave(Port::TileControl));
    writes.extend(switch.packet_master(Port::South(0), 5, 8, false));
    for write in writes {
        cdo.mask_write(tile_address(0, 0, write.offset).into(), write.mask, write.value);
    }
    let mut stream = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    let transfers: Vec<[Transfer; 2]> = (0..2)
        .map(|channel: u8| {
            [Direction::MemoryToStream, Direction::StreamToMemory].map(|direction| {
                let is_output = direction == Direction::StreamToMemory;
                Transfer {
                    column: 0,
                    direction,
                    channel,
                    descriptor: 2 * channel + u8::from(is_output),
                    shape: ShimBd::linear(64, 2),
                    argument: if is_output { 2 } else { channel.into() },
                    offset: 0,
                    repeat: 0,
                    token: is_output,
                }
            })
        })
        .collect();
    for pair in &transfers {
        for transfer in pair {
            stream.transfer(transfer).unwrap();
        }
        if in_turn {
            stream.wait(&pair[1]);
        }
    }
    for pair in transfers.iter().filter(|_| !in_turn) {
        stream.wait(&pair[1]);
    }
    let (pdi, instructions) = (pdi::write(&cdo).unwrap(), stream.finish().unwrap());
    KernelArtifact::new("racing", &*arch.name, arch.dev_gen, pdi, instructions).unwrap()
}

#[rstest]
#[case::a_race(false)]
#[case::no_race(true)]
fn a_dispatch_that_depends_on_the_order_of_events_fails(#[case] in_turn: bool) {
    let arch = ArchRegistry::builtin().get("aie2").unwrap();
    let place =
        PdiPlace { context: SimulatedNpu::new(Arc::clone(&arch), 1 << 20).create_context(1).unwrap(), address: 0 };
    let kernel = racing(&arch, in_turn);
    let memory = [1, 2, 3].map(|byte| {
        let memory = Region::zeroed(256, 4096).unwrap();
        memory.writable(0, 256).unwrap().fill(&[byte]);
        memory
    });
    let spans: Vec<Span<'_>> = memory.iter().map(|memory| memory.span(0, 256).unwrap()).collect();
    for others in [0, 32] {
        let mut array = CompiledArray::new(Arc::clone(&arch));
        array.set_order(None, others, None);
        let ran = array.run(place, &kernel, kernel.instructions(), &spans, None).map(|_| ());
        if in_turn || others == 0 {
            assert_eq!(ran, Ok(()));
        } else {
            let error = ran.unwrap_err();
            assert!(error.starts_with("it depends on the order of events: in that of seed "), "{error}");
            assert!(error.ends_with(" of argument 2 is another one"), "{error}");
        }
    }
}

#[rstest]
#[case::stays_in_its_context(0, 0, false)]
#[case::is_lost_at_a_change_of_context(1, 0, true)]
#[case::is_replaced_by_a_pdi_at_another_address(0, 0x8000, true)]
fn the_state_of_the_array(#[case] context: usize, #[case] address: u64, #[case] is_loaded: bool) {
    let arch = ArchRegistry::builtin().get("aie2").unwrap();
    let npu = SimulatedNpu::new(Arc::clone(&arch), 1 << 20);
    let contexts = [(); 2].map(|()| npu.create_context(1).unwrap());
    let (kernel, mut array) = (once(&arch), CompiledArray::new(arch));
    let mut run = |context: usize, address| {
        let place = PdiPlace { context: contexts[context], address };
        array.run(place, &kernel, kernel.instructions(), &[], None).is_ok()
    };
    assert!(run(0, 0));
    assert_eq!(run(context, address), is_loaded);
}
