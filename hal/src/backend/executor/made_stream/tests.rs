use super::*;
use crate::artifact::example;
use crate::format::bd::ShimBd;
use crate::format::cdo::CdoBuilder;
use crate::format::dma_channel::Direction;
use crate::format::extent::Traffic;
use crate::format::instructions::{Header, InstructionWriter, Transfer};
use crate::format::pdi;
use rstest::rstest;
use std::iter;

/// A kernel that moves `from` words of argument 0 from byte 64 on to `to` words of argument `target` from byte 256 on.
fn moving(from: u32, to: u32, target: u16) -> KernelArtifact {
    let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
    let mut transfer = |direction, argument, offset, words| {
        let (shape, token) = (ShimBd::linear(words, 3), direction == Direction::StreamToMemory);
        let descriptor = argument as u8;
        let transfer =
            Transfer { column: 0, direction, channel: 0, descriptor, shape, argument, offset, repeat: 0, token };
        writer.transfer(&transfer).unwrap();
    };
    transfer(Direction::MemoryToStream, 0, 64, from);
    transfer(Direction::StreamToMemory, target, 256, to);
    let pdi = pdi::write(&CdoBuilder::new()).unwrap();
    KernelArtifact::new("rows", "aie2", 3, pdi, writer.finish().unwrap()).unwrap()
}

/// Of a cache of 4,096 bytes the written row counts, and not the cache.
#[test]
fn what_instructions_name_is_what_is_touched() {
    let arguments = [0x1000..0x1100, 0x8000..0x9000, 0x8000..0x9000];
    let found = touched(&moving(32, 32, 2), &arguments, 1).unwrap().unwrap();
    let writes = iter::once(0x8100..0x8180).collect();
    assert_eq!(found, Touched { reads: arguments[..2].to_vec(), writes, traffic: Traffic { bytes: 256, pieces: 2 } });
}

#[rstest]
#[case::reads_too_far(moving(49, 16, 2), "it reads up to byte 260 of argument 0, which has 256")]
#[case::writes_too_far(moving(16, 961, 2), "it writes up to byte 4100 of argument 2, which has 4096")]
#[case::writes_an_input(moving(16, 16, 1), "it writes argument 1, which is an input")]
#[case::more_arguments(moving(16, 16, 3), "it uses 4 arguments, the dispatch has 3")]
fn a_stream_stays_in_its_arguments(#[case] kernel: KernelArtifact, #[case] expected: &str) {
    let arguments = [0x1000..0x1100, 0x8000..0x9000, 0x8000..0x9000];
    assert_eq!(touched(&kernel, &arguments, 1).unwrap_err(), expected);
}

#[test]
fn a_kernel_that_only_describes_itself_may_touch_everything() {
    assert_eq!(touched(&example("aie2", "add", [0, 1]), &[0..4, 8..12], 1).unwrap(), None);
}
