//! BOs as descriptors.

use super::{Script, script};
use crate::probe::Probe;
use crate::sys::{self, Map, Mapping};
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::*;
use std::fs::File;
use std::os::fd::AsRawFd;

pub(super) const SCRIPTS: &[Script] = &[
    script("prime: export", "which BOs can be exported, and with which flags", export),
    script("prime: import", "a BO in another file, and in its own again", import),
    script("prime: wrong descriptors", "descriptors that are no BO", wrong_descriptors),
    script("prime: after closing", "a descriptor keeps the memory", after_closing),
    script("prime: command", "a command in an imported BO", command),
    script("prime: map the descriptor", "the descriptor itself can be mapped", map_descriptor),
];

fn to_fd(p: &mut Probe, handle: u32, flags: i32) -> i32 {
    let mut prime = drm_prime_handle { handle, flags: flags as u32, fd: 0 };
    p.named("PRIME_HANDLE_TO_FD", &mut prime).map_or(-1, |()| prime.fd)
}

fn to_handle(p: &mut Probe, fd: i32) -> u32 {
    let mut prime = drm_prime_handle { handle: 0, flags: 0, fd };
    p.named("PRIME_FD_TO_HANDLE", &mut prime).map_or(0, |()| prime.handle)
}

fn export(p: &mut Probe) {
    let setup = p.setup();
    let (heap, part) = setup.as_ref().map_or((0, 0), |setup| (setup.heap.handle, setup.pdi));
    let shared = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let command = p.create_bo(AMDXDNA_BO_CMD, PAGE as u64);
    let all = libc::O_CLOEXEC | libc::O_RDWR;
    let handles = [shared, command, heap, part, 0, 99].map(|handle| (handle, all));
    let flags = [0, libc::O_CLOEXEC, libc::O_RDWR, libc::O_NONBLOCK, -1].map(|flags| (shared, flags));
    // All stay open until the last is made.
    let made: Vec<i32> = handles.into_iter().chain(flags).map(|(handle, flags)| to_fd(p, handle, flags)).collect();
    made.into_iter().for_each(|descriptor| drop(sys::owned(descriptor)));
}

fn import(p: &mut Probe) {
    let bo = p.create_bo(AMDXDNA_BO_SHMEM, 2 * PAGE as u64);
    let mapping = p.map_bo("in its own file", bo, 2 * PAGE);
    let descriptor = to_fd(p, bo, libc::O_CLOEXEC | libc::O_RDWR);
    to_handle(p, descriptor);
    let Some(mut other) = p.another() else { return };
    p.on(&mut other, |p| {
        let imported = to_handle(p, descriptor);
        p.bo_info(imported);
        let second = p.map_bo("in the other file", imported, 2 * PAGE);
        p.bo_info(imported);
        if let (Some(first), Some(second)) = (&mapping, &second) {
            first.set_word(7, 123);
            p.note("word", second.word(7));
        }
        p.sync(imported, SYNC_DIRECT_TO_DEVICE, 0, PAGE as u64);
        let again = to_handle(p, descriptor);
        p.note("the same handle", again == imported);
        p.close(imported);
        p.bo_info(imported);
    });
    p.bo_info(bo);
    // Exporting twice.
    let second = to_fd(p, bo, libc::O_CLOEXEC | libc::O_RDWR);
    drop([descriptor, second].map(sys::owned));
}

fn wrong_descriptors(p: &mut Probe) {
    let null = File::open("/dev/null").ok();
    let null = null.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    for (what, fd) in [("-1", -1), ("999", 999), ("another file", null)] {
        to_handle(p.with("what", what), fd);
    }
    let bo = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let fd = to_fd(p, bo, libc::O_CLOEXEC);
    let _ = p.named("PRIME_FD_TO_HANDLE", &mut drm_prime_handle { handle: 99, flags: u32::MAX, fd });
    drop(sys::owned(fd));
}

fn after_closing(p: &mut Probe) {
    let Some(bo) = p.mapped_bo(AMDXDNA_BO_SHMEM, PAGE) else { return };
    bo.memory.set_word(1, 11);
    let descriptor = to_fd(p, bo.handle, libc::O_CLOEXEC | libc::O_RDWR);
    p.close(bo.handle);
    let again = to_handle(p, descriptor);
    p.bo_info(again);
    if let Some(mapping) = p.map_bo("imported again", again, PAGE) {
        p.note("word", mapping.word(1));
    }
    p.close_file();
    p.open(true);
    let again = to_handle(p, descriptor);
    if let Some(mapping) = p.map_bo("in a new file", again, PAGE) {
        p.note("word", mapping.word(1));
    }
    drop(sys::owned(descriptor));
}

fn command(p: &mut Probe) {
    let Some(bo) = p.mapped_bo(AMDXDNA_BO_SHMEM, PAGE) else { return };
    let descriptor = to_fd(p, bo.handle, libc::O_CLOEXEC | libc::O_RDWR);
    let Some(mut other) = p.another() else { return };
    p.on(&mut other, |p| {
        let Some(setup) = p.setup() else { return };
        let handle = to_handle(p, descriptor);
        setup.command().write(&bo.memory);
        let seq = p.execute(setup.context, handle, &[]);
        let _ = p.wait(setup.context, seq.unwrap_or_default(), crate::setup::PATIENCE);
        p.state(&bo.memory);
        let own = p.command(setup.command());
        if let Some(own) = &own {
            p.run(setup.context, own, &[handle]);
        }
    });
    drop(sys::owned(descriptor));
}

fn map_descriptor(p: &mut Probe) {
    let Some(bo) = p.mapped_bo(AMDXDNA_BO_SHMEM, PAGE) else { return };
    bo.memory.set_word(2, 22);
    for flags in [libc::O_CLOEXEC | libc::O_RDWR, libc::O_CLOEXEC] {
        let Some(descriptor) = sys::owned(to_fd(p, bo.handle, flags)) else { continue };
        let mapped = Mapping::of(&descriptor, Map::shared(0, PAGE));
        p.note("mapped", mapped.as_ref().map_or_else(|errno| sys::name(*errno), |mapping| mapping.word(2).to_string()));
        let beyond = Mapping::of(&descriptor, Map::shared(0, 2 * PAGE));
        p.note("more than it has", beyond.map_or_else(sys::name, |_| "mapped".into()));
    }
}
