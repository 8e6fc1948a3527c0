//! The stream switch of a tile: its ports, and the masters that the words of each slave go to.

use super::fifo::{DEPTH, Fifo, Word, Words};
use aie_hal::format::register::TileKind;
use fastrand::Rng;

/// Words that the switch's own FIFO port holds besides.
const FIFO_DEPTH: usize = 16;
/// Arbiters of a switch.
const ARBITERS: usize = 8;
const ENABLE: u32 = 1 << 31;
const PACKETS: u32 = 1 << 30;
const DROP_HEADER: u32 = 1 << 7;

/// Where a master port leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// A slave port of this or another tile.
    Slave {
        column: u8,
        row: u8,
        port: usize,
    },
    /// A stream-to-memory channel of this tile.
    Dma(usize),
    Core,
    /// The tile's control packets.
    Control,
    /// The shim's South port whose words the firmware reads: tokens.
    Firmware,
    /// The edge of the array.
    Nowhere,
}

/// A packet on its way through a slave port.
#[derive(Clone, Debug)]
struct Packet {
    arbiter: usize,
    masters: Vec<usize>,
    at_header: bool,
}

/// The switch of one tile.
#[derive(Debug)]
pub struct Switch {
    slaves: Vec<Fifo>,
    /// A bit for each slave port that has a word.
    pub occupied: u32,
    masters: Vec<u32>,
    slave_words: Vec<u32>,
    slots: Vec<[u32; 4]>,
    /// For each slave port, the masters it feeds without packets.
    circuits: Vec<Vec<usize>>,
    packets: Vec<Option<Packet>>,
    /// Which slave has each arbiter.
    arbiters: [Option<usize>; ARBITERS],
    /// Which slave had each arbiter last: the ones behind it come first.
    served: [usize; ARBITERS],
    /// The slave of the switch's own FIFO.
    fifo: Option<usize>,
    /// What draws who is served next, instead of a fixed order.
    grants: Option<Rng>,
}

/// Why the next word of a slave port does not move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The port is not configured.
    Disabled,
    /// No master takes what it sends.
    Unrouted,
    /// Another slave port has the arbiter.
    Arbiter { number: usize, slave: usize },
    /// One of its masters has no space.
    Full { masters: Vec<usize> },
}

/// A packet that no slot of its port matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmatched {
    pub port: usize,
    pub header: u32,
}

impl Switch {
    pub fn new(kind: TileKind) -> Self {
        let (masters, slaves) = match kind {
            TileKind::Core => (23, 25),
            TileKind::Mem => (17, 18),
            TileKind::Shim => (22, 23),
        };
        let none = || std::iter::repeat_with(Vec::new).take(slaves).collect();
        Self {
            slaves: std::iter::repeat_with(Fifo::default).take(slaves).collect(),
            occupied: 0,
            masters: vec![0; masters],
            slave_words: vec![0; slaves],
            slots: vec![[0; 4]; slaves],
            circuits: none(),
            packets: vec![None; slaves],
            arbiters: [None; ARBITERS],
            served: [slaves - 1; ARBITERS],
            grants: None,
            fifo: match kind {
                TileKind::Core => Some(4),
                TileKind::Mem => None,
                TileKind::Shim => Some(1),
            },
        }
    }

    /// Lets arbiters take any of the packets that wait, by this generator.
    pub fn draw_grants(&mut self, rng: Rng) {
        self.grants = Some(rng);
    }

    /// Back to the state after power-on.
    pub fn reset(&mut self, kind: TileKind) {
        *self = Self { grants: self.grants.take(), ..Self::new(kind) };
    }

    /// Writes a configuration register; `offset` is relative to the first.
    pub fn configure(&mut self, offset: u32, value: u32) {
        let index = |from: u32| (offset - from) as usize / 4;
        match offset {
            0..0x100 => {
                if let Some(master) = self.masters.get_mut(index(0)) {
                    *master = value;
                    self.connect();
                }
            }
            0x100..0x200 => {
                if let Some(slave) = self.slave_words.get_mut(index(0x100)) {
                    *slave = value;
                }
            }
            0x200..0x400 => {
                if let Some(slots) = self.slots.get_mut(index(0x200) / 4) {
                    slots[index(0x200) % 4] = value;
                }
            }
            _ => {}
        }
    }

    /// Finds the masters that each slave feeds without packets.
    fn connect(&mut self) {
        self.circuits.iter_mut().for_each(Vec::clear);
        for (master, word) in self.masters.iter().enumerate() {
            let slave = (word & 0x1f) as usize;
            if word & (ENABLE | PACKETS) == ENABLE
                && let Some(circuit) = self.circuits.get_mut(slave)
            {
                circuit.push(master);
            }
        }
    }

    /// How many slave ports it has.
    pub fn ports(&self) -> usize {
        self.slaves.len()
    }

    pub fn has_space(&self, slave: usize) -> bool {
        self.space(slave) > 0
    }

    /// Words that a slave port takes now.
    #[inline]
    pub fn space(&self, slave: usize) -> usize {
        let depth = if self.fifo == Some(slave) { DEPTH + FIFO_DEPTH } else { DEPTH };
        depth.saturating_sub(self.slaves[slave].len())
    }

    /// From when on a word that goes into a slave port now has a place.
    #[inline]
    pub fn room_from(&self, slave: usize) -> u64 {
        self.slaves[slave].room_from()
    }

    /// Puts a word into a slave port, which has space.
    pub fn push_at(&mut self, slave: usize, word: Word, time: u64) {
        self.slaves[slave].push_at(word, time);
        self.occupied |= 1 << slave;
    }

    /// Puts words into a slave port, which has space for them.
    #[inline]
    pub fn push(&mut self, slave: usize, words: &Words) {
        self.slaves[slave].push(words);
        self.occupied |= u32::from(!words.is_empty()) << slave;
    }

    /// The masters that all words of a slave port go to, if it is on and has no packets.
    pub fn circuit(&self, slave: usize) -> Option<&[usize]> {
        let is_circuit = self.slave_words[slave] & (ENABLE | PACKETS) == ENABLE && self.packets[slave].is_none();
        is_circuit.then(|| &self.circuits[slave][..])
    }

    /// The masters that the next word of a slave port goes to; none when the port leads nowhere, or has to wait for its arbiter.
    pub fn route(&mut self, slave: usize) -> Result<&[usize], Unmatched> {
        let Some(word) = self.slaves[slave].front().filter(|_| self.slave_words[slave] & ENABLE != 0) else {
            return Ok(&[]);
        };
        if self.slave_words[slave] & PACKETS == 0 {
            return Ok(&self.circuits[slave]);
        }
        if self.packets[slave].is_none() {
            let slot = self.slot(slave, word.data).ok_or(Unmatched { port: slave, header: word.data })?;
            let (arbiter, msel) = ((slot & 7) as usize, slot >> 4 & 3);
            if self.arbiters[arbiter].is_some() || self.comes_before(arbiter, slave).is_some() {
                return Ok(&[]);
            }
            let takes = |word: &u32| {
                word & (ENABLE | PACKETS) == ENABLE | PACKETS
                    && (word & 7) as usize == arbiter
                    && word >> 3 & 1 << msel != 0
            };
            let masters = self.masters.iter().enumerate().filter(|(_, word)| takes(word));
            let masters = masters.map(|(master, _)| master).collect();
            self.arbiters[arbiter] = Some(slave);
            self.served[arbiter] = self.grants.as_mut().map_or(slave, |rng| rng.usize(..self.slaves.len()));
            self.packets[slave] = Some(Packet { arbiter, masters, at_header: true });
        }
        Ok(self.packets[slave].as_ref().map_or(&[], |packet| &packet.masters))
    }

    /// The first slot of a slave port that a packet header matches.
    fn slot(&self, slave: usize, header: u32) -> Option<u32> {
        let fits = |slot: &&u32| **slot & 1 << 8 != 0 && (header ^ **slot >> 24) & (**slot >> 16) & 0x1f == 0;
        self.slots[slave].iter().find(fits).copied()
    }

    /// A slave port whose packet an arbiter takes before that of another: arbiters go round.
    fn comes_before(&self, arbiter: usize, slave: usize) -> Option<usize> {
        let count = self.slaves.len();
        let turns = (self.served[arbiter] + 1..).map(|turn| turn % count).take(count);
        turns.take_while(|other| *other != slave).find(|other| {
            let words = self.slave_words[*other] & (ENABLE | PACKETS) == ENABLE | PACKETS;
            let front = self.slaves[*other].front().filter(|_| words && self.packets[*other].is_none());
            let slot = front.and_then(|word| self.slot(*other, word.data));
            slot.is_some_and(|slot| (slot & 7) as usize == arbiter)
        })
    }

    /// Slave ports that have words.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        (0..self.slaves.len()).filter(|slave| self.occupied & 1 << slave != 0)
    }

    /// Words that a slave port holds.
    #[inline]
    pub fn held(&self, slave: usize) -> usize {
        self.slaves[slave].len()
    }

    /// Why the next word of a slave port, which has one, does not move.
    pub fn blocked(&self, slave: usize) -> Blocked {
        if self.slave_words[slave] & ENABLE == 0 {
            return Blocked::Disabled;
        }
        let masters = match &self.packets[slave] {
            Some(packet) => &packet.masters,
            None if self.slave_words[slave] & PACKETS == 0 => &self.circuits[slave],
            None => {
                let slot = self.slaves[slave].front().and_then(|word| self.slot(slave, word.data));
                let number = slot.map_or(0, |slot| (slot & 7) as usize);
                let other = self.arbiters[number].or_else(|| self.comes_before(number, slave));
                return other.map_or(Blocked::Unrouted, |slave| Blocked::Arbiter { number, slave });
            }
        };
        if masters.is_empty() { Blocked::Unrouted } else { Blocked::Full { masters: masters.clone() } }
    }

    /// The slave ports that can send to a master, as it is configured.
    pub fn slaves_of(&self, master: usize) -> Vec<usize> {
        let word = self.masters[master];
        match word & (ENABLE | PACKETS) {
            ENABLE => vec![(word & 0x1f) as usize],
            0 | PACKETS => Vec::new(),
            _ => {
                let feeds =
                    |slot: &u32| slot & 1 << 8 != 0 && slot & 7 == word & 7 && word >> 3 & 1 << (slot >> 4 & 3) != 0;
                (0..self.slots.len()).filter(|slave| self.slots[*slave].iter().any(feeds)).collect()
            }
        }
    }

    /// The masters that [`Switch::route`] has given.
    pub fn masters_of(&self, slave: usize) -> impl Iterator<Item = usize> {
        self.packets[slave].as_ref().map_or(&self.circuits[slave], |packet| &packet.masters).iter().copied()
    }

    /// Whether a master leaves out the word that its slave port is at.
    pub fn drops(&self, slave: usize, master: usize) -> bool {
        let at_header = self.packets[slave].as_ref().is_some_and(|packet| packet.at_header);
        at_header && self.masters[master] & DROP_HEADER != 0
    }

    /// How many words of a slave port go the way that [`Switch::route`] has given: those of one packet, its header alone.
    pub fn together(&self, slave: usize) -> usize {
        match &self.packets[slave] {
            None => self.slaves[slave].len(),
            Some(packet) if packet.at_header => 1,
            Some(_) => self.slaves[slave].up_to_last(),
        }
    }

    /// Takes the next words of a slave port, at most so many and [`Words::MOST`]: they go to all its masters from a time on, or when
    /// they are there. Of packets, those that [`Switch::together`] counts.
    #[inline]
    pub fn take(&mut self, slave: usize, time: u64, most: usize) -> Words {
        let words = self.slaves[slave].pop(time, most);
        if self.slaves[slave].is_empty() {
            self.occupied &= !(1 << slave);
        }
        if let Some(packet) = &mut self.packets[slave]
            && !words.is_empty()
        {
            packet.at_header = false;
            if words.ends_packet() {
                self.arbiters[packet.arbiter] = None;
                self.packets[slave] = None;
            }
        }
        words
    }

    /// Words that have passed each slave port since reset.
    pub fn passed(&self) -> impl Iterator<Item = u64> {
        self.slaves.iter().map(Fifo::passed)
    }
}

/// Where the masters of a tile lead.
pub fn sinks(kind: TileKind, column: u8, row: u8, columns: u8, rows: u8) -> Vec<Sink> {
    use Sink::{Control, Core, Dma, Firmware, Nowhere};
    // First slave port of each direction, by kind of tile.
    let [south, west, north, east] = [0, 1, 2, 3];
    let first = |kind: TileKind, side: usize| match kind {
        TileKind::Core => [5, 11, 15, 19][side],
        TileKind::Mem => [7, 0, 13, 0][side],
        TileKind::Shim => [2, 10, 14, 18][side],
    };
    let kind_of = |row: u8| match row {
        0 => TileKind::Shim,
        1 => TileKind::Mem,
        _ => TileKind::Core,
    };
    let slave = |column: Option<u8>, row: Option<u8>, side: usize, number: usize| match (column, row) {
        (Some(column), Some(row)) if column < columns && row < rows => {
            Sink::Slave { column, row, port: first(kind_of(row), side) + number }
        }
        _ => Nowhere,
    };
    let down = |number| slave(Some(column), row.checked_sub(1), north, number);
    let up = |number| slave(Some(column), row.checked_add(1), south, number);
    let left = |number| slave(column.checked_sub(1), Some(row), east, number);
    let right = |number| slave(column.checked_add(1), Some(row), west, number);
    // The switch's own buffer is an ordinary pair of ports.
    let own_fifo = |port| Sink::Slave { column, row, port };
    let mut sinks = Vec::new();
    match kind {
        TileKind::Core => {
            sinks.extend([Core, Dma(0), Dma(1), Control, own_fifo(4)]);
            sinks.extend((0..4).map(down));
            sinks.extend((0..4).map(left));
            sinks.extend((0..6).map(up));
            sinks.extend((0..4).map(right));
        }
        TileKind::Mem => {
            sinks.extend((0..6).map(Dma));
            sinks.push(Control);
            sinks.extend((0..4).map(down));
            sinks.extend((0..6).map(up));
        }
        TileKind::Shim => {
            sinks.extend([Control, own_fifo(1)]);
            // South 2 and 3 are the DMA's when the demultiplexer says so, the firmware reads South 0, and there is nothing
            // behind the others.
            sinks.extend([Firmware, Nowhere, Dma(0), Dma(1), Nowhere, Nowhere]);
            sinks.extend((0..4).map(left));
            sinks.extend((0..6).map(up));
            sinks.extend((0..4).map(right));
        }
    }
    sinks
}
