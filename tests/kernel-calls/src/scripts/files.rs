//! Opening, closing, forking; requests as such.

use super::{Script, script, with_command};
use crate::names::NOWHERE;
use crate::packets::Chain;
use crate::probe::Probe;
use crate::setup::{Mapped, PATIENCE, Setup, address, room};
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::*;

pub(super) const SCRIPTS: &[Script] = &[
    script("open: version", "name and version of the driver, with too little room", version),
    script("open: capabilities", "capabilities of the DRM core", capabilities),
    script("open: for reading", "a file that is open for reading only", for_reading),
    script("open: twice", "two files know nothing of each other", twice),
    script("open: fork", "a forked process has the same file", fork),
    with_command("close: with work", "the file goes away with chains under way", with_work),
    script("close: with mappings", "memory outlives the file", with_mappings),
    script("request: codes", "requests with other numbers, letters, sizes and addresses", codes),
];

fn version(p: &mut Probe) {
    let mut version = drm_version::default();
    let _ = p.call(&mut version);
    for (bytes, start) in [(64, None), (3, None), (0, None), (64, Some(NOWHERE))] {
        let mut name = [0_u8; 64];
        let name_address = start.unwrap_or(room(name.as_mut_slice()));
        let mut version = drm_version { name_len: bytes, name: name_address, ..Default::default() };
        let _ = p.call(&mut version);
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        p.note("name", String::from_utf8_lossy(&name[..end]));
    }
}

fn capabilities(p: &mut Probe) {
    const TIMESTAMP_MONOTONIC: u64 = 6;
    const DUMB_BUFFER: u64 = 1;
    let known = [DRM_CAP_PRIME, DRM_CAP_SYNCOBJ, DRM_CAP_SYNCOBJ_TIMELINE, TIMESTAMP_MONOTONIC, DUMB_BUFFER];
    p.call_each(known.into_iter().chain([0, 99]).map(|capability| drm_get_cap { capability, value: 0 }));
}

fn for_reading(p: &mut Probe) {
    p.open(false);
    let bo = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    p.map_bo("for writing", bo, PAGE);
    p.bo_info(bo);
}

fn twice(p: &mut Probe) {
    let own = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let setup = p.setup();
    let Some(mut other) = p.another() else { return };
    p.on(&mut other, |p| {
        p.bo_info(own);
        p.create_bo(AMDXDNA_BO_DEV, PAGE as u64);
        if let Some(setup) = &setup {
            p.destroy(setup.context);
        }
        let _heap = p.prepare("a heap of its own", |p| p.heap());
        let tiles = p.array().0;
        let context = p.context(tiles);
        p.note("the context's number is the first again", context.handle == 1);
        p.destroy(context);
    });
    p.bo_info(own);
}

fn fork(p: &mut Probe) {
    let bo = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let mapping = p.map_bo("before the fork", bo, PAGE);
    let Some(setup) = p.setup() else { return };
    let command = p.command(setup.command());
    p.in_fork(|p| {
        p.bo_info(bo);
        p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
        p.map_bo("in the child", bo, PAGE);
        if let Some(mapping) = &mapping {
            mapping.set_word(0, 5);
        }
        p.context(4);
    });
    if let Some(mapping) = &mapping {
        p.note("the child's word", mapping.word(0));
    }
    if let Some(command) = &command {
        p.run(setup.context, command, &[]);
    }
    p.destroy(setup.context);
}

fn with_work(p: &mut Probe, setup: Setup, command: Mapped) {
    for _ in 0..4 {
        let Some(chain) = p.chain(&Chain::of(&[command.handle])) else { return };
        let _ = p.execute(setup.context, chain.handle, &[]);
        std::mem::forget(chain);
    }
    p.close_file();
    p.open(true);
    let Some(setup) = p.setup() else { return };
    if let Some(command) = p.command(setup.command()) {
        p.run(setup.context, &command, &[]);
    }
}

fn with_mappings(p: &mut Probe) {
    let bo = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let Some(mapping) = p.map_bo("a page", bo, PAGE) else { return };
    mapping.set_word(3, 77);
    let offset = p.offset(bo);
    p.close_file();
    p.note("word", mapping.word(3));
    p.open(true);
    p.bo_info(bo);
    p.map("the offset of a file that is closed", crate::sys::Map::shared(offset, PAGE));
}

fn codes(p: &mut Probe) {
    use Direction::{ReadWrite, Write};
    let made = amdxdna_drm_create_bo { size: PAGE as u64, type_: AMDXDNA_BO_SHMEM, ..Default::default() };
    let bytes = size_of_val(&made);
    let mut buffer = [made, amdxdna_drm_create_bo::default(), amdxdna_drm_create_bo::default()];
    let number = amdxdna_drm_create_bo::NUMBER;
    for unknown in [0x4b, 0x4c, 0x9f, 0x3f, 0xff] {
        p.raw(&format!("number {unknown:#x}"), RequestCode::new(ReadWrite, unknown, bytes), room(&mut buffer));
    }
    let code = amdxdna_drm_create_bo::CODE;
    p.raw("another letter", RequestCode(code.0 ^ 0x0500), room(&mut buffer));
    p.raw("address nowhere", code, NOWHERE);
    p.raw("address 0", code, 0);
    p.raw("only written", RequestCode::new(Write, number, bytes), room(&mut buffer));
    p.raw("no bytes", RequestCode::new(ReadWrite, number, 0), room(&mut buffer));
    p.raw("half of the structure", RequestCode::new(ReadWrite, number, bytes / 2), room(&mut buffer));
    p.raw("all but the handle", RequestCode::new(ReadWrite, number, bytes - 4), room(&mut buffer));
    p.raw("three times the structure", RequestCode::new(ReadWrite, number, 3 * bytes), room(&mut buffer));
    // The wait of kernels before 6.6 had no deadline.
    let Some(setup) = p.setup() else { return };
    let handle = setup.context.timeline;
    let point = 0_u64;
    let mut wait = drm_syncobj_timeline_wait {
        handles: address(&handle),
        points: address(&point),
        timeout_nsec: (crate::sys::now() + PATIENCE).as_nanos() as i64,
        count_handles: 1,
        flags: DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
        ..Default::default()
    };
    if let Some(command) = p.command(setup.command()) {
        let _ = p.execute(setup.context, command.handle, &[]);
    }
    let number = drm_syncobj_timeline_wait::NUMBER;
    p.raw("a wait without a deadline field", RequestCode::new(ReadWrite, number, 40), room(&mut wait));
}
