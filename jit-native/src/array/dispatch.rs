//! The instruction stream of one dispatch.
//!
//! A dispatch is one phase or several. A phase writes the parameters of cores, sets locks of rings that it cuts differently, gives DMA
//! channels of cores and mem tiles finite tasks, sets the go locks, moves the arguments through the shims, and waits until
//! every word has arrived: then nothing moves any more, and what the next phase or the next dispatch writes disturbs nothing.
//!
//! Descriptors of shims are used again only after the token of the task that used them has come: each shim channel has as many
//! descriptors of its own as its queue has places, and in front of a task for which there is no place the stream waits for the
//! oldest one. Tasks of all channels are put in the order in which an even flow gets to them, so that what is waited for never
//! needs a task that has not been started. For channels whose flow is not even, for example an operand that is read before all
//! others, see [`Dispatch::transfer_at`].
//!
//! What goes through a chain of the configuration ([`ArrayProgram::chain`](super::ArrayProgram::chain)) no phase touches: it has shims
//! move whole turns of the chains, and then these are at rest where the configuration has put them.

use super::balance;
use super::configured::Configured;
use super::contents::GO_LOCK;
use super::descriptor::{self, Link, Part, greatest_common_divisor};
use super::error::ArrayError;
use super::grid::Grid;
use super::region::{Region, Run};
use super::ring::Ring;
use super::tile::{Channel, Key, Source, SourceKey, Tile};
use aie_hal::format::dma_channel::{Direction, DmaChannel, DmaTask};
use aie_hal::format::instructions::{Instruction, InstructionWriter, Transfer};
use aie_hal::format::lock::Lock;
use aie_hal::format::register::{RegisterWrite, TileKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The instruction stream of a dispatch under construction. See [`Configured::dispatch`].
#[derive(Clone, Debug)]
pub struct Dispatch<'a> {
    configured: &'a Configured,
    writer: InstructionWriter,
    phase: Phase,
    /// Locks that are not as they were configured: their value, if it is known. The others are at rest.
    locks: BTreeMap<(Tile, u8), Option<u8>>,
    /// Channels of shims whose tokens the stream has given a controller.
    named: BTreeSet<Key>,
}

/// What a phase does, before it is written.
#[derive(Clone, Debug, Default)]
struct Phase {
    /// Blocks of parameters.
    parameters: Vec<(u32, Vec<u32>)>,
    /// Values that locks are set to, by tile and number.
    locks: Vec<((Tile, u8), u8)>,
    /// Descriptors of cores and mem tiles, by address.
    descriptors: Vec<(u32, Vec<u32>)>,
    /// How many of them are used of each tile; of a mem tile's, by parity of the channel.
    used: BTreeMap<(Tile, u8), usize>,
    /// Queue writes of cores and mem tiles.
    tasks: Vec<RegisterWrite>,
    queued: BTreeMap<Key, usize>,
    /// Runs of a channel on a ring so far, by the ring's address.
    runs: BTreeMap<(Key, u32), u64>,
    /// Words that a channel moves, by the id of their packets where it leads to several places.
    words: BTreeMap<SourceKey, u64>,
    shims: BTreeMap<Key, ShimQueue>,
    go: BTreeSet<Tile>,
    /// Rings in use, by tile.
    rings: BTreeMap<Tile, Vec<RingUse>>,
}

/// What the channels of a phase do to the locks of a ring.
#[derive(Clone, Copy, Debug)]
struct RingUse {
    ring: Ring,
    empty: i64,
    full: i64,
}

impl RingUse {
    fn new(ring: Ring) -> Self {
        Self { ring, empty: 0, full: 0 }
    }

    fn count(&mut self, part: &Part, direction: Direction, runs: i64) {
        let (acquired, released) = match direction {
            Direction::StreamToMemory => (&mut self.empty, &mut self.full),
            Direction::MemoryToStream => (&mut self.full, &mut self.empty),
        };
        *acquired -= if part.acquire { runs } else { 0 };
        *released += if part.release { runs } else { 0 };
    }

    /// Whether its locks have the same values at the end of the phase. A core does the reverse of what its channel does.
    fn rests(&self, kind: TileKind) -> bool {
        if kind == TileKind::Core { self.empty == -self.full } else { (self.empty, self.full) == (0, 0) }
    }
}

/// The tasks of a shim's channel.
#[derive(Clone, Debug)]
struct ShimQueue {
    channel: Channel,
    tasks: Vec<ShimTask>,
    /// Words in front of those that flow evenly.
    front: u64,
}

#[derive(Clone, Debug)]
struct ShimTask {
    run: Run,
    argument: u16,
    /// Where in the phase it begins, if that does not follow from the words in front of it.
    position: Option<f64>,
}

impl Configured {
    /// Begins the instruction stream of a dispatch.
    #[must_use]
    pub fn dispatch(&self) -> Dispatch<'_> {
        let writer = InstructionWriter::new(self.grid.header());
        Dispatch { configured: self, writer, phase: Phase::default(), locks: BTreeMap::new(), named: BTreeSet::new() }
    }
}

impl<'a> Dispatch<'a> {
    /// Starts a core in this phase with these parameters: they are written to the first words of its block, then its go lock
    /// is set to 1.
    ///
    /// # Errors
    /// When it has no block of parameters, or one with fewer words.
    pub fn start(&mut self, core: Tile, parameters: &[u32]) -> Result<&mut Self, ArrayError> {
        let block = self.configured.parameters.get(&core).ok_or(ArrayError::NoParameters(core))?;
        let (value, max) = (parameters.len() as u64, block.words.into());
        if value > max {
            return Err(ArrayError::Range { what: "the number of parameters", value, min: 0, max });
        }
        if !parameters.is_empty() {
            self.phase.parameters.push((core.address(block.offset), parameters.to_vec()));
        }
        self.phase.go.insert(core);
        Ok(self)
    }

    /// Writes words into a tile's data memory in front of this phase, for example a table that a shape needs.
    ///
    /// # Errors
    /// When the tile does not have this memory, or it is of a ring that a chain of the configuration goes through.
    pub fn write(&mut self, tile: Tile, offset: u32, words: &[u32]) -> Result<&mut Self, ArrayError> {
        let limit = self.configured.grid.limits(tile)?.data_bytes;
        let end = u64::from(offset) + 4 * words.len() as u64;
        if end > limit as u64 {
            return Err(ArrayError::Memory { tile, start: offset.into(), end, limit });
        }
        self.configured.check_no_chain(tile, (offset, end as u32))?;
        self.phase.parameters.push((tile.address(offset), words.to_vec()));
        Ok(self)
    }

    /// Sets a lock in front of this phase, and leaves it to the program. Those of rings are set by [`Dispatch::run`].
    ///
    /// # Errors
    /// When the tile does not have it, or it does not hold the value, or it is a lock of a chain of the configuration.
    pub fn lock(&mut self, tile: Tile, id: u8, value: u8) -> Result<&mut Self, ArrayError> {
        self.configured.check_no_chain_lock(tile, id)?;
        // Locks hold six bits; what does not fit eight signed ones is rejected with them.
        Lock::new(self.configured.grid.kind(tile)?, id)?.set(value.min(127) as i8)?;
        self.phase.locks.push(((tile, id), value));
        Ok(self)
    }

    /// Has a channel of a core or mem tile go `count` times through `parts`, each time with the next buffer of each part's
    /// ring. Calls in one phase go on where the last one ended. All buffers of the rings are empty in front of the phase.
    ///
    /// A ring need not be as it was configured: a phase may give it any memory and number of buffers, with its own locks.
    ///
    /// # Errors
    /// When there is no stream at the channel, a part does not fit its ring, the phase takes more tasks or descriptors than
    /// the channel has, two of its rings share memory or locks, or a chain of the configuration has the channel or a ring.
    pub fn run(&mut self, channel: Channel, parts: &[Part], count: u32) -> Result<&mut Self, ArrayError> {
        let grid = &self.configured.grid;
        let kind = grid.channel(channel)?;
        if kind == TileKind::Shim {
            return Err(ArrayError::Kind { tile: channel.tile, expected: "core or mem" });
        }
        if !self.configured.is_connected(channel) {
            return Err(ArrayError::Unconnected(channel));
        }
        if self.configured.chain(channel).is_some() {
            return Err(ArrayError::Chained(channel));
        }
        let dma = &grid.limits(channel.tile)?.dma;
        let packet = self.configured.merged_packet(channel);
        let (key, phase) = (channel.key(), &mut self.phase);
        let mut words = 0;
        let mut left = u64::from(count);
        parts.iter().try_for_each(|part| self.configured.check_ring(&part.ring))?;
        // A task that goes around all rings whole ends where it began.
        let round = descriptor::round(parts);
        if round > descriptor::MOST_RUNS && left > descriptor::MOST_RUNS {
            let (value, max) = (round, descriptor::MOST_RUNS);
            return Err(ArrayError::Range { what: "the number of runs around all rings", value, min: 1, max });
        }
        let most = (descriptor::MOST_RUNS / round).max(1) * round;
        let tasks = left.div_ceil(most) as usize;
        let queued = phase.queued.entry(key).or_default();
        *queued += tasks;
        if *queued > dma.task_queue {
            return Err(ArrayError::Tasks { channel, needed: *queued, limit: dma.task_queue });
        }
        if tasks == 0 || parts.is_empty() {
            return Ok(self);
        }
        let pool = descriptor::pool(kind, channel.number, dma.bds);
        let chained = self.configured.chained_descriptors(channel.tile, &pool);
        let used = phase.used.entry((channel.tile, pool.start)).or_insert(chained);
        let (limit, needed) = (pool.len(), parts.len());
        let free = limit - *used;
        if needed > free {
            return Err(ArrayError::Descriptors { channel, needed, free, limit });
        }
        let first = pool.start + *used as u8;
        *used += needed;
        for (index, part) in parts.iter().enumerate() {
            let rings = phase.rings.entry(part.ring.tile).or_default();
            let known = rings.iter().position(|other| other.ring == part.ring);
            let known = match known {
                Some(known) => known,
                None => {
                    rings.iter().try_for_each(|other| part.ring.check_apart(&other.ring))?;
                    rings.push(RingUse::new(part.ring));
                    rings.len() - 1
                }
            };
            rings[known].count(part, channel.direction, count.into());
            let number = first + index as u8;
            let next = (index + 1 < needed).then_some(number + 1);
            let runs = phase.runs.entry((key, part.ring.address)).or_default();
            let link = Link { channel, next, slot: *runs % u64::from(part.ring.depth), packet };
            let (register, bd) = descriptor::encode(kind, dma.bd_dimensions, number, part, &link)?;
            phase.descriptors.push((channel.tile.address(register), bd));
            if part.advance {
                *runs += u64::from(count);
            }
            words += part.words();
        }
        *phase.words.entry((key, None)).or_default() += words * u64::from(count);
        let dma_channel = DmaChannel::new(kind, channel.direction, channel.number)?;
        while left > 0 {
            let runs = left.min(most);
            left -= runs;
            let task = DmaTask { descriptor: first, repeat: (runs - 1) as u8, token: false };
            let RegisterWrite { offset, mask, value } = dma_channel.start(task)?;
            phase.tasks.push(RegisterWrite { offset: channel.tile.address(offset), mask, value });
        }
        Ok(self)
    }

    /// Moves a region of an argument through a channel of a shim, behind what the channel already moves in this phase, whatever packets
    /// that is.
    ///
    /// # Errors
    /// When there is no stream at the channel, its packets have other ids ([`ArrayError::Packet`]), or the region cannot be covered (see
    /// [`Region`]).
    pub fn transfer(&mut self, source: impl Into<Source>, region: &Region) -> Result<&mut Self, ArrayError> {
        self.transfer_at(source, region, None)
    }

    /// [`Dispatch::transfer`], with the part of the phase, from 0 to 1, at which it begins: what begins earlier is started
    /// earlier. Without one it is the part of the channel's words that is in front of it.
    ///
    /// # Errors
    /// As [`Dispatch::transfer`].
    pub fn transfer_at(
        &mut self,
        source: impl Into<Source>,
        region: &Region,
        position: Option<f64>,
    ) -> Result<&mut Self, ArrayError> {
        let source = source.into();
        let channel = source.channel;
        let grid = &self.configured.grid;
        if grid.channel(channel)? != TileKind::Shim {
            return Err(ArrayError::Kind { tile: channel.tile, expected: "shim" });
        }
        if !self.configured.is_connected(channel) {
            return Err(ArrayError::Unconnected(channel));
        }
        self.configured.check_source(source)?;
        let mut runs = region.runs(grid.arch().shim_burst())?;
        for run in &mut runs {
            (run.bd.enable_packet, run.bd.packet_id) = (source.packet.is_some(), source.packet.unwrap_or(0).into());
        }
        *self.phase.words.entry(source.key()).or_default() += region.words();
        let queue =
            self.phase.shims.entry(channel.key()).or_insert_with(|| ShimQueue { channel, tasks: Vec::new(), front: 0 });
        let tasks = runs.into_iter().map(|run| ShimTask { run, argument: region.argument, position });
        queue.tasks.extend(tasks);
        Ok(self)
    }

    /// Has the first `words` that a channel of a shim moves in this phase come in front of the flow of all channels: what is behind them goes on
    /// with what the others begin with. For operands that a core takes tile by tile with those of another channel, behind something else.
    pub(super) fn in_front(&mut self, channel: Channel, words: u64) {
        if let Some(queue) = self.phase.shims.get_mut(&channel.key()) {
            queue.front = words;
        }
    }

    /// Says how many words a chain of the configuration sends in this phase to an end that others send to as well: that follows from nothing
    /// else.
    pub(super) fn sends(&mut self, chained: Channel, words: u64) {
        *self.phase.words.entry((chained.key(), None)).or_default() += words;
    }

    /// Ends this phase: the stream waits until all of it is done. What follows is the next phase.
    ///
    /// # Errors
    /// [`ArrayError::Unbalanced`] when two ends of a stream do not move the same number of words, [`ArrayError::Turn`] when a chain of
    /// the configuration would not end where it began.
    pub fn end_phase(&mut self) -> Result<&mut Self, ArrayError> {
        balance::check(&self.configured.streams, &self.configured.chains, &self.phase.words)?;
        let phase = std::mem::take(&mut self.phase);
        for (address, words) in &phase.parameters {
            self.writer.block_write(*address, words);
        }
        for ((tile, id), value) in &phase.locks {
            self.set_lock(*tile, *id, *value)?;
        }
        self.empty_rings(&phase)?;
        for (address, words) in &phase.descriptors {
            self.writer.block_write(*address, words);
        }
        for task in &phase.tasks {
            self.writer.push(&Instruction::Write { address: task.offset.into(), value: task.value });
        }
        for core in &phase.go {
            self.set_lock(*core, GO_LOCK, 1)?;
        }
        self.move_arguments(&phase)
    }

    /// The instruction stream. What has been added since the last phase ended is a phase, too.
    ///
    /// # Errors
    /// As [`Dispatch::end_phase`], and when the stream gets too long.
    pub fn finish(mut self) -> Result<Vec<u8>, ArrayError> {
        self.end_phase()?;
        for (tile, id) in std::mem::take(&mut self.locks).into_keys() {
            if let Some(value) = self.configured.locks.get(&(tile, id)) {
                self.set_lock(tile, id, *value)?;
            }
        }
        Ok(self.writer.finish()?)
    }

    /// Sets the locks of the phase's rings to those of empty rings, where they are not so already.
    fn empty_rings(&mut self, phase: &Phase) -> Result<(), ArrayError> {
        for used in phase.rings.values().flatten() {
            let Ring { tile, empty, full, depth, .. } = used.ring;
            let rests = used.rests(self.configured.grid.kind(tile)?);
            for (id, value) in [(empty, depth), (full, 0)] {
                let key = (tile, id);
                let configured = self.configured.locks.get(&key).copied();
                if self.locks.get(&key).copied().unwrap_or(configured) != Some(value) {
                    self.set_lock(tile, id, value)?;
                }
                if rests && configured == Some(value) {
                    self.locks.remove(&key);
                } else {
                    self.locks.insert(key, rests.then_some(value));
                }
            }
        }
        Ok(())
    }

    fn set_lock(&mut self, tile: Tile, id: u8, value: u8) -> Result<(), ArrayError> {
        let write = Lock::new(self.configured.grid.kind(tile)?, id)?.set(value as i8)?;
        self.writer.push(&Instruction::Write { address: tile.address(write.offset).into(), value: write.value });
        Ok(())
    }

    /// Tasks of a shim's channel that can be started before one of them has ended: every channel has as many descriptors as its
    /// queue has places.
    fn places(&self, tile: Tile) -> Result<usize, ArrayError> {
        places(&self.configured.grid, tile)
    }

    /// How many words what receives these regions may hold back: each task that writes them ends after a multiple of that many.
    /// `None` where all tasks can be started at once, so that nothing waits for the end of one.
    ///
    /// Where a task is waited for, the words that it needs have been sent, but what would follow them may not have been. So
    /// something on the way that passes words on in larger blocks would never pass these on.
    ///
    /// # Errors
    /// When a region cannot be covered (see [`Region`]).
    pub(super) fn block(&self, shim: Tile, regions: &[Region]) -> Result<Option<u64>, ArrayError> {
        let (mut tasks, mut block) = (0, 0);
        for region in regions {
            for run in region.runs(self.configured.grid.arch().shim_burst())? {
                tasks += 1;
                block = greatest_common_divisor(block, run.words);
            }
        }
        Ok((tasks > self.places(shim)?).then_some(block.max(1)))
    }

    /// Waits for a token of each channel. One operation waits for those of one number in as many neighbouring columns as the generation's
    /// file says.
    fn wait_for_last(&mut self, channels: &[Channel]) {
        let most = self.configured.grid.arch().columns_per_sync;
        let mut channels = channels.to_vec();
        channels.sort_by_key(|Channel { tile, direction, number }| (direction.code(), *number, *tile));
        let mut left = &channels[..];
        while let [first, rest @ ..] = left {
            let rest = &rest[..rest.len().min(most.max(1) - 1)];
            let follows =
                |(next, column): (&Channel, u8)| *next == Channel { tile: Tile::new(column, first.tile.row), ..*first };
            let joined = rest.iter().zip(first.tile.column + 1..).take_while(|next| follows(*next)).count();
            let Channel { tile, direction, number: channel } = *first;
            let columns = joined as u8 + 1;
            self.writer.push(&Instruction::Sync { direction, column: tile.column, row: 0, columns, rows: 1, channel });
            left = &left[joined + 1..];
        }
    }

    /// Starts the tasks of the shims, and waits for the end of the phase.
    fn move_arguments(&mut self, phase: &Phase) -> Result<&mut Self, ArrayError> {
        let shims: Vec<&ShimQueue> = phase.shims.values().filter(|queue| !queue.tasks.is_empty()).collect();
        let receives = |queue: &ShimQueue| queue.channel.direction == Direction::StreamToMemory;
        let mut order: Vec<(f64, bool, usize, usize)> = Vec::new();
        for (index, queue) in shims.iter().enumerate() {
            let total = queue.tasks.iter().map(|task| task.run.words).sum::<u64>();
            let evenly = total.saturating_sub(queue.front).max(1);
            let mut before: u64 = 0;
            for (number, task) in queue.tasks.iter().enumerate() {
                let even = before.saturating_sub(queue.front) as f64 / evenly as f64;
                order.push((task.position.unwrap_or(even), receives(queue), index, number));
                before += task.run.words;
            }
        }
        // Operands first: the token of a result that is started behind an operand says that the operand is gone, by which the next phase
        // may use its descriptors. A channel's own tasks stay in their order.
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then((a.2, a.3).cmp(&(b.2, b.3))));
        // What starts behind the last result no result's token speaks for, so it has one of its own.
        let last_result = order.iter().rposition(|(_, result, ..)| *result);
        let is_awaited: Vec<bool> = (0..shims.len())
            .map(|index| order.iter().rposition(|(_, _, of, _)| *of == index) >= last_result || receives(shims[index]))
            .collect();
        let mut started = vec![0; shims.len()];
        for (_, _, index, _) in order {
            let queue = shims[index];
            let own = self.places(queue.channel.tile)?;
            let number = started[index];
            started[index] += 1;
            let last = number + 1 == queue.tasks.len();
            let awaited = number + own < queue.tasks.len() || (last && is_awaited[index]);
            if let Some(oldest) = usize::checked_sub(number, own) {
                let transfer = transfer_of(queue, oldest, own, true);
                self.writer.wait(&transfer);
            }
            let transfer = transfer_of(queue, number, own, awaited);
            // Once is enough for a channel, in the configuration or in the stream.
            let key = queue.channel.key();
            if self.configured.controllers.contains(&key) || awaited && !self.named.insert(key) {
                self.writer.transfer_without_controller(&transfer)?;
            } else {
                self.writer.transfer(&transfer)?;
            }
        }
        let awaited = shims.iter().zip(&is_awaited).filter(|(_, is_awaited)| **is_awaited);
        self.wait_for_last(&awaited.map(|(queue, _)| queue.channel).collect::<Vec<_>>());
        Ok(self)
    }
}

fn places(grid: &Grid, shim: Tile) -> Result<usize, ArrayError> {
    let dma = &grid.limits(shim)?.dma;
    Ok((dma.bds / (dma.s2mm + dma.mm2s)).min(dma.task_queue).max(1))
}

/// The first of the `own` descriptors that a shim's channel has to itself.
fn first_descriptor(channel: Channel, own: usize) -> usize {
    (usize::from(channel.direction.code()) * 2 + usize::from(channel.number)) * own
}

/// The descriptors that a shim's channel has to itself.
pub(super) fn descriptors(grid: &Grid, channel: Channel) -> Result<Range<u8>, ArrayError> {
    let own = places(grid, channel.tile)?;
    let first = first_descriptor(channel, own);
    Ok(first as u8..(first + own) as u8)
}

/// Task `number` of a queue with `own` descriptors.
fn transfer_of(queue: &ShimQueue, number: usize, own: usize, token: bool) -> Transfer {
    let ShimTask { run, argument, .. } = queue.tasks[number];
    let Channel { tile, direction, number: channel } = queue.channel;
    let first = first_descriptor(queue.channel, own);
    Transfer {
        column: tile.column,
        direction,
        channel,
        descriptor: (first + number % own) as u8,
        shape: run.bd,
        argument,
        offset: run.offset,
        repeat: run.repeat,
        token,
    }
}

#[cfg(test)]
mod tests;
