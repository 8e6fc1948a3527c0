//! Which families may be used on an NPU, for the kernel store.

use super::Outcome;
use super::tester::Tester;
use crate::config::SelfTest;
use crate::log;
use aie_hal::Arch;
use aie_jit_native::Admission;
use aie_jit_native::kernels::Family;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;

/// Admits a family when its self-test has passed. Asks once in a process.
pub struct Gate {
    tester: Tester,
    mode: SelfTest,
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
    /// Nothing is known yet. `npu` is for messages.
    pub fn new(tester: Tester, mode: SelfTest, npu: String) -> Self {
        Self { tester, mode, npu, known: Mutex::default() }
    }

    fn verdict(&self, family: &'static Family, arch: &Arch) -> Result<(), String> {
        let outcome = match self.mode {
            SelfTest::Off => return Ok(()),
            SelfTest::Auto => self.tester.known_or_tested(family, arch),
            SelfTest::Always => self.tester.tested(family, arch),
        };
        let reason = match outcome {
            Ok(Outcome::Right) => return Ok(()),
            Ok(outcome) => format!("its self-test: {}: {outcome}", outcome.word()),
            Err(reason) => format!("its self-test could not be run: {reason}"),
        };
        log::warn(&format!(
            "native kernels of the family `{}` are not used on {}, because of {reason}; other kernels or the CPU take their place; \
             `ggml-hsa selftest` shows and repeats it",
            family.name, self.npu
        ));
        Err(format!("the family {} is not used because of {reason}", family.name))
    }
}

impl Admission for Gate {
    fn admits(&self, family: &'static Family, arch: &Arch) -> Result<(), String> {
        // Locked meanwhile: whoever asks for the same family waits for the outcome.
        self.known.lock().entry(family.name).or_insert_with(|| self.verdict(family, arch)).clone()
    }
}
