//! A trial: the nodes of a self-test, on a device that is opened for them alone.
//!
//! It runs on a thread of its own. When the time is up the thread is left behind with everything it holds, and never waited for:
//! the kernel driver's watchdog, or the end of the process, takes it down. What the program itself has open is not touched.

use super::Outcome;
use super::dispatch::{Place, Trouble, dispatch};
use super::subject::Subject;
use aie_hal::{Arch, Device, DeviceError, KernelArtifact};
use aie_jit_native::kernels::Family;
use aie_jit_native::selftest::{self, Case, Material};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Opens a device for one trial; the error says why it could not.
pub type Open = dyn Fn() -> Result<Arc<dyn Device>, String> + Send + Sync;

/// A case with its kernel.
struct Prepared {
    case: Case,
    material: Material,
    kernel: KernelArtifact,
}

/// What the thread tells.
enum Event {
    /// A case has begun.
    Case(usize),
    Ended(Result<Outcome, String>),
}

/// Tries `subject` on what `open` opens. Making its kernels does not count as time.
///
/// # Errors
/// Why it could not be tried. That says nothing about the subject.
pub fn run(subject: Subject, arch: &Arch, open: &Arc<Open>, limit: Duration) -> Result<Outcome, String> {
    let family = subject.family();
    let place = match subject {
        Subject::Family(_) | Subject::HardwareLoops => Place::Allocated,
        Subject::ImportedMemory => Place::Imported,
    };
    let prepared: Vec<Prepared> =
        selftest::cases(family, arch).into_iter().map(|case| prepare(family, arch, case)).collect::<Result<_, _>>()?;
    if prepared.is_empty() {
        return Err(format!("there is no program for {}", arch.name));
    }
    let names: Vec<String> = prepared.iter().map(|prepared| prepared.case.name()).collect();
    let (events, told) = channel();
    let open = Arc::clone(open);
    let work = move || {
        let ended = attempt(&*open, &prepared, place, &events);
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
                    Some(index) => Ok(Outcome::Hung { case: names[index].clone(), how }),
                    None => Err(format!("opening the NPU: {how}")),
                };
            }
        }
    }
}

fn prepare(family: &'static Family, arch: &Arch, case: Case) -> Result<Prepared, String> {
    let describe = |error: String| format!("{}: {error}", case.name());
    let material = case.material().map_err(describe)?;
    let kernel = (family.build)(&case.node, arch).map_err(|error| describe(error.to_string()))?;
    Ok(Prepared { case, material, kernel })
}

fn attempt(open: &Open, prepared: &[Prepared], place: Place, events: &Sender<Event>) -> Result<Outcome, String> {
    let device = open()?;
    let queue = device.create_queue().map_err(|error| error.to_string())?;
    for (index, Prepared { case, material, kernel }) in prepared.iter().enumerate() {
        let _ = events.send(Event::Case(index));
        let (case_name, ended) = (case.name(), dispatch(&*device, &*queue, material, kernel, place));
        match ended {
            Ok(found) => {
                if let Err(how) = case.judge(&found, &material.expected) {
                    return Ok(Outcome::Wrong { case: case_name, how });
                }
            }
            Err(Trouble::Before(reason)) => return Err(format!("{case_name}: {reason}")),
            Err(Trouble::Meanwhile(cause)) => {
                let how = cause.to_string();
                return Ok(match cause {
                    DeviceError::Timeout(_) | DeviceError::Lost(_) => Outcome::Hung { case: case_name, how },
                    _ => Outcome::Failed { case: case_name, how },
                });
            }
        }
    }
    Ok(Outcome::Right)
}
