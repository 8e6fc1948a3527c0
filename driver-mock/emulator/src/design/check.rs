//! What cannot work as it is configured.
//!
//! Only what is certain from the configuration alone is named: words that are routed into nothing, descriptors that a channel
//! would stop at, tokens that are never sent or not waited for, queues that overflow, ports without a wire, locks that cannot hold a
//! value, clocks that are switched off, code that is none.

use super::Problem;
use super::descriptor::{Address, Descriptor, Owner};
use super::flow::Flow;
use super::in_flight::{InFlight, QUEUE};
use super::place::COLUMN_CLOCK;
use super::position::Position;
use super::routes::{Place, Route};
use super::static_channels::Static;
use super::stream::{Action, Stream};
use super::switch::PacketMaster;
use super::tile::{ChannelId, Task, Tile, has_descriptor, has_lock, neighbour};
use aie_hal::Arch;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::ARRAY_OFFSET;
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::StreamSwitch;
use std::collections::BTreeMap;

/// What fits into the six bits of a lock.
pub(super) const LOCK_MAX: u32 = 63;

pub(super) struct Check<'a> {
    pub arch: &'a Arch,
    pub tiles: &'a BTreeMap<(u8, u8), Tile>,
    pub routes: &'a [Route],
    pub problems: &'a mut Vec<Problem>,
    pub doubts: &'a mut Vec<Problem>,
}

impl Check<'_> {
    pub fn configuration(&mut self) {
        for tile in self.tiles.values() {
            let position = tile.position;
            if let Some(program) = tile.core.as_ref().and_then(|core| core.program.as_ref())
                && let Some(line) = program.lines.iter().find(|line| line.error.is_some())
            {
                let error = line.error.as_deref().unwrap_or_default();
                let other = if program.undecoded * 4 > program.lines.len() {
                    " (a program of another generation?)"
                } else {
                    ""
                };
                let what =
                    format!("{} bundles cannot be decoded{other}; at {:#x}: {error}", program.undecoded, line.address);
                self.add(position, what);
            }
            self.switch(tile);
            for register in &tile.registers {
                self.register(position, register.offset, u32::MAX, register.value);
            }
            for channel in &tile.channels {
                for task in &channel.tasks {
                    self.task(tile.position, channel.id, task, |id| tile.descriptor(id).cloned());
                }
                let lost = channel.tasks.len().saturating_sub(QUEUE);
                if lost > 0 && channel.tasks[0].endless {
                    self.add(position, format!("{} {lost} tasks behind an endless one are lost", channel.id));
                }
                if !channel.tasks.is_empty() {
                    self.fed(position, channel.id);
                }
            }
        }
        for route in self.routes {
            if !route.to.place.is_end() {
                let packets = route.packets.map(|packets| format!(" {packets}")).unwrap_or_default();
                self.add(route.from.tile, format!("the route from {}{packets} ends at {}", route.from, route.to));
            } else if let Place::Nothing { .. } = route.from.place {
                self.add(route.to.tile, format!("the route to {} begins at {}", route.to, route.from));
            }
        }
    }

    pub fn stream(&mut self, stream: &Stream) {
        let mut tokens: BTreeMap<(u8, u8, u8, u8), i64> = BTreeMap::new();
        let key = |column, row, channel: ChannelId| (column, row, channel.direction.code(), channel.channel);
        let mut known: BTreeMap<(u8, u8, u8), Descriptor> = BTreeMap::new();
        let is_static = Static::of(self.tiles).is_whole_design(stream);
        let mut in_flight = InFlight::new(is_static.then(|| Flow::of(self.tiles, self.routes)));
        for tile in self.tiles.values() {
            tile.channels.iter().for_each(|channel| in_flight.configured(tile.position, channel.id, &channel.tasks));
        }
        for step in &stream.steps {
            for action in &step.actions {
                if let Some((tile, what)) = in_flight.action(step.index, action) {
                    self.add(tile, what);
                }
                match action {
                    Action::Descriptor { tile, descriptor } => {
                        known.insert((tile.column, tile.row, descriptor.id), descriptor.clone());
                    }
                    Action::AddressPatch { tile, descriptor: Some(id), argument, byte, .. } => {
                        if let Some(descriptor) = known.get_mut(&(tile.column, tile.row, *id)) {
                            descriptor.address = Address::Argument { argument: *argument, byte: *byte };
                        }
                    }
                    // What it makes of the descriptor is in the task that uses it.
                    Action::DescriptorWord { tile, descriptor, .. } => {
                        known.remove(&(tile.column, tile.row, *descriptor));
                    }
                    Action::Start { tile, channel, task, .. } => {
                        let configured = self.tiles.get(&tile.key());
                        self.task(*tile, *channel, task, |id| {
                            let written = known.get(&(tile.column, tile.row, id)).cloned();
                            written.or_else(|| configured?.descriptor(id).cloned())
                        });
                        *tokens.entry(key(tile.column, tile.row, *channel)).or_default() += i64::from(task.token);
                        self.fed(*tile, *channel);
                    }
                    Action::WaitToken { column, row, columns, rows, channel } => {
                        let rows = *row..row.saturating_add(*rows).min(self.arch.array.rows as u8);
                        let tiles = (*column..column.saturating_add(*columns))
                            .flat_map(|column| rows.clone().map(move |row| (column, row)));
                        let mut missing = None;
                        for (column, row) in tiles {
                            let sent = tokens.entry(key(column, row, *channel)).or_default();
                            *sent -= 1;
                            if *sent < 0 {
                                missing = missing.or(Some((column, row)));
                            }
                        }
                        if let Some((column, row)) = missing {
                            let (index, channel) = (step.index, channel.to_string());
                            let what = format!(
                                "operation {index} waits for a token of ({column},{row}) {channel}, and no task of the stream sends it"
                            );
                            self.problems.push(Problem { tile: None, what });
                        }
                    }
                    Action::Lock { tile, lock, value } if *value > LOCK_MAX => {
                        let index = step.index;
                        self.add(
                            *tile,
                            format!("operation {index} sets lock {lock} to {value}: a lock holds 0 to {LOCK_MAX}"),
                        );
                    }
                    Action::Register { tile, offset, mask, value, .. } => self.register(*tile, *offset, *mask, *value),
                    Action::Outside { address } => self.problems.push(outside(self.arch, *address)),
                    _ => {}
                }
            }
        }
        for ((column, row), what) in in_flight.tokens_left() {
            self.problems.push(Problem { tile: Position::new(self.arch, column, row), what });
        }
    }

    /// Clocks are on when a partition is made (npu1), and no firmware is known to switch them on again.
    fn register(&mut self, tile: Position, offset: u32, mask: u32, value: u32) {
        if tile.kind == TileKind::Shim && offset == COLUMN_CLOCK && mask & !value & 1 != 0 {
            self.add(tile, "the clock of its column is switched off, and nothing there moves".into());
        }
    }

    /// Connections that a switch does not have.
    fn switch(&mut self, tile: &Tile) {
        let switch = StreamSwitch(tile.position.kind);
        for circuit in &tile.switch.circuits {
            let unwired = circuit.masters.iter().filter(|master| !switch.has_wire(circuit.slave, **master));
            let what: Vec<String> =
                unwired.map(|master| format!("its switch has no wire from {} to {master}", circuit.slave)).collect();
            what.into_iter().for_each(|what| self.add(tile.position, what));
        }
        for rule in &tile.switch.rules {
            let unwired = rule.masters.iter().filter(|master| !switch.has_wire(rule.slave, master.port));
            let what = unwired.map(|PacketMaster { port, .. }| {
                format!("its switch has no wire for packets from {} to {port}", rule.slave)
            });
            what.for_each(|what| self.add(tile.position, what));
        }
        for rule in tile.switch.rules.iter().filter(|rule| rule.arbiter >= StreamSwitch::ARBITERS) {
            let (arbiter, slave) = (rule.arbiter, rule.slave);
            self.add(
                tile.position,
                format!("packets of {slave} go to arbiter {arbiter}; a switch has {}", StreamSwitch::ARBITERS),
            );
        }
    }

    fn task(&mut self, tile: Position, channel: ChannelId, task: &Task, of: impl Fn(u8) -> Option<Descriptor>) {
        for id in &task.chain {
            let on = format!("{channel} runs BD {id}");
            let Some(descriptor) = of(*id).filter(|_| has_descriptor(tile.kind, *id)) else {
                self.add(tile, format!("{on}, which is not written"));
                continue;
            };
            if !descriptor.valid {
                self.add(tile, format!("{on}, which is not valid"));
            }
            if tile.kind == TileKind::Shim && descriptor.words == 0 {
                self.add(tile, format!("{on}, which moves nothing: a shim's transfer has at least a word"));
            }
            if tile.kind == TileKind::Mem && channel.channel.is_multiple_of(2) != (*id < 24) {
                self.add(tile, format!("{on}: even channels have BDs 0 to 23, odd ones 24 to 47"));
            }
            if let Address::Host { byte } = descriptor.address
                && byte < ARRAY_OFFSET
            {
                let what = format!(
                    "{on}, whose address {byte:#x} is below the host's memory, which begins at {ARRAY_OFFSET:#x}, and no operation \
                     puts an argument's address there"
                );
                self.add(tile, what);
            }
            if tile.kind == TileKind::Shim
                && channel.direction == Direction::MemoryToStream
                && descriptor.iteration.is_some()
                && descriptor.dimensions.is_empty()
            {
                let what = format!(
                    "{on}, an iteration over single lines: it timed out on npu1, 30 times of 30; a dimension does the same"
                );
                let doubt = Problem { tile: Some(tile), what };
                if !self.doubts.contains(&doubt) {
                    self.doubts.push(doubt);
                }
            }
            self.memory(tile, &on, &descriptor);
            for lock in [descriptor.acquire, descriptor.release].into_iter().flatten() {
                let there = neighbour(tile.key(), lock.owner).is_some() && has_lock(tile.kind, lock.lock);
                if !there {
                    self.add(tile, format!("{on}, which uses a lock that is not there"));
                }
            }
        }
    }

    fn memory(&mut self, tile: Position, on: &str, descriptor: &Descriptor) {
        let Address::Tile { owner, .. } = descriptor.address else { return };
        let memory = if tile.kind == TileKind::Mem { &self.arch.mem_tile } else { &self.arch.core };
        let (bytes, span) = (memory.data_bytes as u64, descriptor.span());
        // A mem tile's neighbours follow without a gap.
        let room = match owner {
            Owner::West => 3 * bytes,
            Owner::Own if tile.kind == TileKind::Mem => 2 * bytes,
            _ => bytes,
        };
        if owner == Owner::Nobody || span.end > room {
            self.add(tile, format!("{on}, whose bytes {:#x} to {:#x} are outside of the memory", span.start, span.end));
        }
    }

    /// Whether the stream switch has a way from or to a channel.
    fn fed(&mut self, tile: Position, channel: ChannelId) {
        let place = Place::Dma { direction: channel.direction, channel: channel.channel };
        let at = |route: &Route| match channel.direction {
            Direction::MemoryToStream => route.from,
            Direction::StreamToMemory => route.to,
        };
        let found = self.routes.iter().any(|route| at(route).tile == tile && at(route).place == place);
        if !found {
            let way = if channel.direction == Direction::MemoryToStream { "no route begins" } else { "no route ends" };
            let what = format!("{channel} has a task, and {way} there");
            if !self.problems.iter().any(|problem| problem.tile == Some(tile) && problem.what == what) {
                self.add(tile, what);
            }
        }
    }

    fn add(&mut self, tile: Position, what: String) {
        self.problems.push(Problem { tile: Some(tile), what });
    }
}

/// An address of no tile.
pub(super) fn outside(arch: &Arch, address: u64) -> Problem {
    let what =
        format!("{address:#x} is written, which is in no tile of {} (rows 0 to {})", arch.name, arch.array.rows - 1);
    Problem { tile: None, what }
}
