//! Stream switches: who is connected with whom.

use super::replay::Written;
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::{MasterSource, PacketSlot, Port, SlaveMode, StreamSwitch};
use serde::Serialize;

/// Slots of a slave port.
const SLOTS: u32 = 4;

/// A slave whose words all go to the same masters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Circuit {
    /// Where they come from.
    pub slave: Port,
    /// Where they go.
    pub masters: Vec<Port>,
    /// Whether the slave port is on; if it is not, nothing moves.
    pub enabled: bool,
}

/// A master that packets go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PacketMaster {
    /// The port.
    pub port: Port,
    /// Whether it leaves out the header.
    pub drop_header: bool,
}

/// A rule of a slave port for packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PacketRule {
    /// Where they come from.
    pub slave: Port,
    /// The slot that holds the rule; the first that fits counts.
    pub slot: u8,
    /// Id of the packets it takes, as far as `mask` has ones.
    pub id: u8,
    /// Bits of the id that count.
    pub mask: u8,
    /// The arbiter they go to.
    pub arbiter: u8,
    /// Its selector.
    pub msel: u8,
    /// Where they go.
    pub masters: Vec<PacketMaster>,
    /// Whether the slave port takes packets.
    pub enabled: bool,
}

/// The switch of a tile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// Without packets.
    pub circuits: Vec<Circuit>,
    /// With packets.
    pub rules: Vec<PacketRule>,
    /// Slave ports that are on.
    pub slaves: Vec<Port>,
}

impl Switch {
    /// The switch of a tile, as it was written.
    pub(super) fn of(kind: TileKind, written: &Written) -> Self {
        let switch = StreamSwitch(kind);
        let master = |index| MasterSource::decode(written.word(switch.master_register(index)));
        let masters: Vec<(Port, MasterSource)> =
            (0..).zip(switch.masters()).filter_map(|(index, port)| Some((port, master(index)?))).collect();
        let mut found = Self::default();
        for (index, slave) in (0..).zip(switch.slaves()) {
            let mode = SlaveMode::decode(written.word(switch.slave_register(index)));
            if mode.is_some() {
                found.slaves.push(slave);
            }
            let circuit: Vec<Port> = masters
                .iter()
                .filter(|(_, source)| *source == MasterSource::Circuit(index))
                .map(|(port, _)| *port)
                .collect();
            if !circuit.is_empty() {
                let enabled = mode == Some(SlaveMode::Circuit);
                found.circuits.push(Circuit { slave, masters: circuit, enabled });
            }
            for number in 0..SLOTS {
                let Some(slot) = PacketSlot::decode(written.word(switch.slot_register(index, number))) else {
                    continue;
                };
                let takes = |(port, source): &(Port, MasterSource)| match *source {
                    MasterSource::Packets { arbiter, msels, drop_header }
                        if arbiter == slot.arbiter && msels >> slot.msel & 1 != 0 =>
                    {
                        Some(PacketMaster { port: *port, drop_header })
                    }
                    _ => None,
                };
                found.rules.push(PacketRule {
                    slave,
                    slot: number as u8,
                    id: slot.id,
                    mask: slot.mask,
                    arbiter: slot.arbiter,
                    msel: slot.msel,
                    masters: masters.iter().filter_map(takes).collect(),
                    enabled: mode == Some(SlaveMode::Packets),
                });
            }
        }
        found
    }

    /// Whether nothing is connected.
    pub fn is_empty(&self) -> bool {
        self.circuits.is_empty() && self.rules.is_empty() && self.slaves.is_empty()
    }
}
