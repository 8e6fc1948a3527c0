//! What a warm start costs, counted in files. Alone in its program, because the count is the process's.

mod rig;

use aie_jit_iron::kernel_files::files_opened;
use aie_jit_iron::{KernelCache, KernelStore, ReferenceCompiler, StoreCounters};
use rig::{arch, sum};
use std::path::Path;
use std::sync::Arc;

const KERNELS: usize = 500;

fn load_all(path: &Path) -> (StoreCounters, u64) {
    let arch = arch();
    let cache = KernelCache::open(path).unwrap();
    let store = KernelStore::builder().cache(cache).compiler(Arc::new(ReferenceCompiler)).build().unwrap();
    let before = files_opened();
    for index in 0..KERNELS {
        let (op, node) = sum(16 * (index + 1));
        store.get(op, &node, &arch).unwrap();
    }
    (store.counters(), files_opened() - before)
}

#[test]
fn three_files_per_kernel_and_nothing_is_listed() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("cache");
    let (first, _) = load_all(&path);
    assert_eq!(first, StoreCounters { compiled: KERNELS as u64, ..StoreCounters::default() });
    let (second, opened) = load_all(&path);
    assert_eq!(second, StoreCounters { cache: KERNELS as u64, ..StoreCounters::default() });
    assert_eq!(opened, 3 * KERNELS as u64);
}
