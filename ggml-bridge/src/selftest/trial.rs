//! A trial: the nodes of a self-test, on a device that is opened for them alone.
//!
//! It runs on a thread of its own. When the time is up the thread is left behind with everything it holds, and never waited for:
//! the kernel driver's watchdog, or the end of the process, takes it down. What the program itself has open is not touched.

use super::Outcome;
use super::dispatch::{Ended, Place, Trouble, dispatch};
use super::subject::Subject;
use aie_hal::{Arch, Clocks, Device, DeviceError, KernelArtifact};
use aie_jit_native::kernels::Family;
use aie_jit_native::selftest::{self, Case, Material};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Opens a device for one trial; the error says why it could not.
pub type Open = dyn Fn() -> Result<Arc<dyn Device>, String> + Send + Sync;

/// How often each node is computed, with other numbers each time: a result may be there from the time before, and what is wrong now
/// and then is not wrong at first.
pub const ROUNDS: u32 = 3;
/// Bytes at the end of a result that may come later than the word that it is there: a cache line (a comment in mlir-aie's test of many
/// buffers).
const LATE: usize = 64;

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// What it showed.
    pub outcome: Outcome,
    /// How fast the device ran, if it says so.
    pub clocks: Option<Clocks>,
    /// Results whose last line was wrong at first, and right when it was read again.
    pub late_lines: usize,
}

/// A case with its kernel.
struct Prepared {
    case: Case,
    /// For each round.
    materials: Vec<Material>,
    kernel: KernelArtifact,
}

/// What the thread tells.
enum Event {
    /// A case has begun.
    Case(usize),
    Ended(Result<Trial, String>),
}

/// Tries `subject` on what `open` opens, so many times over. Making its kernels does not count as time.
///
/// # Errors
/// Why it could not be tried. That says nothing about the subject.
pub fn run(subject: Subject, arch: &Arch, open: &Arc<Open>, limit: Duration, rounds: u32) -> Result<Trial, String> {
    let family = subject.family();
    let place = match subject {
        Subject::Family(_) | Subject::HardwareLoops => Place::Allocated,
        Subject::ImportedMemory => Place::Imported,
    };
    let cases = selftest::cases(family, arch).into_iter();
    let prepared: Vec<Prepared> = cases.map(|case| prepare(family, arch, case, rounds)).collect::<Result<_, _>>()?;
    if prepared.is_empty() {
        return Err(format!("there is no program for {}", arch.name));
    }
    let names: Vec<String> = prepared.iter().map(|prepared| prepared.case.name()).collect();
    let (events, told) = channel();
    let open = Arc::clone(open);
    let work = move || {
        let ended = attempt(&*open, &prepared, rounds, place, &events);
        // Nobody listens any more when the time was up.
        let _ = events.send(Event::Ended(ended));
    };
    thread::Builder::new().name("ggml-hsa-trial".into()).spawn(work).map_err(|error| error.to_string())?;
    let (deadline, mut current) = (Instant::now() + limit, None);
    loop {
        match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Case(index)) => current = Some(index),
            Ok(Event::Ended(ended)) => return ended,
            Err(RecvTimeoutError::Disconnected) => return Err("its thread has ended without a word".into()),
            Err(RecvTimeoutError::Timeout) => {
                let how = format!("it has not come to its end within {} seconds", limit.as_secs_f32());
                return match current {
                    Some(index) => {
                        let outcome = Outcome::Hung { case: names[index].clone(), how };
                        Ok(Trial { outcome, clocks: None, late_lines: 0 })
                    }
                    None => Err(format!("opening the NPU: {how}")),
                };
            }
        }
    }
}

fn prepare(family: &'static Family, arch: &Arch, case: Case, rounds: u32) -> Result<Prepared, String> {
    let describe = |error: String| format!("{}: {error}", case.name());
    let materials = (0..rounds).map(|round| case.material(round)).collect::<Result<_, _>>().map_err(describe)?;
    let kernel = (family.build)(&case.node, arch).map_err(|error| describe(error.to_string()))?;
    Ok(Prepared { case, materials, kernel })
}

fn attempt(
    open: &Open,
    prepared: &[Prepared],
    rounds: u32,
    place: Place,
    events: &Sender<Event>,
) -> Result<Trial, String> {
    let device = open()?;
    let queue = device.create_queue().map_err(|error| error.to_string())?;
    let mut trial = Trial { outcome: Outcome::Right, clocks: None, late_lines: 0 };
    for round in 0..rounds as usize {
        for (index, Prepared { case, materials, kernel }) in prepared.iter().enumerate() {
            let _ = events.send(Event::Case(index));
            let (case_name, material) = (case.name(), &materials[round]);
            let ended = dispatch(&*device, &*queue, material, kernel, place);
            match ended.and_then(|ended| examined(&ended, case, &material.expected)) {
                Ok(Seen::Right) => {}
                Ok(Seen::LateLine) => trial.late_lines += 1,
                Ok(Seen::Wrong(how)) | Err(Trouble::Outside(how)) => {
                    trial.outcome = Outcome::Wrong { case: case_name, how };
                }
                Err(Trouble::Before(reason)) => return Err(format!("{case_name}: {reason}")),
                Err(Trouble::Meanwhile(cause)) => {
                    let how = cause.to_string();
                    trial.outcome = match cause {
                        DeviceError::Timeout(_) | DeviceError::Lost(_) => Outcome::Hung { case: case_name, how },
                        _ => Outcome::Failed { case: case_name, how },
                    };
                }
            }
            // While its context is there: without one the driver lets the clock fall.
            trial.clocks = device.clocks();
            if trial.outcome != Outcome::Right {
                return Ok(trial);
            }
        }
    }
    Ok(trial)
}

/// What a result is.
enum Seen {
    Right,
    /// Right when it was read again.
    LateLine,
    Wrong(String),
}

fn examined(ended: &Ended, case: &Case, expected: &[u8]) -> Result<Seen, Trouble> {
    let found = ended.result()?;
    let seen = match case.judge(&found, expected) {
        Ok(()) => Seen::Right,
        Err(how) => {
            let (again, line) = (ended.result()?, found.len().saturating_sub(LATE));
            let is_late = again[..line] == found[..line] && case.judge(&again, expected).is_ok();
            if is_late { Seen::LateLine } else { Seen::Wrong(how) }
        }
    };
    ended.check_guards()?;
    Ok(seen)
}
