use super::super::testing::{Device, aie2, arch};
use super::*;
use crate::array::Dimension;
use rstest::rstest;

fn region(argument: u16, offset: u64, dimensions: &[(u64, u64)]) -> Region {
    let dimensions = dimensions.iter().map(|(size, step)| Dimension::new(*size, *step)).collect();
    Region { argument, offset, dimensions }
}

/// Transposes 20 x 12 words and copies 5,000 words, one after the other, with no core.
#[rstest]
fn words_pass_without_a_program(#[values("aie2", "aie2p")] generation: &str) {
    let passes = Passes::new(&arch(generation), 2, None).unwrap();
    let mut device = Device::of(passes.configured());
    let numbers: Vec<u32> = (0..5000).map(|number| 3 * number + 1).collect();
    let mut buffers = vec![numbers.clone(), vec![0; 5000], vec![0; 240]];
    let mut dispatch = passes.configured().dispatch();
    let line = Pass { from: vec![region(0, 0, &[(5000, 1)])], to: vec![region(1, 0, &[(5000, 1)])] };
    let turned = Pass { from: vec![region(0, 0, &[(20, 12), (12, 1)])], to: vec![region(2, 0, &[(240, 1)])] };
    passes.pass(&mut dispatch, 0, &line).unwrap();
    passes.pass(&mut dispatch, 1, &turned).unwrap();
    device.dispatch(&dispatch.finish().unwrap(), &mut buffers).unwrap();
    assert_eq!(buffers[1], numbers);
    let expected: Vec<u32> = (0..240).map(|at| numbers[at % 20 * 12 + at / 20]).collect();
    assert_eq!(buffers[2], expected);
    assert_eq!(device.locks(Tile::new(0, 1), 2), [4, 0]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let passes = Passes::new(&aie2(), 1, None).unwrap();
    let mut dispatch = passes.configured().dispatch();
    let pass = Pass { from: vec![region(0, 0, &[(8, 1)])], to: vec![region(1, 0, &[(4, 1)])] };
    let error = passes.pack(&mut dispatch, 0, &pass, 0).unwrap_err();
    assert!(matches!(error, ArrayError::NoParameters(_)), "{error}");
    assert!(matches!(passes.pass(&mut dispatch, 1, &pass), Err(ArrayError::NoTile { .. })));
    passes.pass(&mut dispatch, 0, &pass).unwrap();
    assert!(matches!(dispatch.finish(), Err(ArrayError::Unbalanced { sent: 8, received: 4, .. })));
}
