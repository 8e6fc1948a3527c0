//! A stand-in for HSA runtimes that do not exist as a package yet.
//!
//! **This is not ROCR.** ROCR's development branch gave AIE agents a new packet in early 2026,
//! `hsa_amd_aie_kernel_dispatch_packet_t`, and no distribution ships a build of it. This crate is a small HSA library of our
//! own that follows what was published of that interface, so that a driver for it can be tested at all. What passes here is
//! tested against this library and nothing else; real builds may differ where publications say nothing.
//!
//! Published and followed: the layout and the rules of the packet (`hsa_ext_amd_aie.h`, AIE interface 1.0); the doorbell,
//! which makes one command chain of all pending packets and returns when it has ended; the list of at most 32 PDIs of a
//! queue, by allocation, and the hardware context that is recreated for every PDI new to it; completion signals, counted
//! down by one for each packet; PDIs and instructions in the pool whose recommended granule is 0. The limit of 40 packets
//! for one doorbell was reported of firmware. Own choices: the values of negative signals (minus the ERT state), the error
//! callback's status, a rejection where a published build would have ended the process.
//!
//! Packets are executed by a [`KernelExecutor`](aie_hal::KernelExecutor) from outside, on the limits and the virtual clock
//! of [`aie_driver_mock::npu`]. What it cannot execute never signals, and the watchdog ends it; no real time passes for that.
//!
//! A library is made of this crate by one function, `hsa_init`, that calls [`init`]. Its other symbols are the HSA functions a
//! driver of AIE agents uses ([`entry`]), and two of its own: `hsa_stand_in_configure` takes settings in place of the environment,
//! `hsa_stand_in_report` gives the counts.
//!
//! # Settings
//! Read at the first `hsa_init`, which fails with a message on standard error if one of them means nothing.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `HSA_STAND_IN_AGENTS` | generations of the AIE agents, as in `aie2p,aie2` | `aie2p` |
//! | `HSA_STAND_IN_EXTENSION` | the AMD extension interface it claims | `1.16` |
//! | `HSA_STAND_IN_PROCESSING` | `synchronous`, or `never`: accepts packets and leaves them, as ROCR 6.x does | `synchronous` |
//! | `HSA_STAND_IN_FAILURE` | `negative`: failed packets get negative signals; `withhold`: only the error callback reports them | `negative` |
//! | `HSA_STAND_IN_FAULTS` | a plan, see [`faults`] | none |
//! | `HSA_STAND_IN_LOG` | `1`: reasons of failures on standard error | off |
//!
//! ```
//! use hsa_stand_in_core::settings::{FailureStyle, Settings};
//!
//! let pairs = [("HSA_STAND_IN_AGENTS", "aie2p,aie2"), ("HSA_STAND_IN_FAILURE", "withhold")];
//! let settings = Settings::read(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))?;
//! assert_eq!((settings.agents.len(), settings.failure), (2, FailureStyle::Withhold));
//! # Ok::<(), clap::Error>(())
//! ```

pub mod entry;
pub mod faults;
mod memory;
mod process;
mod processor;
mod queue;
mod runtime;
pub mod settings;
mod signal;

pub use process::init;
