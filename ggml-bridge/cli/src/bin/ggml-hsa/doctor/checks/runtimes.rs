//! AMD's runtimes and IRON: what there is, and whether it is needed. The default way to an NPU needs none of them.

use super::super::finding::Finding;
use super::super::machine::Machine;
use super::ggml::library_folders;
use aie_driver_rocr::settings::{AIE_HAL_LIBHSA_PATH, ROCM_PATH};
use aie_driver_xdna::route::Route;
use aie_jit_iron::iron::WORKER;
use aie_jit_iron::settings::{GGML_HSA_IRON_DIR, GGML_HSA_JIT_PYTHON, MLIR_AIE_INSTALL_DIR};
use ggml_hsa::settings::PATH;
use std::path::PathBuf;

/// The first of `folders` that has a file whose name begins with `name`.
fn folder_with(machine: &Machine, folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let has = |folder: &&PathBuf| machine.names(folder).iter().any(|file| file.starts_with(name));
    folders.iter().find(has).cloned()
}

/// AMD's HSA runtime.
pub fn rocr(machine: &Machine) -> Vec<Finding> {
    const NAME: &str = "libhsa-runtime64.so.1";
    let environment = &machine.environment;
    let rocm = environment.path(&ROCM_PATH).into_iter().chain(["/opt/rocm".into()]);
    let mut folders: Vec<PathBuf> = rocm.flat_map(|rocm| ["lib", "lib64"].map(|name| rocm.join(name))).collect();
    folders.extend(library_folders(machine));
    let named = environment.path(&AIE_HAL_LIBHSA_PATH).filter(|path| machine.file(path).exists());
    let found = named.or_else(|| folder_with(machine, &folders, NAME));
    let needed = machine.config.route == Route::Rocr;
    vec![match (found, needed) {
        (Some(place), true) => Finding::ok("rocr", format!("{NAME} in {}, needed by runtime=rocr", place.display())),
        (Some(place), false) => Finding::note("rocr", format!("{NAME} in {}, not needed", place.display())),
        (None, false) => Finding::note("rocr", "AMD's ROCR is not installed, and not needed"),
        (None, true) => Finding::error(
            "rocr",
            format!("GGML_HSA_RUNTIME is rocr, and {NAME} is in none of the usual folders"),
            "`sudo apt install libhsa-runtime64-1` (7.2 or newer), or install ROCm; or do without: `unset GGML_HSA_RUNTIME`",
        ),
    }]
}

/// AMD's XRT.
pub fn xrt(machine: &Machine) -> Vec<Finding> {
    let folders = [vec![PathBuf::from("/opt/xilinx/xrt/lib")], library_folders(machine)].concat();
    vec![match folder_with(machine, &folders, "libxrt_core.so") {
        Some(place) => Finding::note("xrt", format!("XRT is in {}, not needed", place.display())),
        None => Finding::note("xrt", "AMD's XRT is not installed, and not needed"),
    }]
}

/// IRON, which compiles kernels that no other source has.
pub fn iron(machine: &Machine) -> Vec<Finding> {
    let environment = &machine.environment;
    let installed = machine.programs.as_ref().and_then(|folder| folder.parent()).map(|p| p.join("share/ggml-hsa/iron"));
    let designs = environment.path(&GGML_HSA_IRON_DIR).or(installed);
    let designs = designs.filter(|folder| machine.file(folder.join(WORKER)).is_file());
    let on_path = || {
        let folders = environment.get(&PATH).map(|path| std::env::split_paths(path).collect::<Vec<_>>());
        folders.into_iter().flatten().map(|folder| folder.join("python3")).find(|file| machine.file(file).exists())
    };
    let python = environment.path(&GGML_HSA_JIT_PYTHON).or_else(on_path);
    let toolchain = environment.path(&MLIR_AIE_INSTALL_DIR);
    let text = |there: bool| if there { "found" } else { "not found" };
    vec![Finding::note(
        "iron",
        format!(
            "designs {}, Python {}, mlir-aie {}; needed only to compile kernels that no other source has",
            text(designs.is_some()),
            text(python.is_some()),
            if toolchain.is_some() { "named by MLIR_AIE_INSTALL_DIR" } else { "as Python finds it" }
        ),
    )]
}
