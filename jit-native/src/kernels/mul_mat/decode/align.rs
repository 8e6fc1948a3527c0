//! Quants of blocks that begin in the middle of a word.
//!
//! Two blocks of 18 or 34 bytes are 9 or 17 words:
//!
//! ```text
//!   q4_0   | d q | q q | q q | q q | q d | q q | q q | q q | q q |
//!            first block's quants         second block's quants
//! ```
//!
//! The quants of the first are moved on by half a word to the words before; the word that becomes free in the middle gets both
//! scales. With words of 16 rows in a vector, that is the odd halves of one and the even halves of the next, mixed.

use super::quants::Layout;
use super::{WORD_BYTES, mode, shuffled};
use crate::core::{Address, Class, CoreBuilder, Reg};
use crate::kernels::mul_mat::parameters::Parameter;
use crate::kernels::mul_mat::program::Kernel;

/// The odd halves of words.
const ODD: i64 = 0xAAAA_AAAA;

/// Puts the first quants of all pairs of blocks at whole words, and both scales behind them.
pub(super) fn pairs(b: &mut CoreBuilder, k: Kernel, layout: &Layout, source: Reg) {
    let source = k.pointer(b, k.weights, source);
    let [even, odd] = [mode::EVEN_16, mode::ODD_16].map(|mode| b.scalar(mode));
    let mix = mode::MIX_16.map(|mode| b.scalar(mode));
    let selection = b.scalar(ODD);
    let pairs = k.count(b, Parameter::Pairs, 1);
    let words = i64::from(layout.scales);
    b.name_loop("quants to whole words");
    b.repeat(pairs, |b| {
        let load = |b: &mut CoreBuilder, word: i64| {
            let vector = b.reg(Class::X);
            b.load(vector, source, Address::At(word * WORD_BYTES));
            vector
        };
        let first = load(b, 0);
        let mut before = first;
        for word in (0..words).step_by(2) {
            let (middle, after) = (load(b, word + 1), load(b, word + 2));
            let (odd, even) = (shuffled(b, before, middle, odd), shuffled(b, middle, after, even));
            for (half, mix) in (0..).zip(mix) {
                let whole = shuffled(b, odd, even, mix);
                b.store(whole, source, Address::At((word + half) * WORD_BYTES));
            }
            before = after;
        }
        let scales = b.reg(Class::X);
        b.select_lanes(16, scales, first, before, selection);
        b.store(scales, source, Address::At(words * WORD_BYTES));
        b.advance(source, i64::from(layout.period) * WORD_BYTES);
    });
}
