//! A simulated NPU that executes.
//!
//! It exists so that everything above a driver can be developed, tested and run on a machine without an NPU, and so that
//! mistakes show here and not first on hardware. Hence two layers:
//!
//! - [`npu`] is the silicon with its kernel driver. It is strict: it rejects what they reject, and keeps a virtual clock.
//! - [`MockDriver`] is the driver on top of it, with the executor that all drivers share
//!   ([`backend`](aie_hal::backend)), which plans contexts and chains so that the silicon never rejects anything.
//!
//! A compiled kernel, a PDI that configures tiles, is executed as machine code on an emulated array
//! ([`compiled`](npu::compiled)). A reference artifact, which describes its kernel, is executed by a
//! [`KernelExecutor`](aie_hal::KernelExecutor) from outside, so this crate knows no operation. An artifact that cannot be
//! executed loads anyway, and its dispatches time out with the reason: what hardware does with a design that never
//! signals. No real time passes for that.
//!
//! # URIs
//! `mock`, `mock:ARCH`, `mock:ARCH/INDEX`, with the parameters
//!
//! | parameter | meaning | default |
//! |---|---|---|
//! | `devices=N` | open N devices; a path `ARCH/INDEX` picks one of them | 1 |
//! | `coherent=false` | host and device see separate copies until flush or invalidate | `true` |
//! | `order=reverse` | commands between two barriers run in reverse order | `recorded` |
//! | `memory=BYTES` | size of the data pool (K, M, G are powers of 1024) | what the machine has available; 16 TiB with `execute=plan` |
//! | `heap=BYTES` | size of the device heap | the arch file's |
//! | `loops=once` | a fault: zero-overhead loops of compiled kernels run once, as on one machine; `close`: they repeat | `close` |
//! | `cycles=N` | device cycles after which the watchdog ends a compiled kernel | those of two seconds |
//! | `trace=FILE` | a file that gets the [timeline](npu::trace) of compiled kernels | none |
//! | `seed=N` | compiled kernels run in another [order of events](aie_emulator::Rules::interleaving), which the seed draws | one fixed order |
//! | `seeds=N` | a dispatch is run in N other orders too, those of the seeds from 1 on, and fails where it gives other bytes | 0 |
//! | `reloads=SEED` | the context loses the array before some dispatches, which the seed draws: the PDI is loaded again, other noise in memory | never |
//! | `residue=kept` | a PDI finds locks, channels, cores and memory as the last one left them, in a context of its own too | `cleared` |
//! | `execute=emulated` | programs are to give it kernels as machine code where there are any ([`Execution`]) | `reference` |
//! | `execute=plan` | nothing is executed: for programs that only plan their work, with memory that takes no pages before it is touched | `reference` |
//! | `fault=PLAN` | a fault plan, see [`faults`] | none |
//!
//! # Accounting
//! Data memory is accounted in granules of the arch file; imported memory and loaded kernels are not part of
//! `allocated_bytes`. `bytes_flushed` and `bytes_invalidated` count what callers requested and, on a device that is not
//! coherent, what the queue does around host calls.
//!
//! # Example
//! ```
//! use aie_conformance::kernels::TestExecutor; // a program gives what executes its kernels
//! use aie_driver_mock::MockDriver;
//! use aie_hal::{BufferParams, DeviceUri, Driver, MemoryPool};
//! use std::sync::Arc;
//!
//! let device = MockDriver::new(Arc::new(TestExecutor)).open(&DeviceUri::parse("mock?memory=1M&fault=alloc@2")?)?.remove(0);
//! let params = BufferParams { size: 5000, alignment: 64, pool: MemoryPool::Data };
//! let buffer = device.allocate(&params)?;
//! assert_eq!(device.memory().free, (1 << 20) - 8192);
//! assert!(device.allocate(&params).is_err(), "as planned");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod contexts;
mod device;
mod driver;
mod execution;
pub mod faults;
mod memory;
pub mod npu;
mod options;

pub use driver::MockDriver;
pub use execution::Execution;

/// The URI scheme of this driver.
pub const SCHEME: &str = "mock";
