//! Four queues, used from eight threads, with semaphores between queues and between threads.
//!
//! Every round a thread sends three submissions:
//! - to one queue, some dispatches that add to its own buffer;
//! - to another queue, a dispatch that triples it, waiting for the first;
//! - to a third, its turn at a buffer that all threads share, waiting for the turn of the thread before, on whatever queue that
//!   is. Threads add or triple in turn, so the bytes tell any other order.
//!
//! Each thread also makes a buffer for one round only, which a submission in flight outlives, and loads and unloads kernels.
//! What a thread's buffer has to hold is computed beside it and compared after each few rounds.

use crate::footprint::Footprints;
use crate::target::{Target, check, reached, submit};
use aie_conformance::kernels::TestKernel;
use aie_conformance::rig::{at, record, whole};
use aie_hal::{BindingTable, Buffer, BufferParams, CommandList, DeviceError, Queue, Semaphore};
use anyhow::{Context, Result, anyhow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const QUEUES: usize = 4;
const THREADS: usize = 8;
/// Rounds a thread may be ahead of its results.
const AHEAD: u64 = 4;
/// Rounds between two checks of a thread's buffer.
const CHECKED: u64 = 16;
/// Rounds between two times a thread loads its kernels again.
const LOADED: u64 = 64;

struct Shared {
    queues: Vec<Arc<dyn Queue>>,
    buffer: Arc<dyn Buffer>,
    /// Reaches `round * THREADS + thread + 1` after that turn.
    turns: Arc<dyn Semaphore>,
    deadline: Instant,
    /// The number of rounds, once one of the threads has seen the deadline.
    rounds: AtomicU64,
    failed: AtomicBool,
}

impl Shared {
    /// Whether there is a round with this number. All threads do the same rounds, or one would wait forever.
    fn continues(&self, round: u64) -> bool {
        if Instant::now() >= self.deadline {
            // No thread can be further ahead of this one, because each waits for turns of all.
            let last = round + 2 * AHEAD;
            let _ = self.rounds.compare_exchange(u64::MAX, last, Ordering::SeqCst, Ordering::SeqCst);
        }
        round < self.rounds.load(Ordering::SeqCst) && !self.failed.load(Ordering::Relaxed)
    }
}

/// What the buffers that are checked hold at first.
fn every_byte() -> Vec<u8> {
    (0..=u8::MAX).collect()
}

/// What the bytes of such a buffer become.
#[derive(Debug, Clone, Copy)]
struct Affine {
    factor: u8,
    summand: u8,
}

impl Affine {
    const SAME: Self = Self { factor: 1, summand: 0 };

    fn add(&mut self, summand: u8) {
        self.summand = self.summand.wrapping_add(summand);
    }

    fn triple(&mut self) {
        self.factor = self.factor.wrapping_mul(3);
        self.summand = self.summand.wrapping_mul(3);
    }

    fn of(self, byte: usize) -> u8 {
        (byte as u8).wrapping_mul(self.factor).wrapping_add(self.summand)
    }
}

/// Runs the load for `time`.
pub fn run(target: &Target, time: Duration, footprints: &mut Footprints) -> Result<()> {
    let shared = Shared {
        queues: (0..QUEUES).map(|_| target.device.create_queue()).collect::<Result<_, _>>()?,
        buffer: target.buffer(&every_byte())?,
        turns: target.semaphore()?,
        deadline: Instant::now() + time,
        rounds: AtomicU64::new(u64::MAX),
        failed: AtomicBool::new(false),
    };
    let started = Instant::now();
    let (steps, tick) = (time.as_millis() as usize, Duration::from_millis(20));
    let looked = thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let shared = &shared;
                scope.spawn(move || {
                    let result = Thread::new(target, shared, number).and_then(|mut thread| thread.run());
                    if let Err(cause) = &result {
                        shared.failed.store(true, Ordering::Relaxed);
                        // The others wait for turns of this thread.
                        shared.turns.fail(Arc::new(DeviceError::Execution(format!("thread {number}: {cause:#}"))));
                    }
                    result.with_context(|| format!("thread {number}"))
                })
            })
            .collect();
        let mut looked = Ok(());
        while started.elapsed() < time && !shared.failed.load(Ordering::Relaxed) && looked.is_ok() {
            thread::sleep(tick);
            looked = footprints.step((started.elapsed().as_millis() as usize).min(steps), steps);
        }
        let results: Vec<Result<()>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked"))))
            .collect();
        // Of several failures the first thread's is as good as any: one causes the others.
        results.into_iter().collect::<Result<()>>().and(looked)
    });
    looked?;
    let mut expected = Affine::SAME;
    let rounds = shared.rounds.load(Ordering::SeqCst);
    (0..rounds).for_each(|_| (0..THREADS).for_each(|thread| turn(thread, &mut expected)));
    reached(&shared.turns, rounds * THREADS as u64)?;
    check(&format!("the shared buffer after {rounds} rounds"), &shared.buffer, |byte| expected.of(byte))?;
    shared.queues.iter().try_for_each(|queue| queue.wait_idle(None)).context("the queues")
}

/// What a thread does with the shared buffer.
fn turn(thread: usize, bytes: &mut Affine) {
    if thread.is_multiple_of(2) { bytes.add(thread as u8 + 1) } else { bytes.triple() }
}

struct Thread<'a> {
    target: &'a Target,
    shared: &'a Shared,
    number: usize,
    own: Arc<dyn Buffer>,
    /// Reaches `2 * round + 1` and `2 * round + 2` with the two submissions for the own buffer.
    order: Arc<dyn Semaphore>,
    expected: Affine,
    lists: Lists,
}

/// A thread's command lists, which hold its kernels.
struct Lists {
    /// Adds to the own buffer, by the number of dispatches.
    add: Vec<Arc<CommandList>>,
    triple: Arc<CommandList>,
    turn: Arc<CommandList>,
}

impl Lists {
    fn new(target: &Target, shared: &Shared, own: &Arc<dyn Buffer>, number: usize) -> Result<Self> {
        let add = target.load(&TestKernel::Add8(number as u8 + 1))?;
        let triple = target.load(&TestKernel::Mix(2))?;
        let adds = |count: usize| {
            record(|list| (0..count).try_fold(list, |list, _| Ok(list.dispatch(&add, vec![whole(own); 2])?.barrier())))
        };
        let tripled = |buffer| record(|list| list.dispatch(&triple, vec![whole(buffer); 3]));
        let added = |buffer| record(|list| list.dispatch(&add, vec![whole(buffer); 2]));
        let turn = if number.is_multiple_of(2) { added(&shared.buffer) } else { tripled(&shared.buffer) };
        Ok(Self { add: (1..=6).map(adds).collect(), triple: tripled(own), turn })
    }
}

impl<'a> Thread<'a> {
    fn new(target: &'a Target, shared: &'a Shared, number: usize) -> Result<Self> {
        let own = target.buffer(&every_byte())?;
        let lists = Lists::new(target, shared, &own, number)?;
        Ok(Self { target, shared, number, own, order: target.semaphore()?, expected: Affine::SAME, lists })
    }

    fn run(&mut self) -> Result<()> {
        let mut round = 0;
        while self.shared.continues(round) {
            self.round(round)?;
            round += 1;
            if round.is_multiple_of(CHECKED) {
                self.check(round)?;
            }
            if round.is_multiple_of(LOADED) {
                self.lists = Lists::new(self.target, self.shared, &self.own, self.number)?;
            }
        }
        self.check(round)
    }

    fn round(&mut self, round: u64) -> Result<()> {
        let turns = |round: u64, turn: usize| round * THREADS as u64 + turn as u64;
        if let Some(behind) = round.checked_sub(AHEAD) {
            reached(&self.order, 2 * behind + 2)?;
            reached(&self.shared.turns, turns(behind, THREADS))?;
        }
        let queue = |step: u64| &self.shared.queues[(self.number + (round + step) as usize) % QUEUES];
        let none = BindingTable::default;
        let adds = (round as usize * 5 + self.number) % self.lists.add.len();
        // The second submission of the round before ran on another queue.
        let before = if round == 0 { vec![] } else { vec![at(&self.order, 2 * round)] };
        submit(queue(0), &self.lists.add[adds], none(), before, vec![at(&self.order, 2 * round + 1)])?;
        (0..=adds).for_each(|_| self.expected.add(self.number as u8 + 1));
        let waits = vec![at(&self.order, 2 * round + 1)];
        submit(queue(1), &self.lists.triple, none(), waits, vec![at(&self.order, 2 * round + 2)])?;
        self.expected.triple();
        let (mine, last) = (turns(round, self.number), turns(round, self.number + 1));
        let waits = if mine == 0 { vec![] } else { vec![at(&self.shared.turns, mine)] };
        submit(queue(2), &self.lists.turn, none(), waits, vec![at(&self.shared.turns, last)])?;
        self.passing(round, queue(3))
    }

    /// Work on a buffer that only its command list keeps.
    fn passing(&self, round: u64, queue: &Arc<dyn Queue>) -> Result<()> {
        let bytes = 64 << ((round as usize + self.number) % 8);
        let buffer = self.target.device.allocate(&BufferParams::data(bytes))?;
        let list = record(|list| list.fill(&[round as u8], whole(&buffer)));
        drop(buffer);
        submit(queue, &list, BindingTable::default(), vec![], vec![])
    }

    /// Waits for the own submissions of the rounds before `round` and looks at the own buffer.
    fn check(&self, round: u64) -> Result<()> {
        reached(&self.order, 2 * round)?;
        check(&format!("the own buffer after {round} rounds"), &self.own, |byte| self.expected.of(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_number_of_the_turns_show() {
        let after = |turns: &[usize]| {
            let mut bytes = Affine::SAME;
            turns.iter().for_each(|thread| turn(*thread, &mut bytes));
            (0..256).map(|byte| bytes.of(byte)).collect::<Vec<_>>()
        };
        assert_eq!(after(&[0, 1])[..3], [3, 6, 9]);
        assert_ne!(after(&[0, 1, 2, 3]), after(&[1, 0, 2, 3]));
        assert_ne!(after(&[0, 1, 2, 3]), after(&[0, 1, 2]));
        assert_ne!(after(&[0, 1]), after(&[0, 0, 1]));
    }
}
