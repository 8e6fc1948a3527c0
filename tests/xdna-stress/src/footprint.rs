//! What the process takes from the system while it works: resident memory and open descriptors.
//!
//! The simulated kernel device lives in the same process, so a buffer object that is never closed shows here as well.

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::fs;

/// Most that the resident memory may grow in the second half of a load. The first half is warm-up: pools, slabs and the
/// allocator's arenas reach their size. A leak of 42 bytes per dispatch in 50,000 dispatches is above it.
const GROWTH_KIB: u64 = 2 * 1024;

/// One look at the process.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Footprint {
    pub resident_kib: u64,
    pub descriptors: usize,
}

impl Footprint {
    pub fn now() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status").context("reading the process's status")?;
        let descriptors = fs::read_dir("/proc/self/fd").context("reading the process's descriptors")?.count();
        Ok(Self { resident_kib: resident(&status).context("a status without `VmRSS`")?, descriptors })
    }
}

/// The resident memory from `/proc/PID/status`.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Looks at the process during a load.
#[derive(Debug, Default, Serialize)]
pub struct Footprints {
    /// After the first tenth.
    pub early: Option<Footprint>,
    /// After the first half.
    pub middle: Option<Footprint>,
    /// At the end, before anything is released.
    pub end: Option<Footprint>,
}

impl Footprints {
    /// Called when `done` of `all` equal steps are behind, at least at every twentieth of them.
    pub fn step(&mut self, done: usize, all: usize) -> Result<()> {
        for (look, due) in [(&mut self.early, all / 10), (&mut self.middle, all / 2), (&mut self.end, all)] {
            if look.is_none() && done >= due {
                *look = Some(Footprint::now()?);
            }
        }
        Ok(())
    }

    /// Errors if memory grew in the second half, or descriptors were opened and not closed after the first tenth.
    pub fn flat(&self) -> Result<()> {
        let (Some(early), Some(middle), Some(end)) = (self.early, self.middle, self.end) else {
            bail!("the load was too short for three looks at its memory: {self:?}");
        };
        let growth = end.resident_kib.saturating_sub(middle.resident_kib);
        ensure!(
            growth < GROWTH_KIB,
            "resident memory grew by {growth} KiB in the second half of the load, from {} KiB; less than {GROWTH_KIB} KiB are \
             allowed",
            middle.resident_kib
        );
        ensure!(
            end.descriptors == early.descriptors,
            "{} descriptors were open after the first tenth of the load, {} at its end",
            early.descriptors,
            end.descriptors
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(resident_kib: u64, descriptors: usize) -> Option<Footprint> {
        Some(Footprint { resident_kib, descriptors })
    }

    #[test]
    fn a_process_has_memory_and_descriptors() {
        let before = Footprint::now().unwrap();
        assert!(before.resident_kib > 100 && before.descriptors > 0, "{before:?}");
        assert_eq!(resident("Name:\tx\nVmRSS:\t  1234 kB\nVmData:\t 1 kB\n"), Some(1234));
    }

    #[test]
    fn growth_and_open_descriptors_are_errors() {
        let of = |early, middle, end| Footprints { early, middle, end };
        of(look(100, 9), look(90_000, 9), look(90_500, 9)).flat().unwrap();
        of(look(100, 9), look(90_000, 9), look(80_000, 9)).flat().unwrap();
        let error = |footprints: Footprints| footprints.flat().unwrap_err().to_string();
        assert!(error(of(look(1, 9), look(1, 9), look(1 + GROWTH_KIB, 9))).contains("grew by"));
        assert!(error(of(look(1, 9), look(1, 9), look(1, 10))).contains("10 at its end"));
        assert!(error(of(look(1, 9), None, look(1, 9))).contains("too short"));
    }

    #[test]
    fn looks_are_taken_once_when_they_are_due() {
        let mut looks = Footprints::default();
        looks.step(1, 20).unwrap();
        assert!(looks.early.is_none());
        looks.step(10, 20).unwrap();
        assert!(looks.early.is_some() && looks.middle.is_some() && looks.end.is_none());
        looks.step(20, 20).unwrap();
        looks.flat().unwrap();
    }
}
