//! Fault plans: kernel calls and commands that fail, and pages that are the wrong ones, at chosen occurrences.
//!
//! `CALL@N=ERRNO` lets the N-th occurrence of a call in this process fail before it has any effect. The names of calls are those of the
//! report. Faults of commands, and how occurrences are written, are those of [`aie_driver_mock::npu::fault_plan`]; a lost device
//! answers every later ioctl with ENODEV. With `pages@N` the N-th BO of a caller's memory succeeds and has other pages, all zeroes.

use crate::kfd_calls::KFD_CALLS;
use aie_driver_mock::npu::fault_plan::{self, FaultPlanError};
use nix::errno::Errno;

/// Calls that can fail besides the ioctls.
const OTHER_CALLS: &[&str] = &["OPEN_ACCEL", "OPEN_KFD", "MMAP", "MUNMAP", "CLOSE"];
/// Above all error codes.
const ERRORS_END: i32 = 4096;

/// What can go wrong beside commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A call fails with an error.
    Call(String, Errno),
    /// A BO of the caller's memory has other pages.
    Pages,
}

/// The faults of a run.
pub type FaultPlan = fault_plan::FaultPlan<Fault>;

impl Fault {
    /// The error of the call `name`.
    pub fn of_call(&self, name: &str) -> Option<Errno> {
        match self {
            Self::Call(call, errno) if call == name => Some(*errno),
            _ => None,
        }
    }
}

/// Reads a plan.
///
/// # Errors
/// Which entry cannot be read and what an entry looks like.
pub fn parse(text: &str) -> Result<FaultPlan, FaultPlanError> {
    FaultPlan::parse(text, "pages@N, CALL@N=ERRNO", |name, errno| {
        if (name, errno) == ("pages", None) {
            return Ok(Fault::Pages);
        }
        let is_known = amdxdna_sys::layout::ioctls().any(|call| call.name == name)
            || OTHER_CALLS.contains(&name)
            || KFD_CALLS.iter().any(|(known, _)| *known == name);
        if !is_known {
            return Err(format!("unknown call {name}").into());
        }
        let errno = errno.ok_or("the error code is missing")?;
        let mut codes = (1..ERRORS_END).map(Errno::from_raw).filter(|code| *code != Errno::UnknownErrno);
        let code = codes.find(|code| format!("{code:?}") == errno);
        Ok(Fault::Call(name.to_owned(), code.ok_or_else(|| format!("{errno} is not an error code"))?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn calls_fail_with_the_planned_error() {
        let plan = parse("CREATE_BO@3=ENOMEM, MMAP@2-4=EALREADY,KFD_SET_EVENT@*=EOPNOTSUPP,pages@2").unwrap();
        let call = |name: &str, at| plan.other(at, |fault| fault.of_call(name));
        assert_eq!([3, 4].map(|at| call("CREATE_BO", at)), [Some(Errno::ENOMEM), None]);
        assert_eq!((call("MMAP", 4), call("KFD_SET_EVENT", 9)), (Some(Errno::EALREADY), Some(Errno::EOPNOTSUPP)));
        let pages = |at| plan.other(at, |fault| (*fault == Fault::Pages).then_some(())).is_some();
        assert_eq!([1, 2, 3].map(pages), [false, true, false]);
    }

    #[rstest]
    #[case("CREATE_BO@1", "error code is missing")]
    #[case("CREATE_BO@1=ESPIPE2", "ESPIPE2 is not an error code")]
    #[case("CREATE_BO@1=UnknownErrno", "is not an error code")]
    #[case("CRATE_BO@1=ENOMEM", "unknown call CRATE_BO")]
    #[case("pages@1=ENOMEM", "unknown call pages")]
    fn mistakes_are_reported(#[case] text: &str, #[case] expected: &str) {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("CALL@N=ERRNO"), "{error}");
    }
}
