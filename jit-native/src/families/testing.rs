//! What tests of several families need.

use aie_isa::Isa;
use aie_ops::{DataType, Node, OpParams, Tensor};
use std::collections::{BTreeSet, HashSet};

/// A reproducible source of numbers between 0 and 1.
pub struct Random(pub u32);

impl Random {
    pub fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 24) as f32
    }

    pub fn values(&mut self, count: usize, low: f32, high: f32) -> Vec<f32> {
        (0..count).map(|_| low + (high - low) * self.next()).collect()
    }
}

pub fn f32s(ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(DataType::F32, ne)
}

pub fn params(words: &[(usize, f32)]) -> OpParams {
    let mut params = OpParams::default();
    for (index, value) in words {
        params.0[*index] = value.to_bits().cast_signed();
    }
    params
}

pub fn node(op: &str, params: OpParams, output: Tensor, sources: &[Tensor]) -> Node {
    Node::new(op, params, output, sources.iter().copied().map(Some).collect())
}

/// ggml's measure: infinite results have to be the same, and the squares of the errors are compared with those of the results.
pub fn error(found: &[f32], expected: &[f32]) -> f64 {
    let (mut error, mut power) = (0.0, 0.0);
    for (found, expected) in found.iter().zip(expected) {
        assert!(!found.is_nan() && !expected.is_nan());
        if found.is_infinite() || expected.is_infinite() {
            assert_eq!(found, expected);
            continue;
        }
        error += (f64::from(*found) - f64::from(*expected)).powi(2);
        power += f64::from(*expected).powi(2);
    }
    if error == 0.0 { 0.0 } else { error / power }
}

/// The rows that a program of aie2p uses of which nothing has shown that the emulator's model is right.
pub fn without_evidence(program: &[u8]) -> Vec<&'static str> {
    let page = include_str!("../../../docs/emulator-evidence.md");
    let (_, list) = page.split_once("## aie2p: rows without evidence").unwrap();
    let without: HashSet<&str> = list.split('`').skip(1).step_by(2).collect();
    assert!(without.contains("VEXP2"));
    let lines = Isa::aie2p().listing(program);
    let bundles: Vec<_> = lines.into_iter().map(|line| line.bundle.unwrap()).collect();
    let used: BTreeSet<&str> = bundles.iter().flat_map(|b| b.instructions()).map(|one| one.instruction.key).collect();
    println!("{used:?}");
    used.into_iter().filter(|key| without.contains(key)).collect()
}
