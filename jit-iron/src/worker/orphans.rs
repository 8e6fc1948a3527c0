//! The processes that belong to a worker, also those that left its group.
//!
//! A compiler starts programs, and those start others. Most stay in the worker's process group, which one signal ends. A
//! program that made itself a daemon is in another group and session and has another parent, but it inherited the environment
//! that the worker was started with, and in it a mark that no other process has.

use crate::settings::GGML_HSA_JIT_JOB;
use procfs::process::{Stat, all_processes};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often processes that are about to end are polled.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// How many times in a row no process must be found: a process may start another one, unseen, while the list is read.
const CLEAN_LOOKS: u32 = 2;

/// A process: its number, and when it was started, in ticks since the machine was, because numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pid: i32,
    started: u64,
}

/// A value for [`GGML_HSA_JIT_JOB`].
pub(super) fn new_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Each state has keys from the system's random numbers.
    let random = RandomState::new().hash_one(number);
    format!("{}-{number}-{random:016x}", getpid().as_raw_nonzero())
}

/// A worker and its descendants.
#[derive(Debug, Clone)]
pub(super) struct Family {
    /// The worker, which leads a process group and is not reaped: else its number may be another process's.
    pub leader: Pid,
    /// Value of [`GGML_HSA_JIT_JOB`].
    pub mark: String,
}

impl Family {
    /// The running processes that have the mark, are in the leader's group or descend from it; without the leader and the
    /// caller. Processes whose environment this user may not read are known by the other signs only.
    pub fn members(&self) -> Vec<Process> {
        let leader = self.leader.as_raw_nonzero().get();
        let stats: Vec<Stat> =
            all_processes().into_iter().flatten().flatten().filter_map(|process| process.stat().ok()).collect();
        let mut descendants = HashSet::from([leader]);
        // Numbers wrap around, so a child may come before its parent.
        loop {
            let before = descendants.len();
            let children = stats.iter().filter(|stat| descendants.contains(&stat.ppid)).map(|stat| stat.pid);
            let children: Vec<i32> = children.collect();
            descendants.extend(children);
            if descendants.len() == before {
                break;
            }
        }
        let own = getpid().as_raw_nonzero().get();
        let belongs = |stat: &&Stat| {
            let running = ![leader, own].contains(&stat.pid) && !matches!(stat.state, 'Z' | 'X');
            running && (stat.pgrp == leader || descendants.contains(&stat.pid) || self.marked(stat.pid))
        };
        stats.iter().filter(belongs).map(Process::of).collect()
    }

    fn marked(&self, pid: i32) -> bool {
        let environment = procfs::process::Process::new(pid).and_then(|process| process.environ());
        environment.is_ok_and(|variables| {
            variables.get(OsStr::new(GGML_HSA_JIT_JOB.name)).is_some_and(|mark| *mark == *self.mark)
        })
    }

    /// Kills every member that is not in `spared`, and those that they start meanwhile, until there is none. Returns how many
    /// are left after `limit`: processes in an uninterruptible call to the kernel, or of another user.
    pub fn sweep(&self, spared: &[Process], limit: Duration) -> usize {
        let end = Instant::now() + limit;
        let mut clean = 0;
        loop {
            let mut left = self.members();
            left.retain(|process| !spared.contains(process));
            if left.is_empty() {
                clean += 1;
                if clean == CLEAN_LOOKS {
                    return 0;
                }
                continue;
            }
            clean = 0;
            left.iter().for_each(Process::kill);
            if Instant::now() >= end {
                return left.len();
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

impl Process {
    fn of(stat: &Stat) -> Self {
        Self { pid: stat.pid, started: stat.starttime }
    }

    /// The process that has the number now.
    fn with_pid(pid: i32) -> Option<Self> {
        Some(Self::of(&procfs::process::Process::new(pid).ok()?.stat().ok()?))
    }

    /// Kills this process and no later one with its number.
    pub fn kill(&self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let open = pidfd_open(pid, PidfdFlags::empty());
        if Self::with_pid(self.pid) != Some(*self) {
            return;
        }
        // An error means that it has just ended, or that it is not ours to kill, which the next look shows.
        let _ = match open {
            Ok(fd) => pidfd_send_signal(fd, Signal::KILL),
            // A kernel or a sandbox without such descriptors.
            Err(Errno::NOSYS | Errno::PERM) => kill_process(pid, Signal::KILL),
            Err(error) => Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    const LIMIT: Duration = Duration::from_secs(10);

    /// A shell that leads a group, has a mark, runs `script` and then waits.
    fn family(script: &str) -> (Child, Family) {
        let mark = new_mark();
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{script}\necho ready\nexec sleep 1000"));
        let mut leader =
            command.env(GGML_HSA_JIT_JOB.name, &mark).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 6];
        leader.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let family = Family { leader: Pid::from_child(&leader), mark };
        (leader, family)
    }

    fn end(mut leader: Child, family: &Family) {
        leader.kill().unwrap();
        assert_eq!(family.sweep(&[], LIMIT), 0);
        leader.wait().unwrap();
    }

    #[test]
    fn marks_differ() {
        let marks: HashSet<String> = (0..100).map(|_| new_mark()).collect();
        assert_eq!(marks.len(), 100);
    }

    #[test]
    fn children_daemons_and_those_without_the_mark_are_found_and_killed() {
        let children =
            "sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000 &' & env -i sleep 1000 & env -i setsid sleep 1000 &";
        let (leader, family) = family(children);
        let start = Instant::now();
        // The last ones appear when their programs have started.
        while family.members().len() < 5 {
            assert!(start.elapsed() < LIMIT, "{:?}", family.members());
            std::thread::sleep(LOOK_INTERVAL);
        }
        assert_eq!(family.sweep(&[], LIMIT), 0);
        assert_eq!(family.members(), []);
        end(leader, &family);
    }

    #[test]
    fn spared_processes_and_strangers_are_left_alone() {
        let mut stranger = Command::new("sleep").arg("1000").spawn().unwrap();
        let (leader, family) = family("sleep 1000 &");
        let spared = family.members();
        assert_eq!(spared.len(), 1);
        assert_eq!(family.sweep(&spared, LIMIT), 0);
        assert_eq!(family.members(), spared);
        end(leader, &family);
        assert_eq!(family.members(), []);
        assert!(stranger.try_wait().unwrap().is_none());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn a_process_that_keeps_starting_itself_anew_is_caught() {
        // Every instance starts the next one as a daemon and ends.
        let script = "hop() { setsid sh -c \"$HOP\" & }\nexport HOP='sleep 0.005; setsid sh -c \"$HOP\" &'\nhop";
        let (leader, family) = family(script);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(family.sweep(&[], LIMIT), 0);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(family.members(), []);
        end(leader, &family);
    }

    #[test]
    fn only_the_process_that_was_meant_is_killed() {
        // The name of a program is in the list of processes, and may have anything in it.
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a) S (b 7) c");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg0("sleep").arg("1000").spawn().unwrap();
        let process = Process::with_pid(i32::try_from(child.id()).unwrap()).unwrap();
        Process { started: process.started + 1, ..process }.kill();
        assert!(child.try_wait().unwrap().is_none());
        process.kill();
        assert!(!child.wait().unwrap().success());
    }
}
