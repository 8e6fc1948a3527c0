//! How much memory of its own a program may have pinned for an NPU.
//!
//! The kernel driver pins the pages of a program's own memory and charges them to the limit of locked memory (`ulimit -l`, 8 MiB for
//! ordinary users by default), unless the program has the capability to lock any. Memory that the driver itself allocates is not
//! charged. Source: `amdxdna_ubuf.c` (`pinned_vm`, `RLIMIT_MEMLOCK`, `CAP_IPC_LOCK`).

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::fs;

/// The bit of `CAP_IPC_LOCK` in a set of capabilities.
const CAP_IPC_LOCK: u32 = 14;

/// Bytes that may still be pinned for this process; `None` without a limit.
#[must_use]
pub fn pinnable_bytes() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    left(&status, (limit != RLIM_INFINITY).then_some(limit))
}

/// The same by the text of `/proc/PID/status` and the limit.
fn left(status: &str, limit: Option<u64>) -> Option<u64> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let capabilities = field("CapEff:").and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or_default();
    if capabilities >> CAP_IPC_LOCK & 1 == 1 {
        return None;
    }
    let pinned: u64 = field("VmPin:").and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or_default();
    limit.map(|limit| limit.saturating_sub(pinned.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::ordinary("VmPin:\t       0 kB\nCapEff:\t0000000000000000\n", Some(8 << 20), Some(8 << 20))]
    #[case::partly_pinned("VmPin:\t    1024 kB\nCapEff:\t0000000000000000\n", Some(8 << 20), Some(7 << 20))]
    #[case::all_pinned("VmPin:\t  999999 kB\n", Some(8 << 20), Some(0))]
    #[case::root("VmPin:\t       0 kB\nCapEff:\t000001ffffffffff\n", Some(8 << 20), None)]
    #[case::root_of_a_container("CapEff:\t00000000a80425fb\n", Some(8 << 20), Some(8 << 20))]
    #[case::unlimited("CapEff:\t0000000000000000\n", None, None)]
    fn what_is_left_depends_on_capability_and_limit(
        #[case] status: &str,
        #[case] limit: Option<u64>,
        #[case] expected: Option<u64>,
    ) {
        assert_eq!(left(status, limit), expected);
    }
}
