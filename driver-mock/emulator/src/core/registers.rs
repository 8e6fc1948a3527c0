//! The register file with exposed latencies.
//!
//! A result lands in the file at the time its instruction's timing says; until then readers get the old value. Time is counted
//! in cycles of the core: an operand in stage k of an instruction issued in cycle c acts at time c + k. A read at time t sees
//! the writes of times before t; where both ends share a bypass, also those at t.

use aie_isa::{Bypass, Isa, Register};
use fastrand::Rng;

/// The widest register: an accumulator of 2048 bits.
pub const MOST_BYTES: usize = 256;
/// No instruction writes later than this many cycles after its issue.
const HORIZON: usize = 16;

/// Bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub offset: u16,
    pub bytes: u16,
}

impl Span {
    fn range(self) -> std::ops::Range<usize> {
        usize::from(self.offset)..usize::from(self.offset) + usize::from(self.bytes)
    }

    fn end(self) -> u16 {
        self.offset + self.bytes
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

/// Where a register is. Small, because every operand of a decoded program has one.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its lowest bits; all of it, for nearly every register.
    pub first: Span,
    /// The spans of the bits above.
    pub rest: Box<[Span]>,
    /// Bytes of all spans.
    pub bytes: u16,
    /// The bits that a write keeps of a register below 32 bits.
    pub mask: u32,
}

impl Place {
    /// Bytes of a register that lies in one piece, from `at` on; the whole register if it does not, or has no such bytes.
    pub fn part(&self, at: u16, bytes: u16) -> Self {
        if !self.rest.is_empty() || at + bytes > self.first.bytes {
            return self.clone();
        }
        let first = Span { offset: self.first.offset + at, bytes };
        Self { first, rest: Box::default(), bytes, mask: self.mask }
    }

    /// Whether it lies in one piece of more than one word.
    #[inline]
    pub fn is_one_piece(&self) -> bool {
        self.rest.is_empty() && self.first.bytes > 4
    }

    /// All spans, from the lowest bits on.
    #[inline]
    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

/// Which bytes of the file are which register. The same for all cores of a generation.
#[derive(Debug)]
pub struct Layout {
    offsets: Vec<Option<Span>>,
    bytes: usize,
}

impl Layout {
    /// Gives every register without parts a place, so that registers made of equal parts, such as vectors, are in one piece.
    pub fn new(isa: &Isa) -> Self {
        let mut layout = Self { offsets: vec![None; isa.registers().len()], bytes: 0 };
        let mut order: Vec<&aie_isa::RegisterInfo> = isa.registers().iter().collect();
        let uneven = |info: &aie_isa::RegisterInfo| {
            let sizes = info.leaves.iter().map(|leaf| isa.register(*leaf).bits);
            sizes.clone().min() != sizes.max()
        };
        order.sort_by_key(|info| (uneven(info), u32::MAX - info.bits));
        for info in order {
            for leaf in &info.leaves {
                if layout.offsets[leaf.index()].is_none() {
                    let bytes = isa.register(*leaf).bits.div_ceil(32) * 4;
                    layout.offsets[leaf.index()] = Some(Span { offset: layout.bytes as u16, bytes: bytes as u16 });
                    layout.bytes += bytes as usize;
                }
            }
        }
        layout
    }

    /// The smallest register that has these bytes, or part of them if none has all.
    pub fn name(&self, isa: &'static Isa, span: Span) -> &'static str {
        let has = |info: &&aie_isa::RegisterInfo| {
            let spans = info.leaves.iter().filter_map(|leaf| self.offsets[leaf.index()]);
            let shared = |leaf: Span| span.end().min(leaf.end()).saturating_sub(span.offset.max(leaf.offset));
            spans.map(shared).sum::<u16>() >= span.bytes
        };
        let smallest = isa.registers().iter().filter(has).min_by_key(|info| info.bits);
        smallest.map_or("a register", |info| info.name)
    }

    /// The place of a register.
    pub fn place(&self, isa: &Isa, register: Register) -> Place {
        let mut spans: Vec<Span> = Vec::new();
        let info = isa.register(register);
        for span in info.leaves.iter().filter_map(|leaf| self.offsets[leaf.index()]) {
            match spans.last_mut() {
                Some(last) if last.end() == span.offset => last.bytes += span.bytes,
                _ => spans.push(span),
            }
        }
        let bytes = spans.iter().map(|span| span.bytes).sum();
        let mask = if info.bits < 32 { (1 << info.bits) - 1 } else { u32::MAX };
        // Every register has leaves, and every leaf a place.
        let first = spans.first().copied().unwrap_or(Span { offset: 0, bytes: 4 });
        Place { first, rest: spans.get(1..).unwrap_or_default().into(), bytes, mask }
    }
}

/// A result on its way.
#[derive(Clone, Copy, Debug)]
struct Landing {
    span: Span,
    bypass: Option<Bypass>,
    /// The result if it is one word, else where its bytes are in the data of its time.
    data: u32,
}

/// The results that land at one time.
#[derive(Debug, Default)]
struct Landings {
    writes: Vec<Landing>,
    data: Vec<u8>,
    used: usize,
}

impl Landings {
    #[inline]
    fn push(&mut self, span: Span, bypass: Option<Bypass>, bytes: &[u8]) {
        if let Ok(word) = <[u8; 4]>::try_from(bytes) {
            self.writes.push(Landing { span, bypass, data: u32::from_le_bytes(word) });
        } else {
            copy(&mut self.room()[..bytes.len()], bytes);
            self.push_room(span, bypass);
        }
    }

    /// Room for a result that [`Landings::push_room`] adds: of the widest register.
    #[inline]
    fn room(&mut self) -> &mut [u8; MOST_BYTES] {
        if self.data.len() < self.used + MOST_BYTES {
            self.data.resize((self.used + MOST_BYTES).next_power_of_two(), 0);
        }
        match self.data[self.used..].first_chunk_mut() {
            Some(room) => room,
            None => unreachable!("the data has just been made long enough"),
        }
    }

    /// Adds the result that has been written to the start of [`Landings::room`].
    #[inline]
    fn push_room(&mut self, span: Span, bypass: Option<Bypass>) {
        self.writes.push(Landing { span, bypass, data: self.used as u32 });
        self.used += usize::from(span.bytes);
    }
}

/// Copies bytes; the sizes of registers without a call.
#[inline(always)]
pub fn copy(to: &mut [u8], from: &[u8]) {
    #[inline(always)]
    fn sized<const N: usize>(to: &mut [u8], from: &[u8]) {
        if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk::<N>()) {
            *to = *from;
        }
    }
    match (to.len(), from.len()) {
        (4, 4) => sized::<4>(to, from),
        (8, 8) => sized::<8>(to, from),
        (16, 16) => sized::<16>(to, from),
        (32, 32) => sized::<32>(to, from),
        (64, 64) => sized::<64>(to, from),
        (128, 128) => sized::<128>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// The registers of one core.
#[derive(Debug)]
pub struct Registers {
    file: Vec<u8>,
    /// By time modulo [`HORIZON`].
    landing: [Landings; HORIZON],
}

impl Registers {
    pub fn new(layout: &Layout) -> Self {
        Self { file: vec![0; layout.bytes], landing: Default::default() }
    }

    /// Fills the registers that a reset does not define. It defines modes, status, the loop counter and the core's number.
    pub fn fill(&mut self, isa: &Isa, layout: &Layout, mut noise: Rng) {
        for (info, span) in isa.registers().iter().zip(&layout.offsets) {
            let Some(span) = span else { continue };
            let name = info.name.to_ascii_lowercase();
            if name == "lc" || name == "core_id" || name.starts_with("cr") || name.starts_with("sr") {
                continue;
            }
            let place = &mut self.file[span.range()];
            noise.fill(place);
            let above = info.bits.next_multiple_of(32) - info.bits;
            if let Some(last) = place.last_chunk_mut() {
                *last = (u32::from_le_bytes(*last) & u32::MAX >> above).to_le_bytes();
            }
        }
    }

    /// Puts the results of a time into the file. To be called once for each time, in order.
    #[inline]
    pub fn land(&mut self, time: u64) {
        let slot = &mut self.landing[time as usize % HORIZON];
        for write in &slot.writes {
            let place = &mut self.file[write.span.range()];
            if write.span.bytes == 4 {
                copy(place, &write.data.to_le_bytes());
            } else {
                let at = write.data as usize;
                copy(place, &slot.data[at..at + usize::from(write.span.bytes)]);
            }
        }
        slot.writes.clear();
        slot.used = 0;
    }

    /// A register of at most 32 bits, as the file has it.
    #[inline]
    pub fn word(&self, place: &Place) -> u32 {
        let at = usize::from(place.first.offset);
        self.file[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// A register of at most 32 bits, read as [`Registers::read`] does.
    #[inline]
    pub fn read_word(&self, place: &Place, time: u64, bypass: Option<Bypass>) -> u32 {
        let mut word = self.word(place);
        if bypass.is_some() {
            let slot = &self.landing[time as usize % HORIZON];
            for write in slot.writes.iter().filter(|write| write.bypass == bypass) {
                if write.span == place.first {
                    word = write.data;
                } else if write.span.overlaps(place.first) {
                    let mut bytes = [0; MOST_BYTES];
                    self.read(place, time, bypass, &mut bytes);
                    return u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
            }
        }
        word
    }

    /// Reads a register at a time for which everything earlier has landed.
    #[inline]
    pub fn read(&self, place: &Place, time: u64, bypass: Option<Bypass>, into: &mut [u8; MOST_BYTES]) {
        self.read_span(place.first, time, bypass, into);
        let mut at = usize::from(place.first.bytes);
        for span in &place.rest {
            self.read_span(*span, time, bypass, &mut into[at..]);
            at += usize::from(span.bytes);
        }
    }

    #[inline]
    fn read_span(&self, span: Span, time: u64, bypass: Option<Bypass>, into: &mut [u8]) {
        copy(&mut into[..usize::from(span.bytes)], &self.file[span.range()]);
        if bypass.is_none() {
            return;
        }
        let slot = &self.landing[time as usize % HORIZON];
        for write in slot.writes.iter().filter(|write| write.bypass == bypass && write.span.overlaps(span)) {
            let word = write.data.to_le_bytes();
            let data = if write.span.bytes == 4 { &word[..] } else { &slot.data[write.data as usize..] };
            let (first, last) = (span.offset.max(write.span.offset), span.end().min(write.span.end()));
            let from = usize::from(first - write.span.offset);
            let length = usize::from(last - first);
            let to = usize::from(first - span.offset);
            copy(&mut into[to..to + length], &data[from..from + length]);
        }
    }

    /// Writes a register at a time, which must not have landed yet.
    ///
    /// Results land in the order of their times, whatever the order of their instructions: a load lands over what a later move
    /// has written meanwhile, and compiled AIE2 programs rely on it. At the same time, the later instruction's stays.
    #[inline]
    pub fn write(&mut self, place: &Place, time: u64, bypass: Option<Bypass>, bytes: &[u8]) {
        let slot = &mut self.landing[time as usize % HORIZON];
        if place.mask != u32::MAX {
            let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) & place.mask;
            slot.push(place.first, bypass, &word.to_le_bytes());
            return;
        }
        let mut from = 0;
        for span in place.spans() {
            let end = from + usize::from(span.bytes);
            slot.push(*span, bypass, &bytes[from..end]);
            from = end;
        }
    }

    /// Writes a register that lies in one piece of more than one word, as [`Registers::write`] does, with what `make` puts into
    /// the room for it. If that fails, nothing is written.
    #[inline]
    pub fn write_made<E>(
        &mut self,
        place: &Place,
        time: u64,
        bypass: Option<Bypass>,
        make: impl FnOnce(&mut [u8; MOST_BYTES]) -> Result<(), E>,
    ) -> Result<(), E> {
        let slot = &mut self.landing[time as usize % HORIZON];
        make(slot.room())?;
        slot.push_room(place.first, bypass);
        Ok(())
    }

    /// Writes a register at once, as a debugger or the loop counter does.
    pub fn set(&mut self, place: &Place, word: u32) {
        self.file[place.first.range()].copy_from_slice(&(word & place.mask).to_le_bytes());
    }
}
