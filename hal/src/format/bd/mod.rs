//! Buffer descriptors of the tile DMAs, as register words.
//!
//! A descriptor says which words a DMA channel moves, in which order, and which locks it takes. The three
//! kinds of tile have different layouts; those of aie2 and aie2p are equal (except for the largest burst).
//! The structs hold the numbers a person means: steps and iteration wraps, which the registers hold less
//! one, are held as they are. Addresses, lengths and steps count 32-bit words unless said otherwise.
//! Source: the AI Engine register reference as used by aie-rt and mlir-aie.

use super::register::{RegisterError, within};

/// How a number is held in its bits.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    /// The number less one.
    LessOne,
    /// Two's complement.
    Signed,
}

/// Where a field is: word, lowest bit, width.
#[derive(Clone, Copy)]
struct Bits {
    word: usize,
    low: u32,
    width: u32,
    form: Form,
}

impl Bits {
    fn mask(self) -> i64 {
        (1i64 << self.width) - 1
    }

    fn range(self) -> (i64, i64) {
        match self.form {
            Form::Plain => (0, self.mask()),
            Form::LessOne => (1, self.mask() + 1),
            Form::Signed => (-(1i64 << (self.width - 1)), (1i64 << (self.width - 1)) - 1),
        }
    }

    /// The field's bits in place.
    fn encode(self, field: &'static str, value: i64) -> Result<u32, RegisterError> {
        let (min, max) = self.range();
        within(field, min, max, value)?;
        let raw = if matches!(self.form, Form::LessOne) { value - 1 } else { value };
        // At most 32 bits remain after the mask.
        Ok(((raw & self.mask()) as u32) << self.low)
    }

    fn decode(self, words: &[u32]) -> i64 {
        let raw = i64::from(words[self.word] >> self.low) & self.mask();
        match self.form {
            Form::Plain => raw,
            Form::LessOne => raw + 1,
            Form::Signed if raw > self.range().1 => raw - self.mask() - 1,
            Form::Signed => raw,
        }
    }
}

/// A type a field can have: made from what its bits can hold.
trait FieldValue: Into<i64> {
    fn from_number(number: i64) -> Self;
}

impl FieldValue for u32 {
    fn from_number(number: i64) -> Self {
        number as Self
    }
}

impl FieldValue for i8 {
    fn from_number(number: i64) -> Self {
        number as Self
    }
}

impl FieldValue for bool {
    fn from_number(number: i64) -> Self {
        number != 0
    }
}

/// The pieces without a gap that a descriptor's words are, by steps and wraps from the innermost dimension on; a wrap of 0 never ends.
#[must_use]
pub fn pieces(words: u64, dimensions: impl IntoIterator<Item = (u32, u32)>) -> u64 {
    let mut piece = 1;
    for (step, wrap) in dimensions {
        if u64::from(step) != piece {
            break;
        }
        match wrap {
            0 => return words.min(1),
            wrap => piece *= u64::from(wrap),
        }
    }
    words.div_ceil(piece)
}

/// Declares a descriptor, with the offset of the first and the number of them, and its fields:
/// `name: type = word, highest bit..lowest bit, form`.
macro_rules! descriptor {
    (
        $(#[$meta:meta])*
        $name:ident, $label:literal, $words:literal, $count:literal at $first:literal {
            $($(#[$field_meta:meta])* $field:ident: $type:ty = $word:literal, $high:literal..$low:literal, $form:ident;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            /// Words of the descriptor.
            pub const WORDS: usize = $words;

            #[doc = concat!("Offset of descriptor `index`, below ", $count, ", within the tile, in bytes.")]
            #[must_use]
            pub fn register(index: u8) -> u32 {
                $first + 0x20 * u32::from(index)
            }

            /// The register words.
            ///
            /// # Errors
            /// When a field does not fit its bits.
            pub fn encode(&self) -> Result<[u32; $words], RegisterError> {
                let mut words = [0; $words];
                $({
                    let bits = Bits { word: $word, low: $low, width: $high - $low + 1, form: Form::$form };
                    words[$word] |= bits.encode(concat!($label, " field ", stringify!($field)), self.$field.into())?;
                })*
                Ok(words)
            }

            /// The descriptor of register words. Bits without a meaning are ignored.
            #[must_use]
            pub fn decode(words: &[u32; $words]) -> Self {
                Self {
                    $($field: FieldValue::from_number(
                        Bits { word: $word, low: $low, width: $high - $low + 1, form: Form::$form }.decode(words),
                    ),)*
                }
            }
        }

        impl Default for $name {
            /// The descriptor of all-zero words: not valid, linear, every step and iteration wrap 1.
            fn default() -> Self {
                Self::decode(&[0; $words])
            }
        }

        #[cfg(test)]
        impl $name {
            /// Bits of each word that belong to a field, and how many fields claim each bit twice.
            fn layout() -> ([u32; $words], usize) {
                let mut masks = [0u32; $words];
                let mut overlaps = 0;
                $({
                    let mask = (((1u64 << ($high - $low + 1)) - 1) as u32) << $low;
                    overlaps += usize::from(masks[$word] & mask != 0);
                    masks[$word] |= mask;
                })*
                (masks, overlaps)
            }
        }
    };
}

descriptor! {
    /// A buffer descriptor of a shim tile.
    ShimBd, "shim BD", 8, 16 at 0x1_D000 {
        /// Words to move.
        length: u32 = 0, 31..0, Plain;
        /// Bits 31:2 of the address in bytes; see [`ShimBd::address`].
        address_low: u32 = 1, 31..2, Plain;
        /// Bits 47:32 of the address in bytes.
        address_high: u32 = 2, 15..0, Plain;
        /// Whether a packet header is sent.
        enable_packet: bool = 2, 30..30, Plain;
        /// Descriptor for out-of-order arrival.
        out_of_order_id: u32 = 2, 29..24, Plain;
        /// Packet id.
        packet_id: u32 = 2, 23..19, Plain;
        /// Packet type.
        packet_type: u32 = 2, 18..16, Plain;
        /// Secure access.
        secure: bool = 3, 30..30, Plain;
        /// Size of dimension 0; 0 means all of it.
        d0_wrap: u32 = 3, 29..20, Plain;
        /// Step of dimension 0.
        d0_step: u32 = 3, 19..0, LessOne;
        /// Burst: 64, 128, 256 or (aie2p) 512 bytes.
        burst: u32 = 4, 31..30, Plain;
        /// Size of dimension 1; 0 means all of it.
        d1_wrap: u32 = 4, 29..20, Plain;
        /// Step of dimension 1.
        d1_step: u32 = 4, 19..0, LessOne;
        /// Stream id of the memory management unit.
        smid: u32 = 5, 31..28, Plain;
        /// AXI cache attributes; mlir-aie always writes 2.
        cache: u32 = 5, 27..24, Plain;
        /// AXI quality of service.
        qos: u32 = 5, 23..20, Plain;
        /// Step of dimension 2.
        d2_step: u32 = 5, 19..0, LessOne;
        /// Iteration the descriptor is at.
        iteration: u32 = 6, 31..26, Plain;
        /// Number of iterations.
        iteration_wrap: u32 = 6, 25..20, LessOne;
        /// Step per iteration.
        iteration_step: u32 = 6, 19..0, LessOne;
        /// Whether the last word is sent without TLAST.
        suppress_tlast: bool = 7, 31..31, Plain;
        /// Descriptor to continue with.
        next: u32 = 7, 30..27, Plain;
        /// Whether to continue with `next`.
        use_next: bool = 7, 26..26, Plain;
        /// Whether the descriptor may be used.
        valid: bool = 7, 25..25, Plain;
        /// What the released lock is changed by.
        release_value: i8 = 7, 24..18, Signed;
        /// Lock released.
        release_lock: u32 = 7, 16..13, Plain;
        /// Whether a lock is acquired.
        acquire: bool = 7, 12..12, Plain;
        /// What the acquired lock is changed by; negative: waits until it is at least as great.
        acquire_value: i8 = 7, 11..5, Signed;
        /// Lock acquired.
        acquire_lock: u32 = 7, 3..0, Plain;
    }
}

descriptor! {
    /// A buffer descriptor of a mem tile.
    MemTileBd, "mem tile BD", 8, 48 at 0xA_0000 {
        /// Words to move.
        length: u32 = 0, 16..0, Plain;
        /// Descriptor for out-of-order arrival.
        out_of_order_id: u32 = 0, 22..17, Plain;
        /// Packet id.
        packet_id: u32 = 0, 27..23, Plain;
        /// Packet type.
        packet_type: u32 = 0, 30..28, Plain;
        /// Whether a packet header is sent.
        enable_packet: bool = 0, 31..31, Plain;
        /// Address in words. The western neighbour comes first, so that the tile's own memory starts at
        /// [`MemTileBd::OWN_MEMORY`].
        address: u32 = 1, 18..0, Plain;
        /// Whether to continue with `next`.
        use_next: bool = 1, 19..19, Plain;
        /// Descriptor to continue with.
        next: u32 = 1, 25..20, Plain;
        /// Words of zero in front of dimension 0.
        d0_zero_before: u32 = 1, 31..26, Plain;
        /// Step of dimension 0.
        d0_step: u32 = 2, 16..0, LessOne;
        /// Size of dimension 0; 0 means all of it.
        d0_wrap: u32 = 2, 26..17, Plain;
        /// Whether the last word is sent without TLAST.
        suppress_tlast: bool = 2, 31..31, Plain;
        /// Step of dimension 1.
        d1_step: u32 = 3, 16..0, LessOne;
        /// Size of dimension 1; 0 means all of it.
        d1_wrap: u32 = 3, 26..17, Plain;
        /// Rows of zero in front of dimension 1.
        d1_zero_before: u32 = 3, 31..27, Plain;
        /// Step of dimension 2.
        d2_step: u32 = 4, 16..0, LessOne;
        /// Size of dimension 2; 0 means all of it.
        d2_wrap: u32 = 4, 26..17, Plain;
        /// Planes of zero in front of dimension 2.
        d2_zero_before: u32 = 4, 30..27, Plain;
        /// Whether the data is compressed.
        compress: bool = 4, 31..31, Plain;
        /// Step of dimension 3.
        d3_step: u32 = 5, 16..0, LessOne;
        /// Words of zero after dimension 0.
        d0_zero_after: u32 = 5, 22..17, Plain;
        /// Rows of zero after dimension 1.
        d1_zero_after: u32 = 5, 27..23, Plain;
        /// Planes of zero after dimension 2.
        d2_zero_after: u32 = 5, 31..28, Plain;
        /// Step per iteration.
        iteration_step: u32 = 6, 16..0, LessOne;
        /// Number of iterations.
        iteration_wrap: u32 = 6, 22..17, LessOne;
        /// Iteration the descriptor is at.
        iteration: u32 = 6, 28..23, Plain;
        /// Lock acquired.
        acquire_lock: u32 = 7, 7..0, Plain;
        /// What the acquired lock is changed by; negative: waits until it is at least as great.
        acquire_value: i8 = 7, 14..8, Signed;
        /// Whether a lock is acquired.
        acquire: bool = 7, 15..15, Plain;
        /// Lock released.
        release_lock: u32 = 7, 23..16, Plain;
        /// What the released lock is changed by.
        release_value: i8 = 7, 30..24, Signed;
        /// Whether the descriptor may be used.
        valid: bool = 7, 31..31, Plain;
    }
}

descriptor! {
    /// A buffer descriptor of a core tile.
    CoreBd, "core BD", 6, 16 at 0x1_D000 {
        /// Words to move.
        length: u32 = 0, 13..0, Plain;
        /// Address in words.
        address: u32 = 0, 27..14, Plain;
        /// Packet type.
        packet_type: u32 = 1, 18..16, Plain;
        /// Packet id.
        packet_id: u32 = 1, 23..19, Plain;
        /// Descriptor for out-of-order arrival.
        out_of_order_id: u32 = 1, 29..24, Plain;
        /// Whether a packet header is sent.
        enable_packet: bool = 1, 30..30, Plain;
        /// Whether the data is compressed.
        compress: bool = 1, 31..31, Plain;
        /// Step of dimension 0.
        d0_step: u32 = 2, 12..0, LessOne;
        /// Step of dimension 1.
        d1_step: u32 = 2, 25..13, LessOne;
        /// Step of dimension 2.
        d2_step: u32 = 3, 12..0, LessOne;
        /// Size of dimension 0; 0 means all of it.
        d0_wrap: u32 = 3, 20..13, Plain;
        /// Size of dimension 1; 0 means all of it.
        d1_wrap: u32 = 3, 28..21, Plain;
        /// Step per iteration.
        iteration_step: u32 = 4, 12..0, LessOne;
        /// Number of iterations.
        iteration_wrap: u32 = 4, 18..13, LessOne;
        /// Iteration the descriptor is at.
        iteration: u32 = 4, 24..19, Plain;
        /// Whether the last word is sent without TLAST.
        suppress_tlast: bool = 5, 31..31, Plain;
        /// Descriptor to continue with.
        next: u32 = 5, 30..27, Plain;
        /// Whether to continue with `next`.
        use_next: bool = 5, 26..26, Plain;
        /// Whether the descriptor may be used.
        valid: bool = 5, 25..25, Plain;
        /// What the released lock is changed by.
        release_value: i8 = 5, 24..18, Signed;
        /// Lock released.
        release_lock: u32 = 5, 16..13, Plain;
        /// Whether a lock is acquired.
        acquire: bool = 5, 12..12, Plain;
        /// What the acquired lock is changed by; negative: waits until it is at least as great.
        acquire_value: i8 = 5, 11..5, Signed;
        /// Lock acquired.
        acquire_lock: u32 = 5, 3..0, Plain;
    }
}

impl ShimBd {
    /// A valid descriptor that moves `length` consecutive words, with mlir-aie's cache attributes.
    ///
    /// `burst` is the field of that name: 3 (512 bytes) on aie2p, 2 (256 bytes) on aie2.
    #[must_use]
    pub fn linear(length: u32, burst: u32) -> Self {
        Self { length, burst, cache: 2, valid: true, ..Self::default() }
    }

    /// The address in bytes.
    #[must_use]
    pub fn address(&self) -> u64 {
        (u64::from(self.address_high) << 32) | (u64::from(self.address_low) << 2)
    }

    /// Sets the address in bytes. Its bits 1:0 and 63:48 are dropped.
    pub fn set_address(&mut self, address: u64) {
        self.address_low = (address as u32) >> 2;
        self.address_high = u32::from((address >> 32) as u16);
    }
}

impl MemTileBd {
    /// Word address at which the tile's own memory starts (512 KiB: the western neighbour's comes first).
    pub const OWN_MEMORY: u32 = 0x2_0000;
}

#[cfg(test)]
mod tests;
