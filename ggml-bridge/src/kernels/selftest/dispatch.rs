//! Dispatches of one kernel, with the bytes of their arguments.

use super::mapped_file::MappedFile;
use crate::memory::host_memory::ALIGNMENT;
use aie_hal::{
    Buffer, BufferParams, BufferRef, CommandList, Device, DeviceError, Executable, KernelArtifact, Queue, Submission,
    SubmitError, TimelinePoint, WaitError,
};
use aie_jit_native::kit::Material;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::slice;
use std::sync::Arc;

/// Why a dispatch has no result.
#[derive(Debug)]
pub enum Trouble {
    /// It could not be submitted.
    Before(String),
    /// It was, and came to this end.
    Meanwhile(DeviceError),
    /// It has written where no argument is: where.
    Outside(String),
}

impl Display for Trouble {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before(reason) | Self::Outside(reason) => out.write_str(reason),
            Self::Meanwhile(cause) => Display::fmt(cause, out),
        }
    }
}

impl From<DeviceError> for Trouble {
    fn from(error: DeviceError) -> Self {
        Self::Before(error.to_string())
    }
}

impl From<SubmitError> for Trouble {
    fn from(error: SubmitError) -> Self {
        Self::Before(error.to_string())
    }
}

/// Where the sources of a dispatch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Each in memory of the device.
    Allocated,
    /// One behind the other in a file that is mapped for reading and used in place; one that is written is in memory of the device.
    Imported,
}

/// Bytes on both sides of memory that is allocated for an argument, which no kernel may write: a multiple of all alignments.
const GUARD: usize = 4096;
/// What they hold.
const GUARD_BYTE: u8 = 0x5C;

/// A range of a buffer.
type Argument = (Arc<dyn Buffer>, Range<usize>);

/// What a dispatch has left.
#[derive(Debug)]
pub struct Ended {
    result: Argument,
    /// What was allocated, with guards on both sides.
    guarded: Vec<Argument>,
}

impl Ended {
    /// The result as memory has it now.
    ///
    /// # Errors
    /// [`Trouble::Before`].
    pub fn result(&self) -> Result<Vec<u8>, Trouble> {
        let (buffer, range) = &self.result;
        let mut found = vec![0; range.len()];
        buffer.invalidate(range.clone())?;
        buffer.read(range.start, &mut found)?;
        Ok(found)
    }

    /// Whether nothing was written outside of the arguments.
    ///
    /// # Errors
    /// [`Trouble::Outside`] when it was, [`Trouble::Before`].
    pub fn check_guards(&self) -> Result<(), Trouble> {
        for (index, (buffer, range)) in self.guarded.iter().enumerate() {
            for (side, guard) in [("in front of", 0..range.start), ("behind", range.end..buffer.size())] {
                let mut found = vec![0; guard.len()];
                buffer.invalidate(guard.clone())?;
                buffer.read(guard.start, &mut found)?;
                let count = found.iter().filter(|byte| **byte != GUARD_BYTE).count();
                if count > 0 {
                    let text =
                        format!("{count} bytes {side} the {} bytes of buffer {index} were overwritten", range.len());
                    return Err(Trouble::Outside(text));
                }
            }
        }
        Ok(())
    }
}

/// How dispatches that are submitted together depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Not at all.
    Any,
    /// The first source of each is the result of the one before.
    Chained,
}

/// Runs `kernel`, whose arguments are the sources of `material` and the result, in this order. Blocks until it has ended.
///
/// # Errors
/// [`Trouble`].
pub fn dispatch(
    device: &dyn Device,
    queue: &dyn Queue,
    material: &Material,
    kernel: &KernelArtifact,
    place: Place,
) -> Result<Ended, Trouble> {
    let ended = dispatch_all(device, queue, slice::from_ref(material), kernel, place, Order::Any)?;
    ended.into_iter().next().ok_or_else(|| Trouble::Before("nothing was to be run".into()))
}

/// Submits a dispatch of `kernel` for each of `materials`, all in one list of commands, which the queue may execute as one. Blocks until
/// all have ended.
///
/// # Errors
/// [`Trouble`].
pub fn dispatch_all(
    device: &dyn Device,
    queue: &dyn Queue,
    materials: &[Material],
    kernel: &KernelArtifact,
    place: Place,
    order: Order,
) -> Result<Vec<Ended>, Trouble> {
    let placed = materials.iter().map(|material| placed(device, material, place)).collect::<Result<Vec<_>, _>>()?;
    let executable: Arc<dyn Executable> = device.load_executable(kernel)?;
    let mut list = CommandList::builder();
    let mut ended: Vec<Ended> = Vec::new();
    for (mut arguments, one) in placed {
        if let (Order::Chained, Some(before)) = (order, ended.last()) {
            arguments[0] = before.result.clone();
            list.barrier();
        }
        let bindings =
            arguments.iter().map(|(buffer, range)| BufferRef::direct(buffer, range.start, range.len())).collect();
        list.dispatch(&executable, bindings).map_err(|error| Trouble::Before(error.to_string()))?;
        ended.push(one);
    }
    let done = device.create_semaphore(0)?;
    let signals = vec![TimelinePoint { semaphore: Arc::clone(&done), value: 1 }];
    queue.submit(Submission { commands: Some(Arc::new(list.finish())), signals, ..Submission::default() })?;
    done.wait_blocking(1, None).map_err(|error| match error {
        WaitError::Failed(cause) => Trouble::Meanwhile((*cause).clone()),
        other => Trouble::Before(other.to_string()),
    })?;
    Ok(ended)
}

/// Puts what a dispatch needs into memory: its arguments, and what it will have left.
fn placed(device: &dyn Device, material: &Material, place: Place) -> Result<(Vec<Argument>, Ended), Trouble> {
    let mut guarded = Vec::new();
    let mut filled = |bytes: &Vec<u8>| -> Result<Argument, DeviceError> {
        let range = GUARD..GUARD + bytes.len();
        let buffer = device.allocate(&BufferParams::data(range.end + GUARD))?;
        for guard in [0..range.start, range.end..buffer.size()] {
            buffer.write(guard.start, &vec![GUARD_BYTE; guard.len()])?;
        }
        buffer.write(range.start, bytes)?;
        buffer.flush(0..buffer.size())?;
        guarded.push((Arc::clone(&buffer), range.clone()));
        Ok((buffer, range))
    };
    let mut arguments: Vec<Argument> = match place {
        Place::Allocated => material.sources.iter().map(&mut filled).collect::<Result<_, _>>()?,
        Place::Imported => imported(device, &material.sources)?,
    };
    let result = match material.updated {
        Some(index) => {
            if place == Place::Imported {
                arguments[index] = filled(&material.before)?;
            }
            arguments[index].clone()
        }
        None => filled(&material.before)?,
    };
    arguments.push(result.clone());
    Ok((arguments, Ended { result, guarded }))
}

/// Maps a file with `sources` as a model has its tensors, and imports all of it at once.
fn imported(device: &dyn Device, sources: &[Vec<u8>]) -> Result<Vec<Argument>, Trouble> {
    let (mut content, mut ranges) = (Vec::new(), Vec::new());
    for source in sources {
        content.resize(content.len().next_multiple_of(ALIGNMENT), 0);
        ranges.push(content.len()..content.len() + source.len());
        content.extend(source);
    }
    let file = MappedFile::of(&content).map_err(|cause| Trouble::Before(format!("mapping a file: {cause}")))?;
    let buffer = device.import(Arc::new(file))?;
    Ok(ranges.into_iter().map(|range| (Arc::clone(&buffer), range)).collect())
}
