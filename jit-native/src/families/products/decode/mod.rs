//! Weights of other types become blocks of 4 rows x 8 `k` of bf16, the first operand of the matrix unit.
//!
//! Rows of blocks arrive as columns of words: one word of each of the 16 rows of a group, which is a vector, then their next
//! words. So every instruction works on all rows, and lanes of 32 bits are rows. Blocks whose quants do not begin at a word
//! are shifted into place first ([`align`]), then scales become bf16 ([`scales`], [`long_scales`]), both within the buffer that
//! the weights arrived in; what is left are quants at whole words and scales beside them ([`quants`]). The program of a core
//! has 16 KiB, so what is the same for several types is there once.

pub(super) mod align;
mod long_scales;
mod quants;
mod scales;
mod six_bits;
pub(super) mod vectors;

use super::arithmetic::Arithmetic;
use super::kernel::Kernel;
use super::parameters::Parameter;
use super::product::BLOCK_BYTES;
use super::weights::Weights;
use crate::codegen::{Address, Class, CoreBuilder, Reg};

/// Decodes 16 rows of a chunk from the address `source` to `target`, which becomes `source` where there is nothing to do.
pub(super) fn decode(b: &mut CoreBuilder, k: Kernel, source: Reg, target: Reg) {
    if k.purpose.arithmetic() == Arithmetic::Integers {
        return b.mov(target, source);
    }
    let number = k.parameter(b, Parameter::Weights);
    let scale_words = k.parameter(b, Parameter::ScaleWords);
    b.when(scale_words, |b| {
        let pairs = k.parameter(b, Parameter::Pairs);
        b.when(pairs, |b| {
            let types = Weights::ALL.into_iter().filter(|weights| weights.comes_in_pairs());
            for (weights, layout) in types.filter_map(|weights| Some((weights, weights.layout()?))) {
                let is_this = b.binary("eq", number, i64::from(weights.number()));
                b.when(is_this, |b| match weights {
                    Weights::Q6_K => six_bits::align(b, k, &layout, source),
                    _ => align::pairs(b, k, &layout, source, weights == Weights::Q8_0),
                });
            }
        });
        if let Some(layout) = Weights::Q4_K.layout() {
            let is_long = b.binary("eq", number, i64::from(Weights::Q4_K.number()));
            b.when(is_long, |b| long_scales::split(b, k, &layout, source));
        }
        scales::decode(b, k, source);
    });
    let types = Weights::of_arithmetic(k.purpose.arithmetic()).count() as u32;
    b.choose(number, types, |b, number| {
        let weights = Weights::ALL[number as usize];
        match (weights, weights.layout()) {
            (Weights::F32, _) => round(b, k, source, target),
            (_, None) => b.mov(target, source),
            (Weights::Q4_K, Some(layout)) => {
                long_scales::decode(b, k, &layout, source);
                quants::decode_long(b, k, &layout, [source, target]);
            }
            (Weights::Q6_K, Some(layout)) => {
                six_bits::scales(b, k, &layout, source);
                six_bits::decode(b, k, [source, target]);
            }
            (_, Some(layout)) => quants::decode(b, k, weights, &layout, [source, target]),
        }
    });
}

/// Bytes of decoded weights of 16 rows in half a chunk of a prompt, 64 elements of each.
const HALF_BYTES: u32 = 2048;

/// The same for the chunks of prompts, quants in halves of 64 elements of each row, in the types that are cut so. What is multiplied as it arrives
/// is left where it is.
pub(super) fn decode_chunk(b: &mut CoreBuilder, k: Kernel, number: Reg, [source, target]: [Reg; 2]) {
    let types: Vec<Weights> = Weights::ALL.into_iter().take_while(|weights| weights.is_prompt()).collect();
    b.choose(number, types.len() as u32, |b, number| {
        let weights = types[number as usize];
        match (weights, weights.layout()) {
            (Weights::F32, _) => round(b, k, source, target),
            (_, None) => {}
            (_, Some(layout)) => {
                if weights.comes_in_pairs() {
                    align::pairs(b, k, &layout, source, weights == Weights::Q8_0);
                }
                scales::decode(b, k, source);
                let (from, to) = (b.add(source, 0), b.add(target, 0));
                let halves = k.count(b, Parameter::ChunkHalves, 1);
                b.repeat(halves, |b| {
                    quants::decode_two(b, k, weights, &layout, [from, to]);
                    let bytes = k.parameter(b, Parameter::HalfWeights);
                    b.emit("add", [from, from, bytes]);
                    b.binary_into(to, "add", to, HALF_BYTES);
                });
            }
        }
    });
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
