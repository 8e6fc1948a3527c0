//! What is known of subjects on the NPUs of this machine: a file in the kernel cache.
//!
//! It is read and written under a lock, so that two programs that start at once do not both test, and replaced as a whole. That a
//! trial has begun is on the disk before the trial begins: if the machine dies of it, the next start does not repeat it.

use super::Outcome;
use super::npu::Conditions;
use super::npu::Npu;
use aie_hal::Clocks;
use aie_jit_iron::cache::{CacheError, SELF_TEST};
use aie_jit_iron::lock::Lock;
use aie_jit_iron::ownership;
use aie_jit_iron::{CachePath, KernelCache};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// The file of a cache. Thread-safe.
#[derive(Debug)]
pub struct Record {
    cache: KernelCache,
}

/// The right to read and change the record, until this is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    record: &'a Record,
    _lock: Lock,
}

/// What the file holds: by NPU.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    npus: BTreeMap<String, Entry>,
}

/// Outcomes by name, and what they were found under.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    conditions: Conditions,
    families: BTreeMap<String, Kept>,
    /// How fast the NPU ran in the last trial that it could be asked in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clocks: Option<Clocks>,
}

/// An outcome.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    outcome: Outcome,
    /// The boot that it was found in, if it says nothing about others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
}

impl Kept {
    /// Whether it says something now. What the machine did not survive is not tried again in any boot.
    fn holds(&self, npu: &Npu) -> bool {
        self.outcome == Outcome::Begun || self.boot.as_ref().is_none_or(|boot| *boot == npu.boot)
    }
}

impl Record {
    /// The record in a cache.
    ///
    /// # Errors
    /// The directory cannot be a cache.
    pub fn open(path: &CachePath) -> Result<Self, CacheError> {
        KernelCache::open(path.path()).map(|cache| Self { cache })
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.cache.root().join(SELF_TEST)
    }

    /// Waits for one's turn.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn turn(&self) -> io::Result<Turn<'_>> {
        Ok(Turn { record: self, _lock: self.cache.locks.lock(SELF_TEST)? })
    }
}

impl Turn<'_> {
    /// What is known of a subject under the present conditions. A file that cannot be read knows nothing.
    pub fn outcome(&self, npu: &Npu, subject: &str) -> Option<Outcome> {
        let entry = self.content().npus.remove(&npu.id)?;
        let kept = (entry.conditions == npu.conditions).then_some(entry.families)?.remove(subject)?;
        kept.holds(npu).then_some(kept.outcome)
    }

    /// Notes an outcome, or that nothing is known, and how fast the NPU ran; what was found under other conditions goes. Outcomes
    /// can be for this boot only.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn note(
        &self,
        npu: &Npu,
        subject: &str,
        outcome: Option<&Outcome>,
        is_for_one_boot: bool,
        clocks: Option<Clocks>,
    ) -> io::Result<()> {
        let mut content = self.content();
        let fresh = || Entry { conditions: npu.conditions.clone(), families: BTreeMap::new(), clocks: None };
        let entry = content.npus.entry(npu.id.clone()).or_insert_with(fresh);
        if entry.conditions != npu.conditions {
            *entry = fresh();
        }
        entry.clocks = clocks.or(entry.clocks);
        match outcome {
            Some(outcome) => {
                let boot = is_for_one_boot.then(|| npu.boot.clone());
                entry.families.insert(subject.to_owned(), Kept { outcome: outcome.clone(), boot })
            }
            None => entry.families.remove(subject),
        };
        self.write(&content)
    }

    /// Forgets an NPU.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn forget(&self, npu: &Npu) -> io::Result<()> {
        let mut content = self.content();
        content.npus.remove(&npu.id);
        self.write(&content)
    }

    fn content(&self) -> Content {
        ownership::own_file(&self.record.path())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Replaces the file, with one of a name that others cannot foresee.
    fn write(&self, content: &Content) -> io::Result<()> {
        let root = self.record.cache.root();
        let mut file = tempfile::Builder::new().prefix(".selftest-").tempfile_in(root)?;
        file.write_all(&serde_json::to_vec_pretty(content)?)?;
        file.as_file().sync_all()?;
        file.persist(self.record.path())?;
        File::open(root)?.sync_all()
    }
}
