//! The environment variables: invalid values, misspelt names, variables that hide the NPU or name what is not there.

use super::super::finding::Finding;
use super::super::machine::Machine;
use aie_driver_rocr::settings::{AIE_HAL_LIBHSA_PATH, IREE_HAL_AMDGPU_LIBHSA_PATH};
use aie_driver_xdna::selection::Inventory;
use aie_driver_xdna::settings::AIE_HAL_VISIBLE_DEVICES;
use aie_hal::environment::{Problem, Variable};
use aie_jit_iron::settings::{
    GGML_HSA_IRON_DIR, GGML_HSA_JIT_WORKER, GGML_HSA_KERNEL_DIR, MLIR_AIE_INSTALL_DIR, PEANO_INSTALL_DIR,
};
use ggml_hsa::settings::{ALL, GGML_HSA, GGML_HSA_DEVICES};
use std::fs;

/// Values that have no meaning, and names that are no setting's.
pub fn values(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Problem { variable, text } in &machine.problems {
        findings.push(Finding::warning("settings", text, format!("correct it, or `unset {variable}`")));
    }
    for misnamed in machine.environment.misnamed(&ALL) {
        let fix = format!("correct its name, or `unset {}`", misnamed.name());
        findings.push(Finding::warning("settings", misnamed.to_string(), fix));
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

/// Variables that name folders that cannot be used, and files that do not exist. Their values are the user's and not shown.
pub fn paths(machine: &Machine) -> Vec<Finding> {
    let folders = [&GGML_HSA_KERNEL_DIR, &GGML_HSA_IRON_DIR, &MLIR_AIE_INSTALL_DIR, &PEANO_INSTALL_DIR];
    let files = [&GGML_HSA_JIT_WORKER, &AIE_HAL_LIBHSA_PATH, &IREE_HAL_AMDGPU_LIBHSA_PATH];
    let absolute = |variable: &Variable| {
        let path = machine.environment.path(variable).filter(|path| path.is_absolute());
        path.map(|path| machine.file(path))
    };
    let error = |variable: &Variable, what: &str, fix: String| {
        Finding::error("settings", format!("{} names {what}", variable.name), fix)
    };
    let correct = |variable: &Variable| format!("correct it, or `unset {}`", variable.name);
    let mut findings = Vec::new();
    for variable in folders.into_iter().chain(files) {
        let Some(path) = absolute(variable) else { continue };
        if !path.exists() {
            findings.push(error(variable, "a path that does not exist", correct(variable)));
        } else if !folders.contains(&variable) {
            continue;
        } else if !path.is_dir() {
            findings.push(error(variable, "a file where a folder has to be", correct(variable)));
        } else if let Err(cause) = fs::read_dir(&path) {
            let what = format!("a folder that cannot be read: {cause}");
            let fix = format!("`chmod -R u+rX \"${}\"`, as its owner", variable.name);
            findings.push(error(variable, &what, fix));
        }
    }
    findings
}
