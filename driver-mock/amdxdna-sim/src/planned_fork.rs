//! What `AMDXDNA_SIM_FORK` plans: a child of a program that makes none. [`forks`](crate::forks) makes it.

use amdxdna_sys::{Request, RequestCode, amdxdna_drm_exec_cmd, amdxdna_drm_wait_cmd, drm_syncobj_timeline_wait};

/// How a planned child ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By `exit`, with all handlers and destructors.
    Exit,
    /// By `_exit`.
    ExitNow,
    /// By becoming another program.
    Exec,
}

/// The calls before one of which a planned child is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// EXEC_CMD.
    Submission,
    /// What waits for a command, on old kernels and new ones.
    Wait,
}

impl Before {
    pub fn includes(self, request: RequestCode) -> bool {
        match self {
            Self::Submission => request == amdxdna_drm_exec_cmd::CODE,
            Self::Wait => [amdxdna_drm_wait_cmd::CODE, drm_syncobj_timeline_wait::CODE].contains(&request),
        }
    }
}

/// A planned child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    pub end: End,
    pub before: Before,
    /// The call before which it is made, from 1.
    pub at: u64,
}

impl Fork {
    /// Reads `exit@N`, `_exit@N` or `exec@N`; the place may be `wait:N`.
    pub fn parse(text: &str) -> Option<Self> {
        let (end, at) = text.split_once('@')?;
        let end = match end {
            "exit" => End::Exit,
            "_exit" => End::ExitNow,
            "exec" => End::Exec,
            _ => return None,
        };
        let (before, at) = at.strip_prefix("wait:").map_or((Before::Submission, at), |at| (Before::Wait, at));
        Some(Self { end, before, at: at.parse().ok().filter(|at| *at > 0)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("exit@1", Some(Fork { end: End::Exit, before: Before::Submission, at: 1 }))]
    #[case("_exit@20", Some(Fork { end: End::ExitNow, before: Before::Submission, at: 20 }))]
    #[case("exec@3", Some(Fork { end: End::Exec, before: Before::Submission, at: 3 }))]
    #[case("exit@wait:4", Some(Fork { end: End::Exit, before: Before::Wait, at: 4 }))]
    #[case("exit", None)]
    #[case("exit@0", None)]
    #[case("exit@wait:0", None)]
    #[case("exit@wait", None)]
    #[case("vfork@1", None)]
    fn planned_children_are_read(#[case] text: &str, #[case] expected: Option<Fork>) {
        assert_eq!(Fork::parse(text), expected);
    }
}
