//! The driver for real NPUs, from discovery to completed dispatches, over the kernel driver's own interface.
//!
//! From the top:
//!
//! - [`XdnaDriver`] looks at sysfs and the device nodes ([`discovery`]) before it opens anything. What it lists as usable can be
//!   opened, as far as can be seen from outside.
//! - A logical device, its buffers and queues are the same for every [`route::Route`]. Memory is cut from few large allocations;
//!   the HAL's executor packs what is pending into few chains, and starts them ahead.
//! - An [`agent::Agent`] is one NPU, as what is below offers it: [`direct`] is the kernel driver itself, and the default. Another
//!   way is a [`runtime::Runtime`], which a program adds with [`XdnaDriver::with_runtime`]: AMD's ROCR is the crate `aie-driver-rocr`,
//!   which uses [`accel`], the calls of the kernel driver, too.
//!
//! ```no_run
//! use aie_driver_xdna::XdnaDriver;
//! use aie_hal::{ArchRegistry, DeviceUri, Driver};
//!
//! let driver = XdnaDriver::new(ArchRegistry::builtin());
//! for listing in driver.enumerate()? {
//!     println!("{}: {}", listing.uri, listing.disabled.unwrap_or_else(|| "usable".into()));
//! }
//! let device = driver.open(&DeviceUri::parse("xdna:0")?)?.remove(0);
//! println!("{} bytes are free", device.memory().free);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What this has run on
//! A simulated kernel device, directly and through AMD's unmodified ROCR 7.2.4; never on an NPU.

pub mod accel;
pub mod agent;
mod coherence;
mod contexts;
#[cfg(test)]
mod cpu_agent;
mod device;
pub mod direct;
pub mod discovery;
mod driver;
#[cfg(test)]
mod forked;
pub mod limits;
mod memory;
pub mod npu;
pub mod pinnable;
mod pool;
pub mod route;
pub mod runtime;
pub mod selection;
pub mod settings;
pub mod sysfs;

pub use discovery::SCHEME;
pub use driver::XdnaDriver;
