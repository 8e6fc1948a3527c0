//! The device heap and its parts.

use super::{Script, script, with_command};
use crate::probe::Probe;
use crate::setup::{Context, Mapped, Setup};
use crate::sys::{Map, Mapping};
use amdxdna_sys::limits::{DEV_MEM_SIZE, PAGE};
use amdxdna_sys::*;

pub(super) const SCRIPTS: &[Script] = &[
    script("heap: sizes", "sizes that a heap can have", sizes),
    script("heap: twice", "a second heap", twice),
    script("heap: none", "parts and contexts without a heap", none),
    script("heap: not mapped", "parts and contexts of a heap that is not mapped (any more)", not_mapped),
    script("heap: not aligned", "a heap at another address than a multiple of its size", not_aligned),
    script("heap: part sizes", "parts of many sizes, and where they are", part_sizes),
    script("heap: full", "parts until there is no room, and one again", full),
    with_command("heap: closed", "the heap's handle is closed while it has parts and a context", closed),
    script("heap: info", "what GET_BO_INFO says of heap and parts", info),
];

const HEAP: u64 = DEV_MEM_SIZE as u64;

fn sizes(p: &mut Probe) {
    for size in [0, 1, PAGE as u64, HEAP / 2, HEAP - 1, HEAP + 1, HEAP + PAGE as u64, 64 * HEAP, u64::MAX, HEAP] {
        p.create_bo(AMDXDNA_BO_DEV_HEAP, size);
    }
}

fn twice(p: &mut Probe) {
    let first = p.heap();
    let second = p.create_bo(AMDXDNA_BO_DEV_HEAP, HEAP);
    p.bo_info(second);
    p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
    p.close(second);
    drop(first);
}

fn none(p: &mut Probe) {
    p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
    p.context(4);
}

fn not_mapped(p: &mut Probe) {
    let heap = p.create_bo(AMDXDNA_BO_DEV_HEAP, HEAP);
    p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
    p.context(4);
    let offset = p.offset(heap);
    let mapped = p.map("the heap", Map { remainder: Some(0), ..Map::shared(offset, DEV_MEM_SIZE) });
    p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
    drop(mapped);
    p.bo_info(heap);
    p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
    let context = p.context(4);
    p.destroy(context);
}

fn not_aligned(p: &mut Probe) {
    let heap = p.create_bo(AMDXDNA_BO_DEV_HEAP, HEAP);
    let offset = p.offset(heap);
    let mapped = p.map("the heap", Map { remainder: Some(PAGE), ..Map::shared(offset, DEV_MEM_SIZE) });
    let part = p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
    p.bo_info(part);
    let context = p.context(4);
    p.destroy(context);
    drop(mapped);
    // Half of it, where it should be.
    let half = p.map("half of the heap", Map { remainder: Some(0), ..Map::shared(offset, DEV_MEM_SIZE / 2) });
    let context = p.context(4);
    p.destroy(context);
    drop(half);
}

fn part_sizes(p: &mut Probe) {
    let Some(_heap) = p.heap() else { return };
    for size in [1, PAGE as u64, 32 << 10, (32 << 10) + 1, 1 << 20, 0, HEAP, HEAP + 1, 16 * HEAP, u64::MAX] {
        let part = p.create_bo(AMDXDNA_BO_DEV, size);
        p.bo_info(part);
    }
}

/// Makes parts of 1 MiB until there is no room.
fn fill(p: &mut Probe) -> Vec<u32> {
    let made: Vec<u32> = p.quietly(|p| {
        let part = |_| Some(p.create_bo(AMDXDNA_BO_DEV, 1 << 20)).filter(|handle| *handle != 0);
        (0..100).map_while(part).collect()
    });
    p.note("parts of 1 MiB", made.len());
    made
}

fn full(p: &mut Probe) {
    let Some(_heap) = p.heap() else { return };
    let made = fill(p);
    p.create_bo(AMDXDNA_BO_DEV, 1 << 20);
    p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
    p.context(4);
    if let [_, second, third, ..] = made[..] {
        p.close(third);
        let again = p.create_bo(AMDXDNA_BO_DEV, 1 << 20);
        p.bo_info(again);
        p.close(second);
        let context = p.context(4);
        let small = p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
        p.bo_info(small);
        p.destroy(context);
    }
}

fn closed(p: &mut Probe, setup: Setup, command: Mapped) {
    p.close(setup.heap.handle);
    p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
    p.run(setup.context, &command, &[]);
    let context = p.context(4);
    p.destroy(context);
    p.create_bo(AMDXDNA_BO_DEV_HEAP, HEAP);
    p.destroy(setup.context);
    p.bo_info(setup.pdi);
}

fn info(p: &mut Probe) {
    let heap = p.create_bo(AMDXDNA_BO_DEV_HEAP, HEAP);
    p.bo_info(heap);
    let offset = p.offset(heap);
    let Some(memory) = p.map("the heap", Map { remainder: Some(0), ..Map::shared(offset, DEV_MEM_SIZE) }) else {
        return;
    };
    p.bo_info(heap);
    let heap = Mapped { handle: heap, device: limits::DEV_MEM_BASE, memory };
    let (part, address) = p.part(&heap, &[1, 2, 3, 4]);
    p.bo_info(part);
    p.note("offset of the first part", address.wrapping_sub(heap.device));
    let read: &Mapping = &heap.memory;
    p.note("its first word", read.word(address.wrapping_sub(heap.device) as usize / 4 % (DEV_MEM_SIZE / 4)));
    let context: Context = p.context(4);
    let next = p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
    p.bo_info(next);
    p.destroy(context);
}
