//! Buffer descriptors of cores and mem tiles for buffers of rings.

use super::error::ArrayError;
use super::region::Dimension;
use super::ring::Ring;
use super::tile::Channel;
use aie_hal::format::bd::{CoreBd, MemTileBd};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use std::ops::Range;

/// How often a task runs its descriptors at most.
pub(super) const MOST_RUNS: u64 = 256;
/// Number by which the descriptors of a mem tile name its own lock 0.
const OWN_LOCKS: u32 = 64;

/// What a channel does with the next buffer of a ring: one link of its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The ring.
    pub ring: Ring,
    /// First byte within the buffer: a multiple of 4.
    pub offset: u32,
    /// The words in the order in which they are moved, the innermost dimension first: up to 3 in a core, 4 in a mem tile.
    /// This is how a layout is transformed on the way.
    pub dimensions: Vec<Dimension>,
    /// Words of zero that a mem tile sends after each run of the innermost dimension; 0 everywhere else.
    pub zeros: u32,
    /// Whether to wait for the buffer: for an empty one to write it, for a full one to read it.
    pub acquire: bool,
    /// Whether to hand the buffer over afterwards.
    pub release: bool,
    /// Whether the next run takes the next buffer; otherwise it takes the same.
    pub advance: bool,
}

impl Part {
    /// The first `words` words of each buffer in turn.
    #[must_use]
    pub fn linear(ring: Ring, words: u64) -> Self {
        Self::strided(ring, 0, &[Dimension::new(words, 1)])
    }

    /// Words of each buffer in turn, from byte `offset` on.
    #[must_use]
    pub fn strided(ring: Ring, offset: u32, dimensions: &[Dimension]) -> Self {
        Self { ring, offset, dimensions: dimensions.to_vec(), zeros: 0, acquire: true, release: true, advance: true }
    }

    /// The same, with zeros behind each run of the innermost dimension.
    #[must_use]
    pub fn padded(self, zeros: u32) -> Self {
        Self { zeros, ..self }
    }

    /// Words of one run, zeros included.
    #[must_use]
    pub fn words(&self) -> u64 {
        let (inner, outer) = self.dimensions.split_first().map_or((1, &[][..]), |(first, rest)| (first.size, rest));
        let inner = if inner == 0 { 0 } else { inner.saturating_add(self.zeros.into()) };
        outer.iter().fold(inner, |words, dimension| words.saturating_mul(dimension.size))
    }

    /// After how many runs it is at the same buffer again.
    pub(super) fn period(&self) -> u64 {
        if self.advance { self.ring.depth.into() } else { 1 }
    }

    /// Behind the last word, from the buffer's first one on.
    fn end(&self) -> u64 {
        let last = self.dimensions.iter().fold(0u64, |last, dimension| {
            last.saturating_add(dimension.step.saturating_mul(dimension.size.saturating_sub(1)))
        });
        last.saturating_add(u64::from(self.offset) / 4 + 1)
    }
}

/// How often a channel goes through parts until it is at the same buffers again.
pub(super) fn round(parts: &[Part]) -> u64 {
    parts.iter().map(Part::period).fold(1, |a, b| (a / greatest_common_divisor(a, b).max(1)).saturating_mul(b))
}

pub(super) fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    x
}

/// Where a part stands in its chain.
pub(super) struct Link {
    pub channel: Channel,
    /// The descriptor that follows.
    pub next: Option<u8>,
    /// The buffer of the first run.
    pub slot: u64,
    /// The id of the packet that each run is, if it has a header.
    pub packet: Option<u8>,
}

/// Dimensions of a mem tile's descriptors, which alone can send zeros, and how many of these behind the innermost.
const MEM_DIMENSIONS: usize = 4;
const MOST_ZEROS: u32 = 63;

/// The descriptors that a channel can use.
pub(super) fn pool(kind: TileKind, channel: u8, descriptors: usize) -> Range<u8> {
    let descriptors = descriptors as u8;
    match (kind, channel % 2) {
        (TileKind::Mem, 0) => 0..descriptors / 2,
        (TileKind::Mem, _) => descriptors / 2..descriptors,
        _ => 0..descriptors,
    }
}

/// The fields that descriptors of cores and mem tiles have in common.
#[derive(Default)]
struct Fields {
    length: u32,
    /// Word in the tile's memory.
    address: u32,
    sizes: [u32; 3],
    steps: [u32; 4],
    iteration: u32,
    iteration_wrap: u32,
    iteration_step: u32,
    acquire_lock: u32,
    release_lock: u32,
}

/// Offset and words of a descriptor.
pub(super) fn encode(
    kind: TileKind,
    dimensions: usize,
    number: u8,
    part: &Part,
    link: &Link,
) -> Result<(u32, Vec<u32>), ArrayError> {
    let fields = fields(dimensions, part, link)?;
    let Fields { length, address, iteration, iteration_wrap, iteration_step, .. } = fields;
    let [d0_wrap, d1_wrap, d2_wrap] = fields.sizes;
    let [d0_step, d1_step, d2_step, d3_step] = fields.steps;
    let (use_next, next) = (link.next.is_some(), link.next.unwrap_or(0).into());
    let (acquire, acquire_value) = (part.acquire, if part.acquire { -1 } else { 0 });
    let release_value = i8::from(part.release);
    let (enable_packet, packet_id) = (link.packet.is_some(), link.packet.unwrap_or(0).into());
    if kind == TileKind::Mem {
        let bd = MemTileBd {
            length,
            address: MemTileBd::OWN_MEMORY + address,
            use_next,
            next,
            d0_step,
            d0_wrap,
            d1_step,
            d1_wrap,
            d2_step,
            d2_wrap,
            d3_step,
            d0_zero_after: part.zeros,
            iteration,
            iteration_wrap,
            iteration_step,
            acquire,
            acquire_value,
            acquire_lock: if acquire { OWN_LOCKS + fields.acquire_lock } else { 0 },
            release_value,
            release_lock: if part.release { OWN_LOCKS + fields.release_lock } else { 0 },
            valid: true,
            enable_packet,
            packet_id,
            ..MemTileBd::default()
        };
        return Ok((MemTileBd::register(number), bd.encode()?.to_vec()));
    }
    let bd = CoreBd {
        length,
        address,
        use_next,
        next,
        d0_step,
        d0_wrap,
        d1_step,
        d1_wrap,
        d2_step,
        iteration,
        iteration_wrap,
        iteration_step,
        acquire,
        acquire_value,
        acquire_lock: if acquire { fields.acquire_lock } else { 0 },
        release_value,
        release_lock: if part.release { fields.release_lock } else { 0 },
        valid: true,
        enable_packet,
        packet_id,
        ..CoreBd::default()
    };
    Ok((CoreBd::register(number), bd.encode()?.to_vec()))
}

fn fields(limit: usize, part: &Part, link: &Link) -> Result<Fields, ArrayError> {
    let (channel, ring) = (link.channel, part.ring);
    if ring.tile != channel.tile {
        return Err(ArrayError::Kind { tile: ring.tile, expected: "place for a ring of this channel's" });
    }
    let unit = |what, value: u32| {
        if value.is_multiple_of(4) { Ok(()) } else { Err(ArrayError::Unaligned { what, value: value.into(), unit: 4 }) }
    };
    unit("the offset in a buffer", part.offset)?;
    let (end, max) = (part.end().saturating_mul(4), ring.stride.into());
    if part.words() == 0 || end > max {
        return Err(ArrayError::Range { what: "the end of what a channel moves in a buffer", value: end, min: 4, max });
    }
    let padded = part.zeros > 0;
    if padded && (link.channel.direction == Direction::StreamToMemory || limit < MEM_DIMENSIONS) {
        return Err(ArrayError::Kind { tile: ring.tile, expected: "mem tile that sends" });
    }
    if part.zeros > MOST_ZEROS {
        let (value, max) = (part.zeros.into(), MOST_ZEROS.into());
        return Err(ArrayError::Range { what: "the zeros behind a dimension", value, min: 0, max });
    }
    // What zeros follow has a size of its own, also if that is one word.
    let counts = |(index, dimension): &(usize, Dimension)| dimension.size != 1 || padded && *index == 0;
    let moved: Vec<Dimension> =
        part.dimensions.iter().copied().enumerate().filter(counts).map(|(_, dimension)| dimension).collect();
    if moved.len() > limit {
        return Err(ArrayError::Dimensions { channel, needed: moved.len(), limit });
    }
    if moved.iter().any(|dimension| dimension.step == 0) {
        return Err(ArrayError::Range { what: "a step within a buffer", value: 0, min: 1, max: max / 4 });
    }
    // The end is within the tile's memory, so that each of these fits 32 bits.
    let mut fields = Fields { length: part.words() as u32, steps: [1; 4], iteration_wrap: 1, ..Fields::default() };
    for (index, dimension) in moved.iter().enumerate() {
        fields.steps[index] = dimension.step as u32;
        // The outermost dimension ends with the length.
        if index + 1 < moved.len() || padded && index == 0 {
            fields.sizes[index] = dimension.size as u32;
        }
    }
    let slot = link.slot as u32;
    fields.address = (ring.address + part.offset) / 4;
    fields.iteration_step = 1;
    if part.advance && ring.depth > 1 {
        (fields.iteration, fields.iteration_wrap) = (slot, ring.depth.into());
        fields.iteration_step = ring.stride / 4;
    } else {
        fields.address += slot * ring.stride / 4;
    }
    let (empty, full) = (ring.empty.into(), ring.full.into());
    (fields.acquire_lock, fields.release_lock) = match channel.direction {
        Direction::StreamToMemory => (empty, full),
        Direction::MemoryToStream => (full, empty),
    };
    Ok(fields)
}

#[cfg(test)]
mod tests;
