//! The error enums, one per domain.
//!
//! Every message says what was requested, what was tried or is available, and what to do next. Errors of recording and of bad
//! arguments are returned at once; errors of execution travel on semaphores as a [`crate::Failure`].

use thiserror::Error;

/// Listing or opening a device failed.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverError {
    /// The device URI cannot be parsed.
    #[error("invalid device URI `{uri}`: {reason}")]
    InvalidUri {
        /// What was requested.
        uri: String,
        /// Why it is rejected and what a valid one looks like.
        reason: String,
    },
    /// No driver has this scheme.
    #[error("no driver for scheme `{scheme}` in `{uri}`; available in this build: [{available}]")]
    UnknownScheme {
        /// The whole URI.
        uri: String,
        /// Its scheme.
        scheme: String,
        /// Schemes of this build, comma separated.
        available: String,
    },
    /// The URI names a device that does not exist.
    #[error("no device for `{uri}`: {reason}; available: {available}")]
    NoSuchDevice {
        /// What was requested.
        uri: String,
        /// Why nothing matched.
        reason: String,
        /// URIs that could be opened, comma separated.
        available: String,
    },
    /// The device exists but cannot be used, for instance because its generation has no arch file.
    #[error("device `{uri}` is not usable: {reason}")]
    Unusable {
        /// What was requested.
        uri: String,
        /// Why, and what would enable it.
        reason: String,
        /// What would enable it, where that is known.
        remedy: Option<Remedy>,
    },
    /// A driver or URI parameter is unknown or malformed.
    #[error("`{uri}`: parameter `{name}`: {reason}")]
    InvalidParameter {
        /// What was requested.
        uri: String,
        /// The parameter's name.
        name: String,
        /// What is accepted.
        reason: String,
    },
    /// The runtime below the driver (ROCR, the kernel driver) is missing or fails.
    #[error("runtime unavailable: {reason}")]
    Runtime {
        /// What was tried.
        reason: String,
        /// What would make it work, where that is known.
        remedy: Option<Remedy>,
    },
    /// Opening the device itself failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Says which of possibly many devices the cause is about.
    #[error("creating device `{uri}`: {cause}")]
    Creating {
        /// What was requested.
        uri: String,
        /// Why it failed.
        #[source]
        cause: Box<DriverError>,
    },
}

impl DriverError {
    /// The error below all [`DriverError::Creating`].
    pub fn cause(&self) -> &Self {
        match self {
            Self::Creating { cause, .. } => cause.cause(),
            other => other,
        }
    }

    /// What would let the device be opened, where that is known.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::InvalidUri { .. }
            | Self::UnknownScheme { .. }
            | Self::NoSuchDevice { .. }
            | Self::InvalidParameter { .. } => Some(Remedy::AnotherUri),
            Self::Unusable { remedy, .. } | Self::Runtime { remedy, .. } => *remedy,
            Self::Device(_) => None,
            Self::Creating { cause, .. } => cause.remedy(),
        }
    }
}

/// What would let a device be opened. Messages say it in words; this is for programs that turn it into a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// A URI of a device that there is.
    AnotherUri,
    /// The end of the program that holds the device.
    ReleasedByOthers,
    /// A restart of the device's firmware.
    RestartedFirmware,
    /// A newer kernel driver.
    NewerKernelDriver,
    /// An IOMMU that translates the device's addresses.
    Iommu,
    /// A higher limit of locked memory.
    LockableMemory,
    /// A higher limit of address space.
    AddressSpace,
    /// A higher limit of open files.
    OpenFiles,
}

/// A request to a device failed.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// Not enough memory in a pool.
    #[error("out of memory: {requested} bytes of {pool} memory requested, {available} of {capacity} bytes are free")]
    OutOfMemory {
        /// Pool name.
        pool: &'static str,
        /// Requested bytes.
        requested: usize,
        /// Bytes free.
        available: usize,
        /// Bytes in all.
        capacity: usize,
    },
    /// A limit of the generation or of the kernel driver would be exceeded.
    #[error("{what}: {requested} requested, the limit of {device} is {limit}")]
    LimitExceeded {
        /// What is limited, e.g. "PDIs per context".
        what: &'static str,
        /// The requested value.
        requested: usize,
        /// The limit.
        limit: usize,
        /// The device or arch that sets it.
        device: String,
    },
    /// An argument is wrong whatever the device's state.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// An artifact is malformed, for another generation, or not executable here.
    #[error("kernel `{name}` cannot be loaded: {reason}")]
    InvalidArtifact {
        /// Kernel name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The driver does not offer this; the message says what to use instead.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The device is gone. Sticky: every later call reports the first cause.
    #[error("device lost: {0}")]
    Lost(String),
    /// A command did not finish in time.
    #[error("timeout: {0}")]
    Timeout(String),
    /// A command ran and failed.
    #[error("execution failed: {0}")]
    Execution(String),
}

/// A submission was rejected before anything of it ran.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// The command list itself is wrong: objects of another device, a missing barrier, a misaligned range.
    #[error("command list: {0}")]
    CommandList(String),
    /// The binding table does not fit the command list.
    #[error("binding table: {0}")]
    Binding(String),
    /// The waits or signals are malformed.
    #[error("semaphore list: {0}")]
    Semaphores(String),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
