//! What most scripts need before they begin: heap, PDI, instructions, contexts, commands.

use crate::packets::{Chain, CommandPacket};
use crate::probe::Probe;
use crate::sys::{self, Errno, Map, Mapping};
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::instructions::{Header, InstructionWriter};
use aie_hal::format::pdi;
use amdxdna_sys::ert::{STATE_MASK, chain, state};
use amdxdna_sys::limits::{DEV_MEM_BASE, DEV_MEM_SIZE, PAGE};
use amdxdna_sys::*;
use serde_json::json;
use std::time::Duration;

/// How long scripts wait for a command: longer than the kernel's own limit on kernels of 2026.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// The address of something in memory, for a field of a structure.
pub fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value).expose_provenance() as u64
}

/// The address of a list, for a field of a structure.
pub fn list<T>(values: &[T]) -> u64 {
    values.as_ptr().expose_provenance() as u64
}

/// The address of something that the kernel fills, for a field of a structure.
pub fn room<T: ?Sized>(value: &mut T) -> u64 {
    std::ptr::from_mut(value).cast::<u8>().expose_provenance() as u64
}

/// A BO that is mapped.
#[derive(Debug)]
pub struct Mapped {
    pub handle: u32,
    /// Its address for the device.
    pub device: u64,
    pub memory: Mapping,
}

/// A context and the timeline on which its commands complete.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context {
    pub handle: u32,
    pub timeline: u32,
}

/// A heap with an empty PDI and an empty stream of instructions, and a context that is configured with them.
#[derive(Debug)]
pub struct Setup {
    pub heap: Mapped,
    pub pdi: u32,
    /// Device address of the instructions.
    pub instructions: u64,
    pub words: u32,
    pub context: Context,
}

impl Setup {
    /// The command that runs the empty stream.
    pub fn command(&self) -> CommandPacket {
        CommandPacket::run(self.instructions, self.words)
    }
}

impl Probe {
    /// CREATE_BO; the handle, 0 when there is none.
    pub fn create_bo(&mut self, type_: u32, size: u64) -> u32 {
        let mut made = amdxdna_drm_create_bo { type_, size, ..Default::default() };
        self.call(&mut made).map_or(0, |()| made.handle)
    }

    pub fn bo_info(&mut self, handle: u32) -> amdxdna_drm_get_bo_info {
        let mut info = amdxdna_drm_get_bo_info { handle, ..Default::default() };
        // What is wrong is in the record; the fields stay zero then.
        let _ = self.call(&mut info);
        info
    }

    pub fn close(&mut self, handle: u32) {
        let _ = self.call(&mut drm_gem_close { handle, pad: 0 });
    }

    /// Where a BO can be mapped, without a record.
    pub fn offset(&mut self, handle: u32) -> u64 {
        self.quietly(|p| p.bo_info(handle).map_offset)
    }

    /// Maps a BO from its start.
    pub fn map_bo(&mut self, what: &str, handle: u32, bytes: usize) -> Option<Mapping> {
        let offset = self.offset(handle);
        self.map(what, Map::shared(offset, bytes))
    }

    /// Makes and maps a BO without records.
    pub fn mapped_bo(&mut self, type_: u32, bytes: usize) -> Option<Mapped> {
        self.quietly(|p| {
            let handle = p.create_bo(type_, bytes as u64);
            let memory = p.map_bo("a BO", handle, bytes)?;
            let device = p.bo_info(handle).xdna_addr;
            Some(Mapped { handle, device, memory })
        })
    }

    /// Makes the heap and maps it where the kernel wants it, without records.
    pub fn heap(&mut self) -> Option<Mapped> {
        self.quietly(|p| {
            let handle = p.create_bo(AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE as u64);
            let offset = p.offset(handle);
            let memory = p.map("the heap", Map { remainder: Some(0), ..Map::shared(offset, DEV_MEM_SIZE) })?;
            Some(Mapped { handle, device: DEV_MEM_BASE, memory })
        })
    }

    /// Makes a part of the heap with these bytes, without records: its handle and device address.
    pub fn part(&mut self, heap: &Mapped, bytes: &[u8]) -> (u32, u64) {
        self.quietly(|p| {
            let handle = p.create_bo(AMDXDNA_BO_DEV, bytes.len().next_multiple_of(PAGE) as u64);
            let device = p.bo_info(handle).xdna_addr;
            let start = device.wrapping_sub(heap.device) as usize / 4;
            let end = start.saturating_add(bytes.len() / 4);
            if handle != 0 && end * 4 <= heap.memory.bytes() {
                for (index, word) in bytes.chunks_exact(4).enumerate() {
                    heap.memory.set_word(start + index, u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                }
                p.sync(handle, SYNC_DIRECT_TO_DEVICE, 0, bytes.len() as u64);
            }
            (handle, device)
        })
    }

    /// CREATE_HWCTX with this many tiles; handles are 0 when there is none.
    pub fn context(&mut self, tiles: u32) -> Context {
        let qos = amdxdna_qos_info::default();
        let mut create =
            amdxdna_drm_create_hwctx { qos_p: address(&qos), max_opc: 0x800, num_tiles: tiles, ..Default::default() };
        match self.call(&mut create) {
            Ok(()) => Context { handle: create.handle, timeline: create.syncobj_handle },
            Err(_) => Context::default(),
        }
    }

    pub fn destroy(&mut self, context: Context) {
        let _ = self.call(&mut amdxdna_drm_destroy_hwctx { handle: context.handle, pad: 0 });
    }

    pub fn configure(&mut self, context: Context, pdis: &[u32]) {
        // The head is as long as an entry: the number of PDIs in its first two bytes.
        let head = amdxdna_cu_config { cu_bo: pdis.len() as u32, ..Default::default() };
        let entries = pdis.iter().map(|buffer| amdxdna_cu_config { cu_bo: *buffer, ..Default::default() });
        let config: Vec<amdxdna_cu_config> = std::iter::once(head).chain(entries).collect();
        self.configure_with(context, &config, size_of_val(config.as_slice()) as u32);
    }

    /// CONFIG_HWCTX with a list as it is, whose head is its first entry.
    pub fn configure_with(&mut self, context: Context, config: &[amdxdna_cu_config], bytes: u32) {
        let _ = self.call(&mut amdxdna_drm_config_hwctx {
            handle: context.handle,
            param_type: DRM_AMDXDNA_HWCTX_CONFIG_CU,
            param_val: list(config),
            param_val_size: bytes,
            pad: 0,
        });
    }

    /// The shape of the array: tiles of one column, and columns.
    pub fn array(&mut self) -> (u32, u32) {
        let mut found = [amdxdna_drm_query_aie_metadata::default()];
        let _ = self.quietly(|p| p.get_info(DRM_AMDXDNA_QUERY_AIE_METADATA, &mut found));
        (found[0].core.row_count.into(), found[0].cols.into())
    }

    /// An empty PDI and an empty stream of instructions for this device.
    pub fn empty_kernel(&mut self) -> (Vec<u8>, Vec<u8>) {
        // npu1 has five columns.
        let generation = if self.array().1 <= 5 { 3 } else { 4 };
        let header = Header { generation, rows: 6, columns: 1, mem_tile_rows: 1 };
        let pdi = pdi::write(CdoBuilder::new().nop(&[])).unwrap_or_default();
        (pdi, InstructionWriter::new(header).finish().unwrap_or_default())
    }

    /// Heap, empty kernel, and a context of one column that is configured with it.
    pub fn setup(&mut self) -> Option<Setup> {
        self.prepare("heap, PDI, instructions, context", |p| {
            let heap = p.heap()?;
            let (pdi, stream) = p.empty_kernel();
            let (pdi, _) = p.part(&heap, &pdi);
            let (_, instructions) = p.part(&heap, &stream);
            let tiles = p.array().0;
            let context = p.context(tiles);
            p.configure(context, &[pdi]);
            Some(Setup { heap, pdi, instructions, words: stream.len() as u32 / 4, context })
        })
    }

    /// GET_INFO with a buffer for these.
    pub fn get_info<T>(&mut self, param: u32, answer: &mut [T]) -> Result<(), Errno> {
        let (buffer_size, buffer) = (size_of_val(answer) as u32, room(answer));
        self.call(&mut amdxdna_drm_get_info { param, buffer_size, buffer })
    }

    pub fn sync(&mut self, handle: u32, direction: u32, offset: u64, size: u64) {
        let _ = self.call(&mut amdxdna_drm_sync_bo { handle, direction, offset, size });
    }

    /// SYNCOBJ_CREATE; the handle, 0 when there is none.
    pub fn create_syncobj(&mut self, flags: u32) -> u32 {
        let mut create = drm_syncobj_create { handle: 0, flags };
        self.call(&mut create).map_or(0, |()| create.handle)
    }

    pub fn destroy_syncobj(&mut self, handle: u32) {
        let _ = self.call(&mut drm_syncobj_destroy { handle, pad: 0 });
    }

    /// A call on a timeline's points.
    pub fn timeline(&mut self, name: &str, handles: &[u32], points: u64, flags: u32) {
        let (handles, count_handles) = (list(handles), handles.len() as u32);
        let _ = self.named(name, &mut drm_syncobj_timeline_array { handles, points, count_handles, flags });
    }

    /// Where a timeline is: SYNCOBJ_QUERY, and what it has written.
    pub fn point(&mut self, handle: u32, flags: u32) {
        let mut point = u64::MAX;
        let points = room(&mut point);
        self.timeline("SYNCOBJ_QUERY", &[handle], points, flags);
        self.note("point", if point == u64::MAX { "untouched".into() } else { json!(point) });
    }

    /// Makes calls in a context of four tiles of their own, so that none has to live with what another has done. With PDIs it is
    /// configured. Neither is recorded.
    pub fn in_context(&mut self, pdis: &[u32], work: impl FnOnce(&mut Self, Context)) {
        let context = self.quietly(|p| {
            let context = p.context(4);
            if !pdis.is_empty() {
                p.configure(context, pdis);
            }
            context
        });
        work(self, context);
        self.quietly(|p| p.destroy(context));
    }

    /// EXEC_CMD; the sequence number.
    pub fn execute(&mut self, context: Context, command: u32, arguments: &[u32]) -> Result<u64, Errno> {
        self.with_handles("arguments", crate::names::HandleKind::Bo, arguments);
        let mut execute = amdxdna_drm_exec_cmd {
            hwctx: context.handle,
            type_: AMDXDNA_CMD_SUBMIT_EXEC_BUF,
            cmd_handles: command.into(),
            args: if arguments.is_empty() { 0 } else { list(arguments) },
            cmd_count: 1,
            arg_count: arguments.len() as u32,
            seq: u64::MAX,
            ..Default::default()
        };
        self.call(&mut execute).map(|()| execute.seq)
    }

    /// Waits for a point of a timeline.
    pub fn wait(&mut self, context: Context, point: u64, limit: Duration) -> Result<(), Errno> {
        let handle = context.timeline;
        let flags = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT;
        self.with_handles("syncobjs", crate::names::HandleKind::Syncobj, &[handle]);
        // Whether the command had ended before the wait began.
        self.with("at", json!([point])).by_chance("first_signaled");
        self.call(&mut drm_syncobj_timeline_wait {
            handles: address(&handle),
            points: address(&point),
            timeout_nsec: (sys::now() + limit).as_nanos() as i64,
            count_handles: 1,
            flags,
            ..Default::default()
        })
    }

    /// EXEC_CMD, a wait, and the state that the command is left in.
    pub fn run(&mut self, context: Context, command: &Mapped, arguments: &[u32]) {
        self.submit(context, command.handle, arguments);
        self.state(&command.memory);
    }

    pub fn submit(&mut self, context: Context, command: u32, arguments: &[u32]) {
        if let Ok(seq) = self.execute(context, command, arguments) {
            let _ = self.wait(context, seq, PATIENCE);
        }
    }

    /// Notes the state of a command, and of a chain what it says of its commands.
    pub fn state(&mut self, command: &Mapping) {
        let header = command.word(0);
        let name = state::name(header & STATE_MASK);
        if ert::opcode_of(header) == ert::opcode::CMD_CHAIN {
            let index = command.word(chain::ERROR_INDEX);
            let index = if index == crate::packets::UNTOUCHED { json!("untouched") } else { json!(index) };
            let submitted = command.word(chain::SUBMIT_INDEX);
            return self.note("chain", json!({"state": name, "error_index": index, "submit_index": submitted}));
        }
        self.note("command", json!({"state": name, "first_word": command.word(1)}));
    }

    /// Makes a command BO with a command in it.
    pub fn command(&mut self, command: CommandPacket) -> Option<Mapped> {
        let bo = self.mapped_bo(AMDXDNA_BO_CMD, PAGE)?;
        command.write(&bo.memory);
        Some(bo)
    }

    /// Makes a command BO with a chain in it.
    pub fn chain(&mut self, chain: &Chain) -> Option<Mapped> {
        let bo = self.mapped_bo(AMDXDNA_BO_CMD, PAGE)?;
        chain.write(&bo.memory);
        Some(bo)
    }
}
