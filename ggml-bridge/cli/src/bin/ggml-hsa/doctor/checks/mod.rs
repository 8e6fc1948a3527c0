//! The checks, in the order of the report: from the kernel up to llama.cpp.

mod addresses;
mod cache;
mod devices;
mod firmware;
mod ggml;
mod kernel;
mod library;
mod runtimes;
mod settings;
mod users;

use super::finding::Finding;
use super::machine::Machine;

/// All of them.
const CHECKS: &[fn(&Machine) -> Vec<Finding>] = &[
    kernel::version,
    kernel::module,
    devices::npus,
    firmware::files,
    addresses::iommu,
    devices::lockable_memory,
    users::others,
    settings::values,
    settings::hidden,
    settings::paths,
    cache::kernels,
    library::file,
    library::variable,
    ggml::libraries,
    ggml::programs,
    runtimes::rocr,
    runtimes::xrt,
    runtimes::iron,
    devices::opened,
];

/// Examines `machine`.
pub fn all(machine: &Machine) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| check(machine)).collect()
}
