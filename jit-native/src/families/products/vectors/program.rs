//! The part of the program for phases of vectors, and its parameters.

use crate::array::{ArrayError, Dispatch, OWN_MEMORY, Tile};
use crate::codegen::{Address, Class, CoreBuilder, Count};
use crate::families::elements::functions::Function;
use crate::families::elements::program::{Functions, step};
use crate::families::elements::step::{Slot, Step};
use crate::families::products::kernel::{Kernel, Locks};
use crate::families::products::memory::{ARRIVING, SUMS, WEIGHTS};
use crate::families::products::parameters::OFFSET;
use crate::numerics::Aie2;

/// The functions of the program, by their numbers.
pub(super) const FUNCTIONS: &[Function] = &[
    Function::Add,
    Function::Sub,
    Function::Mul,
    Function::Scale,
    Function::Clamp,
    Function::Gate,
    Function::ReciprocalRoot,
    Function::Sum,
    Function::SumOfSquares,
    Function::Pad,
];

/// Those that take whole rows. The loops of others are short instead: there is no room for two of each.
const OVERLAPPING: &[Function] = &[Function::SumOfSquares];

/// Words of the parameters, which are more than a product has: they go on behind its block.
const WORDS: u32 = 160;
/// A core's memory behind them.
pub(super) const FREE: u32 = OFFSET + 4 * WORDS;

/// The words by their place. The first, which of a product is the number of its tiles, is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Word {
    /// Tiles, one after the other.
    Tiles = 1,
    /// Buffers of what all cores get, of what each gets, and of results that a tile takes.
    Operands,
    Slices,
    Results,
    /// Steps with each tile.
    Steps,
    /// Addresses of the slots.
    Slots,
}

/// The first word of the steps.
const FIRST_STEP: u32 = Word::Slots as u32 + Slot::COUNT;
/// Most steps that fit the parameters.
pub(super) const MOST_STEPS: usize = ((WORDS - FIRST_STEP) / Step::MOST_WORDS) as usize;

/// What a core does with a tile.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    pub tiles: u32,
    pub operands: u32,
    pub slices: u32,
    pub results: u32,
    /// Where slots are, as offsets in the core's memory, and how many vectors of those that are first sources are all.
    pub places: Vec<(Slot, u32, u32)>,
    pub steps: Vec<Step>,
}

impl Parameters {
    /// Starts a core with them.
    pub fn start(&self, dispatch: &mut Dispatch<'_>, core: Tile) -> Result<(), ArrayError> {
        dispatch.write(core, OFFSET, &self.words())?.start(core, &[]).map(|_| ())
    }

    /// The block.
    fn words(&self) -> Vec<u32> {
        let mut words = vec![0; FIRST_STEP as usize];
        for (word, value) in [
            (Word::Tiles, self.tiles),
            (Word::Operands, self.operands),
            (Word::Slices, self.slices),
            (Word::Results, self.results),
            (Word::Steps, self.steps.len() as u32),
        ] {
            words[word as usize] = value;
        }
        for (slot, offset, _) in &self.places {
            words[Word::Slots as usize + *slot as usize] = OWN_MEMORY + offset;
        }
        for step in &self.steps {
            let number = FUNCTIONS.iter().position(|function| *function == step.function()).unwrap_or_default();
            let [source, ..] = step.slots();
            let all = self.places.iter().find(|(slot, ..)| *slot == source).map_or(1, |(.., vectors)| *vectors);
            words.extend(step.encode(number as u32, all));
        }
        words
    }
}

/// Takes tiles as they come, and does the steps of the parameters with each.
pub(in crate::families::products) fn phase(b: &mut CoreBuilder, k: Kernel) {
    // Here and not for all of the program: decoding needs all scalars.
    let configuration = Aie2::new(b);
    let word = |b: &mut CoreBuilder, word: Word| {
        let (at, target) = (b.pointer_at(k.parameters, OWN_MEMORY + OFFSET), b.reg(Class::Scalar));
        b.load(target, at, Address::At(4 * word as i64));
        target
    };
    let [tiles, operands, slices, results, steps] =
        [Word::Tiles, Word::Operands, Word::Slices, Word::Results, Word::Steps].map(|index| word(b, index));
    let [operand, slice, result] = [ARRIVING, WEIGHTS, SUMS].map(Locks::of);
    let uses = [
        (operands, operand.full, operand.empty),
        (slices, slice.full, slice.empty),
        (results, result.empty, result.full),
    ];
    b.repeat(Count::from(tiles).at_least(1), |b| {
        for (count, taken, _) in uses {
            b.when(count, |b| {
                let zero = b.scalar(0);
                let by = b.binary("sub", zero, count);
                b.acquire(taken, by);
            });
        }
        let table = b.pointer_at(k.parameters, OWN_MEMORY + OFFSET + 4 * Word::Slots as u32);
        let record = b.pointer_at(k.parameters, OWN_MEMORY + OFFSET + 4 * FIRST_STEP);
        let functions = Functions { all: FUNCTIONS, overlapping: OVERLAPPING };
        b.repeat(Count::from(steps), |b| step(b, configuration, functions, record, table));
        for (count, _, given) in uses {
            b.when(count, |b| b.release(given, count));
        }
    });
}
