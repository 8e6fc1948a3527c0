//! Weights out of the ring, a portion at a time, with their words in order.

use super::kernel::{Kernel, Locks, OfType, Parameter};
use super::memory::{BLOCK, RING, STATE};
use super::order;
use crate::array::OWN_MEMORY;
use crate::codegen::{Address, Class, CoreBuilder, Count, Reg};

/// Where a job is in its stream of weights.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    /// The address of the next byte.
    at: Reg,
    /// Bytes from there on that have arrived and been acquired.
    here: Reg,
    /// Blocks that are still to be acquired.
    left: Reg,
}

const END: u32 = OWN_MEMORY + RING.0 + RING.1;

impl Stream {
    /// The beginning of a job: drops what is in front of its first row, which may be more than the ring holds.
    pub fn begin(b: &mut CoreBuilder, k: Kernel) {
        let stream = Self { at: k.address(b, RING), here: b.scalar(0), left: k.parameter(b, Parameter::Blocks) };
        let skipped = k.parameter(b, Parameter::Skip);
        b.when(skipped, |b| {
            b.repeat_while(|b| {
                b.acquire(Locks::WEIGHTS.full, -1);
                b.binary_into(stream.left, "sub", stream.left, 1);
                let block = b.scalar(BLOCK.into());
                let more = b.binary("ltu", block, skipped);
                b.when(more, |b| {
                    b.release(Locks::WEIGHTS.empty, 1);
                    b.emit("sub", [skipped, skipped, block]);
                    b.emit("add", [stream.at, stream.at, block]);
                    let ends = b.binary("eq", stream.at, i64::from(END));
                    b.when(ends, |b| b.binary_into(stream.at, "sub", stream.at, i64::from(RING.1)));
                });
                more
            });
            b.constant_into(stream.here, BLOCK.into());
            stream.moved(b, skipped);
        });
        stream.keep(b, k);
    }

    /// What was kept: loops over a portion need all registers.
    fn kept(b: &mut CoreBuilder, k: Kernel) -> Self {
        let from = b.pointer_at(k.state, OWN_MEMORY + STATE.0);
        let [at, here, left] = [0, 4, 8].map(|offset| {
            let word = b.reg(Class::Scalar);
            b.load(word, from, Address::At(offset));
            word
        });
        Self { at, here, left }
    }

    fn keep(self, b: &mut CoreBuilder, k: Kernel) {
        let to = b.pointer_at(k.state, OWN_MEMORY + STATE.0);
        for (word, offset) in [self.at, self.here, self.left].into_iter().zip([0, 4, 8]) {
            b.store(word, to, Address::At(offset));
        }
    }

    /// The end of a job: drops what is behind its last row, so that the ring is where it began.
    pub fn end(b: &mut CoreBuilder, k: Kernel) {
        let Self { here, left, .. } = Self::kept(b, k);
        let held = Self::blocks(b, here);
        b.when(held, |b| b.release(Locks::WEIGHTS.empty, held));
        b.repeat(left, |b| {
            b.acquire(Locks::WEIGHTS.full, -1);
            b.release(Locks::WEIGHTS.empty, 1);
        });
    }

    /// Blocks in which so many bytes lie, of which only the first can be gone in part.
    fn blocks(b: &mut CoreBuilder, bytes: Reg) -> Reg {
        let up = b.add(bytes, i64::from(BLOCK - 1));
        b.binary("lshl", up, -i64::from(BLOCK.trailing_zeros()))
    }

    /// Waits until `bytes` bytes are there.
    fn arrived(self, b: &mut CoreBuilder, bytes: Reg) {
        let lacks = b.binary("ltu", self.here, bytes);
        b.when(lacks, |b| {
            let missing = b.binary("sub", bytes, self.here);
            let (blocks, none) = (Self::blocks(b, missing), b.scalar(0));
            let taken = b.binary("sub", none, blocks);
            b.acquire(Locks::WEIGHTS.full, taken);
            b.emit("sub", [self.left, self.left, blocks]);
            let arrived = b.binary("lshl", blocks, i64::from(BLOCK.trailing_zeros()));
            b.emit("add", [self.here, self.here, arrived]);
        });
    }

    /// Goes on behind `bytes` bytes, and frees the blocks that are done.
    fn moved(self, b: &mut CoreBuilder, bytes: Reg) {
        let before = Self::blocks(b, self.here);
        b.emit("sub", [self.here, self.here, bytes]);
        let after = Self::blocks(b, self.here);
        let done = b.binary("sub", before, after);
        b.when(done, |b| b.release(Locks::WEIGHTS.empty, done));
        b.emit("add", [self.at, self.at, bytes]);
        let ends = b.binary("geu", self.at, i64::from(END));
        b.when(ends, |b| b.binary_into(self.at, "sub", self.at, i64::from(RING.1)));
    }

    /// Puts the words of the next portion in order.
    pub fn portion(b: &mut CoreBuilder, k: Kernel) {
        let stream = Self::kept(b, k);
        let bytes = k.of_type(b, OfType::Arriving);
        stream.arrived(b, bytes);
        let behind = b.add(stream.at, bytes);
        let end = b.scalar(END.into());
        let straddles = b.binary("ltu", end, behind);
        b.when(straddles, |b| {
            // What is at the ring's beginning follows its end.
            let vectors = b.binary("sub", behind, end);
            let vectors = b.add(vectors, 63);
            let vectors = b.binary("lshl", vectors, -6);
            let (from, to) = (b.pointer_at(k.weights, OWN_MEMORY + RING.0), k.pointer(b, k.ordered, end));
            b.repeat(Count::from(vectors).at_least(1), |b| {
                let vector = b.reg(Class::X);
                b.load(vector, from, Address::Then(64));
                b.store(vector, to, Address::Then(64));
            });
        });
        order::portion(b, k, stream.at);
        stream.moved(b, bytes);
        stream.keep(b, k);
    }
}
