//! The program of a core.
//!
//! Weights arrive in groups of 16 rows, columns in pieces. Behind each group the core converts some of the columns of the next chunk, so that both
//! arrive evenly while it multiplies.

use super::super::kernel::{Kernel, Locks, Purpose};
use super::super::memory::{ARENA, ARRIVING, SUMS, WEIGHTS};
use super::super::parameters::Parameter;
use super::super::{columns, decode};
use super::blocks::{self, Blocks};
use super::matrix::Matrix;
use super::multiply::{clear, multiply};
use crate::array::{GO_LOCK, OWN_LOCKS, OWN_MEMORY};
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, CoreError, CoreProgram, Count, LoopForm, Reg};
use aie_isa::Isa;

/// What a block of columns takes in a step of 8 `k`, and a unit of 16 columns.
const BLOCK_BYTES: u32 = 64;
const UNIT_STEP_BYTES: u32 = 256;

/// The program of every core.
pub(super) fn program(isa: &'static Isa, loops: LoopForm) -> Result<CoreProgram, CoreError> {
    let mut b = CoreBuilder::new(isa);
    let (kernel, unit) = match Matrix::of(isa.set()) {
        Matrix::Floats => (Kernel::new(&mut b, Purpose::Floats), Unit::Floats),
        Matrix::Blocks => (Kernel::without_modes(&mut b, Purpose::Floats), Unit::Blocks(Blocks::new(&mut b))),
    };
    let core = Core { kernel, unit, read: b.region("sums that are read"), state: b.region("state") };
    b.forever(|b| {
        b.acquire(OWN_LOCKS + GO_LOCK, -1);
        core.phase(b);
    });
    b.finish_with(loops)
}

/// What decodes, converts and multiplies.
#[derive(Clone, Copy)]
enum Unit {
    Floats,
    Blocks(Blocks),
}

/// What is kept in memory from group to group, behind the parameters, since there are not enough registers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Chunks of all tiles that are left.
    ChunksLeft,
    /// Those of the tile; 0 in front of a tile.
    OfTile,
    /// Whether they are of a tile, and not in front of the first.
    Begun,
    /// The buffer of weights at hand.
    Weights,
    /// Converted columns at hand.
    Columns,
    /// Sums of the group at hand.
    Sums,
    /// The buffer of arriving columns, where they go to, and pieces of the chunk that are left.
    Arriving,
    Target,
    PiecesLeft,
}

/// Where the state is: between the parameters and the buffers, which begin at a multiple of 256.
const STATE: u32 = OWN_MEMORY + ARENA;

/// The parts of the program.
#[derive(Clone, Copy)]
struct Core {
    kernel: Kernel,
    unit: Unit,
    read: AliasRegion,
    state: AliasRegion,
}

impl Core {
    fn get(self, b: &mut CoreBuilder, state: State) -> Reg {
        let (at, target) = (b.pointer_at(self.state, STATE), b.reg(Class::Scalar));
        b.load(target, at, Address::At(4 * state as i64));
        target
    }

    fn set(self, b: &mut CoreBuilder, state: State, value: Reg) {
        let at = b.pointer_at(self.state, STATE);
        b.store(value, at, Address::At(4 * state as i64));
    }

    /// One phase. In front of the first chunk is one in which columns are only converted.
    fn phase(self, b: &mut CoreBuilder) {
        let k = self.kernel;
        for (state, parameter) in [
            (State::ChunksLeft, Parameter::AllChunks),
            (State::Weights, Parameter::WeightsFirst),
            (State::Arriving, Parameter::ArrivingFirst),
            (State::Columns, Parameter::Columns),
        ] {
            let value = k.parameter(b, parameter);
            self.set(b, state, value);
        }
        // The first chunk goes to where the one at hand is from then on.
        let first = self.other_columns(b);
        self.set(b, State::Columns, first);
        let none = b.scalar(0);
        self.set(b, State::Begun, none);
        self.set(b, State::OfTile, none);
        let chunks = k.parameter(b, Parameter::AllChunks);
        let chunks = b.add(chunks, 1);
        b.repeat(Count::from(chunks).at_least(2), |b| self.chunk(b));
    }

    fn chunk(self, b: &mut CoreBuilder) {
        let k = self.kernel;
        let target = self.other_columns(b);
        self.set(b, State::Target, target);
        let (left, pieces, none) = (self.get(b, State::ChunksLeft), k.parameter(b, Parameter::Pieces), b.scalar(0));
        let pieces = b.select(left, pieces, none);
        self.set(b, State::PiecesLeft, pieces);
        let left = b.add(left, -1);
        self.set(b, State::ChunksLeft, left);
        let sums = k.parameter(b, Parameter::SumsFirst);
        self.set(b, State::Sums, sums);
        let groups = k.count(b, Parameter::Groups, 1);
        b.repeat(groups, |b| {
            let begun = self.get(b, State::Begun);
            b.when(begun, |b| self.group(b));
            let (left, share) = (self.get(b, State::PiecesLeft), k.parameter(b, Parameter::Share));
            let is_less = b.binary("ltu", left, share);
            let count = b.select(is_less, left, share);
            b.repeat(count, |b| self.convert(b));
        });
        let begun = b.scalar(1);
        self.set(b, State::Begun, begun);
        // From one tile to the next.
        let (left, chunks) = (self.get(b, State::OfTile), k.parameter(b, Parameter::Chunks));
        let fewer = b.add(left, -1);
        let left = b.select(left, fewer, chunks);
        let last = b.binary("eq", left, 0);
        let left = b.select(last, chunks, left);
        self.set(b, State::OfTile, left);
        let next = self.other_columns(b);
        self.set(b, State::Columns, next);
    }

    /// Decodes 16 rows of weights of a chunk and multiplies them with all columns.
    fn group(self, b: &mut CoreBuilder) {
        let k = self.kernel;
        let (left, chunks) = (self.get(b, State::OfTile), k.parameter(b, Parameter::Chunks));
        let [weights, columns, sums] = [State::Weights, State::Columns, State::Sums].map(|state| self.get(b, state));
        let (source, number) = (k.parameter(b, Parameter::Decoded), k.parameter(b, Parameter::Weights));
        let is_first = b.binary("eq", left, chunks);
        b.when(is_first, |b| {
            b.acquire(Locks::of(SUMS).empty, -1);
            clear(b, k, sums);
        });
        b.acquire(Locks::of(WEIGHTS).full, -1);
        // Where weights are multiplied as they arrive, there is no place for decoded ones.
        let source = b.select(source, source, weights);
        match self.unit {
            Unit::Floats => decode::decode_chunk(b, k, number, [weights, source]),
            Unit::Blocks(blocks) => blocks.decode(b, k, number, [weights, source]),
        }
        let halves = k.parameter(b, Parameter::ChunkHalves);
        let halves = b.add(halves, -1);
        b.choose(halves, 2, |b, more| {
            let (halves, operands) = (more as usize + 1, [source, columns, sums]);
            match self.unit {
                Unit::Floats => multiply(b, k, self.read, halves, operands),
                Unit::Blocks(blocks) => blocks.multiply(b, k, halves, operands),
            }
        });
        b.release(Locks::of(WEIGHTS).empty, 1);
        k.other(b, weights, Parameter::WeightsBoth);
        self.set(b, State::Weights, weights);
        let bytes = k.parameter(b, Parameter::GroupBytes);
        let sums = b.add(sums, bytes);
        self.set(b, State::Sums, sums);
        let left = self.get(b, State::OfTile);
        let is_last = b.binary("eq", left, 1);
        b.when(is_last, |b| b.release(Locks::of(SUMS).full, 1));
    }

    /// The buffer of converted columns that is not at hand.
    fn other_columns(self, b: &mut CoreBuilder) -> Reg {
        let k = self.kernel;
        let (first, bytes) = (k.parameter(b, Parameter::Columns), k.parameter(b, Parameter::ChunkBytes));
        let at_hand = self.get(b, State::Columns);
        let twice = b.add(first, first);
        let both = b.add(twice, bytes);
        b.binary("sub", both, at_hand)
    }

    /// Converts a piece of columns as it arrives, a block at a time.
    fn convert(self, b: &mut CoreBuilder) {
        let k = self.kernel;
        b.acquire(Locks::of(ARRIVING).full, -1);
        let (source, target) = (self.get(b, State::Arriving), self.get(b, State::Target));
        match self.unit {
            Unit::Floats => columns::convert_piece(b, k, source, target),
            Unit::Blocks(blocks) => blocks.convert(b, k, source, target),
        }
        b.release(Locks::of(ARRIVING).empty, 1);
        let arriving = self.get(b, State::Arriving);
        k.next(b, arriving);
        self.set(b, State::Arriving, arriving);
        self.next_target(b, target);
        let left = self.get(b, State::PiecesLeft);
        let left = b.add(left, -1);
        self.set(b, State::PiecesLeft, left);
    }

    /// Where the next piece goes, from where the last one went.
    fn next_target(self, b: &mut CoreBuilder, target: Reg) {
        let k = self.kernel;
        if let Unit::Blocks(_) = self.unit {
            let units = k.parameter(b, Parameter::Units);
            let bytes = b.binary("mul", units, blocks::STEPS * blocks::STEP_BYTES);
            let next = b.add(target, bytes);
            self.set(b, State::Target, next);
            return;
        }
        let blocks = k.parameter(b, Parameter::BlocksPerUnit);
        let bytes = b.binary("mul", blocks, i64::from(BLOCK_BYTES));
        let target = b.add(target, bytes);
        // Behind the last block of a unit comes the next unit.
        let (within, bytes) =
            (b.binary("and", target, i64::from(UNIT_STEP_BYTES - 1)), k.parameter(b, Parameter::UnitBytes));
        let next = b.binary("add", target, bytes);
        let next = b.binary("add", next, -i64::from(UNIT_STEP_BYTES));
        let target = b.select(within, target, next);
        self.set(b, State::Target, target);
    }
}
