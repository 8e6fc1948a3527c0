//! Memory of one NPU, cut from few large allocations of the runtime.
//!
//! Every allocation of the runtime is a buffer object of the kernel driver, with its own handle, mapping and pinned pages, and
//! each command names those it uses. Thousands of small tensors would make thousands of them. So data memory comes from slabs,
//! and only what is large has one of its own.
//!
//! The device heap is small, and the kernel driver hands it out in pieces of 32 KiB ([`HEAP_GRANULE`]), so short instruction streams
//! share slabs too. PDIs do not: firmware takes their addresses in units of such a piece. A part of the heap stays free,
//! because the kernel driver takes the command buffers of every context from it, and a full heap would stop all work.

use crate::agent::{Agent, AgentError, Held};
use aie_device_memory::Region;
use aie_hal::error::DeviceError;
use aie_hal::{BufferParams, MemoryPool};
use parking_lot::Mutex;
use range_alloc::RangeAllocator;
use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Bytes of a slab of data memory.
const SLAB_BYTES: usize = 4 << 20;
const INSTRUCTION_SLAB_BYTES: usize = 64 << 10;
/// Granule of the device heap in bytes: the unit of PDI addresses (amdxdna kernel driver).
pub(crate) const HEAP_GRANULE: usize = 32 << 10;
/// Bytes of the heap that one context takes: four command buffers, a granule each (amdxdna kernel driver).
const CONTEXT_BYTES: usize = 4 * HEAP_GRANULE;
/// Bytes of the heap that a runtime takes for itself, rounded up.
const RUNTIME_BYTES: usize = 1 << 20;
/// From this size on an allocation has a slab of its own.
const LARGE: usize = 1 << 20;
/// Granule inside a slab of data in bytes: a cache line, so that maintenance of one piece never touches another.
const UNIT: usize = 64;
/// Granule inside a slab of instruction streams in bytes. Firmware of XDNA 2 accepts control code of ELF files elsewhere and never signals
/// (ROCm/rocm-systems issue 11668); whether that holds for streams of transactions was not measured.
const STREAM_UNIT: usize = 16 << 10;

/// An allocation of the runtime, released when dropped.
struct Slab {
    memory: Held,
    /// Bytes of a unit.
    unit: usize,
    cuts: Mutex<Cuts>,
}

struct Cuts {
    /// In units.
    free: RangeAllocator<usize>,
    /// Units from here on were never handed out and hold zeros.
    fresh: usize,
}

impl Slab {
    fn new(agent: &Arc<dyn Agent>, pool: MemoryPool, bytes: usize) -> Result<Arc<Self>, AgentError> {
        let memory = Held::new(agent, agent.allocate(pool, bytes)?);
        let unit = if pool == MemoryPool::Data { UNIT } else { STREAM_UNIT };
        let cuts = Cuts { free: RangeAllocator::new(0..bytes / unit), fresh: 0 };
        Ok(Arc::new(Self { memory, unit, cuts: Mutex::new(cuts) }))
    }
}

/// A piece of memory, released when dropped.
struct Piece {
    slab: Arc<Slab>,
    /// In units; `None` for a whole slab.
    units: Option<Range<usize>>,
    pool: Weak<Pool>,
    kind: PieceKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceKind {
    Data,
    Instructions,
    /// A part of the heap of its own.
    Heap,
}

impl Drop for Piece {
    fn drop(&mut self) {
        match self.units.take() {
            Some(units) => {
                self.slab.cuts.lock().free.free_range(units);
                if let Some(pool) = self.pool.upgrade() {
                    // One of data is for the next small piece.
                    let keep = self.kind == PieceKind::Data && !pool.closed.load(Ordering::Relaxed);
                    pool.trim(self.kind, keep.into());
                }
            }
            None => {
                if let (Some(pool), PieceKind::Heap) = (self.pool.upgrade(), self.kind) {
                    pool.state.lock().heap_used -= self.slab.memory.length.next_multiple_of(HEAP_GRANULE);
                }
            }
        }
    }
}

/// Memory with its addresses.
pub(crate) struct Block {
    /// The bytes. They hold the piece.
    pub(crate) region: Region,
    /// Address that packets name.
    pub(crate) device_address: u64,
}

impl Debug for Block {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({:?} at {:#x})", self.region, self.device_address)
    }
}

#[derive(Default)]
struct State {
    data: Vec<Arc<Slab>>,
    instructions: Vec<Arc<Slab>>,
    /// Bytes of the heap handed out, in granules.
    heap_used: usize,
}

impl State {
    fn slabs(&mut self, kind: PieceKind) -> &mut Vec<Arc<Slab>> {
        if kind == PieceKind::Data { &mut self.data } else { &mut self.instructions }
    }
}

/// The memory of one NPU.
pub(crate) struct Pool {
    agent: Arc<dyn Agent>,
    /// Bytes of the device heap that can be handed out.
    pub(crate) heap_capacity: usize,
    state: Mutex<State>,
    closed: AtomicBool,
}

impl Pool {
    /// The pools of `agent`, whose NPU has at most `contexts` contexts.
    pub(crate) fn new(agent: Arc<dyn Agent>, contexts: usize) -> Arc<Self> {
        let kept = contexts.saturating_mul(CONTEXT_BYTES).saturating_add(RUNTIME_BYTES);
        let heap_capacity = agent.info().heap_bytes.saturating_sub(kept);
        Arc::new(Self { agent, heap_capacity, state: Mutex::default(), closed: AtomicBool::new(false) })
    }

    /// Zeroed memory. The parameters have been checked: a size, and an alignment up to a page.
    pub(crate) fn allocate(self: &Arc<Self>, params: &BufferParams) -> Result<Block, DeviceError> {
        let made = match (params.pool, params.size) {
            (MemoryPool::DeviceHeap, size) => self.heap(size, params),
            (MemoryPool::Data, size) if size >= LARGE => {
                Slab::new(&self.agent, params.pool, size.next_multiple_of(UNIT))
                    .map(|slab| self.whole(slab, size, PieceKind::Data))
            }
            (MemoryPool::Data, _) => self.cut(PieceKind::Data, params),
        };
        let block = made.map_err(|cause| self.rejected(params, cause))?;
        if let (MemoryPool::Data, Some(caches), Some(span)) =
            (params.pool, self.agent.caches(), block.region.span(0, params.size))
        {
            // Its zeros must not be written over what the NPU will have written.
            caches.write_back(span);
        }
        Ok(block)
    }

    /// Memory of the device heap for an instruction stream of `bytes` bytes.
    pub(crate) fn instructions(self: &Arc<Self>, bytes: usize) -> Result<Block, DeviceError> {
        let params = BufferParams { size: bytes, alignment: STREAM_UNIT, pool: MemoryPool::DeviceHeap };
        let shared = !self.agent.info().streams_apart && bytes <= STREAM_UNIT;
        let made = if shared { self.cut(PieceKind::Instructions, &params) } else { self.heap(bytes, &params) };
        made.map_err(|cause| self.rejected(&params, cause))
    }

    /// A part of the heap of its own.
    fn heap(self: &Arc<Self>, size: usize, params: &BufferParams) -> Result<Block, AgentError> {
        let slab = self.heap_slab(size, params)?;
        let block = self.whole(slab, size, PieceKind::Heap);
        // The kernel driver hands out what others have used.
        fill_zero(&block.region, 0..size);
        Ok(block)
    }

    fn heap_slab(&self, size: usize, params: &BufferParams) -> Result<Arc<Slab>, AgentError> {
        let accounted = size.checked_next_multiple_of(HEAP_GRANULE).unwrap_or(usize::MAX);
        {
            let mut state = self.state.lock();
            let used = state.heap_used.checked_add(accounted).filter(|used| *used <= self.heap_capacity);
            state.heap_used =
                used.ok_or_else(|| AgentError::OutOfMemory("the part of the heap for kernels is full".into()))?;
        }
        Slab::new(&self.agent, params.pool, size).inspect_err(|_| self.state.lock().heap_used -= accounted)
    }

    fn whole(self: &Arc<Self>, slab: Arc<Slab>, size: usize, kind: PieceKind) -> Block {
        let (host, device_address) = (slab.memory.host, slab.memory.device_address);
        let piece = Piece { slab, units: None, pool: Arc::downgrade(self), kind };
        // SAFETY: the allocation has at least `size` initialised bytes, and the piece keeps it.
        let region = unsafe { Region::mapped(host, size, Arc::new(piece) as Arc<dyn Any + Send + Sync>) };
        Block { region, device_address }
    }

    /// A block from a shared slab.
    fn cut(self: &Arc<Self>, kind: PieceKind, params: &BufferParams) -> Result<Block, AgentError> {
        let cut = |slab: &Arc<Slab>| {
            // Slabs of data are aligned to pages, of the heap to its granule; inside one, more than a unit takes room for moving up.
            let wanted = (params.size + params.alignment.saturating_sub(slab.unit)).div_ceil(slab.unit);
            let units = slab.cuts.lock().free.allocate_range(wanted).ok()?;
            Some((Arc::clone(slab), units))
        };
        let found = self.state.lock().slabs(kind).iter().find_map(cut);
        let (slab, units) = match found {
            Some(found) => found,
            None => {
                let slab = match kind {
                    PieceKind::Data => Slab::new(&self.agent, params.pool, SLAB_BYTES)?,
                    _ => self.heap_slab(INSTRUCTION_SLAB_BYTES, params)?,
                };
                let found = cut(&slab).ok_or_else(|| AgentError::OutOfMemory("a slab without room".into()))?;
                self.state.lock().slabs(kind).push(slab);
                found
            }
        };
        let used = {
            let mut cuts = slab.cuts.lock();
            // The heap's memory has had other users.
            let used = if kind == PieceKind::Data { cuts.fresh.min(units.end) } else { units.end };
            cuts.fresh = cuts.fresh.max(units.end);
            used
        };
        let (host, base, unit) = (slab.memory.host, slab.memory.device_address, slab.unit);
        let offset = (units.start * unit).next_multiple_of(params.alignment);
        let stale = (used * unit).saturating_sub(offset).min(params.size);
        let piece = Piece { slab, units: Some(units), pool: Arc::downgrade(self), kind };
        // SAFETY: offset and size stay inside the units that were just taken, which are inside the allocation; no one else
        // has them, and the piece keeps the allocation. A fresh allocation is initialised with zeros.
        let region = unsafe { Region::mapped(host.add(offset), params.size, Arc::new(piece) as _) };
        fill_zero(&region, 0..stale);
        Ok(Block { region, device_address: base + offset as u64 })
    }

    /// Gives empty slabs back; of those of data, all but `keep`.
    fn trim(&self, kind: PieceKind, keep: usize) {
        let mut state = self.state.lock();
        let mut empty = 0;
        let is_surplus = |slab: &mut Arc<Slab>| {
            empty += usize::from(slab.cuts.lock().free.is_empty());
            slab.cuts.lock().free.is_empty() && empty > keep
        };
        let gone: Vec<Arc<Slab>> = state.slabs(kind).extract_if(.., is_surplus).collect();
        if kind == PieceKind::Instructions {
            state.heap_used -= gone.len() * INSTRUCTION_SLAB_BYTES;
        }
        drop(state);
        // Not under the lock: this calls the runtime.
        drop(gone);
    }

    /// Gives all empty slabs back, now and from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.trim(PieceKind::Data, 0);
        self.trim(PieceKind::Instructions, 0);
    }

    fn rejected(&self, params: &BufferParams, cause: AgentError) -> DeviceError {
        match cause {
            AgentError::Lost(cause) => DeviceError::Lost(cause),
            other => {
                tracing::warn!("{} bytes of {} memory: {other}", params.size, params.pool.name());
                let (capacity, used) = match params.pool {
                    MemoryPool::Data => (usize::try_from(self.agent.info().data_bytes).unwrap_or(usize::MAX), 0),
                    MemoryPool::DeviceHeap => (self.heap_capacity, self.state.lock().heap_used),
                };
                let available = if params.pool == MemoryPool::Data { 0 } else { capacity.saturating_sub(used) };
                DeviceError::OutOfMemory { pool: params.pool.name(), requested: params.size, available, capacity }
            }
        }
    }
}

fn fill_zero(region: &Region, range: Range<usize>) {
    if let Some(span) = region.writable(range.start, range.len()) {
        // SAFETY: the region was just made of memory that no one else has yet.
        unsafe { span.as_mut_slice() }.fill(0);
    }
}

#[cfg(test)]
mod tests;
