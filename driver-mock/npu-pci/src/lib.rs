//! A simulated NPU as a PCI device, for virtual machines: the kernel's own amdxdna driver drives it.
//!
//! The device is served over vfio-user to QEMU's `vfio-user-pci`. What the kernel driver sees is what is in a laptop: BARs with registers,
//! a security processor that starts a firmware, power management, a mailbox, interrupts, DMA through an IOMMU. Commands are executed by
//! the same simulated array as behind every other interface of this project ([`aie_driver_mock::npu::array`]); what executes kernels
//! comes from outside, as a [`KernelExecutor`](aie_hal::KernelExecutor). `docs/virtual-npu.md` says how to boot a machine with it.
//!
//! # Layers
//! - [`server`] speaks vfio-user; [`device`] handles what the guest reads and writes: `bars`, `config_space`, the registers that a
//!   [`model`] has, and the `mailbox`.
//! - `firmware` answers `message`s; `command` takes commands apart, `execution` runs them.
//! - `address_space` is the guest's memory as the device addresses it, `heap` the part of it that a context addresses by the
//!   firmware's own addresses.
//! - [`settings`], [`faults`] and [`journal`]: what the device is like, what goes wrong, what happened.
//!
//! # Not simulated
//! PASIDs and shared virtual addressing: addresses are those of an IOMMU domain or physical ones. The firmware file is not read.
//! Time: an answer comes when the work is done; the clock in the report counts what it would have taken. Debug buffers, profiles
//! and telemetry are accepted and empty.
//!
//! # Example
//! ```
//! use aie_hal::ArchRegistry;
//! use aie_npu_pci::{faults, model::Model, settings::Settings};
//!
//! let model = Model::by_name("npu4").unwrap();
//! let mut settings = Settings::new(model, ArchRegistry::builtin().get(model.arch).unwrap()).with_contexts(2);
//! settings.faults = faults::parse("timeout@3,CREATE_CONTEXT@2=0x2000003")?;
//! // Device::new makes the device of these, and server::Listener serves it to a virtual machine.
//! assert!(settings.has_npu_commands());
//! # Ok::<(), aie_driver_mock::npu::fault_plan::FaultPlanError>(())
//! ```

#![deny(unsafe_code)]

mod address_space;
mod bars;
mod command;
mod config_space;
pub mod device;
mod execution;
pub mod faults;
mod firmware;
mod heap;
pub mod journal;
mod mailbox;
mod message;
pub mod model;
pub mod server;
pub mod settings;
