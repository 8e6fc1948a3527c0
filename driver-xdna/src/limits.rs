//! Limits that the user may set.

use crate::settings::{AIE_HAL_PDIS_PER_CONTEXT, AIE_HAL_TIME_LIMIT_MS};
use aie_hal::Environment;
use aie_hal::environment::{Reader, Variable};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// How long a chain may take when [`AIE_HAL_TIME_LIMIT_MS`] is not set. The kernel driver's own watchdog gives up after about two seconds
/// without progress.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How long a chain may take.
pub fn time_limit() -> Duration {
    number(&AIE_HAL_TIME_LIMIT_MS, 1..=u64::MAX).map_or(TIME_LIMIT, Duration::from_millis)
}

/// Most PDIs of a context, where the user sets one.
pub(crate) fn pdis_per_context() -> Option<usize> {
    number(&AIE_HAL_PDIS_PER_CONTEXT, 1..=usize::MAX)
}

/// A number that the user sets. One that cannot be used is warned of.
fn number<T: FromStr + PartialOrd>(variable: &Variable, range: RangeInclusive<T>) -> Option<T> {
    let mut reader = Reader::new(Environment::process());
    let number = reader.number(variable, range);
    reader.problems.iter().for_each(|problem| tracing::warn!("{problem}"));
    number
}
