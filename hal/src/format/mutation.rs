//! Test support: deterministic mutations of valid files.

use super::words::WORD;
use fastrand::Rng;

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
    let mut random = Rng::with_seed(count as u64);
    for _ in 0..count {
        let mut bytes = file.to_vec();
        for _ in 0..=random.usize(..3) {
            if bytes.len() < WORD {
                break;
            }
            let at = random.usize(..bytes.len());
            let word_at = random.usize(..bytes.len() / WORD) * WORD;
            match random.usize(..5) {
                0 => bytes[at] ^= 1 << random.usize(..8),
                1 => put_word(&mut bytes, word_at, WORDS[random.usize(..WORDS.len())]),
                2 => put_word(&mut bytes, word_at, random.u32(..)),
                3 => bytes.truncate(at),
                _ => {
                    let end = at + random.usize(..bytes.len() - at);
                    let repeated = bytes[at..end].to_vec();
                    bytes.extend(repeated);
                }
            }
        }
        check(&bytes);
    }
}
