//! A device on a [`CpuAgent`], with the small kernels and steps that tests are written in.

use super::apart::ApartAgent;
use super::{CpuAgent, Function};
use crate::agent::{Agent, AgentInfo};
use crate::device::XdnaDevice;
use crate::npu::OpenNpu;
use aie_conformance::kernels;
use aie_conformance::rig::{at, finished, signalling};
pub(crate) use aie_conformance::rig::{host_view as bytes, whole};
use aie_hal::arch::{Estimate, Limits};
use aie_hal::backend::OpenDevice;
use aie_hal::format::reference;
use aie_hal::host_function;
use aie_hal::{
    Arch, ArchRegistry, Buffer, BufferParams, CommandList, CommandListBuilder, Device, DeviceError, DeviceUri,
    Executable, KernelArtifact, Queue, Semaphore, Submission,
};
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Longest wait of a test; reached only by a defect.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// An artifact with its own PDI for each description.
pub(crate) fn artifact(description: &str, arguments: usize) -> KernelArtifact {
    let arch = ArchRegistry::builtin().get("aie2p").unwrap();
    kernels::artifact(description, &arch, reference::wrap(description.as_bytes()).unwrap(), arguments).unwrap()
}

/// Bytes of a journal that [`Rig::writer`] writes to.
pub(crate) const JOURNAL: usize = 256;

/// A device on a [`CpuAgent`]. When it goes, the agent has to be clean, so it is to be declared before what it makes.
pub(crate) struct Rig {
    pub(crate) device: OpenDevice<XdnaDevice>,
    pub(crate) npu: Arc<OpenNpu>,
    /// The last field: it looks at what the others leave.
    pub(crate) agent: Checked,
}

/// An agent that has to be clean when it goes.
pub(crate) struct Checked(pub(crate) Arc<CpuAgent>);

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
        limits: impl FnOnce(&mut Limits),
        info: impl FnOnce(&mut AgentInfo),
        chain: Option<usize>,
    ) -> Self {
        let mut arch = Arch::clone(&ArchRegistry::builtin().get("aie2p").unwrap());
        limits(&mut arch.limits);
        let agent = CpuAgent::new(info);
        Self::on(agent.clone(), agent, arch, chain)
    }

    /// On a generation whose memory brings so many bytes a second, so that dispatches are expected to take long.
    pub(crate) fn with_bandwidth(bytes_per_second: u64) -> Self {
        let mut arch = Arch::clone(&ArchRegistry::builtin().get("aie2p").unwrap());
        arch.cost.ddr_bytes_per_second = Estimate::exactly(bytes_per_second);
        let agent = CpuAgent::new(|_| {});
        Self::on(agent.clone(), agent, arch, None)
    }

    /// On a device that has memory of its own and runs behind the caller.
    pub(crate) fn apart() -> (Self, Arc<ApartAgent>) {
        let arch = Arch::clone(&ArchRegistry::builtin().get("aie2p").unwrap());
        let agent = CpuAgent::new(|_| {});
        let apart = ApartAgent::new(agent.clone());
        (Self::on(agent, apart.clone(), arch, Some(4)), apart)
    }

    fn on(checked: Arc<CpuAgent>, agent: Arc<dyn Agent>, arch: Arch, chain: Option<usize>) -> Self {
        let npu = OpenNpu::new(agent, Arc::new(arch), None);
        let uri = DeviceUri::parse("xdna:0").unwrap();
        let device = XdnaDevice::open(uri, "a CPU".into(), Arc::clone(&npu), None, chain);
        Self { device, npu, agent: Checked(checked) }
    }

    /// Another logical device on the same NPU.
    pub(crate) fn second_device(&self) -> OpenDevice<XdnaDevice> {
        let uri = DeviceUri::parse("xdna://0,1").unwrap();
        XdnaDevice::open(uri, "a CPU".into(), Arc::clone(&self.npu), None, None)
    }

    /// Loads a kernel with its own PDI.
    pub(crate) fn kernel(
        &self,
        description: &str,
        arguments: usize,
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
    queue.submit(signalling(&commands, vec![at(semaphore, value)])).unwrap();
}

/// Runs `commands` on a queue of their own, to the end.
pub(crate) fn run(rig: &Rig, commands: Arc<CommandList>) -> Result<(), DeviceError> {
    run_on(&rig.device, commands)
}

/// As [`run`], on a certain device.
pub(crate) fn run_on(device: &dyn Device, commands: Arc<CommandList>) -> Result<(), DeviceError> {
    let queue = device.create_queue()?;
    let semaphore = device.create_semaphore(0)?;
    submit(&queue, commands, &semaphore, 1);
    outcome(&semaphore, 1)
}

/// Waits for a point; its failure is the error.
pub(crate) fn outcome(semaphore: &Arc<dyn Semaphore>, value: u64) -> Result<(), DeviceError> {
    finished(&at(semaphore, value)).map_err(|cause| DeviceError::clone(&cause))
}

/// A queue that is kept busy with a host call, so that what is submitted meanwhile becomes one batch. Dropping it releases it.
pub(crate) struct Held {
    _go: Sender<()>,
}

/// Keeps `queue` busy.
pub(crate) fn hold(rig: &Rig, queue: &Arc<dyn Queue>) -> Held {
    let ((running, runs), (go, wait)) = (channel(), channel::<()>());
    let (running, wait) = (Mutex::new(running), Mutex::new(wait));
    let function = host_function::from_fn("hold", 0, move |_, _| {
        running.lock().send(()).ok();
        // An error means that the test has released it by dropping its end.
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
