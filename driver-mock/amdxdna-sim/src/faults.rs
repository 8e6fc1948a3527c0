//! Fault plans: kernel calls and commands that fail at chosen occurrences.
//!
//! `CALL@N=ERRNO` lets the N-th occurrence of a call in this process fail before it has any effect. The names of calls are those of the
//! report. Faults of commands, and how occurrences are written, are those of [`aie_driver_mock::npu::fault_plan`]; a lost device
//! answers every later ioctl with ENODEV.

use crate::kfd::KFD_CALLS;
use aie_driver_mock::npu::fault_plan::{self, FaultPlanError};
use nix::errno::Errno;

/// Calls that can fail besides the ioctls.
const OTHER_CALLS: &[&str] = &["OPEN_ACCEL", "OPEN_KFD", "MMAP", "MUNMAP", "CLOSE"];
/// Above all error codes.
const ERRORS_END: i32 = 4096;

/// The faults of a run: beside those of commands, calls with their errors.
pub type FaultPlan = fault_plan::FaultPlan<(String, Errno)>;

/// Reads a plan.
///
/// # Errors
/// Which entry cannot be read and what an entry looks like.
pub fn parse(text: &str) -> Result<FaultPlan, FaultPlanError> {
    FaultPlan::parse(text, "CALL@N=ERRNO", |name, errno| {
        let is_known = amdxdna_sys::layout::ioctls().any(|call| call.name == name)
            || OTHER_CALLS.contains(&name)
            || KFD_CALLS.iter().any(|(known, _)| *known == name);
        if !is_known {
            return Err(format!("unknown call {name}").into());
        }
        let errno = errno.ok_or("the error code is missing")?;
        let mut codes = (1..ERRORS_END).map(Errno::from_raw).filter(|code| *code != Errno::UnknownErrno);
        let code = codes.find(|code| format!("{code:?}") == errno);
        Ok((name.to_owned(), code.ok_or_else(|| format!("{errno} is not an error code"))?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn calls_fail_with_the_planned_error() {
        let plan = parse("CREATE_BO@3=ENOMEM, MMAP@2-4=EALREADY,KFD_SET_EVENT@*=EOPNOTSUPP").unwrap();
        let call = |name: &str, at| plan.other(at, |(call, errno)| (call == name).then_some(*errno));
        assert_eq!([3, 4].map(|at| call("CREATE_BO", at)), [Some(Errno::ENOMEM), None]);
        assert_eq!((call("MMAP", 4), call("KFD_SET_EVENT", 9)), (Some(Errno::EALREADY), Some(Errno::EOPNOTSUPP)));
    }

    #[rstest]
    #[case("CREATE_BO@1", "error code is missing")]
    #[case("CREATE_BO@1=ESPIPE2", "ESPIPE2 is not an error code")]
    #[case("CREATE_BO@1=UnknownErrno", "is not an error code")]
    #[case("CRATE_BO@1=ENOMEM", "unknown call CRATE_BO")]
    fn mistakes_are_reported(#[case] text: &str, #[case] expected: &str) {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("CALL@N=ERRNO"), "{error}");
    }
}
