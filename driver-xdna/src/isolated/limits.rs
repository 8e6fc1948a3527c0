//! How long each call to the helper process may take, so that nothing above it ever waits for ever.

use super::StartError;
use aie_hal::Environment;
use aie_hal::environment::table::AIE_HAL_TIME_LIMIT_MS;
use std::time::Duration;

/// Limit of opening the runtime and of every memory and context call.
pub const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Limit of one doorbell: up to 64 dispatches.
pub const SUBMIT_LIMIT: Duration = Duration::from_secs(60);
/// How long the helper may take to end after it was told to, before it is killed.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The limits of one helper process. When one passes, the helper is killed and its agents are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    /// Of opening the runtime and of every memory and context call.
    pub call: Duration,
    /// Of one submit.
    pub submit: Duration,
    /// Of the helper's end after the last reference to its agents went.
    pub close: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self { call: CALL_LIMIT, submit: SUBMIT_LIMIT, close: CLOSE_LIMIT }
    }
}

impl TimeLimits {
    /// One limit for every call. Closing keeps its own where that is shorter.
    pub fn all(limit: Duration) -> Self {
        Self { call: limit, submit: limit, close: limit.min(CLOSE_LIMIT) }
    }

    /// The limits that [`AIE_HAL_TIME_LIMIT_MS`] asks for, else the documented ones.
    ///
    /// # Errors
    /// [`StartError::TimeLimit`] when the variable is not a positive number.
    pub fn from_env() -> Result<Self, StartError> {
        match Environment::process().get(&AIE_HAL_TIME_LIMIT_MS) {
            None => Ok(Self::default()),
            Some(value) => Self::parse(&value.to_string_lossy()),
        }
    }

    fn parse(value: &str) -> Result<Self, StartError> {
        match value.trim().parse::<u32>() {
            Ok(milliseconds) if milliseconds > 0 => Ok(Self::all(Duration::from_millis(milliseconds.into()))),
            _ => Err(StartError::TimeLimit { value: value.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain("1500", 1500, 1500)]
    #[case::spaces(" 20 ", 20, 20)]
    #[case::longer_than_closing("90000", 90_000, 5_000)]
    fn a_number_overrides_every_limit(#[case] value: &str, #[case] call: u64, #[case] close: u64) {
        let limits = TimeLimits::parse(value).unwrap();
        assert_eq!(limits.call, Duration::from_millis(call));
        assert_eq!(limits.submit, Duration::from_millis(call));
        assert_eq!(limits.close, Duration::from_millis(close));
    }

    #[rstest]
    fn anything_else_is_refused_by_name(#[values("", "0", "-1", "1s", "1e3", "99999999999")] value: &str) {
        let error = TimeLimits::parse(value).unwrap_err().to_string();
        assert!(error.contains(AIE_HAL_TIME_LIMIT_MS.name()) && error.contains(&format!("`{value}`")), "{error}");
    }
}
