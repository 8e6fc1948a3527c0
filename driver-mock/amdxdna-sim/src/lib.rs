//! A simulated NPU behind the kernel ABI of amdxdna.
//!
//! Programs find an NPU through files and drive it through ioctls. This crate is the body of a library for `LD_PRELOAD` that
//! answers both, so that this project's driver, AMD's ROCR and AMD's XRT, as they are, run on a machine without an NPU, up to
//! completed dispatches. The node behaves like one kernel at a time (`kernel`). What executes the kernels comes from outside, as a
//! [`KernelExecutor`](aie_hal::KernelExecutor); the silicon behind the node, with its limits and its clock, is
//! [`aie_driver_mock::npu`].
//!
//! # Layers
//! - `node` is the kernel driver: open files, BOs, contexts, commands, with its checks, limits and error codes.
//! - `kfd` is `/dev/kfd`, as far as the CPU's agent needs it; `tree` the files below `/sys` and `/dev`.
//! - `host` passes calls on to the host's own device, to record them in the same way.
//! - [`replay`] repeats calls that were recorded elsewhere, and compares the answers.
//! - `interpose` stands in front of the C library's functions; [`preload!`] exports them.
//!
//! # Environment
//! Read once, when the process starts. An invalid value ends the process with exit code 2 and a message.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `AMDXDNA_SIM_DEVICES` | comma list of `ARCH` or `ARCH@PCIADDRESS`, of built-in generations and those of `AIE_HAL_ARCH_PATH`; the place in the list is N of `/dev/accel/accelN`. `host`: nothing is simulated, see `host` | `aie2p` |
//! | `AMDXDNA_SIM_KERNEL` | which kernel the node behaves like: `legacy`, `6.14`, `6.18` or `7.2`, see `kernel` | `6.18` |
//! | `AMDXDNA_SIM_MACHINE` | comma list of defects, see below | none |
//! | `AMDXDNA_SIM_FAULTS` | planned failures, see `faults` | none |
//! | `AMDXDNA_SIM_REPORT` | file for the report at exit; `%p` becomes the process id | none |
//! | `AMDXDNA_SIM_RECORD` | file for the stream of calls, see `stream` | none |
//! | `AMDXDNA_SIM_REPLAY` | stream of calls to compare with; a difference is printed and makes the exit code 3 | none |
//! | `AMDXDNA_SIM_ROOT` | folder for the simulated files, which stays | a temporary one |
//! | `AMDXDNA_SIM_FORK` | `exit@N`, `_exit@N`, `exec@N`: forks before the N-th EXEC_CMD a child that ends so; with `wait:N` before the N-th wait for a command | none |
//! | `AMDXDNA_SIM_LOG` | `1` logs every call to standard error | `0` |
//!
//! Defects: `kfd=missing`, `kfd=forbidden`, `node=missing`, `node=forbidden`, `pci=DEVICE:REVISION` (hexadecimal),
//! `firmware=A.B.C.D`, `heap=BYTES` (how much of the 64 MiB device heap can be handed out), `contexts=N`, `pdis=N` (PDIs of a context that work; a command of another never signals), `hung=dead` (a context runs no more after a job has hung), `holder=PID` (that process has all
//! contexts), `iommu=off` and `iommu=passthrough` (no shared virtual addressing), `addresses=iova` (the driver's `force_iova`: device addresses are not the
//! pointers), `wait=cmd`, `wait=syncobj` and `wait=none` (how a program can wait, instead of what the kernel has).
//!
//! # Processes
//! Every process has a machine of its own: two processes with the library do not compete for contexts, as they would on
//! hardware. A program that is started by another has a machine of its own too. A child that continues after `fork` without `exec` shares
//! the open files of its parent: what it closes or destroys is gone for the parent. It can ask for nothing else. The report, and the comparison of streams, are made by processes that have opened an accel node.
//!
//! # Report
//! JSON with these fields: `pid`; `kernel`; `devices`, a list with `arch`, `pci`, `contexts_created`, `context_switches`, `chains`,
//! `commands`, `virtual_ns`, `lost` for each; the sums of these; `calls`, by name, each with `count` and `errors` (by name);
//! `doorbells` (accepted EXEC_CMDs); `commands_run`, `commands_timed_out`, `commands_aborted`, `commands_failed`;
//! `chains_not_run` (accepted, then dropped because they were malformed or too long); `bos_created` by type; `peak` and
//! `open_at_exit`, both with `bos`, `bo_bytes`, `mappings`, `contexts`, `syncobjs`, `files`; `messages`, the first 200.
//! It is written at exit, at `_exit`, `abort` and a failed `assert`, but not when a signal ends the process.
//!
//! # Not simulated
//! Telemetry, firmware logs, coredumps, eventfds of synchronisation objects, exporting command BOs of one page. All of these are
//! rejected with the kernel's error for a feature that is not there. Columns have a state of zeros. Commands
//! of ELF files are taken where the kernel takes them and end in state ERROR. KFD has no GPU. Directories above the redirected
//! ones, such as `/dev`, list what the host has.
//!
//! # Example
//! A preload library is [`preload!`] with what executes kernels, in a `cdylib`. A program that has it in itself sees the same:
//!
//! ```
//! use aie_hal::{HostFunction, HostFunctionError, KernelArtifact, KernelExecutor};
//! use std::sync::Arc;
//!
//! #[derive(Debug)]
//! struct NoKernels;
//!
//! impl KernelExecutor for NoKernels {
//!     fn prepare(&self, _: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError> {
//!         Err(HostFunctionError::NotExecutable("none is known".into()))
//!     }
//! }
//!
//! amdxdna_sim::preload!(Arc::new(NoKernels));
//!
//! assert_eq!(std::fs::read_to_string("/sys/class/accel/accel0/device/vbnv")?, "NPU Strix\n");
//! # Ok::<(), std::io::Error>(())
//! ```

mod call_fields;
mod call_stream;
mod faults;
mod forks;
mod host_device;
#[doc(hidden)]
pub mod interpose;
mod journal;
mod kernel;
mod kfd;
mod kfd_calls;
mod libc_functions;
mod memory;
mod node;
mod npu_model;
mod planned_fork;
mod process;
mod reentry;
pub mod replay;
mod settings;
mod standard_error;
mod sysfs;
mod user_access;
