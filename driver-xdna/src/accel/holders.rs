//! Which programs have hardware contexts, for the message when there is no further one.
//!
//! Kernels use the same errors for an array that others have taken and for firmware that makes no context any more, as after a dispatch
//! that hung the NPU. Only the list of contexts tells them apart.

use super::call_error::CallError;
use super::node::Node;
use aie_hal::error::Remedy;
use amdxdna_sys::{DRM_AMDXDNA_QUERY_HW_CONTEXTS, amdxdna_drm_get_info, amdxdna_drm_query_hwctx};
use bytemuck::Zeroable;
use std::collections::BTreeSet;
use std::fs;

/// More entries than any firmware has contexts.
const MOST: usize = 128;

/// The words for other programs that hold the NPU.
pub(crate) const ANOTHER_PROGRAM: &str = "another program holds the NPU";

/// The processes that have contexts on the NPU, as far as the kernel shows them.
///
/// # Errors
/// The kernel's.
fn holders(node: &Node) -> Result<BTreeSet<i64>, CallError> {
    let mut entries = vec![amdxdna_drm_query_hwctx::zeroed(); MOST];
    let bytes = size_of_val(entries.as_slice()) as u32;
    // The kernel writes through the number; the compiler has to know that the entries are reachable.
    let buffer = entries.as_mut_ptr().expose_provenance() as u64;
    node.request(&mut amdxdna_drm_get_info { param: DRM_AMDXDNA_QUERY_HW_CONTEXTS, buffer_size: bytes, buffer })?;
    // Kernels differ in how they say how many there are; what they do not write stays zero.
    Ok(entries.iter().filter(|entry| entry.num_col > 0).map(|entry| entry.pid).collect())
}

/// `4711 (llama-server)`.
fn describe(process: i64) -> String {
    match fs::read_to_string(format!("/proc/{process}/comm")) {
        Ok(name) => format!("{process} ({})", name.trim()),
        Err(_) => process.to_string(),
    }
}

/// Why there is no further context, and what helps. `held` is how many of this program the caller knows of.
pub(crate) fn why_exhausted(node: &Node, held: usize) -> (String, Option<Remedy>) {
    explain(holders(node).map_err(|cause| cause.to_string()), std::process::id().into(), held)
}

fn explain(holders: Result<BTreeSet<i64>, String>, own: i64, held: usize) -> (String, Option<Remedy>) {
    match holders {
        Err(cause) if held == 0 => (
            format!(
                "{ANOTHER_PROGRAM}, or its firmware makes no context any more; the kernel does not say which ({cause}): `sudo lsof \
                 /dev/accel/accel*` shows programs"
            ),
            Some(Remedy::ReleasedByOthers),
        ),
        Ok(mut holders) if holders.iter().any(|process| *process != own) => {
            holders.remove(&own);
            let names: Vec<String> = holders.into_iter().map(describe).collect();
            let text = format!("{ANOTHER_PROGRAM}: process {}; stop it, or try again later", names.join(", "));
            (text, Some(Remedy::ReleasedByOthers))
        }
        Ok(holders) if holders.is_empty() && held == 0 => (
            "no program has one, so the NPU's firmware makes no context any more: `sudo modprobe -r amdxdna; sudo modprobe amdxdna` \
             starts it anew, else restart the machine"
                .to_owned(),
            Some(Remedy::RestartedFirmware),
        ),
        _ => (format!("this program holds {}", held.max(1)), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::another(
        Ok(vec![7, -1]),
        0,
        "another program holds the NPU: process -1; stop it, or try again later",
        Some(Remedy::ReleasedByOthers)
    )]
    #[case::own(Ok(vec![7]), 3, "this program holds 3", None)]
    #[case::hidden(Err("GET_INFO: Invalid argument".to_owned()), 2, "this program holds 2", None)]
    fn holders_are_named(
        #[case] found: Result<Vec<i64>, String>,
        #[case] held: usize,
        #[case] expected: &str,
        #[case] remedy: Option<Remedy>,
    ) {
        assert_eq!(explain(found.map(BTreeSet::from_iter), 7, held), (expected.to_owned(), remedy));
    }

    #[test]
    fn firmware_that_makes_no_context_is_not_blamed_on_another_program() {
        let (text, remedy) = explain(Ok(BTreeSet::new()), 7, 0);
        assert_eq!(remedy, Some(Remedy::RestartedFirmware));
        assert!(!text.contains(ANOTHER_PROGRAM) && text.contains("modprobe -r amdxdna"), "{text}");
        let (text, remedy) = explain(Err("GET_INFO: Invalid argument".to_owned()), 7, 0);
        assert_eq!(remedy, Some(Remedy::ReleasedByOthers));
        assert!(text.contains(ANOTHER_PROGRAM) && text.contains("GET_INFO: Invalid argument"), "{text}");
        assert!(describe(std::process::id().into()).contains(" ("));
    }
}
