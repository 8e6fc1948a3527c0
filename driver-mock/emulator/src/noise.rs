//! Numbers that look random, the same for the same seed: for what silicon leaves undefined.

/// A sequence of numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise(u64);

impl Noise {
    /// The sequence of a seed, another one for each `part` of what it is for.
    pub fn new(seed: u64, part: u64) -> Self {
        let mut parts = Self(seed);
        Self(parts.number() ^ Self(part).number())
    }

    /// The next number: splitmix64, by Sebastiano Vigna.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Fills bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.number().to_le_bytes()[..chunk.len()]);
        }
    }
}
