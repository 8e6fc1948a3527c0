//! The device under load, and the steps every load repeats.

use aie_conformance::kernels::TestKernel;
use aie_conformance::rig::store;
use aie_driver_rocr::Rocr;
use aie_driver_xdna::XdnaDriver;
use aie_hal::{
    ArchRegistry, BindingTable, Buffer, BufferParams, CommandList, Device, DeviceUri, Driver, Executable, Queue,
    Semaphore, Submission, TimelinePoint,
};
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for work that has to end on its own.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Target {
    pub device: Arc<dyn Device>,
}

impl Target {
    /// Opens the first device of `uri`.
    pub fn open(uri: &str) -> Result<Self> {
        let driver = XdnaDriver::new(ArchRegistry::builtin()).with_runtime(Rocr::default());
        let device = driver.open(&DeviceUri::parse(uri)?)?.into_iter().next().context("the URI names no device")?;
        Ok(Self { device })
    }

    pub fn load(&self, kernel: &TestKernel) -> Result<Arc<dyn Executable>> {
        Ok(self.device.load_executable(&kernel.artifact(self.device.arch()))?)
    }

    /// Data memory with these bytes.
    pub fn buffer(&self, bytes: &[u8]) -> Result<Arc<dyn Buffer>> {
        let buffer = self.device.allocate(&BufferParams::data(bytes.len()))?;
        store(&buffer, 0, bytes);
        Ok(buffer)
    }

    /// A semaphore at 0.
    pub fn semaphore(&self) -> Result<Arc<dyn Semaphore>> {
        Ok(self.device.create_semaphore(0)?)
    }
}

/// Submits `list`.
pub fn submit(
    queue: &Arc<dyn Queue>,
    list: &Arc<CommandList>,
    bindings: BindingTable,
    waits: Vec<TimelinePoint>,
    signals: Vec<TimelinePoint>,
) -> Result<()> {
    Ok(queue.submit(Submission { waits, commands: Some(Arc::clone(list)), bindings, signals })?)
}

/// Waits until `semaphore` is at `value`.
pub fn reached(semaphore: &Arc<dyn Semaphore>, value: u64) -> Result<()> {
    semaphore.wait_blocking(value, Some(PATIENCE)).with_context(|| format!("waiting for point {value}"))
}

/// Errors unless `buffer` holds what `expected` says for each byte.
pub fn check(what: &str, buffer: &Arc<dyn Buffer>, expected: impl Fn(usize) -> u8) -> Result<()> {
    let mut bytes = vec![0; buffer.size()];
    buffer.invalidate(0..bytes.len())?;
    buffer.read(0, &mut bytes)?;
    match bytes.iter().enumerate().find(|(index, byte)| **byte != expected(*index)) {
        None => Ok(()),
        Some((index, byte)) => bail!("{what}: byte {index} is {byte}, expected {}", expected(index)),
    }
}
