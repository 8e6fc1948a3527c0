//! A device's own objects behind the traits.

use super::{DeviceBackend, DeviceBuffer, LoadedKernel};
use crate::command_list::{BindingTable, BufferRef};
use crate::error::DeviceError;
use crate::executable::Executable;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

pub(super) struct BufferRange<'a, B: DeviceBackend> {
    pub(super) buffer: &'a DeviceBuffer<B>,
    pub(super) offset: usize,
    pub(super) length: usize,
}

impl<B: DeviceBackend> BufferRange<'_, B> {
    /// As kernels see it.
    pub(super) fn device_range(&self) -> Range<u64> {
        self.buffer.device_range(self.offset, self.length)
    }

    pub(super) fn offsets(&self) -> Range<usize> {
        self.offset..self.offset + self.length
    }
}

/// The range that a command refers to, in a buffer of `device`.
pub(super) fn buffer_range<'a, B: DeviceBackend>(
    device: &B,
    table: &'a BindingTable,
    command: usize,
    reference: &'a BufferRef,
) -> Result<BufferRange<'a, B>, DeviceError> {
    let invalid = |reason: String| DeviceError::InvalidArgument(format!("command {command}: {reason}"));
    let (buffer, offset, length) = reference.locate(table).map_err(|cause| invalid(cause.to_string()))?;
    match (&**buffer as &dyn Any).downcast_ref::<DeviceBuffer<B>>() {
        Some(buffer) if std::ptr::eq(&*buffer.device, device) => Ok(BufferRange { buffer, offset, length }),
        _ => Err(invalid(format!("a buffer of another device than {}", device.state().name))),
    }
}

/// The kernel that a command runs, of `device`.
pub(super) fn kernel<'a, B: DeviceBackend>(
    device: &B,
    command: usize,
    executable: &'a Arc<dyn Executable>,
) -> Result<&'a LoadedKernel<B>, DeviceError> {
    match (&**executable as &dyn Any).downcast_ref::<LoadedKernel<B>>() {
        Some(found) if std::ptr::eq(&*found.device, device) => Ok(found),
        _ => Err(DeviceError::InvalidArgument(format!(
            "command {command}: kernel `{}` was loaded on another device than {}",
            executable.artifact().name(),
            device.state().name
        ))),
    }
}
