//! What the tests of this crate need: kernels that add a constant, and a device with a queue to run them on.

use crate::MockDriver;
use aie_hal::command_list::{BindingTable, BufferRef, CommandList};
use aie_hal::error::DeviceError;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::instructions::{Header, InstructionWriter, Transfer};
use aie_hal::format::pdi::Pdi;
use aie_hal::format::reference;
use aie_hal::format::task_queue::{Direction, ShimChannel};
use aie_hal::queue::{Submission, TimelinePoint};
use aie_hal::semaphore::WaitError;
use aie_hal::{
    Arch, Buffer, BufferParams, Device, DeviceUri, Driver, Executable, HostFunction, HostFunctionError, KernelArtifact,
    KernelExecutor, Queue,
};
use std::sync::Arc;
use std::time::Duration;

/// Adds a constant to the sum of all inputs. 255 fails, 254 panics.
#[derive(Debug)]
pub(crate) struct Add {
    pub(crate) constant: u8,
    pub(crate) inputs: usize,
}

impl HostFunction for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn input_count(&self) -> usize {
        self.inputs
    }

    fn run(&self, inputs: &[&[u8]], output: &mut [u8]) -> Result<(), HostFunctionError> {
        match self.constant {
            255 => return Err(HostFunctionError::Data { kernel: "add".into(), reason: "255 is refused".into() }),
            254 => panic!("254 panics"),
            _ => {}
        }
        for (at, byte) in output.iter_mut().enumerate() {
            *byte = inputs.iter().fold(self.constant, |sum, input| sum.wrapping_add(input[at]));
        }
        Ok(())
    }
}

/// Makes [`Add`] kernels from descriptions `CONSTANT INPUTS`.
#[derive(Debug)]
struct AddExecutor;

impl KernelExecutor for AddExecutor {
    fn prepare(&self, artifact: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError> {
        let compiled = || HostFunctionError::NotExecutable("compiled AIE code".into());
        let pdi = Pdi::parse(artifact.pdi()).map_err(|_| compiled())?;
        let text = reference::extract(&pdi.cdo()).ok().flatten().ok_or_else(compiled)?;
        let text = String::from_utf8(text).map_err(|_| compiled())?;
        let (constant, inputs) = text.split_once(' ').ok_or_else(compiled)?;
        let (constant, inputs): (u32, usize) = (constant.parse().unwrap(), inputs.parse().unwrap());
        // More than 256 constants make more PDIs, not more kernels.
        Ok(Arc::new(Add { constant: constant as u8, inputs }))
    }
}

/// An artifact with `inputs + 1` arguments and a PDI of its own for every description.
pub(crate) fn artifact(arch: &Arch, description: &str, inputs: usize) -> KernelArtifact {
    let mut writer = InstructionWriter::new(Header {
        generation: arch.dev_gen,
        rows: arch.array.rows as u8,
        columns: arch.array.columns as u8,
        mem_tile_rows: arch.array.mem_rows as u8,
    });
    for index in 0..=inputs {
        let output = index == inputs;
        let direction = if output { Direction::StreamToMemory } else { Direction::MemoryToStream };
        let transfer = Transfer {
            column: (index / 2 % arch.array.columns) as u8,
            channel: ShimChannel { direction, channel: (index % 2) as u8 },
            descriptor: (index % arch.shim.dma.bds) as u8,
            shape: ShimBd::linear(64, 2),
            argument: index as u16,
            offset: 0,
            repeat: 0,
            token: output,
        };
        writer.transfer(&transfer).unwrap();
        if output {
            writer.wait(&transfer);
        }
    }
    let pdi = reference::wrap(description.as_bytes()).unwrap();
    KernelArtifact::new("add", arch.name.as_str(), arch.dev_gen, pdi, writer.finish().unwrap()).unwrap()
}

pub(crate) fn driver() -> MockDriver {
    MockDriver::new(Arc::new(AddExecutor))
}

/// A device and a queue.
pub(crate) struct Rig {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) queue: Arc<dyn Queue>,
}

/// Longest wait of a test; reached only by a defect.
pub(crate) const LONG: Option<Duration> = Some(Duration::from_secs(30));

impl Rig {
    pub(crate) fn new(uri: &str) -> Self {
        let device = driver().open(&DeviceUri::parse(uri).unwrap()).unwrap().remove(0);
        let queue = device.create_queue().unwrap();
        Self { device, queue }
    }

    pub(crate) fn kernel(&self, constant: u32, inputs: usize) -> Arc<dyn Executable> {
        let artifact = artifact(self.device.arch(), &format!("{constant} {inputs}"), inputs);
        self.device.load_executable(&artifact).unwrap()
    }

    pub(crate) fn buffer(&self, bytes: &[u8]) -> Arc<dyn Buffer> {
        let buffer = self.device.allocate(&BufferParams::data(bytes.len())).unwrap();
        buffer.write(0, bytes).unwrap();
        buffer.flush(0..bytes.len()).unwrap();
        buffer
    }

    pub(crate) fn bytes(&self, buffer: &Arc<dyn Buffer>) -> Vec<u8> {
        buffer.invalidate(0..buffer.size()).unwrap();
        let mut bytes = vec![0; buffer.size()];
        buffer.read(0, &mut bytes).unwrap();
        bytes
    }

    /// Runs a list to its end; the failure when it fails.
    pub(crate) fn run(&self, list: &Arc<CommandList>, bindings: BindingTable) -> Result<(), DeviceError> {
        let semaphore = self.device.create_semaphore(0)?;
        let signals = vec![TimelinePoint { semaphore: Arc::clone(&semaphore), value: 1 }];
        let submission = Submission { commands: Some(Arc::clone(list)), bindings, signals, ..Submission::default() };
        self.queue.submit(submission).map_err(|e| match e {
            aie_hal::SubmitError::Device(e) => e,
            e => DeviceError::Execution(e.to_string()),
        })?;
        semaphore.wait_blocking(1, LONG).map_err(|e| match e {
            WaitError::Failed(cause) => (*cause).clone(),
            e => DeviceError::Execution(e.to_string()),
        })
    }

    /// Records and runs one dispatch of each kernel, which adds to `buffer` in place.
    pub(crate) fn repeat(&self, kernels: &[Arc<dyn Executable>], buffer: &Arc<dyn Buffer>) -> Result<(), DeviceError> {
        let mut list = CommandList::builder();
        for kernel in kernels {
            let whole = BufferRef::direct(buffer, 0, buffer.size());
            list.dispatch(kernel, vec![whole.clone(), whole]).unwrap().barrier();
        }
        self.run(&Arc::new(list.finish()), BindingTable::default())
    }
}
