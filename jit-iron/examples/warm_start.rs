//! Measures loading 500 kernels from a cache, beside reading the same files plainly in the same run.
//!
//! `cargo run --release -p aie-jit-iron --example warm_start`

use aie_hal::ArchRegistry;
use aie_jit_iron::kernel_files::{KernelFiles, files_opened};
use aie_jit_iron::{KernelCache, KernelStore, ReferenceCompiler};
use aie_ops::name::kernel_name;
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KERNELS: usize = 500;
const ROUNDS: usize = 21;

fn main() -> Result<(), Box<dyn Error>> {
    let root = tempfile::tempdir()?;
    let path = root.path().join("cache");
    let arch = ArchRegistry::builtin().get("aie2p").ok_or("aie2p has an arch file")?;
    let op = table::lookup("ADD").ok_or("ADD is in the table")?;
    let node = |index: usize| {
        let tensor = Tensor::contiguous(DataType::F32, [16 * (index + 1), 1, 1, 1]);
        Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2])
    };
    let nodes: Vec<Node> = (0..KERNELS).map(node).collect();
    let open = || {
        let cache = KernelCache::open(&path)?;
        Ok::<_, Box<dyn Error>>(KernelStore::builder().cache(cache).compiler(Arc::new(ReferenceCompiler)).build()?)
    };
    let store = open()?;
    for node in &nodes {
        store.get(op, node, &arch)?;
    }
    let folder = path.join("reference").join(&arch.name);
    let files: Vec<_> = nodes.iter().flat_map(|n| KernelFiles::new(&folder, kernel_name(op, n)).all()).collect();
    let (mut plain, mut loaded, mut opened, mut bytes) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        bytes = 0;
        for file in &files {
            bytes += std::fs::read(file)?.len();
        }
        plain.push(start.elapsed());
        let (start, before) = (Instant::now(), files_opened());
        let store = open()?;
        for node in &nodes {
            store.get(op, node, &arch)?;
        }
        loaded.push(start.elapsed());
        opened = files_opened() - before;
    }
    let (plain, loaded) = (median(plain), median(loaded));
    println!("{KERNELS} kernels, {} files, {bytes} bytes", files.len());
    println!("reading them plainly: {plain:?}; opening the store and loading all: {loaded:?}");
    println!("ratio {:.2}; files opened per kernel {:.1}", ratio(loaded, plain), opened as f64 / KERNELS as f64);
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
