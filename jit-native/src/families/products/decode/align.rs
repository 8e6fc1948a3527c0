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

use super::vectors::{WORD_BYTES, load, mode, shuffled};
use crate::codegen::{Address, Class, CoreBuilder, Reg};
use crate::families::products::kernel::Kernel;
use crate::families::products::parameters::Parameter;
use crate::families::products::weights::Layout;

/// The odd halves of words.
const ODD: i64 = 0xAAAA_AAAA;

/// Puts the first quants of all pairs of blocks at whole words, and both scales behind them. With `in_eights`, quants are bytes,
/// and eight of them of a row are put next to each other: two words become a vector of eight rows, and one of the other eight.
pub(in crate::families::products) fn pairs(
    b: &mut CoreBuilder,
    k: Kernel,
    layout: &Layout,
    source: Reg,
    in_eights: bool,
) {
    let (from, to) = (k.pointer(b, k.weights, source), k.pointer(b, k.placed, source));
    let modes = Modes {
        even: b.scalar(mode::EVEN_16),
        odd: b.scalar(mode::ODD_16),
        mix_16: mode::MIX_16.map(|mode| b.scalar(mode)),
        mix_32: mode::MIX_32.map(|mode| b.scalar(mode)),
    };
    let selection = b.scalar(ODD);
    let pairs = k.blocks(b, Parameter::Pairs, 64);
    let words = i64::from(layout.scales);
    b.name_loop("quants to whole words");
    b.repeat(pairs, |b| {
        let first = load(b, from, 0);
        let mut before = first;
        for word in (0..words).step_by(2) {
            let (middle, after) = (load(b, from, word + 1), load(b, from, word + 2));
            let (odd, even) = (shuffled(b, before, middle, modes.odd), shuffled(b, middle, after, modes.even));
            let whole = modes.mix_16.map(|mode| shuffled(b, odd, even, mode));
            modes.store(b, whole, to, word, in_eights);
            before = after;
        }
        let scales = b.reg(Class::X);
        b.select_lanes(16, scales, first, before, selection);
        b.store(scales, to, Address::At(words * WORD_BYTES));
        if in_eights {
            for word in (words + 1..2 * words).step_by(2) {
                let whole = [load(b, from, word), load(b, from, word + 1)];
                modes.store(b, whole, to, word, true);
            }
        }
        for pointer in [from, to] {
            b.advance(pointer, i64::from(layout.period) * WORD_BYTES);
        }
    });
}

struct Modes {
    even: Reg,
    odd: Reg,
    mix_16: [Reg; 2],
    mix_32: [Reg; 2],
}

impl Modes {
    /// Stores two words.
    fn store(&self, b: &mut CoreBuilder, whole: [Reg; 2], to: Reg, word: i64, in_eights: bool) {
        let vectors = if in_eights { self.mix_32.map(|mode| shuffled(b, whole[0], whole[1], mode)) } else { whole };
        for (vector, index) in vectors.into_iter().zip(word..) {
            b.store(vector, to, Address::At(index * WORD_BYTES));
        }
    }
}
