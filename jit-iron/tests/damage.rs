//! Damage of every kind: a changed kernel is never served, and nothing that lies in a directory makes the store crash.

mod rig;

use aie_hal::{Arch, ArchRegistry, KernelArtifact};
use aie_jit_iron::cache::Found;
use aie_jit_iron::kernel_files::KernelFiles;
use aie_jit_iron::manifest::{Manifest, Origin};
use aie_jit_iron::{KernelCache, KernelDirectory, Wanted};
use aie_ops::compiler::{KernelCompiler, ReferenceCompiler};
use aie_ops::{Node, Operation};
use rig::{arch, sum};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

struct Rig {
    _root: tempfile::TempDir,
    cache: KernelCache,
    directory: KernelDirectory,
    op: &'static dyn Operation,
    node: Node,
    arch: Arc<Arch>,
    files: KernelFiles,
    artifact: KernelArtifact,
}

impl Rig {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let cache = KernelCache::open(&root.path().join("cache")).unwrap();
        let directory = KernelDirectory::open(cache.root()).unwrap();
        let ((op, node), arch) = (sum(64), arch());
        let artifact = ReferenceCompiler.compile(op, &node, &arch).unwrap();
        let files = KernelFiles::new(cache.root().join("aie2p"), artifact.name());
        let rig = Self { _root: root, cache, directory, op, node, arch, files, artifact };
        rig.files.publish(&rig.artifact, &rig.manifest(&rig.artifact, &rig.node)).unwrap();
        rig
    }

    fn manifest(&self, artifact: &KernelArtifact, node: &Node) -> Manifest {
        let origin = Origin { compiler: "c".into(), toolchain: "t".into(), sources: "s".into() };
        Manifest::new(artifact, node, origin, Duration::ZERO)
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted::of(self.op, &self.node, &self.arch)
    }

    /// Whether the cache serves the kernel now. If it does, it is the right one.
    fn served(&self) -> bool {
        match self.cache.look(&self.files, &self.wanted(), None) {
            Found::Kernel(artifact) => {
                assert_eq!(artifact.identity(), self.artifact.identity(), "a changed kernel was served");
                true
            }
            _ => false,
        }
    }

    /// Whether the same files serve as a user's directory. Without a manifest a change may go unnoticed there.
    fn served_by_directory(&self) -> bool {
        self.directory.load(&self.wanted()).is_ok_and(|found| found.is_some())
    }

    fn changed(&self, path: &PathBuf, bytes: &[u8]) -> bool {
        fs::write(path, bytes).unwrap();
        self.served_by_directory();
        self.served()
    }
}

#[test]
fn every_byte_flipped_once() {
    let rig = Rig::new();
    let mut executions = 0;
    for path in rig.files.all() {
        let whole = fs::read(&path).unwrap();
        let mut harmless = 0;
        for position in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[position] ^= 1 << (position % 8);
            harmless += usize::from(rig.changed(&path, &bytes));
            executions += 1;
        }
        fs::write(&path, &whole).unwrap();
        assert!(rig.served() && rig.served_by_directory());
        // Only what a manifest says for people, such as the time it took, may change.
        let manifest = path == rig.files.manifest();
        assert!(if manifest { harmless < whole.len() / 2 } else { harmless == 0 }, "{}: {harmless}", path.display());
    }
    println!("{executions} executions");
}

#[test]
fn every_length() {
    let rig = Rig::new();
    for path in rig.files.all() {
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            let last_newline = path == rig.files.manifest() && length + 1 == whole.len();
            assert_eq!(rig.changed(&path, &whole[..length]), last_newline, "{} of {length}", path.display());
        }
        let mut longer = whole.clone();
        longer.extend([0; 4]);
        assert!(!rig.changed(&path, &longer));
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn random_damage() {
    let rig = Rig::new();
    let mut generator = fastrand::Rng::with_seed(7);
    let mut random = |limit: usize| generator.usize(..limit);
    let paths = rig.files.all();
    let whole: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    for _ in 0..5_000 {
        let at = random(paths.len());
        let mut bytes = whole[at].clone();
        for _ in 0..=random(6) {
            let position = random(bytes.len());
            match random(4) {
                0 => bytes[position] = random(256) as u8,
                1 => drop(bytes.remove(position)),
                2 => bytes.insert(position, random(256) as u8),
                _ => {
                    let source = random(bytes.len());
                    bytes[position] = bytes[source];
                }
            }
        }
        // Served only when it is the right kernel, which `served` checks.
        rig.changed(&paths[at], &bytes);
        fs::write(&paths[at], &whole[at]).unwrap();
    }
    assert!(rig.served());
}

#[test]
fn files_of_other_kernels() {
    let rig = Rig::new();
    let other = ReferenceCompiler.compile(rig.op, &sum(32).1, &rig.arch).unwrap();
    for (path, bytes) in [(rig.files.pdi(), other.pdi()), (rig.files.instructions(), other.instructions())] {
        let whole = fs::read(&path).unwrap();
        assert!(!rig.changed(&path, bytes), "{}", path.display());
        assert!(!rig.served_by_directory(), "{}", path.display());
        fs::write(&path, &whole).unwrap();
    }
    // PDI and instructions exchanged.
    fs::write(rig.files.pdi(), rig.artifact.instructions()).unwrap();
    fs::write(rig.files.instructions(), rig.artifact.pdi()).unwrap();
    assert!(!rig.served() && !rig.served_by_directory());
    // All three files of another kernel under this one's name.
    rig.files.publish(&other, &rig.manifest(&other, &sum(32).1)).unwrap();
    assert!(!rig.served() && !rig.served_by_directory());
}

#[test]
fn kernels_of_another_generation() {
    let rig = Rig::new();
    let other = ArchRegistry::builtin().get("aie2").unwrap();
    let artifact = ReferenceCompiler.compile(rig.op, &rig.node, &other).unwrap();
    rig.files.publish(&artifact, &rig.manifest(&artifact, &rig.node)).unwrap();
    assert!(!rig.served() && !rig.served_by_directory());
}
