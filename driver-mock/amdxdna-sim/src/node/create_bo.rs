//! CREATE_BO.

use super::bo::{Bo, Kind};
use super::file::File;
use super::user_memory::{self, Table};
use crate::memory::Memory;
use crate::user_access::UserMemory;
use amdxdna_sys::{
    AMDXDNA_BO_CMD, AMDXDNA_BO_DEV, AMDXDNA_BO_DEV_HEAP, AMDXDNA_BO_SHMEM, amdxdna_drm_create_bo, limits,
};
use nix::errno::Errno;
use std::sync::Arc;

/// Bytes of all offsets that DRM hands out for `mmap` (`DRM_FILE_PAGE_OFFSET_SIZE`).
const OFFSETS_BYTES: u64 = ((1 << 32) - 4096) << 8;

fn machine_memory() -> u64 {
    // SAFETY: asking for a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) }).unwrap_or(0).saturating_mul(limits::PAGE as u64)
}

impl File {
    /// CREATE_BO of memory that the driver allocates.
    ///
    /// # Errors
    /// EINVAL for flags, an unknown type or a size that cannot be; the kernel's error for no bytes; those of another heap; those of
    /// a part of the heaps; ENOSPC for more than there are offsets for `mmap`, ENOMEM for more than the machine has.
    pub fn create_bo(&self, arguments: &mut amdxdna_drm_create_bo) -> Result<(), Errno> {
        let profile = &self.device.profile;
        if arguments.flags != 0 {
            return Err(Errno::EINVAL);
        }
        // Where the driver leaves the size to the DRM core, the type comes first.
        if arguments.size == 0 && profile.empty_bo == Errno::EINVAL {
            return Err(Errno::EINVAL);
        }
        let bo = match arguments.type_ {
            AMDXDNA_BO_SHMEM => self.own_memory(Kind::Shmem, arguments.size)?,
            AMDXDNA_BO_CMD
                if profile.typed_commands && (arguments.size < 4 || arguments.size > limits::CMD_BO_BYTES as u64) =>
            {
                return Err(Errno::EINVAL);
            }
            AMDXDNA_BO_CMD => self.own_memory(Kind::Cmd, arguments.size)?,
            AMDXDNA_BO_DEV => self.state.lock().heaps.part(&self.device, arguments.size)?,
            AMDXDNA_BO_DEV_HEAP => {
                self.check_heap(arguments.size)?;
                let size = arguments.size;
                self.add_heap(size, |kind| self.own_memory(kind, size))?
            }
            _ => return Err(Errno::EINVAL),
        };
        arguments.handle = self.handles.lock().insert(bo);
        Ok(())
    }

    /// Whether a heap can have a size.
    fn check_heap(&self, size: u64) -> Result<(), Errno> {
        let heap = limits::DEV_MEM_SIZE as u64;
        let is_right =
            if self.device.profile.heaps_grow { size != 0 && size.is_multiple_of(heap) } else { size == heap };
        if is_right { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Puts a heap behind those there are.
    ///
    /// # Errors
    /// EBUSY for a second one, or ENOSPC for more than all can have, by the kernel; those of `make`.
    fn add_heap(&self, size: u64, make: impl FnOnce(Kind) -> Result<Arc<Bo>, Errno>) -> Result<Arc<Bo>, Errno> {
        let mut state = self.state.lock();
        let start = state.heaps.bytes();
        if !self.device.profile.heaps_grow && start > 0 {
            return Err(Errno::EBUSY);
        }
        if size > self.device.heaps_bytes.saturating_sub(start) as u64 {
            return Err(Errno::ENOSPC);
        }
        let heap = make(Kind::Heap { start })?;
        state.heaps.push(heap.clone());
        Ok(heap)
    }

    /// CREATE_BO of memory that the caller has; `import` makes a handle of a descriptor.
    ///
    /// # Errors
    /// EINVAL for flags, a type that has no such BOs, a table that cannot be read or ranges that are not whole pages, and where the
    /// kernel has no such BOs; ENOMEM for more than the process may lock; the kernel's error for memory that cannot be pinned.
    pub fn create_user_bo(
        &self,
        arguments: &mut amdxdna_drm_create_bo,
        user: UserMemory,
        import: impl FnOnce(i32) -> Result<u32, Errno>,
    ) -> Result<(), Errno> {
        let profile = &self.device.profile;
        if profile.heaps_grow && arguments.type_ == AMDXDNA_BO_DEV {
            // A part of the heap has no table; what looks like one is ignored.
            return self.create_bo(arguments);
        }
        let rules = profile.user_pointers.ok_or(Errno::EINVAL)?;
        let is_heap = profile.heaps_grow && arguments.type_ == AMDXDNA_BO_DEV_HEAP;
        if arguments.flags != 0 || !(is_heap || matches!(arguments.type_, AMDXDNA_BO_SHMEM | AMDXDNA_BO_CMD)) {
            return Err(Errno::EINVAL);
        }
        if is_heap {
            self.check_heap(arguments.size)?;
        }
        arguments.handle = match user_memory::table(user, arguments.vaddr)? {
            Table::Descriptor(fd) => import(fd)?,
            Table::Ranges(ranges) => {
                if ranges.iter().any(|range| self.device.mappings.contains(range.start, range.len())) {
                    self.device
                        .journal
                        .log(|| "CREATE_BO: memory of a BO as the caller's memory is not simulated".into());
                    return Err(rules.unpinnable);
                }
                let mut memory = user_memory::adopt(user, &ranges, rules)?;
                if self.device.journal.misplaces_pages() {
                    memory = Memory::create(memory.length())?;
                }
                let bo = match is_heap {
                    // As large as the memory is, whatever size was requested.
                    true => self.add_heap(memory.length() as u64, |kind| Ok(self.bo_of(kind, memory)))?,
                    false => self.bo_of(Kind::User { visible: rules.visible }, memory),
                };
                self.handles.lock().insert(bo)
            }
        };
        Ok(())
    }

    fn own_memory(&self, kind: Kind, size: u64) -> Result<Arc<Bo>, Errno> {
        // The kernel rounds up first, so the largest sizes are none.
        let length = size.checked_next_multiple_of(limits::PAGE as u64).unwrap_or(0);
        match length {
            0 => return Err(self.device.profile.empty_bo),
            _ if i64::try_from(length).is_err() => return Err(Errno::EINVAL),
            _ if length > OFFSETS_BYTES => return Err(Errno::ENOSPC),
            _ if length > machine_memory() => return Err(Errno::ENOMEM),
            _ => {}
        }
        let length = length as usize;
        let small = matches!(kind, Kind::Cmd) && length == limits::PAGE;
        let memory = if small { Memory::page(&self.device.arena)? } else { Memory::create(length)? };
        Ok(self.bo_of(kind, memory))
    }

    pub(super) fn bo_of(&self, kind: Kind, memory: Memory) -> Arc<Bo> {
        let (device, length) = (&self.device, memory.length());
        let (offset, iova) = (device.map_offset(length), device.new_iova(length));
        Bo::new(kind, length, Some(memory), Some(offset), iova, device.journal.clone())
    }
}
