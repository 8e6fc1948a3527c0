//! The binary formats an NPU kernel is made of: readers, writers and validators.
//!
//! A kernel for the array is two files. The **PDI** ([`pdi`]) is a container around one **CDO**
//! ([`cdo`]), a list of register and memory writes that configures the tiles of a partition. The
//! **instruction stream** ([`instructions`]) is what the command processor runs for each dispatch: it
//! writes the buffer descriptors ([`bd`]) of the shim DMAs, starts their queues ([`dma_channel`]) and waits
//! for the completion tokens. The other registers that a CDO writes have a module each: [`core_control`],
//! [`lock`], [`dma_channel`], [`stream_switch`], [`shim_mux`]. What both files together do to the host's memory
//! is in [`extent`]. PDIs of others often come in an [`xclbin`], or with their stream in an [`hsaco`] or a [`kernel_elf`]. A
//! [`mod@reference`] artifact is a PDI whose CDO describes a kernel instead of configuring tiles; it lets a simulated device run
//! through the same files as a real one.
//!
//! Choices:
//! * Everything is safe Rust over borrowed bytes. All formats are sequences of little-endian 32-bit words,
//!   so the readers share one view ([`Words`]), which needs no alignment and copies nothing.
//! * Parsing validates the whole file once. What comes out ([`pdi::Pdi`], [`cdo::Cdo`],
//!   [`instructions::InstructionStream`]) is correct by construction, and iterating over it cannot fail.
//! * No reader panics on any bytes, and none allocates by a length it has not checked against the bytes
//!   that are there. `hal/fuzz` holds the fuzz targets and the corpus.
//! * Every error names the byte offset in the file, what was expected and what was found.
//! * Writers and readers share their tables of constants, so that they cannot disagree.

pub mod bd;
pub mod cdo;
pub mod core_control;
pub mod dma_channel;
mod error;
pub mod extent;
pub mod hsaco;
pub mod instructions;
pub mod kernel_elf;
pub mod load;
pub mod lock;
pub mod pdi;
pub mod reference;
pub mod register;
pub mod shim_mux;
pub mod stream_switch;
mod words;
pub mod xclbin;

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
pub(crate) mod mutation;

pub use error::FormatError;
pub use words::Words;

/// Largest CDO or instruction stream that the writers make, in words (64 MiB).
///
/// PDIs and instructions are loaded from the device heap, which has 64 MiB (amdxdna kernel driver).
pub const MAX_WORDS: usize = 16 << 20;

/// Bits of a tile address that hold the tile's offset; the row is above them, then the column.
///
/// The same on aie2 and aie2p: `column << 25 | row << 20 | offset`. Columns count from the partition's
/// first one.
const ROW_SHIFT: u32 = 20;
const COLUMN_SHIFT: u32 = 25;

/// The address of `offset` within the tile at `column` and `row`, as CDOs and instructions write it.
///
/// `offset` is in bytes, below 1 MiB; `column` counts from the first column of the partition, and row 0
/// is the shim. Bits of `offset` above its 20 are dropped, and so are columns above 127 and rows above 31.
#[must_use]
pub fn tile_address(column: u8, row: u8, offset: u32) -> u32 {
    (u32::from(column & 0x7F) << COLUMN_SHIFT)
        | (u32::from(row & 0x1F) << ROW_SHIFT)
        | (offset & ((1 << ROW_SHIFT) - 1))
}

/// Takes a tile address apart into (column, row, offset): the inverse of [`tile_address`].
#[must_use]
pub fn tile_location(address: u32) -> (u8, u8, u32) {
    let column = (address >> COLUMN_SHIFT) as u8;
    let row = ((address >> ROW_SHIFT) & 0x1F) as u8;
    (column, row, address & ((1 << ROW_SHIFT) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 0, 0x1D000, 0x0001_D000)]
    #[case(1, 0, 0x1D214, 0x0201_D214)]
    #[case(0, 1, 0xA0000, 0x001A_0000)]
    #[case(7, 5, 0x32000, 0x0E53_2000)]
    fn tile_addresses(#[case] column: u8, #[case] row: u8, #[case] offset: u32, #[case] address: u32) {
        assert_eq!(tile_address(column, row, offset), address);
        assert_eq!(tile_location(address), (column, row, offset));
    }
}
