//! Routes across tiles: from where words enter a stream switch to where they leave the last one.
//!
//! A route begins at a slave port that is on and that no other tile feeds: a DMA channel, a core, the control packets of a tile, a
//! trace. It is followed from master to wire to slave; a slave with several masters gives several routes. With packets a route
//! is of the ids that every rule on its way takes.

use super::position::Position;
use super::switch::{PacketRule, Switch};
use super::tile::Tile;
use aie_hal::Arch;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use aie_hal::format::shim_mux;
use aie_hal::format::stream_switch::Port;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// Routes that are followed at most; a configuration of random bytes can have any number.
const MOST_ROUTES: usize = 10_000;

/// What is at the end of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Place {
    /// A DMA channel.
    Dma {
        /// Direction.
        direction: Direction,
        /// Its number.
        channel: u8,
    },
    /// The core.
    Core,
    /// The tile's control packets and completion tokens.
    Control,
    /// A trace.
    Trace {
        /// Of the core (0) or, in a core tile, of its memory (1).
        number: u8,
    },
    /// What is below the array: the firmware, which takes completion tokens, or programmable logic.
    Below {
        /// The shim tile's port.
        port: Port,
    },
    /// The edge of the array: the words go nowhere.
    Edge {
        /// The port.
        port: Port,
    },
    /// A slave port that is off: the words stay there.
    Off {
        /// The port.
        port: Port,
    },
    /// A slave port that is on and leads to no master, or has no rule for the packets.
    NoMaster {
        /// The port.
        port: Port,
    },
    /// A slave port that nothing feeds.
    Nothing {
        /// The port.
        port: Port,
    },
    /// A slave port that the same words have passed already.
    Loop {
        /// The port.
        port: Port,
    },
}

/// An end of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct End {
    /// The tile.
    pub tile: Position,
    /// What is there.
    #[serde(flatten)]
    pub place: Place,
}

/// Packets, by their ids: those that agree with `id` where `mask` has ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Packets {
    /// The id.
    pub id: u8,
    /// Bits that count; 31: all of them.
    pub mask: u8,
}

/// A switch on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// Its tile.
    pub tile: Position,
    /// Where the words come in.
    pub slave: Port,
    /// Where they go out.
    pub master: Port,
    /// Whether packets route here.
    pub packets: bool,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Where it begins.
    pub from: End,
    /// Where it ends.
    pub to: End,
    /// The packets that take it. None: everything.
    pub packets: Option<Packets>,
    /// The switches on its way.
    pub hops: Vec<Hop>,
}

impl Place {
    /// Whether words arrive somewhere.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Dma { .. } | Self::Core | Self::Control | Self::Trace { .. } | Self::Below { .. })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dma { direction, channel } => write!(f, "{direction} {channel}"),
            Self::Core => f.write_str("core"),
            Self::Control => f.write_str("control"),
            Self::Trace { number } => write!(f, "trace {number}"),
            Self::Below { port } => write!(f, "{port}, below the array"),
            Self::Edge { port } => write!(f, "{port}, the edge of the array"),
            Self::Off { port } => write!(f, "{port}, which is off"),
            Self::NoMaster { port } => write!(f, "{port}, which leads nowhere"),
            Self::Nothing { port } => write!(f, "{port}, which nothing feeds"),
            Self::Loop { port } => write!(f, "{port}, again"),
        }
    }
}

/// As `shim (0,0) MM2S 0`.
impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.tile, self.place)
    }
}

impl Packets {
    /// Those that a rule takes of these.
    fn narrowed(packets: Option<Self>, rule: &PacketRule) -> Option<Self> {
        let before = packets.unwrap_or(Self { id: 0, mask: 0 });
        let agree = (before.id ^ rule.id) & before.mask & rule.mask == 0;
        let id = (before.id & before.mask) | (rule.id & rule.mask);
        agree.then_some(Self { id, mask: before.mask | rule.mask })
    }
}

/// As `packets 3` or `packets 0b1xxxx`.
impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mask {
            31 => write!(f, "packets {}", self.id),
            0 => f.write_str("all packets"),
            mask => {
                f.write_str("packets 0b")?;
                for bit in (0..5).rev() {
                    let known = mask >> bit & 1 != 0;
                    f.write_str(if !known {
                        "x"
                    } else if self.id >> bit & 1 != 0 {
                        "1"
                    } else {
                        "0"
                    })?;
                }
                Ok(())
            }
        }
    }
}

/// Follows all routes. Says whether there were more.
pub(super) fn follow(arch: &Arch, tiles: &BTreeMap<(u8, u8), Tile>) -> (Vec<Route>, bool) {
    let columns = tiles.keys().map(|(column, _)| column + 1).max().unwrap_or(0);
    let mut walk = Walk { arch, tiles, columns, passed: HashSet::new(), here: HashSet::new(), routes: Vec::new() };
    for tile in tiles.values() {
        for slave in &tile.switch.slaves {
            if let Some(place) = source(tile, *slave) {
                walk.start(tile, *slave, place);
            }
        }
    }
    // What is left is fed by nothing.
    for tile in tiles.values() {
        for slave in &tile.switch.slaves {
            if *slave != Port::Fifo && !walk.passed.contains(&(tile.position, *slave)) {
                walk.start(tile, *slave, Place::Nothing { port: *slave });
            }
        }
    }
    let more = walk.routes.len() >= MOST_ROUTES;
    (walk.routes, more)
}

/// What puts words into a slave port; None if it is fed by a wire or the switch's own buffer.
fn source(tile: &Tile, slave: Port) -> Option<Place> {
    match slave {
        Port::Core => Some(Place::Core),
        Port::Dma(channel) => Some(Place::Dma { direction: Direction::MemoryToStream, channel }),
        Port::TileControl => Some(Place::Control),
        Port::Trace(number) => Some(Place::Trace { number }),
        Port::South(_) if tile.position.kind == TileKind::Shim => Some(below(tile, Direction::MemoryToStream, slave)),
        _ => None,
    }
}

/// What a South port of a shim tile leads to.
fn below(tile: &Tile, direction: Direction, port: Port) -> Place {
    let connected = tile.connected.iter().filter(|channel| channel.direction == direction);
    let found = connected.map(|id| id.channel).find(|channel| shim_mux::port(direction, *channel) == Some(port));
    found.map_or(Place::Below { port }, |channel| Place::Dma { direction, channel })
}

struct Walk<'a> {
    arch: &'a Arch,
    tiles: &'a BTreeMap<(u8, u8), Tile>,
    columns: u8,
    /// Slave ports that any route has passed.
    passed: HashSet<(Position, Port)>,
    /// Those that routes of the present source have passed, with their packets.
    here: HashSet<(Position, Port, Option<Packets>)>,
    routes: Vec<Route>,
}

/// Where a walk is: a slave port, the packets that get there, and the way.
struct Step {
    tile: Position,
    slave: Port,
    packets: Option<Packets>,
    hops: Vec<Hop>,
}

impl Walk<'_> {
    fn start(&mut self, tile: &Tile, slave: Port, place: Place) {
        self.here.clear();
        let from = End { tile: tile.position, place };
        let mut open = vec![Step { tile: tile.position, slave, packets: None, hops: Vec::new() }];
        while let Some(step) = open.pop() {
            if self.routes.len() >= MOST_ROUTES {
                return;
            }
            let mut next = self.step(from, step);
            next.reverse();
            open.append(&mut next);
        }
    }

    /// Goes through one switch; gives the slave ports that are next.
    fn step(&mut self, from: End, step: Step) -> Vec<Step> {
        let Step { tile, slave, packets, hops } = step;
        let end = |place: Place, packets, hops| Route { from, to: End { tile, place }, packets, hops };
        self.passed.insert((tile, slave));
        if !self.here.insert((tile, slave, packets)) {
            self.routes.push(end(Place::Loop { port: slave }, packets, hops));
            return Vec::new();
        }
        let none = Switch::default();
        let switch = self.tiles.get(&tile.key()).map_or(&none, |tile| &tile.switch);
        if !switch.slaves.contains(&slave) {
            self.routes.push(end(Place::Off { port: slave }, packets, hops));
            return Vec::new();
        }
        let mut out: Vec<(Port, Option<Packets>, bool)> = Vec::new();
        for circuit in switch.circuits.iter().filter(|circuit| circuit.slave == slave && circuit.enabled) {
            out.extend(circuit.masters.iter().map(|master| (*master, packets, false)));
        }
        for rule in switch.rules.iter().filter(|rule| rule.slave == slave && rule.enabled) {
            if let Some(narrowed) = Packets::narrowed(packets, rule) {
                out.extend(rule.masters.iter().map(|master| (master.port, Some(narrowed), true)));
            }
        }
        if out.is_empty() {
            self.routes.push(end(Place::NoMaster { port: slave }, packets, hops));
            return Vec::new();
        }
        let mut next = Vec::new();
        for (master, packets, by_packets) in out {
            let mut hops = hops.clone();
            hops.push(Hop { tile, slave, master, packets: by_packets });
            match self.behind(tile, master) {
                Ok((tile, slave)) => next.push(Step { tile, slave, packets, hops }),
                Err(place) => self.routes.push(end(place, packets, hops)),
            }
        }
        next
    }

    /// The slave port behind a master, or what else is there.
    fn behind(&self, tile: Position, master: Port) -> Result<(Position, Port), Place> {
        let edge = Place::Edge { port: master };
        let (column, row) = match master {
            Port::Core => return Err(Place::Core),
            Port::Dma(channel) => return Err(Place::Dma { direction: Direction::StreamToMemory, channel }),
            Port::TileControl => return Err(Place::Control),
            Port::Fifo => return Ok((tile, Port::Fifo)),
            Port::South(_) if tile.kind == TileKind::Shim => {
                let tile = self.tiles.get(&tile.key());
                return Err(
                    tile.map_or(Place::Below { port: master }, |tile| below(tile, Direction::StreamToMemory, master))
                );
            }
            Port::South(_) => (Some(tile.column), tile.row.checked_sub(1)),
            Port::North(_) => (Some(tile.column), tile.row.checked_add(1)),
            Port::West(_) => (tile.column.checked_sub(1), Some(tile.row)),
            Port::East(_) => (tile.column.checked_add(1).filter(|column| *column < self.columns), Some(tile.row)),
            Port::Trace(_) => (None, None),
        };
        let next = column.zip(row).and_then(|(column, row)| Position::new(self.arch, column, row));
        next.zip(master.across()).ok_or(edge)
    }
}
