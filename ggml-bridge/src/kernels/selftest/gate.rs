//! Which families may be used on an NPU, for the kernel store, with which form of loops, whether dispatches may be joined, and whether
//! models may be used where they are mapped.

use super::Outcome;
use super::subject::Subject;
use super::tester::Tester;
use crate::config::log;
use crate::config::{NativeLoops, SelfTest};
use aie_hal::Arch;
use aie_jit_native::Admission;
use aie_jit_native::codegen::LoopForm;
use aie_jit_native::families;
use aie_jit_native::kit::Family;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Admits a subject when its self-test has passed. Asks once in a process.
pub struct Gate {
    tester: Tester,
    mode: SelfTest,
    loops: NativeLoops,
    arch: Arc<Arch>,
    /// The NPU, for messages.
    npu: String,
    known: Mutex<HashMap<&'static str, Result<(), String>>>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("npu", &self.npu).field("known", &self.known).finish_non_exhaustive()
    }
}

impl Gate {
    /// Nothing is known yet of the NPU of generation `arch`. `npu` is for messages.
    pub fn new(tester: Tester, mode: SelfTest, loops: NativeLoops, arch: Arc<Arch>, npu: String) -> Self {
        Self { tester, mode, loops, arch, npu, known: Mutex::default() }
    }

    /// Whether memory of the program may be used in place; else it is copied.
    pub fn admits_imports(&self) -> bool {
        self.admitted(Subject::ImportedMemory, &self.loops().on(&self.arch)).is_ok()
    }

    /// Whether neighbouring dispatches may be executed as one.
    pub fn admits_joins(&self) -> bool {
        let subject = Subject::JoinedDispatches;
        // Where there is nothing to try it with, the driver's own way of submitting is all that there is to trust.
        !subject.is_for(&self.arch) || self.admitted(subject, &self.loops().on(&self.arch)).is_ok()
    }

    /// Why such memory is copied, as far as that is known without a trial.
    pub fn known_against_imports(&self) -> Option<String> {
        let outcome =
            self.tester.known(Subject::ImportedMemory, &self.arch).filter(|outcome| *outcome != Outcome::Right)?;
        Some(format!("the self-test of imported memory is {}: {outcome}", outcome.word()))
    }

    fn admitted(&self, subject: Subject, arch: &Arch) -> Result<(), String> {
        // Locked meanwhile: whoever asks for the same subject waits for the outcome.
        self.known.lock().entry(subject.name()).or_insert_with(|| self.verdict(subject, arch)).clone()
    }

    fn verdict(&self, subject: Subject, arch: &Arch) -> Result<(), String> {
        let outcome = match self.mode {
            SelfTest::Off => return Ok(()),
            SelfTest::Auto => self.tester.known_or_tested(subject, arch),
            SelfTest::Always => self.tester.tested(subject, arch),
        };
        let reason = match outcome {
            Ok(Outcome::Right) => return Ok(()),
            Ok(outcome) => format!("its self-test: {}: {outcome}", outcome.word()),
            Err(reason) => format!("its self-test could not be run: {reason}"),
        };
        let (npu, shown) = (&self.npu, "`ggml-hsa selftest` shows and repeats it");
        let (what, instead) = match subject {
            Subject::Family(Family { name, .. }) => {
                (format!("native kernels of the family `{name}` are"), "other kernels or the CPU take their place")
            }
            Subject::HardwareLoops => (
                "hardware loops of native kernels are".to_owned(),
                "their loops branch back, which takes some more cycles",
            ),
            Subject::JoinedDispatches => {
                ("joined dispatches are".to_owned(), "each dispatch stays one of its own, as with GGML_HSA_JOIN=off")
            }
            Subject::ImportedMemory => ("memory that is imported is".to_owned(), "models are copied"),
        };
        let warning = format!("{what} not used on {npu}, because of {reason}; {instead}; {shown}");
        match subject {
            Subject::Family(_) | Subject::HardwareLoops | Subject::JoinedDispatches => log::warn(&warning),
            // Asked while llama.cpp tries what fits into memory, when it drops all warnings.
            Subject::ImportedMemory => log::notice(&warning),
        }
        Err(format!("{what} not used because of {reason}"))
    }
}

impl Admission for Gate {
    fn loops(&self) -> LoopForm {
        match self.loops {
            NativeLoops::Always(form) => form,
            NativeLoops::Auto => match self.admitted(Subject::HardwareLoops, &self.arch) {
                Ok(()) => LoopForm::Hardware,
                Err(_) => LoopForm::Jnz,
            },
        }
    }

    fn admits(&self, family: &'static Family, arch: &Arch) -> Result<(), String> {
        self.admitted(Subject::Family(family), arch)
    }

    fn admits_chosen(&self) -> bool {
        let arch = self.loops().on(&self.arch);
        let mut families = families::CHOSEN.iter().filter(|family| family.is_for(&arch));
        families.all(|family| self.admitted(Subject::Family(family), &arch).is_ok())
    }
}
