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

    /// The name of the generation that has it, as in `hal`'s arch files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aie2 => "aie2",
            Self::Aie2p => "aie2p",
        }
    }
}
