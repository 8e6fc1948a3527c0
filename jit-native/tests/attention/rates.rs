//! How fast: printed.

use crate::tensors::Random;
use crate::{Operands, Shape, compare};
use aie_ops::DataType;

fn describe(name: &str, shape: Shape) {
    let operands = Operands::random(shape, DataType::F16, true, &mut Random(21));
    let timing = compare(&mut None, shape, &operands);
    let bytes = operands.k.bytes.len() + operands.v.bytes.len();
    println!(
        "{name}: {} cycles for {bytes} bytes of keys and values, {:.2} a cycle; bound: {}",
        timing.cycles,
        bytes as f64 / timing.cycles as f64,
        timing.bound().map(ToString::to_string).unwrap_or_default()
    );
}

/// One layer of models, one token. Takes minutes without optimisation: `cargo test -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn of_one_token() {
    for keys in [256, 1024] {
        describe("SmolLM2-135M", Shape::of_one_token(64, 9, 3, keys));
        describe("Llama-3.2-1B", Shape::of_one_token(64, 32, 8, keys));
    }
    for keys in [256, 1024] {
        describe("Llama-3.1-8B", Shape::of_one_token(128, 32, 8, keys));
    }
    describe("SmolLM2-135M", Shape::of_one_token(64, 9, 3, 4096));
}
