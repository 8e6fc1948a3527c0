//! The hardware abstraction layer: one set of traits that every NPU driver implements.
//!
//! Choices that shape this crate:
//!
//! - **Run-time choice.** All traits are object safe; callers hold `Arc<dyn Device>`. A dispatch costs tens of microseconds
//!   on the fastest NPU known, so a virtual call does not matter, and one binary can carry several drivers.
//! - **Safe.** This crate has no `unsafe`. Memory shared with C is a [`Span`] of bytes, as `&[AtomicU8]` is, which is sound
//!   whatever else touches it, and what may only be read has no way to write it ([`HostMemory`]).
//! - **Explicit coherence.** AI Engine memory is coarse-grained: [`Buffer::flush`] and [`Buffer::invalidate`] are part of
//!   the contract, and a driver may give wrong data to a caller who forgets them.
//! - **Timeline semaphores.** A submission is (waits, command list, signals). Failures travel on semaphores and stay there.
//! - **Recorded once, replayed often.** A [`CommandList`] is immutable data; a [`BindingTable`] fills its slots at submission.
//! - **One validation layer.** Drivers trust their arguments; [`validation`] wraps any driver and checks them.
//! - **Generations are data.** An [`Arch`] is a TOML file. A device without one is listed with a reason, never an abort.
//!
//! # Tour
//!
//! A [`DriverRegistry`] holds the [`Driver`]s of a program; a driver lists and opens devices named by a [`DeviceUri`]. A [`Device`] allocates [`Buffer`]s, loads
//! [`KernelArtifact`]s as [`Executable`]s, and makes [`Semaphore`]s and [`Queue`]s. A [`CommandList`] of fills, updates, copies,
//! dispatches, host calls and barriers is submitted to a queue. [`Counters`] say what it cost.
//!
//! What all drivers share is in [`backend`]: a driver supplies memory, contexts, and how a chain of dispatches runs. Beneath it are
//! the machinery of a queue ([`submission_queue`]) and the choice of hardware contexts ([`context_planner`]).
//!
//! Settings come from the [`Environment`], which is read in one place; each crate declares its own with [`settings!`].
//!
//! A software device runs kernels through a [`KernelExecutor`], which is given to it from outside.
//!
//! # Example
//!
//! Drivers are crates of their own. `hal/examples/dispatch.rs` is a whole program, `hal/examples/concurrent.rs` awaits many dispatches on
//! several devices, and `hal/examples/null_driver.rs` is the template of a driver. Without one:
//!
//! ```
//! use aie_hal::{ArchRegistry, DeviceUri, DriverRegistry};
//!
//! let uri: DeviceUri = "mock:aie2p?devices=2".parse()?;
//! assert_eq!((uri.scheme(), uri.path(), uri.param("devices")), ("mock", "aie2p", Some("2")));
//! let arch = ArchRegistry::builtin().get(uri.path()).expect("a built-in generation");
//! assert_eq!(arch.array.columns, 8);
//! let error = DriverRegistry::new().open("mock:aie2p").unwrap_err();
//! assert!(error.to_string().ends_with("available in this build: []"));
//! # Ok::<(), aie_hal::DriverError>(())
//! ```
#![forbid(unsafe_code)]

pub mod arch;
pub mod artifact;
pub mod backend;
pub mod block_on;
pub mod buffer;
pub mod command_list;
pub mod context_planner;
pub mod counters;
pub mod device;
pub mod driver;
pub mod environment;
pub mod error;
pub mod executable;
pub mod format;
pub mod host_function;
pub mod kernel_executor;
pub mod loaded_pdi;
#[cfg(any(test, feature = "mock"))]
pub mod mock;
pub mod process;
pub mod queue;
pub mod semaphore;
pub mod settings;
pub mod stream_maker;
pub mod submission_queue;
pub mod timeline;
pub mod uri;
pub mod validation;

pub use arch::{Arch, ArchRegistry};
pub use artifact::KernelArtifact;
pub use block_on::block_on;
pub use buffer::{Access, Buffer, BufferParams, HostMemory, MemoryPool, Span};
pub use command_list::{Binding, BindingTable, BufferRef, Command, CommandList, CommandListBuilder, RangeOf};
pub use counters::Counters;
pub use device::{Clocks, Device, DeviceInfo, Limits, MemoryReport};
pub use driver::{DeviceListing, Driver, DriverRegistry};
pub use environment::Environment;
pub use error::{DeviceError, DriverError, SubmitError};
pub use executable::Executable;
pub use host_function::{HostFunction, HostFunctionError};
pub use kernel_executor::KernelExecutor;
pub use process::OwningProcess;
pub use queue::{Queue, Submission, TimelinePoint};
pub use semaphore::{Failure, Semaphore, TimelineSemaphore, WaitError};
pub use stream_maker::StreamMaker;
pub use uri::DeviceUri;
