//! Sums of the products of units.
//!
//! A group of sixteen units lies as words of the eight even ones, then those of the eight odd ones: a word of eight units is half a
//! vector. Its quants become numbers of bf16 by putting their bits below those of 128, without any multiplication, and so are exact.
//! Numbers of four units times a tile of the column, summed over a part of 32 `k`, is what a scale is multiplied with, in f32: as the
//! two bf16 nearest to the sum, and the two that a scale of f16 is.

use super::activations::STEP_BYTES;
use super::fifth_bits::{self, FifthBits};
use super::kernel::{Kernel, OfType, Parameter, constant, mode, shuffled, turned, turns};
use super::memory::{FACTORS, OFFSET_BYTES, PART_FACTORS, PORTION, SUMS, TILES};
use super::scales;
use super::six_bits;
use super::sums;
use super::weights::Weights;
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Reg};
use crate::numerics::{Nibbles, Sixteen, Sums, Tiles};

/// Upper bytes of numbers from 128 on; the same numbers in halves of a word, and what is left of them and a byte.
pub(super) const UPPER_BYTES: u32 = 0x4343_4343;
const NUMBER: u32 = 0x4300_4300;
pub(super) const LOW_BITS: u32 = 0x437F_437F;
pub(super) const SIGN_BIT: u32 = 0x4380_4380;

/// Sums of the units of a portion, for every column. `phase` says where the first group begins: how many groups there are until
/// the first phase comes again.
pub(super) fn portion(b: &mut CoreBuilder, k: Kernel, phase: Reg, parts: Reg) {
    scales::portion(b, k);
    let (tiles, offsets) = (k.address(b, TILES), k.of_type(b, OfType::Offsets));
    let column_parts = b.add(parts, 0);
    let columns = k.count(b, Parameter::Columns);
    let can_fold = !k.all.iter().all(Weights::has_part_factors);
    b.repeat(columns, |b| {
        k.choose(b, |b, of| {
            let units = Units { k, of };
            match of {
                Weights::Q6K => {
                    let around = units.around(b, k.tiles, [phase, tiles], of.phase_bytes(), 1);
                    let [across, _] = k.across(b, phase, STEP_BYTES);
                    let second = b.pointer(k.tiles);
                    b.mov(second, around.pointer);
                    b.advance(second, across);
                    six_bits::products(b, k, [around.pointer, second]);
                }
                _ => units.products(b, phase, tiles),
            }
        });
        let folded = if can_fold { k.parameter(b, Parameter::Halvings) } else { b.scalar(0) };
        let to = if can_fold {
            let unfolded = k.unfolded(b);
            b.select(folded, unfolded, column_parts)
        } else {
            column_parts
        };
        let combinations = Weights::combinations(k.all);
        let number = k.of_type(b, OfType::Combination);
        b.choose(number, combinations.len() as u32, |b, number| {
            Units { k, of: combinations[number as usize] }.combined(b, phase, offsets, to);
        });
        if can_fold {
            b.when(folded, |b| sums::fold(b, k, column_parts));
        }
        for (place, bytes) in
            [(tiles, OfType::ColumnTiles), (offsets, OfType::ColumnOffsets), (column_parts, OfType::ColumnSums)]
        {
            let bytes = k.of_type(b, bytes);
            b.emit("add", [place, place, bytes]);
        }
    });
    let (kept, phases) = (k.parameter(b, Parameter::Kept), k.parameter(b, Parameter::Phases));
    let bytes = b.binary("lshl", kept, 6);
    b.emit("add", [parts, parts, bytes]);
    let passed = k.parameter(b, Parameter::PortionPhases);
    let next = b.binary("sub", phase, passed);
    let (again, zero) = (b.binary("add", next, phases), b.scalar(0));
    let ends = b.binary("ge", zero, next);
    let next = b.select(ends, again, next);
    b.mov(phase, next);
}

/// What is common to the loops over a portion.
#[derive(Clone, Copy)]
struct Units {
    k: Kernel,
    of: Weights,
}

/// A pointer into what all phases have, which begins again behind the last one.
struct Around {
    pointer: Reg,
    /// Counts the iterations, and moves the pointer back after the last one of the last phase.
    by: Reg,
}

impl Around {
    fn next(&self, b: &mut CoreBuilder) {
        turned(b, self.pointer, self.by);
    }
}

impl Units {
    /// Offsets of a phase, as a multiple of the bytes of a unit.
    const OFFSETS: i64 = OFFSET_BYTES / 64;

    fn phase_offsets(self) -> i64 {
        Self::OFFSETS * self.of.unit_bytes()
    }

    /// A pointer to a phase of what lies at `place`, each phase `bytes` bytes and so many iterations.
    fn around(
        self,
        b: &mut CoreBuilder,
        region: AliasRegion,
        [phase, place]: [Reg; 2],
        bytes: i64,
        iterations: usize,
    ) -> Around {
        let phases = self.k.parameter(b, Parameter::Phases);
        let gone = b.binary("sub", phases, phase);
        let (bytes, iterations) = (b.scalar(bytes), b.scalar(iterations as i64));
        let (before, length) = (b.binary("mul", gone, bytes), b.binary("mul", phases, bytes));
        let at = b.binary("add", place, before);
        let pointer = self.k.pointer(b, region, at);
        let (times, gone) = (b.binary("mul", phases, iterations), b.binary("mul", gone, iterations));
        let none = b.scalar(0);
        let back = b.binary("sub", none, length);
        Around { pointer, by: turns(b, [times, gone], [none, back]) }
    }

    /// Numbers of quants times tiles: the sums of all parts, each without its offset and scale.
    fn products(self, b: &mut CoreBuilder, phase: Reg, tiles: Reg) {
        let Self { k, of } = self;
        let (run_words, run_parts) = of.run();
        let runs = of.parts() / run_parts;
        let around = self.around(b, k.tiles, [phase, tiles], of.phase_bytes(), runs);
        let header = 32 * of.header_words() as i64;
        let first = b.scalar(i64::from(OWN_MEMORY + PORTION.0) + header);
        let second = b.add(first, of.group_bytes() / 2);
        let words = [first, second].map(|at| k.pointer(b, k.words, at));
        let to = b.pointer_at(k.sums, OWN_MEMORY + SUMS.0);
        let products = Products {
            unit: Tiles::new(b),
            words,
            tiles: around.pointer,
            across: of.has_part_factors().then(|| k.across(b, phase, STEP_BYTES)),
            upper: constant(b, UPPER_BYTES),
            masks: (of == Weights::Q8_0).then(|| [LOW_BITS, SIGN_BIT].map(|mask| constant(b, mask))),
            two: [(); 2].map(|()| b.reg(Class::X)),
            quants: Nibbles::new(b),
            sorted_quants: b.reg(Class::X),
            // Of which halves are written at first for q5_K.
            numbers: match of {
                Weights::Q5K => [(); 2].map(|()| constant(b, 0)),
                _ => [(); 2].map(|()| b.reg(Class::X)),
            },
            fifth: FifthBits::new(b, k, of),
            // Two parts at once leave room for one.
            columns: if run_words <= 5 || of == Weights::Q8_0 {
                [(); 2].map(|()| b.reg(Class::X))
            } else {
                [b.reg(Class::X); 2]
            },
            mix_8: mode::MIX_8.map(|mode| b.scalar(mode)),
            mix_32: mode::MIX_32.map(|mode| b.scalar(mode)),
            sorted: [mode::EVEN_8, mode::ODD_8].map(|mode| b.scalar(mode)),
        };
        let sums_of = Sums::new(b);
        let run = |b: &mut CoreBuilder| {
            products.run(b, of, run_words, &mut |b, sums| {
                let words = sums_of.of(b, sums);
                b.store(words, to, Address::Then(64));
            });
        };
        let name = format!("products of {}", of.dtype());
        if of.has_part_factors() {
            // A portion is one group, in which nothing begins again.
            return products.fifth.unrounded(b, |b| {
                b.name_loop(&name);
                b.repeat(runs as u32, run);
            });
        }
        // Behind the last run of a group there are the units of the other parity, and the next one's header.
        let groups = k.parameter(b, Parameter::Groups);
        let (times, none) = (b.scalar(runs as i64), b.scalar(0));
        let count = b.binary("mul", groups, times);
        let over = of.group_bytes() / 2 + header;
        // More runs than there are would do no harm.
        let count = k.count_three(b, count);
        let over = if runs == 1 { Err(over) } else { Ok(b.scalar(over)) };
        let over = over.map(|over| words.map(|_| turns(b, [times, none], [none, over])));
        b.name_loop(&name);
        b.repeat(count, |b| {
            run(b);
            around.next(b);
            match over {
                Ok(over) => words.into_iter().zip(over).for_each(|(words, by)| turned(b, words, by)),
                Err(over) => words.iter().for_each(|words| b.advance(*words, over)),
            }
        });
    }

    /// Sums of parts times their scales, as sums of units.
    fn combined(self, b: &mut CoreBuilder, phase: Reg, offsets: Reg, parts: Reg) {
        let Self { k, of } = self;
        // Sums of the column's parts have a pointer of their own, as they are needed long after the offsets.
        let sums = b.add(offsets, OFFSET_BYTES / 2);
        let around = |b: &mut CoreBuilder, place| self.around(b, k.offsets, [phase, place], self.phase_offsets(), 1);
        let sums = (!matches!(of, Weights::Q4_0 | Weights::Q6K)).then(|| around(b, sums));
        let offsets = around(b, offsets);
        let from = b.pointer_at(k.sums, OWN_MEMORY + SUMS.0);
        let factors = b.pointer_at(k.factors, OWN_MEMORY + FACTORS.0);
        let part_factors = b.pointer_at(k.factors, OWN_MEMORY + PART_FACTORS.0);
        let to = k.pointer(b, k.parts, parts);
        let groups = k.count(b, Parameter::Groups);
        let mode = b.scalar(mode::MIX_32[0]);
        let unit = Sixteen::new(b);
        b.name_loop(&format!("units of {}", of.dtype()));
        b.repeat(groups, |b| {
            let sum_pointer = sums.as_ref().map(|sums| sums.pointer);
            let load = Combined { unit, from, factors, part_factors, offsets: offsets.pointer, sums: sum_pointer };
            let sum = match of {
                Weights::Q4_1 | Weights::Q5_1 => {
                    let (part, sum) = load.part(b);
                    let scaled = load.times(b, None, part);
                    load.times(b, Some(scaled), sum)
                }
                Weights::Q4_0 | Weights::Q5_0 | Weights::Q8_0 => {
                    let mut total = None;
                    for _ in 0..2 {
                        let (part, _) = load.part(b);
                        total = Some(load.times(b, total, part));
                    }
                    total.unwrap_or(from)
                }
                Weights::Q6K => load.q6_k(b),
                Weights::Q4K | Weights::Q5K => load.q4_k(b, of),
            };
            // Even and odd units in turn.
            let mut l = unit.one(b);
            let words = l.bits(sum);
            let turned = l.turned(words, 32);
            let ordered = shuffled(b, words, turned, mode);
            b.store(ordered, to, Address::Then(64));
            offsets.next(b);
            if let Some(sums) = &sums {
                sums.next(b);
            }
        });
    }
}

/// What the loop of products keeps. Registers are few, so steps share them in turn.
struct Products {
    unit: Tiles,
    /// Words of even and odd units.
    words: [Reg; 2],
    tiles: Reg,
    /// From fours of a group to the others and to their next, unless they are neighbours.
    across: Option<[Reg; 2]>,
    upper: Reg,
    masks: Option<[Reg; 2]>,
    fifth: FifthBits,
    two: [Reg; 2],
    quants: Nibbles,
    sorted_quants: Reg,
    numbers: [Reg; 2],
    columns: [Reg; 2],
    mix_8: [Reg; 2],
    mix_32: [Reg; 2],
    sorted: [Reg; 2],
}

impl Products {
    /// The sums of the next run of words: of one part, or of one after the other of two.
    fn run(&self, b: &mut CoreBuilder, of: Weights, words: usize, found: &mut impl FnMut(&mut CoreBuilder, [Reg; 4])) {
        let sums = |b: &mut CoreBuilder| [(); 4].map(|()| self.unit.sum(b));
        match of {
            Weights::Q4_1 | Weights::Q4_0 => {
                let sums = sums(b);
                (0..words).for_each(|word| self.nibbles(b, sums, word == 0));
                found(b, sums);
            }
            Weights::Q8_0 => {
                let sums = sums(b);
                (0..words / 2).for_each(|pair| self.bytes(b, sums, pair == 0));
                found(b, sums);
            }
            Weights::Q4K | Weights::Q5K | Weights::Q6K if Tiles::at_once(b) < 8 => {
                // Once more through the words and between the tiles for the second part.
                let (word_bytes, tile_bytes) = (32 * words as i64, Weights::PAIR * words as i64);
                for part in 0..2 {
                    let sums = sums(b);
                    for pair in 0..words / 2 {
                        self.apart(b, &[(part, sums)], pair == 0);
                    }
                    found(b, sums);
                    let next = if part == 0 { 64 - tile_bytes } else { -64 };
                    b.advance(self.tiles, next);
                    if part == 0 {
                        self.words.iter().for_each(|words| b.advance(*words, -word_bytes));
                        self.fifth.again(b);
                    }
                }
                self.fifth.next(b);
            }
            Weights::Q4K | Weights::Q5K | Weights::Q6K => {
                let parts = [(0, sums(b)), (1, sums(b))];
                (0..words / 2).for_each(|pair| self.apart(b, &parts, pair == 0));
                self.fifth.next(b);
                parts.into_iter().for_each(|(_, sums)| found(b, sums));
            }
            Weights::Q5_0 | Weights::Q5_1 => {
                let sums = sums(b);
                self.words.iter().for_each(|words| b.advance(*words, fifth_bits::WORD));
                (0..words / 2).for_each(|pair| self.eights(b, sums, pair));
                found(b, sums);
            }
        }
    }

    /// The next part of a column for four units, 8 `k` of it, times numbers.
    fn multiply(&self, b: &mut CoreBuilder, sum: Reg, numbers: Reg, is_first: bool, columns: Reg) {
        match is_first {
            true => self.unit.multiply(b, sum, numbers, columns),
            false => self.unit.multiply_add(b, sum, numbers, columns),
        }
    }

    fn tile(&self, b: &mut CoreBuilder, four: usize) -> Reg {
        let next = self.across.map_or(Address::Then(64), |across| Address::ThenBy(across[four]));
        self.tile_before(b, four, next)
    }

    /// The tile at the pointer, which then moves.
    fn tile_before(&self, b: &mut CoreBuilder, four: usize, next: Address) -> Reg {
        let columns = self.columns[four];
        b.load(columns, self.tiles, next);
        columns
    }

    /// A word: eight quants of four bits of each unit.
    fn nibbles(&self, b: &mut CoreBuilder, sums: [Reg; 4], is_first: bool) {
        let packed = b.reg(Class::X);
        for (half, words) in [packed.lo(), packed.hi()].into_iter().zip(self.words) {
            b.load(half, words, Address::Then(32));
        }
        self.quants.unpack(b, packed);
        for (parity, quants) in self.quants.bytes.into_iter().enumerate() {
            for (four, mode) in self.mix_8.into_iter().enumerate() {
                let numbers = self.numbers[four];
                b.shuffle(numbers, quants, self.upper, mode);
                let columns = self.tile(b, four);
                self.multiply(b, sums[2 * parity + four], numbers, is_first, columns);
            }
        }
    }

    /// The next two words: of even and odd units, eight bytes of each unit.
    fn two_words(&self, b: &mut CoreBuilder) -> [Reg; 2] {
        self.two.map(|word| {
            for (half, words) in [word.lo(), word.hi()].into_iter().zip(self.words) {
                b.load(half, words, Address::Then(32));
            }
            word
        })
    }

    /// Two words of bytes.
    fn bytes(&self, b: &mut CoreBuilder, sums: [Reg; 4], is_first: bool) {
        let [low, high] = self.two_words(b);
        let Some([low_bits, sign_bit]) = self.masks else { return };
        for (parity, mode) in self.mix_32.into_iter().enumerate() {
            let bytes = self.sorted_quants;
            b.shuffle(bytes, low, high, mode);
            for (four, mode) in self.mix_8.into_iter().enumerate() {
                let [low, sign] = self.numbers;
                b.shuffle(low, bytes, self.upper, mode);
                b.emit("vband", [sign, low, sign_bit]);
                b.emit("vband", [low, low, low_bits]);
                let (columns, sum) = (self.tile(b, four), sums[2 * parity + four]);
                self.multiply(b, sum, low, is_first, columns);
                self.unit.multiply_sub(b, sum, sign, columns);
            }
        }
    }

    /// Two words of four bits, whose low and high halves belong to two parts, of which those that are given are summed.
    fn apart(&self, b: &mut CoreBuilder, parts: &[(usize, [Reg; 4])], is_first: bool) {
        let two = self.two_words(b);
        for parity in 0..2 {
            self.unpack(b, two, parity);
            self.fifth.load(b, parity, self.numbers, self.mix_32[0]);
            for &(part, sums) in parts {
                let sorted = self.sorted_quants;
                self.sort(b, part);
                self.fifth.put(b, part, sorted, self.numbers[1]);
                for (four, mode) in self.mix_8.into_iter().enumerate() {
                    let numbers = self.numbers[four];
                    b.shuffle(numbers, sorted, self.upper, mode);
                    let columns = self.tile(b, four);
                    self.multiply(b, sums[2 * parity + four], numbers, is_first, columns);
                }
            }
            if parts.len() == 1 {
                // The other part's.
                b.advance(self.tiles, 64);
            }
        }
    }

    /// Of two words, those of the even or the odd units as bytes, and these as quants of four bits, low and high ones in turn.
    fn unpack(&self, b: &mut CoreBuilder, [low, high]: [Reg; 2], parity: usize) {
        let bytes = self.numbers[parity];
        b.shuffle(bytes, low, high, self.mix_32[parity]);
        self.quants.unpack(b, bytes);
    }

    /// Of unpacked quants, the low or the high halves of bytes.
    fn sort(&self, b: &mut CoreBuilder, half: usize) {
        let [first, second] = self.quants.bytes;
        b.shuffle(self.sorted_quants, first, second, self.sorted[half]);
    }

    /// Two words of four bits, whose low and high halves are eight quants each, with masks of those that have a fifth bit.
    fn eights(&self, b: &mut CoreBuilder, sums: [Reg; 4], pair: usize) {
        let two = self.two_words(b);
        // The masks are in front of the words.
        let behind = fifth_bits::WORD * (2 * pair as i64 + 3);
        for parity in 0..2 {
            self.unpack(b, two, parity);
            for half in 0..2 {
                let (sorted, more) = (self.sorted_quants, self.numbers[0]);
                self.sort(b, half);
                self.fifth.select(b, [sorted, more], self.words[parity], behind, 2 * half + pair);
                for (four, mode) in self.mix_8.into_iter().enumerate() {
                    let numbers = self.numbers[four];
                    b.shuffle(numbers, sorted, self.upper, mode);
                    // Tiles of the other eight are behind those of the odd units.
                    let by = match (four, half, parity) {
                        (1, 0, _) => 192,
                        (1, 1, 0) => -192,
                        _ => 64,
                    };
                    let columns = self.tile_before(b, four, Address::Then(by));
                    self.multiply(b, sums[2 * parity + four], numbers, pair + half == 0, columns);
                }
            }
        }
    }
}

/// Where sums, factors and offsets are read.
#[derive(Clone, Copy)]
pub(super) struct Combined {
    pub unit: Sixteen,
    pub from: Reg,
    pub factors: Reg,
    pub part_factors: Reg,
    pub offsets: Reg,
    /// Unless they are not needed.
    sums: Option<Reg>,
}

impl Combined {
    pub fn vector(b: &mut CoreBuilder, at: Reg, bytes: i64) -> Reg {
        let vector = b.reg(Class::X);
        b.load(vector, at, Address::Then(bytes));
        vector
    }

    /// The next part without its offset, as two bf16, and the sum of the column's part, if it is needed.
    fn part(self, b: &mut CoreBuilder) -> (Reg, Reg) {
        let (part, offset) = (b.reg(Class::Acc512), b.reg(Class::Acc512));
        b.load(part, self.from, Address::Then(64));
        b.load(offset, self.offsets, Address::Then(OFFSET_BYTES));
        let sum = self.sums.map(|sums| Self::vector(b, sums, OFFSET_BYTES));
        let part = self.unit.one(b).sub(part, offset);
        // Both terms are in one register as late as possible, so that those of the next part may be begun.
        let (held, near, terms) = (b.reg(Class::W), b.reg(Class::Acc512), b.reg(Class::X));
        b.to_bf16(held, part);
        b.to_fp32(near, held);
        let rest = self.unit.one(b).sub(part, near);
        b.to_bf16(terms.hi(), rest);
        b.mov(terms.lo(), held);
        (terms, sum.unwrap_or(terms))
    }

    /// The next factor times what is two bf16, added to a sum.
    pub fn times(self, b: &mut CoreBuilder, sum: Option<Reg>, terms: Reg) -> Reg {
        let factor = Self::vector(b, self.factors, 64);
        self.product(b, sum, terms, factor)
    }

    fn product(self, b: &mut CoreBuilder, sum: Option<Reg>, terms: Reg, factor: Reg) -> Reg {
        let mut l = self.unit.one(b);
        let swapped = l.swapped(factor);
        let straight = match sum {
            Some(sum) => l.multiply_add(sum, terms, factor),
            None => l.multiply(terms, factor),
        };
        l.multiply_add(straight, terms, swapped)
    }

    /// Two parts without their offsets, each as what is near it and the rest: both of these as one vector.
    pub fn two_parts(self, b: &mut CoreBuilder, offset_bytes: i64) -> [Reg; 2] {
        let [near, rest] = [(); 2].map(|()| b.reg(Class::X));
        for (near, rest) in [(near.lo(), rest.lo()), (near.hi(), rest.hi())] {
            let [part, offset, wide] = [(); 3].map(|()| b.reg(Class::Acc512));
            b.load(part, self.from, Address::Then(64));
            b.load(offset, self.offsets, Address::Then(offset_bytes));
            let part = self.unit.one(b).sub(part, offset);
            b.to_bf16(near, part);
            b.to_fp32(wide, near);
            let left = self.unit.one(b).sub(part, wide);
            b.to_bf16(rest, left);
        }
        [near, rest]
    }

    /// Totals of two vectors: each has its own, so that they do not wait for another, where there are accumulators for that.
    pub fn totals(self, b: &mut CoreBuilder) -> [Reg; 2] {
        let first = self.unit.one(b).zero_pairs();
        [first, if Tiles::at_once(b) < 8 { first } else { self.unit.one(b).zero_pairs() }]
    }

    /// Adds two vectors times a factor, less one that is taken off the factor.
    pub fn add_scaled(self, b: &mut CoreBuilder, totals: [Reg; 2], two: [Reg; 2], factor: Reg, less: Reg) {
        for (terms, total) in two.into_iter().zip(totals) {
            self.unit.one(b).add_pairs(total, terms, [factor, less]);
        }
    }

    /// The next factor times the sum of both totals.
    pub fn total(self, b: &mut CoreBuilder, [near, rest]: [Reg; 2]) -> Reg {
        let mut l = self.unit.one(b);
        let mut total = l.pairs(near);
        if rest != near {
            let rest = l.pairs(rest);
            total = l.add(total, rest);
        }
        let terms = l.two_terms(total);
        self.times(b, None, terms)
    }

    /// Eight parts with scales and minimums, and then what these are multiplied with.
    fn q4_k(self, b: &mut CoreBuilder, of: Weights) -> Reg {
        let [scaled, lessened] = [(); 2].map(|()| self.totals(b));
        let base = constant(b, NUMBER);
        b.name_loop("parts of q4_K");
        b.repeat(of.parts() as u32 / 2, |b| {
            let parts = self.two_parts(b, OFFSET_BYTES);
            let sums = [(); 2].map(|()| b.reg(Class::X));
            if let Some(at) = self.sums {
                for halves in [sums.map(Reg::lo), sums.map(Reg::hi)] {
                    b.load(halves[0], at, Address::Then(32));
                    b.load(halves[1], at, Address::Then(OFFSET_BYTES - 32));
                }
            }
            for (totals, two) in [(scaled, parts), (lessened, sums)] {
                let factor = Self::vector(b, self.part_factors, 64);
                self.add_scaled(b, totals, two, factor, base);
            }
        });
        let [scaled, lessened] = [scaled, lessened].map(|totals| self.total(b, totals));
        self.unit.one(b).sub(scaled, lessened)
    }
}
