//! Scales become bf16: each the two that together are exact, or one twice where one is.
//!
//! A word of each unit has two f16: scale and minimum of a block, or the scales of two blocks.

use super::fifth_bits;
use super::halves::Halves;
use super::kernel::{Kernel, OfType, Parameter, constant, mode, shuffled};
use super::memory::{FACTORS, PART_FACTORS, PORTION};
use super::six_bits;
use super::units::UPPER_BYTES;
use super::weights::Weights;
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, Class, CoreBuilder};
use crate::numerics::Sixteen;

/// The factors of all groups of a portion. Of two blocks, the first of which begins half a word early, the word in the middle becomes
/// the quants that are left of it; of others it stays what it is.
pub(super) fn portion(b: &mut CoreBuilder, k: Kernel) {
    let has_parts = k.all.iter().any(Weights::has_part_factors);
    if has_parts {
        let way = |of: Weights| (of.has_part_factors(), of == Weights::Q6K);
        k.choose_way(b, way, |b, way| match way {
            (true, false) => packed_scales(b, k),
            (true, true) => six_bits::scales(b, k),
            _ => {}
        });
    }
    let (at, bytes) = (b.scalar(i64::from(OWN_MEMORY + PORTION.0)), k.of_type(b, OfType::Group));
    let half = b.binary("lshl", bytes, -1);
    let second = b.binary("add", at, half);
    let words = [at, second].map(|at| k.pointer(b, k.words, at));
    let to = b.pointer_at(k.factors, OWN_MEMORY + FACTORS.0);
    let middle = k.of_type(b, OfType::Middle);
    let middle = [at, second].map(|at| {
        let at = b.binary("add", at, middle);
        k.pointer(b, k.ordered, at)
    });
    let group = k.modifier(b, bytes);
    let halves = Halves::new(b);
    let lanes = k.of_type(b, OfType::Exchanged);
    let groups = if has_parts {
        // Mostly one.
        k.count(b, Parameter::Groups)
    } else {
        // What is behind the last group is scaled without any use.
        let groups = k.parameter(b, Parameter::Groups);
        k.count_three(b, groups)
    };
    b.name_loop("scales");
    b.repeat(groups, |b| {
        let (scales, last, ends) = (b.reg(Class::X), b.reg(Class::X), b.reg(Class::X));
        for (half, at) in [scales.lo(), scales.hi()].into_iter().zip(words) {
            b.load_as("vlda", half, at, Address::ThenBy(group));
        }
        for (half, at) in [last.lo(), last.hi()].into_iter().zip(middle) {
            b.load_as("vlda", half, at, Address::At(0));
        }
        b.select_lanes(16, ends, last, scales, lanes);
        b.select_lanes(16, scales, scales, last, lanes);
        for (half, at) in [ends.lo(), ends.hi()].into_iter().zip(middle) {
            b.store(half, at, Address::ThenBy(group));
        }
        for pair in halves.of(b, scales) {
            b.store(pair, to, Address::Then(64));
        }
    });
    if k.all.iter().any(fifth_bits::has_masks) {
        k.choose(b, |b, of| {
            if fifth_bits::has_masks(of) {
                fifth_bits::masks(b, k, of)
            }
        });
    }
}

/// The scale and the minimum of each of eight parts of q4_K and q5_K. Six low bits of the first four bytes are scales, of the next four
/// minimums; the other four parts have four bits in the last four bytes, and two on top of the first. They become
/// bytes below those of 128.
fn packed_scales(b: &mut CoreBuilder, k: Kernel) {
    let at = b.scalar(i64::from(OWN_MEMORY + PORTION.0) + 32);
    let bytes = k.of_type(b, OfType::Group);
    let half = b.binary("lshl", bytes, -1);
    let second = b.binary("add", at, half);
    let words = [at, second].map(|at| k.pointer(b, k.words, at));
    let words = [(); 3].map(|()| {
        let word = b.reg(Class::X);
        for (half, at) in [word.lo(), word.hi()].into_iter().zip(words) {
            b.load(half, at, Address::Then(32));
        }
        word
    });
    let unit = Sixteen::new(b);
    let mut l = unit.one(b);
    let packed = [0, 1].map(|part| {
        [0, 1].map(|which: usize| {
            if part == 0 {
                let mask = l.word(0x3F3F_3F3F);
                return l.and(words[which], mask);
            }
            let top = l.word(0xC0C0_C0C0);
            let top = l.and(words[which], top);
            let top = l.shift_right(top, 2);
            let two = l.word(0x3030_3030);
            let top = l.and(top, two);
            let low = l.word(0x0F0F_0F0F);
            let low = if which == 0 {
                l.and(words[2], low)
            } else {
                let high = l.word(0xF0F0_F0F0);
                let high = l.and(words[2], high);
                let high = l.shift_right(high, 4);
                l.and(high, low)
            };
            l.or(top, low)
        })
    });
    // A byte of sixteen units, of two parts at once.
    let upper = constant(b, UPPER_BYTES);
    let (bytes, pairs) = (b.scalar(mode::BYTES_OF_16), mode::MIX_8.map(|mode| b.scalar(mode)));
    for (number, words) in (0..).zip(packed.as_flattened()) {
        let (part, which) = (number / 2, number % 2);
        let words = shuffled(b, *words, *words, bytes);
        for (pair, mode) in (0..).zip(pairs) {
            let at = OWN_MEMORY + PART_FACTORS.0 + 128 * (2 * part + pair) + 64 * which;
            let (factors, to) = (shuffled(b, words, upper, mode), b.pointer_at(k.factors, at));
            b.store(factors, to, Address::At(0));
        }
    }
}
