//! Many processes on one cache: one compilation per kernel, no partial file, and a store that heals when processes are killed.
//!
//! The processes are this test program again, with settings in its environment that make the test `process` a user of the store.

mod rig;

use aie_hal::format::instructions::InstructionStream;
use aie_hal::{Arch, KernelArtifact};
use aie_jit_iron::cache::Found;
use aie_jit_iron::kernel_files::{KernelFiles, UNFINISHED};
use aie_jit_iron::manifest::Manifest;
use aie_jit_iron::{KernelCache, KernelStore, Wanted};
use aie_ops::compiler::{CompileError, KernelCompiler, ReferenceCompiler};
use aie_ops::name::kernel_name;
use aie_ops::{Node, Operation};
use rig::{arch, sum};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Kernels of a user that is killed.
const KERNELS: usize = 12;
/// A [`User`] as JSON, for a process that is one.
const USER: &str = "STORE_TEST_USER";

/// A process that uses the store.
#[derive(Clone, Default, Serialize, Deserialize)]
struct User {
    root: PathBuf,
    toolchain: String,
    kernels: usize,
    /// How long a compilation takes.
    milliseconds: u64,
    /// Index of the kernel it begins with.
    first: usize,
    /// Whether it continues until it is killed.
    endless: bool,
}

/// Makes reference artifacts slowly, and writes a line for each.
#[derive(Debug)]
struct Slow {
    root: PathBuf,
    toolchain: String,
    takes: Duration,
}

impl KernelCompiler for Slow {
    fn name(&self) -> &str {
        "slow"
    }
    fn identity(&self) -> String {
        self.toolchain.clone()
    }
    fn sources(&self) -> String {
        "none".into()
    }
    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        std::thread::sleep(self.takes);
        let mut log = OpenOptions::new().append(true).create(true).open(self.root.join("compiled")).unwrap();
        log.write_all(format!("{}\n", kernel_name(op, node)).as_bytes()).unwrap();
        ReferenceCompiler.compile(op, node, arch)
    }
}

fn kernel(index: usize) -> (&'static dyn Operation, Node) {
    sum(16 * (index + 1))
}

/// Not a test of its own: the user of the store, when there are settings.
#[test]
fn process() {
    let Ok(user) = std::env::var(USER) else { return };
    let user: User = serde_json::from_str(&user).unwrap();
    if !user.endless {
        let served = user.serve();
        fs::write(user.root.join(format!("served-{}", std::process::id())), served.to_string()).unwrap();
        return;
    }
    // One that is to be killed is always at work: each time with another toolchain, so that kernels are replaced.
    for step in 0usize.. {
        User { toolchain: format!("{}.{step}", user.toolchain), ..user.clone() }.serve();
    }
}

impl User {
    fn start(&self) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process", "--test-threads=1", "-q"]).stdout(Stdio::null());
        command.env(USER, serde_json::to_string(self).unwrap()).spawn().unwrap()
    }

    /// Asks for all kernels in four threads; returns how many there were.
    fn serve(&self) -> usize {
        let takes = Duration::from_millis(self.milliseconds);
        let compiler = Slow { root: self.root.clone(), toolchain: self.toolchain.clone(), takes };
        let cache = KernelCache::open(&self.root.join("cache")).unwrap();
        let store = KernelStore::builder().cache(cache).compiler(Arc::new(compiler)).build().unwrap();
        let (count, first, arch) = (self.kernels, self.first, arch());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (store, arch) = (&store, &arch);
                scope.spawn(move || {
                    for step in (thread..count).step_by(4) {
                        let (op, node) = kernel((first + step) % count);
                        let artifact = store.get(op, &node, arch).unwrap();
                        let expected = ReferenceCompiler.compile(op, &node, arch).unwrap();
                        assert_eq!(artifact.identity(), expected.identity(), "a wrong kernel was served");
                    }
                });
            }
        });
        let counters = store.counters();
        assert_eq!(counters.cache + counters.compiled, count as u64, "{counters:?}");
        count
    }
}

/// One that asks for [`KERNELS`], each of which takes a millisecond.
fn user(root: &Path, toolchain: &str) -> User {
    User { root: root.into(), toolchain: toolchain.into(), kernels: KERNELS, milliseconds: 1, ..User::default() }
}

fn compiled(root: &Path) -> usize {
    fs::read_to_string(root.join("compiled")).map_or(0, |text| text.lines().count())
}

fn served(root: &Path) -> usize {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let served = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("served-"));
    served.map(|entry| fs::read_to_string(entry.path()).unwrap().parse::<usize>().unwrap()).sum()
}

/// Checks every visible file, and rejects any that is incomplete. For caches in which nothing is replaced.
fn inspect(folder: &Path) -> usize {
    let mut whole = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with(UNFINISHED) {
            continue;
        }
        if let Some(stem) = name.strip_suffix(".pdi") {
            // A kernel is there when its PDI is: all of it.
            let files = KernelFiles::new(folder, stem);
            let content = files.read(1 << 20).unwrap().unwrap();
            let (instructions, manifest) = (content.instructions.unwrap(), content.manifest.unwrap());
            let artifact = KernelArtifact::new(stem, "aie2p", arch().dev_gen, content.pdi, instructions).unwrap();
            Manifest::parse(&manifest).unwrap().check(&artifact).unwrap();
            whole += 1;
        } else if name.ends_with("_insts.bin") {
            InstructionStream::parse(&fs::read(entry.path()).unwrap()).unwrap();
        } else if name.ends_with(".json") {
            Manifest::parse(&fs::read(entry.path()).unwrap()).unwrap();
        } else {
            panic!("unexpected file {name}");
        }
    }
    whole
}

#[test]
fn eight_processes_share_sixty_four_compilations() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("cache/aie2p");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut looks = 0usize;
            while !done.load(SeqCst) {
                inspect(&folder);
                looks += 1;
            }
            looks
        });
        let children: Vec<_> = (0..8)
            .map(|index| User { kernels: 64, milliseconds: 10, first: 8 * index, ..user(root.path(), "1") }.start())
            .collect();
        let ends: Vec<_> = children.into_iter().map(|mut child| child.wait().unwrap()).collect();
        done.store(true, SeqCst);
        println!("the watcher looked {} times", watcher.join().unwrap());
        assert!(ends.iter().all(|end| end.success()), "{ends:?}");
    });
    assert_eq!((compiled(root.path()), served(root.path())), (64, 512));
    assert_eq!(inspect(&folder), 64);
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<BTreeSet<_>>().len(), 3 * 64, "something was left behind");
}

/// Everything that counts as a kernel is one.
fn nothing_corrupt(root: &Path, kernels: usize) {
    let (cache, arch) = (KernelCache::open(&root.join("cache")).unwrap(), arch());
    for index in 0..kernels {
        let (op, node) = kernel(index);
        let wanted = Wanted::of(op, &node, &arch);
        let files = KernelFiles::new(cache.root().join("aie2p"), wanted.stem());
        match cache.look(&files, &wanted, None) {
            Found::Kernel(artifact) => {
                let expected = ReferenceCompiler.compile(op, &node, &arch).unwrap();
                assert_eq!(artifact.identity(), expected.identity());
            }
            Found::Absent => {}
            other => panic!("{}: {other:?}", wanted.name),
        }
    }
}

#[test]
fn killed_processes_leave_a_store_that_heals() {
    const ROUNDS: usize = 200;
    let root = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(20_261_121);
    let mut killed = 0;
    for round in 0..ROUNDS {
        let before = compiled(root.path());
        let mut children: Vec<_> = (0..3)
            .map(|_| User { first: random.usize(..12), endless: true, ..user(root.path(), &round.to_string()) }.start())
            .collect();
        // However long a process takes to start on this machine, the kills come when there is work.
        let start = Instant::now();
        while compiled(root.path()) == before {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing is compiled in round {round}");
            std::thread::sleep(Duration::from_micros(200));
        }
        for child in &mut children {
            std::thread::sleep(Duration::from_micros(random.u64(..12_000)));
            child.kill().unwrap();
        }
        for child in &mut children {
            killed += usize::from(child.wait().unwrap().signal() == Some(9));
        }
        nothing_corrupt(root.path(), KERNELS);
    }
    println!("{killed} of {} processes were killed at work, {} kernels compiled", 3 * ROUNDS, compiled(root.path()));
    assert_eq!(killed, 3 * ROUNDS, "a process ended on its own");
    let last = user(root.path(), "last").start().wait().unwrap();
    assert!(last.success());
    nothing_corrupt(root.path(), KERNELS);
    let aside = fs::read_dir(root.path().join("cache/damaged")).map_or(0, |entries| entries.count());
    assert_eq!(aside, 0, "a killed writer must leave nothing that looks damaged");
}
