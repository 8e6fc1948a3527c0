//! What a joined stream knows of what it has written, so that nothing is written as it is already.
//!
//! - Descriptors of shims, in two operations, its words, and then the address of an argument, and those of cores. Only the stream writes them. One
//!   with iterations counts them in its own words, so that nothing is known of it.
//! - [Memory](KeptMemory) that nothing but streams writes.

use crate::format::bd::{CoreBd, ShimBd};
use crate::format::instructions::{Header, Instruction, KeptMemory};
use crate::format::tile_location;
use std::collections::BTreeMap;
use std::ops::Range;

/// Descriptors of a shim, and of a core.
const DESCRIPTORS: u8 = 16;
/// Bytes of one.
const BYTES: u64 = 32;

/// The words of a descriptor, and the argument and offset of its address.
type Descriptor = ([u32; 8], u16, u64);

/// What is known, by address.
#[derive(Default)]
pub(super) struct Known {
    descriptors: BTreeMap<u64, Descriptor>,
    kept: Vec<Range<u64>>,
    first_core_row: u8,
    words: BTreeMap<u64, u32>,
}

impl Known {
    /// Nothing yet, in a partition where this memory is kept.
    pub fn new<'a>(partition: Header, kept: impl Iterator<Item = &'a KeptMemory>) -> Self {
        let first_core_row = partition.mem_tile_rows.saturating_add(1);
        Self { kept: kept.map(KeptMemory::addresses).collect(), first_core_row, ..Self::default() }
    }

    /// How many of the next operations change nothing.
    pub fn repeated(&self, operations: &[Instruction<'_>]) -> usize {
        if let [words, patch, ..] = operations
            && let Some((address, descriptor)) = written(words, patch)
        {
            return if self.descriptors.get(&address) == Some(&descriptor) { 2 } else { 0 };
        }
        let words = operations.first().and_then(|operation| self.words_of(operation));
        usize::from(words.is_some_and(|mut words| words.all(|(at, word)| self.words.get(&at) == Some(&word))))
    }

    /// Notes what operations end with.
    pub fn learn(&mut self, operations: &[Instruction<'_>]) {
        if let [.., words, patch] = operations
            && let Some((address, descriptor)) = written(words, patch)
        {
            self.descriptors.insert(address, descriptor);
        }
        let words = operations.last().and_then(|operation| self.words_of(operation));
        let words: Vec<(u64, u32)> = words.into_iter().flatten().collect();
        self.words.extend(words);
    }

    /// The words that an operation writes, if they stay.
    fn words_of<'a>(&self, operation: &Instruction<'a>) -> Option<impl Iterator<Item = (u64, u32)> + use<'a>> {
        let Instruction::BlockWrite { address, data } = *operation else { return None };
        let (first, end) = (u64::from(address), u64::from(address) + 4 * data.len() as u64);
        let is_kept = self.kept.iter().any(|range| range.start <= first && end <= range.end);
        let (_, row, offset) = tile_location(address);
        let is_descriptor = || {
            let is_one = (0..DESCRIPTORS).any(|descriptor| CoreBd::register(descriptor) == offset);
            let words = data.exactly().filter(|_| is_one && row >= self.first_core_row);
            words.is_some_and(|words| CoreBd::decode(&words).iteration_wrap <= 1)
        };
        (is_kept || is_descriptor()).then(|| (first..end).step_by(4).zip(data.iter()))
    }

    /// Drops what an operation changes.
    pub fn forget(&mut self, operation: &Instruction<'_>) {
        let (first, bytes) = match *operation {
            Instruction::Write { address, .. } | Instruction::MaskWrite { address, .. } => (address, 4),
            Instruction::BlockWrite { address, data } => (u64::from(address), 4 * data.len() as u64),
            Instruction::AddressPatch { register, .. } => (register, 8),
            _ => return,
        };
        let end = first.saturating_add(bytes);
        self.descriptors.retain(|address, _| *address >= end || first >= address + BYTES);
        let changed: Vec<u64> = self.words.range(first.saturating_sub(3)..end).map(|(at, _)| *at).collect();
        for at in changed {
            self.words.remove(&at);
        }
    }
}

/// The descriptor of a shim that two operations write.
fn written(words: &Instruction<'_>, patch: &Instruction<'_>) -> Option<(u64, Descriptor)> {
    let (Instruction::BlockWrite { address, data }, Instruction::AddressPatch { register, argument, offset }) =
        (*words, *patch)
    else {
        return None;
    };
    let (_, 0, register_of_tile) = tile_location(address) else { return None };
    let is_one = (0..DESCRIPTORS).any(|descriptor| ShimBd::register(descriptor) == register_of_tile);
    let words = data.exactly()?;
    let iterates = ShimBd::decode(&words).iteration_wrap > 1;
    let is_patched = register == u64::from(address) + 4;
    (is_one && is_patched && !iterates).then_some((address.into(), (words, argument, offset)))
}
