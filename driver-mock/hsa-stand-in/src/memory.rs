//! The memory pools of an agent.
//!
//! The device heap is one region of its whole size, in which the simulated silicon hands out ranges. Every allocation of data
//! memory is a region of its own.

use aie_device_memory::{Region, Span};
use aie_driver_mock::npu::{HEAP_BASE, SimulatedNpu};
use aie_hal::arch::Limits;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of allocations of the device heap: PDIs and instruction streams each have a buffer object of their own.
const HEAP_ALIGNMENT: usize = PAGE;
const PAGE: usize = 4096;

/// The pools an AIE agent has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// Kernel arguments.
    Kernarg,
    /// PDIs and instructions.
    Heap,
    Data,
}

/// One allocation. Memory goes back when the last reference goes.
#[derive(Debug)]
pub struct Allocation {
    /// The pool it is from.
    pub pool: Pool,
    /// Its bytes: as many as were requested.
    pub region: Region,
    heap_address: Option<(Arc<SimulatedNpu>, u64)>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some((npu, address)) = &self.heap_address {
            npu.heap_free(*address);
        }
    }
}

/// A range inside an allocation.
#[derive(Debug, Clone)]
pub struct Range {
    /// The allocation.
    pub allocation: Arc<Allocation>,
    /// Where in it.
    pub offset: usize,
}

impl Range {
    /// `length` bytes from here on; `None` when they leave the allocation.
    pub fn span(&self, length: usize) -> Option<Span<'_>> {
        self.allocation.region.span(self.offset, length)
    }
}

#[derive(Debug, Default)]
struct State {
    /// By first address.
    allocations: BTreeMap<usize, Arc<Allocation>>,
    data_used: u64,
}

/// The memory of one agent. Thread-safe.
#[derive(Debug)]
pub struct Memory {
    npu: Arc<SimulatedNpu>,
    heap: Arc<Region>,
    data_bytes: u64,
    state: Mutex<State>,
}

impl Memory {
    /// The empty pools of an agent with `data_bytes` of data memory.
    ///
    /// `None` when the process may not have the address space.
    pub fn new(npu: &Arc<SimulatedNpu>, data_bytes: u64) -> Option<Self> {
        let heap = Arc::new(Region::zeroed(npu.limits().device_heap_bytes, PAGE)?);
        Some(Self { npu: Arc::clone(npu), heap, data_bytes, state: Mutex::default() })
    }

    /// Bytes of a pool.
    pub fn pool_bytes(&self, pool: Pool) -> u64 {
        match pool {
            Pool::Heap => self.limits().device_heap_bytes as u64,
            Pool::Kernarg | Pool::Data => self.data_bytes,
        }
    }

    /// What the generation allows.
    pub fn limits(&self) -> &Limits {
        self.npu.limits()
    }

    /// Allocates; returns the address. `None` when there is no room.
    pub fn allocate(&self, pool: Pool, bytes: usize) -> Option<usize> {
        let mut state = self.state.lock();
        let allocation = match pool {
            Pool::Heap => self.allocate_heap(bytes)?,
            Pool::Kernarg | Pool::Data => self.allocate_data(&mut state, pool, bytes)?,
        };
        let address = allocation.region.address();
        state.allocations.insert(address, Arc::new(allocation));
        Some(address)
    }

    fn allocate_heap(&self, bytes: usize) -> Option<Allocation> {
        let device_address = self.npu.heap_allocate(bytes, HEAP_ALIGNMENT).ok()?;
        let offset = usize::try_from(device_address - HEAP_BASE).ok()?;
        let host = NonNull::from(self.heap.bytes()?.get(offset..)?).cast();
        // SAFETY: The simulated silicon hands out ranges of a window that is as long as the heap's region, so the range is inside;
        // the new region keeps that one, whose bytes begin as zeros, and all accesses here go through regions.
        let region = unsafe { Region::mapped(host, bytes, Arc::clone(&self.heap) as _) };
        let heap_address = Some((Arc::clone(&self.npu), device_address));
        Some(Allocation { pool: Pool::Heap, region, heap_address })
    }

    fn allocate_data(&self, state: &mut State, pool: Pool, bytes: usize) -> Option<Allocation> {
        let length = bytes.max(1).checked_next_multiple_of(self.limits().granule)?;
        let used = state.data_used.checked_add(length as u64)?;
        if bytes > self.limits().max_buffer_bytes || used > self.data_bytes {
            return None;
        }
        let region = Region::zeroed(bytes, PAGE)?;
        state.data_used = used;
        Some(Allocation { pool, region, heap_address: None })
    }

    /// Frees what starts at `address`; `false` when nothing does.
    pub fn free(&self, address: usize) -> bool {
        let mut state = self.state.lock();
        let Some(allocation) = state.allocations.remove(&address) else { return false };
        if allocation.pool != Pool::Heap {
            let length = allocation.region.length().max(1).next_multiple_of(self.limits().granule);
            state.data_used -= length as u64;
        }
        true
    }

    /// The allocation that holds `bytes` bytes from `address` on.
    pub fn find(&self, address: usize, bytes: usize) -> Option<Range> {
        let state = self.state.lock();
        let (start, allocation) = state.allocations.range(..=address).next_back()?;
        let offset = address - start;
        allocation.region.span(offset, bytes)?;
        Some(Range { allocation: Arc::clone(allocation), offset })
    }

    /// Allocations that exist.
    pub fn count(&self) -> usize {
        self.state.lock().allocations.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;

    fn memory() -> Memory {
        let arch = ArchRegistry::builtin().get("aie2p").unwrap();
        let heap = arch.limits.device_heap_bytes;
        Memory::new(&Arc::new(SimulatedNpu::new(arch, heap)), 1 << 20).unwrap()
    }

    #[test]
    fn allocations_are_found_by_any_address_inside_them() {
        let memory = memory();
        for pool in [Pool::Heap, Pool::Data, Pool::Kernarg] {
            let address = memory.allocate(pool, 100).unwrap();
            assert_eq!(address % 4096, 0);
            let range = memory.find(address + 10, 90).unwrap();
            assert_eq!((range.offset, range.allocation.pool), (10, pool));
            assert!(memory.find(address + 10, 91).is_none());
            let mut bytes = [1; 90];
            range.allocation.region.span(10, 90).unwrap().read(&mut bytes);
            assert_eq!(bytes, [0; 90]);
            assert!(memory.free(address) && !memory.free(address));
            assert!(memory.find(address, 1).is_none());
        }
        assert_eq!(memory.count(), 0);
    }

    #[test]
    fn pools_end() {
        let memory = memory();
        let whole = memory.allocate(Pool::Data, 1 << 20).unwrap();
        assert_eq!(memory.allocate(Pool::Kernarg, 1), None);
        assert!(memory.free(whole));
        assert!(memory.allocate(Pool::Kernarg, 1).is_some());
        assert_eq!(memory.allocate(Pool::Heap, (64 << 20) + 1), None);
        assert_eq!(memory.allocate(Pool::Data, usize::MAX), None);
    }
}
