//! One dispatch of one kernel, with the bytes of its arguments.

use aie_hal::{
    Buffer, BufferParams, BufferRef, CommandList, Device, DeviceError, Executable, KernelArtifact, Queue, Submission,
    SubmitError, TimelinePoint, WaitError,
};
use aie_jit_native::selftest::Material;
use std::fmt::{self, Display, Formatter};
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

/// The result of `kernel`, whose arguments are the sources of `material` and the result, in this order. Blocks until it is there.
///
/// # Errors
/// [`Trouble`].
pub fn dispatch(
    device: &dyn Device,
    queue: &dyn Queue,
    material: &Material,
    kernel: &KernelArtifact,
) -> Result<Vec<u8>, Trouble> {
    let filled = |bytes: &Vec<u8>| -> Result<Arc<dyn Buffer>, DeviceError> {
        let buffer = device.allocate(&BufferParams::data(bytes.len()))?;
        buffer.write(0, bytes)?;
        buffer.flush(0..bytes.len())?;
        Ok(buffer)
    };
    let mut buffers: Vec<Arc<dyn Buffer>> = material.sources.iter().map(filled).collect::<Result<_, _>>()?;
    buffers.push(match material.updated {
        Some(index) => Arc::clone(&buffers[index]),
        None => filled(&material.before)?,
    });
    let executable: Arc<dyn Executable> = device.load_executable(kernel)?;
    let bindings = buffers.iter().map(|buffer| BufferRef::direct(buffer, 0, buffer.size())).collect();
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
    let output = &buffers[material.sources.len()];
    output.invalidate(0..found.len())?;
    output.read(0, &mut found)?;
    Ok(found)
}
