//! One dispatch of one kernel, with the bytes of its arguments.

use super::mapped_file::MappedFile;
use crate::context::ALIGNMENT;
use aie_hal::{
    Buffer, BufferParams, BufferRef, CommandList, Device, DeviceError, Executable, KernelArtifact, Queue, Submission,
    SubmitError, TimelinePoint, WaitError,
};
use aie_jit_native::selftest::Material;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::sync::Arc;

/// Why a dispatch has no result.
#[derive(Debug)]
pub enum Trouble {
    /// It could not be submitted.
    Before(String),
    /// It was, and came to this end.
    Meanwhile(DeviceError),
}

impl Display for Trouble {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before(reason) => out.write_str(reason),
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

/// A range of a buffer.
type Argument = (Arc<dyn Buffer>, Range<usize>);

/// The result of `kernel`, whose arguments are the sources of `material` and the result, in this order. Blocks until it is there.
///
/// # Errors
/// [`Trouble`].
pub fn dispatch(
    device: &dyn Device,
    queue: &dyn Queue,
    material: &Material,
    kernel: &KernelArtifact,
    place: Place,
) -> Result<Vec<u8>, Trouble> {
    let filled = |bytes: &Vec<u8>| -> Result<Argument, DeviceError> {
        let buffer = device.allocate(&BufferParams::data(bytes.len()))?;
        buffer.write(0, bytes)?;
        buffer.flush(0..bytes.len())?;
        Ok((buffer, 0..bytes.len()))
    };
    let mut arguments: Vec<Argument> = match place {
        Place::Allocated => material.sources.iter().map(filled).collect::<Result<_, _>>()?,
        Place::Imported => imported(device, &material.sources)?,
    };
    let output = match material.updated {
        Some(index) => {
            if place == Place::Imported {
                arguments[index] = filled(&material.before)?;
            }
            arguments[index].clone()
        }
        None => filled(&material.before)?,
    };
    arguments.push(output.clone());
    let executable: Arc<dyn Executable> = device.load_executable(kernel)?;
    let bindings =
        arguments.iter().map(|(buffer, range)| BufferRef::direct(buffer, range.start, range.len())).collect();
    let mut list = CommandList::builder();
    list.dispatch(&executable, bindings).map_err(|error| Trouble::Before(error.to_string()))?;
    let done = device.create_semaphore(0)?;
    let signals = vec![TimelinePoint { semaphore: Arc::clone(&done), value: 1 }];
    queue.submit(Submission { commands: Some(Arc::new(list.finish())), signals, ..Submission::default() })?;
    done.wait_blocking(1, None).map_err(|error| match error {
        WaitError::Failed(cause) => Trouble::Meanwhile((*cause).clone()),
        other => Trouble::Before(other.to_string()),
    })?;
    let mut found = vec![0; material.expected.len()];
    let (output, _) = output;
    output.invalidate(0..found.len())?;
    output.read(0, &mut found)?;
    Ok(found)
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
