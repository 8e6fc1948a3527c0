//! What arrives becomes bf16: keys, values and the mask in the buffers that they arrived in, queries as blocks of 8 elements x 4 heads.

use super::emit::{Kernel, words};
use super::parameters::Parameter;
use super::problem::Cache;
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg};
use crate::numerics::{HalfWords, Lanes, Unit, Vectors, product};

/// Bits of a pair of 16 bits that a bf16 has once an f16 was shifted with its sign, of which there are three too many.
const KEPT: u32 = 0x8FFF_8FFF;
/// From the mantissa of f16 to that of bf16.
const SHORTER: i64 = 3;
/// Vectors of an iteration.
const VECTORS: i64 = 4;

/// Converts a tile of keys or values at `address`, by the number of its type; `count` times 128 elements.
pub(in crate::families) fn tile<U: Unit>(
    b: &mut CoreBuilder,
    k: Kernel<U>,
    address: Reg,
    of: Parameter,
    count: Parameter,
) {
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
pub(in crate::families) fn mask<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, address: Reg) {
    let count = k.count(b, Parameter::MaskConversions, 1);
    halves(b, k, address, count, 1);
}

/// f16 to bf16 that are smaller by 2^112.
fn halves<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, address: Reg, count: Count, vectors: i64) {
    let (from, to) = (k.pointer(b, k.cache, address), k.pointer(b, k.placed, address));
    let (word, kept) = (b.scalar(KEPT.into()), b.reg(Class::X));
    b.broadcast(32, kept, word);
    let (none, shorter) = (b.reg(Class::Shift), b.reg(Class::Shift));
    b.constant_into(none, 0);
    b.constant_into(shorter, SHORTER);
    HalfWords::around(b, |b, half_words| {
        b.name_loop(if vectors == 1 { "mask of f16" } else { "f16" });
        b.repeat(count, |b| {
            for index in 0..vectors {
                let x = words(b, from, 64 * index);
                let (wide, shifted, result) = (b.reg(Class::Acc1024), b.reg(Class::X), b.reg(Class::X));
                half_words.widened(b, wide, x, none);
                half_words.narrowed(b, shifted, wide, shorter);
                b.emit("vband", [result, shifted, kept]);
                b.store(result, to, Address::At(64 * index));
            }
            b.advance(from, 64 * vectors);
            b.advance(to, 64 * vectors);
        });
    });
}

/// f32 to bf16, each vector in front of what is still to be read.
fn round<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, address: Reg, count: Count) {
    // One region: a store may reach into the place of the vector before, which has to be loaded by then.
    let (from, to) = (k.pointer(b, k.cache, address), k.pointer(b, k.cache, address));
    b.name_loop("f32");
    b.repeat(count, |b| {
        for _ in 0..8 {
            let mut l = k.lanes(b);
            let numbers = l.load(from, Address::Then(64));
            l.store_bf16(numbers, to, Address::Then(32));
        }
    });
}

/// Multiplies the queries of four heads at `source` with the factor, rounds them and puts them to `target` as blocks.
pub(in crate::families) fn queries<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, source: Reg, target: Reg) {
    let query_bytes = k.modifier(b, Parameter::QueryBytes);
    let mut heads = vec![k.pointer(b, k.queries, source)];
    for index in 1..4 {
        let next = b.pointer(k.queries);
        b.mov(next, heads[index - 1]);
        b.advance(next, query_bytes);
        heads.push(next);
    }
    let target = k.pointer(b, k.converted, target);
    let factors = [Parameter::FactorHigh, Parameter::FactorLow].map(|factor| {
        let factor = k.parameter(b, factor);
        k.lanes(b).splat_pair(factor, factor)
    });
    let blocks = k.heads.queries(b);
    let steps = k.count(b, Parameter::QuerySteps, 1);
    b.name_loop("queries");
    b.repeat(steps, |b| {
        let vectors = [[heads[0], heads[1]], [heads[2], heads[3]]].map(|two| {
            let scaled = two.map(|head| {
                let mut l = k.lanes(b);
                let x = l.load(head, Address::Then(64));
                let terms = product::leading(&mut l, x);
                let scaled = l.multiply(terms, factors[1]);
                l.multiply_add(scaled, terms, factors[0])
            });
            let rounded = k.lanes(b).narrow(scaled[0], scaled[1]);
            k.unit.halves(b, rounded)
        });
        for block in blocks.of(b, vectors) {
            b.store(block, target, Address::Then(64));
        }
    });
}
