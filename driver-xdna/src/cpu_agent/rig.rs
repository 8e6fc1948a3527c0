//! A device on a [`CpuAgent`], with the small kernels and steps that tests are written in.

use super::apart::ApartAgent;
use super::{CpuAgent, Function};
use crate::agent::AgentInfo;
use crate::device::XdnaDevice;
use crate::npu::Npu;
use aie_hal::arch::ArchLimits;
use aie_hal::format::instructions::{Header, InstructionWriter, Operation};
use aie_hal::format::reference;
use aie_hal::format::task_queue::Direction;
use aie_hal::host_function::{HostFunction, HostFunctionError};
use aie_hal::{
    Arch, ArchRegistry, Buffer, BufferParams, BufferRef, CommandList, CommandListBuilder, Device, DeviceError,
    DeviceUri, Executable, KernelArtifact, Queue, Semaphore, Submission, TimelinePoint, WaitError,
};
use parking_lot::Mutex;
use std::fmt::{Debug, Formatter};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Longest wait of a test; reached only by a defect.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// An artifact with its own PDI for each description.
pub(crate) fn artifact(description: &str, arguments: u16) -> KernelArtifact {
    let mut writer = InstructionWriter::new(Header::aie2p(1));
    for argument in 0..arguments {
        writer.push(&Operation::AddressPatch { register: 0x1_d004, argument, offset: 0 });
    }
    let direction = Direction::StreamToMemory;
    writer.push(&Operation::Sync { direction, column: 0, row: 0, columns: 1, rows: 1, channel: 0 });
    let pdi = reference::wrap(description.as_bytes()).unwrap();
    KernelArtifact::new(description, "aie2p", 4, pdi, writer.finish().unwrap()).unwrap()
}

/// Bytes of a journal that [`Rig::writer`] writes to.
pub(crate) const JOURNAL: usize = 256;

/// A device on a [`CpuAgent`]. When it goes, the agent has to be clean, so it is to be declared before what it makes.
pub(crate) struct Rig {
    pub(crate) device: XdnaDevice,
    pub(crate) npu: Arc<Npu>,
    /// The last field: it looks at what the others leave.
    pub(crate) agent: Checked,
}

/// An agent that has to be clean when it goes.
pub(crate) struct Checked(Arc<CpuAgent>);

impl Deref for Checked {
    type Target = Arc<CpuAgent>;

    fn deref(&self) -> &Arc<CpuAgent> {
        &self.0
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.assert_clean();
        }
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| {}, |_| {}, None)
    }

    /// With other limits of the generation, and another agent.
    pub(crate) fn with(
        limits: impl FnOnce(&mut ArchLimits),
        info: impl FnOnce(&mut AgentInfo),
        chain: Option<usize>,
    ) -> Self {
        let mut arch = Arch::clone(&ArchRegistry::builtin().get("aie2p").unwrap());
        limits(&mut arch.limits);
        let agent = CpuAgent::new(info);
        let npu = Npu::new(agent.clone(), Arc::new(arch), None);
        let uri = DeviceUri::parse("xdna:0").unwrap();
        let device = XdnaDevice::new(uri, "a CPU".into(), Arc::clone(&npu), None, chain);
        Self { device, npu, agent: Checked(agent) }
    }

    /// On a device that has memory of its own and runs behind the caller.
    pub(crate) fn apart() -> (Self, Arc<ApartAgent>) {
        let arch = ArchRegistry::builtin().get("aie2p").unwrap().clone();
        let agent = CpuAgent::new(|_| {});
        let apart = ApartAgent::new(agent.clone());
        let npu = Npu::new(apart.clone(), arch, None);
        let uri = DeviceUri::parse("xdna:0").unwrap();
        let device = XdnaDevice::new(uri, "a CPU".into(), Arc::clone(&npu), None, Some(4));
        (Self { device, npu, agent: Checked(agent) }, apart)
    }

    /// Another logical device on the same NPU.
    pub(crate) fn second_device(&self) -> XdnaDevice {
        let uri = DeviceUri::parse("xdna://0,1").unwrap();
        XdnaDevice::new(uri, "a CPU".into(), Arc::clone(&self.npu), None, None)
    }

    /// Loads a kernel with its own PDI.
    pub(crate) fn kernel(
        &self,
        description: &str,
        arguments: u16,
        function: impl Fn(&[Vec<u8>], &mut [u8]) + Send + Sync + 'static,
    ) -> Arc<dyn Executable> {
        let artifact = artifact(description, arguments);
        let function: Function = Arc::new(function);
        self.agent.teach(artifact.digest(), function);
        self.device.load_executable(&artifact).unwrap()
    }

    /// Two arguments: adds `number` to each byte.
    pub(crate) fn adder(&self, number: u8) -> Arc<dyn Executable> {
        self.kernel(&format!("add {number}"), 2, move |inputs, output| {
            output.iter_mut().zip(&inputs[0]).for_each(|(out, byte)| *out = byte.wrapping_add(number));
        })
    }

    /// One argument, a journal of [`JOURNAL`] bytes: counts in its first byte and writes `number` behind the last entry.
    pub(crate) fn writer(&self, number: u8) -> Arc<dyn Executable> {
        self.kernel(&format!("write {number}"), 1, move |_, journal| {
            journal[0] += 1;
            journal[usize::from(journal[0])] = number;
        })
    }

    pub(crate) fn buffer(&self, bytes: usize) -> Arc<dyn Buffer> {
        self.device.allocate(&BufferParams::data(bytes)).unwrap()
    }

    pub(crate) fn queue(&self) -> Arc<dyn Queue> {
        self.device.create_queue().unwrap()
    }

    pub(crate) fn semaphore(&self) -> Arc<dyn Semaphore> {
        self.device.create_semaphore(0).unwrap()
    }
}

/// What a journal says, in order.
pub(crate) fn entries(journal: &Arc<dyn Buffer>) -> Vec<u8> {
    let content = bytes(journal);
    content[1..=usize::from(content[0])].to_vec()
}

/// All bytes of a buffer.
pub(crate) fn bytes(buffer: &Arc<dyn Buffer>) -> Vec<u8> {
    let mut bytes = vec![0; buffer.size()];
    buffer.read(0, &mut bytes).unwrap();
    bytes
}

/// The whole of a buffer.
pub(crate) fn whole(buffer: &Arc<dyn Buffer>) -> BufferRef {
    BufferRef::direct(buffer, 0, buffer.size())
}

/// Records a list.
pub(crate) fn list(record: impl FnOnce(&mut CommandListBuilder)) -> Arc<CommandList> {
    let mut builder = CommandList::builder();
    record(&mut builder);
    Arc::new(builder.finish())
}

/// A list of dispatches on one journal, in order.
pub(crate) fn writes(kernels: &[&Arc<dyn Executable>], journal: &Arc<dyn Buffer>) -> Arc<CommandList> {
    list(|builder| {
        for kernel in kernels {
            builder.dispatch(kernel, vec![whole(journal)]).unwrap().barrier();
        }
    })
}

/// Submits `commands` and signals `value` of a semaphore.
pub(crate) fn submit(queue: &Arc<dyn Queue>, commands: Arc<CommandList>, semaphore: &Arc<dyn Semaphore>, value: u64) {
    let signals = vec![TimelinePoint { semaphore: Arc::clone(semaphore), value }];
    queue.submit(Submission { commands: Some(commands), signals, ..Submission::default() }).unwrap();
}

/// Runs `commands` on a queue of their own, to the end.
pub(crate) fn run(rig: &Rig, commands: Arc<CommandList>) -> Result<(), DeviceError> {
    run_on(&rig.device, commands)
}

/// As [`run`], on a certain device.
pub(crate) fn run_on(device: &XdnaDevice, commands: Arc<CommandList>) -> Result<(), DeviceError> {
    let queue = device.create_queue()?;
    let semaphore = device.create_semaphore(0)?;
    submit(&queue, commands, &semaphore, 1);
    outcome(&semaphore, 1)
}

/// Waits for a point; its failure is the error.
pub(crate) fn outcome(semaphore: &Arc<dyn Semaphore>, value: u64) -> Result<(), DeviceError> {
    match semaphore.wait_blocking(value, Some(LONG)) {
        Ok(()) => Ok(()),
        Err(WaitError::Failed(cause)) => Err(DeviceError::clone(&cause)),
        Err(late) => panic!("{late}"),
    }
}

/// A function of a host call.
struct ClosureFunction<F> {
    inputs: usize,
    run: F,
}

impl<F> Debug for ClosureFunction<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClosureFunction")
    }
}

impl<F: Fn(&[&[u8]], &mut [u8]) -> Result<(), HostFunctionError> + Send + Sync> HostFunction for ClosureFunction<F> {
    fn name(&self) -> &str {
        "of the test"
    }

    fn input_count(&self) -> usize {
        self.inputs
    }

    fn run(&self, inputs: &[&[u8]], output: &mut [u8]) -> Result<(), HostFunctionError> {
        (self.run)(inputs, output)
    }
}

/// A function for host calls.
pub(crate) fn host_function(
    inputs: usize,
    run: impl Fn(&[&[u8]], &mut [u8]) -> Result<(), HostFunctionError> + Send + Sync + 'static,
) -> Arc<dyn HostFunction> {
    Arc::new(ClosureFunction { inputs, run })
}

/// A queue that is kept busy with a host call, so that what is submitted meanwhile becomes one batch. Dropping it lets go.
pub(crate) struct Held {
    _go: Sender<()>,
}

/// Keeps `queue` busy.
pub(crate) fn hold(rig: &Rig, queue: &Arc<dyn Queue>) -> Held {
    let ((running, runs), (go, wait)) = (channel(), channel::<()>());
    let (running, wait) = (Mutex::new(running), Mutex::new(wait));
    let function = host_function(0, move |_, _| {
        running.lock().send(()).ok();
        // An error means that the test has let go by dropping its end.
        wait.lock().recv_timeout(LONG).ok();
        Ok(())
    });
    let output = rig.buffer(1);
    let commands = list(|builder| {
        builder.host_call(&function, vec![], whole(&output)).unwrap();
    });
    queue.submit(Submission { commands: Some(commands), ..Submission::default() }).unwrap();
    runs.recv_timeout(LONG).unwrap();
    Held { _go: go }
}
