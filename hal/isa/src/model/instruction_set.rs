//! Which instruction set.

/// An instruction set with tables. What instructions do differs in more ways than tables can say, so code that depends on it matches
/// on this: a new set is a new variant, and the compiler lists the places that have to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// XDNA (npu1).
    Aie2,
    /// XDNA2 (npu4 and its relatives).
    Aie2p,
}

impl InstructionSet {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Aie2, Self::Aie2p];

    /// Its name, as `instruction_set` in `hal`'s arch files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aie2 => "aie2",
            Self::Aie2p => "aie2p",
        }
    }

    /// What cores with it are known to do wrong.
    pub fn errata(self) -> Errata {
        match self {
            Self::Aie2 => Errata { unaligned_targets: false, first_of_loaded: true },
            Self::Aie2p => Errata { unaligned_targets: true, first_of_loaded: false },
        }
    }
}

/// What cores are known to do wrong, on silicon, where the tables say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errata {
    /// After a branch to an address that is no multiple of 16 they go on at the multiple before it, if instructions are there.
    pub unaligned_targets: bool,
    /// `vextract` of element 0, chosen by a register, of a vector that `vlda` has loaded gives something else.
    pub first_of_loaded: bool,
}
