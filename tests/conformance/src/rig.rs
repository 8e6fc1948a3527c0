//! What a case works with: the mode it runs on, and devices with the few steps every case repeats.

use crate::backend::Backend;
use crate::expect;
use crate::kernels::TestKernel;
use aie_hal::command_list::RecordError;
use aie_hal::{
    Binding, BindingTable, Buffer, BufferParams, BufferRef, CommandList, CommandListBuilder, Device, DeviceUri, Driver,
    Executable, Failure, Queue, Semaphore, Submission, SubmitError, TimelinePoint, WaitError,
};
use std::sync::Arc;
use std::time::Duration;

/// Longest time a case waits for work that has to end on its own.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Time in which work that must not start would have started.
pub const PAUSE: Duration = Duration::from_millis(30);

/// The mode a case runs on.
#[derive(Debug)]
pub struct Context {
    /// The mode.
    pub backend: &'static Backend,
}

impl Context {
    pub(crate) fn new(backend: &'static Backend) -> Self {
        Self { backend }
    }

    /// The driver, behind the validation layer.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.backend.driver
    }

    /// The mode's URI as text, with `parameters` (`a=b`) added.
    pub fn uri_text(&self, parameters: &[&str]) -> String {
        let mut text = self.backend.uri.clone();
        for parameter in parameters {
            text.push(if text.contains('?') { '&' } else { '?' });
            text.push_str(parameter);
        }
        text
    }

    /// The mode's URI with `parameters` (`a=b`) added.
    pub fn uri(&self, parameters: &[&str]) -> DeviceUri {
        let text = self.uri_text(parameters);
        DeviceUri::parse(&text).unwrap_or_else(|e| panic!("the mode's URI `{text}`: {e}"))
    }

    /// Opens what `parameters` added to the mode's URI name.
    pub fn open(&self, parameters: &[&str]) -> Vec<Arc<dyn Device>> {
        let uri = self.uri(parameters);
        let devices = self.driver().open(&uri).unwrap_or_else(|e| panic!("opening `{uri}`: {e}"));
        expect::at_least("devices opened", devices.len(), 1);
        devices
    }

    /// The mode's device, opened once for all cases. For cases that count nothing, exhaust nothing and leave nothing pending.
    pub fn shared(&self) -> &'static Rig {
        self.backend.shared.get_or_init(|| self.fresh())
    }

    /// The mode's device, opened for this case alone.
    pub fn fresh(&self) -> Rig {
        self.fresh_with(&[])
    }

    /// The mode's device with more URI parameters, opened for this case alone.
    pub fn fresh_with(&self, parameters: &[&str]) -> Rig {
        Rig::new(self.open(parameters).swap_remove(0))
    }
}

/// An open device with a queue.
#[derive(Debug)]
pub struct Rig {
    /// The device.
    pub device: Arc<dyn Device>,
    /// A queue of it.
    pub queue: Arc<dyn Queue>,
}

impl Rig {
    /// `device` with a new queue.
    pub fn new(device: Arc<dyn Device>) -> Self {
        let queue = device.create_queue().expect("a first queue");
        Self { device, queue }
    }

    /// `size` bytes of data memory.
    pub fn zeroed(&self, size: usize) -> Arc<dyn Buffer> {
        self.device.allocate(&BufferParams::data(size)).unwrap_or_else(|e| panic!("{size} bytes of data memory: {e}"))
    }

    /// Data memory that holds `bytes` in both views.
    pub fn buffer(&self, bytes: &[u8]) -> Arc<dyn Buffer> {
        let buffer = self.zeroed(bytes.len());
        store(&buffer, 0, bytes);
        buffer
    }

    /// A semaphore at 0.
    pub fn semaphore(&self) -> Arc<dyn Semaphore> {
        self.device.create_semaphore(0).expect("a semaphore")
    }

    /// Loads a kernel of the suite.
    pub fn load(&self, kernel: &TestKernel) -> Arc<dyn Executable> {
        let artifact = kernel.artifact(self.device.arch());
        self.device.load_executable(&artifact).unwrap_or_else(|e| panic!("loading `{kernel}`: {e}"))
    }

    /// Submits `list`; the point says when it has ended.
    pub fn submit(&self, list: &Arc<CommandList>, bindings: BindingTable) -> TimelinePoint {
        submit_to(&self.queue, self.semaphore(), list, bindings)
    }

    /// Submits `list`, expecting a rejection, and expects that no semaphore was touched.
    pub fn rejected(&self, list: &Arc<CommandList>, bindings: BindingTable) -> SubmitError {
        let done = self.semaphore();
        let signals = vec![at(&done, 1)];
        let submission = Submission { commands: Some(Arc::clone(list)), bindings, signals, ..Submission::default() };
        let result = self.queue.submit(submission);
        expect::equal("signal semaphore after a rejection", done.query(), Ok(0));
        match result {
            Err(e) => {
                expect::note!("rejected: {e}");
                e
            }
            Ok(()) => panic!("expected that the submission is rejected, found that it was accepted"),
        }
    }

    /// Runs `list` to its end, which has to be a good one.
    pub fn run(&self, list: &Arc<CommandList>) {
        self.run_with(list, BindingTable::default());
    }

    /// Runs `list` with `bindings` to its end, which has to be a good one.
    pub fn run_with(&self, list: &Arc<CommandList>, bindings: BindingTable) {
        if let Err(cause) = finished(&self.submit(list, bindings)) {
            panic!("expected that the submission succeeds, found that it failed: {cause}");
        }
    }

    /// Runs `list` to its end, which has to be a bad one.
    pub fn run_to_failure(&self, list: &Arc<CommandList>) -> Failure {
        match finished(&self.submit(list, BindingTable::default())) {
            Err(cause) => {
                expect::note!("failed: {cause}");
                cause
            }
            Ok(()) => panic!("expected that the submission fails, found that it succeeded"),
        }
    }

    /// What the device has in `buffer`: the bytes copied by the device to other memory, read from there.
    pub fn device_view(&self, buffer: &Arc<dyn Buffer>) -> Vec<u8> {
        let copy = self.zeroed(buffer.size());
        self.run(&record(|list| list.copy(whole(buffer), whole(&copy))));
        contents(&copy)
    }
}

/// Submits `list` to `queue` with a signal of `done` to 1.
pub fn submit_to(
    queue: &Arc<dyn Queue>,
    done: Arc<dyn Semaphore>,
    list: &Arc<CommandList>,
    bindings: BindingTable,
) -> TimelinePoint {
    let point = TimelinePoint { semaphore: done, value: 1 };
    let commands = Some(Arc::clone(list));
    let submission = Submission { commands, bindings, signals: vec![point.clone()], ..Submission::default() };
    queue.submit(submission).unwrap_or_else(|e| panic!("expected that the submission is accepted, found: {e}"));
    point
}

/// A submission without waits and bindings that signals `signals`.
pub fn signalling(list: &Arc<CommandList>, signals: Vec<TimelinePoint>) -> Submission {
    Submission { commands: Some(Arc::clone(list)), signals, ..Submission::default() }
}

/// Waits for `point`. `Err` is its failure.
pub fn finished(point: &TimelinePoint) -> Result<(), Failure> {
    match point.semaphore.wait_blocking(point.value, Some(PATIENCE)) {
        Ok(()) => Ok(()),
        Err(WaitError::Failed(cause)) => Err(cause),
        Err(other) => panic!("expected an end within {PATIENCE:?}, found: {other}"),
    }
}

/// Waits for `point`, which has to be reached.
pub fn reached(point: &TimelinePoint) {
    if let Err(cause) = finished(point) {
        panic!("expected that the point is reached, found that the semaphore failed: {cause}");
    }
}

/// A point of `semaphore`.
pub fn at(semaphore: &Arc<dyn Semaphore>, value: u64) -> TimelinePoint {
    TimelinePoint { semaphore: Arc::clone(semaphore), value }
}

/// Records a list.
pub fn record(
    commands: impl FnOnce(&mut CommandListBuilder) -> Result<&mut CommandListBuilder, RecordError>,
) -> Arc<CommandList> {
    let mut list = CommandList::builder();
    if let Err(e) = commands(&mut list) {
        panic!("expected that the commands can be recorded, found: {e}");
    }
    Arc::new(list.finish())
}

/// All of `buffer`.
pub fn whole(buffer: &Arc<dyn Buffer>) -> BufferRef {
    BufferRef::direct(buffer, 0, buffer.size())
}

/// `length` bytes of `buffer` from `offset` on.
pub fn part(buffer: &Arc<dyn Buffer>, offset: usize, length: usize) -> BufferRef {
    BufferRef::direct(buffer, offset, length)
}

/// A table that binds all of each buffer.
pub fn table(buffers: &[&Arc<dyn Buffer>]) -> BindingTable {
    let bind = |buffer: &&Arc<dyn Buffer>| Binding { buffer: Arc::clone(buffer), offset: 0, length: buffer.size() };
    BindingTable { bindings: buffers.iter().map(bind).collect() }
}

/// Writes `bytes` at `offset` and makes them visible to the device.
pub fn store(buffer: &Arc<dyn Buffer>, offset: usize, bytes: &[u8]) {
    buffer.write(offset, bytes).expect("a write inside the buffer");
    buffer.flush(offset..offset + bytes.len()).expect("a flush inside the buffer");
}

/// All bytes, device writes included.
pub fn contents(buffer: &Arc<dyn Buffer>) -> Vec<u8> {
    buffer.invalidate(0..buffer.size()).expect("invalidating all of a buffer");
    host_view(buffer)
}

/// All bytes as the host sees them without an invalidate.
pub fn host_view(buffer: &Arc<dyn Buffer>) -> Vec<u8> {
    let mut bytes = vec![0; buffer.size()];
    buffer.read(0, &mut bytes).expect("reading all of a buffer");
    bytes
}

/// `length` bytes that differ from their neighbours, and from those of another `seed`.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    let byte = |i: usize| (i.wrapping_mul(31) ^ (i >> 8).wrapping_mul(17)) as u8;
    (0..length).map(|i| byte(i).wrapping_add(seed.wrapping_mul(59)).wrapping_add(1)).collect()
}

/// A list without commands.
pub fn nothing() -> Arc<CommandList> {
    Arc::new(CommandList::builder().finish())
}
