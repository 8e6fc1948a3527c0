//! What other readers of PDIs and streams say of kernels made here: the store's check of extents, and the reader of designs.

use super::testing::{adder, aie2};
use super::{Elements, ElementsColumn, Flow, Region, TileOrder};
use aie_emulator::design::{Design, Source};
use aie_hal::KernelArtifact;
use aie_ops::fit::{self, Fit};
use aie_ops::{DataType, Node, OpParams, Tensor, table};

/// An addition of f32 tensors whose elements are dealt over four columns.
fn addition(elements: u64) -> KernelArtifact {
    let design = Elements::new(&aie2(), 4, &adder(), &[]).unwrap();
    let part = elements / 4;
    let flow = |argument: u16, lane: u64| Flow {
        cut: (4 * part as u32, 2),
        tiles: vec![(part, 1)],
        regions: vec![Region::linear(argument, 4 * part * lane, 4 * part)],
    };
    let column = |index| ElementsColumn {
        parameters: vec![1, part as u32, 4 * part as u32],
        a: Some(flow(0, index)),
        b: Some(flow(1, index)),
        result: flow(2, index),
        order: TileOrder::default(),
    };
    let stream = design.dispatch(&[0, 1, 2, 3].map(column)).unwrap();
    KernelArtifact::new("add", "aie2", 3, design.configured().pdi().to_vec(), stream).unwrap()
}

fn node(elements: usize) -> Node {
    let tensor = || Tensor::contiguous(DataType::F32, [elements, 1, 1, 1]);
    Node::new("ADD", OpParams::default(), tensor(), vec![Some(tensor()), Some(tensor())])
}

#[test]
fn the_store_finds_what_a_kernel_touches() {
    let kernel = addition(1024);
    let extents = kernel.argument_extents().unwrap();
    let read = extents.iter().map(|extent| extent.read.clone().map(|extent| (extent.range, extent.moved.bytes)));
    assert_eq!(read.collect::<Vec<_>>(), [Some((0..4096, 4096)), Some((0..4096, 4096)), None]);
    assert_eq!(extents[2].written.clone().unwrap().range, 0..4096);
    let op = table::lookup("ADD").unwrap();
    assert_eq!(fit::check(op, &node(1024), &kernel), Ok(Fit::Fits));
    assert!(fit::check(op, &node(1028), &kernel).is_err());
    assert!(fit::check(op, &node(1020), &kernel).is_err());
}

#[test]
fn designs_are_read_without_problems() {
    let kernel = addition(1024);
    let source = Source::parse(kernel.pdi(), Some(kernel.instructions())).unwrap();
    let design = Design::read(&aie2(), &source).unwrap();
    assert_eq!((&design.problems[..], &design.doubts[..]), (&[][..], &[][..]));
    // In each column three streams and the tokens.
    assert_eq!((design.columns, design.routes.len()), (4, 16));
    let text = design.to_string();
    for line in [
        "core (0,2) BD 0 at 0x00000: 256 words, iterates 2 x 256, acquires lock 0 >= 1, releases lock 1 +1",
        "shim (3,0) S2MM 0 runs BD 0, then sends a token: 256 words at argument 2 + 3072",
    ] {
        assert!(text.contains(line), "{line}");
    }
    assert!(design.arguments_unknown.is_none() && design.arguments.len() == 3);
}
