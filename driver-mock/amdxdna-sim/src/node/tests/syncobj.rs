//! Synchronisation objects and the timelines of contexts.

use super::ioctl::{address, make, make_with};
use super::rig::{Rig, rig_of};
use crate::journal::Level;
use crate::node::{Descriptors, File};
use amdxdna_sys::ert::state;
use amdxdna_sys::*;
use nix::errno::Errno;
use rstest::rstest;
use std::time::{Duration, Instant};

fn after(time: Duration) -> i64 {
    crate::node::syncobj::monotonic_ns() + i64::try_from(time.as_nanos()).unwrap()
}

/// Waits for points of objects. The first that was found reached; 0 for who waits for all, who learns that by chance only.
fn wait(file: &File, points: &[(u32, u64)], flags: u32, timeout_nsec: i64) -> Result<u32, Errno> {
    first_of(file, points, flags, timeout_nsec).map(|first| if flags & ALL == 0 { first } else { 0 })
}

/// Waits for points of objects; the first that was found reached, as the kernel reports it.
fn first_of(file: &File, points: &[(u32, u64)], flags: u32, timeout_nsec: i64) -> Result<u32, Errno> {
    let (mut handles, mut points): (Vec<u32>, Vec<u64>) = points.iter().copied().unzip();
    let mut wait = drm_syncobj_timeline_wait {
        handles: address(handles.as_mut_slice()),
        points: address(points.as_mut_slice()),
        timeout_nsec,
        count_handles: handles.len() as u32,
        flags,
        ..Default::default()
    };
    make(file, "SYNCOBJ_TIMELINE_WAIT", &mut wait).map(|()| wait.first_signaled)
}

const ALL: u32 = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL;
const FOR_SUBMIT: u32 = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT;
const LONG: Duration = Duration::from_secs(100);

fn object(file: &File, flags: u32) -> u32 {
    let mut create = drm_syncobj_create { handle: 0, flags };
    make(file, "SYNCOBJ_CREATE", &mut create).unwrap();
    create.handle
}

fn points_of(file: &File, handle: u32, flags: u32) -> u64 {
    let (mut handles, mut points) = ([handle], [99_u64]);
    let (handles, target) = (address(&mut handles), address(&mut points));
    let mut query = drm_syncobj_timeline_array { handles, points: target, count_handles: 1, flags };
    make(file, "SYNCOBJ_QUERY", &mut query).unwrap();
    points[0]
}

fn signal(file: &File, handle: u32, point: u64) {
    let (mut handles, mut points) = ([handle], [point]);
    let (handles, points) = (address(&mut handles), address(&mut points));
    let mut signal = drm_syncobj_timeline_array { handles, points, count_handles: 1, flags: 0 };
    make(file, "SYNCOBJ_TIMELINE_SIGNAL", &mut signal).unwrap();
}

fn ready(rig: &Rig) -> (u32, u32, (u32, u32)) {
    let mut qos = [0_u32; 6];
    let mut made = amdxdna_drm_create_hwctx { num_tiles: 32, qos_p: address(&mut qos), ..Default::default() };
    make(&rig.file, "CREATE_HWCTX", &mut made).unwrap();
    rig.configure(made.handle, &[rig.pdi("add 1")]).unwrap();
    (made.handle, made.syncobj_handle, rig.instructions())
}

#[rstest]
fn jobs_complete_on_the_timeline(#[values("legacy", "6.14", "6.18", "7.2")] kernel: &str) {
    let rig = rig_of(kernel, "", "");
    let (context, timeline, instructions) = ready(&rig);
    assert_ne!(timeline, 0);
    assert_eq!(wait(&rig.file, &[(timeline, 0)], ALL, 0), Err(Errno::EINVAL), "nothing was submitted");
    let commands: Vec<u32> = (0..4).map(|_| rig.padded(rig.command(0, instructions, 0, 64, 4))).collect();
    for (sequence, command) in (0..4).zip(&commands) {
        assert_eq!(rig.file.exec_cmd(context, *command, &[rig.data]), Ok(sequence));
    }
    // In any order, several at once, and again.
    for point in [3, 1, 2, 0] {
        assert_eq!(wait(&rig.file, &[(timeline, point)], ALL | FOR_SUBMIT, after(LONG)), Ok(0));
    }
    assert!(commands.iter().all(|command| rig.state(*command) == state::COMPLETED));
    assert_eq!(wait(&rig.file, &[(timeline, 2), (timeline, 3)], ALL, 0), Ok(0));
    assert_eq!(wait(&rig.file, &[(timeline, 4)], ALL, 0), Err(Errno::EINVAL));
    assert_eq!(points_of(&rig.file, timeline, DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED), 3);
    assert_eq!(points_of(&rig.file, timeline, 0), 3);
    // The handle outlives the context.
    rig.file.destroy_hwctx(context).unwrap();
    assert_eq!(wait(&rig.file, &[(timeline, 3)], ALL, 0), Ok(0));
    let mut destroy = drm_syncobj_destroy { handle: timeline, pad: 0 };
    assert_eq!(make(&rig.file, "SYNCOBJ_DESTROY", &mut destroy), Ok(()));
    assert_eq!(make(&rig.file, "SYNCOBJ_DESTROY", &mut destroy), Err(Errno::EINVAL));
    assert_eq!(rig.device.journal.level(Level::Syncobjs), 0);
}

#[test]
fn a_stuck_job_is_waited_for_until_the_kernel_ends_it() {
    let rig = rig_of("6.18", "", "timeout@2");
    let (context, timeline, instructions) = ready(&rig);
    let chains: Vec<u32> = (0..3).map(|_| rig.chain(&[rig.padded(rig.command(0, instructions, 0, 64, 4))])).collect();
    for chain in &chains {
        rig.file.exec_cmd(context, *chain, &[rig.data]).unwrap();
    }
    let start = Instant::now();
    let any = [(timeline, 1), (timeline, 2)];
    assert_eq!(wait(&rig.file, &any, 0, after(Duration::from_secs(10))), Err(Errno::ETIME));
    assert_eq!(wait(&rig.file, &any, 0, 0), Err(Errno::ETIME), "polling");
    assert_eq!(points_of(&rig.file, timeline, DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED), 2);
    assert_eq!(rig.state(chains[1]), state::NEW);
    assert_eq!(wait(&rig.file, &any, ALL, after(Duration::from_secs(70))), Ok(0));
    assert_eq!(chains.iter().map(|chain| rig.state(*chain)).collect::<Vec<_>>(), [4, 6, 6]);
    assert!(start.elapsed() < Duration::from_secs(10), "device time passes without waiting for it");
}

#[test]
fn a_point_can_be_waited_for_before_it_is_submitted() {
    let rig = rig_of("6.18", "", "");
    let (context, timeline, instructions) = ready(&rig);
    let command = rig.padded(rig.command(0, instructions, 0, 64, 4));
    let soon = || after(Duration::from_millis(20));
    assert_eq!(wait(&rig.file, &[(timeline, 1)], FOR_SUBMIT, soon()), Err(Errno::ETIME));
    let available = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE;
    assert_eq!(wait(&rig.file, &[(timeline, 1)], available, soon()), Err(Errno::ETIME));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(&rig.file, &[(timeline, 1)], FOR_SUBMIT, after(LONG)));
        let other = scope.spawn(|| wait(&rig.file, &[(timeline, 1)], available, after(LONG)));
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(5));
            rig.file.exec_cmd(context, command, &[rig.data]).unwrap();
        }
        assert_eq!((waiter.join().unwrap(), other.join().unwrap()), (Ok(0), Ok(0)));
    });
}

#[test]
fn points_are_transferred() {
    let rig = rig_of("6.18", "", "");
    let (context, timeline, instructions) = ready(&rig);
    let command = rig.padded(rig.command(0, instructions, 0, 64, 4));
    for _ in 0..2 {
        rig.file.exec_cmd(context, command, &[rig.data]).unwrap();
    }
    let (binary, other) = (object(&rig.file, 0), object(&rig.file, 0));
    for (dst_handle, dst_point) in [(binary, 0), (other, 9)] {
        let mut transfer =
            drm_syncobj_transfer { src_handle: timeline, dst_handle, src_point: 1, dst_point, flags: 0, pad: 0 };
        make(&rig.file, "SYNCOBJ_TRANSFER", &mut transfer).unwrap();
        transfer.src_point = 2;
        assert_eq!(make(&rig.file, "SYNCOBJ_TRANSFER", &mut transfer), Err(Errno::EINVAL));
    }
    assert_eq!(wait(&rig.file, &[(binary, 0), (other, 9)], ALL, after(LONG)), Ok(0));
    assert_eq!(rig.state(command), state::COMPLETED);
}

#[test]
fn objects_travel_as_descriptors() {
    let rig = rig_of("6.18", "", "");
    let (file, descriptors) = (&rig.file, Descriptors::default());
    let handle = object(file, 0);
    let mut export = drm_syncobj_handle { handle, ..Default::default() };
    make_with(file, &descriptors, "SYNCOBJ_HANDLE_TO_FD", &mut export).unwrap();
    let fd = crate::memory::Descriptor::new(export.fd);
    let other = File::open(&rig.device).unwrap();
    let mut import = drm_syncobj_handle { fd: fd.number(), ..Default::default() };
    make_with(&other, &descriptors, "SYNCOBJ_FD_TO_HANDLE", &mut import).unwrap();
    signal(&other, import.handle, 3);
    assert_eq!(wait(file, &[(handle, 3)], ALL, 0), Ok(0));
    let mut unknown = drm_syncobj_handle { fd: 0, ..Default::default() };
    assert_eq!(make_with(&other, &descriptors, "SYNCOBJ_FD_TO_HANDLE", &mut unknown), Err(Errno::EINVAL));
    let flags = DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE;
    let mut no_file = drm_syncobj_handle { handle, flags, fd: -1, ..Default::default() };
    assert_eq!(make_with(&other, &descriptors, "SYNCOBJ_FD_TO_HANDLE", &mut no_file), Err(Errno::EINVAL));
    // A sync file is not an object.
    let mut file_of = drm_syncobj_handle { handle, flags: 1, ..Default::default() };
    make_with(file, &descriptors, "SYNCOBJ_HANDLE_TO_FD", &mut file_of).unwrap();
    let sync_file = crate::memory::Descriptor::new(file_of.fd);
    let mut wrong = drm_syncobj_handle { fd: sync_file.number(), ..Default::default() };
    assert_eq!(make_with(&other, &descriptors, "SYNCOBJ_FD_TO_HANDLE", &mut wrong), Err(Errno::EINVAL));
}

/// EXEC_CMD of a type on one object's point.
fn exec(file: &File, type_: u32, context: u32, handle: u32, point: u64) -> Result<u64, Errno> {
    let (mut handles, mut points) = ([handle], [point]);
    let (cmd_handles, args) = match type_ {
        AMDXDNA_CMD_SUBMIT_DEPENDENCY => (address(&mut handles), address(&mut points)),
        _ => (u64::from(handle), point),
    };
    let mut exec = amdxdna_drm_exec_cmd {
        hwctx: context,
        type_,
        cmd_handles,
        args,
        cmd_count: 1,
        arg_count: 1,
        ..Default::default()
    };
    make(file, "EXEC_CMD", &mut exec).map(|()| exec.seq)
}

#[test]
fn amds_module_orders_contexts_by_objects() {
    // The first command never signals: what depends on it waits until its context is gone.
    let rig = rig_of("legacy", "", "timeout@1");
    let (depends, signals) = (AMDXDNA_CMD_SUBMIT_DEPENDENCY, AMDXDNA_CMD_SUBMIT_SIGNAL);
    let ((context, timeline, instructions), (other, _, _)) = (ready(&rig), ready(&rig));
    let (stuck, start, _) = ready(&rig);
    let never = rig.command(0, instructions, 0, 64, 4);
    let done = object(&rig.file, 0);
    assert_eq!(exec(&rig.file, depends, context, start, 1), Err(Errno::EINVAL), "nothing has the point");
    assert_eq!(rig.file.exec_cmd(stuck, never, &[rig.data]), Ok(0));
    assert_eq!(exec(&rig.file, depends, context, 99, 1), Err(Errno::ENOENT));
    assert_eq!(exec(&rig.file, depends, context, start, 0), Ok(0));
    let command = rig.command(0, instructions, 0, 64, 4);
    assert_eq!(rig.file.exec_cmd(context, command, &[rig.data]), Ok(1));
    assert_eq!(exec(&rig.file, signals, context, done, 7), Ok(0));
    assert_eq!(exec(&rig.file, signals, other, done, 7), Ok(0), "it stays as it is");
    let soon = after(Duration::from_millis(20));
    assert_eq!(wait(&rig.file, &[(done, 7)], ALL, soon), Err(Errno::ETIME));
    assert_eq!(rig.state(command), state::NEW);
    // Other contexts continue.
    let free = rig.command(0, rig.instructions(), 0, 128, 4);
    assert_eq!(rig.run(other, free, &[rig.data]), state::COMPLETED);
    rig.file.destroy_hwctx(stuck).unwrap();
    assert_eq!(wait(&rig.file, &[(done, 7), (timeline, 1)], ALL, after(LONG)), Ok(0));
    assert_eq!(rig.state(command), state::COMPLETED);
    let mainline = rig_of("7.2", "", "");
    assert_eq!(exec(&mainline.file, signals, 1, 1, 1), Err(Errno::EINVAL));
}

#[test]
fn a_context_that_waits_for_ever_can_be_destroyed() {
    let rig = rig_of("legacy", "", "timeout@1");
    let ((context, _, instructions), (stuck, start, _)) = (ready(&rig), ready(&rig));
    rig.file.exec_cmd(stuck, rig.command(0, instructions, 0, 64, 4), &[rig.data]).unwrap();
    exec(&rig.file, AMDXDNA_CMD_SUBMIT_DEPENDENCY, context, start, 0).unwrap();
    let command = rig.command(0, instructions, 0, 64, 4);
    rig.file.exec_cmd(context, command, &[rig.data]).unwrap();
    assert_eq!(rig.file.destroy_hwctx(context), Ok(()));
    assert_eq!(rig.state(command), state::ABORT);
}

#[test]
fn who_waits_for_all_learns_what_was_there_before() {
    let rig = rig_of("7.2", "", "");
    let (context, timeline, instructions) = ready(&rig);
    let done = object(&rig.file, DRM_SYNCOBJ_CREATE_SIGNALED);
    let late = after(LONG);
    assert_eq!(first_of(&rig.file, &[(done, 0)], ALL, late), Ok(0));
    // Nothing completes before a wait: the command never signals on its own.
    let command = rig.padded(rig.command(0, (rig.data, instructions.1), 0, 64, 4));
    rig.file.exec_cmd(context, command, &[]).unwrap();
    assert_eq!(first_of(&rig.file, &[(timeline, 0), (done, 0)], ALL, late), Ok(1));
    let command = rig.padded(rig.command(0, (rig.data, instructions.1), 0, 64, 4));
    rig.file.exec_cmd(context, command, &[]).unwrap();
    assert_eq!(first_of(&rig.file, &[(timeline, 1)], ALL, late), Ok(u32::MAX));
}

#[test]
fn a_fence_that_is_taken_over_keeps_its_point() {
    let rig = rig_of("7.2", "", "");
    let (source, target) = (object(&rig.file, 0), object(&rig.file, 0));
    signal(&rig.file, source, 4);
    let mut transfer =
        drm_syncobj_transfer { src_handle: source, dst_handle: target, src_point: 4, ..Default::default() };
    make(&rig.file, "SYNCOBJ_TRANSFER", &mut transfer).unwrap();
    assert_eq!(points_of(&rig.file, target, 0), 4);
    let plain = object(&rig.file, DRM_SYNCOBJ_CREATE_SIGNALED);
    make(&rig.file, "SYNCOBJ_TRANSFER", &mut drm_syncobj_transfer { src_handle: plain, src_point: 0, ..transfer })
        .unwrap();
    assert_eq!(points_of(&rig.file, target, 0), 0);
}
