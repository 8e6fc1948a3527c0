//! Mapping.

use super::{Script, script};
use crate::probe::Probe;
use crate::sys::Map;
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::*;

pub(super) const SCRIPTS: &[Script] = &[
    script("map: offsets", "offsets and lengths that are none", offsets),
    script("map: ways", "private, for reading, for writing", ways),
    script("map: contents", "new memory is zero, and all mappings show the same", contents),
    script("map: after closing", "a mapping keeps the memory of a BO that is closed", after_closing),
    script("map: parts of the heap", "they have no mapping of their own", parts),
];

fn offsets(p: &mut Probe) {
    let bo = p.create_bo(AMDXDNA_BO_SHMEM, 4 * PAGE as u64);
    let offset = p.offset(bo);
    let page = PAGE as u64;
    for (what, offset, bytes) in [
        ("from the start", offset, 4 * PAGE),
        ("the first page", offset, PAGE),
        ("half a page", offset, PAGE / 2),
        ("a page more than it has", offset, 5 * PAGE),
        ("from the second page", offset + page, 3 * PAGE),
        ("from the second page, too much", offset + page, 4 * PAGE),
        ("behind it", offset + 4 * page, PAGE),
        ("not at a page", offset + 8, PAGE),
        ("nothing", offset, 0),
        ("offset 0", 0, PAGE),
        ("offset of a page", page, PAGE),
        ("an offset that no BO has", 1 << 40, PAGE),
        ("offset none", AMDXDNA_INVALID_ADDR & !0xfff, PAGE),
    ] {
        p.map(what, Map::shared(offset, bytes));
    }
}

fn ways(p: &mut Probe) {
    let bo = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let right = Map::shared(p.offset(bo), PAGE);
    let executable = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    for protection in [libc::PROT_READ, libc::PROT_WRITE, libc::PROT_NONE, executable] {
        p.map("another protection", Map { protection, ..right });
    }
    p.map("private", Map { flags: libc::MAP_PRIVATE, ..right });
    p.map("private, for reading", Map { flags: libc::MAP_PRIVATE, protection: libc::PROT_READ, ..right });
    p.map("neither private nor shared", Map { flags: 0, ..right });
}

fn contents(p: &mut Probe) {
    for type_ in [AMDXDNA_BO_SHMEM, AMDXDNA_BO_CMD] {
        let bo = p.create_bo(type_, 2 * PAGE as u64);
        let (first, second) = (p.map_bo("first", bo, 2 * PAGE), p.map_bo("second", bo, 2 * PAGE));
        let (Some(first), Some(second)) = (first, second) else { continue };
        p.note("all zero", (0..2 * PAGE / 4).all(|index| first.word(index) == 0));
        first.set_word(PAGE / 4, 9);
        p.note("seen through the second", second.word(PAGE / 4));
        drop(first);
        p.note("seen after the first is gone", second.word(PAGE / 4));
    }
}

fn after_closing(p: &mut Probe) {
    let bo = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let offset = p.offset(bo);
    let Some(mapping) = p.map_bo("before", bo, PAGE) else { return };
    mapping.set_word(0, 3);
    p.close(bo);
    p.note("word", mapping.word(0));
    p.map("after", Map::shared(offset, PAGE));
    // The next BO has memory of its own.
    let next = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    if let Some(second) = p.map_bo("the next", next, PAGE) {
        p.note("word of the next", second.word(0));
    }
}

fn parts(p: &mut Probe) {
    let Some(heap) = p.heap() else { return };
    let part = p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
    let info = p.bo_info(part);
    p.map("a part of the heap", Map::shared(info.map_offset & 0x7fff_ffff_ffff_f000, PAGE));
    heap.memory.set_word(0, 8);
    p.bo_info(heap.handle);
}
