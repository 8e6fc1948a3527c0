//! The firmware: contexts and what the kernel driver asks. Its answers are made here; commands are for the array.

use crate::address_space::AddressSpace;
use crate::command::{self, ChainBuffer};
use crate::execution::{Job, JobResult};
use crate::faults::Fault;
use crate::heap::Heap;
use crate::journal::Journal;
use crate::mailbox::{ChannelLocation, MANAGEMENT, Message};
use crate::message::{self, Kind, Request, bytes_of};
use crate::settings::Settings;
use aie_device_memory::Span;
use aie_driver_mock::npu::array::{Command, LoadedPdi, OutOfReach};
use aie_driver_mock::npu::{ContextId, SimulatedNpu, status};
use aie_hal::arch::Tile;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[derive(Debug)]
struct Context {
    npu: ContextId,
    life: u64,
    heap: Heap,
    units: Arc<[LoadedPdi]>,
    /// Index of the command in its job that never signals.
    stuck: Option<usize>,
}

#[derive(Debug)]
struct ErrorBuffer {
    id: u32,
    address: u64,
    bytes: u32,
}

/// What becomes of a message.
#[derive(Debug)]
pub enum Reply {
    Now(Vec<u8>),
    /// It comes when the array has run this.
    Later(Job),
    /// None, or not now.
    Never,
    /// The answer describes a new context, whose channel has to be opened first.
    NewContext(usize),
    /// The answer, after this channel was closed.
    EndedContext(usize, Vec<u8>),
    /// The answer, after the firmware has gone to sleep or woken up.
    Sleep(bool, Vec<u8>),
}

#[derive(Debug)]
pub struct Firmware {
    settings: Settings,
    /// The silicon: clock and counts.
    pub npu: SimulatedNpu,
    /// By number; 0 is the management.
    contexts: Vec<Option<Context>>,
    lives: u64,
    errors: VecDeque<ErrorBuffer>,
    runtime: BTreeMap<u32, u64>,
    is_up: bool,
}

/// Bytes of a column's status.
const COLUMN_BYTES: u32 = 4096;
/// Device addresses of PDIs are in units of this many bytes.
const PDI_SHIFT: u32 = 15;
const PDI_MASK: u32 = 0x1_ffff;
/// Compute units in a configuration.
const UNITS: usize = 32;

impl Firmware {
    /// Not yet started.
    pub fn new(settings: Settings) -> Self {
        let npu = SimulatedNpu::new(settings.arch.clone(), settings.arch.limits.device_heap_bytes);
        let contexts = (0..=settings.arch.limits.contexts).map(|_| None).collect();
        let (errors, runtime) = (VecDeque::new(), BTreeMap::new());
        Self { settings, npu, contexts, lives: 0, errors, runtime, is_up: false }
    }

    pub fn start(&mut self) {
        self.stop();
        self.is_up = true;
    }

    /// Stops: contexts are gone, nothing is answered.
    pub fn stop(&mut self) {
        for context in self.contexts.iter_mut().filter_map(Option::take) {
            let _ = self.npu.destroy_context(context.npu);
        }
        self.errors.clear();
        self.runtime.clear();
        self.is_up = false;
    }

    /// Channels that there can be.
    pub fn channels(&self) -> usize {
        self.contexts.len()
    }

    /// What becomes of a message.
    pub fn handle(&mut self, channel: usize, message: &Message, space: &AddressSpace, journal: &Journal) -> Reply {
        if !self.is_up {
            return Reply::Never;
        }
        let Some(kind) = Kind::of(message.opcode) else {
            journal.note(format!("channel {channel}: no message has opcode {:#x}", message.opcode));
            return Reply::Now(bytes_of(&[status::INVALID_COMMAND]));
        };
        let occurrence = journal.message(channel, kind, message.id, &message.payload);
        let planned = self.settings.faults.other(occurrence, |fault| match fault {
            Fault::Message(name, answer) if *name == kind.name => Some(*answer),
            _ => None,
        });
        match planned {
            Some(None) => {
                journal.note(format!("{} number {occurrence} is not answered, as planned", kind.name));
                return Reply::Never;
            }
            Some(Some(status)) => {
                journal.note(format!("{} number {occurrence} gets status {status:#x}, as planned", kind.name));
                return Reply::Now(kind.answer(status));
            }
            None => {}
        }
        if message.payload.len() != kind.request || kind.in_context != (channel != MANAGEMENT) {
            let bytes = message.payload.len();
            journal.note(format!("channel {channel}: {} with {bytes} bytes, {} are expected", kind.name, kind.request));
            return Reply::Now(kind.answer(status::INVALID_PARAMETER));
        }
        let request = Request(&message.payload);
        let reply = if channel == MANAGEMENT {
            self.manage(kind, request, message.id, space)
        } else {
            self.in_context(kind, channel, request, message.id, space)
        };
        reply.unwrap_or_else(|(status, why)| {
            journal.note(format!("{} gets status {status:#x}: {why}", kind.name));
            Reply::Now(kind.answer(status))
        })
    }

    fn manage(
        &mut self,
        kind: &'static Kind,
        request: Request<'_>,
        id: u32,
        space: &AddressSpace,
    ) -> Result<Reply, (u32, String)> {
        let Settings { model, .. } = &self.settings;
        Ok(Reply::Now(match kind.name {
            "CREATE_CONTEXT" => return self.create_context(request),
            "DESTROY_CONTEXT" => {
                let channel = request.word(0) as usize;
                let context = self.contexts.get_mut(channel).and_then(Option::take);
                let context = context.ok_or_else(|| unknown(channel))?;
                let _ = self.npu.destroy_context(context.npu);
                return Ok(Reply::EndedContext(channel, kind.success(&[])));
            }
            "MAP_HOST_BUFFER" | "ADD_HOST_BUFFER" => {
                let (channel, address, bytes) = (request.word(0) as usize, request.long(4), request.long(12));
                let reached = usize::try_from(bytes).ok().and_then(|bytes| space.reach(address, bytes));
                if reached.and_then(Span::writable).is_none() {
                    let why = format!("the heap at {address:#x}, {bytes} bytes, is out of reach");
                    return Err((status::INVALID_PARAMETER, why));
                }
                let context = self.contexts.get_mut(channel).and_then(Option::as_mut);
                let context = context.ok_or_else(|| unknown(channel))?;
                if kind == &message::MAP_HOST_BUFFER {
                    context.heap = Heap::default();
                }
                context.heap.add(address, bytes);
                kind.success(&[])
            }
            "SUSPEND" | "RESUME" => {
                return Ok(Reply::Sleep(kind == &message::SUSPEND, kind.success(&[])));
            }
            "GET_FIRMWARE_VERSION" => kind.success(&[&bytes_of(&self.settings.firmware)]),
            "GET_PROTOCOL_VERSION" => {
                let (major, minor) = self.settings.protocol;
                kind.success(&[&bytes_of(&[major, minor])])
            }
            "QUERY_AIE_VERSION" => {
                let [major, minor] = model.array_version;
                kind.success(&[&major.to_le_bytes(), &minor.to_le_bytes()])
            }
            "QUERY_AIE_TILE_INFO" => {
                let tiles = self.tiles();
                let tiles: Vec<u8> = tiles.iter().flat_map(|number| number.to_le_bytes()).collect();
                kind.success(&[&COLUMN_BYTES.to_le_bytes(), &tiles])
            }
            "QUERY_COL_STATUS" => {
                let bytes = COLUMN_BYTES.saturating_mul(request.word(12)).min(request.word(8));
                if !space.write(request.long(0), &vec![0; bytes as usize]) {
                    return Err((status::INVALID_PARAMETER, "its buffer is out of reach".into()));
                }
                kind.success(&[&bytes.to_le_bytes()])
            }
            "GET_TELEMETRY" => kind.answer(status::SUCCESS),
            "GET_APP_HEALTH" => {
                let (channel, room, address) = (request.word(0) as usize, request.word(4) as usize, request.long(8));
                let context = self.contexts.get(channel).and_then(Option::as_ref).ok_or_else(|| unknown(channel))?;
                let report = health(channel, context.stuck);
                let part = &report[..report.len().min(room)];
                if !space.write(address, part) {
                    return Err((status::INVALID_PARAMETER, "its buffer is out of reach".into()));
                }
                kind.success(&[&(report.len() as u32).to_le_bytes()])
            }
            "SET_RUNTIME_CONFIG" => {
                self.runtime.insert(request.word(0), request.long(4));
                kind.success(&[])
            }
            "GET_RUNTIME_CONFIG" => {
                let value = self.runtime.get(&request.word(0)).copied().unwrap_or(0);
                kind.success(&[&value.to_le_bytes()])
            }
            "REGISTER_ASYNC_EVENT" => {
                self.errors.push_back(ErrorBuffer { id, address: request.long(0), bytes: request.word(8) });
                return Ok(Reply::Never);
            }
            "GET_DEV_REVISION" => kind.success(&[&bytes_of(&[model.device_revision])]),
            _ => kind.success(&[]),
        }))
    }

    /// Version of the array, columns and rows, then for core, memory and shim tiles: rows, first rows, DMA channels, locks, events.
    fn tiles(&self) -> [u16; 20] {
        let Settings { model, arch, .. } = &self.settings;
        let ([major, minor], array) = (model.array_version, &arch.array);
        let (mem_rows, core_rows) = (array.mem_rows as u16, array.core_rows as u16);
        let channels = |tile: &Tile| tile.dma.s2mm as u16;
        let locks = |tile: &Tile| tile.dma.locks as u16;
        let (core, mem, shim) = (&arch.core, &arch.mem_tile, &arch.shim);
        const EVENTS: u16 = 128;
        [
            major,
            minor,
            model.columns(arch),
            array.rows as u16,
            core_rows,
            mem_rows,
            1,
            1 + mem_rows,
            1,
            0,
            channels(core),
            channels(mem),
            channels(shim),
            locks(core),
            locks(mem),
            locks(shim),
            EVENTS,
            EVENTS,
            EVENTS,
            0,
        ]
    }

    fn create_context(&mut self, request: Request<'_>) -> Result<Reply, (u32, String)> {
        let (first, columns) = (request.byte(4), request.byte(5));
        let Settings { model, arch, .. } = &self.settings;
        let all = model.columns(arch);
        if u16::from(first) < model.first_column || u16::from(first) + u16::from(columns) > all {
            let why = format!(
                "columns {first}+{columns} of an array with {all}, of which the first is {}",
                model.first_column
            );
            return Err((status::INVALID_PARAMETER, why));
        }
        let npu =
            self.npu.create_context(usize::from(columns)).map_err(|why| (status::NOT_AVAILABLE, why.to_string()))?;
        let free = (1..self.contexts.len()).find(|channel| self.contexts[*channel].is_none());
        let Some(channel) = free else {
            let _ = self.npu.destroy_context(npu);
            return Err((status::NOT_AVAILABLE, "no channel is left".into()));
        };
        self.lives += 1;
        let (heap, units) = (Heap::default(), Arc::default());
        self.contexts[channel] = Some(Context { npu, life: self.lives, heap, units, stuck: None });
        Ok(Reply::NewContext(channel))
    }

    /// The answer with the location of a new context's channel. Its interrupt vector has the channel's number.
    pub fn new_context(channel: usize, place: &ChannelLocation) -> Vec<u8> {
        let [vector, pairs] = [(channel as u16).to_le_bytes(), [1, 0]];
        message::CREATE_CONTEXT.success(&[
            &(channel as u32).to_le_bytes(),
            &vector,
            &pairs,
            &bytes_of(&place.x2i),
            &bytes_of(&place.i2x),
        ])
    }

    fn in_context(
        &mut self,
        kind: &'static Kind,
        channel: usize,
        request: Request<'_>,
        id: u32,
        space: &AddressSpace,
    ) -> Result<Reply, (u32, String)> {
        let has_npu_commands = self.settings.has_npu_commands();
        let context = self.contexts.get_mut(channel).and_then(Option::as_mut).ok_or_else(|| unknown(channel))?;
        let commands = match kind.name {
            "CONFIG_CU" => {
                let units = units(request, &context.heap, space).map_err(|why| (status::LOAD_PDI_FAILED, why.0))?;
                let pdis: Vec<_> = units.iter().map(|unit| unit.in_context(self.npu.arch())).collect();
                let configured = self.npu.configure_context(context.npu, &pdis);
                configured.map_err(|why| (status::INVALID_PARAMETER, why.to_string()))?;
                context.units = units.into();
                return Ok(Reply::Now(kind.success(&[])));
            }
            "CHAIN_EXEC_NPU" if !has_npu_commands => {
                return Err((status::INVALID_COMMAND, "it came with a later protocol".into()));
            }
            "CHAIN_EXEC_NPU" | "CHAIN_EXEC_BUFFER_CF" | "CHAIN_EXEC_DPU" => {
                chain(kind, request, context, space).map_err(|why| (status::INVALID_INSTRUCTION, why.0))?
            }
            "EXECUTE_BUFFER_CF" | "EXEC_DPU" => vec![command::single(kind, request)],
            // What a heap has, host and device see alike.
            _ => return Ok(Reply::Now(kind.success(&[]))),
        };
        let (life, npu) = (context.life, context.npu);
        let (heap, units) = (context.heap.clone(), context.units.clone());
        Ok(Reply::Later(Job { channel, life, npu, id, opcode: kind.opcode, heap, units, commands }))
    }

    /// Whether the context of a job is still there and gets on.
    pub fn is_current(&self, job: &Job) -> bool {
        let context = self.contexts.get(job.channel).and_then(Option::as_ref);
        self.is_up && context.is_some_and(|context| context.life == job.life && context.stuck.is_none())
    }

    /// The answer for a job that has run; `None` when there is none.
    pub fn finish(&mut self, job: &Job, ran: &JobResult) -> Option<Vec<u8>> {
        let kind = Kind::of(job.opcode)?;
        match ran {
            JobResult::Completed => Some(kind.success(&[])),
            JobResult::Failed(index, status) => {
                let mut answer = kind.answer(*status);
                if let Some(rest) = answer.get_mut(4..12) {
                    rest.copy_from_slice(&bytes_of(&[*index as u32, *status]));
                }
                Some(answer)
            }
            JobResult::Stuck(index) => {
                if let Some(context) = self.contexts.get_mut(job.channel).and_then(Option::as_mut) {
                    context.stuck = Some(*index);
                }
                None
            }
            JobResult::Lost => {
                self.stop();
                None
            }
        }
    }

    pub fn context(&self, job: &Job) -> Option<ContextId> {
        self.contexts.get(job.channel)?.as_ref().map(|context| context.npu)
    }

    /// An asynchronous error: writes it to a buffer of the kernel driver; returns the answer for that, if there is a buffer.
    pub fn asynchronous_error(&mut self, space: &AddressSpace) -> Option<Message> {
        let buffer = self.errors.pop_front()?;
        // One error: row 2, the first usable column, in the core module, an instruction that cannot be decoded.
        const CORE_MODULE: u32 = 1;
        const INSTRUCTION_DECOMPRESSION: u32 = 59;
        let position = 2 | u32::from(self.settings.model.first_column) << 8;
        let report = bytes_of(&[1, 0, 0, position, CORE_MODULE, INSTRUCTION_DECOMPRESSION]);
        (buffer.bytes as usize >= report.len() && space.write(buffer.address, &report)).then_some(())?;
        let kind = &message::REGISTER_ASYNC_EVENT;
        Some(Message { id: buffer.id, opcode: kind.opcode, payload: kind.success(&[]) })
    }
}

fn unknown(channel: usize) -> (u32, String) {
    (status::INVALID_PARAMETER, format!("there is no context {channel}"))
}

fn units(request: Request<'_>, heap: &Heap, space: &AddressSpace) -> Result<Vec<LoadedPdi>, OutOfReach> {
    let count = request.word(0) as usize;
    if count > UNITS {
        return Err(OutOfReach(format!("{count} compute units, {UNITS} are possible")));
    }
    let unit = |index: usize| {
        let address = u64::from(request.word(4 + 4 * index) & PDI_MASK) << PDI_SHIFT;
        let unreachable = || OutOfReach(format!("the PDI of unit {index} at {address:#x} is out of reach"));
        let head = heap.read(space, address, LoadedPdi::HEADER).ok_or_else(unreachable)?;
        // What is not a PDI at all is loaded as it is, and fails when it is run.
        let rest = space.extent(heap.resolve(address)).0 as usize;
        let length = LoadedPdi::length(&head);
        let length = if length <= rest { length } else { LoadedPdi::HEADER };
        heap.read(space, address, length).map(|bytes| LoadedPdi::new(address, bytes)).ok_or_else(unreachable)
    };
    (0..count).map(unit).collect()
}

fn chain(
    kind: &Kind,
    request: Request<'_>,
    context: &Context,
    space: &AddressSpace,
) -> Result<Vec<Command>, OutOfReach> {
    let buffer = ChainBuffer::of(kind, request);
    let bytes = context.heap.read(space, buffer.address, buffer.bytes);
    let unreachable = || OutOfReach(format!("the chain buffer at {:#x} is out of reach", buffer.address));
    let bytes = bytes.ok_or_else(unreachable)?;
    command::slots(kind, &bytes, buffer.count)
}

/// The answer to GET_APP_HEALTH (`struct app_health_report`).
fn health(channel: usize, stuck: Option<usize>) -> Vec<u8> {
    const WORDS: usize = 140;
    const NOTHING: u32 = u32::MAX;
    let mut words = [0; WORDS];
    words[..6].copy_from_slice(&[1, 4 * WORDS as u32, channel as u32, NOTHING, NOTHING, 0]);
    words[WORDS - 1] = stuck.map_or(NOTHING, |index| index as u32);
    bytes_of(&words)
}
