//! Test support: deterministic mutations of valid files.

use super::words::WORD;

/// A small deterministic generator (xorshift), so that a failure can be reproduced.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 16) % limit as u64) as usize
    }

    pub(crate) fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }
}

/// The word at byte `offset` of `file`.
pub(crate) fn word(file: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(file[offset..offset + WORD].try_into().unwrap())
}

/// Overwrites the word at byte `offset` of `file`.
pub(crate) fn put_word(file: &mut [u8], offset: usize, word: u32) {
    file[offset..offset + WORD].copy_from_slice(&word.to_le_bytes());
}

/// Calls `check` with `count` variants of `file`: bits flipped, words replaced, parts removed or repeated.
pub(crate) fn mutate(file: &[u8], count: usize, mut check: impl FnMut(&[u8])) {
    const WORDS: [u32; 8] = [0, 1, 0xFF, 0x00FF_0105, 0x00FF_0111, 0x80, 0x7FFF_FFFF, u32::MAX];
    let mut random = Random::new(count as u64);
    for _ in 0..count {
        let mut bytes = file.to_vec();
        for _ in 0..=random.below(3) {
            if bytes.len() < WORD {
                break;
            }
            let at = random.below(bytes.len());
            let word_at = random.below(bytes.len() / WORD) * WORD;
            match random.below(5) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => put_word(&mut bytes, word_at, WORDS[random.below(WORDS.len())]),
                2 => put_word(&mut bytes, word_at, random.word()),
                3 => bytes.truncate(at),
                _ => {
                    let end = at + random.below(bytes.len() - at);
                    let repeated = bytes[at..end].to_vec();
                    bytes.extend(repeated);
                }
            }
        }
        check(&bytes);
    }
}
