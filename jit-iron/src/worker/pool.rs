//! The workers of a compiler: started when needed, lent one job at a time.

use super::ending::{Captured, Listener};
use super::process::WorkerProcess;
use super::protocol::{self, Greeting};
use super::{WorkerCommand, WorkerLimits};
use aie_ops::compiler::CompileError;
use parking_lot::{Condvar, Mutex};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long all workers together may take to end after they were asked to, before they are killed.
const GRACE: Duration = Duration::from_millis(500);
/// After so many failed starts in a row, no more are tried: each may take a minute, and there are hundreds of kernels.
const MOST_FAILED_STARTS: u32 = 3;
/// The beginning of what an IRON worker says when Python does not find a module.
const IMPORT_FAILED: &str = "Failed to import kernel build module";

/// See the module.
pub(super) struct Pool {
    /// Of the compiler, for messages.
    pub name: String,
    pub command: WorkerCommand,
    pub limits: WorkerLimits,
    /// Where workers' folders are made.
    pub parent: PathBuf,
    pub listener: Option<Arc<Listener>>,
    /// The identity of the first worker, or the expected one; all must report the same.
    pub identity: OnceLock<String>,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<WorkerProcess>,
    /// Lent, or being started.
    lent: usize,
    next_job: u64,
    failed_starts: u32,
    /// Why no worker will ever start.
    given_up: Option<String>,
}

/// A worker, for one job. It goes back to the pool if it is said to be usable; otherwise it is ended.
pub(super) struct Lease<'a> {
    pool: &'a Pool,
    worker: Option<WorkerProcess>,
    usable: bool,
}

/// Why a worker did not start.
enum StartError {
    /// The next one may.
    Failed(String),
    /// Its toolchain is missing, for every other worker too.
    NoToolchain(String),
}

impl Pool {
    /// A pool without workers.
    pub fn new(name: String, command: WorkerCommand) -> Self {
        let (limits, parent) = (WorkerLimits::default(), std::env::temp_dir());
        let (state, returned) = (Mutex::default(), Condvar::new());
        Self { name, command, limits, parent, listener: None, identity: OnceLock::new(), state, returned }
    }

    /// The workers' identity; starts one if it is not known.
    pub fn identity(&self) -> Result<String, CompileError> {
        if let Some(identity) = self.identity.get() {
            return Ok(identity.clone());
        }
        self.lend()?.give_back();
        Ok(self.identity.get().cloned().unwrap_or_default())
    }

    /// The number of a new job.
    pub fn next_job(&self) -> u64 {
        let mut state = self.state.lock();
        state.next_job += 1;
        state.next_job
    }

    /// A worker: an idle one, else a new one, else the first that comes back.
    pub fn lend(&self) -> Result<Lease<'_>, CompileError> {
        let mut state = self.state.lock();
        let idle = loop {
            if let Some(reason) = &state.given_up {
                return Err(CompileError::Unavailable(reason.clone()));
            }
            if let Some(worker) = state.idle.pop() {
                break Some(worker);
            }
            if state.lent < self.limits.workers.max(1) {
                break None;
            }
            self.returned.wait(&mut state);
        };
        state.lent += 1;
        drop(state);
        let mut lease = Lease { pool: self, worker: idle, usable: false };
        // One that died meanwhile, or sent something unasked, is replaced.
        if lease.worker.as_ref().is_none_or(|worker| !worker.is_ready()) {
            lease.worker = None;
            lease.worker = Some(self.start()?);
        }
        Ok(lease)
    }

    fn start(&self) -> Result<WorkerProcess, CompileError> {
        let started = self.try_start();
        let mut state = self.state.lock();
        match started {
            Ok(worker) => {
                state.failed_starts = 0;
                return Ok(worker);
            }
            Err(StartError::NoToolchain(reason)) => state.given_up = Some(reason),
            Err(StartError::Failed(reason)) => {
                state.failed_starts += 1;
                if state.failed_starts < MOST_FAILED_STARTS {
                    return Err(CompileError::Unavailable(reason));
                }
                let times = state.failed_starts;
                state.given_up = Some(format!("{reason} ({times} starts in a row failed; giving up)"));
            }
        }
        self.returned.notify_all();
        Err(CompileError::Unavailable(state.given_up.clone().unwrap_or_default()))
    }

    /// Starts a worker and reads its greeting.
    fn try_start(&self) -> Result<WorkerProcess, StartError> {
        let (name, program) = (&self.name, self.command.program.display().to_string());
        let started = WorkerProcess::start(&self.command, &self.limits, &self.parent);
        let mut worker = started.map_err(|error| StartError::Failed(error.to_string()))?;
        let mut captured = Captured::new(self.limits.output_bytes, "", self.listener.as_deref());
        let line = worker
            .ask(&[], self.limits.hello, &mut captured)
            .map_err(|ending| StartError::Failed(ending.of_start(name, &program, &self.limits, &captured)))?;
        let wrong = |what| StartError::Failed(format!("the {name} compiler does not start: {program} {what}"));
        match serde_json::from_slice(&line) {
            Ok(Greeting::Hello { protocol: protocol::VERSION, identity, .. }) => {
                let first = self.identity.get_or_init(|| identity.clone());
                if *first != identity {
                    let text = format!(
                        "is \"{identity}\", not \"{first}\": it is from another version, or was replaced; install both from one \
                         build, and restart this program"
                    );
                    return Err(wrong(text));
                }
            }
            Ok(Greeting::Hello { protocol: other, .. }) => {
                let expected = protocol::VERSION;
                return Err(wrong(format!(
                    "speaks version {other} of the protocol, this library version {expected}; install both from one build"
                )));
            }
            Ok(Greeting::Unavailable(reason)) => return Err(StartError::NoToolchain(with_hint(reason))),
            Err(error) => {
                return Err(wrong(format!("sent {} instead of a greeting: {error}", protocol::quote(&line))));
            }
        }
        if self.command.sweep_after_each {
            worker.spare_present();
        }
        Ok(worker)
    }
}

/// A worker's reason, with what to do about it where that is known.
pub(super) fn with_hint(reason: String) -> String {
    if reason.starts_with(IMPORT_FAILED) {
        format!("{reason} (the IRON environment is not active: source env_setup.sh)")
    } else {
        reason
    }
}

impl Lease<'_> {
    /// The worker.
    pub fn worker(&mut self) -> Option<&mut WorkerProcess> {
        self.worker.as_mut()
    }

    /// Returns a worker that can be given another job.
    pub fn give_back(mut self) {
        self.usable = true;
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if !self.usable {
            // Ended before it stops to count, so that there are never more than the limit.
            self.worker = None;
        }
        let mut state = self.pool.state.lock();
        state.lent -= 1;
        state.idle.extend(self.worker.take());
        drop(state);
        self.pool.returned.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let workers = &mut self.state.get_mut().idle;
        workers.iter_mut().for_each(WorkerProcess::close_input);
        let end = Instant::now() + GRACE;
        workers.iter().for_each(|worker| worker.wait_until(end));
        workers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn pool(script: &str, workers: usize) -> (tempfile::TempDir, Pool) {
        let parent = tempfile::tempdir().unwrap();
        let command = WorkerCommand::new("sh", ["-c", script]);
        let limits = WorkerLimits { workers, hello: Duration::from_millis(300), ..WorkerLimits::default() };
        let mut pool = Pool::new("test".into(), command);
        (pool.limits, pool.parent) = (limits, parent.path().into());
        (parent, pool)
    }

    fn reason<T>(result: Result<T, CompileError>) -> String {
        match result {
            Err(CompileError::Unavailable(reason)) => reason,
            Err(error) => panic!("{error:?}"),
            Ok(_) => panic!("it started"),
        }
    }

    /// A worker that says hello, and `then`.
    fn hello(then: &str) -> String {
        format!("echo '{{\"hello\":{{\"protocol\":1,\"compiler\":\"test\",\"identity\":\"one\"}}}}'; {then}")
    }

    #[test]
    fn one_worker_is_kept_and_used_again() {
        let (_parent, pool) = pool(&hello("cat"), 2);
        assert_eq!(pool.identity().unwrap(), "one");
        let first = format!("{:?}", pool.lend().unwrap().worker().unwrap());
        assert_eq!(pool.state.lock().idle.len(), 0, "a lease that is not given back ends its worker");
        let mut lease = pool.lend().unwrap();
        let second = format!("{:?}", lease.worker().unwrap());
        assert_ne!(first, second);
        lease.give_back();
        assert_eq!(format!("{:?}", pool.lend().unwrap().worker().unwrap()), second);
    }

    #[test]
    fn who_finds_no_worker_waits_for_one() {
        let (_parent, pool) = pool(&hello("cat"), 1);
        let lease = pool.lend().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.lend().map(Lease::give_back).is_ok());
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished());
            lease.give_back();
            assert!(waiting.join().unwrap());
        });
        assert_eq!(pool.state.lock().idle.len(), 1);
    }

    #[rstest]
    #[case::ended(&hello("exit"))]
    #[case::talks(&hello("echo more; cat"))]
    fn idle_workers_that_are_not_ready_are_replaced(#[case] script: &str) {
        let (_parent, pool) = pool(script, 1);
        // The second line may come with the first, so that the worker does not even start.
        if let Ok(lease) = pool.lend() {
            lease.give_back();
        }
        std::thread::sleep(Duration::from_millis(50));
        let idle = |pool: &Pool| pool.state.lock().idle.first().map(|worker| format!("{worker:?}"));
        let before = idle(&pool);
        let lent = pool.lend().map(|mut lease| format!("{:?}", lease.worker().unwrap())).ok();
        assert!(lent.is_none() || lent != before);
    }

    #[test]
    fn a_missing_toolchain_is_tried_once() {
        let state = tempfile::tempdir().unwrap();
        let message = "Failed to import kernel build module: No module named 'numpy'";
        let script = format!("echo >> {}/starts; echo '{{\"unavailable\":\"{message}\"}}'", state.path().display());
        let script = script.replace("'numpy'", "'\\''numpy'\\''");
        let (_parent, pool) = pool(&script, 2);
        let expected = format!("{message} (the IRON environment is not active: source env_setup.sh)");
        assert_eq!(reason(pool.lend()), expected);
        assert_eq!(reason(pool.identity()), expected);
        assert_eq!(std::fs::read(state.path().join("starts")).unwrap(), b"\n");
    }

    #[rstest]
    #[case("exec sleep 1000", "sh printed nothing for 0.3 s and was stopped")]
    #[case("echo why >&2; exit 3", "sh ended with exit status 3 instead of answering; its last output: why")]
    #[case("echo hi; cat", "sh sent \"hi\" instead of a greeting")]
    #[case(
        "echo '{\"hello\":{\"protocol\":2,\"compiler\":\"x\",\"identity\":\"y\"}}'; cat",
        "sh speaks version 2 of the protocol"
    )]
    fn starts_that_fail_are_tried_three_times(#[case] script: &str, #[case] expected: &str) {
        let (_parent, pool) = pool(script, 1);
        let expected = format!("the test compiler does not start: {expected}");
        for _ in 0..2 {
            let text = reason(pool.lend());
            assert!(text.starts_with(&expected) && !text.contains("any more"), "{text}");
        }
        for _ in 0..2 {
            let text = reason(pool.lend());
            assert!(text.starts_with(&expected) && text.contains("3 starts in a row failed"), "{text}");
        }
        assert_eq!(pool.state.lock().failed_starts, MOST_FAILED_STARTS);
    }

    #[test]
    fn a_toolchain_that_changes_is_noticed() {
        let state = tempfile::tempdir().unwrap();
        let counter = state.path().join("starts");
        let script = format!(
            "echo >> {0}; echo \"{{\\\"hello\\\":{{\\\"protocol\\\":1,\\\"compiler\\\":\\\"x\\\",\\\"identity\\\":\\\"$(wc -l < {0})\\\"}}}}\"; cat",
            counter.display()
        );
        let (_parent, pool) = pool(&script, 1);
        drop(pool.lend().unwrap());
        let text = reason(pool.lend());
        assert!(text.contains("is \"2\", not \"1\": it is from another version, or was replaced"), "{text}");
    }
}
