//! What becomes of each device that is requested: opened, with kernels or without, or rejected.

use crate::kernels::kernel_store::KernelStores;
use crate::kernels::selftest::gate::Gate;
use aie_hal::driver::DriverRegistry;
use aie_hal::{Device, DriverError};
use aie_jit_iron::{KernelStore, StoreError};
use std::sync::Arc;

/// What becomes of a device that is requested.
pub enum Outcome {
    /// ggml gets it: the first one as `HSA0`, and so on.
    Offered {
        /// The device.
        device: Arc<dyn Device>,
        /// Where its kernels come from.
        store: Arc<KernelStore>,
        /// What tests it, on an NPU.
        gate: Option<Arc<Gate>>,
    },
    /// It works, and no source has kernels for it, so everything would run on the CPU.
    Idle {
        /// The device.
        device: Arc<dyn Device>,
        /// What was tried.
        reason: String,
    },
    /// It works, and the kernel store cannot be used.
    WithoutStore {
        /// The device.
        device: Arc<dyn Device>,
        /// Why.
        reason: String,
    },
    /// The URI opens nothing.
    Rejected {
        /// The URI as it was requested.
        uri: String,
        /// Why.
        cause: DriverError,
    },
}

/// Opens the devices that `uris` name with `drivers`, and finds what each would get its kernels from, in the order of the list.
pub fn outcomes(uris: &[String], drivers: &DriverRegistry, stores: &KernelStores<'_>) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for uri in uris {
        match drivers.open(uri) {
            Ok(devices) => outcomes.extend(devices.into_iter().map(|device| match stores.of(&*device) {
                Ok(store) => Outcome::Offered { gate: stores.gate(&*device), device, store },
                Err(cause @ StoreError::NoKernels { .. }) => Outcome::Idle { device, reason: cause.to_string() },
                Err(cause) => Outcome::WithoutStore { device, reason: cause.to_string() },
            })),
            Err(cause) => outcomes.push(Outcome::Rejected { uri: uri.clone(), cause }),
        }
    }
    outcomes
}
