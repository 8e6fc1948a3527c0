//! Hardware contexts on paper: which of them command lists need, one behind the other, found by the planner that finds them in a run.

use aie_hal::artifact::Digest;
use aie_hal::context_planner::{ContextHost, ContextPlanner, PdiOf};
use aie_hal::loaded_pdi::LoadedPdi;
use aie_hal::{Command, CommandList, KernelArtifact, Limits};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Contexts that are numbers, each made once.
#[derive(Debug, Default)]
struct Numbers(AtomicU64);

impl ContextHost for Numbers {
    type Memory = ();
    type Context = u64;
    type Error = Infallible;

    fn create(&self, _pdis: &[PdiOf<Self>]) -> Result<u64, Infallible> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn destroy(&self, _context: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn is_exhausted(&self, error: &Infallible) -> bool {
        match *error {}
    }
}

/// The contexts of one process.
#[derive(Debug)]
pub struct Contexts {
    planner: ContextPlanner<Numbers>,
    host: Numbers,
    /// Kernels stay loaded as long as the process runs.
    loaded: HashMap<Digest, PdiOf<Numbers>>,
    active: Option<u64>,
}

impl Contexts {
    /// None, on a device with these limits.
    pub fn new(limits: &Limits) -> Self {
        let (planner, host) = (ContextPlanner::new(limits), Numbers::default());
        Self { planner, host, loaded: HashMap::new(), active: None }
    }

    /// Finds a context for all of `list` at once, and for what is expected behind it where there is room, as the queue does before a
    /// list runs.
    pub fn place(&mut self, list: &CommandList) {
        let dispatched = list.commands().iter().filter_map(|command| match command {
            Command::Dispatch { executable, .. } => Some(executable.artifact()),
            _ => None,
        });
        let dispatched: Vec<_> = dispatched.map(|artifact| self.load(artifact)).collect();
        if self.planner.continues(dispatched.iter()) {
            return;
        }
        let expected: Vec<_> = list.expected().iter().map(|executable| self.load(executable.artifact())).collect();
        let more: Vec<_> = distinct(&expected).into_iter().map(|pdi| vec![pdi]).collect();
        let Ok(()) = self.planner.prepare(&self.host, &distinct(&dispatched), &more);
    }

    /// The context of a kernel that is in one.
    pub fn located(&self, artifact: &KernelArtifact) -> Option<u64> {
        let pdi = self.loaded.get(artifact.digest())?;
        self.planner.locate(pdi.number).map(|at| at.context)
    }

    /// The context that a kernel runs in next, made when it is in none.
    pub fn of(&mut self, artifact: &KernelArtifact) -> u64 {
        let pdi = self.load(artifact);
        match self.planner.locate(pdi.number) {
            Some(at) => at.context,
            None => {
                let Ok(at) = self.planner.require(&self.host, &pdi);
                at.context
            }
        }
    }

    /// Notes that a chain runs in `context`, and whether the array changes to it from another.
    pub fn switches_to(&mut self, context: u64) -> bool {
        self.active.replace(context).is_some_and(|active| active != context)
    }

    /// Contexts made so far.
    pub fn made(&self) -> u64 {
        self.host.0.load(Ordering::Relaxed)
    }

    fn load(&mut self, artifact: &KernelArtifact) -> PdiOf<Numbers> {
        let (number, digest) = (self.loaded.len(), *artifact.digest());
        let bytes = artifact.pdi().len();
        let new = || Arc::new(LoadedPdi { number, digest, bytes, memory: () });
        Arc::clone(self.loaded.entry(digest).or_insert_with(new))
    }
}

/// PDIs in the order in which they are met, each once.
fn distinct(pdis: &[PdiOf<Numbers>]) -> Vec<&PdiOf<Numbers>> {
    let mut found: Vec<&PdiOf<Numbers>> = Vec::new();
    for pdi in pdis {
        if found.iter().all(|other| other.number != pdi.number) {
            found.push(pdi);
        }
    }
    found
}
