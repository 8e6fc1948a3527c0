//! What happened: counts of calls, messages, the stream of calls, and the report at exit.

use crate::call_stream::Stream;
use crate::node::Device;
use crate::settings::Settings;
use aie_driver_mock::npu::fault_plan::CommandFault;
use nix::errno::Errno;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Most messages in the report.
const MESSAGES: usize = 200;

#[derive(Debug, Default, Clone)]
struct CallCount {
    count: u64,
    errors: BTreeMap<String, u64>,
}

/// A number that goes up and down, and its highest value.
#[derive(Debug, Default)]
pub struct Gauge {
    now: AtomicI64,
    peak: AtomicI64,
}

impl Gauge {
    /// Adds `change`.
    pub fn change(&self, change: i64) {
        let now = self.now.fetch_add(change, Ordering::Relaxed) + change;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    /// The value now.
    pub fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    fn peak(&self) -> i64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// Counts that are not calls.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are those of the report, whose documentation is in the crate's")]
pub struct Counts {
    pub doorbells: AtomicU64,
    pub commands_run: AtomicU64,
    pub commands_timed_out: AtomicU64,
    pub commands_aborted: AtomicU64,
    pub commands_failed: AtomicU64,
    pub chains_not_run: AtomicU64,
    pub bos: Gauge,
    pub bo_bytes: Gauge,
    pub mappings: Gauge,
    pub contexts: Gauge,
    pub syncobjs: Gauge,
    pub files: Gauge,
}

impl Counts {
    fn gauges(&self, value: impl Fn(&Gauge) -> i64) -> Value {
        let Self { bos, bo_bytes, mappings, contexts, syncobjs, files, .. } = self;
        json!({
            "bos": value(bos),
            "bo_bytes": value(bo_bytes),
            "mappings": value(mappings),
            "contexts": value(contexts),
            "syncobjs": value(syncobjs),
            "files": value(files),
        })
    }
}

/// The journal of a process. Thread-safe.
#[derive(Debug)]
pub struct Journal {
    settings: Arc<Settings>,
    calls: Mutex<BTreeMap<&'static str, CallCount>>,
    created: Mutex<BTreeMap<&'static str, u64>>,
    messages: Mutex<Vec<String>>,
    stream: Option<Stream>,
    commands: AtomicU64,
    /// Counts that are not calls.
    pub counts: Counts,
}

impl Journal {
    /// An empty journal.
    ///
    /// # Errors
    /// When the stream to compare with cannot be read, or the one to write cannot be made.
    pub fn new(settings: Arc<Settings>) -> Result<Self, String> {
        let stream = Stream::open(settings.record.as_deref(), settings.replay.as_deref())?;
        Ok(Self {
            settings,
            calls: Mutex::default(),
            created: Mutex::default(),
            messages: Mutex::default(),
            stream,
            commands: AtomicU64::new(0),
            counts: Counts::default(),
        })
    }

    /// Counts a call that starts.
    ///
    /// # Errors
    /// The fault that is planned for it; it must then have no effect.
    pub fn enter(&self, name: &'static str) -> Result<(), Errno> {
        let occurrence = {
            let mut calls = self.calls.lock();
            let call = calls.entry(name).or_default();
            call.count += 1;
            call.count
        };
        match self.settings.faults.other(occurrence, |(call, errno)| (call == name).then_some(*errno)) {
            None => Ok(()),
            Some(errno) => {
                self.log(|| format!("{name} number {occurrence} fails with {errno:?}, as planned"));
                Err(errno)
            }
        }
    }

    /// Notes how a call ended. `detail` describes it without addresses, for the stream.
    pub fn leave<T>(&self, name: &'static str, detail: impl FnOnce() -> String, result: &Result<T, Errno>) {
        self.ended(name, detail, result, self.stream.as_ref());
    }

    /// As [`Journal::leave`], for a call that a thread of the runtime makes at any time: it is not part of the stream.
    pub fn leave_unordered<T>(&self, name: &'static str, result: &Result<T, Errno>) {
        self.ended(name, String::new, result, None);
    }

    fn ended<T>(
        &self,
        name: &'static str,
        detail: impl FnOnce() -> String,
        result: &Result<T, Errno>,
        stream: Option<&Stream>,
    ) {
        let error = result.as_ref().err().map(|errno| format!("{errno:?}"));
        if let Some(error) = &error {
            let mut calls = self.calls.lock();
            *calls.entry(name).or_default().errors.entry(error.clone()).or_default() += 1;
        }
        if stream.is_none() && !self.settings.log {
            return;
        }
        let detail = detail();
        let space = if detail.is_empty() { "" } else { " " };
        let line = format!("{name}{space}{detail} = {}", error.as_deref().unwrap_or("ok"));
        if let Some(stream) = stream {
            stream.line(&line);
        }
        if self.settings.log {
            print(&line);
        }
    }

    /// Counts a command that starts; its planned fault.
    pub fn command(&self) -> Option<CommandFault> {
        let occurrence = self.commands.fetch_add(1, Ordering::Relaxed) + 1;
        self.settings.faults.command(occurrence)
    }

    /// Counts a BO of a type.
    pub fn bo_created(&self, kind: &'static str) {
        *self.created.lock().entry(kind).or_default() += 1;
    }

    /// Logs a message: to the report, and to standard error with `AMDXDNA_SIM_LOG`.
    pub fn log(&self, message: impl FnOnce() -> String) {
        let mut messages = self.messages.lock();
        if messages.len() >= MESSAGES && !self.settings.log {
            return;
        }
        let message = message();
        if self.settings.log {
            print(&message);
        }
        if messages.len() < MESSAGES {
            messages.push(message);
        }
    }

    /// The first difference to the stream that was to be repeated, if there is one.
    pub fn difference(&self) -> Option<String> {
        self.stream.as_ref().and_then(Stream::finish)
    }

    pub fn report(&self, devices: &[Arc<Device>]) -> Value {
        let calls = self.calls.lock();
        let calls =
            calls.iter().map(|(name, call)| ((*name).to_owned(), json!({"count": call.count, "errors": call.errors})));
        let calls: serde_json::Map<String, Value> = calls.collect();
        let counts = &self.counts;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let npus: Vec<_> = devices.iter().map(|device| device.npu().counts()).collect();
        let describe = |device: &Arc<Device>| {
            let counts = device.npu().counts();
            json!({
                "arch": device.arch().name,
                "pci": device.address(),
                "contexts_created": counts.contexts_created,
                "context_switches": counts.context_switches,
                "chains": counts.chains,
                "commands": counts.commands,
                "virtual_ns": device.npu().elapsed_ns(),
                "lost": device.is_lost(),
            })
        };
        json!({
            "pid": std::process::id(),
            "kernel": if self.settings.host { "host" } else { self.settings.kernel.name() },
            "devices": devices.iter().map(describe).collect::<Vec<_>>(),
            "calls": calls,
            "contexts_created": npus.iter().map(|c| c.contexts_created).sum::<u64>(),
            "context_switches": npus.iter().map(|c| c.context_switches).sum::<u64>(),
            "chains": npus.iter().map(|c| c.chains).sum::<u64>(),
            "commands": npus.iter().map(|c| c.commands).sum::<u64>(),
            "commands_run": load(&counts.commands_run),
            "commands_timed_out": load(&counts.commands_timed_out),
            "commands_aborted": load(&counts.commands_aborted),
            "commands_failed": load(&counts.commands_failed),
            "chains_not_run": load(&counts.chains_not_run),
            "doorbells": load(&counts.doorbells),
            "virtual_ns": devices.iter().map(|device| device.npu().elapsed_ns()).sum::<u64>(),
            "bos_created": *self.created.lock(),
            "peak": counts.gauges(Gauge::peak),
            "open_at_exit": counts.gauges(Gauge::now),
            "messages": *self.messages.lock(),
        })
    }
}

/// Writes a line to standard error in one piece.
pub fn print(message: &str) {
    let line = format!("amdxdna-sim: {message}\n");
    // SAFETY: writes the bytes of a live string. A failure cannot be reported.
    unsafe { libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_with_their_errors() {
        let faults = crate::faults::parse("CREATE_BO@2=ENOMEM").unwrap();
        let journal = Journal::new(Arc::new(Settings { faults, ..Settings::default() })).unwrap();
        for expected in [Ok(()), Err(Errno::ENOMEM), Ok(())] {
            let result = journal.enter("CREATE_BO");
            assert_eq!(result, expected);
            journal.leave("CREATE_BO", String::new, &result);
        }
        journal.counts.bos.change(2);
        journal.counts.bos.change(-1);
        let report = journal.report(&[]);
        assert_eq!(report["calls"]["CREATE_BO"], json!({"count": 3, "errors": {"ENOMEM": 1}}));
        assert_eq!((&report["peak"]["bos"], &report["open_at_exit"]["bos"]), (&json!(2), &json!(1)));
        assert_eq!(report["messages"], json!(["CREATE_BO number 2 fails with ENOMEM, as planned"]));
    }
}
