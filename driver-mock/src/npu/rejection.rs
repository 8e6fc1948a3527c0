//! Why the simulated silicon rejects something.

use aie_hal::error::DeviceError;
use thiserror::Error;

/// A request that hardware, firmware or kernel driver would reject.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum Rejection {
    /// More than there may be.
    #[error("{what}: {requested} requested, the limit is {limit}")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// The requested value.
        requested: usize,
        /// The limit.
        limit: usize,
    },
    /// The device heap has no such range.
    #[error("device heap: {requested} bytes requested, {available} of {capacity} are free")]
    OutOfHeap {
        /// Requested bytes.
        requested: usize,
        /// Bytes free, perhaps not in one piece.
        available: usize,
        /// Bytes in all.
        capacity: usize,
    },
    /// An alignment that is not a power of two or too large.
    #[error("alignment {requested} is not a power of two up to {limit}")]
    Alignment {
        /// The requested value.
        requested: usize,
        /// The largest possible.
        limit: usize,
    },
    /// No such context.
    #[error("context {0} does not exist")]
    UnknownContext(u32),
    /// A context takes its PDIs once; create a new context for others.
    #[error("context {0} has its PDIs already; create a new context for others")]
    AlreadyConfigured(u32),
    /// A chain names a PDI that its context does not hold.
    #[error("context {context} has {configured} PDIs, a command names number {pdi}")]
    UnknownPdi {
        /// The context.
        context: u32,
        /// Requested index.
        pdi: usize,
        /// PDIs configured.
        configured: usize,
    },
    /// A chain without commands.
    #[error("a chain needs at least one command")]
    EmptyChain,
}

impl Rejection {
    /// The same as an error of the HAL. `device` names the device.
    pub fn into_device_error(self, device: &str) -> DeviceError {
        match self {
            Self::Limit { what, requested, limit } => {
                DeviceError::LimitExceeded { what, requested, limit, device: device.to_owned() }
            }
            Self::Alignment { requested, limit } if requested.is_power_of_two() => {
                DeviceError::LimitExceeded { what: "alignment", requested, limit, device: device.to_owned() }
            }
            Self::OutOfHeap { requested, available, capacity } => {
                DeviceError::OutOfMemory { pool: "device heap", requested, available, capacity }
            }
            Self::Alignment { .. } => DeviceError::InvalidArgument(self.to_string()),
            Self::UnknownContext(_) | Self::AlreadyConfigured(_) | Self::UnknownPdi { .. } | Self::EmptyChain => {
                DeviceError::Execution(format!("{device} rejected: {self}"))
            }
        }
    }
}
