//! The smallest driver: the template for a new one.
//!
//! Its device `null` has the host's memory and no array: transfers and host calls run, and loading a kernel is an error. What
//! all drivers share is in [`aie_hal::backend`]: buffers, queues, semaphores, accounts, the packing of chains. A driver of an NPU
//! replaces what is marked *here*. Callers put the validation layer in front of a driver ([`aie_hal::validation`]), so a driver
//! trusts its arguments.
//!
//! `cargo run -p aie-hal-examples --example null_driver` fills a buffer. The tests run the cases of the conformance suite that
//! need no array; those of a driver that has one are the whole suite (`tests/conformance/README.md`).
#![forbid(unsafe_code)]

use aie_device_memory::{HostMemory, Region};
use aie_hal::backend::{
    Array, ChainFailure, ChainView, DeviceBackend, DeviceMemory, DeviceState, HeapContent, OpenDevice,
};
use aie_hal::context_planner::ContextHost;
use aie_hal::loaded_pdi::LoadedPdi;
use aie_hal::validation::wrap_driver;
use aie_hal::{
    Arch, ArchRegistry, BufferParams, BufferRef, CommandList, Device, DeviceError, DeviceInfo, DeviceListing,
    DeviceUri, Driver, DriverError, KernelArtifact, Submission, TimelinePoint,
};
use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of data memory that a device has.
const MEMORY: usize = 1 << 30;

/// The driver. *Here*: what it needs to find devices.
#[derive(Debug)]
struct NullDriver {
    arch: Arc<Arch>,
}

impl NullDriver {
    fn listing(&self) -> Result<DeviceListing, DriverError> {
        let arch = Some(self.arch.name.clone());
        Ok(DeviceListing { uri: DeviceUri::parse("null:0")?, name: "Null".into(), arch, disabled: None })
    }
}

impl Driver for NullDriver {
    fn scheme(&self) -> &'static str {
        "null"
    }

    /// *Here*: the devices of this machine; one that cannot be used is listed with its reason.
    fn enumerate(&self) -> Result<Vec<DeviceListing>, DriverError> {
        Ok(vec![self.listing()?])
    }

    fn open(&self, uri: &DeviceUri) -> Result<Vec<Arc<dyn Device>>, DriverError> {
        uri.check_params(&[])?;
        let listing = self.listing()?;
        if !["", listing.uri.path()].contains(&uri.path()) {
            let (reason, available) = (format!("there is no `{}`", uri.path()), listing.uri.to_string());
            return Err(DriverError::NoSuchDevice { uri: uri.to_string(), reason, available });
        }
        let info = DeviceInfo {
            uri: listing.uri,
            name: listing.name,
            driver: self.scheme(),
            simulated: true,
            arch: self.arch.name.clone(),
            coherent: true,
            import_obstacle: Some("the null device has no memory of its own to speak of".to_owned()),
        };
        let state = DeviceState::new(info, Arc::clone(&self.arch), self.arch.limits, MEMORY);
        Ok(vec![Arc::new(OpenDevice::new(NullDevice { state, array: Array::new(NoContexts, &self.arch.limits) }))])
    }
}

/// *Here*: how hardware contexts are created.
#[derive(Debug)]
struct NoContexts;

impl ContextHost for NoContexts {
    type Memory = ();
    type Context = u32;
    type Error = DeviceError;

    fn create(&self, _: &[Arc<LoadedPdi<()>>]) -> Result<u32, DeviceError> {
        Err(no_array())
    }

    fn destroy(&self, _: u32) -> Result<(), DeviceError> {
        Ok(())
    }

    fn is_exhausted(&self, _: &DeviceError) -> bool {
        false
    }
}

fn no_array() -> DeviceError {
    DeviceError::Unsupported("kernels on a device without an array".into())
}

/// *Here*: memory that the array reaches too.
#[derive(Debug)]
struct NullMemory(Region);

impl DeviceMemory for NullMemory {
    fn host(&self) -> &Region {
        &self.0
    }

    fn device_address(&self) -> u64 {
        self.0.address() as u64
    }
}

#[derive(Debug)]
struct NullDevice {
    state: DeviceState,
    array: Array<NoContexts>,
}

impl DeviceBackend for NullDevice {
    type Memory = NullMemory;
    type Heap = ();
    type Kernel = ();
    type Contexts = NoContexts;
    type ChainScratch = ();

    fn state(&self) -> &DeviceState {
        &self.state
    }

    fn array(&self) -> &Array<NoContexts> {
        &self.array
    }

    fn allocate(&self, params: &BufferParams) -> Result<NullMemory, DeviceError> {
        let full = || DeviceError::OutOfMemory {
            pool: params.pool.name(),
            requested: params.size,
            available: 0,
            capacity: MEMORY,
        };
        Region::zeroed(params.size, params.alignment).map(NullMemory).ok_or_else(full)
    }

    fn import(&self, _: Arc<dyn HostMemory>) -> Result<NullMemory, DeviceError> {
        Err(DeviceError::Unsupported("importing memory; allocate and copy".into()))
    }

    /// *Here*: put the PDI or the instructions into the device heap.
    fn upload(&self, _: &[u8], _: HeapContent) -> Result<(), DeviceError> {
        Err(no_array())
    }

    /// *Here*: change a part of the instructions.
    fn rewrite(&self, (): &(), _: usize, _: &[u8]) {}

    fn prepare(&self, _: &KernelArtifact) {}

    /// *Here*: what makes writes visible to the other side on a device that is not coherent.
    fn flush(&self, _: &NullMemory, _: Range<usize>) {}

    fn invalidate(&self, _: &NullMemory, _: Range<usize>) {}

    fn contexts_created(&self) -> u64 {
        0
    }

    fn context_error(&self, cause: DeviceError) -> DeviceError {
        cause
    }

    /// *Here*: hand the kernels of the chain and the addresses of their arguments to the array.
    fn start(&self, (): &mut (), _: &ChainView<'_, Self>) -> Result<u64, ChainFailure> {
        Err(ChainFailure { command: None, discard_context: false, cause: no_array() })
    }
}

fn driver() -> Option<Arc<dyn Driver>> {
    Some(wrap_driver(Arc::new(NullDriver { arch: ArchRegistry::builtin().get("aie2p")? })))
}

fn main() -> Result<(), Box<dyn Error>> {
    let driver = driver().ok_or("aie2p is not built in")?;
    let device = driver.open(&DeviceUri::parse("null")?)?.swap_remove(0);
    let buffer = device.allocate(&BufferParams::data(8))?;
    let mut list = CommandList::builder();
    list.fill(&[1, 2], BufferRef::direct(&buffer, 0, 8))?;
    let done = device.create_semaphore(0)?;
    let signals = vec![TimelinePoint { semaphore: Arc::clone(&done), value: 1 }];
    let commands = Some(Arc::new(list.finish()));
    device.create_queue()?.submit(Submission { commands, signals, ..Submission::default() })?;
    done.wait_blocking(1, None)?;
    let mut bytes = [0; 8];
    buffer.read(0, &mut bytes)?;
    println!("{} filled: {bytes:?}", device.info().name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_conformance::{Backend, CASES, Tag, evaluate};

    /// Areas whose cases load no kernels.
    const AREAS: [&str; 8] =
        ["allocation", "command_list", "cross_queue", "enumeration", "host_call", "mapping", "submission", "uri"];

    /// Cases of these areas that do.
    const WITH_KERNELS: [&str; 10] = [
        "command_list::lists_are_replayed_at_the_same_time",
        "command_list::direct_and_slot_references_mix",
        "cross_queue::semaphores_order_queues",
        "cross_queue::fan_out_and_join",
        "cross_queue::all_queues_work_at_once",
        "cross_queue::threads_with_queues_of_their_own",
        "submission::signals_come_after_the_writes",
        "submission::idle_waits_for_the_work",
        "submission::submissions_hold_what_they_use",
        "submission::threads_submit_at_the_same_time",
    ];

    #[test]
    fn every_case_that_needs_no_array_holds() {
        let backend = Backend::new("null", driver().unwrap(), "null").tags(&[Tag::Coherent, Tag::MachineCode]);
        let backend: &'static Backend = Box::leak(Box::new(backend));
        let of_areas =
            CASES.iter().filter(|case| case.name.split_once("::").is_some_and(|(area, _)| AREAS.contains(&area)));
        let mut failed = Vec::new();
        let mut passed = 0;
        for case in of_areas.filter(|case| !WITH_KERNELS.contains(&case.name)) {
            match evaluate(backend, case).0 {
                Ok(None) => passed += 1,
                Ok(Some(_)) => {}
                Err(reason) => failed.push((case.name, reason)),
            }
        }
        assert_eq!(failed, []);
        assert!(passed > 60, "only {passed} cases apply");
    }
}
