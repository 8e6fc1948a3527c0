//! What happened: counts of calls, messages, the stream of calls, and the report at exit.

use crate::call_stream::Stream;
use crate::faults::Fault;
use crate::settings::{Settings, SettingsError};
use crate::standard_error::print;
use aie_driver_mock::npu::fault_plan::CommandFault;
use nix::errno::Errno;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most messages in the report.
const MESSAGES: usize = 200;

#[derive(Debug, Default, Serialize)]
struct CallCount {
    count: u64,
    errors: BTreeMap<String, u64>,
}

/// Counts that are not calls, by their names in the report.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    pub doorbells: u64,
    pub commands_run: u64,
    pub commands_timed_out: u64,
    pub commands_aborted: u64,
    pub commands_failed: u64,
    pub chains_not_run: u64,
}

/// What goes up and down.
#[derive(Debug, Clone, Copy)]
pub enum Level {
    Bos,
    BoBytes,
    Mappings,
    Contexts,
    Syncobjs,
    Files,
}

/// The names of [`Level`]s in the report.
const LEVELS: [&str; 6] = ["bos", "bo_bytes", "mappings", "contexts", "syncobjs", "files"];

/// The journal of a process. Thread-safe.
#[derive(Debug)]
pub struct Journal {
    settings: Arc<Settings>,
    calls: Mutex<BTreeMap<&'static str, CallCount>>,
    created: Mutex<BTreeMap<&'static str, u64>>,
    messages: Mutex<Vec<String>>,
    stream: Option<Stream>,
    commands: AtomicU64,
    user_bos: AtomicU64,
    counts: Mutex<Counts>,
    /// Each [`Level`] now, and its highest value.
    levels: Mutex<[(i64, i64); LEVELS.len()]>,
}

impl Journal {
    /// An empty journal.
    ///
    /// # Errors
    /// When the stream to compare with cannot be read, or the one to write cannot be made.
    pub fn new(settings: Arc<Settings>) -> Result<Self, SettingsError> {
        let stream = Stream::open(settings.record.as_deref(), settings.replay.as_deref())?;
        Ok(Self {
            settings,
            calls: Mutex::default(),
            created: Mutex::default(),
            messages: Mutex::default(),
            stream,
            commands: AtomicU64::new(0),
            user_bos: AtomicU64::new(0),
            counts: Mutex::default(),
            levels: Mutex::default(),
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
        match self.settings.faults.other(occurrence, |fault| fault.of_call(name)) {
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
        if self.settings.log {
            print(&line);
        }
        if let Some(stream) = stream {
            stream.line(line);
        }
    }

    /// Counts a command that starts; its planned fault.
    pub fn command(&self) -> Option<CommandFault> {
        let occurrence = self.commands.fetch_add(1, Ordering::Relaxed) + 1;
        self.settings.faults.command(occurrence)
    }

    /// Counts a BO of the caller's memory; whether it has other pages, as planned.
    pub fn misplaces_pages(&self) -> bool {
        let occurrence = self.user_bos.fetch_add(1, Ordering::Relaxed) + 1;
        let planned = |fault: &Fault| (*fault == Fault::Pages).then_some(());
        let misplaced = self.settings.faults.other(occurrence, planned).is_some();
        if misplaced {
            self.log(|| format!("BO {occurrence} of the caller's memory has other pages, as planned"));
        }
        misplaced
    }

    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock());
    }

    pub fn change(&self, level: Level, change: i64) {
        let mut levels = self.levels.lock();
        let (now, peak) = &mut levels[level as usize];
        *now += change;
        *peak = (*peak).max(*now);
    }

    #[cfg(test)]
    pub fn level(&self, level: Level) -> i64 {
        self.levels.lock()[level as usize].0
    }

    /// All levels by name: what `value` takes of each and its highest value.
    pub fn levels(&self, value: impl Fn(i64, i64) -> i64) -> BTreeMap<&'static str, i64> {
        LEVELS.into_iter().zip(self.levels.lock().map(|(now, peak)| value(now, peak))).collect()
    }

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

    /// The report, in which `devices` say what each of them has done.
    pub fn report(&self, devices: Vec<Value>) -> Value {
        let mut report = json!(*self.counts.lock());
        for count in ["contexts_created", "context_switches", "chains", "commands", "virtual_ns"] {
            report[count] = devices.iter().filter_map(|device| device[count].as_u64()).sum::<u64>().into();
        }
        report["pid"] = std::process::id().into();
        report["kernel"] = if self.settings.host { "host" } else { self.settings.kernel.name() }.into();
        report["devices"] = devices.into();
        report["calls"] = json!(*self.calls.lock());
        report["bos_created"] = json!(*self.created.lock());
        report["peak"] = json!(self.levels(|_, peak| peak));
        report["open_at_exit"] = json!(self.levels(|now, _| now));
        report["messages"] = json!(*self.messages.lock());
        report
    }
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
        journal.change(Level::Bos, 2);
        journal.change(Level::Bos, -1);
        let report = journal.report(Vec::new());
        assert_eq!(report["calls"]["CREATE_BO"], json!({"count": 3, "errors": {"ENOMEM": 1}}));
        assert_eq!((&report["peak"]["bos"], &report["open_at_exit"]["bos"]), (&json!(2), &json!(1)));
        assert_eq!(report["messages"], json!(["CREATE_BO number 2 fails with ENOMEM, as planned"]));
    }
}
