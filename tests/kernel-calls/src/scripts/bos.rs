//! Buffer objects.

use super::{Script, script};
use crate::probe::Probe;
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::*;

pub(super) const SCRIPTS: &[Script] = &[
    script("bo: sizes", "shared memory of many sizes", sizes),
    script("bo: command sizes", "command BOs of many sizes", command_sizes),
    script("bo: types", "types that there are not, flags", types),
    script("bo: addresses", "what GET_BO_INFO says before, while and after a BO is mapped", addresses),
    script("bo: info", "GET_BO_INFO with wrong fields", info),
    script("bo: close", "GEM_CLOSE once, twice, of nothing", close),
    script("bo: handles", "which numbers are given again", handles),
    script("bo: sync", "SYNC_BO in each direction, inside and outside", sync),
    script("bo: sync outside", "SYNC_BO of ranges outside of a BO", sync_outside),
];

/// More than any machine has, and more than offsets can be.
const HUGE: [u64; 3] = [1 << 62, u64::MAX - 4095, u64::MAX];

fn sizes(p: &mut Probe) {
    for size in [1, 4095, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1, 0].into_iter().chain(HUGE) {
        let bo = p.create_bo(AMDXDNA_BO_SHMEM, size);
        p.bo_info(bo);
    }
}

fn command_sizes(p: &mut Probe) {
    for size in [1, 3, 4, 4096, 32768, 32769, 1 << 20, 0].into_iter().chain(HUGE) {
        p.create_bo(AMDXDNA_BO_CMD, size);
    }
}

fn types(p: &mut Probe) {
    for type_ in [0, 5, 6, 99, u32::MAX] {
        p.create_bo(type_, PAGE as u64);
    }
    let right = amdxdna_drm_create_bo { size: PAGE as u64, type_: AMDXDNA_BO_SHMEM, ..Default::default() };
    p.call_each([1, 2, 1 << 32, u64::MAX].map(|flags| amdxdna_drm_create_bo { flags, ..right }));
    // The field is filled, so what is in it does not count.
    p.call_each([amdxdna_drm_create_bo { handle: 77, ..right }]);
}

fn addresses(p: &mut Probe) {
    for type_ in [AMDXDNA_BO_SHMEM, AMDXDNA_BO_CMD] {
        let bo = p.create_bo(type_, 4 * PAGE as u64);
        p.bo_info(bo);
        let first = p.map_bo("whole", bo, 4 * PAGE);
        p.bo_info(bo);
        let second = p.map_bo("once more", bo, 4 * PAGE);
        p.bo_info(bo);
        drop(first);
        p.bo_info(bo);
        drop(second);
        p.bo_info(bo);
        let part = p.map_bo("a part", bo, PAGE);
        p.bo_info(bo);
        drop(part);
    }
}

fn info(p: &mut Probe) {
    let bo = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    for handle in [0, 99, u32::MAX] {
        p.bo_info(handle);
    }
    let right = amdxdna_drm_get_bo_info { handle: bo, ..Default::default() };
    let wrong = [
        amdxdna_drm_get_bo_info { pad: 1, ..right },
        amdxdna_drm_get_bo_info { ext: 1, ..right },
        amdxdna_drm_get_bo_info { ext_flags: 1, ..right },
        amdxdna_drm_get_bo_info { map_offset: 1, vaddr: 2, xdna_addr: 3, ..right },
    ];
    p.call_each(wrong);
}

fn close(p: &mut Probe) {
    for handle in [0, 99, u32::MAX] {
        p.close(handle);
    }
    let bo = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let offset = p.offset(bo);
    let _ = p.call(&mut drm_gem_close { handle: bo, pad: 1 });
    p.close(bo);
    p.close(bo);
    p.bo_info(bo);
    p.sync(bo, SYNC_DIRECT_TO_DEVICE, 0, PAGE as u64);
    p.map("its offset", crate::sys::Map::shared(offset, PAGE));
}

fn handles(p: &mut Probe) {
    let made: Vec<u32> = (0..3).map(|_| p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64)).collect();
    p.note("numbers", made.clone());
    p.close(made[1]);
    let again = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    p.note("number after the second was closed", again);
    let next = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    p.note("number after that", next);
}

fn sync(p: &mut Probe) {
    let setup = p.setup();
    let heap = setup.as_ref().map_or(0, |setup| setup.heap.handle);
    let part = setup.as_ref().map_or(0, |setup| setup.pdi);
    let shared = p.create_bo(AMDXDNA_BO_SHMEM, 4 * PAGE as u64);
    let command = p.create_bo(AMDXDNA_BO_CMD, PAGE as u64);
    let (page, all) = (PAGE as u64, 4 * PAGE as u64);
    for handle in [shared, command, heap, part] {
        for direction in [SYNC_DIRECT_TO_DEVICE, SYNC_DIRECT_FROM_DEVICE, 2, u32::MAX] {
            p.sync(handle, direction, 0, page);
        }
    }
    for (offset, size) in [(0, all), (page, page), (1, 1), (all - 1, 1), (0, 0), (page, 0)] {
        p.sync(shared, SYNC_DIRECT_TO_DEVICE, offset, size);
    }
    for handle in [0, 99, u32::MAX] {
        p.sync(handle, SYNC_DIRECT_TO_DEVICE, 0, page);
    }
}

/// A kernel may warn in its log about some of these.
fn sync_outside(p: &mut Probe) {
    let setup = p.setup();
    let part = setup.as_ref().map_or(0, |setup| setup.pdi);
    let (page, all) = (PAGE as u64, 4 * PAGE as u64);
    let shared = p.create_bo(AMDXDNA_BO_SHMEM, all);
    for handle in [shared, part] {
        for (offset, size) in
            [(0, all + 1), (all - 1, page), (all, 0), (all, 1), (u64::MAX, 1), (page, u64::MAX), (0, u64::MAX)]
        {
            p.sync(handle, SYNC_DIRECT_TO_DEVICE, offset, size);
        }
    }
}
