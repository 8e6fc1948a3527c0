//! The environment variables: invalid values, misspelt names, variables that hide the NPU or name what is not there.

use super::super::finding::Finding;
use super::super::machine::Machine;
use aie_driver_xdna::selection::Inventory;
use aie_driver_xdna::settings::{AIE_HAL_LIBHSA_PATH, AIE_HAL_VISIBLE_DEVICES, IREE_HAL_AMDGPU_LIBHSA_PATH};
use aie_hal::environment::Variable;
use aie_jit_iron::settings::{
    GGML_HSA_IRON_DIR, GGML_HSA_JIT_WORKER, GGML_HSA_KERNEL_DIR, MLIR_AIE_INSTALL_DIR, PEANO_INSTALL_DIR,
};
use ggml_hsa::settings::{ALL, GGML_HSA, GGML_HSA_DEVICES};
use std::path::Path;

/// Values that have no meaning, and names that are no setting's.
pub fn values(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for problem in &machine.problems {
        // Messages begin with the variable's name.
        let name = problem.split([':', ' ']).next().unwrap_or_default();
        findings.push(Finding::warning("settings", problem.clone(), format!("correct it, or `unset {name}`")));
    }
    for misnamed in machine.environment.misnamed(&ALL) {
        let text = misnamed.to_string();
        let name = text.split(' ').next().unwrap_or_default().to_owned();
        findings.push(Finding::warning("settings", text, format!("correct its name, or `unset {name}`")));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("settings", "every variable that is set is a setting with a valid value"));
    }
    findings
}

/// Variables that keep an NPU from being used.
pub fn hidden(machine: &Machine) -> Vec<Finding> {
    let unset = |variable: &Variable| format!("`unset {}`", variable.name);
    if !machine.config.enabled {
        return vec![Finding::error("settings", format!("{GGML_HSA} is off: no device is offered"), unset(&GGML_HSA))];
    }
    let mut findings = Vec::new();
    if machine.config.devices.as_ref().is_some_and(Vec::is_empty) {
        let text = format!("{GGML_HSA_DEVICES} is set and empty: no device is offered");
        findings.push(Finding::error("settings", text, unset(&GGML_HSA_DEVICES)));
    }
    let visible = machine.environment.get(&AIE_HAL_VISIBLE_DEVICES).map(|value| value.to_string_lossy().into_owned());
    let npus = machine.survey().npus;
    if visible.is_none() || npus.is_empty() {
        return findings;
    }
    match Inventory::new(npus, visible.as_deref()) {
        Err(cause) => {
            findings.push(Finding::error("settings", cause.to_string(), unset(&AIE_HAL_VISIBLE_DEVICES)));
        }
        Ok(inventory) => {
            let usable = inventory.npus.iter().any(|npu| npu.usable());
            for npu in inventory.hidden.iter().filter(|npu| npu.usable()) {
                let text = format!("{AIE_HAL_VISIBLE_DEVICES} hides {}, which is usable", npu.id);
                findings.push(match usable {
                    true => Finding::note("settings", text),
                    false => Finding::error("settings", text, unset(&AIE_HAL_VISIBLE_DEVICES)),
                });
            }
        }
    }
    findings
}

/// Variables that name files and folders that do not exist. Their values are the user's and not shown.
pub fn paths(machine: &Machine) -> Vec<Finding> {
    let named = [
        &GGML_HSA_KERNEL_DIR,
        &GGML_HSA_IRON_DIR,
        &GGML_HSA_JIT_WORKER,
        &MLIR_AIE_INSTALL_DIR,
        &PEANO_INSTALL_DIR,
        &AIE_HAL_LIBHSA_PATH,
        &IREE_HAL_AMDGPU_LIBHSA_PATH,
    ];
    let missing = |variable: &&&Variable| {
        let path = machine.environment.path(variable);
        path.is_some_and(|path| path.is_absolute() && !machine.file(path).exists())
    };
    let finding = |variable: &&Variable| {
        let name = variable.name;
        Finding::error(
            "settings",
            format!("{name} names a path that does not exist"),
            format!("correct it, or `unset {name}`"),
        )
    };
    named.iter().filter(missing).map(finding).collect()
}

/// Whether compiled kernels can be cached.
pub fn cache(machine: &Machine) -> Vec<Finding> {
    let path = machine.config.cache.path();
    let existing = path.ancestors().map(|folder| machine.file(folder)).find(|folder| folder.exists());
    let usable = existing.is_some_and(|folder| machine.process.may_use(&folder).is_ok());
    vec![match usable {
        true => Finding::ok("cache", format!("compiled kernels are cached in {}", path.display())),
        false => Finding::warning(
            "cache",
            format!("compiled kernels are not cached: {} cannot be written", path.display()),
            format!("`export GGML_HSA_KERNEL_CACHE_DIR=DIR` with a directory of yours, or {}", owned(path)),
        ),
    }]
}

fn owned(path: &Path) -> String {
    format!("`sudo install -d -o \"$USER\" {}`", path.display())
}
