//! What a child that continues after `fork` without `exec` does with its copies: nothing that its parent would notice, and nothing that waits
//! for a thread or a lock that only its parent has. Guard by guard: in whole programs the outermost hides the others. Not tried
//! here is a child that opens an NPU again, and one that ends a session of ROCR.

use crate::accel::node::Node;
use crate::agent::{AT_EXIT_LIMIT, AgentError, AgentInfo, AgentStatus};
use crate::cpu_agent::rig::{JOURNAL, Rig, run, writes};
use crate::npu::{OPEN, close_all};
use amdxdna_sys::amdxdna_drm_create_bo;
use std::time::{Duration, Instant};

/// Longest time for a child; reached only by a defect.
const LIMIT: Duration = Duration::from_secs(10);

/// What a child made of `work`.
#[derive(Debug, PartialEq, Eq)]
enum End {
    True,
    False,
    /// It panicked, or was ended by a signal.
    Badly,
    Never,
}

/// Runs `work` in a forked child, which ends without exit handlers. Here it is only dropped.
fn in_child(work: impl FnOnce() -> bool) -> End {
    // SAFETY: other threads of this process may hold locks, which the child never gets: a child that waits is ended by the limit. The C
    // library makes its own, such as those of the allocator, usable in the child.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "this system makes no child");
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the child without what belongs to its parent.
        unsafe { libc::_exit(result.map_or(2, |good| i32::from(!good))) }
    }
    let (end, mut status) = (Instant::now() + LIMIT, 0);
    loop {
        // SAFETY: the child is this function's, which alone waits for it; the status lives across the call.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
                (true, 0) => End::True,
                (true, 1) => End::False,
                _ => End::Badly,
            };
        }
        if Instant::now() > end {
            // SAFETY: as above; the child has not been waited for, so the number is still its own.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
            }
            return End::Never;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A device with a context.
fn rig() -> Rig {
    let rig = Rig::new();
    let journal = rig.buffer(JOURNAL);
    run(&rig, writes(&[&rig.writer(1)], &journal)).unwrap();
    assert_eq!(rig.agent.contexts(), [1]);
    rig
}

#[test]
fn the_ways_a_child_ends_are_told_apart() {
    let ends = [in_child(|| true), in_child(|| false), in_child(|| std::process::abort())];
    assert_eq!(ends, [End::True, End::False, End::Badly]);
}

/// As destructors of globals do at `exit`.
#[test]
fn a_child_that_drops_an_npu_leaves_its_contexts() {
    let Rig { device, npu, agent } = rig();
    let seen = agent.0.clone();
    let end = in_child(move || {
        drop((device, npu));
        seen.contexts() == [1]
    });
    assert_eq!(end, End::True);
    assert_eq!(agent.contexts(), [0; 0], "the parent has dropped it, too");
}

#[test]
fn a_child_that_drops_a_queue_does_not_wait_for_its_thread() {
    let rig = rig();
    let queue = rig.queue();
    assert_eq!(
        in_child(move || {
            drop(queue);
            true
        }),
        End::True
    );
}

#[test]
fn the_exit_handler_of_a_child_closes_nothing() {
    let rig = rig();
    let end = in_child(|| {
        close_all();
        rig.agent.contexts() == [1] && rig.npu.array.lost().is_none()
    });
    assert_eq!(end, End::True);
}

/// A thread that only the parent has may hold the lock for ever.
#[test]
fn the_exit_handler_of_a_child_waits_for_no_lock() {
    let rig = rig();
    let open = OPEN.lock();
    let end = in_child(|| {
        let begun = Instant::now();
        close_all();
        begun.elapsed() < AT_EXIT_LIMIT / 2
    });
    drop((open, rig));
    assert_eq!(end, End::True);
}

#[test]
fn a_child_asks_the_kernel_for_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let node = Node::open(file.path()).unwrap();
    let parent = format!("opened by process {}, and this is a child", std::process::id());
    let end = in_child(|| {
        let error = node.request(&mut amdxdna_drm_create_bo::default()).unwrap_err();
        error.to_string().contains(&parent)
    });
    assert_eq!(end, End::True);
}

#[test]
fn an_agent_says_in_a_child_whose_it_is() {
    let status = AgentStatus::new(AgentInfo {
        name: "aie2p".into(),
        library: "x".into(),
        runtime: "x".into(),
        streams_apart: false,
        data_bytes: 1,
        data_granule: 1,
        heap_bytes: 1,
    });
    assert!(status.alive().is_ok() && !status.is_inherited());
    let parent = format!("opened by process {}, and a forked child", std::process::id());
    let end = in_child(|| {
        status.is_inherited() && matches!(status.alive(), Err(AgentError::Lost(cause)) if cause.contains(&parent))
    });
    assert_eq!(end, End::True);
}
