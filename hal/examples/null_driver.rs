//! The smallest driver: the template for a new one.
//!
//! Its device `null` has the host's memory and no array: transfers and host calls run, and loading a kernel is an error. A
//! driver of an NPU replaces what is marked *here*; the machinery of queues and semaphores is that of `aie-hal`. Callers put the
//! validation layer in front of a driver ([`aie_hal::validation`]), so a driver trusts its arguments.
//!
//! `cargo run -p aie-hal-examples --example null_driver` fills a buffer. The tests run the cases of the conformance suite that
//! need no array; those of a driver that has one are the whole suite (`tests/conformance/README.md`).
#![forbid(unsafe_code)]

use aie_hal::buffer::{Buffer, BufferParams, HostMemory, MemoryPool};
use aie_hal::command_list::{BindingTable, Command, CommandList};
use aie_hal::host_function::run_guarded;
use aie_hal::submission_queue::{InFlight, QueueBackend, QueueDevice, SubmissionQueue};
use aie_hal::validation::wrap_driver;
use aie_hal::{
    Arch, ArchRegistry, BufferRef, Counters, Device, DeviceError, DeviceInfo, DeviceListing, DeviceUri, Driver,
    DriverError, Executable, KernelArtifact, Limits, Queue, Semaphore, Submission, TimelinePoint, TimelineSemaphore,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of data memory that a device has.
const MEMORY: u64 = 1 << 30;

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
            arch: self.arch.name.clone(),
            coherent: true,
            host_import: false,
        };
        let backend = Arc::new(NullBackend { name: info.uri.to_string(), counters: Mutex::default() });
        let limits = Limits::from_arch(&self.arch);
        Ok(vec![Arc::new(NullDevice { info, arch: Arc::clone(&self.arch), limits, backend })])
    }
}

#[derive(Debug)]
struct NullDevice {
    info: DeviceInfo,
    arch: Arc<Arch>,
    limits: Limits,
    backend: Arc<NullBackend>,
}

impl Device for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn arch(&self) -> &Arc<Arch> {
        &self.arch
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> aie_hal::MemoryReport {
        let used = self.backend.counters.lock().allocated_bytes;
        aie_hal::MemoryReport { total: MEMORY, free: MEMORY - used }
    }

    fn counters(&self) -> Counters {
        *self.backend.counters.lock()
    }

    /// *Here*: memory that the array reaches.
    fn allocate(&self, params: &BufferParams) -> Result<Arc<dyn Buffer>, DeviceError> {
        let size = params.size as u64;
        let mut counters = self.backend.counters.lock();
        let free = MEMORY - counters.allocated_bytes;
        if size > free {
            return Err(DeviceError::OutOfMemory {
                pool: params.pool.name(),
                requested: params.size,
                available: free as usize,
                capacity: MEMORY as usize,
            });
        }
        counters.allocations += 1;
        counters.allocated_bytes += size;
        counters.peak_bytes = counters.peak_bytes.max(counters.allocated_bytes);
        let bytes: Box<[AtomicU8]> = (0..params.size + params.alignment).map(|_| AtomicU8::new(0)).collect();
        let start = bytes.as_ptr().addr().next_multiple_of(params.alignment) - bytes.as_ptr().addr();
        let (size, pool, backend) = (params.size, params.pool, Arc::clone(&self.backend));
        Ok(Arc::new(NullBuffer { bytes, start, size, pool, backend }))
    }

    fn import(&self, _: Arc<dyn HostMemory>) -> Result<Arc<dyn Buffer>, DeviceError> {
        Err(DeviceError::Unsupported("memory of others; allocate and copy".into()))
    }

    /// *Here*: put the PDI and the instructions into the device heap.
    fn load_executable(&self, artifact: &KernelArtifact) -> Result<Arc<dyn Executable>, DeviceError> {
        let reason = "this device has no array".to_owned();
        Err(DeviceError::InvalidArtifact { name: artifact.name().to_owned(), reason })
    }

    fn create_queue(&self) -> Result<Arc<dyn Queue>, DeviceError> {
        Ok(Arc::new(SubmissionQueue::new(&self.backend)?))
    }

    fn create_semaphore(&self, initial: u64) -> Result<Arc<dyn Semaphore>, DeviceError> {
        Ok(Arc::new(TimelineSemaphore::new(initial)))
    }
}

#[derive(Debug)]
struct NullBuffer {
    bytes: Box<[AtomicU8]>,
    start: usize,
    size: usize,
    pool: MemoryPool,
    backend: Arc<NullBackend>,
}

impl Buffer for NullBuffer {
    fn size(&self) -> usize {
        self.size
    }

    fn pool(&self) -> MemoryPool {
        self.pool
    }

    fn device_address(&self) -> u64 {
        (self.bytes.as_ptr().addr() + self.start) as u64
    }

    fn map(&self, range: Range<usize>) -> Result<&[AtomicU8], DeviceError> {
        Ok(&self.bytes[self.start..][..self.size][range])
    }

    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), DeviceError> {
        let source = self.map(offset..offset + target.len())?;
        target.iter_mut().zip(source).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        Ok(())
    }

    fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError> {
        let target = self.map(offset..offset + source.len())?;
        target.iter().zip(source).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        Ok(())
    }

    /// *Here*: what makes the host's writes visible to a device that is not coherent.
    fn flush(&self, _: Range<usize>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn invalidate(&self, _: Range<usize>) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Drop for NullBuffer {
    fn drop(&mut self) {
        self.backend.counters.lock().allocated_bytes -= self.size as u64;
    }
}

/// Runs what is submitted to the queues of a device.
#[derive(Debug)]
struct NullBackend {
    name: String,
    counters: Mutex<Counters>,
}

impl QueueDevice for NullBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn lost(&self) -> Option<DeviceError> {
        None
    }

    fn count_submission(&self) {
        self.counters.lock().submissions += 1;
    }
}

impl QueueBackend for NullBackend {
    type Scratch = ();

    /// Submissions arrive when what they wait for is reached. Commands run in order, so that barriers need nothing.
    fn run(&self, (): &mut (), batch: &mut VecDeque<InFlight>) {
        for submission in batch.drain(..) {
            let result =
                submission.commands().iter().try_for_each(|command| self.run_command(command, submission.bindings()));
            submission.finish(result);
        }
    }
}

impl NullBackend {
    fn run_command(&self, command: &Command, table: &BindingTable) -> Result<(), DeviceError> {
        let transfer = |bytes: &[u8], target: &BufferRef| {
            self.counters.lock().bytes_copied += bytes.len() as u64;
            write(bytes, target, table)
        };
        match command {
            Command::Fill { pattern, target } => transfer(&pattern.repeat(target.length() / pattern.len()), target),
            Command::Update { data, target } => transfer(data, target),
            Command::Copy { source, target } => transfer(&read(source, table)?, target),
            Command::HostCall { function, inputs, output } => {
                self.counters.lock().host_calls += 1;
                let inputs = inputs.iter().map(|input| read(input, table)).collect::<Result<Vec<_>, _>>()?;
                let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
                let mut bytes = read(output, table)?;
                run_guarded(&**function, &inputs, &mut [&mut bytes])
                    .map_err(|reason| DeviceError::Execution(format!("`{}`: {reason}", function.name())))?;
                write(&bytes, output, table)
            }
            // *Here*: hand the kernel and the addresses of its arguments to the array. There is no loaded kernel now.
            Command::Dispatch { .. } => Err(DeviceError::Unsupported("kernels on a device without an array".into())),
            Command::Barrier => Ok(()),
        }
    }
}

fn read(source: &BufferRef, table: &BindingTable) -> Result<Vec<u8>, DeviceError> {
    let (buffer, offset, length) = source.locate(table).map_err(|e| DeviceError::Execution(e.to_string()))?;
    let mut bytes = vec![0; length];
    buffer.read(offset, &mut bytes).map(|()| bytes)
}

fn write(bytes: &[u8], target: &BufferRef, table: &BindingTable) -> Result<(), DeviceError> {
    let (buffer, offset, _) = target.locate(table).map_err(|e| DeviceError::Execution(e.to_string()))?;
    buffer.write(offset, bytes)
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
        let backend = Backend::new("null", driver().unwrap(), "null").tags(&[Tag::Coherent]);
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
