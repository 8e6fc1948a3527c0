//! Buffer objects of an open node.
//!
//! A BO has up to three addresses: where this process sees it (its mapping), where the device sees it, and its offset for mapping.
//! With SVA host and device agree on addresses and the kernel knows the device's only once the BO is mapped; with IOVA the device's
//! is known from the start; a part of the heap lies where the heap lies, in the device's view at `0x4000000`.

use super::call_error::CallError;
use super::node::{Mapping, Node};
use amdxdna_sys::limits::{DEV_MEM_SIZE, PAGE};
use amdxdna_sys::{
    AMDXDNA_BO_CMD, AMDXDNA_BO_DEV, AMDXDNA_BO_DEV_HEAP, AMDXDNA_BO_SHMEM, AMDXDNA_INVALID_ADDR, amdxdna_drm_create_bo,
    amdxdna_drm_get_bo_info, amdxdna_drm_va_entry, amdxdna_drm_va_tbl, drm_gem_close,
};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// A buffer object. Unmapped and closed when dropped.
#[derive(Debug)]
pub(crate) struct Bo {
    node: Arc<Node>,
    handle: u32,
    mapping: Option<Mapping>,
    /// First byte in this process.
    host: NonNull<u8>,
    device_address: u64,
    map_offset: u64,
}

// SAFETY: the pointer is to the BO's mapping or the heap's, which belong to no thread.
unsafe impl Send for Bo {}
// SAFETY: as for `Send`; a shared reference gives no more than addresses.
unsafe impl Sync for Bo {}

/// What is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BoKind<'a> {
    /// Memory for tensors.
    Data,
    /// A command, or a chain of commands.
    Command,
    /// The device heap.
    Heap,
    HeapPart(&'a Bo),
}

/// A handle that is closed again unless everything succeeds.
struct Handle<'a>(&'a Arc<Node>, u32);

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        close(self.0, self.1);
    }
}

fn close(node: &Node, handle: u32) {
    if let Err(cause) = node.request(&mut drm_gem_close { handle, pad: 0 }) {
        tracing::debug!("a buffer object was not closed: {cause}");
    }
}

/// Where the device sees the BO `handle`, which is mapped at `host`. With SVA the device works with the addresses of the process.
///
/// # Errors
/// The kernel's.
pub fn device_address_of(node: &Node, handle: u32, host: NonNull<u8>) -> Result<u64, CallError> {
    Ok(known_address(&info(node, handle)?).unwrap_or(host.as_ptr().expose_provenance() as u64))
}

/// The device address, where the kernel has one of its own for the BO.
fn known_address(info: &amdxdna_drm_get_bo_info) -> Option<u64> {
    (!matches!(info.xdna_addr, 0 | AMDXDNA_INVALID_ADDR)).then_some(info.xdna_addr)
}

fn info(node: &Node, handle: u32) -> Result<amdxdna_drm_get_bo_info, CallError> {
    let mut info = amdxdna_drm_get_bo_info { handle, ..Default::default() };
    node.request(&mut info)?;
    Ok(info)
}

fn unexpected(text: String) -> CallError {
    CallError { call: "GET_BO_INFO", cause: io::Error::other(text) }
}

impl Bo {
    /// Makes a BO of at least `bytes` bytes and maps it.
    /// Nothing is left when the kernel rejects it.
    pub(crate) fn create(node: &Arc<Node>, kind: BoKind<'_>, bytes: usize) -> Result<Self, CallError> {
        let type_ = match kind {
            BoKind::Data => AMDXDNA_BO_SHMEM,
            BoKind::Command => AMDXDNA_BO_CMD,
            BoKind::Heap => AMDXDNA_BO_DEV_HEAP,
            BoKind::HeapPart(_) => AMDXDNA_BO_DEV,
        };
        let bytes = bytes.next_multiple_of(PAGE);
        let mut made = amdxdna_drm_create_bo { size: bytes as u64, type_, ..Default::default() };
        node.request(&mut made)?;
        let handle = Handle(node, made.handle);
        let found = info(node, made.handle)?;
        let (mapping, host, device_address) = match kind {
            BoKind::HeapPart(heap) => {
                let offset = found.xdna_addr.checked_sub(heap.device_address).map(|offset| offset as usize);
                let offset = offset.filter(|offset| offset + bytes <= DEV_MEM_SIZE).ok_or_else(|| {
                    unexpected(format!("a part of the heap at {:#x}, which is outside of it", found.xdna_addr))
                })?;
                // SAFETY: offset and length were checked to be inside of the heap's mapping.
                (None, unsafe { heap.host.add(offset) }, found.xdna_addr)
            }
            BoKind::Heap => {
                let mapping = map_aligned(node, found.map_offset)?;
                // The kernel knows where the heap is now, and the device sees its parts at addresses of their own.
                let mapped = info(node, made.handle)?;
                let host = mapping.address();
                (Some(mapping), host, mapped.xdna_addr)
            }
            BoKind::Data | BoKind::Command => {
                let mapping = node.map(found.map_offset, bytes, None)?;
                let (host, number) = (mapping.address(), mapping.number());
                (Some(mapping), host, known_address(&found).unwrap_or(number))
            }
        };
        std::mem::forget(handle);
        let (node, handle, map_offset) = (Arc::clone(node), made.handle, found.map_offset);
        Ok(Self { node, handle, mapping, host, device_address, map_offset })
    }

    /// Makes a BO of the caller's memory: whole pages from `address` on.
    ///
    /// # Errors
    /// The kernel's; kernels before 6.18 reject it with EINVAL, and all reject memory that they cannot pin.
    ///
    /// # Safety
    /// The memory stays mapped while the BO exists.
    pub(crate) unsafe fn of_user_memory(
        node: &Arc<Node>,
        address: NonNull<u8>,
        bytes: usize,
    ) -> Result<Self, CallError> {
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Table {
            head: amdxdna_drm_va_tbl,
            entry: amdxdna_drm_va_entry,
        }
        let entry = amdxdna_drm_va_entry { vaddr: address.as_ptr().expose_provenance() as u64, len: bytes as u64 };
        let table = Table { head: amdxdna_drm_va_tbl { dmabuf_fd: -1, num_entries: 1 }, entry };
        let mut made = amdxdna_drm_create_bo {
            vaddr: (&raw const table).expose_provenance() as u64,
            size: bytes as u64,
            type_: AMDXDNA_BO_SHMEM,
            ..Default::default()
        };
        node.request(&mut made)?;
        let handle = Handle(node, made.handle);
        let found = info(node, made.handle)?;
        // Without an address of its own the device works with the addresses of the process. Kernels up to 6.19 keep track of the pages
        // by the BO's mapping; Linux 7.2 maps no such BO, and there the pages are where the caller has them.
        let mapping = match known_address(&found) {
            Some(_) => None,
            None => match node.map(found.map_offset, bytes, None) {
                Ok(mapping) => Some(mapping),
                Err(refused) if refused.errno() == libc::EINVAL => None,
                Err(cause) => return Err(cause),
            },
        };
        let own = || address.as_ptr().expose_provenance() as u64;
        let device_address =
            known_address(&found).unwrap_or_else(|| mapping.as_ref().map_or_else(own, Mapping::number));
        std::mem::forget(handle);
        let (node, handle, map_offset) = (Arc::clone(node), made.handle, found.map_offset);
        Ok(Self { node, handle, mapping, host: address, device_address, map_offset })
    }

    /// As [`CommandBuffer::of_test_memory`](super::command_buffer::CommandBuffer::of_test_memory).
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn of_test_memory(node: &Arc<Node>, handle: u32, map_offset: u64, host: NonNull<u8>) -> Self {
        Self { node: Arc::clone(node), handle, mapping: None, host, device_address: 0, map_offset }
    }

    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }

    /// First byte in this process.
    pub(crate) fn host(&self) -> NonNull<u8> {
        self.host
    }

    /// First byte for the device.
    pub(crate) fn device_address(&self) -> u64 {
        self.device_address
    }

    pub(crate) fn map_offset(&self) -> u64 {
        self.map_offset
    }

    /// What the kernel says now of the device's address of a mapped BO.
    pub(crate) fn confirmed_address(&self) -> Result<u64, CallError> {
        Ok(info(&self.node, self.handle)?.xdna_addr)
    }

    /// Leaves it open and mapped for as long as the node is open: the device may still use it.
    pub(crate) fn leak(mut self) {
        if let Some(mapping) = self.mapping.take() {
            mapping.leak();
        }
        std::mem::forget(self);
    }
}

impl Drop for Bo {
    fn drop(&mut self) {
        drop(self.mapping.take());
        close(&self.node, self.handle);
    }
}

/// Maps the heap at a multiple of its size, as the kernel wants it.
fn map_aligned(node: &Node, offset: u64) -> Result<Mapping, CallError> {
    let reserved = Mapping::reserve(2 * DEV_MEM_SIZE).map_err(|cause| CallError { call: "mmap", cause })?;
    let base = reserved.address();
    let before = base.as_ptr().addr().next_multiple_of(DEV_MEM_SIZE) - base.as_ptr().addr();
    // SAFETY: twice the size was reserved, so the next multiple and as much behind it are inside.
    let place = unsafe { base.add(before) };
    let mapping = node.map(offset, DEV_MEM_SIZE, Some(place))?;
    // What is reserved around it goes; the heap's own pages are the mapping's now.
    for (start, length) in [(0, before), (before + DEV_MEM_SIZE, DEV_MEM_SIZE - before)] {
        if length > 0 {
            // SAFETY: the range is part of the reservation, and nothing was mapped over it.
            unsafe { libc::munmap(base.as_ptr().add(start).cast(), length) };
        }
    }
    reserved.leak();
    Ok(mapping)
}
