//! A trial with its record, where it has one.

use super::Outcome;
use super::npu::Npu;
use super::record::{Record, Turn};
use super::subject::Subject;
use super::trial::{self, Open, ROUNDS, Trial};
use crate::config::log;
use aie_hal::{Arch, ArchRegistry, Clocks};
use aie_jit_iron::CachePath;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Tests subjects on one device. Thread-safe.
pub struct Tester {
    open: Arc<Open>,
    limit: Duration,
    rounds: u32,
    /// How fast the device ran in the last trial.
    clocks: Mutex<Option<Clocks>>,
    /// On an NPU: which one, and where outcomes are kept if there is a place.
    kept: Option<(Npu, Option<Record>)>,
}

impl Tester {
    /// On an NPU; outcomes are kept in the cache.
    pub fn of_npu(npu: Npu, arches: ArchRegistry, cache: &CachePath, limit: Duration) -> Self {
        let record = Record::open(cache)
            .inspect_err(|cause| log::warn(&format!("{cause}; outcomes of self-tests are not kept")))
            .ok();
        let opened = npu.clone();
        let open = Arc::new(move || opened.open(&arches).map_err(|cause| cause.to_string()));
        Self::new(open, limit, Some((npu, record)))
    }

    /// On a simulated device; nothing is kept.
    pub fn of_simulated(open: Arc<Open>, limit: Duration) -> Self {
        Self::new(open, limit, None)
    }

    /// On what `open` opens; outcomes are kept for the NPU in the record, if there are both.
    pub fn new(open: Arc<Open>, limit: Duration, kept: Option<(Npu, Option<Record>)>) -> Self {
        Self { open, limit, rounds: ROUNDS, clocks: Mutex::default(), kept }
    }

    /// Computes each node so many times, instead of [`ROUNDS`].
    #[must_use]
    pub fn with_rounds(self, rounds: u32) -> Self {
        Self { rounds: rounds.max(1), ..self }
    }

    /// How fast the device ran in the last trial of this process, if there was one and the device says so.
    pub fn clocks(&self) -> Option<Clocks> {
        *self.clocks.lock()
    }

    /// Where outcomes are kept, if they are.
    pub fn record(&self) -> Option<&Record> {
        self.kept.as_ref()?.1.as_ref()
    }

    /// Forgets what is known.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn forget(&self) -> io::Result<()> {
        let Some((npu, Some(record))) = &self.kept else { return Ok(()) };
        record.turn()?.forget(npu)
    }

    /// What is known of a subject, without a trial.
    pub fn known(&self, subject: Subject, arch: &Arch) -> Option<Outcome> {
        self.with_turn(|kept| kept.and_then(|(turn, npu)| turn.outcome(npu, &subject.key(arch))))
    }

    /// What is known of a subject, or else what a trial shows.
    ///
    /// # Errors
    /// Why there was no trial.
    pub fn known_or_tested(&self, subject: Subject, arch: &Arch) -> Result<Outcome, String> {
        self.with_turn(|kept| match kept.and_then(|(turn, npu)| turn.outcome(npu, &subject.key(arch))) {
            Some(outcome) => Ok(outcome),
            None => self.noted(kept, subject, arch),
        })
    }

    /// What a trial shows, whatever is known.
    ///
    /// # Errors
    /// Why there was no trial.
    pub fn tested(&self, subject: Subject, arch: &Arch) -> Result<Outcome, String> {
        self.with_turn(|kept| self.noted(kept, subject, arch))
    }

    /// Calls `then` with the right to the record, if there is one.
    fn with_turn<T>(&self, then: impl FnOnce(Option<(&Turn<'_>, &Npu)>) -> T) -> T {
        let Some((npu, Some(record))) = &self.kept else { return then(None) };
        match record.turn() {
            Ok(turn) => then(Some((&turn, npu))),
            Err(cause) => {
                log::warn(&format!("{}: {cause}; the outcome of a self-test is not kept", record.path().display()));
                then(None)
            }
        }
    }

    fn noted(&self, kept: Option<(&Turn<'_>, &Npu)>, subject: Subject, arch: &Arch) -> Result<Outcome, String> {
        let note = |outcome: Option<&Outcome>| {
            let Some((turn, npu)) = kept else { return };
            if let Err(cause) =
                turn.note(npu, &subject.key(arch), outcome, subject.is_for_one_boot(arch), self.clocks())
            {
                log::warn(&format!("the outcome of the self-test of {} is not kept: {cause}", subject.name()));
            }
        };
        note(Some(&Outcome::Begun));
        let trial = trial::run(subject, arch, &self.open, self.limit, self.rounds);
        let outcome = trial.map(|Trial { outcome, clocks, late_lines }| {
            *self.clocks.lock() = clocks;
            if late_lines > 0 {
                log::warn(&format!(
                    "the self-test of {}: the last bytes of {late_lines} results came after the NPU had said that they were there",
                    subject.name()
                ));
            }
            outcome
        });
        note(outcome.as_ref().ok());
        outcome
    }
}
