//! Whether the NPU did anything in a run, and the warning when it did not.

use crate::report::statistics::OperationCount;
use crate::settings::{GGML_HSA_REQUIRE_ARRAY, GGML_HSA_STATS};
use std::collections::BTreeMap;

/// Nodes by where they ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    dispatches: u64,
    /// Nodes that ran on the host.
    host: u64,
    /// Those of them that belong on the array, by the reason why they did not run there.
    fallbacks: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds operations, of one device or of several.
    pub fn add(&mut self, operations: &[OperationCount]) {
        for operation in operations {
            self.dispatches += operation.array;
            self.host += operation.host;
            if let Some(cause) = operation.fallback.as_ref().filter(|_| operation.host > 0) {
                *self.fallbacks.entry(cause.clone()).or_default() += operation.host;
            }
        }
    }

    /// A warning for the user: nothing was dispatched although there was work for the array. `None` when all is well, or
    /// when there was nothing to do.
    pub fn warning(&self) -> Option<String> {
        let (cause, most) = self.fallbacks.iter().max_by_key(|(_, count)| **count)?;
        if self.dispatches > 0 {
            return None;
        }
        let belonging: u64 = self.fallbacks.values().sum();
        Some(format!(
            "nothing ran on the NPU: dispatches 0, nodes on the CPU {}, {belonging} of them operations of the array; most \
             frequent reason ({most} nodes): {cause}; {GGML_HSA_REQUIRE_ARRAY}=1 makes this an error, {GGML_HSA_STATS}=FILE lists \
             every operation with its reason",
            self.host
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(array: u64, host: u64, fallback: Option<&str>) -> OperationCount {
        OperationCount { array, host, fallback: fallback.map(str::to_owned), ..OperationCount::default() }
    }

    fn tally(operations: &[OperationCount]) -> Tally {
        let mut tally = Tally::default();
        tally.add(operations);
        tally
    }

    #[test]
    fn a_run_without_a_dispatch_is_reported_with_its_counts() {
        let all = [
            operation(0, 7, None),
            operation(0, 5, Some("no compiler")),
            operation(0, 8, Some("too large")),
            operation(0, 6, Some("no compiler")),
        ];
        let warning = tally(&all).warning().unwrap();
        let expected = "dispatches 0, nodes on the CPU 26, 19 of them operations of the array; most frequent reason (11 nodes): \
                        no compiler; GGML_HSA_REQUIRE_ARRAY=1";
        assert!(warning.contains(expected), "{warning}");
    }

    #[test]
    fn one_dispatch_on_any_device_is_enough() {
        let idle = tally(&[operation(0, 5, Some("no compiler"))]);
        let mut both = idle.clone();
        both.add(&[operation(1, 0, None)]);
        assert!(idle.warning().is_some() && both.warning().is_none());
    }

    #[test]
    fn without_work_for_the_array_there_is_nothing_to_tell() {
        assert_eq!(tally(&[]).warning(), None);
        assert_eq!(tally(&[operation(0, 9, None)]).warning(), None);
        // Planned and never run.
        assert_eq!(tally(&[operation(0, 0, Some("no compiler"))]).warning(), None);
    }
}
