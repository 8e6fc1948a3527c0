//! Where everything goes: lanes for wires, ports, and how large tiles have to be.

use super::{TITLE, transfers};
use crate::design::descriptor::{Address, Descriptor, Owner};
use crate::design::routes::{End, Place};
use crate::design::{Design, Position, Tile};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::Port;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// From lane to lane.
const LANE: f64 = 8.0;
/// Between the edge of a tile and its first lane.
const EDGE: f64 = 10.0;
/// Between tiles.
const GAP: f64 = 26.0;
/// Around the array.
const MARGIN: f64 = 16.0;
pub const HEADER: f64 = 24.0;
pub const PORT_WIDTH: f64 = 92.0;
pub const PORT_HEIGHT: f64 = 16.0;
const PORT_STEP: f64 = 20.0;
/// From the ports to the buffers, and the width of those.
pub const BUFFERS_AT: f64 = PORT_WIDTH + 12.0;
pub const BUFFERS_WIDTH: f64 = 230.0;
pub const ROW: f64 = 13.0;
pub const CHIP_WIDTH: f64 = 38.0;
pub const CHIP_STEP: f64 = 18.0;
pub const CHIPS_PER_ROW: usize = 6;
/// Buffers that are drawn of a tile at most; the last line says how many more there are.
pub const MOST_BUFFERS: usize = 48;

/// A wire between two tiles, by the port that sends: its side and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wire {
    Up(u8),
    Down(u8),
    Left(u8),
    Right(u8),
}

impl Wire {
    /// The wire that leaves a master port.
    pub fn of_master(port: Port) -> Option<Self> {
        match port {
            Port::North(number) => Some(Self::Up(number)),
            Port::South(number) => Some(Self::Down(number)),
            Port::West(number) => Some(Self::Left(number)),
            Port::East(number) => Some(Self::Right(number)),
            _ => None,
        }
    }

    /// The wire that comes in at a slave port.
    pub fn of_slave(port: Port) -> Option<Self> {
        port.across().and_then(Self::of_master)
    }

    fn is_vertical(self) -> bool {
        matches!(self, Self::Up(_) | Self::Down(_))
    }
}

/// What a line inside a tile needs besides the lanes of its wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing.
    None,
    /// An upright lane between two level parts.
    Riser,
    /// A level lane between two upright parts.
    Jog,
}

impl Turn {
    /// Between two wires, or a port and a wire, or two ports.
    pub fn of(from: Option<Wire>, to: Option<Wire>) -> Self {
        let is_level = |wire: Option<Wire>| wire.is_none_or(|wire| !wire.is_vertical());
        match (is_level(from), is_level(to)) {
            _ if from.is_some() && from == to => Self::None,
            (true, true) => Self::Riser,
            (false, false) => Self::Jog,
            _ => Self::None,
        }
    }
}

/// The turns of each tile's lines, by the ports they connect.
type Turns = HashMap<(u8, u8), HashMap<(Port, Port), Turn>>;

/// Descriptors with the same buffer.
#[derive(Clone, Debug)]
pub struct Buffer<'a> {
    pub span: Range<u64>,
    pub owner: Owner,
    pub descriptors: Vec<&'a Descriptor>,
}

/// A tile with its place.
#[derive(Debug)]
pub struct Box<'a> {
    pub position: Position,
    pub tile: Option<&'a Tile>,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    /// Where ports, buffers and locks begin.
    pub contents: f64,
    /// Ends of routes and channels in this tile.
    pub ports: Vec<Place>,
    pub buffers: Vec<Buffer<'a>>,
    /// Number, argument and words of what the stream moves.
    pub transfers: Vec<(u8, String, u64)>,
}

/// The drawing's plan.
#[derive(Debug)]
pub struct Layout<'a> {
    pub tiles: Vec<Box<'a>>,
    pub width: f64,
    pub height: f64,
    vertical: HashMap<u8, Vec<Wire>>,
    horizontal: HashMap<u8, Vec<Wire>>,
}

impl<'a> Layout<'a> {
    pub fn of(design: &'a Design) -> Self {
        let mut vertical: HashMap<u8, BTreeSet<Wire>> = HashMap::new();
        let mut horizontal: HashMap<u8, BTreeSet<Wire>> = HashMap::new();
        let mut ports: BTreeMap<(u8, u8), Vec<Place>> = BTreeMap::new();
        let mut turns = Turns::new();
        for route in &design.routes {
            for End { tile, place } in [route.from, route.to] {
                let list = ports.entry(tile.key()).or_default();
                if is_port(place) && !list.contains(&place) {
                    list.push(place);
                }
            }
            for (index, hop) in route.hops.iter().enumerate() {
                let first = index == 0 && is_port(route.from.place);
                let last = index + 1 == route.hops.len() && is_port(route.to.place);
                let from = Wire::of_slave(hop.slave).filter(|_| !first);
                let to = Wire::of_master(hop.master).filter(|_| !last);
                turns.entry(hop.tile.key()).or_default().insert((hop.slave, hop.master), Turn::of(from, to));
                for wire in [from, to].into_iter().flatten() {
                    if wire.is_vertical() {
                        vertical.entry(hop.tile.column).or_default().insert(wire);
                    } else {
                        horizontal.entry(hop.tile.row).or_default().insert(wire);
                    }
                }
            }
        }
        for tile in &design.tiles {
            let list = ports.entry(tile.position.key()).or_default();
            for channel in tile.channels.iter().map(|channel| channel.id).chain(tile.connected.iter().copied()) {
                let place = Place::Dma { direction: channel.direction, channel: channel.channel };
                if !list.contains(&place) {
                    list.push(place);
                }
            }
            list.sort_by_key(|place| order(*place));
        }
        let list = |set: HashMap<u8, BTreeSet<Wire>>| {
            set.into_iter().map(|(key, set)| (key, set.into_iter().collect())).collect()
        };
        let mut layout =
            Self { tiles: Vec::new(), width: 0.0, height: 0.0, vertical: list(vertical), horizontal: list(horizontal) };
        layout.place(design, &ports, &turns);
        layout
    }

    fn place(&mut self, design: &'a Design, ports: &BTreeMap<(u8, u8), Vec<Place>>, turns: &Turns) {
        let rows = design.tiles.iter().map(|tile| tile.position.row + 1).max().unwrap_or(0);
        let count = |column, row, wanted| {
            let turns = turns.get(&(column, row)).into_iter().flat_map(HashMap::values);
            turns.filter(|turn| **turn == wanted).count()
        };
        let mut left = MARGIN;
        for column in 0..design.columns {
            let risers = (0..rows).map(|row| count(column, row, Turn::Riser)).max().unwrap_or(0);
            let lanes = self.vertical.get(&column).map_or(0, Vec::len) + risers;
            let contents = left + EDGE + LANE * lanes as f64 + 8.0;
            let width = contents + BUFFERS_AT + BUFFERS_WIDTH + EDGE - left;
            let mut top = MARGIN + TITLE - 10.0;
            for row in (0..rows).rev() {
                let height = (0..design.columns)
                    .map(|column| {
                        let tile = design.tile(column, row);
                        let ports = ports.get(&(column, row)).map_or(0, Vec::len);
                        needed(design, tile, ports)
                    })
                    .fold(40.0, f64::max);
                let jogs = (0..design.columns).map(|column| count(column, row, Turn::Jog)).max().unwrap_or(0);
                let band = LANE * (self.horizontal.get(&row).map_or(0, Vec::len) + jogs) as f64;
                let height = height + band + EDGE;
                let tile = design.tile(column, row);
                let kind = tile.map_or_else(|| kind_of(design, row), |tile| tile.position.kind);
                self.tiles.push(Box {
                    position: Position { column, row, kind },
                    tile,
                    x: left,
                    y: top,
                    width,
                    height,
                    contents,
                    ports: ports.get(&(column, row)).cloned().unwrap_or_default(),
                    buffers: tile.map(buffers).unwrap_or_default(),
                    transfers: transfers(design, (column, row)),
                });
                top += height + GAP;
            }
            self.height = top;
            left += width + GAP;
        }
        self.width = left - GAP + MARGIN;
        self.height = self.height.max(MARGIN + TITLE);
    }

    pub fn tile(&self, position: Position) -> Option<&Box<'a>> {
        self.tiles.iter().find(|tile| tile.position.key() == position.key())
    }

    /// Where a wire is on the axis across it.
    pub fn lane(&self, tile: &Box<'_>, wire: Wire) -> f64 {
        let (lanes, key) = if wire.is_vertical() {
            (&self.vertical, tile.position.column)
        } else {
            (&self.horizontal, tile.position.row)
        };
        let index = lanes.get(&key).and_then(|lanes| lanes.iter().position(|other| *other == wire)).unwrap_or(0);
        let distance = EDGE + LANE * index as f64;
        if wire.is_vertical() { tile.x + distance } else { tile.y + tile.height - distance }
    }

    /// A place for the upright part of connection `index` of a tile.
    pub fn riser(&self, tile: &Box<'_>, index: usize) -> f64 {
        let lanes = self.vertical.get(&tile.position.column).map_or(0, Vec::len);
        (tile.x + EDGE + LANE * (lanes + index) as f64).min(tile.contents - 6.0)
    }

    /// A place for the level part of connection `index` of a tile.
    pub fn jog(&self, tile: &Box<'_>, index: usize) -> f64 {
        let lanes = self.horizontal.get(&tile.position.row).map_or(0, Vec::len);
        (tile.y + tile.height - EDGE - LANE * (lanes + index) as f64).max(tile.y + HEADER)
    }
}

impl Box<'_> {
    /// Bytes that the bars are long, of a memory of so many: as few as hold all buffers, so that small ones are seen.
    pub fn scale(&self, bytes: u64) -> u64 {
        let end = self.buffers.iter().map(|buffer| buffer.span.end).max().unwrap_or(0);
        end.checked_next_power_of_two().unwrap_or(bytes).clamp(bytes / 8, bytes).max(1)
    }

    /// Where lines meet a port: the left edge of its box.
    pub fn port(&self, place: Place) -> Option<(f64, f64)> {
        let index = self.ports.iter().position(|other| *other == place)?;
        Some((self.contents, self.y + HEADER + PORT_STEP * index as f64 + PORT_HEIGHT / 2.0))
    }
}

/// Whether a place is drawn as a port of its tile.
fn is_port(place: Place) -> bool {
    matches!(place, Place::Dma { .. } | Place::Core | Place::Control | Place::Trace { .. })
}

fn order(place: Place) -> (u8, u8) {
    match place {
        Place::Dma { direction: Direction::StreamToMemory, channel } => (0, channel),
        Place::Dma { channel, .. } => (1, channel),
        Place::Core => (2, 0),
        Place::Trace { number } => (3, number),
        _ => (4, 0),
    }
}

/// Height of a tile's contents.
fn needed(design: &Design, tile: Option<&Tile>, ports: usize) -> f64 {
    let Some(tile) = tile else { return HEADER };
    let rows = match buffers(tile).len() {
        0 => transfers(design, tile.position.key()).len(),
        buffers => buffers,
    };
    let chips = tile.locks.len().div_ceil(CHIPS_PER_ROW);
    let buffers = ROW * rows.min(MOST_BUFFERS + 1) as f64 + CHIP_STEP * chips as f64 + 8.0;
    HEADER + buffers.max(PORT_STEP * ports as f64)
}

/// Descriptors of a tile's own and its neighbours' memory by what they cover, in the order of memory.
fn buffers(tile: &Tile) -> Vec<Buffer<'_>> {
    let mut found: Vec<Buffer<'_>> = Vec::new();
    for descriptor in &tile.descriptors {
        let Address::Tile { owner, .. } = descriptor.address else { continue };
        let span = descriptor.span();
        match found.iter_mut().find(|buffer| buffer.owner == owner && buffer.span == span) {
            Some(buffer) => buffer.descriptors.push(descriptor),
            None => found.push(Buffer { span, owner, descriptors: vec![descriptor] }),
        }
    }
    found.sort_by_key(|buffer| (buffer.owner, buffer.span.start, buffer.span.end));
    found
}

/// What kind of tiles a row has, for one that is not configured.
fn kind_of(design: &Design, row: u8) -> TileKind {
    let same = design.tiles.iter().find(|tile| tile.position.row == row);
    same.map_or(if row == 0 { TileKind::Shim } else { TileKind::Core }, |tile| tile.position.kind)
}
