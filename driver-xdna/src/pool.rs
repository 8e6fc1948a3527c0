//! Memory of one NPU, cut from few large allocations of the runtime.
//!
//! Every allocation of the runtime is a buffer object of the kernel driver, with its own handle, mapping and pinned pages, and
//! each command names those it uses. Thousands of small tensors would make thousands of them. So data memory comes from slabs,
//! and only what is large has one of its own. The device heap is not cut: what lies there (PDIs, instructions) is page-sized
//! at least, and ROCR finds a PDI by the address of its buffer object.

use crate::agent::{Agent, AgentError, Allocation};
use aie_device_memory::Region;
use aie_hal::error::DeviceError;
use aie_hal::{BufferParams, MemoryPool};
use parking_lot::Mutex;
use range_alloc::RangeAllocator;
use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Bytes of a slab.
const SLAB_BYTES: usize = 4 << 20;
/// From this size on an allocation has a slab of its own.
const LARGE: usize = 1 << 20;
/// Granule inside a slab in bytes: a cache line, so that maintenance of one piece never touches another.
const UNIT: usize = 64;

/// An allocation of the runtime, given back when dropped.
struct Slab {
    agent: Arc<dyn Agent>,
    /// Taken only by `drop`.
    allocation: Option<Allocation>,
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
        let allocation = agent.allocate(pool, bytes)?;
        let cuts = Cuts { free: RangeAllocator::new(0..bytes / UNIT), fresh: 0 };
        Ok(Arc::new(Self { agent: Arc::clone(agent), allocation: Some(allocation), cuts: Mutex::new(cuts) }))
    }

    fn allocation(&self) -> &Allocation {
        self.allocation.as_ref().expect("only `drop` takes it")
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation.take() {
            self.agent.free(allocation);
        }
    }
}

/// A piece of memory, given back when dropped.
struct Piece {
    slab: Arc<Slab>,
    /// In units; `None` for a whole slab.
    units: Option<Range<usize>>,
    pool: Weak<Pool>,
    accounted: usize,
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(units) = self.units.take() {
            self.slab.cuts.lock().free.free_range(units);
        }
        if let Some(pool) = self.pool.upgrade() {
            let mut state = pool.state.lock();
            state.used -= self.accounted;
            // One empty slab stays, for the next small buffer.
            let empty = |slab: &Arc<Slab>| slab.cuts.lock().free.is_empty();
            if state.slabs.iter().filter(|slab| empty(slab)).count() > 1 {
                let mut kept = false;
                state.slabs.retain(|slab| !empty(slab) || !std::mem::replace(&mut kept, true));
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
    slabs: Vec<Arc<Slab>>,
    /// Bytes of data memory handed out, in granules.
    used: usize,
}

/// The memory of one NPU.
pub(crate) struct Pool {
    agent: Arc<dyn Agent>,
    /// Bytes of data memory.
    capacity: usize,
    granule: usize,
    state: Mutex<State>,
}

impl Pool {
    /// The pools of `agent`, of which at most `capacity` bytes of data memory are used, accounted in `granule` bytes.
    pub(crate) fn new(agent: Arc<dyn Agent>, capacity: usize, granule: usize) -> Arc<Self> {
        Arc::new(Self { agent, capacity, granule: granule.max(1), state: Mutex::default() })
    }

    /// Bytes of data memory in all.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of data memory that are handed out.
    pub(crate) fn used(&self) -> usize {
        self.state.lock().used
    }

    /// Zeroed memory. The parameters have been checked: a size, and an alignment up to a page.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Lost`].
    pub(crate) fn allocate(self: &Arc<Self>, params: &BufferParams) -> Result<Block, DeviceError> {
        match params.pool {
            MemoryPool::Data => self.data(params),
            MemoryPool::DeviceHeap => {
                let slab = Slab::new(&self.agent, params.pool, params.size);
                let slab = slab.map_err(|cause| self.refused(params, cause))?;
                let block = self.whole(slab, params.size, 0);
                // The kernel driver hands out what others have used.
                fill_zero(&block.region, 0..params.size);
                Ok(block)
            }
        }
    }

    fn data(self: &Arc<Self>, params: &BufferParams) -> Result<Block, DeviceError> {
        let accounted = params.size.checked_next_multiple_of(self.granule);
        let accounted = accounted.ok_or_else(|| self.out_of_memory(params))?;
        {
            let mut state = self.state.lock();
            if state.used.checked_add(accounted).is_none_or(|used| used > self.capacity) {
                drop(state);
                return Err(self.out_of_memory(params));
            }
            state.used += accounted;
        }
        let made = match params.size {
            size if size >= LARGE => {
                Slab::new(&self.agent, params.pool, accounted).map(|slab| self.whole(slab, size, accounted))
            }
            _ => self.cut(params, accounted),
        };
        made.map_err(|cause| {
            self.state.lock().used -= accounted;
            self.refused(params, cause)
        })
    }

    /// A block that is all of a slab.
    fn whole(self: &Arc<Self>, slab: Arc<Slab>, size: usize, accounted: usize) -> Block {
        let (host, device_address) = (slab.allocation().host, slab.allocation().device_address);
        let piece = Piece { slab, units: None, pool: Arc::downgrade(self), accounted };
        // SAFETY: the allocation has at least `size` initialised bytes, and the piece keeps it.
        let region = unsafe { Region::mapped(host, size, Arc::new(piece) as Arc<dyn Any + Send + Sync>) };
        Block { region, device_address }
    }

    /// A block from a shared slab.
    fn cut(self: &Arc<Self>, params: &BufferParams, accounted: usize) -> Result<Block, AgentError> {
        // Slabs are aligned to pages; inside one, more than a unit takes room for moving up.
        let wanted = (params.size + params.alignment.saturating_sub(UNIT)).div_ceil(UNIT);
        let mut state = self.state.lock();
        let cut = |slab: &Arc<Slab>| {
            let units = slab.cuts.lock().free.allocate_range(wanted).ok()?;
            Some((Arc::clone(slab), units))
        };
        let (slab, units) = match state.slabs.iter().find_map(cut) {
            Some(found) => found,
            None => {
                let slab = Slab::new(&self.agent, params.pool, SLAB_BYTES)?;
                let found = cut(&slab).ok_or_else(|| AgentError::OutOfMemory("a slab without room".into()))?;
                state.slabs.push(slab);
                found
            }
        };
        drop(state);
        let old = {
            let mut cuts = slab.cuts.lock();
            let old = units.start..units.end.min(cuts.fresh).max(units.start);
            cuts.fresh = cuts.fresh.max(units.end);
            old
        };
        let (host, base) = (slab.allocation().host, slab.allocation().device_address);
        let offset = (units.start * UNIT).next_multiple_of(params.alignment);
        let cleared = offset..(old.end * UNIT).min(offset + params.size).max(offset);
        let piece = Piece { slab, units: Some(units), pool: Arc::downgrade(self), accounted };
        // SAFETY: offset and size stay inside the units that were just taken, which are inside the allocation; nobody else
        // has them, and the piece keeps the allocation. A fresh allocation is initialised with zeros.
        let region = unsafe { Region::mapped(host.add(offset), params.size, Arc::new(piece) as _) };
        fill_zero(&region, 0..cleared.len());
        Ok(Block { region, device_address: base + offset as u64 })
    }

    fn out_of_memory(&self, params: &BufferParams) -> DeviceError {
        DeviceError::OutOfMemory {
            pool: params.pool.name(),
            requested: params.size,
            available: self.capacity - self.used().min(self.capacity),
            capacity: self.capacity,
        }
    }

    fn refused(&self, params: &BufferParams, cause: AgentError) -> DeviceError {
        match cause {
            AgentError::Lost(cause) => DeviceError::Lost(cause),
            other => {
                tracing::warn!("{} bytes of {} memory: {other}", params.size, params.pool.name());
                match params.pool {
                    MemoryPool::Data => self.out_of_memory(params),
                    // How much of the heap others take is the kernel driver's knowledge.
                    pool => DeviceError::OutOfMemory {
                        pool: pool.name(),
                        requested: params.size,
                        available: 0,
                        capacity: self.agent.info().heap_bytes,
                    },
                }
            }
        }
    }
}

fn fill_zero(region: &Region, range: Range<usize>) {
    if let Some(span) = region.span(range.start, range.len()) {
        // SAFETY: the region was just made of memory that nobody else has yet.
        unsafe { span.as_mut_slice() }.fill(0);
    }
}
