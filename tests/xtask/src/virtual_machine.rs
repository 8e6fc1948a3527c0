//! A virtual PC with an NPU: a kernel of Debian's with its own, unchanged driver, on an NPU that a program serves.
//!
//! [`Host`] has what a machine is made of, [`Machine`] says how it is to be, and [`Guest`] is one that was booted: it runs programs
//! until it is powered off or dropped. QEMU needs no rights and no KVM; it interprets the guest's instructions. The guest sees the
//! testbed's Debian root as its own root, and the checkout and the folder for results at the paths they have on the host,
//! so that a command made for the host can run in the guest as it is.
//!
//! ```ignore
//! let host = Host::ensure(options, None)?;
//! let mut guest = Guest::boot(&host, &Machine { npu: ServedNpu::Npu1, ..Machine::default() }, BOOT_LIMIT)?;
//! guest.npu()?;
//! let listed = guest.run(Command::new("xrt-smi").arg("examine"), Duration::from_secs(60))?;
//! let suite = guest.run(&host.testbed.command_for(&conformance), Duration::from_secs(600))?;
//! let unbound = guest.script("echo 0000:00:05.0 >/sys/bus/pci/drivers/amdxdna/unbind", Duration::from_secs(60))?;
//! guest.power_off()?;
//! ```

mod command_line;
mod control;
mod guest;
mod initramfs;
mod logs;
mod machine;
mod rocr;
pub mod script;
mod server;

pub use command_line::{CARVEOUT, NPU_ADDRESS, module_parameters};
pub use guest::{BOOT_LIMIT, FoundNpu, Guest, Stream, Times};
pub use logs::BootFailure;
pub use machine::{Host, Iommu, Machine, ServedNpu};
pub use rocr::Rocr;
