//! Weights of other types become blocks of 4 rows x 8 `k` of bf16, the first operand of the matrix unit.

use super::parameters::Parameter;
use super::product::BLOCK_BYTES;
use super::program::Kernel;
use super::weights::Weights;
use crate::core::{Address, Class, CoreBuilder, Reg};

/// Decodes 16 rows of a chunk from the address `source` to `target`.
pub(super) fn decode(b: &mut CoreBuilder, k: Kernel, weights: Weights, source: Reg, target: Reg) {
    match weights {
        Weights::Bf16 => {}
        Weights::F32 => round(b, k, source, target),
    }
}

/// f32 to bf16: the order is right already.
fn round(b: &mut CoreBuilder, k: Kernel, source: Reg, target: Reg) {
    let (source, target) = (k.pointer(b, k.weights, source), k.pointer(b, k.decoded, target));
    let steps = k.count(b, Parameter::Steps, 4);
    b.name_loop("f32 weights");
    b.repeat(steps, |b| {
        for _ in 0..8 {
            let lanes = b.reg(Class::Acc512);
            b.load(lanes, source, Address::Then(64));
            b.store_as("vst.conv.bf16.fp32", lanes, target, Address::Then(i64::from(BLOCK_BYTES) / 2));
        }
    });
}
