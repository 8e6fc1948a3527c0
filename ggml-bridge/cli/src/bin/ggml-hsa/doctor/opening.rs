//! Opening the devices that a run would open, and what became of each.

use super::machine::Machine;
use aie_jit_native::families::has_any;
use ggml_hsa::device::drivers;
use ggml_hsa::device::requested::requested;
use ggml_hsa::kernels::kernel_store::KernelStores;
use ggml_hsa::kernels::outcome::{Outcome, outcomes};

/// What became of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// llama.cpp gets it.
    Offered {
        /// Its URI.
        uri: String,
        /// Why it uses a copy of a model, if it does not use the model where llama.cpp has mapped it.
        copied: Option<String>,
    },
    /// It works, and has no kernels.
    Idle {
        /// Its URI.
        uri: String,
        /// What was tried.
        reason: String,
        /// Whether the library has kernels for it that it uses only on request.
        has_unused: bool,
    },
    /// It cannot be opened.
    Rejected {
        /// The URI that was requested.
        uri: String,
        /// Why.
        reason: String,
    },
}

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
            let has_unused = machine.config.jit.compilers.is_none() && has_any(device.arch());
            Opening::Idle { uri: device.info().uri.to_string(), reason, has_unused }
        }
        Outcome::Rejected { uri, cause } => Opening::Rejected { uri, reason: cause.cause().to_string() },
    };
    opened.into_iter().map(opening).collect()
}
