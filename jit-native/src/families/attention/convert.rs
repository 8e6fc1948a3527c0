//! What arrives becomes bf16: keys, values and the mask in the buffers that they arrived in, queries as blocks of 8 elements x 4 heads.

use super::emit::{Kernel, words};
use super::parameters::Parameter;
use super::problem::Cache;
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg};
use crate::numerics::{Lanes, product};

/// Bits of a pair of 16 bits that a bf16 has once an f16 was shifted with its sign, of which there are three too many.
const KEPT: u32 = 0x8FFF_8FFF;
/// From the mantissa of f16 to that of bf16.
const SHORTER: i64 = 3;
/// Vectors of an iteration.
const VECTORS: i64 = 4;
/// `T16_4x16`: the transposition of four heads x 16 elements, lower and upper half.
const TRANSPOSE: [i64; 2] = [26, 27];

/// Converts a tile of keys or values at `address`, by the number of its type; `count` times 128 elements.
pub(in crate::families) fn tile(b: &mut CoreBuilder, k: Kernel, address: Reg, of: Parameter, count: Parameter) {
    let number = k.parameter(b, of);
    b.choose(number, Cache::ALL.len() as u32, |b, number| {
        let count = k.count(b, count, 1);
        match Cache::ALL[number as usize] {
            Cache::F16 => halves(b, k, address, count, VECTORS),
            Cache::F32 => round(b, k, address, count),
            Cache::Bf16 => {}
        }
    });
}

/// Converts the mask of all tokens.
pub(in crate::families) fn mask(b: &mut CoreBuilder, k: Kernel, address: Reg) {
    let count = k.count(b, Parameter::MaskConversions, 1);
    halves(b, k, address, count, 1);
}

/// f16 to bf16 that are smaller by 2^112.
fn halves(b: &mut CoreBuilder, k: Kernel, address: Reg, count: Count, vectors: i64) {
    let (from, to) = (k.pointer(b, k.cache, address), k.pointer(b, k.placed, address));
    let (word, kept) = (b.scalar(KEPT.into()), b.reg(Class::X));
    b.broadcast(32, kept, word);
    let (none, shorter) = (b.reg(Class::Shift), b.reg(Class::Shift));
    b.constant_into(none, 0);
    b.constant_into(shorter, SHORTER);
    b.name_loop(if vectors == 1 { "mask of f16" } else { "f16" });
    b.repeat(count, |b| {
        for index in 0..vectors {
            let x = words(b, from, 64 * index);
            let (wide, shifted, result) = (b.reg(Class::Acc1024), b.reg(Class::X), b.reg(Class::X));
            b.emit("vups.s32.s16", [wide, x, none]);
            b.emit("vsrs.s16.s32", [shifted, wide, shorter]);
            b.emit("vband", [result, shifted, kept]);
            b.store(result, to, Address::At(64 * index));
        }
        b.advance(from, 64 * vectors);
        b.advance(to, 64 * vectors);
    });
}

/// f32 to bf16, each vector in front of what is still to be read.
fn round(b: &mut CoreBuilder, k: Kernel, address: Reg, count: Count) {
    // One region: a store may reach into the place of the vector before, which has to be loaded by then.
    let (from, to) = (k.pointer(b, k.cache, address), k.pointer(b, k.cache, address));
    b.name_loop("f32");
    b.repeat(count, |b| {
        for _ in 0..8 {
            let lanes = b.reg(Class::Acc512);
            b.load(lanes, from, Address::Then(64));
            b.store_as("vst.conv.bf16.fp32", lanes, to, Address::Then(32));
        }
    });
}

/// Multiplies the queries of four heads at `source` with the factor, rounds them and puts them to `target` as blocks.
pub(in crate::families) fn queries(b: &mut CoreBuilder, k: Kernel, source: Reg, target: Reg) {
    let query_bytes = k.modifier(b, Parameter::QueryBytes);
    let mut heads = vec![k.pointer(b, k.queries, source)];
    for index in 1..4 {
        let next = b.pointer(k.queries);
        b.mov(next, heads[index - 1]);
        b.advance(next, query_bytes);
        heads.push(next);
    }
    let target = k.pointer(b, k.converted, target);
    let factors = [Parameter::FactorHigh, Parameter::FactorLow].map(|factor| k.splat(b, factor));
    let modes = TRANSPOSE.map(|mode| b.scalar(mode));
    let steps = k.count(b, Parameter::QuerySteps, 1);
    b.name_loop("queries");
    b.repeat(steps, |b| {
        let (front, back) = (b.reg(Class::X), b.reg(Class::X));
        for (head, half) in heads.iter().zip([front.lo(), front.hi(), back.lo(), back.hi()]) {
            let x = b.reg(Class::Acc512);
            b.load(x, *head, Address::Then(64));
            let mut l = k.lanes(b);
            let terms = product::leading(&mut l, x);
            let scaled = l.multiply(terms, factors[1]);
            let scaled = l.multiply_add(scaled, terms, factors[0]);
            b.to_bf16(half, scaled);
        }
        for mode in modes {
            let block = b.reg(Class::X);
            b.shuffle(block, front, back, mode);
            b.store(block, target, Address::Then(64));
        }
    });
}
