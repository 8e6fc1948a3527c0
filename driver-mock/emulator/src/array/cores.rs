//! Cores at the same time on the host's threads, with the same result on any number of them.
//!
//! Cores run between two rounds of everything else. In that time a core reaches its own tile only, and the tiles of its group:
//! at first every tile is a group of its own. A core that is about to reach a neighbour waits, and its group and the neighbour's
//! are one from then on. So groups have nothing in common while they run, within a group cores run one after the other in the
//! order of their tiles, and nothing depends on which thread runs what, or when.

use super::error::{ArrayError, Result};
use super::interleaving::Interleaving;
use super::rules::Rules;
use super::tile::Tile;
use super::tiles::Array;
use super::view::{Size, View};
use crate::core::{Stop, Wait};
use aie_hal::format::register::TileKind;
use std::sync::Mutex;
use std::thread;

/// Bundles that a core executes in one round at most.
const QUANTUM: u64 = 100_000;
/// With fewer bundles in the round before, threads cost more than they save.
const WORTH_THREADS: u64 = 20_000;

/// A group in a round: its tiles, and which of their cores run.
struct Job<'a> {
    tiles: Vec<&'a mut Tile>,
    running: Vec<(usize, usize)>,
    rules: Rules,
}

/// What a core has done in a round.
struct Ran {
    index: usize,
    bundles: u64,
    stop: Stop,
    wanted: Option<(u8, u8)>,
}

impl Job<'_> {
    fn run(&mut self, size: Size, most: u64) -> Vec<Ran> {
        let mut done = Vec::with_capacity(self.running.len());
        for (index, own) in &self.running {
            let Some(mut core) = self.tiles[*own].core.take() else { continue };
            let before = core.bundles();
            let mut view = View { tiles: &mut self.tiles, own: *own, size, rules: self.rules, wanted: None, cycle: 0 };
            let stop = core.run(most, &mut view);
            let wanted = view.wanted.filter(|_| stop == Stop::Waits(Wait::Neighbour));
            done.push(Ran { index: *index, bundles: core.bundles() - before, stop, wanted });
            self.tiles[*own].core = Some(core);
        }
        done
    }
}

impl Array {
    /// Sets on how many threads of the host cores run; by default as many as it has. The result does not depend on it.
    pub fn set_threads(&mut self, threads: usize) {
        self.groups.threads = threads.max(1);
    }

    /// Lets all cores run until they wait. False if none has executed anything.
    pub(super) fn run_cores(&mut self) -> Result<bool> {
        let running: Vec<usize> = (0..self.tiles.len()).filter(|index| self.core_goes_on(*index)).collect();
        if running.is_empty() {
            return Ok(false);
        }
        let quantum = self.interleaving.as_mut().map_or(QUANTUM, Interleaving::bundles);
        let (size, most) = (self.size(), quantum.min(self.cycle_limit.max(1)));
        let threads = if self.groups.bundles < WORTH_THREADS { 1 } else { self.groups.threads };
        let mut jobs = self.jobs(&running);
        let threads = threads.min(jobs.len());
        let mut done: Vec<Ran> = if threads > 1 {
            on_threads(jobs, threads, size, most)
        } else {
            jobs.iter_mut().flat_map(|job| job.run(size, most)).collect()
        };
        done.sort_by_key(|ran| ran.index);
        self.groups.bundles = done.iter().map(|ran| ran.bundles).sum();
        let mut result = Ok(false);
        for ran in done {
            self.longest_run = self.longest_run.max(ran.bundles);
            let moved = self.settle_core(ran);
            result = match (result, moved) {
                (Err(first), _) => Err(first),
                (Ok(_), Err(error)) => Err(error),
                (Ok(one), Ok(other)) => Ok(one || other),
            };
        }
        result
    }

    /// What becomes of a core's tile after its run. True if the core has executed something, or can now.
    fn settle_core(&mut self, ran: Ran) -> Result<bool> {
        let tile = &mut self.tiles[ran.index];
        let (column, row) = (tile.column, tile.row);
        tile.wait = match &ran.stop {
            Stop::Waits(wait) => Some(*wait),
            _ => None,
        };
        match ran.stop {
            Stop::Fault { pc, fault } => return Err(ArrayError::Core { column, row, pc, fault }),
            Stop::Done => (tile.core_enabled, tile.core_done) = (false, true),
            Stop::Ran | Stop::Waits(_) => {}
        }
        if let Some((column, row)) = ran.wanted {
            let other = self.index(column, row)?;
            self.groups.join(ran.index, other);
            return Ok(true);
        }
        Ok(ran.bundles > 0)
    }

    /// Whether a core may execute something: false only if it would wait again at once.
    fn core_goes_on(&self, index: usize) -> bool {
        let tile = &self.tiles[index];
        if !tile.core_enabled || !tile.clocked || tile.held.core || tile.core.is_none() {
            return false;
        }
        match tile.wait {
            Some(Wait::Lock { id, value }) => self.core_neighbour(index, id / 16).is_none_or(|other| {
                let found = self.tiles[other].locks[id as usize % 16];
                if value < 0 { found >= value.saturating_neg() } else { found == value }
            }),
            Some(Wait::StreamRead) => !tile.core_input.is_empty(),
            Some(Wait::StreamWrite) => tile.switch.has_space(0),
            _ => true,
        }
    }

    /// The groups of some cores.
    fn jobs(&mut self, running: &[usize]) -> Vec<Job<'_>> {
        let (first, rules) = (&self.groups.first, self.rules);
        let mut job_of = vec![None; self.tiles.len()];
        let mut jobs: Vec<Job<'_>> = Vec::new();
        for index in running {
            job_of[first[*index]].get_or_insert_with(|| {
                jobs.push(Job { tiles: Vec::new(), running: Vec::new(), rules });
                jobs.len() - 1
            });
        }
        for (index, tile) in self.tiles.iter_mut().enumerate() {
            if let Some(job) = job_of[first[index]].filter(|_| tile.kind == TileKind::Core) {
                let job: &mut Job<'_> = &mut jobs[job];
                if running.binary_search(&index).is_ok() {
                    job.running.push((index, job.tiles.len()));
                }
                job.tiles.push(tile);
            }
        }
        jobs
    }
}

/// Runs groups on threads of the host, each as soon as one is free.
fn on_threads(jobs: Vec<Job<'_>>, threads: usize, size: Size, most: u64) -> Vec<Ran> {
    let jobs = Mutex::new(jobs.into_iter());
    let next = || jobs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
    let work = || {
        let mut done = Vec::new();
        while let Some(mut job) = next() {
            done.append(&mut job.run(size, most));
        }
        done
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            match other.join() {
                Ok(mut more) => done.append(&mut more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    })
}
