//! What programs find where nothing was written: in the registers of a core, and in the memories around it.

/// What is in memory, and in the registers of cores after a reset, before something is written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// Noise of this seed: as on silicon, where it is what others left.
    Noise(u64),
    /// Zeros, for programs whose results were only ever seen there.
    Zero,
}

impl Default for Undefined {
    /// The same noise in every run.
    fn default() -> Self {
        Self::Noise(0x6169_6532)
    }
}
