//! What ran where, as JSON for people and checks.
//!
//! The file has the layout
//! `{"version":1,"devices":[{"name","uri","arch","counters":{...},"weights":{"converted","bytes","cap_bytes","refused"},
//! "graphs":{"computed","built","replayed"},
//! "operations":[{"op","shape","kernel","array","code","host","host_reason","bytes","macs"}],
//! "work":{"code_dispatches","code_pdis","reference_dispatches","code_macs","reference_macs","host_macs"},
//! "conversions":{"host_calls","bytes"},"fusion":{"dispatches","nodes"},
//! "graph_log":[{"nodes","submissions","allocations","replayed"}]}],
//! "store":{"memory","embedded","directory","cache","compiled","failed","missed":[{"arch","kernel","node","reason"}]}}`.
//! `shape` is the kernel's name, which holds all extents and types; `kernel` is the compiler that made it, or `embedded` or `directory`.
//! `array` are the dispatches, `code` those of them whose kernel was machine code (on a simulated device the others are reference
//! kernels), `code_pdis` the different PDIs of these, and `macs` the multiply-accumulates of products, all times together. Counts are per process and device; those of the store are of
//! all devices together. `missed` are the kernels that neither the library nor the user's directory had, for
//! `ggml-hsa-gen-kernels --from-stats`.

use crate::config::log;
use crate::device::backend_device::BackendDevice;
use crate::memory::weights::WeightCounts;
use crate::settings::GGML_HSA_STATS;
use aie_hal::Counters;
use aie_jit_iron::{KernelStore, Missed, StoreCounters};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Serialize)]
struct DeviceReport<C> {
    name: String,
    uri: String,
    arch: String,
    counters: Counters,
    weights: WeightCounts,
    #[serde(flatten)]
    counts: C,
}

#[derive(Serialize)]
struct Report<C> {
    version: u32,
    devices: Vec<DeviceReport<C>>,
    store: StoreReport,
}

#[derive(Default, Serialize)]
struct StoreReport {
    #[serde(flatten)]
    counters: StoreCounters,
    missed: Vec<Missed>,
}

/// The stores of all devices together; devices share them.
fn store_report(devices: &[Arc<BackendDevice>]) -> StoreReport {
    let mut report = StoreReport::default();
    let mut seen: Vec<&Arc<KernelStore>> = Vec::new();
    for store in devices.iter().map(|device| &device.context.kernels.store) {
        if !seen.iter().any(|other| Arc::ptr_eq(other, store)) {
            report.counters += store.counters();
            report.missed.extend(store.missed());
            seen.push(store);
        }
    }
    report
}

fn report(devices: &[Arc<BackendDevice>]) -> Report<impl Serialize + use<>> {
    let report = |device: &Arc<BackendDevice>| {
        let context = &device.context;
        let info = context.hal.info();
        DeviceReport {
            name: context.name.clone(),
            uri: info.uri.to_string(),
            arch: info.arch.clone(),
            counters: context.hal.counters(),
            weights: context.weights.counts(),
            counts: context.statistics.counts(),
        }
    };
    Report { version: 1, devices: devices.iter().map(report).collect(), store: store_report(devices) }
}

/// The file that statistics go to.
#[derive(Debug)]
pub struct StatisticsFile {
    path: PathBuf,
}

impl StatisticsFile {
    /// Checks at once that `path` can be written, so that a mistake is reported before hours of work and not after. An existing
    /// file keeps its content until there is something to replace it.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Writes the counts of all devices, replacing what was there.
    pub fn write(&self, devices: &[Arc<BackendDevice>]) {
        let result = serde_json::to_vec(&report(devices)).map_err(io::Error::from).and_then(|mut json| {
            json.push(b'\n');
            std::fs::write(&self.path, json)
        });
        if let Err(cause) = result {
            log::error(&format!("{GGML_HSA_STATS}: statistics cannot be written to {}: {cause}", self.path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritable_path_is_reported_when_opened() {
        let directory = tempfile::tempdir().unwrap();
        assert!(StatisticsFile::open(directory.path()).is_err());
        assert!(StatisticsFile::open(&directory.path().join("missing/file")).is_err());
        assert!(StatisticsFile::open(&directory.path().join("stats.json")).is_ok());
    }
}
