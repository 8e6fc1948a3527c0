//! BOs of memory that the caller has already: `amdxdna_drm_va_tbl`.
//!
//! The kernel pins the caller's pages and makes a BO of them. Here, one range of writable pages is used where it is. Several ranges, and
//! pages that can only be read, move into a memory file that is then mapped in their place, with the protection that each had: the
//! caller sees what it saw, and the BO is one like any other. What another thread writes in this moment may be lost, and a shared
//! mapping of a file is not shared with the file any more.

use crate::kernel::UserPointers;
use crate::memory::Memory;
use crate::user_access::UserMemory;
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::{amdxdna_drm_va_entry, amdxdna_drm_va_tbl};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use std::ops::Range;

/// What the caller's table says.
pub(super) enum Table {
    Descriptor(i32),
    Ranges(Vec<Range<usize>>),
}

/// Reads the table at `address`.
///
/// # Errors
/// EINVAL for a table that cannot be read, and for ranges that are not whole pages; ENOMEM for more pages than there are, EOVERFLOW for
/// addresses that there are not.
pub(super) fn table(user: UserMemory, address: u64) -> Result<Table, Errno> {
    let invalid = |errno| if errno == Errno::EFAULT { Errno::EINVAL } else { errno };
    let head: Vec<amdxdna_drm_va_tbl> = user.list(address, 1).map_err(invalid)?;
    match head[..] {
        [amdxdna_drm_va_tbl { num_entries: 0, dmabuf_fd }] => Ok(Table::Descriptor(dmabuf_fd)),
        [amdxdna_drm_va_tbl { num_entries, .. }] => {
            let entries = user.list(address + size_of::<amdxdna_drm_va_tbl>() as u64, num_entries).map_err(invalid)?;
            ranges(&entries).map(Table::Ranges)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// What entries say, with the checks of the driver, and then those of the memory management that pins pages.
fn ranges(entries: &[amdxdna_drm_va_entry]) -> Result<Vec<Range<usize>>, Errno> {
    let page = PAGE as u64;
    if entries.iter().any(|entry| entry.vaddr % page != 0 || entry.len % page != 0) {
        return Err(Errno::EINVAL);
    }
    let sum = entries.iter().try_fold(0_u64, |sum, entry| sum.checked_add(entry.len)).ok_or(Errno::EINVAL)?;
    // There is no memory for a list of so many pages.
    isize::try_from(sum).map_err(|_| Errno::ENOMEM)?;
    let range = |entry: &amdxdna_drm_va_entry| {
        let (start, length) = (entry.vaddr as usize, entry.len as usize);
        start.checked_add(length).map(|end| start..end).ok_or(Errno::EOVERFLOW)
    };
    entries.iter().map(range).collect()
}

/// A part of the address space with one protection.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    range: Range<usize>,
    writable: bool,
}

/// The readable parts of `wanted`, by the text of `/proc/self/maps`; `None` when one is missing.
fn parts(maps: &str, wanted: &Range<usize>) -> Option<Vec<Part>> {
    let mut found = Vec::new();
    let mut next = wanted.start;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        if end <= next || next >= wanted.end {
            continue;
        }
        let protection = fields.next()?.as_bytes();
        if start > next || protection.first() != Some(&b'r') {
            return None;
        }
        let end = end.min(wanted.end);
        found.push(Part { range: next..end, writable: protection.get(1) == Some(&b'w') });
        next = end;
    }
    (next >= wanted.end).then_some(found)
}

/// Pages that the process may lock, as far as it has a limit. The kernel counts those that are pinned already; here only one BO counts.
fn lockable() -> usize {
    /// The bit of `CAP_IPC_LOCK`.
    const IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default();
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((now, _)) if capabilities >> IPC_LOCK & 1 == 0 => usize::try_from(now).unwrap_or(usize::MAX) / PAGE,
        _ => usize::MAX,
    }
}

/// Makes ranges of the caller's memory the memory of a BO.
///
/// # Errors
/// ENOMEM for more than the process may lock; the kernel's error for memory that is missing or that may not be written.
pub(super) fn adopt(user: UserMemory, ranges: &[Range<usize>], rules: UserPointers) -> Result<Memory, Errno> {
    let length: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    if length / PAGE > lockable() {
        return Err(Errno::ENOMEM);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| Errno::ENOMEM)?;
    let parts: Option<Vec<Vec<Part>>> = ranges.iter().map(|range| parts(&maps, range)).collect();
    let parts: Vec<Part> = parts.ok_or(rules.unpinnable)?.concat();
    let is_read_only = parts.iter().all(|part| !part.writable);
    if parts.iter().any(|part| !part.writable) && !(is_read_only && rules.read_only) {
        return Err(rules.unpinnable);
    }
    if let ([range], true) = (ranges, parts.iter().all(|part| part.writable)) {
        return Ok(Memory::of_caller(range));
    }
    let memory = Memory::create(length)?;
    let mut offset = 0;
    for Part { range, writable } in parts {
        let bytes = user.read(range.start as u64, range.len())?;
        memory.writable(offset, bytes.len()).ok_or(Errno::ENOMEM)?.write(&bytes);
        let prot = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        memory.map(range.start, range.len(), prot, libc::MAP_SHARED | libc::MAP_FIXED, offset)?;
        offset += bytes.len();
    }
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_pages_that_can_be() {
        let entries = |entries: &[(u64, u64)]| {
            let entry = |(vaddr, len): &(u64, u64)| amdxdna_drm_va_entry { vaddr: *vaddr, len: *len };
            ranges(&entries.iter().map(entry).collect::<Vec<_>>())
        };
        let last = u64::MAX - 4095;
        assert_eq!(entries(&[(4096, 8192), (0, 4096)]), Ok(vec![4096..12288, 0..4096]));
        assert_eq!(entries(&[(4096, 4096), (8, 4096)]), Err(Errno::EINVAL));
        assert_eq!(entries(&[(4096, 8)]), Err(Errno::EINVAL));
        assert_eq!(entries(&[(4096, last), (4096, last)]), Err(Errno::EINVAL));
        assert_eq!(entries(&[(4096, last)]), Err(Errno::ENOMEM));
        assert_eq!(entries(&[(last, 4096)]), Err(Errno::EOVERFLOW));
    }

    #[test]
    fn parts_follow_the_table_of_mappings() {
        let maps =
            "1000-3000 rw-p 00000000 00:00 0\n3000-4000 r--p 0 00:00 0\n5000-6000 rw-p 0 00:00 0\n7000-8000 ---p 0\n";
        let part = |range, writable| Part { range, writable };
        assert_eq!(parts(maps, &(0x2000..0x3000)), Some(vec![part(0x2000..0x3000, true)]));
        let both = vec![part(0x2000..0x3000, true), part(0x3000..0x4000, false)];
        assert_eq!(parts(maps, &(0x2000..0x4000)), Some(both));
        for missing in [0x3000..0x5000, 0x4000..0x5000, 0x7000..0x8000, 0x9000..0xa000] {
            assert_eq!(parts(maps, &missing), None, "{missing:x?}");
        }
    }
}
