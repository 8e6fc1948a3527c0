//! Signals: 64-bit values that can be waited for.

use crate::queue::Queue;
use hsa_sys::*;
use parking_lot::{Condvar, Mutex};
use std::sync::Weak;
use std::time::{Duration, Instant};

/// A signal. Thread-safe.
#[derive(Debug)]
pub struct Signal {
    value: Mutex<hsa_signal_value_t>,
    changed: Condvar,
    /// The queue whose doorbell this is.
    pub doorbell_of: Option<Weak<Queue>>,
}

impl Signal {
    /// A signal of a program.
    pub fn new(value: hsa_signal_value_t) -> Self {
        Self { value: Mutex::new(value), changed: Condvar::new(), doorbell_of: None }
    }

    /// The doorbell of `queue`.
    pub fn doorbell(queue: Weak<Queue>) -> Self {
        Self { doorbell_of: Some(queue), ..Self::new(0) }
    }

    /// The value now.
    pub fn load(&self) -> hsa_signal_value_t {
        *self.value.lock()
    }

    /// Changes the value and wakes who waits.
    pub fn update(&self, change: impl FnOnce(hsa_signal_value_t) -> hsa_signal_value_t) {
        let mut value = self.value.lock();
        *value = change(*value);
        self.changed.notify_all();
    }

    /// Waits until the value meets the condition, or for `timeout`; `None` waits without limit. Returns the value seen last.
    pub fn wait(
        &self,
        condition: hsa_signal_condition_t,
        compared: hsa_signal_value_t,
        timeout: Option<Duration>,
    ) -> hsa_signal_value_t {
        let meets = |value: hsa_signal_value_t| match condition {
            HSA_SIGNAL_CONDITION_EQ => value == compared,
            HSA_SIGNAL_CONDITION_NE => value != compared,
            HSA_SIGNAL_CONDITION_LT => value < compared,
            HSA_SIGNAL_CONDITION_GTE => value >= compared,
            _ => true,
        };
        // A time limit beyond what a clock can show is not a limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut value = self.value.lock();
        while !meets(*value) {
            match deadline {
                None => self.changed.wait(&mut value),
                Some(deadline) => {
                    if self.changed.wait_until(&mut value, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        *value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn waits_end_with_the_condition_or_the_time() {
        let signal = Arc::new(Signal::new(2));
        let short = Some(Duration::from_millis(10));
        assert_eq!(signal.wait(HSA_SIGNAL_CONDITION_LT, 1, short), 2);
        assert_eq!(signal.wait(HSA_SIGNAL_CONDITION_GTE, 2, None), 2);
        let other = Arc::clone(&signal);
        let thread = std::thread::spawn(move || other.wait(HSA_SIGNAL_CONDITION_EQ, 0, None));
        signal.update(|value| value - 1);
        signal.update(|value| value - 1);
        assert_eq!(thread.join().unwrap(), 0);
        assert_eq!(signal.wait(HSA_SIGNAL_CONDITION_NE, 1, None), 0);
    }
}
