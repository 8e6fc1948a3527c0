//! The programs: they take tiles as they come and do the steps of the parameters with each.
//!
//! Parameters, in words:
//!
//! | word | |
//! |---|---|
//! | 0 | how often the second operand changes, once if there is none; in the upper half tiles of the first operand for each of the second |
//! | 1 | a byte each: steps with each tile of the first operand; whether there is a second one; steps with its first tile alone, which come first and prepare something, often 0; steps with each other tile of it, before those with tiles of the first, often 0 |
//! | 2 | bytes of the steps with the first tile alone; in the upper half those of the steps with each other tile |
//! | 3 | a byte each, in units of 128 bytes: how far apart the two buffers of A, B and the result are, by which tiles take turns; 0 if there is one |
//! | 4 on | the steps, in the order of word 2, those with each tile of the first operand last: see [`Step::encode`] |
//!
//! The program for chains ([`Elements::ARRIVING`]) has one place for tiles of each, and other words for how these come:
//!
//! | word | |
//! |---|---|
//! | 3 | a byte each: turns of a tile of A, of B and of the result, and of the first tile of B if that prepares something |
//! | 4 | a bit for each word of a tile's last turn: whether it is the result's |
//! | 5 on | the steps |

use super::blocks;
use super::compute::compute;
use super::functions::{Function, Repertoire};
use super::operands::Operands;
use super::rotation;
use super::step::{OFFSET_BYTES, Slot, Step, VECTOR_BYTES};
use crate::array::{Elements, Place};
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, CoreError, CoreProgram, Count, LoopForm, Reg};
use crate::numerics::{Unit, UnitProgram, written_for};
use aie_isa::Isa;

/// Most steps that fit the parameters.
pub const MOST_STEPS: u32 = (Elements::PARAMETER_WORDS - 5) / Step::MOST_WORDS;
/// The unit of distances between buffers.
pub const STRIDE_BYTES: u32 = 1 << STRIDE_SHIFT;
const STRIDE_SHIFT: i64 = 7;

/// Where the addresses of the slots are.
const TABLE: u32 = Elements::OWN;
/// Vectors.
const VECTORS: u32 = TABLE + 64;
/// A tile.
const SCRATCH: u32 = VECTORS + Slot::VECTORS * VECTOR_BYTES;
/// Words of rotations: see [`super::rotation`].
const FACTORS: u32 = SCRATCH + 4 * Slot::SCRATCH_WORDS;

/// Offset of a slot of one vector in the core's data memory, for a dispatch to write it.
#[must_use]
pub(super) fn vector_offset(slot: Slot) -> Option<u32> {
    let index = [Slot::V0, Slot::V1, Slot::V2].iter().position(|known| *known == slot)? as u32;
    Some(VECTORS + index * VECTOR_BYTES - CoreBuilder::OWN_MEMORY)
}

/// Where the program has its parameters and the addresses of the slots, which take turns with each tile.
#[derive(Clone, Copy)]
struct Memory {
    parameters: AliasRegion,
    table: Reg,
}

impl Memory {
    /// A word of the parameters.
    fn word(self, b: &mut CoreBuilder, index: i64) -> Reg {
        let block = b.pointer_at(self.parameters, Elements::PARAMETERS);
        let word = b.reg(Class::Scalar);
        b.load(word, block, Address::At(4 * index));
        word
    }

    /// Sets the address of a slot.
    fn place(self, b: &mut CoreBuilder, slot: Slot, address: u32) {
        let address = b.scalar(address.into());
        b.store(address, self.table, Address::At(4 * slot as i64));
    }

    /// Takes the other buffer of a ring, whose number is that of its distance among the parameters.
    fn turn(self, b: &mut CoreBuilder, slot: Slot, ring: i64, place: Place) {
        let (strides, address) = (self.word(b, 3), b.reg(Class::Scalar));
        let units = field(b, strides, 8 * ring, 0xFF);
        let stride = b.binary("lshl", units, STRIDE_SHIFT);
        let sum = b.binary("add", stride, i64::from(2 * place.address));
        b.load(address, self.table, Address::At(4 * slot as i64));
        b.binary_into(address, "sub", sum, address);
        b.store(address, self.table, Address::At(4 * slot as i64));
    }
}

/// Bits of a word from one on.
fn field(b: &mut CoreBuilder, word: Reg, from: i64, mask: i64) -> Reg {
    let word = if from > 0 { b.binary("lshl", word, -from) } else { word };
    b.binary("and", word, mask)
}

/// The program of an instruction set.
///
/// # Errors
/// [`CoreError`], when it does not fit.
pub fn program(isa: &'static Isa, repertoire: Repertoire, loops: LoopForm) -> Result<CoreProgram, CoreError> {
    written_for(isa, &Steps(repertoire)).finish_with(loops)
}

/// Does the steps of its parameters, with functions of a repertoire.
struct Steps(Repertoire);

impl UnitProgram for Steps {
    fn write<U: Unit>(&self, b: &mut CoreBuilder, unit: U) {
        let parameters = b.region("parameters");
        let table_region = b.region("table");
        let minus_one = b.scalar(-1);
        let table = b.pointer_at(table_region, TABLE);
        let memory = Memory { parameters, table };
        for (slot, address) in [
            (Slot::Scratch, SCRATCH),
            (Slot::V0, VECTORS),
            (Slot::V1, VECTORS + VECTOR_BYTES),
            (Slot::V2, VECTORS + 2 * VECTOR_BYTES),
            (Slot::Factors, FACTORS),
            (Slot::Positions, rotation::POSITIONS),
        ] {
            memory.place(b, slot, address);
        }
        let functions = Functions { all: self.0.functions(), overlapping: self.0.functions() };
        let is_chained = self.0.is_chained();
        b.forever(|b| {
            if is_chained {
                blocks::wait(b, minus_one);
            } else {
                b.acquire(Elements::GO, minus_one);
            }
            for (slot, place) in [(Slot::A, Elements::A), (Slot::B, Elements::B), (Slot::Result, Elements::RESULT)] {
                memory.place(b, slot, place.address);
            }
            let (tiles, counts) = (memory.word(b, 0), memory.word(b, 1));
            let [outer, inner] = [0, 16].map(|from| field(b, tiles, from, 0xFFFF));
            let [steps, has_b, prepared, each_b] = [0, 8, 16, 24].map(|from| field(b, counts, from, 0xFF));
            b.repeat(Count::from(outer).at_least(1), |b| {
                b.when(has_b, |b| {
                    if is_chained {
                        let turns = memory.word(b, 3);
                        let [each, first] = [8, 24].map(|from| field(b, turns, from, 0xFF));
                        let turns = b.select(prepared, first, each);
                        blocks::take(b, Elements::B, turns, minus_one);
                    } else {
                        b.acquire(Elements::B.full, minus_one);
                    }
                });
                // A round begins with the steps with the tile of the second operand alone, if there are any, without a tile of the
                // first. After the first tile's preparation that is all.
                let one = b.scalar(1);
                let first_record = b.scalar((Elements::PARAMETERS + 4 * self.0.header_words()).into());
                let lists = memory.word(b, 2);
                let bytes = field(b, lists, 0, 0xFFFF);
                let behind = b.add(first_record, bytes);
                let alone = b.select(prepared, prepared, each_b);
                let has_a = b.binary("eq", alone, 0);
                let bytes = b.binary("lshl", lists, -16);
                let steps_at = b.add(behind, bytes);
                let start = b.select(prepared, first_record, behind);
                let now_steps = b.select(has_a, steps, alone);
                let more = b.binary("sub", one, has_a);
                let tiles = b.add(inner, more);
                let tiles = b.select(prepared, one, tiles);
                b.repeat(Count::from(tiles).at_least(1), |b| {
                    b.when(has_a, |b| {
                        if is_chained {
                            let turns = memory.word(b, 3);
                            let turns = field(b, turns, 0, 0xFF);
                            blocks::take(b, Elements::A, turns, minus_one);
                        } else {
                            b.acquire(Elements::A.full, minus_one);
                            b.acquire(Elements::RESULT.empty, minus_one);
                        }
                    });
                    let record = b.pointer(parameters);
                    b.mov(record, start);
                    b.repeat(Count::from(now_steps).at_least(1), |b| {
                        step(b, unit, functions, record, table);
                    });
                    b.when(has_a, |b| {
                        if is_chained {
                            let [turns, kept] = [3, 4].map(|index| memory.word(b, index));
                            let turns = field(b, turns, 16, 0xFF);
                            return blocks::give(b, unit, turns, kept, minus_one);
                        }
                        b.release(Elements::A.empty, 1);
                        b.release(Elements::RESULT.full, 1);
                        memory.turn(b, Slot::A, 0, Elements::A);
                        memory.turn(b, Slot::Result, 2, Elements::RESULT);
                    });
                    b.constant_into(has_a, 1);
                    b.mov(now_steps, steps);
                    b.mov(start, steps_at);
                });
                if !is_chained {
                    b.when(has_b, |b| {
                        b.release(Elements::B.empty, 1);
                        memory.turn(b, Slot::B, 1, Elements::B);
                    });
                }
                b.constant_into(prepared, 0);
            });
        });
    }
}

/// The functions of a program by their numbers.
#[derive(Clone, Copy)]
pub(in crate::families) struct Functions {
    pub all: &'static [Function],
    /// Those whose iterations overlap, if their form says so. Such a loop is there twice; all others are short rather than fast.
    pub overlapping: &'static [Function],
}

/// One step: its operands, then its function. `record` points to the step's words, `table` to the addresses of the slots.
pub(in crate::families) fn step<U: Unit>(b: &mut CoreBuilder, unit: U, functions: Functions, record: Reg, table: Reg) {
    let [operands, counts] = [(); 2].map(|()| {
        let word = b.reg(Class::Scalar);
        b.load(word, record, Address::Then(4));
        word
    });
    let constants = [0, 4, 8, 12].map(|offset| {
        let word = b.reg(Class::Scalar);
        b.load(word, record, Address::At(offset));
        word
    });
    let part = |b: &mut CoreBuilder, class, word, from, mask| {
        let (bits, part) = (field(b, word, from, mask), b.reg(class));
        b.mov(part, bits);
        part
    };
    let used = part(b, Class::Modifier, counts, 24, 0xFF);
    b.advance(record, used);
    let number = field(b, operands, 0, 0xFF);
    let places = [8, 16, 24].map(|from| {
        let index = part(b, Class::Jump, operands, from, 0x3C);
        (index, part(b, Class::Modifier, operands, from, VECTOR_BYTES.into()))
    });
    let offset = {
        let (halves, offset) = (field(b, counts, 12, 0xFFF), b.reg(Class::Modifier));
        let bytes = b.binary("lshl", halves, i64::from(OFFSET_BYTES.ilog2()));
        b.mov(offset, bytes);
        offset
    };
    let vectors = field(b, counts, 0, 0xFFF);
    // Loads and stores of one step do not depend on each other but for what a step reads of the vector that it writes.
    let regions = ["first", "second", "target", "present"].map(|name| b.region(name));
    let pointer = |b: &mut CoreBuilder, region: AliasRegion, index: Reg| {
        let pointer = b.pointer(region);
        b.load(pointer, table, Address::Index(index));
        pointer
    };
    let first = pointer(b, regions[0], places[0].0);
    let second = pointer(b, regions[1], places[1].0);
    let target = pointer(b, regions[2], places[2].0);
    b.advance(first, offset);
    b.advance(target, offset);
    let present = b.pointer(regions[3]);
    b.mov(present, target);
    let operands = Operands {
        first: (first, places[0].1),
        second: (second, places[1].1),
        target: (target, places[2].1),
        present,
        vectors,
        constants,
        overlapping: functions.overlapping,
    };
    b.choose(number, functions.all.len() as u32, |b, number| {
        if let Some(function) = functions.all.get(number as usize) {
            compute(b, unit, &operands, *function);
        }
    });
}
