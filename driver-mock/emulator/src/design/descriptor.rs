//! Buffer descriptors as people read them: sizes and steps instead of wraps, addresses with their owner, locks by the tile that
//! has them.

use super::replay::Written;
use aie_hal::format::bd::{CoreBd, MemTileBd, ShimBd};
use aie_hal::format::register::TileKind;
use serde::Serialize;
use std::ops::Range;

/// Whose memory or lock is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The tile itself.
    Own,
    /// The tile below.
    South,
    /// The tile to the left.
    West,
    /// The tile above.
    North,
    /// The tile to the right.
    East,
    /// No tile: the number is too great.
    Nobody,
}

/// Where a transfer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "in", rename_all = "snake_case")]
pub enum Address {
    /// In the data memory of a tile.
    Tile {
        /// Whose.
        owner: Owner,
        /// Byte there.
        byte: u32,
    },
    /// In the host's memory.
    Host {
        /// Device address.
        byte: u64,
    },
    /// In an argument of the kernel.
    Argument {
        /// Its position in the dispatch's list.
        argument: u16,
        /// Bytes from its start.
        byte: u64,
    },
}

/// One dimension of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Dimension {
    /// How many, without padding.
    pub size: u64,
    /// Words from one to the next.
    pub step: u32,
    /// Zeros in front, in units of the dimension inside.
    pub zeros_before: u32,
    /// Zeros behind.
    pub zeros_after: u32,
}

impl Dimension {
    /// With padding.
    fn padded(self) -> u64 {
        self.size + u64::from(self.zeros_before) + u64::from(self.zeros_after)
    }
}

/// What changes from run to run of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Iteration {
    /// Number of iterations, after which it starts again.
    pub size: u32,
    /// Words added for each.
    pub step: u32,
    /// The one it is at.
    pub current: u32,
}

/// A lock that a descriptor takes or gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LockUse {
    /// Whose.
    pub owner: Owner,
    /// Its number there.
    pub lock: u8,
    /// Acquire: below 0, waits until the lock is at least the negative of it and adds it; else waits until it is equal.
    /// Release: adds it.
    pub value: i8,
}

/// The header that is sent in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PacketHeader {
    /// Stream id, by which switches route.
    pub id: u8,
    /// Packet type.
    pub packet_type: u8,
}

/// A buffer descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    /// Its number.
    pub id: u8,
    /// Whether it may be used.
    pub valid: bool,
    /// Where it begins.
    pub address: Address,
    /// Words that are moved, padding included.
    pub words: u64,
    /// Outermost first, as IRON writes them. Empty: consecutive words.
    pub dimensions: Vec<Dimension>,
    /// None: every run is the same.
    pub iteration: Option<Iteration>,
    /// Lock acquired before the first word.
    pub acquire: Option<LockUse>,
    /// Lock released after the last word.
    pub release: Option<LockUse>,
    /// The next descriptor.
    pub next: Option<u8>,
    /// The header that is sent, if one is.
    pub packet: Option<PacketHeader>,
    /// The descriptor that the receiver is asked to use, if it takes packets out of order.
    pub out_of_order: u8,
    /// Whether the last word is sent without TLAST.
    pub suppress_tlast: bool,
    /// Whether the data is compressed.
    pub compress: bool,
}

/// Fields that all kinds of tiles have under the same name.
macro_rules! common {
    ($bd:ident, $id:expr, $raw:expr, $address:expr, $acquire:expr, $release:expr, $compress:expr) => {{
        let raw: &[Raw] = &$raw;
        let iterates = $bd.iteration_wrap > 1;
        Descriptor {
            id: $id,
            valid: $bd.valid,
            address: $address,
            words: $bd.length.into(),
            dimensions: dimensions($bd.length.into(), raw),
            iteration: iterates.then_some(Iteration {
                size: $bd.iteration_wrap,
                step: $bd.iteration_step,
                current: $bd.iteration,
            }),
            acquire: $bd.acquire.then(|| $acquire($bd.acquire_lock, $bd.acquire_value)),
            release: ($bd.release_value != 0).then(|| $release($bd.release_lock, $bd.release_value)),
            next: $bd.use_next.then_some($bd.next as u8),
            packet: $bd
                .enable_packet
                .then_some(PacketHeader { id: $bd.packet_id as u8, packet_type: $bd.packet_type as u8 }),
            out_of_order: $bd.out_of_order_id as u8,
            suppress_tlast: $bd.suppress_tlast,
            compress: $compress,
        }
    }};
}

/// Step, wrap, zeros before and after, as the registers have them.
type Raw = (u32, u32, u32, u32);

impl Descriptor {
    /// Descriptor `id` of a tile, as it was written.
    pub(super) fn of(kind: TileKind, id: u8, written: &Written) -> Self {
        let words = |first: u32| std::array::from_fn(|index| written.word(first + 4 * index as u32));
        let own = |lock: u32, value: i8| LockUse { owner: Owner::Own, lock: lock as u8, value };
        match kind {
            TileKind::Core => {
                let six: [u32; CoreBd::WORDS] =
                    std::array::from_fn(|index| written.word(CoreBd::register(id) + 4 * index as u32));
                let bd = CoreBd::decode(&six);
                let address = Address::Tile { owner: Owner::Own, byte: 4 * bd.address };
                let raw = [(bd.d0_step, bd.d0_wrap, 0, 0), (bd.d1_step, bd.d1_wrap, 0, 0), (bd.d2_step, 0, 0, 0)];
                common!(bd, id, raw, address, own, own, bd.compress)
            }
            TileKind::Mem => {
                let bd = MemTileBd::decode(&words(MemTileBd::register(id)));
                let sides = [Owner::West, Owner::Own, Owner::East, Owner::Nobody];
                let memory = bd.address / MemTileBd::OWN_MEMORY;
                let byte = 4 * (bd.address % MemTileBd::OWN_MEMORY);
                let address = Address::Tile { owner: sides[memory.min(3) as usize], byte };
                let raw = [
                    (bd.d0_step, bd.d0_wrap, bd.d0_zero_before, bd.d0_zero_after),
                    (bd.d1_step, bd.d1_wrap, bd.d1_zero_before, bd.d1_zero_after),
                    (bd.d2_step, bd.d2_wrap, bd.d2_zero_before, bd.d2_zero_after),
                    (bd.d3_step, 0, 0, 0),
                ];
                let lock = |lock: u32, value: i8| {
                    let owner = sides[(lock / 64).min(3) as usize];
                    LockUse { owner, lock: (lock % 64) as u8, value }
                };
                common!(bd, id, raw, address, lock, lock, bd.compress)
            }
            TileKind::Shim => {
                let bd = ShimBd::decode(&words(ShimBd::register(id)));
                let patched = written.patches.get(&id);
                let address = match patched {
                    Some((argument, offset)) => Address::Argument { argument: *argument, byte: *offset },
                    None => Address::Host { byte: bd.address() },
                };
                let raw = [(bd.d0_step, bd.d0_wrap, 0, 0), (bd.d1_step, bd.d1_wrap, 0, 0), (bd.d2_step, 0, 0, 0)];
                common!(bd, id, raw, address, own, own, false)
            }
        }
    }

    /// From the first byte that the transfer touches, relative to its memory or argument, to behind the last one; of all
    /// iterations.
    pub fn span(&self) -> Range<u64> {
        let start = match self.address {
            Address::Tile { byte, .. } => byte.into(),
            Address::Host { byte } | Address::Argument { byte, .. } => byte,
        };
        if self.words == 0 {
            return start..start;
        }
        let last = |size: u64, step: u32| size.saturating_sub(1).saturating_mul(step.into());
        let inside = match &self.dimensions[..] {
            [] => self.words - 1,
            dimensions => dimensions.iter().fold(0, |sum: u64, d| sum.saturating_add(last(d.size, d.step))),
        };
        let iterations = self.iteration.map_or(0, |iteration| last(iteration.size.into(), iteration.step));
        start..start.saturating_add(inside.saturating_add(iterations).saturating_add(1).saturating_mul(4))
    }
}

/// Sizes and steps, outermost first. A wrap of 0 never ends: the dimension takes what is left of the length.
fn dimensions(words: u64, raw: &[Raw]) -> Vec<Dimension> {
    let mut found = Vec::new();
    let mut inside = 1;
    for (step, wrap, zeros_before, zeros_after) in raw.iter().copied() {
        let left = words.div_ceil(inside);
        let size = if wrap == 0 { left } else { u64::from(wrap) };
        let dimension = Dimension { size, step, zeros_before, zeros_after };
        if !found.is_empty() && wrap == 0 && left <= 1 {
            break;
        }
        found.push(dimension);
        inside = inside.saturating_mul(dimension.padded().max(1));
        if wrap == 0 {
            break;
        }
    }
    while found.len() > 1 && found.last().is_some_and(|dimension: &Dimension| dimension.padded() == 1) {
        found.pop();
    }
    if let [only] = found[..]
        && only.step == 1
        && only.size >= words
        && only.zeros_before + only.zeros_after == 0
    {
        return Vec::new();
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn sizes(words: u64, raw: &[(u32, u32)]) -> Vec<(u64, u32)> {
        let raw: Vec<Raw> = raw.iter().map(|(step, wrap)| (*step, *wrap, 0, 0)).collect();
        dimensions(words, &raw).iter().map(|dimension| (dimension.size, dimension.step)).collect()
    }

    #[rstest]
    #[case::linear(64, &[(1, 0), (1, 0), (1, 0)], &[])]
    #[case::linear_with_a_full_wrap(64, &[(1, 64), (1, 0), (1, 0)], &[])]
    #[case::strided(64, &[(2, 0), (1, 0), (1, 0)], &[(64, 2)])]
    #[case::rows(64, &[(1, 16), (32, 0), (1, 0)], &[(4, 32), (16, 1)])]
    #[case::rows_in_full(64, &[(1, 16), (32, 4), (1, 0)], &[(4, 32), (16, 1)])]
    #[case::planes(256, &[(1, 4), (8, 8), (64, 0)], &[(8, 64), (8, 8), (4, 1)])]
    #[case::the_last_row_is_not_full(20, &[(1, 16), (32, 0), (1, 0)], &[(2, 32), (16, 1)])]
    #[case::nothing(0, &[(1, 0), (1, 0), (1, 0)], &[])]
    fn wraps_become_sizes(#[case] words: u64, #[case] raw: &[(u32, u32)], #[case] expected: &[(u64, u32)]) {
        assert_eq!(sizes(words, raw), expected);
    }

    #[test]
    fn padding_counts_in_the_length() {
        // Rows of 6 words between 1 and 2 zeros, 2 of them, between 1 row of zeros and none: 3 rows of 9 words.
        let found = dimensions(27, &[(1, 6, 1, 2), (6, 2, 1, 0), (1, 0, 0, 0), (1, 0, 0, 0)]);
        let of = |size, step, zeros_before, zeros_after| Dimension { size, step, zeros_before, zeros_after };
        assert_eq!(found, [of(2, 6, 1, 0), of(6, 1, 1, 2)]);
    }

    #[test]
    fn spans_end_behind_the_last_word() {
        let mut written = Written::default();
        let bd = CoreBd {
            address: 0x100,
            length: 8,
            d0_wrap: 4,
            d0_step: 1,
            d1_step: 16,
            iteration_wrap: 2,
            iteration_step: 100,
            valid: true,
            ..CoreBd::default()
        };
        for (index, word) in bd.encode().unwrap().into_iter().enumerate() {
            written.words.insert(CoreBd::register(3) + 4 * index as u32, word);
        }
        let descriptor = Descriptor::of(TileKind::Core, 3, &written);
        // Words 0x100 + 3 + 16 + 100, from byte 0x400 on.
        assert_eq!(descriptor.span(), 0x400..0x400 + 4 * 120);
        assert_eq!(descriptor.dimensions.len(), 2);
    }
}
