//! Ports of a tile's stream switch.
//!
//! A **slave** port takes words into the switch, a **master** port sends them out of it. With circuit switching a
//! master names its slave, forever. With packet switching a slave's four slots look at the id in each packet's
//! header and choose an arbiter and one of its four selectors (`msel`); a master takes what its arbiter gets for the
//! selectors in its mask. Neighbours are wired port to port: North master n of a tile is South slave n of the tile
//! above it, and so on. Source: aie-rt and the AI Engine register reference; the same on aie2 and aie2p.

use super::register::{RegisterError, RegisterWrite, TileKind, within};

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

/// The stream switch of one kind of tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSwitch(pub TileKind);

impl StreamSwitch {
    const ENABLE: u32 = 1 << 31;
    const PACKETS: u32 = 1 << 30;
    const DROP_HEADER: u32 = 1 << 7;
    const SLOT_ENABLE: u32 = 1 << 8;
    const SLAVES: u32 = 0x100;
    const SLOTS: u32 = 0x200;

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

    /// Connects `slave` with `master` forever: what is written to the master and to the slave. A slave can feed
    /// several masters. Not every pair has a wire; the switch's documentation lists those that do.
    ///
    /// # Errors
    /// [`PortError::Missing`].
    pub fn circuit(self, slave: Port, master: Port) -> Result<[RegisterWrite; 2], PortError> {
        let (slave, master) = (self.slave_index(slave)?, self.master_index(master)?);
        Ok([
            RegisterWrite::word(self.first() + 4 * master, Self::ENABLE | slave),
            RegisterWrite::word(self.first() + Self::SLAVES + 4 * slave, Self::ENABLE),
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
        Ok(RegisterWrite::word(self.first() + 4 * self.master_index(master)?, value))
    }

    /// Has `slave` take packets, for its slots to route.
    ///
    /// # Errors
    /// [`PortError::Missing`].
    pub fn packet_slave(self, slave: Port) -> Result<RegisterWrite, PortError> {
        let offset = self.first() + Self::SLAVES + 4 * self.slave_index(slave)?;
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
        let offset = self.first() + Self::SLOTS + 0x10 * self.slave_index(slave)? + 4 * number;
        Ok(RegisterWrite::word(offset, (id << 24) | (mask << 16) | Self::SLOT_ENABLE | (msel << 4) | arbiter))
    }

    /// Offset of the first master's register.
    fn first(self) -> u32 {
        match self.0 {
            TileKind::Core | TileKind::Shim => 0x3_F000,
            TileKind::Mem => 0xB_0000,
        }
    }

    fn index(self, role: Role, port: Port) -> Result<u32, PortError> {
        let (tile, role_name) = (self.0, if matches!(role, Role::Master) { "master" } else { "slave" });
        let all = PORTS.iter().flat_map(|(group, counts)| (0..counts[tile as usize][role as usize]).map(group));
        let found = all.zip(0u32..).find(|(there, _)| *there == port);
        found.map(|(_, index)| index).ok_or(PortError::Missing { tile, role: role_name, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

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
