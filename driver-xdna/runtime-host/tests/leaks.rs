//! Nothing is left of helper processes, however they ended: no descriptor, no child, no mapping. One test, because it counts
//! what the whole process has.

mod cpu_agent;
mod helper;

use aie_driver_xdna::isolated::{HostOptions, IsolatedAgent};
use cpu_agent::every_call;
use helper::{options, script, start};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(700);

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn shared_mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains("memfd:cpu-agent")).count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn has_child() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

#[test]
fn the_helper() {
    helper::serve_if_helper();
    // As in a C++ program; Rust's own start-up ignores this signal.
    do_not_ignore_sigpipe();
    let before = (descriptors(), shared_mappings(), threads());
    for _ in 0..3 {
        every_call(&*start("none", LIMIT)).unwrap();
        for fault in ["abort@submit", "abort@allocate", "exit@create_context", "panic@free"] {
            let agent = start(fault, LIMIT);
            let _ = every_call(&*agent);
            every_call(&*agent).unwrap_err();
        }
        every_call(&*start("hang@submit", SHORT)).unwrap_err();
        for fault in ["abort@open", "hang@open", "refuse@because"] {
            IsolatedAgent::start(&options(fault, SHORT)).unwrap_err();
        }
        let garbage = HostOptions { program: Some(script("garbage_host.sh")), ..options("none", LIMIT) };
        IsolatedAgent::start(&garbage).unwrap_err();
        assert!(!has_child());
    }
    // The threads that end last hold nothing but themselves; they are given a moment.
    let end = Instant::now() + Duration::from_secs(5);
    while (descriptors(), shared_mappings(), threads()) != before && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((descriptors(), shared_mappings(), threads()), before);
}

/// Gives SIGPIPE its default action, which ends the process.
fn do_not_ignore_sigpipe() {
    // SAFETY: The default action runs no code of this process, and only this test runs in it.
    let former = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    assert_ne!(former, libc::SIG_ERR);
}
