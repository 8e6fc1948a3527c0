//! Opening the devices the user requested, when ggml initialises the backend.

use crate::config::Config;
use crate::config::device_type::DeviceType;
use crate::config::log;
use crate::device::backend_device::BackendDevice;
use crate::device::drivers;
use crate::device::requested::{Message, requested};
use crate::device::statistics_file::StatisticsFile;
use crate::kernels::kernel_store::KernelStores;
use crate::kernels::outcome::{Outcome, outcomes};
use crate::report::graph_file::GraphFile;
use crate::report::{events, trace_file};
use crate::settings;
use crate::settings::{GGML_HSA_DEVICES, GGML_HSA_GRAPHS, GGML_HSA_REQUIRE_ARRAY, GGML_HSA_STATS, GGML_HSA_TRACE};
use aie_hal::{ArchRegistry, Environment};
use std::sync::Arc;

/// Opens what `environment` names. Every problem is a message; what can be used is used.
pub fn devices(environment: &Environment) -> (Vec<Arc<BackendDevice>>, Option<DeviceType>, Option<StatisticsFile>) {
    events::pass_on();
    let (config, problems) = Config::read(environment);
    log::set_verbose(config.verbose);
    environment.misnamed(&settings::ALL).iter().for_each(|misnamed| log::warn(&misnamed.to_string()));
    problems.iter().for_each(|problem| log::error(&problem.text));
    if !config.enabled {
        requested(&config, &ArchRegistry::builtin()).messages.iter().for_each(Message::log);
        return (Vec::new(), config.device_type, None);
    }
    let statistics = config.statistics.as_deref().and_then(|path| {
        StatisticsFile::open(path)
            .inspect_err(|cause| {
                log::error(&format!(
                    "{GGML_HSA_STATS}: {} cannot be written: {cause}; no statistics will be written",
                    path.display()
                ));
            })
            .ok()
    });
    if let Some(path) = &config.trace
        && let Err(cause) = trace_file::start(path)
    {
        log::error(&format!("{GGML_HSA_TRACE}: {} cannot be written: {cause}; there is no timeline", path.display()));
    }
    let graphs = config.graphs.as_deref().and_then(|path| {
        let cannot = |cause: &std::io::Error| {
            log::error(&format!(
                "{GGML_HSA_GRAPHS}: {} cannot be written: {cause}; no graphs are written",
                path.display()
            ));
        };
        GraphFile::create(path).inspect_err(cannot).ok().map(Arc::new)
    });
    let (arches, problems) = ArchRegistry::from_environment();
    problems.iter().for_each(|problem| log::error(&problem.to_string()));
    let requested = requested(&config, &arches);
    requested.messages.iter().for_each(Message::log);
    if requested.uris.is_empty() {
        if config.require_array {
            none_to_require();
        }
        return (Vec::new(), config.device_type, statistics);
    }
    let stores = KernelStores::new(&config, environment);
    let (mut npus, mut idle) = (Vec::new(), Vec::new());
    let drivers = drivers::registry(arches, config.route, config.validation);
    for outcome in outcomes(&requested.uris, &drivers, &stores) {
        match outcome {
            Outcome::Offered { device, store, gate } => {
                log::info(|| format!("HSA{} is {}", npus.len(), device.info().uri));
                npus.push(Arc::new(BackendDevice::new(npus.len(), device, store, gate, graphs.clone(), &config)));
            }
            Outcome::Idle { device, reason } => {
                idle.push((format!("{} ({})", device.info().uri, device.info().name), reason));
            }
            Outcome::WithoutStore { device, reason } => {
                log::error(&format!("{}: {reason}; continuing without it", device.info().uri));
            }
            Outcome::Rejected { cause, .. } => match config.devices {
                Some(_) => log::error(&format!("{GGML_HSA_DEVICES}: {cause}; continuing without it")),
                None => log::error(&format!("{cause}; continuing without it")),
            },
        }
    }
    if let Some(warning) = idle_warning(&idle) {
        log::notice(&warning);
    }
    if npus.is_empty() && config.require_array {
        none_to_require();
    }
    (npus, config.device_type, statistics)
}

/// Without a device no graph gets here that could fail.
fn none_to_require() {
    log::error(&format!("{GGML_HSA_REQUIRE_ARRAY} is on, and there is no device: llama.cpp computes without an NPU"));
}

/// One warning about all NPUs that are not offered, because all their work would run on the host. Devices with their reasons.
fn idle_warning(idle: &[(String, String)]) -> Option<String> {
    let mut by_reason: Vec<(&str, String)> = Vec::new();
    for (device, reason) in idle {
        match by_reason.iter_mut().find(|(known, _)| known == reason) {
            Some((_, devices)) => *devices += &format!(", {device}"),
            None => by_reason.push((reason, device.clone())),
        }
    }
    let warning = |(reason, devices)| format!("{devices} not offered, since everything would run on the CPU: {reason}");
    let warnings: Vec<String> = by_reason.into_iter().map(warning).collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn all_idle_devices_are_one_warning() {
        assert_eq!(idle_warning(&[]), None);
        let idle = [("xdna:0 (Strix)", "aie2p"), ("xdna:1 (Phoenix)", "aie2"), ("xdna:2 (Strix)", "aie2p")];
        let warning = idle_warning(&idle.map(|(device, reason)| (device.to_owned(), reason.to_owned()))).unwrap();
        assert!(warning.starts_with("xdna:0 (Strix), xdna:2 (Strix) not offered"), "{warning}");
        assert!(warning.contains("; xdna:1 (Phoenix) not offered"), "{warning}");
    }

    /// With a cache of its own: tests must not touch the user's.
    #[rstest]
    #[case::two(&[("GGML_HSA_DEVICES", "mock:aie2p?devices=2")], 2)]
    #[case::none_named(&[("GGML_HSA_DEVICES", "")], 0)]
    #[case::switched_off(&[("GGML_HSA_DEVICES", "mock:aie2p?devices=2"), ("GGML_HSA", "off")], 0)]
    #[case::misnamed(&[("GGML_HSA_DEVICES", "mock"), ("GGML_HSA_DEVCIES", "mock:aie2")], 1)]
    fn the_environment_says_which_devices_there_are(#[case] pairs: &[(&str, &str)], #[case] expected: usize) {
        let folder = tempfile::tempdir().unwrap();
        let cache = [("GGML_HSA_KERNEL_CACHE_DIR", folder.path().to_str().unwrap()), ("GGML_HSA_JIT_WORKERS", "0")];
        let (npus, ..) = devices(&Environment::from_pairs(pairs.iter().copied().chain(cache)));
        assert_eq!(npus.len(), expected);
    }
}
