//! The mailbox: two rings in the SRAM for each channel, with a head and a tail register each.
//!
//! "x2i" is what the kernel driver sends, "i2x" what the firmware answers. A message is four words (bytes of the payload; the same
//! with the version 1 in bits 16 to 23; a number by which an answer is found; what is asked), then the payload. No message goes
//! over the end of a ring: a marker in place of a size says that the next one is at the start. The word behind the i2x head register is
//! the interrupt's cause, which the driver clears. Source: `amdxdna_mailbox.c`.
//!
//! Channel 0 is for the management of the device, the others belong to contexts.

use crate::bars::Bars;
use crate::model::{Layout, Protocol, Register};
use std::collections::VecDeque;

pub const RING_BYTES: u32 = 0x800;
/// Bytes of the registers of a channel: x2i tail and head, i2x tail and head, cause of the interrupt.
const CHANNEL_REGISTERS: u32 = 0x20;
const X2I_TAIL: u32 = 0;
const X2I_HEAD: u32 = 4;
const I2X_TAIL: u32 = 8;
const I2X_HEAD: u32 = 12;
const CAUSE: u32 = 16;
/// In place of a size: the next message is at the start of the ring.
const AT_THE_START: u32 = 0xdead_face;
/// Words in front of the payload.
const HEADER_BYTES: u32 = 16;
/// The version, where a message has it.
const VERSION: u32 = 1 << 16;
const PAYLOAD_MASK: u32 = 0x7ff;
/// "NPU" in the description.
const MAGIC: u32 = 0x5550_4e5f;

/// The channel for the management.
pub const MANAGEMENT: usize = 0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// By which its answer is found.
    pub id: u32,
    pub opcode: u32,
    pub payload: Vec<u8>,
}

/// What is in a ring is no message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("channel {channel}: a message of {bytes} bytes at {at:#x} of the ring, whose tail is at {tail:#x}")]
pub struct RingError {
    channel: usize,
    bytes: u32,
    at: u32,
    tail: u32,
}

#[derive(Debug, Default)]
struct Channel {
    /// How far the firmware has read.
    read: u32,
    written: u32,
    waiting: VecDeque<Message>,
    open: bool,
}

#[derive(Debug)]
pub struct Mailbox {
    layout: &'static Layout,
    channels: Vec<Channel>,
}

/// Where the rings of a channel are, for the kernel driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelLocation {
    /// x2i: head register, tail register, ring, bytes.
    pub x2i: [u32; 4],
    /// i2x.
    pub i2x: [u32; 4],
}

impl Mailbox {
    pub fn new(layout: &'static Layout, channels: usize) -> Self {
        Self { layout, channels: (0..channels).map(|_| Channel::default()).collect() }
    }

    fn register(&self, channel: usize, which: u32) -> Register {
        let mailbox = &self.layout.mailbox;
        Register { bar: mailbox.bar, offset: mailbox.offset + CHANNEL_REGISTERS * channel as u32 + which }
    }

    /// The channel whose x2i tail register this is: something was sent.
    pub fn sent(&self, register: Register) -> Option<usize> {
        self.channel_of(register, X2I_TAIL)
    }

    /// The channel whose i2x head register this is: something was taken out.
    pub fn taken(&self, register: Register) -> Option<usize> {
        self.channel_of(register, I2X_HEAD)
    }

    fn channel_of(&self, register: Register, which: u32) -> Option<usize> {
        let mailbox = &self.layout.mailbox;
        let offset = register.offset.checked_sub(mailbox.offset).filter(|_| register.bar == mailbox.bar)?;
        let channel = (offset / CHANNEL_REGISTERS) as usize;
        (offset % CHANNEL_REGISTERS == which && self.channels.get(channel)?.open).then_some(channel)
    }

    /// Offsets of the rings of a channel in the SRAM: x2i and i2x.
    fn rings(channel: usize) -> (u32, u32) {
        let first = 2 * RING_BYTES * channel as u32;
        (first, first + RING_BYTES)
    }

    /// Opens a channel with empty rings.
    pub fn open(&mut self, bars: &mut Bars, channel: usize) -> ChannelLocation {
        for which in [X2I_TAIL, X2I_HEAD, I2X_TAIL, I2X_HEAD, CAUSE] {
            bars.set_word(self.register(channel, which), 0);
        }
        self.channels[channel] = Channel { open: true, ..Channel::default() };
        let (x2i, i2x) = Self::rings(channel);
        let (mailbox, sram) = (&self.layout.mailbox, &self.layout.sram);
        let register = |which| mailbox.address(CHANNEL_REGISTERS * channel as u32 + which);
        ChannelLocation {
            x2i: [register(X2I_HEAD), register(X2I_TAIL), sram.address(x2i), RING_BYTES],
            i2x: [register(I2X_HEAD), register(I2X_TAIL), sram.address(i2x), RING_BYTES],
        }
    }

    /// Closes a channel: what is written to its registers does nothing.
    pub fn close(&mut self, channel: usize) {
        self.channels[channel] = Channel::default();
    }

    pub fn close_all(&mut self) {
        (0..self.channels.len()).for_each(|channel| self.close(channel));
    }

    /// Opens the management's channel and publishes its location for the kernel driver.
    pub fn announce(&mut self, bars: &mut Bars, protocol: Protocol) {
        let ChannelLocation { x2i: [x2i_head, x2i_tail, x2i, _], i2x: [i2x_head, i2x_tail, i2x, _] } =
            self.open(bars, MANAGEMENT);
        let vector = MANAGEMENT as u32;
        let words = [
            x2i_tail, x2i_head, x2i, RING_BYTES, i2x_tail, i2x_head, i2x, RING_BYTES, MAGIC, vector, protocol.0,
            protocol.1, 0, 0, 0, 0,
        ];
        let (sram, description) = (&self.layout.sram, self.layout.description);
        for (index, word) in words.into_iter().enumerate() {
            let offset = description + 4 * index as u32;
            bars.set_word(Register { bar: sram.bar, offset }, word);
        }
        bars.set_word(self.layout.alive, sram.address(description));
    }

    fn ring_word(&self, bars: &Bars, offset: u32) -> u32 {
        bars.word(Register { bar: self.layout.sram.bar, offset })
    }

    /// The next message of a channel.
    ///
    /// # Errors
    /// What is wrong with the ring; the rest of what is in it is skipped.
    pub fn receive(&mut self, bars: &mut Bars, channel: usize) -> Result<Option<Message>, RingError> {
        let tail = bars.word(self.register(channel, X2I_TAIL));
        let (ring, _) = Self::rings(channel);
        let mut at = self.channels[channel].read;
        if at == tail {
            return Ok(None);
        }
        if at + 4 > RING_BYTES || self.ring_word(bars, ring + at) == AT_THE_START {
            at = 0;
        }
        let bytes = if at == tail { 0 } else { self.ring_word(bars, ring + at) };
        let end = at.saturating_add(HEADER_BYTES).saturating_add(bytes);
        let fits = bytes % 4 == 0 && end <= RING_BYTES && (tail < at || end <= tail);
        let message = fits.then(|| {
            let mut payload = vec![0; bytes as usize];
            bars.read(self.layout.sram.bar, (ring + at + HEADER_BYTES) as usize, &mut payload);
            let (id, opcode) = (self.ring_word(bars, ring + at + 8), self.ring_word(bars, ring + at + 12));
            Message { id, opcode, payload }
        });
        let next = if message.is_some() { end } else { tail };
        self.channels[channel].read = next;
        bars.set_word(self.register(channel, X2I_HEAD), next);
        message.map(Some).ok_or(RingError { channel, bytes, at, tail })
    }

    /// Sends a message; returns whether there is something to interrupt for. One without room waits until some is taken out.
    pub fn send(&mut self, bars: &mut Bars, channel: usize, message: Message) -> bool {
        if !self.channels[channel].open {
            return false;
        }
        self.channels[channel].waiting.push_back(message);
        self.flush(bars, channel)
    }

    /// Sends what has room; returns whether there was something.
    pub fn flush(&mut self, bars: &mut Bars, channel: usize) -> bool {
        let mut sent = false;
        while let Some(bytes) = self.channels[channel].waiting.front().map(|message| message.payload.len() as u32) {
            let Some(at) = self.room(bars, channel, HEADER_BYTES + bytes) else { break };
            let Some(Message { id, opcode, payload }) = self.channels[channel].waiting.pop_front() else { break };
            let (_, ring) = Self::rings(channel);
            let bar = self.layout.sram.bar;
            let before = self.channels[channel].written;
            if at != before && before + 4 <= RING_BYTES {
                bars.set_word(Register { bar, offset: ring + before }, AT_THE_START);
            }
            for (index, word) in [bytes, bytes & PAYLOAD_MASK | VERSION, id, opcode].into_iter().enumerate() {
                bars.set_word(Register { bar, offset: ring + at + 4 * index as u32 }, word);
            }
            bars.write(bar, (ring + at + HEADER_BYTES) as usize, &payload);
            let tail = at + HEADER_BYTES + bytes;
            self.channels[channel].written = tail;
            bars.set_word(self.register(channel, I2X_TAIL), tail);
            sent = true;
        }
        if sent {
            bars.set_word(self.register(channel, CAUSE), 1);
        }
        sent
    }

    /// Where a message of so many bytes has room in the i2x ring.
    fn room(&self, bars: &Bars, channel: usize, bytes: u32) -> Option<u32> {
        let head = bars.word(self.register(channel, I2X_HEAD));
        let tail = self.channels[channel].written;
        // One word stays free: a full ring would look like an empty one, and the marker needs a place.
        if tail >= head {
            if tail + bytes <= RING_BYTES - 4 {
                return Some(tail);
            }
            return (bytes < head).then_some(0);
        }
        (tail + bytes < head).then_some(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    struct Driver {
        bars: Bars,
        mailbox: Mailbox,
        tail: u32,
        head: u32,
    }

    impl Driver {
        fn new() -> Self {
            let layout = Model::by_name("npu4").unwrap().layout;
            let mut bars = Bars::new(&layout.bars);
            let mut mailbox = Mailbox::new(layout, 3);
            mailbox.open(&mut bars, 1);
            Self { bars, mailbox, tail: 0, head: 0 }
        }

        fn word(&mut self, offset: u32, word: u32) {
            self.bars.set_word(Register { bar: 2, offset }, word);
        }

        /// As the kernel driver puts a message into the ring.
        fn put(&mut self, id: u32, payload: &[u8]) {
            let (ring, _) = Mailbox::rings(1);
            if self.tail + 16 + payload.len() as u32 > RING_BYTES - 4 {
                self.word(ring + self.tail, AT_THE_START);
                self.tail = 0;
            }
            for (index, word) in
                [payload.len() as u32, payload.len() as u32 | VERSION, id, 0x18].into_iter().enumerate()
            {
                self.word(ring + self.tail + 4 * index as u32, word);
            }
            self.bars.write(2, (ring + self.tail + 16) as usize, payload);
            self.tail += 16 + payload.len() as u32;
            let register = self.mailbox.register(1, X2I_TAIL);
            assert_eq!((self.mailbox.sent(register), self.mailbox.taken(register)), (Some(1), None));
            self.bars.set_word(register, self.tail);
        }

        /// As the kernel driver takes a message out.
        fn take(&mut self) -> Option<(u32, Vec<u8>)> {
            let (_, ring) = Mailbox::rings(1);
            let tail = self.bars.word(self.mailbox.register(1, I2X_TAIL));
            if self.head == tail {
                return None;
            }
            if self.mailbox.ring_word(&self.bars, ring + self.head) == AT_THE_START {
                assert!(self.head >= tail);
                self.head = 0;
            }
            let bytes = self.mailbox.ring_word(&self.bars, ring + self.head);
            let id = self.mailbox.ring_word(&self.bars, ring + self.head + 8);
            let mut payload = vec![0; bytes as usize];
            self.bars.read(2, (ring + self.head + 16) as usize, &mut payload);
            self.head += 16 + bytes;
            let register = self.mailbox.register(1, I2X_HEAD);
            self.bars.set_word(register, self.head);
            Some((id, payload))
        }
    }

    #[test]
    fn messages_go_round_in_both_directions() {
        let mut driver = Driver::new();
        for id in 0..500_u32 {
            let payload: Vec<u8> = (0..4 * (id % 37)).map(|byte| (byte + id) as u8).collect();
            driver.put(id, &payload);
            let message = driver.mailbox.receive(&mut driver.bars, 1).unwrap().unwrap();
            assert_eq!((message.id, message.opcode, &message.payload), (id, 0x18, &payload));
            assert_eq!(driver.mailbox.receive(&mut driver.bars, 1), Ok(None));
            assert!(driver.mailbox.send(&mut driver.bars, 1, message));
            assert_eq!(driver.take(), Some((id, payload)));
            assert_eq!(driver.take(), None);
        }
    }

    #[test]
    fn answers_without_room_wait_until_some_are_taken() {
        let mut driver = Driver::new();
        let answer = |id| Message { id, opcode: 0x18, payload: vec![id as u8; 64] };
        for id in 0..200 {
            driver.mailbox.send(&mut driver.bars, 1, answer(id));
        }
        let mut seen = 0;
        while let Some((id, payload)) = driver.take() {
            assert_eq!((id, payload), (seen, vec![seen as u8; 64]));
            seen += 1;
            driver.mailbox.flush(&mut driver.bars, 1);
        }
        assert_eq!(seen, 200);
    }

    #[test]
    fn nonsense_in_the_ring_is_reported_and_skipped() {
        let mut driver = Driver::new();
        let (ring, _) = Mailbox::rings(1);
        driver.word(ring, 0x7fff_fffc);
        driver.tail = 32;
        let register = driver.mailbox.register(1, X2I_TAIL);
        driver.bars.set_word(register, 32);
        assert!(driver.mailbox.receive(&mut driver.bars, 1).unwrap_err().to_string().contains("channel 1"));
        driver.put(7, &[1, 2, 3, 4]);
        assert_eq!(driver.mailbox.receive(&mut driver.bars, 1).unwrap().unwrap().id, 7);
        driver.mailbox.close(1);
        assert_eq!(driver.mailbox.sent(register), None);
    }

    #[test]
    fn the_kernel_driver_finds_the_management() {
        let layout = Model::by_name("npu1").unwrap().layout;
        let mut bars = Bars::new(&layout.bars);
        Mailbox::new(layout, 1).announce(&mut bars, (5, 8));
        let address = bars.word(layout.alive);
        assert_eq!(address, 0x308_0000 + layout.description);
        let words: Vec<u32> =
            (0..12).map(|index| bars.word(Register { bar: 2, offset: layout.description + 4 * index })).collect();
        assert_eq!(words[..4], [0x30c_0000, 0x30c_0004, 0x308_0000, RING_BYTES]);
        assert_eq!(words[8..], [MAGIC, 0, 5, 8]);
    }
}
