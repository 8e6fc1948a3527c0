//! Program memory, and the bundles in it that have been decoded and lowered.
//!
//! A bundle is decoded when it is first executed, and stays until its bytes change: a write of the same bytes, as the next load
//! of the same program is, keeps everything.

use super::lower::MicroOperation;
use super::operation::Operation;
use super::registers::Layout;
use aie_isa::{Access, DecodeError, Isa};
use std::ops::Range;

/// The longest bundle.
const LONGEST: usize = 16;

/// A bundle as the core executes it.
#[derive(Clone, Copy, Debug)]
pub struct Bundle {
    pub bytes: u32,
    first: u32,
    end: u32,
    /// Whether it uses a lock or a stream, for which it can have to wait.
    pub waits: bool,
    /// Whether it accesses data memory.
    pub accesses: bool,
    /// Whether it stores less than a word.
    pub stores_part: bool,
    /// Whether it has a branch that leaves a return address.
    pub links: bool,
}

impl Bundle {
    /// The numbers of its operations; no-operations have none.
    pub fn operations(&self) -> Range<usize> {
        self.first as usize..self.end as usize
    }
}

/// Program memory of one core.
#[derive(Debug)]
pub struct Program {
    memory: Vec<u8>,
    /// By address in units of two bytes: index of the decoded bundle plus one.
    index: Vec<u32>,
    bundles: Vec<Bundle>,
    /// Operations of all bundles that have been decoded, those included whose bytes have changed since: one can be in flight.
    operations: Vec<MicroOperation>,
    /// For each row of the instruction table, whether it has been decoded.
    decoded: Vec<bool>,
    stale: bool,
}

impl Program {
    pub fn new(bytes: usize) -> Self {
        Self {
            memory: vec![0; bytes],
            index: vec![0; bytes / 2],
            bundles: Vec::new(),
            operations: Vec::new(),
            decoded: Vec::new(),
            stale: false,
        }
    }

    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Writes program memory; bundles whose bytes change will be decoded again. False beyond its end.
    pub fn write(&mut self, address: usize, bytes: &[u8]) -> bool {
        let Some(place) = self.memory.get_mut(address..address.saturating_add(bytes.len())) else {
            return false;
        };
        if place == bytes {
            return true;
        }
        place.copy_from_slice(bytes);
        if !self.bundles.is_empty() {
            let end = ((address + bytes.len()).div_ceil(2)).min(self.index.len());
            self.index[address.saturating_sub(LONGEST) / 2..end].fill(0);
            self.stale = true;
        }
        true
    }

    /// Drops decoded bundles whose bytes have changed. Nothing may be in flight.
    pub fn tidy(&mut self) {
        if self.stale {
            self.index.fill(0);
            self.bundles.clear();
            self.operations.clear();
            self.stale = false;
        }
    }

    /// The bundle at an address, decoded unless it is known.
    pub fn fetch(&mut self, isa: &'static Isa, layout: &Layout, address: u32) -> Result<Bundle, DecodeError> {
        let slot = address as usize / 2;
        match self.index.get(slot) {
            Some(0) if address.is_multiple_of(2) => {}
            Some(known) if address.is_multiple_of(2) => return Ok(self.bundles[*known as usize - 1]),
            _ => return Err(DecodeError::Truncated { needed: 2, available: 0 }),
        }
        let decoded = isa.decode(&self.memory[address as usize..])?;
        let operations = decoded.instructions().map(|decoded| MicroOperation::new(isa, layout, decoded));
        self.decoded.resize(isa.instructions().len(), false);
        decoded.instructions().for_each(|decoded| self.decoded[decoded.instruction.index] = true);
        let first = self.operations.len();
        self.operations.extend(operations.filter(|operation| operation.operation != Operation::Nop));
        let operations = &self.operations[first..];
        let bundle = Bundle {
            bytes: decoded.format.bytes() as u32,
            first: first as u32,
            end: self.operations.len() as u32,
            waits: operations.iter().any(|operation| {
                let flags = operation.instruction.flags;
                flags.lock || flags.stream || flags.cascade
            }),
            accesses: operations.iter().any(MicroOperation::accesses_memory),
            stores_part: operations
                .iter()
                .any(|operation| matches!(operation.instruction.access, Some(Access::PartWordStore { .. }))),
            links: operations
                .iter()
                .any(|operation| matches!(operation.operation, Operation::Branch { link: true, .. })),
        };
        self.bundles.push(bundle);
        self.index[slot] = self.bundles.len() as u32;
        Ok(bundle)
    }

    /// Whether the bytes between two addresses are whole bundles that do nothing.
    pub fn does_nothing(&mut self, isa: &'static Isa, layout: &Layout, mut from: u32, to: u32) -> bool {
        while from < to {
            match self.fetch(isa, layout, from) {
                Ok(bundle) if bundle.operations().is_empty() => from += bundle.bytes,
                _ => return false,
            }
        }
        from == to
    }

    /// Indices of the instructions that have been decoded since the program memory was made.
    pub fn decoded(&self) -> impl Iterator<Item = usize> {
        self.decoded.iter().enumerate().filter_map(|(index, decoded)| decoded.then_some(index))
    }

    /// An operation of a bundle that [`Program::fetch`] has given.
    pub fn operation(&self, number: usize) -> &MicroOperation {
        &self.operations[number]
    }
}
