//! Opening the devices that a run would open.

use super::machine::Machine;
use super::opening::Opening;
use aie_jit_native::families::has_products;
use ggml_hsa::config::CompilerName;
use ggml_hsa::device::drivers;
use ggml_hsa::device::requested::requested;
use ggml_hsa::kernels::kernel_store::KernelStores;
use ggml_hsa::kernels::outcome::{Outcome, outcomes};

/// Opens what the settings request, as the library does.
pub fn open(machine: &Machine) -> Vec<Opening> {
    let requested = requested(&machine.config, &machine.arches);
    let stores = KernelStores::new(&machine.config, &machine.environment);
    let drivers = drivers::registry(machine.arches.clone(), machine.config.route, machine.config.validation);
    let opened = outcomes(&requested.uris, &drivers, &stores);
    let opening = |outcome| match outcome {
        Outcome::Offered { device, gate, .. } => {
            let (info, known) = (device.info(), || gate.and_then(|gate| gate.known_against_imports()));
            Opening::Offered { uri: info.uri.to_string(), copied: info.import_obstacle.clone().or_else(known) }
        }
        Outcome::Idle { device, reason } | Outcome::WithoutStore { device, reason } => {
            let chosen = machine.config.jit.compilers.as_ref();
            let has_unused =
                chosen.is_some_and(|chosen| !chosen.contains(&CompilerName::Native)) && has_products(device.arch());
            Opening::Idle { uri: device.info().uri.to_string(), reason, has_unused }
        }
        Outcome::Rejected { uri, cause } => {
            Opening::Rejected { uri, reason: cause.cause().to_string(), remedy: cause.remedy() }
        }
    };
    opened.into_iter().map(opening).collect()
}
