//! The device as a kernel driver uses it: registers, mailbox, memory.

use super::*;
use crate::faults;
use crate::message::{self, Kind, Request, bytes_of};
use crate::model::Model;
use aie_driver_mock::npu::status;
use aie_hal::artifact::KernelArtifact;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{Instruction, InstructionWriter};
use aie_hal::format::reference;
use aie_hal::{ArchRegistry, HostFunction, HostFunctionError};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const HEAP: u64 = 0x7f_4000_0000;
const HEAP_BYTES: u64 = 64 << 20;
const HEAP_BASE: u64 = 0x400_0000;
/// In the heap: the PDI, the instructions, the chain buffer, data.
const PDI_AT: u64 = 0;
const STREAM_AT: u64 = 0x8000;
const CHAIN_AT: u64 = 0x1_0000;
const DATA_AT: u64 = 0x1_8000;

/// Every artifact is a kernel that adds one to 16 bytes.
#[derive(Debug)]
struct AddOne;

impl HostFunction for AddOne {
    fn name(&self) -> &str {
        "add_one"
    }

    fn input_count(&self) -> usize {
        1
    }

    fn argument_bytes(&self, _: usize) -> Option<usize> {
        Some(16)
    }

    fn run(&self, inputs: &[&[u8]], output: &mut [u8]) -> Result<(), HostFunctionError> {
        output.iter_mut().zip(inputs[0]).for_each(|(output, input)| *output = input + 1);
        Ok(())
    }
}

#[derive(Debug)]
struct Executor;

impl KernelExecutor for Executor {
    fn prepare(&self, _: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError> {
        Ok(Arc::new(AddOne))
    }
}

/// The kernel driver's side.
struct Driver {
    device: Arc<Device>,
    memory: File,
    /// x2i tail and i2x head of each channel.
    rings: Vec<(u32, u32)>,
    next: u32,
}

impl Driver {
    fn new(npu: &str, plan: &str) -> Self {
        Self::with(npu, |settings| settings.faults = faults::parse(plan).unwrap())
    }

    fn with(npu: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let model = Model::by_name(npu).unwrap();
        let mut settings = Settings::new(model, ArchRegistry::builtin().get(model.arch).unwrap());
        change(&mut settings);
        let channels = settings.arch.limits.contexts + 1;
        let device = Device::new(settings, Arc::new(Executor), Journal::new(None).unwrap()).unwrap();
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(HEAP_BYTES).unwrap();
        device.space.map(HEAP, HEAP_BYTES, &memory, 0, true).unwrap();
        let mut driver = Self { device, memory, rings: vec![(0, 0); channels], next: 0 };
        driver.start();
        driver
    }

    fn layout(&self) -> &'static crate::model::Layout {
        self.device.settings.model.layout
    }

    fn set(&self, register: Register, word: u32) {
        self.device.write(register.bar as u32, u64::from(register.offset), &word.to_le_bytes());
    }

    fn get(&self, register: Register) -> u32 {
        let mut bytes = [0; 4];
        self.device.read(register.bar as u32, u64::from(register.offset), &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// A command of the security processor; returns its answer.
    fn psp(&self, command: u32) -> u32 {
        let psp = &self.layout().psp;
        assert_ne!(self.get(psp.command) & PSP_READY, 0);
        self.set(psp.command, command);
        self.set(psp.doorbell, 0);
        self.set(psp.doorbell, 1);
        assert_ne!(self.get(psp.command) & PSP_READY, 0);
        self.get(psp.argument_0)
    }

    fn start(&mut self) {
        assert_eq!((self.psp(PSP_VALIDATE), self.psp(PSP_START)), (0, 0));
        let layout = self.layout();
        assert_eq!(self.get(layout.alive), layout.sram.address(layout.description));
        self.rings.fill((0, 0));
    }

    fn mailbox(&self, channel: usize, which: u32) -> Register {
        let mailbox = &self.layout().mailbox;
        Register { bar: mailbox.bar, offset: mailbox.offset + 0x20 * channel as u32 + which }
    }

    fn send(&mut self, channel: usize, kind: &Kind, payload: &[u32]) -> u32 {
        let mut payload = bytes_of(payload);
        payload.resize(kind.request, 0);
        let ring = 0x1000 * channel as u32;
        if self.rings[channel].0 + 16 + payload.len() as u32 > crate::mailbox::RING_BYTES - 4 {
            self.set(Register { bar: 2, offset: ring + self.rings[channel].0 }, 0xdead_face);
            self.rings[channel].0 = 0;
        }
        let at = ring + self.rings[channel].0;
        self.next += 1;
        let head = bytes_of(&[payload.len() as u32, payload.len() as u32 | 1 << 16, self.next, kind.opcode]);
        self.device.write(2, u64::from(at), &[head, payload.clone()].concat());
        self.rings[channel].0 += 16 + payload.len() as u32;
        let tail = self.rings[channel].0;
        self.set(self.mailbox(channel, 0), tail);
        self.next
    }

    /// The next answer of a channel, if it comes within the time.
    fn answer(&mut self, channel: usize, within: Duration) -> Option<(u32, Vec<u8>)> {
        let started = Instant::now();
        let (ring, head) = (0x1000 * channel as u32 + 0x800, self.rings[channel].1);
        while self.get(self.mailbox(channel, 8)) == head {
            if started.elapsed() > within {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let word = |driver: &Self, at| driver.get(Register { bar: 2, offset: ring + at });
        let head = if word(self, head) == 0xdead_face { 0 } else { head };
        let (bytes, id) = (word(self, head), word(self, head + 8));
        let mut payload = vec![0; bytes as usize];
        self.device.read(2, u64::from(ring + head + 16), &mut payload);
        self.rings[channel].1 = head + 16 + bytes;
        let taken = self.rings[channel].1;
        self.set(self.mailbox(channel, 12), taken);
        Some((id, payload))
    }

    /// Asks and gets the answer.
    fn ask(&mut self, channel: usize, kind: &Kind, payload: &[u32]) -> Vec<u8> {
        let id = self.send(channel, kind, payload);
        let (answered, answer) = self.answer(channel, Duration::from_secs(10)).expect(kind.name);
        assert_eq!((answered, answer.len()), (id, kind.response), "{}", kind.name);
        answer
    }

    fn status(&mut self, channel: usize, kind: &Kind, payload: &[u32]) -> u32 {
        let answer = self.ask(channel, kind, payload);
        Request(&answer).word(0)
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    fn get_bytes(&self, at: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    /// A context with a heap and one PDI; returns its channel.
    fn context(&mut self) -> usize {
        let first = u32::from(self.device.settings.model.first_column);
        let answer = self.ask(MANAGEMENT, &message::CREATE_CONTEXT, &[1, first | 4 << 8, 1, 0, 0, 0, 3]);
        assert_eq!(Request(&answer).word(0), 0);
        let channel = Request(&answer).word(4) as usize;
        self.rings[channel] = (0, 0);
        let heap = [channel as u32, HEAP as u32, (HEAP >> 32) as u32, HEAP_BYTES as u32, 0];
        assert_eq!(self.status(MANAGEMENT, &message::MAP_HOST_BUFFER, &heap), 0);
        self.put(PDI_AT, &reference::wrap(b"add one").unwrap());
        let unit = ((HEAP_BASE + PDI_AT) >> 15) as u32;
        assert_eq!(self.status(channel, &message::CONFIG_CU, &[1, unit]), 0);
        channel
    }

    /// A chain of dispatches that add one to `DATA_AT`, each in its own 16 bytes.
    fn chain(&self, dispatches: u32) -> [u32; 6] {
        let header = self.device.settings.arch.stream_header(4);
        let mut stream = InstructionWriter::new(header);
        for argument in 0..2 {
            let register = 0x1d004 + 0x20 * u64::from(argument);
            stream.push(&Instruction::AddressPatch { register, argument, offset: 0 });
        }
        stream.push(&Instruction::Sync {
            direction: Direction::StreamToMemory,
            column: 0,
            row: 0,
            columns: 1,
            rows: 1,
            channel: 0,
        });
        let stream = stream.finish().unwrap();
        self.put(STREAM_AT, &stream);
        let mut slots = Vec::new();
        for index in 0..u64::from(dispatches) {
            let (from, to) = (HEAP_BASE + DATA_AT + 32 * index, HEAP_BASE + DATA_AT + 32 * index + 16);
            self.put(DATA_AT + 32 * index, &[index as u8; 16]);
            let words = (stream.len() / 4) as u32;
            slots.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
            slots.extend([3, 0, (HEAP_BASE + STREAM_AT) as u32, 0, words, from as u32, 0, to as u32, 0]);
        }
        self.put(CHAIN_AT, &bytes_of(&slots));
        [0, 0, (HEAP_BASE + CHAIN_AT) as u32, 0, 4 * slots.len() as u32, dispatches]
    }
}

#[test]
fn a_driver_starts_it_and_runs_chains() {
    for npu in ["npu1", "npu4"] {
        let mut driver = Driver::new(npu, "");
        let version = driver.ask(MANAGEMENT, &message::GET_FIRMWARE_VERSION, &[]);
        assert_eq!(Request(&version).words(4), driver.device.settings.firmware);
        let info = driver.ask(MANAGEMENT, &message::QUERY_AIE_TILE_INFO, &[]);
        assert_eq!(Request(&info).word(12) & 0xffff, if npu == "npu1" { 5 } else { 8 }, "columns");
        let channel = driver.context();
        for _ in 0..50 {
            let chain = driver.chain(3);
            assert_eq!(driver.ask(channel, &message::CHAIN_EXEC_NPU, &chain), [0; 12]);
            for index in 0..3 {
                assert_eq!(driver.get_bytes(DATA_AT + 32 * index + 16), [index as u8 + 1; 16]);
            }
        }
        assert_eq!(driver.status(MANAGEMENT, &message::DESTROY_CONTEXT, &[channel as u32]), 0);
        assert_eq!(driver.status(MANAGEMENT, &message::DESTROY_CONTEXT, &[channel as u32]), status::INVALID_PARAMETER);
        let report = driver.device.report();
        assert_eq!((&report["chains"], &report["commands"]), (&50.into(), &150.into()));
    }
}

#[test]
fn contexts_end() {
    let mut driver = Driver::with("npu4", |settings| *settings = settings.clone().with_contexts(2));
    let (first, second) = (driver.context(), driver.context());
    assert_ne!(first, second);
    let create = [1, 4 << 8, 1, 0, 0, 0, 3];
    assert_eq!(driver.status(MANAGEMENT, &message::CREATE_CONTEXT, &create), status::NOT_AVAILABLE);
    assert_eq!(driver.status(MANAGEMENT, &message::DESTROY_CONTEXT, &[first as u32]), 0);
    assert_eq!(driver.context(), first);
    let wide = [1, 9 << 8, 1, 0, 0, 0, 3];
    assert_eq!(driver.status(MANAGEMENT, &message::CREATE_CONTEXT, &wide), status::INVALID_PARAMETER);
}

#[test]
fn planned_faults_reach_the_driver() {
    let mut driver = Driver::new("npu4", "status=0x1000006@2,timeout@3,async@4,SUSPEND@1=0x2000005");
    let channel = driver.context();
    let chain = driver.chain(2);
    let answer = driver.ask(channel, &message::CHAIN_EXEC_NPU, &chain);
    assert_eq!(Request(&answer).words(0), [0x0100_0006, 1, 0x0100_0006]);
    // The third command never ends; its context is given up, and another continues.
    driver.send(channel, &message::CHAIN_EXEC_NPU, &chain);
    assert_eq!(driver.answer(channel, Duration::from_millis(100)), None);
    let other = driver.context();
    let buffer = HEAP + DATA_AT + 0x1000;
    let events = [buffer as u32, (buffer >> 32) as u32, 0x2000];
    let registered = driver.send(MANAGEMENT, &message::REGISTER_ASYNC_EVENT, &events);
    assert_eq!(driver.ask(other, &message::CHAIN_EXEC_NPU, &chain), [0; 12]);
    let (id, answer) = driver.answer(MANAGEMENT, Duration::from_secs(10)).unwrap();
    assert_eq!((id, answer), (registered, vec![0; 8]));
    let mut report = [0; 24];
    driver.memory.read_exact_at(&mut report, DATA_AT + 0x1000).unwrap();
    assert_eq!(Request(&report).words(0), [1, 0, 0, 2, 1, 59]);
    let health = driver.ask(
        MANAGEMENT,
        &message::GET_APP_HEALTH,
        &[channel as u32, 0x400, buffer as u32, (buffer >> 32) as u32],
    );
    assert_eq!(Request(&health).words(0)[..2], [0, 560]);
    assert_eq!(driver.status(MANAGEMENT, &message::SUSPEND, &[]), 0x0200_0005);
}

#[test]
fn it_sleeps_and_starts_again() {
    let mut driver = Driver::new("npu4", "");
    driver.context();
    let wait_mode = driver.layout().psp.wait_mode;
    assert_eq!((driver.status(MANAGEMENT, &message::SUSPEND, &[]), driver.get(wait_mode)), (0, 1));
    assert_eq!(driver.psp(PSP_RELEASE), 0);
    driver.send(MANAGEMENT, &message::RESUME, &[]);
    assert_eq!(driver.answer(MANAGEMENT, Duration::from_millis(50)), None, "the firmware is not there");
    driver.start();
    assert_eq!((driver.status(MANAGEMENT, &message::RESUME, &[]), driver.get(wait_mode)), (0, 0));
    assert_eq!(driver.context(), 1, "contexts of before are gone");
    assert_eq!(driver.psp(9), PSP_BAD_STATE);
}

#[test]
fn messages_that_make_no_sense_get_a_status() {
    let mut driver = Driver::new("npu4", "");
    let channel = driver.context();
    assert_eq!(driver.status(channel, &message::CREATE_CONTEXT, &[1]), status::INVALID_PARAMETER);
    assert_eq!(driver.status(MANAGEMENT, &message::CONFIG_CU, &[0]), status::INVALID_PARAMETER);
    let nowhere = [channel as u32, 0x1000, 0, HEAP_BYTES as u32, 0];
    assert_eq!(driver.status(MANAGEMENT, &message::MAP_HOST_BUFFER, &nowhere), status::INVALID_PARAMETER);
    let mut chain = driver.chain(1);
    chain[5] = 2;
    assert_eq!(driver.status(channel, &message::CHAIN_EXEC_NPU, &chain), status::INVALID_INSTRUCTION);
    let mut old = Driver::with("npu4", |settings| settings.protocol = (6, 12));
    let channel = old.context();
    let chain = old.chain(1);
    assert_eq!(old.status(channel, &message::CHAIN_EXEC_NPU, &chain), status::INVALID_COMMAND);
    let report = old.device.report();
    assert!(report["notes"].to_string().contains("later protocol"), "{report}");
}
