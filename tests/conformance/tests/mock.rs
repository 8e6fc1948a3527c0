//! Every case on the simulated NPU, in each of its modes and for each generation, those of `AIE_HAL_ARCH_PATH` included. The mock has no exclusions, and each case applies to one mode at least.

use aie_conformance::kernels::TestExecutor;
use aie_conformance::{Backend, CASES, Tag, compiled};
use aie_driver_mock::MockDriver;
use aie_hal::ArchRegistry;
use std::sync::Arc;

const TAGS: &[Tag] = &[
    Tag::SeveralDevices,
    Tag::HostImport,
    Tag::FileImport,
    Tag::Faults,
    Tag::MemoryCap,
    Tag::SoftwareKernels,
    Tag::HeapAllocation,
];

/// Parameters the mock knows, with values it has to reject.
const MALFORMED: &[&str] = &[
    "coherent=perhaps",
    "coherent=",
    "devices=0",
    "devices=-1",
    "devices=many",
    "order=sideways",
    "memory=lots",
    "memory=-1",
    "heap=0x10",
    "fault=lost",
    "fault=lost@0",
    "fault=lost@x",
    "fault=nonsense@1",
    "fault=lost@1+",
];

/// A mode; `parameters` are those of its URI.
fn mock(arches: &ArchRegistry, arch: &str, mode: &str, parameters: &str, coherence: Tag) -> Backend {
    let driver = MockDriver::new(Arc::new(TestExecutor)).with_registry(arches.clone());
    let has_tables = arches.get(arch).is_some_and(|arch| compiled::isa(&arch).is_some());
    Backend::new(format!("mock_{arch}_{mode}"), Arc::new(driver), format!("mock:{arch}{parameters}"))
        .tags(TAGS)
        .tags(&[coherence])
        .tags(if has_tables { &[Tag::MachineCode] } else { &[] })
        .malformed_parameters(MALFORMED)
}

fn main() {
    let (arches, problems) = ArchRegistry::from_environment();
    assert!(problems.is_empty(), "arch files that cannot be used: {problems:#?}");
    let mut modes = Vec::new();
    for arch in arches.names() {
        modes.push(mock(&arches, arch, "coherent", "", Tag::Coherent));
        modes.push(mock(&arches, arch, "noncoherent", "?coherent=false", Tag::NonCoherent));
    }
    modes.push(mock(&arches, "aie2p", "reverse", "?order=reverse", Tag::Coherent));
    modes.push(mock(&arches, "aie2p", "reverse_noncoherent", "?order=reverse&coherent=false", Tag::NonCoherent));
    for case in CASES {
        let applies = modes.iter().any(|mode| case.needs.iter().all(|&tag| mode.has(tag)));
        assert!(applies, "{} needs {:?}, which no mode of the mock has", case.name, case.needs);
    }
    aie_conformance::run(modes).exit();
}
