//! What is given to the checker.

use aie_isa::Isa;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a core's program memory (AM020; both generations).
pub const PROGRAM_BYTES: u32 = 16 << 10;

/// Where a core sees data memory: four tiles of 64 KiB each, its neighbours' and its own.
const DATA: Range<u32> = 0x4_0000..0x8_0000;

/// A program of one core, and what its author states about it.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    /// The instruction set.
    pub isa: &'static Isa,
    /// Pieces of program memory: address and bytes.
    pub pieces: Vec<(u32, &'a [u8])>,
    /// Where cores begin to execute. All registers are undefined there, but control and status registers, which a reset sets.
    pub entries: Vec<u32>,
    /// Where branches through a register can go: address of the bundle with the branch, addresses of its targets. Targets that
    /// follow from constants need not be stated.
    pub targets: BTreeMap<u32, Vec<u32>>,
    /// Data memory that the program may use, as the core sees it.
    pub data: Vec<Range<u32>>,
}

impl<'a> Program<'a> {
    /// A program in one piece that begins at address 0, which may use the data memory of its own tile and of all neighbours.
    pub fn new(isa: &'static Isa, code: &'a [u8]) -> Self {
        Self::from_pieces(isa, vec![(0, code)])
    }

    /// The same in several pieces; none may overlap another. Execution begins at address 0.
    pub fn from_pieces(isa: &'static Isa, pieces: Vec<(u32, &'a [u8])>) -> Self {
        Self { isa, pieces, entries: vec![0], targets: BTreeMap::new(), data: vec![DATA] }
    }

    /// States where the branch at an address can go.
    #[must_use]
    pub fn with_targets(mut self, branch: u32, targets: impl IntoIterator<Item = u32>) -> Self {
        self.targets.entry(branch).or_default().extend(targets);
        self
    }

    /// States which data memory the program may use, instead of all that a core can see.
    #[must_use]
    pub fn with_data(mut self, data: Vec<Range<u32>>) -> Self {
        self.data = data;
        self
    }

    /// The bytes from an address to the end of the piece that it is in.
    pub(super) fn bytes_at(&self, address: u32) -> Option<&'a [u8]> {
        let (start, bytes) = self
            .pieces
            .iter()
            .find(|(start, bytes)| address.checked_sub(*start).is_some_and(|offset| (offset as usize) < bytes.len()))?;
        bytes.get((address - start) as usize..)
    }
}
