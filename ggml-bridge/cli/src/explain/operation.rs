//! What a pass does of one operation with one shape.

use aie_hal::format::extent::Traffic;
use serde::Serialize;

/// One operation with one shape.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Operation {
    /// Its name.
    pub op: String,
    /// The name of its kernel, which holds types and extents.
    pub shape: String,
    /// Dispatches.
    pub array: u64,
    /// Host calls.
    pub host: u64,
    /// Why it runs on the host.
    pub host_reason: Option<String>,
    /// Who makes or has its kernel: a compiler, `embedded` or `directory`.
    pub kernel: Option<String>,
    /// Where the kernel comes from: `embedded`, `directory`, `cache` or `compiled`.
    pub from: Option<String>,
    /// Whether the kernel is machine code.
    pub code: bool,
    /// Bytes of its tensors, all times together.
    pub bytes: u64,
    /// Multiply-accumulates, all times together.
    pub macs: u64,
    /// What its dispatches read of memory, or write there, whatever takes longer. Not known of kernels that are only described, and of
    /// those whose streams are made for their data.
    pub traffic: Option<Traffic>,
    /// What its dispatches would take, with a command each.
    pub predicted_ns: Option<f64>,
}
