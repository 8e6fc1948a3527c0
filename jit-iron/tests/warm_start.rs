//! What a warm start costs, counted in files, and measured beside reading the same files plainly. Alone in its program, because
//! the count is the process's.

mod rig;

use aie_jit_iron::kernel_files::{KernelFiles, files_opened};
use aie_jit_iron::{KernelCache, KernelStore, StoreCounters, Wanted};
use aie_ops::Node;
use aie_ops::compiler::ReferenceCompiler;
use rig::{arch, sum};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KERNELS: usize = 500;
const ROUNDS: usize = 5;

fn load_all(path: &Path, nodes: &[Node]) -> (StoreCounters, u64) {
    let cache = KernelCache::open(path).unwrap();
    let store = KernelStore::builder().cache(cache).compiler(Arc::new(ReferenceCompiler)).build().unwrap();
    let (before, op, arch) = (files_opened(), sum(1).0, arch());
    nodes.iter().for_each(|node| drop(store.get(op, node, &arch).unwrap()));
    (store.counters(), files_opened() - before)
}

#[test]
fn three_files_per_kernel_and_nothing_is_listed() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("cache");
    let nodes: Vec<Node> = (0..KERNELS).map(|index| sum(16 * (index + 1)).1).collect();
    let (first, _) = load_all(&path, &nodes);
    assert_eq!(first, StoreCounters { compiled: KERNELS as u64, ..StoreCounters::default() });
    let (folder, arch) = (path.join("reference/aie2p"), arch());
    let stem = |node| Wanted::of(sum(1).0, node, &arch).stem();
    let files: Vec<_> = nodes.iter().flat_map(|node| KernelFiles::new(&folder, stem(node)).all()).collect();
    let (mut plain, mut loaded) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        files.iter().for_each(|file| drop(std::fs::read(file).unwrap()));
        plain = plain.min(start.elapsed());
        let start = Instant::now();
        let (counters, opened) = load_all(&path, &nodes);
        loaded = loaded.min(start.elapsed());
        assert_eq!(counters, StoreCounters { cache: KERNELS as u64, ..StoreCounters::default() });
        assert_eq!(opened, 3 * KERNELS as u64);
    }
    println!("{KERNELS} kernels: reading their files takes {plain:?}, opening the store and loading them {loaded:?}");
}
