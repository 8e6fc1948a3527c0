//! BOs of the caller's memory.

use super::{Script, script, with_setup};
use crate::names::NOWHERE;
use crate::probe::Probe;
use crate::setup::{Setup, list};
use crate::sys::{Map, Mapping};
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::*;

pub(super) const SCRIPTS: &[Script] = &[
    script("user memory: good", "pages of the caller as a BO: one range, two, mapped, synchronised", good),
    script("user memory: wrong tables", "tables that cannot be read or lie", wrong_tables),
    script("user memory: wrong ranges", "ranges that are no pages, not mapped, or only readable", wrong_ranges),
    with_setup("user memory: commands", "a command in the caller's memory", commands),
    script("user memory: types", "other types of BO of the caller's memory", types),
];

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// CREATE_BO with a table: the head's two fields, then entries.
fn create(p: &mut Probe, type_: u32, head: (i32, u32), entries: &[(u64, u64)], size: u64) -> u32 {
    let (descriptor, count) = head;
    let mut table = vec![u64::from(descriptor as u32) | u64::from(count) << 32];
    table.extend(entries.iter().flat_map(|(address, bytes)| [*address, *bytes]));
    p.with("entries", count).with("bytes", entries.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>());
    let mut made = amdxdna_drm_create_bo { vaddr: list(&table), size, type_, ..Default::default() };
    p.call(&mut made).map_or(0, |()| made.handle)
}

fn pages(count: usize, protection: i32) -> Option<Mapping> {
    let memory = Mapping::anonymous(count * PAGE, protection).ok()?;
    if protection & libc::PROT_WRITE != 0 {
        memory.set_word(0, 1);
    }
    Some(memory)
}

fn good(p: &mut Probe) {
    let Some(memory) = pages(4, READ_WRITE) else { return };
    let (start, page) = (memory.number(), PAGE as u64);
    let bo = create(p, AMDXDNA_BO_SHMEM, (-1, 1), &[(start, 4 * page)], 4 * page);
    p.bo_info(bo);
    let mapped = p.map_bo("whole", bo, 4 * PAGE);
    p.bo_info(bo);
    if let Some(mapped) = &mapped {
        mapped.set_word(9, 42);
        p.note("the word in the caller's memory", memory.word(9));
    }
    p.sync(bo, SYNC_DIRECT_TO_DEVICE, 0, page);
    drop(mapped);
    p.close(bo);
    let two = create(p, AMDXDNA_BO_SHMEM, (-1, 2), &[(start + 2 * page, page), (start, page)], 2 * page);
    p.bo_info(two);
    // The sum of the ranges counts.
    let less = create(p, AMDXDNA_BO_SHMEM, (-1, 1), &[(start, 2 * page)], page);
    p.map_bo("two pages of it", less, 2 * PAGE);
    create(p, AMDXDNA_BO_SHMEM, (-1, 1), &[(start, page)], 0);
    create(p, AMDXDNA_BO_SHMEM, (-1, 2), &[(start, page), (start, page)], 2 * page);
    let mut flags = drm_prime_handle { handle: two, ..Default::default() };
    let _ = p.named("PRIME_HANDLE_TO_FD", &mut flags);
}

fn wrong_tables(p: &mut Probe) {
    let page = PAGE as u64;
    let at = |vaddr| amdxdna_drm_create_bo { vaddr, size: page, type_: AMDXDNA_BO_SHMEM, ..Default::default() };
    p.call_each([at(NOWHERE)]);
    create(p, AMDXDNA_BO_SHMEM, (-1, 0), &[], page);
    create(p, AMDXDNA_BO_SHMEM, (0, 0), &[], page);
    // Entries of 64 GiB.
    let table = [u64::from(u32::MAX) | u64::from(u32::MAX) << 32, 0, 0];
    p.with("entries", u32::MAX).call_each([at(list(&table))]);
}

fn wrong_ranges(p: &mut Probe) {
    let (Some(memory), Some(readable), Some(nothing)) = (pages(4, READ_WRITE), pages(1, libc::PROT_READ), pages(1, 0))
    else {
        return;
    };
    let (start, page) = (memory.number(), PAGE as u64);
    for (address, bytes) in [
        (start + 8, page),
        (start, page - 8),
        (NOWHERE, page),
        (0, page),
        (u64::MAX - 4095, page),
        (start, u64::MAX - 4095),
        (readable.number(), page),
        (nothing.number(), page),
    ] {
        create(p, AMDXDNA_BO_SHMEM, (-1, 1), &[(address, bytes)], page);
    }
    create(p, AMDXDNA_BO_SHMEM, (-1, 2), &[(start, page), (start + 8, page)], 2 * page);
    let file = std::fs::File::open("/proc/self/exe");
    let how = Map { protection: libc::PROT_READ, ..Map::shared(0, PAGE) };
    if let Some(mapped) = file.ok().and_then(|file| Mapping::of(&file, how).ok()) {
        p.with("what", "a file that is mapped for reading");
        create(p, AMDXDNA_BO_SHMEM, (-1, 1), &[(mapped.number(), page)], page);
    }
    if let Some(bo) = p.mapped_bo(AMDXDNA_BO_SHMEM, PAGE) {
        p.with("what", "memory of another BO");
        create(p, AMDXDNA_BO_SHMEM, (-1, 1), &[(bo.memory.number(), page)], page);
    }
}

fn commands(p: &mut Probe, setup: Setup) {
    let Some(memory) = pages(1, READ_WRITE) else { return };
    setup.command().write(&memory);
    let bo = create(p, AMDXDNA_BO_CMD, (-1, 1), &[(memory.number(), PAGE as u64)], PAGE as u64);
    p.submit(setup.context, bo, &[]);
    p.state(&memory);
}

fn types(p: &mut Probe) {
    let Some(memory) = pages(1, READ_WRITE) else { return };
    let page = PAGE as u64;
    for type_ in [AMDXDNA_BO_DEV_HEAP, AMDXDNA_BO_DEV, 0, 99] {
        create(p, type_, (-1, 1), &[(memory.number(), page)], page);
    }
    create(p, AMDXDNA_BO_DEV_HEAP, (-1, 1), &[(memory.number(), page)], limits::DEV_MEM_SIZE as u64);
}
