//! Waiting for commands: points of timelines, and WAIT_CMD.

use super::{Script, script, with_command};
use crate::names::{HandleKind, NOWHERE};
use crate::probe::Probe;
use crate::setup::{Context, Mapped, PATIENCE, Setup, address, list};
use crate::sys;
use amdxdna_sys::*;
use std::time::Duration;

pub(super) const SCRIPTS: &[Script] = &[
    script("wait: points", "points that were reached, and one that was not", points),
    script("wait: deadlines", "deadlines that are over, and none", deadlines),
    script("wait: flags", "every flag of a timeline's wait, and some that there are not", flags),
    script("wait: fields", "a timeline's wait with wrong fields", fields),
    script("wait: lists", "any and all of several timelines", lists),
    script("wait: binary", "SYNCOBJ_WAIT on timelines and others", binary),
    with_command("wait: query", "SYNCOBJ_QUERY while a context works", query),
    script("wait: WAIT_CMD", "the other way of waiting", wait_cmd),
    script("wait: gone", "after context, timeline or both are gone", gone),
];

const ALL: u32 = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL;
const SUBMIT: u32 = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT;
const AVAILABLE: u32 = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE;
/// Long enough to be waited for, short enough for a script.
const SHORT: Duration = Duration::from_millis(30);

/// When a wait ends.
#[derive(Clone, Copy)]
enum Until {
    Zero,
    Negative,
    Past,
    Soon,
    Later,
    Never,
}

impl Until {
    fn nanoseconds(self) -> i64 {
        let now = sys::now();
        match self {
            Self::Zero => 0,
            Self::Negative => -1,
            Self::Past => now.saturating_sub(Duration::from_secs(1)).as_nanos() as i64,
            Self::Soon => (now + SHORT).as_nanos() as i64,
            Self::Later => (now + PATIENCE).as_nanos() as i64,
            Self::Never => i64::MAX,
        }
    }
}

/// A timeline's wait for these handles and points.
fn wait(p: &mut Probe, handles: &[u32], points: &[u64], flags: u32, until: Until) {
    p.with_handles("syncobjs", HandleKind::Syncobj, handles).with("at", points.to_vec());
    let mut wait = drm_syncobj_timeline_wait {
        handles: list(handles),
        points: list(points),
        timeout_nsec: until.nanoseconds(),
        count_handles: handles.len() as u32,
        flags,
        first_signaled: u32::MAX,
        ..Default::default()
    };
    let _ = p.call(&mut wait);
}

/// A context that has run three commands.
fn worked(p: &mut Probe) -> Option<Context> {
    let setup = p.setup()?;
    let command = p.command(setup.command())?;
    p.prepare("three commands", |p| {
        (0..3).for_each(|_| p.submit(setup.context, command.handle, &[]));
    });
    // The heap stays mapped: the file goes away with the script.
    std::mem::forget(setup.heap);
    Some(setup.context)
}

fn points(p: &mut Probe) {
    let Some(context) = worked(p) else { return };
    for point in [0, 1, 2] {
        wait(p, &[context.timeline], &[point], ALL | SUBMIT, Until::Later);
        wait(p, &[context.timeline], &[point], ALL, Until::Zero);
    }
    for point in [3, 4, u64::MAX] {
        wait(p, &[context.timeline], &[point], ALL | SUBMIT, Until::Soon);
        wait(p, &[context.timeline], &[point], ALL, Until::Soon);
    }
}

fn deadlines(p: &mut Probe) {
    let Some(context) = worked(p) else { return };
    for until in [Until::Zero, Until::Negative, Until::Past, Until::Soon, Until::Later, Until::Never] {
        wait(p, &[context.timeline], &[2], ALL | SUBMIT, until);
    }
    for until in [Until::Zero, Until::Negative, Until::Past, Until::Soon] {
        wait(p, &[context.timeline], &[3], ALL | SUBMIT, until);
    }
}

fn flags(p: &mut Probe) {
    let Some(context) = worked(p) else { return };
    for flags in [0, ALL, SUBMIT, ALL | SUBMIT, AVAILABLE, AVAILABLE | SUBMIT, AVAILABLE | ALL, 8, 16, 1 << 31] {
        wait(p, &[context.timeline], &[2], flags, Until::Later);
        wait(p, &[context.timeline], &[3], flags, Until::Soon);
    }
}

fn fields(p: &mut Probe) {
    let Some(context) = worked(p) else { return };
    let (handle, point) = (context.timeline, 2_u64);
    let many = vec![handle; 5000];
    let right = drm_syncobj_timeline_wait {
        handles: address(&handle),
        points: address(&point),
        timeout_nsec: Until::Later.nanoseconds(),
        count_handles: 1,
        flags: ALL | SUBMIT,
        ..Default::default()
    };
    p.call_each([
        right,
        drm_syncobj_timeline_wait { count_handles: 0, ..right },
        drm_syncobj_timeline_wait { handles: NOWHERE, ..right },
        drm_syncobj_timeline_wait { handles: 0, ..right },
        drm_syncobj_timeline_wait { points: NOWHERE, ..right },
        // The same as points that are all 0.
        drm_syncobj_timeline_wait { points: 0, ..right },
        drm_syncobj_timeline_wait { pad: 1, ..right },
        drm_syncobj_timeline_wait { first_signaled: 9, ..right },
        drm_syncobj_timeline_wait { deadline_nsec: 5, ..right },
        drm_syncobj_timeline_wait { handles: list(&many), points: 0, count_handles: 5000, ..right },
        drm_syncobj_timeline_wait { count_handles: u32::MAX, ..right },
    ]);
    for handle in [0, 99, u32::MAX] {
        wait(p, &[handle], &[0], ALL | SUBMIT, Until::Soon);
    }
}

fn lists(p: &mut Probe) {
    let Some(context) = worked(p) else { return };
    let line = context.timeline;
    for (points, flags) in [
        ([1, 2], ALL | SUBMIT),
        ([2, 9], ALL | SUBMIT),
        ([2, 9], SUBMIT),
        ([9, 2], SUBMIT),
        ([9, 2], 0),
        ([9, 10], SUBMIT),
    ] {
        wait(p, &[line, line], &points, flags, Until::Soon);
    }
    wait(p, &[line, 99], &[1, 1], SUBMIT, Until::Soon);
}

fn binary(p: &mut Probe) {
    let Some(context) = worked(p) else { return };
    let [signaled, empty] = [DRM_SYNCOBJ_CREATE_SIGNALED, 0].map(|flags| p.create_syncobj(flags));
    for handle in [context.timeline, signaled, empty, 99] {
        for flags in [0, ALL, SUBMIT, AVAILABLE, 8, 16] {
            p.with_handles("syncobjs", HandleKind::Syncobj, &[handle]);
            let _ = p.call(&mut drm_syncobj_wait {
                handles: address(&handle),
                timeout_nsec: Until::Soon.nanoseconds(),
                count_handles: 1,
                flags,
                first_signaled: u32::MAX,
                ..Default::default()
            });
        }
    }
    for (handles, flags) in [([signaled, empty], SUBMIT), ([empty, signaled], SUBMIT | ALL)] {
        let _ = p.call(&mut drm_syncobj_wait {
            handles: list(&handles),
            timeout_nsec: Until::Soon.nanoseconds(),
            count_handles: 2,
            flags,
            ..Default::default()
        });
    }
    p.call_each([1, 0].map(|pad| drm_syncobj_wait { pad, ..Default::default() }));
}

fn query(p: &mut Probe, setup: Setup, command: Mapped) {
    let look = |p: &mut Probe| {
        for flags in [0, DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED, 2] {
            p.point(setup.context.timeline, flags);
        }
    };
    look(p);
    for _ in 0..2 {
        p.run(setup.context, &command, &[]);
        look(p);
    }
}

fn wait_cmd(p: &mut Probe) {
    let Some(context) = worked(p) else { return };
    let own = context.handle;
    let waits = [(own, 2, 1000), (own, 0, 0), (own, 3, 20), (own, u64::MAX, 20), (0, 0, 20), (99, 0, 20)];
    p.call_each(waits.map(|(hwctx, seq, timeout)| amdxdna_drm_wait_cmd { hwctx, timeout, seq }));
}

fn gone(p: &mut Probe) {
    let Some(context) = worked(p) else { return };
    p.destroy(context);
    wait(p, &[context.timeline], &[2], ALL | SUBMIT, Until::Later);
    wait(p, &[context.timeline], &[3], ALL | SUBMIT, Until::Soon);
    p.destroy_syncobj(context.timeline);
    wait(p, &[context.timeline], &[2], ALL | SUBMIT, Until::Later);
    // A context works on when its timeline's handle is released.
    let Some(setup) = p.prepare("a second context", |p| {
        let tiles = p.array().0;
        let context = p.context(tiles);
        (context.handle != 0).then_some(context)
    }) else {
        return;
    };
    p.destroy_syncobj(setup.timeline);
    p.destroy(setup);
}
