//! Synchronisation objects as such.

use super::{Script, script};
use crate::names::{HandleKind, NOWHERE};
use crate::probe::Probe;
use crate::setup::{address, list, room};
use crate::sys;
use amdxdna_sys::*;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

pub(super) const SCRIPTS: &[Script] = &[
    script("syncobj: create", "flags, numbers, destroying", create),
    script("syncobj: signal", "signal and reset", signal),
    script("syncobj: points", "points that the caller signals", points),
    script("syncobj: transfer", "points that go from one to another", transfer),
    script("syncobj: descriptors", "as descriptors and back, in both directions", descriptors),
    script("syncobj: eventfd", "an eventfd that a point signals", eventfd),
];

/// Where a timeline is.
fn point(p: &mut Probe, handle: u32) {
    p.with_handles("syncobjs", HandleKind::Syncobj, &[handle]).point(handle, 0);
}

/// Whether an object is signalled.
fn is_signaled(p: &mut Probe, handle: u32) {
    p.with_handles("syncobjs", HandleKind::Syncobj, &[handle]);
    let timeout_nsec = (sys::now() + Duration::from_millis(100)).as_nanos() as i64;
    let _ = p.call(&mut drm_syncobj_wait {
        handles: address(&handle),
        timeout_nsec,
        count_handles: 1,
        ..Default::default()
    });
}

fn create(p: &mut Probe) {
    let handles = [0, DRM_SYNCOBJ_CREATE_SIGNALED].map(|flags| p.create_syncobj(flags));
    p.note("numbers", handles.to_vec());
    for flags in [2, u32::MAX] {
        p.create_syncobj(flags);
    }
    for handle in [0, 99, u32::MAX] {
        p.destroy_syncobj(handle);
    }
    p.call_each([1, 0, 0].map(|pad| drm_syncobj_destroy { handle: handles[0], pad }));
    let again = p.create_syncobj(0);
    p.note("number after the first was destroyed", again);
}

fn array(p: &mut Probe, name: &str, handles: &[u32]) {
    p.with_handles("syncobjs", HandleKind::Syncobj, handles);
    let _ =
        p.named(name, &mut drm_syncobj_array { handles: list(handles), count_handles: handles.len() as u32, pad: 0 });
}

fn signal(p: &mut Probe) {
    let (a, b) = (p.create_syncobj(0), p.create_syncobj(0));
    is_signaled(p, a);
    array(p, "SYNCOBJ_SIGNAL", &[a, b]);
    is_signaled(p, a);
    is_signaled(p, b);
    array(p, "SYNCOBJ_RESET", &[a]);
    is_signaled(p, a);
    for name in ["SYNCOBJ_SIGNAL", "SYNCOBJ_RESET"] {
        array(p, name, &[]);
        array(p, name, &[b, 99]);
        is_signaled(p, b);
        for (handles, pad) in [(address(&b), 1), (NOWHERE, 0)] {
            let _ = p.named(name, &mut drm_syncobj_array { handles, count_handles: 1, pad });
        }
    }
}

fn signal_points(p: &mut Probe, handles: &[u32], points: &[u64], flags: u32) {
    p.with_handles("syncobjs", HandleKind::Syncobj, handles).with("at", points.to_vec());
    p.timeline("SYNCOBJ_TIMELINE_SIGNAL", handles, list(points), flags);
}

fn points(p: &mut Probe) {
    let (a, b) = (p.create_syncobj(0), p.create_syncobj(0));
    point(p, a);
    for at in [5, 7, 6, 0] {
        signal_points(p, &[a], &[at], 0);
        point(p, a);
    }
    signal_points(p, &[a, b], &[8, 3], 0);
    point(p, b);
    signal_points(p, &[a], &[9], 1);
    signal_points(p, &[], &[], 0);
    signal_points(p, &[99], &[1], 0);
    for (handles, points) in [(NOWHERE, address(&7_u64)), (address(&a), NOWHERE)] {
        for name in ["SYNCOBJ_TIMELINE_SIGNAL", "SYNCOBJ_QUERY"] {
            let _ = p.named(name, &mut drm_syncobj_timeline_array { handles, points, count_handles: 1, flags: 0 });
        }
    }
    for (count, flags) in [(0, 0), (1, 4)] {
        p.timeline("SYNCOBJ_QUERY", &[a][..count], room(&mut 0_u64), flags);
    }
    array(p, "SYNCOBJ_RESET", &[a]);
    point(p, a);
    array(p, "SYNCOBJ_SIGNAL", &[a]);
    point(p, a);
    p.destroy_syncobj(a);
    point(p, a);
}

fn transfer(p: &mut Probe) {
    let (source, target) = (p.create_syncobj(0), p.create_syncobj(0));
    signal_points(p, &[source], &[4], 0);
    let right = drm_syncobj_transfer { src_handle: source, dst_handle: target, ..Default::default() };
    let submit = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT;
    for mut transfer in [
        drm_syncobj_transfer { src_point: 4, dst_point: 2, ..right },
        drm_syncobj_transfer { src_point: 3, dst_point: 5, ..right },
        drm_syncobj_transfer { src_point: 9, dst_point: 6, ..right },
        drm_syncobj_transfer { src_point: 4, dst_point: 7, flags: submit, ..right },
        drm_syncobj_transfer { src_point: 4, dst_point: 8, flags: 1, ..right },
        drm_syncobj_transfer { src_point: 4, dst_point: 8, pad: 1, ..right },
        drm_syncobj_transfer { src_point: 4, dst_point: 8, src_handle: 99, ..right },
        drm_syncobj_transfer { src_point: 4, dst_point: 8, dst_handle: 99, ..right },
        drm_syncobj_transfer { src_point: 4, dst_point: 0, ..right },
    ] {
        let _ = p.call(&mut transfer);
        point(p, target);
    }
}

fn export(p: &mut Probe, mut handle: drm_syncobj_handle) -> i32 {
    p.named("SYNCOBJ_HANDLE_TO_FD", &mut handle).map_or(-1, |()| handle.fd)
}

fn import(p: &mut Probe, mut handle: drm_syncobj_handle) -> u32 {
    p.named("SYNCOBJ_FD_TO_HANDLE", &mut handle).map_or(0, |()| handle.handle)
}

fn descriptors(p: &mut Probe) {
    let own = p.create_syncobj(DRM_SYNCOBJ_CREATE_SIGNALED);
    let right = drm_syncobj_handle { handle: own, ..Default::default() };
    let descriptor = export(p, right);
    for wrong in [
        drm_syncobj_handle { handle: 99, ..right },
        drm_syncobj_handle { pad: 1, ..right },
        drm_syncobj_handle { flags: 8, ..right },
        drm_syncobj_handle { point: 1, ..right },
    ] {
        export(p, wrong);
    }
    let back = drm_syncobj_handle { fd: descriptor, ..Default::default() };
    let again = import(p, back);
    is_signaled(p, again);
    array(p, "SYNCOBJ_RESET", &[own]);
    is_signaled(p, again);
    let null = File::open("/dev/null").ok();
    let null = null.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    for (what, wrong) in [
        ("-1", drm_syncobj_handle { fd: -1, ..back }),
        ("another file", drm_syncobj_handle { fd: null, ..back }),
        ("padding", drm_syncobj_handle { pad: 1, ..back }),
        ("flags", drm_syncobj_handle { flags: 8, ..back }),
    ] {
        p.with("what", what);
        import(p, wrong);
    }
    // A sync file has the fence that is inside now.
    let sync_file = DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE;
    p.with("what", "no fence");
    export(p, drm_syncobj_handle { flags: sync_file, ..right });
    array(p, "SYNCOBJ_SIGNAL", &[own]);
    let file = export(p, drm_syncobj_handle { flags: sync_file, ..right });
    let target = p.create_syncobj(0);
    let flags = DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE;
    import(p, drm_syncobj_handle { handle: target, flags, fd: file, ..Default::default() });
    is_signaled(p, target);
    drop([descriptor, file].map(sys::owned));
}

fn eventfd(p: &mut Probe) {
    let handle = p.create_syncobj(0);
    let null = File::open("/dev/null").ok();
    let fd = null.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    for (what, mut wrong) in [
        ("no eventfd", drm_syncobj_eventfd { handle, fd, point: 1, ..Default::default() }),
        ("-1", drm_syncobj_eventfd { handle, fd: -1, point: 1, ..Default::default() }),
        ("flags", drm_syncobj_eventfd { handle, fd: -1, flags: 8, ..Default::default() }),
        ("padding", drm_syncobj_eventfd { handle, fd: -1, pad: 1, ..Default::default() }),
        ("handle 99", drm_syncobj_eventfd { handle: 99, fd: -1, ..Default::default() }),
    ] {
        p.with("what", what);
        let _ = p.call(&mut wrong);
    }
}
