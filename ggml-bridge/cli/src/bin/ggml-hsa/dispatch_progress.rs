//! What `ggml-hsa dispatch` says while a kernel runs: the emulated array takes minutes for what an NPU does in milliseconds.

use aie_hal::{DeviceError, Semaphore, WaitError};
use ggml_hsa_cli::output::{complain, with_template};
use indicatif::ProgressBar;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Nothing is said of shorter runs.
const QUIET: Duration = Duration::from_secs(5);

/// A line that is renewed on a terminal, and elsewhere a line whenever the time has doubled.
pub struct Progress {
    times: u32,
    begun: Instant,
    next: Duration,
    line: Option<ProgressBar>,
}

impl Progress {
    /// Of so many dispatches.
    pub fn new(times: u32) -> Self {
        Self { times, begun: Instant::now(), next: QUIET, line: None }
    }

    /// Waits for dispatch `number`, counted from 1.
    ///
    /// # Errors
    /// What became of it, about the kernel `name`.
    pub fn wait(&mut self, done: &dyn Semaphore, number: u64, name: &str) -> Result<(), String> {
        loop {
            match done.wait_blocking(number, Some(self.next.saturating_sub(self.begun.elapsed()))) {
                Ok(()) => return Ok(()),
                Err(WaitError::Timeout { .. }) => self.say(number),
                Err(cause) => return Err(failure(name, &cause)),
            }
        }
    }

    fn say(&mut self, number: u64) {
        let elapsed = self.begun.elapsed();
        let text = format!("dispatch {number} of {} runs, {} s", self.times, elapsed.as_secs());
        if !stderr().is_terminal() {
            self.next = elapsed.saturating_mul(2);
            return complain(&text);
        }
        self.next = elapsed + Duration::from_secs(1);
        let line = self.line.get_or_insert_with(|| with_template(ProgressBar::new_spinner(), "{msg}"));
        line.set_message(text);
        line.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}

/// Why the kernel `name` did not complete. A simulated device calls every end without a signal a timeout, and its reason says more.
fn failure(name: &str, cause: &WaitError) -> String {
    match cause {
        WaitError::Failed(cause) => match &**cause {
            DeviceError::Timeout(reason) => format!("{name} has not completed: {reason}"),
            other => format!("{name}: {other}"),
        },
        other => format!("{name}: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_failure_is_said_in_words_of_the_kernel() {
        let failed = |cause| WaitError::Failed(Arc::new(cause));
        let said = failure("add", &failed(DeviceError::Timeout("lock 3 is never released".into())));
        assert_eq!(said, "add has not completed: lock 3 is never released");
        let said = failure("add", &failed(DeviceError::Lost("unplugged".into())));
        assert_eq!(said, "add: device lost: unplugged");
    }
}
