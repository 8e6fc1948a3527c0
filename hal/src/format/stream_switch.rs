//! Ports of a tile's stream switch.
//!
//! A **slave** port takes words into the switch, a **master** port sends them out of it. With circuit switching a
//! master names its slave, forever. With packet switching a slave's four slots look at the id in each packet's
//! header and choose an arbiter and one of its four selectors (`msel`); a master takes what its arbiter gets for the
//! selectors in its mask. Neighbours are wired port to port: North master n of a tile is South slave n of the tile
//! above it, and so on. Source: aie-rt and the AI Engine register reference; the same on aie2 and aie2p.

use super::register::{RegisterError, RegisterWrite, TileKind, within};
use std::fmt;

/// What a port leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// The core.
    Core,
    /// A channel of the tile's DMA.
    Dma(u8),
    /// The tile's control packets.
    TileControl,
    /// The switch's own buffer.
    Fifo,
    /// The tile below; in a shim tile the logic below the array, or the DMA (see [`shim_mux`](super::shim_mux)).
    South(u8),
    /// The tile to the left.
    West(u8),
    /// The tile above.
    North(u8),
    /// The tile to the right.
    East(u8),
    /// Trace of the core (0) or, in a core tile, of its memory (1). Only as a slave.
    Trace(u8),
}

impl Port {
    /// The port at the other end of the wire: what a master of one tile is as a slave of its neighbour. None for ports
    /// that end in their own tile.
    #[must_use]
    pub fn across(self) -> Option<Self> {
        match self {
            Self::South(number) => Some(Self::North(number)),
            Self::West(number) => Some(Self::East(number)),
            Self::North(number) => Some(Self::South(number)),
            Self::East(number) => Some(Self::West(number)),
            Self::Core | Self::Dma(_) | Self::TileControl | Self::Fifo | Self::Trace(_) => None,
        }
    }
}

/// As people write ports: `North 3`, `DMA 0`, `core`.
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core => f.write_str("core"),
            Self::Dma(number) => write!(f, "DMA {number}"),
            Self::TileControl => f.write_str("control"),
            Self::Fifo => f.write_str("FIFO"),
            Self::South(number) => write!(f, "South {number}"),
            Self::West(number) => write!(f, "West {number}"),
            Self::North(number) => write!(f, "North {number}"),
            Self::East(number) => write!(f, "East {number}"),
            Self::Trace(number) => write!(f, "trace {number}"),
        }
    }
}

/// As its name.
impl serde::Serialize for Port {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Which end of the switch a port is at: the words go out of it at a master, and into it at a slave.
#[derive(Clone, Copy)]
enum Role {
    Master,
    Slave,
}

/// A group of ports: how many masters and slaves of it a core, a mem and a shim tile have.
type Group = (fn(u8) -> Port, [[u8; 2]; 3]);

/// The groups in the order of their registers.
const PORTS: [Group; 9] = [
    (|_| Port::Core, [[1, 1], [0, 0], [0, 0]]),
    (Port::Dma, [[2, 2], [6, 6], [0, 0]]),
    (|_| Port::TileControl, [[1, 1], [1, 1], [1, 1]]),
    (|_| Port::Fifo, [[1, 1], [0, 0], [1, 1]]),
    (Port::South, [[4, 6], [4, 6], [6, 8]]),
    (Port::West, [[4, 4], [0, 0], [4, 4]]),
    (Port::North, [[6, 4], [6, 4], [6, 4]]),
    (Port::East, [[4, 4], [0, 0], [4, 4]]),
    (Port::Trace, [[0, 2], [0, 1], [0, 1]]),
];

/// A tile has no such port, or a field of its configuration does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The port.
    #[error("a {tile:?} tile's stream switch has no {role} port {port:?}")]
    Missing {
        /// Kind of tile.
        tile: TileKind,
        /// `"master"` or `"slave"`.
        role: &'static str,
        /// The requested port.
        port: Port,
    },
    /// The field.
    #[error(transparent)]
    Field(#[from] RegisterError),
}

/// One rule of a slave port for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSlot {
    /// Packet id, 0 to 31, compared under `mask`.
    pub id: u8,
    /// Bits of the id that count, 0 to 31.
    pub mask: u8,
    /// Arbiter the packet goes to, 0 to 7.
    pub arbiter: u8,
    /// Selector of the arbiter, 0 to 3.
    pub msel: u8,
}

impl PacketSlot {
    /// The rule that a slot's register holds. None if the slot is off.
    #[must_use]
    pub fn decode(word: u32) -> Option<Self> {
        let field = |low: u32, mask: u32| ((word >> low) & mask) as u8;
        let slot = Self { id: field(24, 31), mask: field(16, 31), arbiter: field(0, 7), msel: field(4, 3) };
        (word & StreamSwitch::SLOT_ENABLE != 0).then_some(slot)
    }

    /// Whether it takes a packet with this id.
    #[must_use]
    pub fn takes(self, id: u8) -> bool {
        (self.id ^ id) & self.mask == 0
    }
}

/// What a master port sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MasterSource {
    /// All words of the slave with this index.
    Circuit(u32),
    /// The packets that `arbiter` gets for the selectors in `msels` (bit n: selector n).
    Packets {
        /// 0 to 7.
        arbiter: u8,
        /// Mask of selectors.
        msels: u8,
        /// Whether headers are left out.
        drop_header: bool,
    },
}

impl MasterSource {
    /// What a master's register says. None if the port is off.
    #[must_use]
    pub fn decode(word: u32) -> Option<Self> {
        let source = if word & StreamSwitch::PACKETS == 0 {
            Self::Circuit(word & 31)
        } else {
            let drop_header = word & StreamSwitch::DROP_HEADER != 0;
            Self::Packets { arbiter: (word & 7) as u8, msels: ((word >> 3) & 15) as u8, drop_header }
        };
        (word & StreamSwitch::ENABLE != 0).then_some(source)
    }
}

/// What a slave port does with its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlaveMode {
    /// They go to the masters that name it.
    Circuit,
    /// Its slots route them packet by packet.
    Packets,
}

impl SlaveMode {
    /// What a slave's register says. None if the port is off.
    #[must_use]
    pub fn decode(word: u32) -> Option<Self> {
        let mode = if word & StreamSwitch::PACKETS == 0 { Self::Circuit } else { Self::Packets };
        (word & StreamSwitch::ENABLE != 0).then_some(mode)
    }
}

/// The stream switch of one kind of tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSwitch(pub TileKind);

impl StreamSwitch {
    /// Arbiters of a switch: the field has two values more.
    pub const ARBITERS: u8 = 6;
    /// Slots of a slave port.
    pub const SLOTS: u8 = 4;

    const ENABLE: u32 = 1 << 31;
    const PACKETS: u32 = 1 << 30;
    const DROP_HEADER: u32 = 1 << 7;
    const SLOT_ENABLE: u32 = 1 << 8;
    const SLAVES: u32 = 0x100;
    const FIRST_SLOT: u32 = 0x200;

    /// Index of a master port: its place among the registers.
    ///
    /// # Errors
    /// [`PortError::Missing`].
    pub fn master_index(self, port: Port) -> Result<u32, PortError> {
        self.index(Role::Master, port)
    }

    /// Index of a slave port, by which masters name it.
    ///
    /// # Errors
    /// [`PortError::Missing`].
    pub fn slave_index(self, port: Port) -> Result<u32, PortError> {
        self.index(Role::Slave, port)
    }

    /// The master port with an index. None if there is none.
    #[must_use]
    pub fn master(self, index: u32) -> Option<Port> {
        self.ports(Role::Master).nth(index as usize)
    }

    /// The slave port with an index. None if there is none.
    #[must_use]
    pub fn slave(self, index: u32) -> Option<Port> {
        self.ports(Role::Slave).nth(index as usize)
    }

    /// All master ports, in the order of their indices.
    pub fn masters(self) -> impl Iterator<Item = Port> {
        self.ports(Role::Master)
    }

    /// All slave ports, in the order of their indices.
    pub fn slaves(self) -> impl Iterator<Item = Port> {
        self.ports(Role::Slave)
    }

    /// Offset of the register of the master with an index; see [`MasterSource`].
    #[must_use]
    pub fn master_register(self, index: u32) -> u32 {
        self.first() + 4 * index
    }

    /// Offset of the register of the slave with an index; see [`SlaveMode`].
    #[must_use]
    pub fn slave_register(self, index: u32) -> u32 {
        self.first() + Self::SLAVES + 4 * index
    }

    /// Offset of the register of slot `number` of the slave with an index; see [`PacketSlot`].
    #[must_use]
    pub fn slot_register(self, index: u32, number: u32) -> u32 {
        self.first() + Self::FIRST_SLOT + 0x10 * index + 4 * number
    }

    /// Whether the switch has a wire from `slave` to `master`, for circuits as for packets. Ports that the tile does not
    /// have are connected with nothing. The rules are those of aie-rt and of mlir-aie's target model, which agree.
    #[must_use]
    pub fn has_wire(self, slave: Port, master: Port) -> bool {
        use Port::{Core, Dma, East, Fifo, North, South, TileControl, Trace, West};
        if self.slave_index(slave).is_err() || self.master_index(master).is_err() {
            return false;
        }
        // Back to where the words came from: only with the same number.
        let back = match (slave, master) {
            (South(from), South(to)) | (West(from), West(to)) | (North(from), North(to)) | (East(from), East(to)) => {
                Some(from == to)
            }
            (Dma(from), Dma(to)) => Some(from == to),
            _ => None,
        };
        let back_or = |other: bool| back.unwrap_or(other);
        match self.0 {
            TileKind::Core => match slave {
                Trace(_) => matches!(master, Fifo | South(_) | Dma(0)),
                Core => master != Core,
                TileControl => !matches!(master, Dma(_) | TileControl),
                _ => back_or(true),
            },
            TileKind::Mem => match (slave, master) {
                (Trace(_), _) => matches!(master, South(_) | Dma(5)),
                (TileControl, Dma(number)) => number == 5,
                (TileControl, _) => matches!(master, South(_) | North(_)),
                // Words that pass through keep their number.
                (South(from), North(to)) | (North(from), South(to)) => from == to,
                _ => back_or(true),
            },
            TileKind::Shim => match slave {
                Trace(_) => matches!(master, Fifo | South(_) | West(0) | East(0)),
                TileControl => master != TileControl,
                South(_) | Fifo => true,
                _ => back_or(true),
            },
        }
    }

    /// Connects `slave` with `master` forever: what is written to the master and to the slave. A slave can feed
    /// several masters. Not every pair has a wire; see [`StreamSwitch::has_wire`].
    ///
    /// # Errors
    /// [`PortError::Missing`].
    pub fn circuit(self, slave: Port, master: Port) -> Result<[RegisterWrite; 2], PortError> {
        let (slave, master) = (self.slave_index(slave)?, self.master_index(master)?);
        Ok([
            RegisterWrite::word(self.master_register(master), Self::ENABLE | slave),
            RegisterWrite::word(self.slave_register(slave), Self::ENABLE),
        ])
    }

    /// Has `master` send the packets that `arbiter` (0 to 7) gets for the selectors in `msels` (bit n: selector n), with
    /// or without their headers.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn packet_master(
        self,
        master: Port,
        arbiter: u8,
        msels: u8,
        drop_header: bool,
    ) -> Result<RegisterWrite, PortError> {
        let arbiter = within("arbiter", 0, 7, arbiter)?;
        let msels = within("mask of selectors", 0, 15, msels)?;
        let drop_header = if drop_header { Self::DROP_HEADER } else { 0 };
        let value = Self::ENABLE | Self::PACKETS | drop_header | (msels << 3) | arbiter;
        Ok(RegisterWrite::word(self.master_register(self.master_index(master)?), value))
    }

    /// Has `slave` take packets, for its slots to route.
    ///
    /// # Errors
    /// [`PortError::Missing`].
    pub fn packet_slave(self, slave: Port) -> Result<RegisterWrite, PortError> {
        let offset = self.slave_register(self.slave_index(slave)?);
        Ok(RegisterWrite::word(offset, Self::ENABLE | Self::PACKETS))
    }

    /// Sets slot `number` (0 to 3) of `slave`.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn slot(self, slave: Port, number: u8, slot: PacketSlot) -> Result<RegisterWrite, PortError> {
        let number = within("slot of a slave port", 0, 3, number)?;
        let id = within("packet id", 0, 31, slot.id)?;
        let mask = within("mask of a packet id", 0, 31, slot.mask)?;
        let msel = within("selector", 0, 3, slot.msel)?;
        let arbiter = within("arbiter", 0, 7, slot.arbiter)?;
        let offset = self.slot_register(self.slave_index(slave)?, number);
        Ok(RegisterWrite::word(offset, (id << 24) | (mask << 16) | Self::SLOT_ENABLE | (msel << 4) | arbiter))
    }

    /// Switches slot `number` (0 to 3) of `slave` off.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn no_slot(self, slave: Port, number: u8) -> Result<RegisterWrite, PortError> {
        let number = within("slot of a slave port", 0, 3, number)?;
        Ok(RegisterWrite::word(self.slot_register(self.slave_index(slave)?, number), 0))
    }

    /// Offset of the first master's register.
    fn first(self) -> u32 {
        match self.0 {
            TileKind::Core | TileKind::Shim => 0x3_F000,
            TileKind::Mem => 0xB_0000,
        }
    }

    fn ports(self, role: Role) -> impl Iterator<Item = Port> {
        let of = move |counts: [[u8; 2]; 3]| 0..counts[self.0 as usize][role as usize];
        PORTS.into_iter().flat_map(move |(group, counts)| of(counts).map(group))
    }

    fn index(self, role: Role, port: Port) -> Result<u32, PortError> {
        let (tile, role_name) = (self.0, if matches!(role, Role::Master) { "master" } else { "slave" });
        let found = self.ports(role).zip(0u32..).find(|(there, _)| *there == port);
        found.map(|(_, index)| index).ok_or(PortError::Missing { tile, role: role_name, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Pairs with a wire, and their neighbours without one, from the list in aie-rt.
    #[rstest]
    #[case(TileKind::Core, Port::South(1), Port::Dma(0), true)]
    #[case(TileKind::Core, Port::South(1), Port::North(5), true)]
    #[case(TileKind::Core, Port::South(1), Port::South(1), true)]
    #[case(TileKind::Core, Port::South(1), Port::South(2), false)]
    #[case(TileKind::Core, Port::Dma(0), Port::Dma(1), false)]
    #[case(TileKind::Core, Port::Core, Port::Core, false)]
    #[case(TileKind::Core, Port::Trace(0), Port::Dma(0), true)]
    #[case(TileKind::Core, Port::Trace(1), Port::Dma(1), false)]
    #[case(TileKind::Core, Port::TileControl, Port::Dma(0), false)]
    #[case(TileKind::Mem, Port::South(3), Port::North(3), true)]
    #[case(TileKind::Mem, Port::South(3), Port::North(4), false)]
    #[case(TileKind::Mem, Port::North(2), Port::South(1), false)]
    #[case(TileKind::Mem, Port::South(3), Port::Dma(5), true)]
    #[case(TileKind::Mem, Port::Dma(4), Port::North(0), true)]
    #[case(TileKind::Mem, Port::Dma(4), Port::Dma(3), false)]
    #[case(TileKind::Mem, Port::TileControl, Port::Dma(4), false)]
    #[case(TileKind::Mem, Port::Dma(0), Port::East(0), false)]
    #[case(TileKind::Shim, Port::South(3), Port::North(0), true)]
    #[case(TileKind::Shim, Port::South(3), Port::South(2), true)]
    #[case(TileKind::Shim, Port::North(3), Port::North(2), false)]
    #[case(TileKind::Shim, Port::Trace(0), Port::East(1), false)]
    #[case(TileKind::Shim, Port::TileControl, Port::South(0), true)]
    fn wires(#[case] tile: TileKind, #[case] slave: Port, #[case] master: Port, #[case] wired: bool) {
        assert_eq!(StreamSwitch(tile).has_wire(slave, master), wired);
    }

    /// First and last index of groups, as the register reference lists them.
    #[rstest]
    #[case(TileKind::Core, Port::South(0), 5, Port::South(0), 5)]
    #[case(TileKind::Core, Port::West(3), 12, Port::West(0), 11)]
    #[case(TileKind::Core, Port::North(5), 18, Port::North(3), 18)]
    #[case(TileKind::Core, Port::East(3), 22, Port::Trace(1), 24)]
    #[case(TileKind::Mem, Port::TileControl, 6, Port::TileControl, 6)]
    #[case(TileKind::Mem, Port::South(3), 10, Port::South(5), 12)]
    #[case(TileKind::Mem, Port::North(5), 16, Port::Trace(0), 17)]
    #[case(TileKind::Shim, Port::South(5), 7, Port::South(7), 9)]
    #[case(TileKind::Shim, Port::West(0), 8, Port::West(0), 10)]
    #[case(TileKind::Shim, Port::East(3), 21, Port::Trace(0), 22)]
    fn indices(
        #[case] tile: TileKind,
        #[case] master: Port,
        #[case] master_index: u32,
        #[case] slave: Port,
        #[case] slave_index: u32,
    ) {
        let switch = StreamSwitch(tile);
        assert_eq!(switch.master_index(master), Ok(master_index));
        assert_eq!(switch.slave_index(slave), Ok(slave_index));
        assert_eq!((switch.master(master_index), switch.slave(slave_index)), (Some(master), Some(slave)));
    }

    #[rstest]
    #[case(TileKind::Core, 23, 25)]
    #[case(TileKind::Mem, 17, 18)]
    #[case(TileKind::Shim, 22, 23)]
    fn every_index_has_its_port_and_no_other(#[case] tile: TileKind, #[case] masters: u32, #[case] slaves: u32) {
        let switch = StreamSwitch(tile);
        assert_eq!((switch.masters().count(), switch.slaves().count()), (masters as usize, slaves as usize));
        assert_eq!((switch.master(masters), switch.slave(slaves)), (None, None));
        for index in 0..masters {
            assert_eq!(switch.master_index(switch.master(index).unwrap()), Ok(index));
        }
        for index in 0..slaves {
            assert_eq!(switch.slave_index(switch.slave(index).unwrap()), Ok(index));
        }
    }

    /// Words as mlir-aie's PDIs have them.
    #[test]
    fn registers_are_read_back() {
        assert_eq!(MasterSource::decode(0x8000_0007), Some(MasterSource::Circuit(7)));
        let packets = MasterSource::Packets { arbiter: 5, msels: 8, drop_header: false };
        assert_eq!(MasterSource::decode(0xC000_0045), Some(packets));
        assert_eq!(MasterSource::decode(0x4000_0045), None);
        let modes = [0x8000_0000, 0xC000_0000, 0].map(SlaveMode::decode);
        assert_eq!(modes, [Some(SlaveMode::Circuit), Some(SlaveMode::Packets), None]);
        let slot = PacketSlot { id: 15, mask: 31, arbiter: 5, msel: 3 };
        assert_eq!((PacketSlot::decode(0x0F1F_0135), PacketSlot::decode(0x0F1F_0035)), (Some(slot), None));
        assert!(slot.takes(15) && !slot.takes(14));
        let any = PacketSlot { mask: 0x1C, ..slot };
        assert!((12..16).all(|id| any.takes(id)) && !any.takes(16));
    }

    #[test]
    fn wires_and_names() {
        assert_eq!(Port::North(3).across(), Some(Port::South(3)));
        assert_eq!((Port::West(0).across(), Port::Dma(0).across()), (Some(Port::East(0)), None));
        let names = [Port::Core, Port::Dma(1), Port::TileControl, Port::Fifo, Port::South(3), Port::Trace(0)];
        let names = names.map(|port| port.to_string());
        assert_eq!(names, ["core", "DMA 1", "control", "FIFO", "South 3", "trace 0"]);
    }

    #[test]
    fn ports_that_are_not_there_are_named() {
        let mem = StreamSwitch(TileKind::Mem);
        let message = mem.circuit(Port::West(0), Port::Dma(0)).unwrap_err().to_string();
        assert_eq!(message, "a Mem tile's stream switch has no slave port West(0)");
        assert!(mem.packet_slave(Port::Dma(6)).is_err());
        assert!(StreamSwitch(TileKind::Core).master_index(Port::Trace(0)).is_err());
        assert!(StreamSwitch(TileKind::Shim).packet_master(Port::Dma(0), 0, 1, true).is_err());
    }

    #[test]
    fn fields_have_limits() {
        let (core, port) = (StreamSwitch(TileKind::Core), Port::West(1));
        let slot = PacketSlot { id: 31, mask: 31, arbiter: 7, msel: 3 };
        assert_eq!(core.slot(port, 3, slot).unwrap().value, 0x1F1F_0137);
        let off = core.no_slot(port, 3).unwrap();
        assert_eq!((off.offset, off.value), (core.slot(port, 3, slot).unwrap().offset, 0));
        assert!(core.no_slot(port, 4).is_err());
        for (number, wrong) in [
            (4, slot),
            (0, PacketSlot { id: 32, ..slot }),
            (0, PacketSlot { mask: 32, ..slot }),
            (0, PacketSlot { arbiter: 8, ..slot }),
            (0, PacketSlot { msel: 4, ..slot }),
        ] {
            assert!(matches!(core.slot(port, number, wrong), Err(PortError::Field(_))), "{wrong:?}");
        }
        assert!(core.packet_master(port, 8, 1, false).is_err() && core.packet_master(port, 0, 16, false).is_err());
    }
}
