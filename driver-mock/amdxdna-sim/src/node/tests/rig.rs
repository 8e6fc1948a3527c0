//! A device with an open file, a mapped heap and data, and writers of commands.

use crate::journal::Journal;
use crate::node::{Device, File, MapRequest, Mappings};
use crate::settings::Settings;
use aie_hal::KernelExecutor;
use aie_hal::artifact::KernelArtifact;
use aie_hal::format::instructions::{Header, Instruction, InstructionWriter};
use aie_hal::format::{pdi::Pdi, reference};
use aie_hal::host_function::{HostFunction, HostFunctionError, from_fn};
use amdxdna_sys::ert::{self, opcode};
use amdxdna_sys::limits::*;
use amdxdna_sys::{
    AMDXDNA_BO_CMD, AMDXDNA_BO_DEV, AMDXDNA_BO_DEV_HEAP, AMDXDNA_BO_SHMEM, amdxdna_cu_config, amdxdna_drm_create_bo,
    amdxdna_drm_create_hwctx, amdxdna_hwctx_param_config_cu,
};
use bytemuck::{Zeroable, bytes_of};
use nix::errno::Errno;
use std::sync::Arc;

/// Runs artifacts that say `add K`: one source, every byte plus K; `fail` fails, anything else cannot be executed.
#[derive(Debug)]
pub(super) struct Executor;

fn add(k: Option<u8>) -> Arc<dyn HostFunction> {
    from_fn("add", 1, move |inputs, output| {
        let reject = |reason: &str| HostFunctionError::Data { kernel: "add".into(), reason: reason.into() };
        let k = k.ok_or_else(|| reject("always"))?;
        if inputs.len() != 1 || inputs[0].len() != output.len() {
            return Err(reject("lengths differ"));
        }
        output.iter_mut().zip(inputs[0]).for_each(|(o, i)| *o = i.wrapping_add(k));
        Ok(())
    })
}

impl KernelExecutor for Executor {
    fn prepare(&self, artifact: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError> {
        let reject = || HostFunctionError::NotExecutable("no description that is known".into());
        let pdi = Pdi::parse(artifact.pdi()).map_err(|_| reject())?;
        let text = reference::extract(&pdi.cdo()).ok().flatten().ok_or_else(reject)?;
        let text = String::from_utf8(text).map_err(|_| reject())?;
        match text.strip_prefix("add ") {
            Some(k) => Ok(add(Some(k.parse().map_err(|_| reject())?))),
            None if text == "fail" => Ok(add(None)),
            None => Err(reject()),
        }
    }
}

pub(super) struct Rig {
    pub(super) device: Arc<Device>,
    pub(super) file: Arc<File>,
    pub(super) heap: usize,
    pub(super) data: u32,
    pub(super) address: usize,
}

pub(super) fn device_with(kernel: &str, machine: &str, faults: &str) -> Arc<Device> {
    device_of(&[("KERNEL", kernel), ("MACHINE", machine), ("FAULTS", faults)])
}

pub(super) fn device_of(variables: &[(&str, &str)]) -> Arc<Device> {
    let settings = Arc::new(Settings::of(variables).unwrap());
    let journal = Arc::new(Journal::new(settings.clone()).unwrap());
    let mappings = Mappings::new(journal.clone());
    Device::new(&settings.devices[0], &settings, Arc::new(Executor), journal, mappings)
}

pub(super) fn device(machine: &str, faults: &str) -> Arc<Device> {
    device_with("legacy", machine, faults)
}

pub(super) fn create(file: &File, kind: u32, size: usize) -> Result<u32, Errno> {
    let mut arguments = amdxdna_drm_create_bo { type_: kind, size: size as u64, ..amdxdna_drm_create_bo::zeroed() };
    file.create_bo(&mut arguments).map(|()| arguments.handle)
}

pub(super) fn map_at(file: &File, handle: u32, address: usize) -> usize {
    let bo = file.bo(handle).unwrap();
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | fixed);
    let length = bo.length();
    let mappable = file.mappable(bo.map_offset(), length, flags).unwrap();
    file.device.mappings.map(mappable, &MapRequest { address, length, prot, flags, offset: 0 }).unwrap()
}

/// An address that is free for a heap and at a multiple of its size. Never released, so that tests do not meet.
pub(super) fn heap_address() -> usize {
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new pages at an address the kernel chooses.
    let found = unsafe { libc::mmap(std::ptr::null_mut(), 2 * DEV_MEM_SIZE, libc::PROT_NONE, anonymous, -1, 0) };
    assert_ne!(found, libc::MAP_FAILED);
    found.expose_provenance().next_multiple_of(DEV_MEM_SIZE)
}

pub(super) fn rig_of(kernel: &str, machine: &str, faults: &str) -> Rig {
    let device = device_with(kernel, machine, faults);
    let file = File::open(&device).unwrap();
    let heap = create(&file, AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE).unwrap();
    let heap = map_at(&file, heap, heap_address());
    let data = create(&file, AMDXDNA_BO_SHMEM, 2 * PAGE).unwrap();
    let address = map_at(&file, data, 0);
    Rig { device, file, heap, data, address }
}

pub(super) fn rig_with(machine: &str, faults: &str) -> Rig {
    rig_of("legacy", machine, faults)
}

pub(super) fn rig() -> Rig {
    rig_with("", "")
}

pub(super) fn context(file: &File, tiles: u32) -> Result<u32, Errno> {
    let mut arguments = amdxdna_drm_create_hwctx { num_tiles: tiles, ..amdxdna_drm_create_hwctx::zeroed() };
    file.create_hwctx(&mut arguments, 0).map(|()| arguments.handle)
}

impl Rig {
    pub(super) fn write(&self, bo: u32, bytes: &[u8]) {
        let bo = self.file.bo(bo).unwrap();
        let (memory, start) = bo.memory().unwrap();
        memory.writable(start, bytes.len()).unwrap().write(bytes);
    }

    pub(super) fn write_at(&self, offset: usize, bytes: &[u8]) {
        let bo = self.file.bo(self.data).unwrap();
        bo.memory().unwrap().0.writable(offset, bytes.len()).unwrap().write(bytes);
    }

    pub(super) fn data(&self, offset: usize, length: usize) -> Vec<u8> {
        self.file.bo(self.data).unwrap().memory().unwrap().0.copy(offset, length).unwrap()
    }

    pub(super) fn dev(&self, bytes: &[u8]) -> u32 {
        let bo = create(&self.file, AMDXDNA_BO_DEV, bytes.len()).unwrap();
        self.write(bo, bytes);
        bo
    }

    pub(super) fn device_address(&self, bo: u32) -> u64 {
        self.file.bo(bo).unwrap().device_address()
    }

    pub(super) fn pdi(&self, text: &str) -> u32 {
        self.dev(&reference::wrap(text.as_bytes()).unwrap())
    }

    pub(super) fn instructions(&self) -> (u32, u32) {
        let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
        for argument in 0..2 {
            writer.push(&Instruction::AddressPatch { register: 0x1_d004, argument, offset: 0 });
        }
        let bytes = writer.finish().unwrap();
        (self.dev(&bytes), bytes.len() as u32 / 4)
    }

    pub(super) fn configure(&self, context: u32, pdis: &[u32]) -> Result<(), Errno> {
        let mut list = bytes_of(&amdxdna_hwctx_param_config_cu { num_cus: pdis.len() as u16, pad: [0; 3] }).to_vec();
        for pdi in pdis {
            list.extend_from_slice(bytes_of(&amdxdna_cu_config { cu_bo: *pdi, cu_func: 0, pad: [0; 3] }));
        }
        self.file.config_cu(context, &list)
    }

    pub(super) fn command_bo(&self, opcode: u32, words: &[u32]) -> u32 {
        let bo = create(&self.file, AMDXDNA_BO_CMD, 4 + 4 * words.len()).unwrap();
        let header = ert::header(opcode, words.len() as u32);
        let bytes: Vec<u8> = [header].iter().chain(words).flat_map(|word| word.to_le_bytes()).collect();
        self.write(bo, &bytes);
        bo
    }

    /// A command that reads `length` bytes at offset `from` of the data and writes those at `to`.
    pub(super) fn command(&self, unit: u32, instructions: (u32, u32), from: usize, to: usize, length: u32) -> u32 {
        self.command_at(unit, instructions, self.address, from, to, length)
    }

    /// The same with the data at `base`.
    pub(super) fn command_at(
        &self,
        unit: u32,
        instructions: (u32, u32),
        base: usize,
        from: usize,
        to: usize,
        length: u32,
    ) -> u32 {
        let (bo, count) = instructions;
        let mut words = vec![1 << unit, ert::TRANSACTION, 0, self.device_address(bo) as u32, 0x7f00, count];
        for address in [base + from, base + to] {
            words.extend([address as u32, (address >> 32) as u32]);
        }
        words.extend([length, length]);
        self.command_bo(opcode::START_CU, &words)
    }

    /// A command with one more word, so that their number is even.
    pub(super) fn padded(&self, command: u32) -> u32 {
        let bo = self.file.bo(command).unwrap();
        let header = bo.word(0).unwrap();
        bo.set_word(0, ert::header(ert::opcode_of(header), ert::count_of(header) + 1));
        command
    }

    pub(super) fn chained(&self, chain: u32, index: usize) -> u32 {
        self.file.bo(chain).unwrap().word(4 * (ert::chain::HANDLES + 2 * index)).unwrap()
    }

    pub(super) fn chain(&self, commands: &[u32]) -> u32 {
        let mut words = vec![commands.len() as u32, 0, 0, 0, 0, 0];
        commands.iter().for_each(|handle| words.extend([*handle, 0]));
        self.command_bo(opcode::CMD_CHAIN, &words)
    }

    /// Submits a command and waits for it; its state.
    pub(super) fn run(&self, context: u32, command: u32, arguments: &[u32]) -> u32 {
        let sequence = self.file.exec_cmd(context, command, arguments).unwrap();
        self.ended(context, sequence);
        self.state(command)
    }

    /// Waits for a job as long as it takes, whatever ways to wait the kernel has.
    pub(super) fn ended(&self, context: u32, sequence: u64) {
        let line = self.file.state.lock().contexts[&context].line.clone();
        assert_eq!(line.wait(sequence, 0), Ok(()));
    }

    pub(super) fn state(&self, command: u32) -> u32 {
        self.file.bo(command).unwrap().word(0).unwrap() & 0xf
    }

    pub(super) fn messages(&self) -> String {
        self.device.journal.report(Vec::new())["messages"].to_string()
    }

    /// A configured context with the PDI `text`, and the instructions.
    pub(super) fn ready(&self, text: &str) -> (u32, (u32, u32)) {
        let context = context(&self.file, 32).unwrap();
        let pdi = self.pdi(text);
        self.configure(context, &[pdi]).unwrap();
        (context, self.instructions())
    }
}
