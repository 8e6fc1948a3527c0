//! An array program: which tiles do what, before anything is laid out in registers.

use super::chain::Chain;
use super::configuration;
use super::configured::Configured;
use super::contents::{GO_LOCK, Parameters, TileContents};
use super::descriptor::{self, Part};
use super::error::ArrayError;
use super::grid::Grid;
use super::ring::Ring;
use super::route::{self, Stream};
use super::switching::Switching;
use super::tile::{Channel, End, Source, Tile};
use crate::codegen::isa_of;
use aie_hal::Arch;
use aie_hal::format::dma_channel::{Direction, DmaChannel};
use aie_hal::format::instructions::KeptMemory;
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::Port;
use std::collections::BTreeMap;

#[cfg(doc)]
use aie_hal::format::instructions::AheadChannel;

/// Bytes of a word of program memory.
const PROGRAM_WORD: usize = 16;
/// The greatest id of packets.
const MOST_ID: u8 = 31;

/// A program of the array under construction.
///
/// Everything is checked when it is added: a program that [`ArrayProgram::finish`] gets needs no more than the array has. What
/// is left to `finish` is finding ways for the streams.
///
/// ```
/// use aie_hal::ArchRegistry;
/// use aie_jit_native::array::{ArrayProgram, Channel, Tile};
///
/// // The shim's memory through a ring of core (0,2) and back. The core's program is made elsewhere.
/// let arch = ArchRegistry::builtin().get("aie2").unwrap();
/// let mut array = ArrayProgram::new(&arch, 1)?;
/// let (shim, core) = (Tile::new(0, 0), Tile::new(0, 2));
/// array.core(core, &[0; 16])?;
/// array.parameters(core, 0x0, 16)?;
/// let (input, output) = (array.ring(core, None, 1024, 2)?, array.ring(core, None, 1024, 2)?);
/// array.stream(Channel::send(shim, 0), [Channel::receive(core, 0)])?;
/// array.stream(Channel::send(core, 0), [Channel::receive(shim, 0)])?;
/// let configured = array.finish()?;
/// assert_eq!((input.address, output.address), (0x40, 0x840));
/// assert!(configured.pdi().len() > 336);
/// # Ok::<(), aie_jit_native::array::ArrayError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ArrayProgram {
    grid: Grid,
    tiles: BTreeMap<Tile, TileContents>,
    streams: Vec<Stream>,
    /// Sources whose tasks may run ahead, each with the column whose results tell that they have ended.
    ahead: Vec<(Source, u8)>,
    /// Memory that nothing but streams writes.
    kept: Vec<KeptMemory>,
}

impl ArrayProgram {
    /// A program for the first `columns` columns of a partition.
    ///
    /// # Errors
    /// [`ArrayError::Columns`].
    pub fn new(arch: &Arch, columns: u8) -> Result<Self, ArrayError> {
        Ok(Self {
            grid: Grid::new(arch, columns)?,
            tiles: BTreeMap::new(),
            streams: Vec::new(),
            ahead: Vec::new(),
            kept: Vec::new(),
        })
    }

    /// The partition.
    #[must_use]
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Gives a core its program, which begins at address 0.
    ///
    /// # Errors
    /// When the tile has no core, or one that has a program already, or the program does not fit its memory.
    pub fn core(&mut self, tile: Tile, program: &[u8]) -> Result<(), ArrayError> {
        self.grid.core(tile)?;
        let (bytes, limit) = (program.len(), self.grid.limits(tile)?.program_bytes);
        if bytes > limit {
            return Err(ArrayError::Program { tile, bytes, limit });
        }
        let nop = isa_of(self.grid.arch()).and_then(|isa| isa.assemble("nop").ok()).unwrap_or_default();
        let contents = self.contents(tile)?;
        if contents.program.is_some() {
            return Err(ArrayError::InUse { tile, what: "core", number: 0 });
        }
        // Program memory is written in its own words of 16 bytes. What fills up the last one is never executed, and is what a
        // listing can show.
        let missing = bytes.next_multiple_of(PROGRAM_WORD) - bytes;
        let padding = nop.iter().copied().cycle().take(missing);
        contents.program = Some(program.iter().copied().chain(padding).collect());
        Ok(())
    }

    /// Takes `bytes` bytes of a tile's memory from `offset` on, for whatever its core uses them.
    ///
    /// # Errors
    /// When they are not there or used already.
    pub fn reserve(&mut self, tile: Tile, offset: u32, bytes: u32) -> Result<(), ArrayError> {
        let limit = self.grid.limits(tile)?.data_bytes;
        self.contents(tile)?.memory.take(tile, offset, bytes, limit)
    }

    /// Takes `bytes` bytes of a tile's memory wherever there is room, and gives the first of them: a multiple of 64 unless it
    /// is where reserved memory begins.
    ///
    /// # Errors
    /// When there is no room.
    pub fn allocate(&mut self, tile: Tile, bytes: u32) -> Result<u32, ArrayError> {
        let limit = self.grid.limits(tile)?.data_bytes;
        self.contents(tile)?.memory.allocate(tile, bytes, limit)
    }

    /// Puts bytes into a tile's memory when it is configured, and takes that memory. The last word is filled up with zeros.
    ///
    /// # Errors
    /// When the memory is not there or used already, or `offset` is no multiple of 4.
    pub fn data(&mut self, tile: Tile, offset: u32, bytes: &[u8]) -> Result<(), ArrayError> {
        aligned("the offset of data", offset)?;
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.reserve(tile, offset, length)?;
        self.contents(tile)?.data.insert(offset, bytes);
        Ok(())
    }

    /// Gives a core a block of parameters, and a lock by which each dispatch starts it ([`GO_LOCK`]).
    ///
    /// # Errors
    /// When the memory or the lock is not there or used already.
    pub fn parameters(&mut self, tile: Tile, offset: u32, words: u32) -> Result<(), ArrayError> {
        self.grid.core(tile)?;
        aligned("the offset of parameters", offset)?;
        self.reserve(tile, offset, words.saturating_mul(4))?;
        self.lock(tile, Some(GO_LOCK), 0)?;
        self.contents(tile)?.parameters = Some(Parameters { offset, words });
        Ok(())
    }

    /// Takes a lock that starts with `value`: the one with number `id`, or the first free one below [`GO_LOCK`]
    /// (in mem tiles: the first free one).
    ///
    /// # Errors
    /// When it is not there or used already, or does not hold the value.
    pub fn lock(&mut self, tile: Tile, id: Option<u8>, value: u8) -> Result<u8, ArrayError> {
        let (kind, dma) = (self.grid.kind(tile)?, &self.grid.limits(tile)?.dma);
        let (limit, max) = (dma.locks, dma.max_lock as u64);
        if u64::from(value) > max {
            return Err(ArrayError::Range { what: "the value of a lock", value: value.into(), min: 0, max });
        }
        let chosen_last = if kind == TileKind::Core { limit.min(GO_LOCK.into()) } else { limit };
        let contents = self.contents(tile)?;
        let free = || (0..chosen_last as u8).find(|id| !contents.locks.contains_key(id));
        let exhausted = ArrayError::Exhausted { tile, what: "locks", limit };
        let id = id.or_else(free).ok_or(exhausted)?;
        if usize::from(id) >= limit {
            let (value, max) = (id.into(), limit as u64 - 1);
            return Err(ArrayError::Range { what: "the number of a lock", value, min: 0, max });
        }
        if contents.locks.insert(id, value).is_some() {
            return Err(ArrayError::InUse { tile, what: "lock", number: id });
        }
        Ok(id)
    }

    /// Takes memory and two locks for `depth` buffers of `stride` bytes; from `address` on if that is given, else anywhere.
    ///
    /// # Errors
    /// When memory or locks are not there, or the numbers make no ring (see [`Ring::cut`]).
    pub fn ring(&mut self, tile: Tile, address: Option<u32>, stride: u32, depth: u8) -> Result<Ring, ArrayError> {
        let capacity = stride.saturating_mul(depth.into());
        let ring = Ring { tile, address: address.unwrap_or(0), stride, depth, capacity, empty: 0, full: 0 };
        ring.cut(stride, depth)?;
        let address = match address {
            Some(address) => self.reserve(tile, address, capacity).map(|()| address)?,
            None => self.allocate(tile, capacity)?,
        };
        let (empty, full) = (self.lock(tile, None, depth)?, self.lock(tile, None, 0)?);
        Ok(Ring { address, empty, full, ..ring })
    }

    /// A channel of a tile that no stream uses yet, and that this method has not given before: the one with the lowest number.
    ///
    /// # Errors
    /// When all are used.
    pub fn channel(&mut self, tile: Tile, direction: Direction) -> Result<Channel, ArrayError> {
        let limit = self.grid.channels(tile, direction)?;
        let contents = self.contents(tile)?;
        let free = (0..limit as u8).find(|number| !contents.channels.contains(&(direction.code(), *number)));
        let what = match direction {
            Direction::StreamToMemory => "S2MM channels",
            Direction::MemoryToStream => "MM2S channels",
        };
        let number = free.ok_or(ArrayError::Exhausted { tile, what, limit })?;
        contents.channels.insert((direction.code(), number));
        Ok(Channel { tile, direction, number })
    }

    /// Leads what `from` sends to all of `to`. With several, a word moves when all of them can take it.
    ///
    /// # Errors
    /// When an end is not there. Ends that are used twice and switches that are full are found by [`ArrayProgram::finish`].
    pub fn stream<T: Into<End>>(
        &mut self,
        from: impl Into<End>,
        to: impl IntoIterator<Item = T>,
    ) -> Result<(), ArrayError> {
        self.add(Stream { from: from.into(), to: to.into_iter().map(Into::into).collect(), packet: None })
    }

    /// Leads packets with these ids from one channel of a shim to these channels, each id to its own. Words of a dispatch name an id
    /// ([`Source`](super::Source)); each run of a task's descriptor is a packet, and its header does not arrive. Words of one id wait for
    /// those in front of them, whichever id these have.
    ///
    /// # Errors
    /// When an end is not there, the channel is not a shim's, an id is more than 31, named twice or without an end. Ends that are used twice and switches
    /// that are full are found by [`ArrayProgram::finish`].
    pub fn split(&mut self, from: Channel, to: &[(u8, &[Channel])]) -> Result<(), ArrayError> {
        self.grid.expect(from.tile, TileKind::Shim, "shim")?;
        for (index, (id, ends)) in to.iter().enumerate() {
            let (value, max) = (u64::from(*id), u64::from(MOST_ID));
            if value > max {
                return Err(ArrayError::Range { what: "the id of a packet", value, min: 0, max });
            }
            if to[..index].iter().any(|(other, _)| other == id) {
                return Err(ArrayError::InUse { tile: from.tile, what: "packet id", number: *id });
            }
            if ends.is_empty() {
                let what = "the number of channels that packets of an id go to";
                return Err(ArrayError::Range { what, value: 0, min: 1, max: u8::MAX.into() });
            }
            let to = ends.iter().map(|channel| End::from(*channel)).collect();
            self.add(Stream { from: from.into(), to, packet: Some(*id) })?;
        }
        Ok(())
    }

    /// Leads what several channels of cores and mem tiles send to one, packet by packet: each run of a descriptor is one, which no other
    /// interrupts. Channels whose packets wait at the same time get through in any order. The ids are this program's own.
    ///
    /// # Errors
    /// When an end is not there, or a channel is a shim's. Channels that had a chain before ([`ArrayProgram::chain`]), ends that are used
    /// twice and switches that are full are found by [`ArrayProgram::finish`].
    pub fn merge(&mut self, from: &[Channel], to: Channel) -> Result<(), ArrayError> {
        if let [from] = from {
            return self.stream(*from, [to]);
        }
        for (from, id) in from.iter().zip(0..) {
            if self.grid.channel(*from)? == TileKind::Shim {
                return Err(ArrayError::Kind { tile: from.tile, expected: "core or mem" });
            }
            if id > MOST_ID {
                return Err(ArrayError::Exhausted { tile: to.tile, what: "packet ids", limit: MOST_ID as usize + 1 });
            }
            self.add(Stream { from: (*from).into(), to: vec![to.into()], packet: Some(id) })?;
        }
        Ok(())
    }

    fn add(&mut self, stream: Stream) -> Result<(), ArrayError> {
        for end in stream.to.iter().chain([&stream.from]) {
            match *end {
                End::Core(tile) => self.grid.core(tile)?,
                End::Dma(channel) => {
                    self.grid.channel(channel)?;
                    let key = (channel.direction.code(), channel.number);
                    self.contents(channel.tile)?.channels.insert(key);
                }
            }
        }
        self.streams.push(stream);
        Ok(())
    }

    /// Has a channel of a core or mem tile go through `parts` for ever, each time with the next buffer of each part's ring. The
    /// configuration starts it, and no dispatch touches the channel, its descriptors or the locks of the rings. There is a descriptor
    /// for each buffer, so that nothing counts but the place in the chain.
    ///
    /// What a dispatch sends through the chain has to be whole turns of it ([`ArrayError::Turn`]). Each buffer is a packet where the channel
    /// shares its end with others: then [`ArrayProgram::merge`] has to come first.
    ///
    /// # Errors
    /// When the channel is not there or has a chain already, a part does not fit its ring or does not take each buffer in turn, or
    /// the tile has no descriptors left. A channel without a stream, or with one that was merged afterwards, is found by
    /// [`ArrayProgram::finish`].
    pub fn chain(&mut self, channel: Channel, parts: &[Part]) -> Result<(), ArrayError> {
        let kind = self.grid.channel(channel)?;
        if kind == TileKind::Shim {
            return Err(ArrayError::Kind { tile: channel.tile, expected: "core or mem" });
        }
        let dma = &self.grid.limits(channel.tile)?.dma;
        let pool = descriptor::pool(kind, channel.number, dma.bds);
        let dimensions = dma.bd_dimensions;
        let merged = self.streams.iter().find(|stream| stream.from == End::Dma(channel) && stream.is_merged());
        let packet = merged.and_then(|stream| stream.packet);
        let chains = &mut self.contents(channel.tile)?.chains;
        if chains.iter().any(|chain| chain.channel == channel) {
            return Err(ArrayError::Chained(channel));
        }
        let used = chains.iter().filter(|chain| pool.contains(&chain.first)).map(|chain| chain.descriptors.len()).sum();
        let chain = Chain::new(kind, dimensions, (channel, packet), parts, (pool, used))?;
        chains.push(chain);
        Ok(())
    }

    /// Has the configuration say where the tokens of a shim's channel go, so that no dispatch does.
    ///
    /// # Errors
    /// When there is no such channel, or it is not a shim's.
    pub fn tokens(&mut self, channel: Channel) -> Result<(), ArrayError> {
        let kind = self.grid.channel(channel)?;
        self.grid.expect(channel.tile, TileKind::Shim, "shim")?;
        let channel_of_kind = DmaChannel::new(kind, channel.direction, channel.number)?;
        self.contents(channel.tile)?.controllers.push(channel_of_kind);
        Ok(())
    }

    /// Says that nothing but streams writes `bytes` bytes of a core's memory from `offset` on: that its program does not is for the caller
    /// to see to. Joined streams do not write there what is there already.
    ///
    /// # Errors
    /// When the tile does not have this memory. Memory that a chain goes through is found by [`ArrayProgram::finish`].
    pub fn keep(&mut self, tile: Tile, offset: u32, bytes: u32) -> Result<(), ArrayError> {
        self.grid.core(tile)?;
        let (end, limit) = (u64::from(offset) + u64::from(bytes), self.grid.limits(tile)?.data_bytes);
        if end > limit as u64 {
            return Err(ArrayError::Memory { tile, start: offset.into(), end, limit });
        }
        self.kept.push(KeptMemory { column: tile.column, row: tile.row, offset, bytes });
        Ok(())
    }

    /// Lets the tasks of a source be started before the dispatches in front of theirs have ended ([`AheadChannel`] says what the
    /// program promises by that), which the token of `result` tells. What it sends goes through chains only, which
    /// [`ArrayProgram::finish`] checks; that no core takes any of it before its own dispatch has begun is for the program to see to.
    ///
    /// # Errors
    /// When there is no such channel, or it is no shim's that sends.
    pub fn run_ahead(&mut self, source: impl Into<Source>, result: Channel) -> Result<(), ArrayError> {
        let source @ Source { channel, .. } = source.into();
        self.grid.channel(channel)?;
        self.grid.channel(result)?;
        self.grid.expect(channel.tile, TileKind::Shim, "shim")?;
        if channel.direction != Direction::MemoryToStream {
            return Err(ArrayError::Ahead(source));
        }
        self.ahead.push((source, result.tile.column));
        Ok(())
    }

    /// Finds ways for the streams and lays everything out in registers.
    ///
    /// # Errors
    /// When a stream finds no way, an end is used twice or in the wrong role, a chain has no stream, what runs ahead does not go through
    /// chains alone, or the PDI gets too large.
    pub fn finish(self) -> Result<Configured, ArrayError> {
        // Tokens leave the array there.
        let tokens: Vec<_> = (0..self.grid.columns()).map(|column| (Tile::new(column, 0), Port::South(0))).collect();
        let routes = route::route(&self.grid, &self.streams, &tokens)?;
        let switching = Switching::new(&self.grid, &self.streams, &routes)?;
        let pdi = configuration::write(&self.grid, &self.tiles, &self.streams, &switching)?;
        let parameters = self.tiles.iter().filter_map(|(tile, contents)| Some((*tile, contents.parameters?))).collect();
        let of_tile = |(tile, contents): (&Tile, &TileContents)| {
            let tile = *tile;
            contents.locks.iter().map(|(id, value)| ((tile, *id), *value)).collect::<Vec<_>>()
        };
        let locks = self.tiles.iter().flat_map(of_tile).collect();
        let controllers = self.tiles.iter().flat_map(|(tile, contents)| {
            contents.controllers.iter().map(|channel| (*tile, channel.direction().code(), channel.number()))
        });
        let controllers = controllers.collect();
        let chains = self.tiles.values().flat_map(|contents| contents.chains.iter().cloned()).collect();
        let (grid, streams, ahead, kept) = (self.grid, self.streams, Vec::new(), self.kept);
        let mut configured =
            Configured { grid, pdi, streams, routes, parameters, locks, chains, controllers, ahead, kept };
        let unconnected = configured.chains.iter().find(|chain| !configured.is_connected(chain.channel));
        unconnected.map_or(Ok(()), |chain| Err(ArrayError::Unconnected(chain.channel)))?;
        // Its descriptors have no header, or another one.
        let merged = configured.chains.iter().find(|chain| configured.merged_packet(chain.channel) != chain.packet);
        merged.map_or(Ok(()), |chain| Err(ArrayError::Chained(chain.channel)))?;
        for KeptMemory { column, row, offset, bytes } in &configured.kept {
            configured.check_no_chain(Tile::new(*column, *row), (*offset, offset + bytes))?;
        }
        let ahead = self.ahead.into_iter().map(|(source, results)| configured.ahead_channel(source, results));
        configured.ahead = ahead.collect::<Result<_, _>>()?;
        Ok(configured)
    }

    fn contents(&mut self, tile: Tile) -> Result<&mut TileContents, ArrayError> {
        self.grid.kind(tile)?;
        Ok(self.tiles.entry(tile).or_default())
    }
}

fn aligned(what: &'static str, value: u32) -> Result<(), ArrayError> {
    if value.is_multiple_of(4) { Ok(()) } else { Err(ArrayError::Unaligned { what, value: value.into(), unit: 4 }) }
}

#[cfg(test)]
mod tests;
