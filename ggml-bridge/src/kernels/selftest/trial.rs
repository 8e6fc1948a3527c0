//! A trial: the nodes of a self-test, on a device that is opened for them alone.
//!
//! It runs on a thread of its own. When the time is up the thread is left behind with everything it holds, and never waited for:
//! the kernel driver's watchdog, or the end of the process, takes it down. What the program itself has open is not touched.

use super::Outcome;
use super::dispatch::{Ended, Order, Place, Trouble, dispatch_all};
use super::subject::Subject;
use aie_hal::{Arch, Clocks, Device, DeviceError, KernelArtifact};
use aie_jit_native::kit::{Case, Family, Material};
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

/// How many dispatches are submitted together, and how they depend on each other. Of two arguments each, they become one with 2, 4, 6,
/// 8 and 16 arguments, and at last two of 16 in a chain.
const TOGETHER: [(u32, Order); 7] = [
    (1, Order::Any),
    (2, Order::Any),
    (3, Order::Any),
    (4, Order::Any),
    (3, Order::Chained),
    (8, Order::Any),
    (16, Order::Any),
];
/// What is submitted so. Of an odd number of them, each on the result of the one before, the last has the result of the first.
const JOINED: &str = "NEG";

/// A case with its kernel.
struct Prepared {
    case: Case,
    order: Order,
    /// For each round those of all dispatches.
    materials: Vec<Vec<Material>>,
    kernel: KernelArtifact,
}

impl Prepared {
    fn name(&self) -> String {
        let how = if self.order == Order::Chained { ", each on the result of the one before" } else { "" };
        match self.materials.first().map_or(1, Vec::len) {
            1 => self.case.name(),
            count => format!("{} {count} times together{how}", self.case.name()),
        }
    }
}

/// What the thread tells.
enum Event {
    /// A case has begun.
    Case(usize),
    Ended(Result<Trial, String>),
}

/// How many nodes a trial computes in each round.
pub fn nodes(subject: Subject, arch: &Arch) -> usize {
    match subject {
        Subject::JoinedDispatches => TOGETHER.iter().map(|(count, _)| *count as usize).sum(),
        _ => subject.family().cases_on(arch).len(),
    }
}

/// Tries `subject` on what `open` opens, so many times over. Making its kernels does not count as time.
///
/// # Errors
/// Why it could not be tried. That says nothing about the subject.
pub fn run(subject: Subject, arch: &Arch, open: &Arc<Open>, limit: Duration, rounds: u32) -> Result<Trial, String> {
    let family = subject.family();
    let place = match subject {
        Subject::Family(_) | Subject::HardwareLoops | Subject::JoinedDispatches => Place::Allocated,
        Subject::ImportedMemory => Place::Imported,
    };
    let mut cases = family.cases_on(arch).into_iter();
    let one = |case| prepare(family, arch, case, rounds, (1, Order::Any));
    let prepared: Vec<Prepared> = match subject {
        Subject::JoinedDispatches => {
            let case = cases.find(|case| case.node.op == JOINED);
            let case = case.ok_or_else(|| format!("there is no program for {}", arch.name))?;
            TOGETHER
                .iter()
                .map(|together| prepare(family, arch, case.clone(), rounds, *together))
                .collect::<Result<_, _>>()?
        }
        _ => cases.map(one).collect::<Result<_, _>>()?,
    };
    if prepared.is_empty() {
        return Err(format!("there is no program for {}", arch.name));
    }
    let names: Vec<String> = prepared.iter().map(Prepared::name).collect();
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
            Err(RecvTimeoutError::Disconnected) => return Err("its thread exited without a result".into()),
            Err(RecvTimeoutError::Timeout) => {
                let how = format!("no result within {} seconds", limit.as_secs_f32());
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

fn prepare(
    family: &'static Family,
    arch: &Arch,
    case: Case,
    rounds: u32,
    (count, order): (u32, Order),
) -> Result<Prepared, String> {
    let describe = |error: String| format!("{}: {error}", case.name());
    let of_round = |round| (0..count).map(|index| case.material(round * count + index)).collect();
    let materials = (0..rounds).map(of_round).collect::<Result<_, _>>().map_err(describe)?;
    let kernel = family.kernel_of(&case, arch).map_err(|error| describe(error.to_string()))?;
    Ok(Prepared { case, order, materials, kernel })
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
        for (index, one) in prepared.iter().enumerate() {
            let _ = events.send(Event::Case(index));
            let (case_name, materials) = (one.name(), &one.materials[round]);
            let ended = dispatch_all(&*device, &*queue, materials, &one.kernel, place, one.order);
            match ended.and_then(|ended| all_examined(&ended, one, materials)) {
                Ok((late_lines, None)) => trial.late_lines += late_lines,
                Ok((_, Some(how))) | Err(Trouble::Outside(how)) => {
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

/// The late lines of what was submitted together, and what is wrong, if anything is.
fn all_examined(
    ended: &[Ended],
    prepared: &Prepared,
    materials: &[Material],
) -> Result<(usize, Option<String>), Trouble> {
    let mut late_lines = 0;
    for (index, (one, material)) in ended.iter().zip(materials).enumerate() {
        let expected = match prepared.order {
            Order::Any => &material.expected,
            Order::Chained if index % 2 == 0 => &materials[0].expected,
            Order::Chained => &materials[0].sources[0],
        };
        match examined(one, &prepared.case, expected)? {
            Seen::Right => {}
            Seen::LateLine => late_lines += 1,
            Seen::Wrong(how) if ended.len() == 1 => return Ok((late_lines, Some(how))),
            Seen::Wrong(how) => return Ok((late_lines, Some(format!("dispatch {}: {how}", index + 1)))),
        }
    }
    Ok((late_lines, None))
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
