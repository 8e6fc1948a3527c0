//! The cache of compiled kernels.

use super::super::finding::Finding;
use super::super::machine::Machine;
use crate::cache::compilers;
use aie_jit_iron::KernelCache;
use aie_jit_iron::inventory::{Care, Inventory, State};
use ggml_hsa_cli::output::counted;
use std::path::Path;

/// Whether compiled kernels can be cached, and those that are can be used.
pub fn kernels(machine: &Machine) -> Vec<Finding> {
    let path = machine.config.cache.path();
    let existing = path.ancestors().map(|folder| machine.file(folder)).find(|folder| folder.exists());
    if !existing.is_some_and(|folder| folder.is_dir() && machine.process.may_use(&folder).is_ok()) {
        return vec![Finding::warning(
            "cache",
            format!("compiled kernels are not cached: {} cannot be written", path.display()),
            format!("`export GGML_HSA_KERNEL_CACHE_DIR=DIR` with a directory of yours, or {}", owned(path)),
        )];
    }
    vec![match damaged(machine, path) {
        0 => Finding::ok("cache", format!("compiled kernels are cached in {}", path.display())),
        count => Finding::warning(
            "cache",
            format!(
                "{} of the cache in {} cannot be read, and will be compiled again",
                counted(count, "kernel"),
                path.display()
            ),
            "`ggml-hsa cache prune`",
        ),
    }]
}

/// How many kernels of the cache are damaged, as far as sizes and manifests show it.
fn damaged(machine: &Machine, path: &Path) -> usize {
    let folder = machine.file(path);
    // Looking makes no cache.
    let cache = folder.exists().then(|| KernelCache::open(&folder).ok()).flatten();
    let inventory = cache.and_then(|cache| Inventory::take(&cache, &compilers(), &machine.arches, Care::Quick).ok());
    let items = inventory.map(|inventory| inventory.items).unwrap_or_default();
    items.iter().filter(|item| matches!(item.state, State::Damaged { .. })).count()
}

fn owned(path: &Path) -> String {
    format!("`sudo install -d -o \"$USER\" {}`", path.display())
}
