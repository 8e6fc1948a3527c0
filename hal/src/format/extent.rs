//! Which bytes of its arguments a kernel touches.
//!
//! A kernel reaches the host's memory through the DMAs of the shim tiles only, and an instruction stream puts the
//! addresses of its arguments into their buffer descriptors. So the bytes follow from the files, without running them:
//! [`argument_extents`] goes through the writes of the CDO and then of the stream as the hardware does, keeps the
//! registers of every column's shim DMA, and whenever a task is pushed follows its chain of descriptors.
//!
//! A descriptor that was patched with argument *a* plus *offset* touches, in bytes from the argument's first one,
//! `offset + 4 * (iteration * iteration_step + i0 * d0_step + i1 * d1_step + i2 * d2_step)`. The counters start at 0 for
//! each run and continue like digits: `i0` until `d0_wrap`, then `i1` until `d1_wrap`, then `i2`, which has no end; a wrap
//! of 0 never ends. A run is over after `length` words. The iteration counts the runs of the descriptor, modulo
//! `iteration_wrap`, from the number in the descriptor on; a task runs its chain once and then `repeat` times more.
//! The two low bits of an address are dropped, so that an argument is taken to start at a multiple of 4.
//!
//! What cannot be determined this way is an [`ExtentError`]: operations that are not known, other configurations loaded by
//! the stream, descriptors chosen or ended by packets that arrive, addresses of no argument. It says nothing against
//! the kernel. Source: the AI Engine register reference and aie-rt.

use super::bd::{self, ShimBd};
use super::cdo::{Cdo, CdoCommand};
use super::dma_channel::{ChannelControl, Direction, DmaChannel, DmaTask};
use super::instructions::{Instruction, InstructionStream, opcode};
use super::register::TileKind;
use super::tile_location;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of an argument that go one way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// From the first byte that is touched to behind the last one. Bytes between them may be left out.
    pub range: Range<u64>,
    /// What is moved in all: what is moved several times counts each time.
    pub moved: Traffic,
}

/// What passes between host memory and shims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Pieces without a gap that these bytes are.
    pub pieces: u64,
}

impl Traffic {
    /// Both together; what does not fit is cut.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        let (bytes, pieces) = (self.bytes.saturating_add(more.bytes), self.pieces.saturating_add(more.pieces));
        Self { bytes, pieces }
    }

    /// The same so many times; what does not fit is cut.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { bytes: self.bytes.saturating_mul(count), pieces: self.pieces.saturating_mul(count) }
    }
}

/// What a kernel does with an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArgumentExtent {
    /// What it reads of it, if it does.
    pub read: Option<Extent>,
    /// What it writes of it, if it does.
    pub written: Option<Extent>,
}

/// Why the bytes that a kernel touches cannot be determined from its files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExtentError(pub(crate) String);

/// The bytes that a kernel touches of each argument, by its index; as many as
/// [`InstructionStream::argument_count`]. Takes time in proportion to the two files.
///
/// # Errors
/// [`ExtentError`] when it cannot be determined.
pub fn argument_extents(cdo: &Cdo<'_>, stream: &InstructionStream<'_>) -> Result<Vec<ArgumentExtent>, ExtentError> {
    let mut shims = Shims { columns: BTreeMap::new(), extents: vec![Default::default(); stream.argument_count()] };
    for command in cdo.commands() {
        shims.configure(&command)?;
    }
    for operation in stream.operations() {
        shims.execute(&operation)?;
    }
    shims.finish()
}

/// An argument's address in a descriptor.
#[derive(Clone, Copy)]
struct Patch {
    argument: u16,
    offset: u64,
    /// Whether a task has used it.
    used: bool,
}

#[derive(Clone, Copy, Default)]
struct Descriptor {
    words: [u32; ShimBd::WORDS],
    patch: Option<Patch>,
}

/// The registers of one shim DMA that matter.
#[derive(Default)]
struct Shim {
    descriptors: [Descriptor; DESCRIPTORS],
    /// Control registers of the stream-to-memory channels.
    control: [u32; CHANNELS],
}

const DESCRIPTORS: usize = 16;
const CHANNELS: usize = 2;
/// Bytes from one descriptor to the next.
const DESCRIPTOR_BYTES: u32 = 0x20;
/// Bits of a descriptor's words that are its address.
const ADDRESS: [u32; 3] = [0, !3, 0xFFFF];

struct Shims {
    columns: BTreeMap<u8, Shim>,
    extents: Vec<ArgumentExtent>,
}

impl Shims {
    fn configure(&mut self, command: &CdoCommand<'_>) -> Result<(), ExtentError> {
        match *command {
            CdoCommand::Write { address, value } => self.store(address, u32::MAX, value),
            CdoCommand::MaskWrite { address, mask, value } => self.store(address, mask, value),
            CdoCommand::DmaWrite { address, data } => self.store_block(address, data.iter()),
            CdoCommand::Other { opcode, .. } => Err(unknown(format!("CDO command {opcode:#05x}"))),
            _ => Ok(()),
        }
    }

    fn execute(&mut self, operation: &Instruction<'_>) -> Result<(), ExtentError> {
        match *operation {
            Instruction::Write { address, value } => self.store(address, u32::MAX, value),
            Instruction::MaskWrite { address, value, mask } => self.store(address, mask, value),
            Instruction::BlockWrite { address, data } => self.store_block(address.into(), data.iter()),
            Instruction::AddressPatch { register, argument, offset } => self.patch(register, argument, offset),
            Instruction::LoadPdi { .. } => Err(unknown("an operation that loads another PDI".into())),
            Instruction::Custom { opcode, .. }
                if !matches!(opcode, opcode::READ_REGISTERS | opcode::RECORD_TIMER | opcode::MERGE_SYNC) =>
            {
                Err(unknown(format!("operation {opcode:#04x}")))
            }
            _ => Ok(()),
        }
    }

    fn store_block(&mut self, address: u64, data: impl Iterator<Item = u32>) -> Result<(), ExtentError> {
        // Most blocks are programs and data of other tiles, and a block does not reach from one tile into the next.
        if shim_register(address)?.is_none() {
            return Ok(());
        }
        data.zip((address..).step_by(4)).try_for_each(|(value, address)| self.store(address, u32::MAX, value))
    }

    /// `*address = (*address & !mask) | (value & mask)`.
    fn store(&mut self, address: u64, mask: u32, value: u32) -> Result<(), ExtentError> {
        let Some((column, offset)) = shim_register(address)? else { return Ok(()) };
        let change = |word: &mut u32| *word = (*word & !mask) | (value & mask);
        let shim = self.columns.entry(column).or_default();
        if let Some((index, word)) = descriptor_word(offset) {
            let descriptor = &mut shim.descriptors[index];
            change(&mut descriptor.words[word]);
            if ADDRESS.get(word).is_some_and(|bits| bits & mask != 0) {
                descriptor.patch = None;
            }
            return Ok(());
        }
        for direction in [Direction::StreamToMemory, Direction::MemoryToStream] {
            for number in 0..CHANNELS as u8 {
                let Ok(channel) = DmaChannel::new(TileKind::Shim, direction, number) else { continue };
                if offset == channel.control() && direction == Direction::StreamToMemory {
                    change(&mut shim.control[usize::from(number)]);
                } else if offset == channel.task_queue() {
                    return self.start(column, direction, number, DmaTask::decode(value & mask));
                }
            }
        }
        Ok(())
    }

    fn patch(&mut self, register: u64, argument: u16, offset: u64) -> Result<(), ExtentError> {
        let at = shim_register(register)?.and_then(|(column, offset)| Some((column, descriptor_word(offset)?)));
        let Some((column, (index, 1))) = at else {
            return Err(unknown(format!("an address in register {register:#x}")));
        };
        let shim = self.columns.entry(column).or_default();
        let descriptor = &mut shim.descriptors[index];
        let [_, low, high] = std::array::from_fn(|word| u64::from(descriptor.words[word] & ADDRESS[word]));
        let address = high << 32 | low;
        // Patching code differs in whether an address that is there counts. In what mlir-aie writes for several columns it is the
        // patch's own offset, and those programs are right where it does not.
        if address != 0 && address != offset & !3 {
            return Err(descriptor_error(column, index, "is patched although it has an address"));
        }
        descriptor.patch = Some(Patch { argument, offset: offset & !3, used: false });
        Ok(())
    }

    /// Runs a task's chain of descriptors.
    fn start(&mut self, column: u8, direction: Direction, channel: u8, task: DmaTask) -> Result<(), ExtentError> {
        let Self { columns, extents } = self;
        let shim = columns.entry(column).or_default();
        let decided_by_packets = ChannelControl::OUT_OF_ORDER | ChannelControl::FINISH_ON_TLAST;
        if direction == Direction::StreamToMemory && shim.control[usize::from(channel)] & decided_by_packets != 0 {
            let what = format!("the packets that arrive decide what S2MM channel {channel} of the shim writes");
            return Err(ExtentError(format!("column {column}: {what}")));
        }
        let runs = u64::from(task.repeat) + 1;
        let mut next = usize::from(task.descriptor) % DESCRIPTORS;
        for _ in 0..DESCRIPTORS {
            let reject = |reason| descriptor_error(column, next, reason);
            let descriptor = &mut shim.descriptors[next];
            let bd = ShimBd::decode(&descriptor.words);
            if !bd.valid {
                return Err(reject("is started although it is not valid"));
            }
            let patch = descriptor.patch.as_mut().ok_or_else(|| reject("has an address of no argument"))?;
            patch.used = true;
            let iterations = iterations(&bd, runs).ok_or_else(|| reject("is at an iteration that it does not have"))?;
            if bd.length > 0 {
                let step = u64::from(bd.iteration_step);
                let words = iterations.start * step..(iterations.end - 1) * step + last_word(&bd) + 1;
                let byte = |word: u64| patch.offset.saturating_add(4 * word);
                let range = byte(words.start)..byte(words.end);
                let extent = &mut extents[usize::from(patch.argument)];
                let way = match direction {
                    Direction::StreamToMemory => &mut extent.written,
                    Direction::MemoryToStream => &mut extent.read,
                };
                let dimensions = [(bd.d0_step, bd.d0_wrap), (bd.d1_step, bd.d1_wrap), (bd.d2_step, 0)];
                let pieces = bd::pieces(bd.length.into(), dimensions);
                let once = Traffic { bytes: 4 * u64::from(bd.length), pieces };
                add(way, Extent { range, moved: once.times(runs) });
            }
            let iteration = (u64::from(bd.iteration) + runs) % u64::from(bd.iteration_wrap);
            let after = ShimBd { iteration: iteration as u32, ..bd };
            descriptor.words = after.encode().map_err(|_| reject("has fields that do not fit"))?;
            if !bd.use_next {
                return Ok(());
            }
            next = bd.next as usize % DESCRIPTORS;
        }
        Err(descriptor_error(column, task.descriptor.into(), "starts a chain without an end"))
    }

    fn finish(self) -> Result<Vec<ArgumentExtent>, ExtentError> {
        for (column, shim) in self.columns {
            let unused = |descriptor: &Descriptor| descriptor.patch.is_some_and(|patch| !patch.used);
            if let Some(index) = shim.descriptors.iter().position(unused) {
                return Err(descriptor_error(column, index, "has the address of an argument and is not started"));
            }
        }
        Ok(self.extents)
    }
}

fn unknown(what: String) -> ExtentError {
    ExtentError(format!("{what} may change what is moved"))
}

fn descriptor_error(column: u8, descriptor: usize, reason: &str) -> ExtentError {
    ExtentError(format!("column {column}: descriptor {descriptor} of the shim {reason}"))
}

/// Column and offset of an address, if it is one of a shim tile.
fn shim_register(address: u64) -> Result<Option<(u8, u32)>, ExtentError> {
    let address = u32::try_from(address).map_err(|_| unknown(format!("a write to {address:#x}")))?;
    let (column, row, offset) = tile_location(address);
    Ok((row == 0).then_some((column, offset & !3)))
}

/// Index of the descriptor that a register belongs to, and which of its words it is.
fn descriptor_word(offset: u32) -> Option<(usize, usize)> {
    let from_first = offset.checked_sub(ShimBd::register(0))?;
    let index = (from_first / DESCRIPTOR_BYTES) as usize;
    (index < DESCRIPTORS).then_some((index, (from_first % DESCRIPTOR_BYTES / 4) as usize))
}

/// The iterations that `runs` runs go through, as a range that has their first and their last.
fn iterations(bd: &ShimBd, runs: u64) -> Option<Range<u64>> {
    let (first, count) = (u64::from(bd.iteration), u64::from(bd.iteration_wrap));
    if first >= count {
        return None;
    }
    // Past the last one the first one follows.
    Some(if first + runs > count { 0..count } else { first..first + runs })
}

/// The highest word of a run, from its first one on. The descriptor moves at least one.
fn last_word(bd: &ShimBd) -> u64 {
    let [d0, d1, d2] = [bd.d0_step, bd.d1_step, bd.d2_step].map(u64::from);
    let [wrap0, wrap1] = [bd.d0_wrap, bd.d1_wrap].map(u64::from);
    let last = u64::from(bd.length) - 1;
    if wrap0 == 0 {
        return last * d0;
    }
    let (i0, rows) = (last % wrap0, last / wrap0);
    let (i1, i2) = if wrap1 == 0 { (rows, 0) } else { (rows % wrap1, rows / wrap1) };
    // The counters at the end, and those with a digit one lower and all digits below it at their highest.
    let end = i2 * d2 + i1 * d1 + i0 * d0;
    let row_before = i1.checked_sub(1).map_or(0, |i1| i2 * d2 + i1 * d1 + (wrap0 - 1) * d0);
    let plane_before = i2.checked_sub(1).map_or(0, |i2| i2 * d2 + (wrap1 - 1) * d1 + (wrap0 - 1) * d0);
    end.max(row_before).max(plane_before)
}

fn add(extent: &mut Option<Extent>, more: Extent) {
    *extent = Some(match extent.take() {
        None => more,
        Some(there) => Extent {
            range: there.range.start.min(more.range.start)..there.range.end.max(more.range.end),
            moved: there.moved.and(more.moved),
        },
    });
}

#[cfg(test)]
mod tests;
