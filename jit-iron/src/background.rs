//! Threads that compile while graphs run elsewhere.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs in the order they come, up to a number at a time. Threads start when there is something to do and end when the
/// queue is empty, so that a process that has all its kernels has none of them. Dropping it leaves out the jobs that
/// have not begun; those that have end in their own time.
pub(crate) struct Background {
    state: Arc<State>,
    most: usize,
}

#[derive(Default)]
struct State {
    queue: Mutex<Queue>,
    idle: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
}

impl Background {
    /// At most `most` jobs at a time, and at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self { state: Arc::default(), most: most.max(1) }
    }

    /// Adds a job. When no thread can be started, it is done here.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.state.queue.lock();
        queue.jobs.push_back(Box::new(job));
        if queue.threads >= self.most {
            return;
        }
        queue.threads += 1;
        drop(queue);
        let state = Arc::clone(&self.state);
        let started = thread::Builder::new().name("ggml-hsa-jit".into()).spawn(move || work(&state));
        if let Err(error) = started {
            tracing::warn!("no thread to compile in: {error}; compiling here");
            work(&self.state);
        }
    }
}

fn work(state: &State) {
    loop {
        let mut queue = state.queue.lock();
        let Some(job) = queue.jobs.pop_front() else {
            queue.threads -= 1;
            state.idle.notify_all();
            return;
        };
        drop(queue);
        // A job that panics must not take the others with it.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a compilation in the background panicked; its kernel stays missing");
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.state.queue.lock().jobs.clear();
    }
}

impl Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.state.queue.lock();
        f.debug_struct("Background").field("jobs", &queue.jobs.len()).field("threads", &queue.threads).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    fn wait(background: &Background) {
        let mut queue = background.state.queue.lock();
        while queue.threads > 0 {
            assert!(!background.state.idle.wait_for(&mut queue, Duration::from_secs(20)).timed_out());
        }
    }

    #[test]
    fn jobs_run_side_by_side_up_to_the_limit() {
        let background = Background::new(3);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..12 {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            background.run(move || {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                thread::sleep(Duration::from_millis(20));
                running.fetch_sub(1, SeqCst);
            });
        }
        wait(&background);
        assert_eq!(most.load(SeqCst), 3);
    }

    #[test]
    fn a_panic_costs_its_job_only() {
        let (background, done) = (Background::new(1), Arc::new(AtomicUsize::new(0)));
        background.run(|| panic!("meant"));
        let counter = Arc::clone(&done);
        background.run(move || {
            counter.fetch_add(1, SeqCst);
        });
        wait(&background);
        assert_eq!(done.load(SeqCst), 1);
    }
}
