//! Banks of a core tile's data memory.
//!
//! Two accesses of one bundle that need the same bank take a cycle longer than the bundle itself; the emulator counts that, the
//! checker notes it, and authors of kernels place buffers by it. Source: AM020 for the banks; that a load and a store of a bundle
//! conflict as two loads do was measured on npu1 by others (FIM43-Redeye/xdna-emu, findings of 2026-07-13).

/// Bytes of a tile's data memory as cores see it.
const TILE_BYTES: u32 = 0x1_0000;
/// Bytes of a logical bank: two physical ones, which take turns.
pub const BANK_BYTES: u32 = 0x4000;
/// Bytes after which the other physical bank of a logical one follows: what one of them gives in a cycle.
const INTERLEAVE: u32 = 16;

/// Whether two accesses of data memory, each an address as the core sees it and a length in bytes, need one physical bank.
#[must_use]
#[inline]
pub fn share_bank(first: (u32, u32), second: (u32, u32)) -> bool {
    let logical = |address: u32| (address / TILE_BYTES, address % TILE_BYTES / BANK_BYTES);
    let half = |address: u32| address / INTERLEAVE % 2;
    let both_halves = first.1.max(second.1) > INTERLEAVE;
    logical(first.0) == logical(second.0) && (both_halves || half(first.0) == half(second.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_meet_in_a_logical_bank_words_in_a_physical_one() {
        let at = 0x7_0000;
        assert!(share_bank((at, 32), (at + 0x3fe0, 32)));
        assert!(!share_bank((at, 32), (at + 0x4000, 32)));
        assert!(!share_bank((at, 32), (0x4_0000, 32)), "that is a neighbour's memory");
        assert!(share_bank((at, 4), (at + 32, 4)));
        assert!(!share_bank((at, 4), (at + 16, 4)));
        assert!(share_bank((at, 4), (at + 16, 32)));
    }
}
