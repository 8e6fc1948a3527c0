use super::*;
use crate::directory::DirectoryError;
use crate::directory::tests::{arch, put, sum};
use crate::double::Double;
use crate::supply::Supplier;
use crate::worker::{WorkerCommand, WorkerCompiler};
use aie_ops::compiler::{CompileError, ReferenceCompiler};
use aie_ops::{DataType, OpParams, Tensor, table};
use rstest::rstest;
use std::fs;
use std::sync::Barrier;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

fn store() -> KernelStore {
    KernelStore::builder().compiler(Arc::new(ReferenceCompiler)).build().unwrap()
}

/// Takes its time, and fails for 13 elements.
fn slow() -> Double {
    Double { takes: Duration::from_millis(20), ..Double::failing(13, CompileError::failed("13 is too much")) }
}

#[test]
fn a_kernel_is_compiled_once_and_then_remembered() {
    let store = store();
    let (op, node) = sum(64);
    let first = store.get(op, &node, &arch("aie2")).unwrap();
    let second = store.get(op, &node, &arch("aie2")).unwrap();
    assert_eq!(first.identity(), second.identity());
    let expected = StoreCounters { memory: 1, compiled: 1, ..StoreCounters::default() };
    assert_eq!(store.counters(), expected);
}

#[test]
fn generations_and_parameters_outside_the_name_are_kept_apart() {
    let store = store();
    let (op, node) = sum(64);
    let narrow = store.get(op, &node, &arch("aie2")).unwrap();
    let wide = store.get(op, &node, &arch("aie2p")).unwrap();
    assert_ne!(narrow.digest(), wide.digest());
    let mut other = node.clone();
    other.params.0[0] = 5;
    let different = store.get(op, &other, &arch("aie2")).unwrap();
    assert_ne!(narrow.digest(), different.digest());
    assert_eq!(store.counters().compiled, 3);
}

#[test]
fn a_damaged_file_is_an_error_that_lasts() {
    let root = tempfile::tempdir().unwrap();
    let (op, node) = sum(64);
    let name = put(root.path(), op, &node, &arch("aie2"));
    let path = root.path().join("aie2").join(format!("{name}.pdi"));
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 4]).unwrap();
    let builder = KernelStore::builder().kernel_directory(root.path()).compiler(Arc::new(ReferenceCompiler));
    let store = builder.build().unwrap();
    let first = store.get(op, &node, &arch("aie2")).unwrap_err();
    assert!(first.to_string().contains(&path.display().to_string()), "{first}");
    fs::write(&path, &whole).unwrap();
    assert_eq!(store.get(op, &node, &arch("aie2")).unwrap_err(), first);
    let expected = StoreCounters { memory: 1, failed: 1, ..StoreCounters::default() };
    assert_eq!(store.counters(), expected);
}

#[test]
fn a_missing_directory_has_no_kernels_and_a_file_in_its_place_is_an_error_at_once() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("no");
    let directory = || KernelStore::builder().kernel_directory(&path).compiler(Arc::new(ReferenceCompiler)).build();
    let (store, (op, node)) = (directory().unwrap(), sum(64));
    store.get(op, &node, &arch("aie2")).unwrap();
    assert_eq!(store.counters(), StoreCounters { compiled: 1, ..StoreCounters::default() });
    fs::write(&path, "").unwrap();
    let error = directory().unwrap_err();
    assert!(matches!(error, StoreError::Directory(DirectoryError::Directory { .. })), "{error}");
}

#[test]
fn given_kernels_come_before_those_that_are_made_at_once() {
    let root = tempfile::tempdir().unwrap();
    let ((op, given), (_, other), (_, packed), arch) = (sum(64), sum(128), sum(256), arch("aie2"));
    let name = put(root.path(), op, &given, &arch);
    let folder = root.path().join("packed");
    put(&folder, op, &packed, &arch);
    let (bytes, _) = crate::pack::pack(&folder.join("aie2"), &arch).unwrap();
    let store = || {
        let native = Double { is_immediate: true, makes_code: true, ..Double::new("1") };
        KernelStore::builder()
            .embedded(KernelPack::open("aie2", bytes.clone()).unwrap())
            .kernel_directory(root.path())
            .compiler(Arc::new(native))
            .build()
            .unwrap()
    };
    let whole = store();
    let supplier = |node| whole.make_code(op, node, &arch).unwrap().map(|made| made.supplier);
    assert_eq!(supplier(&given), Some(Supplier::Directory));
    assert_eq!(supplier(&packed), Some(Supplier::Embedded));
    assert_eq!(supplier(&other), Some(Supplier::Compiler("double".into())));
    // Asked again it is remembered, and what was neither built in nor in the directory is named once.
    assert_eq!(whole.find(op, &given, &arch).unwrap().supplier, Supplier::Directory);
    supplier(&other);
    let counters = whole.counters();
    assert_eq!((counters.directory, counters.embedded, counters.compiled), (1, 1, 1));
    assert_eq!(whole.missed().iter().map(|missed| &missed.node).collect::<Vec<_>>(), [&other]);

    // Damage is an error, and no reason to make another.
    let path = root.path().join("aie2").join(format!("{name}.pdi"));
    fs::write(&path, &fs::read(&path).unwrap()[..64]).unwrap();
    let error = store().make_code(op, &given, &arch).unwrap_err();
    assert!(
        matches!(&error, StoreError::Directory(DirectoryError::File { path: wrong, .. }) if *wrong == path),
        "{error}"
    );
}

#[rstest]
#[case::works(64, true)]
#[case::fails(13, false)]
fn threads_that_ask_together_share_one_compilation(#[case] elements: usize, #[case] works: bool) {
    let compiler = Arc::new(slow());
    let store = KernelStore::builder().compiler(Arc::clone(&compiler) as _).build().unwrap();
    let (op, node) = sum(elements);
    let (arch, barrier) = (arch("aie2"), Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(store.get(op, &node, &arch).is_ok(), works);
            });
        }
    });
    assert_eq!(compiler.calls.load(SeqCst), 1);
    let counters = store.counters();
    assert_eq!((counters.memory, counters.compiled + counters.failed), (7, 1));
}

#[test]
fn every_source_is_named_when_none_has_the_kernel() {
    let root = tempfile::tempdir().unwrap();
    let (op, node) = sum(13);
    let builder = KernelStore::builder().kernel_directory(root.path()).compiler(Arc::new(slow()));
    let message = builder.build().unwrap().get(op, &node, &arch("aie2")).unwrap_err().to_string();
    let folder = root.path().join("aie2");
    let expected = format!(
        "no kernel add-13f32-13f32-13f32 for aie2: not in {}; compiler double failed: 13 is too much",
        folder.display()
    );
    assert_eq!(message, expected);
    let message = KernelStore::builder().build().unwrap().get(op, &node, &arch("aie2")).unwrap_err().to_string();
    assert!(message.ends_with("no kernel directory (GGML_HSA_KERNEL_DIR is not set); no compiler"), "{message}");
}

/// The quick one takes everything but 13 elements.
fn quick_and_slow() -> [Arc<Double>; 2] {
    let unsupported = CompileError::Unsupported("13 is too much".into());
    let quick = Double { name: "quick", is_immediate: true, ..Double::failing(13, unsupported) };
    [Arc::new(quick), Arc::new(Double { name: "slow", ..Double::new("2") })]
}

#[rstest]
#[case::taken_by_the_first(64, "quick")]
#[case::left_to_the_second(13, "slow")]
fn compilers_are_asked_in_their_order(#[case] elements: usize, #[case] expected: &str) {
    let root = tempfile::tempdir().unwrap();
    let [quick, slow] = quick_and_slow();
    let (op, node) = sum(elements);
    let find = |compilers: &[&Arc<Double>]| {
        let builder = KernelStore::builder().cache(KernelCache::open(root.path()).unwrap());
        let store = compilers.iter().fold(builder, |builder, compiler| builder.compiler(Arc::clone(compiler) as _));
        store.build().unwrap().find(op, &node, &arch("aie2")).unwrap().supplier
    };
    assert_eq!(find(&[&slow]), Supplier::Compiler("slow".into()));
    // That the second one's kernel is cached does not hide the first one.
    assert_eq!(find(&[&quick, &slow]).name(), expected);
    assert_eq!(find(&[&quick, &slow]), Supplier::Cache(expected.into()));
}

#[test]
fn nobody_waits_for_what_takes_milliseconds() {
    let [quick, slow] = quick_and_slow();
    let builder = KernelStore::builder().compiler(quick).compiler(slow).policy(JitPolicy::Background);
    let store = builder.build().unwrap();
    let find = |elements| store.find(sum(elements).0, &sum(elements).1, &arch("aie2"));
    assert_eq!(find(64).unwrap().supplier, Supplier::Compiler("quick".into()));
    assert!(matches!(find(13), Err(StoreError::Pending { .. })));
}

#[test]
fn the_cache_serves_the_next_process() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("cache");
    let compiler = Arc::new(slow());
    let open = || {
        let cache = KernelCache::open(&path).unwrap();
        KernelStore::builder().cache(cache).compiler(Arc::clone(&compiler) as _)
    };
    let (op, node) = sum(64);
    for expected in [
        StoreCounters { compiled: 1, ..StoreCounters::default() },
        StoreCounters { cache: 1, ..StoreCounters::default() },
    ] {
        let store = open().build().unwrap();
        store.get(op, &node, &arch("aie2p")).unwrap();
        assert_eq!(store.counters(), expected);
    }
    // Without compiling too.
    let store = open().policy(JitPolicy::Off).build().unwrap();
    store.get(op, &node, &arch("aie2p")).unwrap();
    let message = store.get(op, &sum(32).1, &arch("aie2p")).unwrap_err().to_string();
    assert!(message.ends_with("compiling is off (GGML_HSA_JIT)"), "{message}");
    assert_eq!(compiler.calls.load(SeqCst), 1);
}

#[test]
fn foresight_reads_the_cache_and_leaves_it_alone() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("cache");
    let open = |builder: KernelStoreBuilder| {
        builder.cache(KernelCache::open(&path).unwrap()).compiler(Arc::new(slow())).build().unwrap()
    };
    let find = |store: &KernelStore, elements| store.find(sum(elements).0, &sum(elements).1, &arch("aie2p"));
    open(KernelStore::builder()).get(sum(64).0, &sum(64).1, &arch("aie2p")).unwrap();
    for _ in 0..2 {
        let store = open(KernelStore::builder().foresight());
        assert_eq!(find(&store, 64).unwrap().supplier, Supplier::Cache("double".into()));
        assert_eq!(find(&store, 32).unwrap().supplier, Supplier::Compiler("double".into()));
        // A failure is not written down either.
        assert!(find(&store, 13).is_err());
    }
    let cached = KernelStore::builder().cache(KernelCache::open(&path).unwrap()).policy(JitPolicy::Off);
    let cached = cached.compiler(Arc::new(slow())).build().unwrap();
    assert!(find(&cached, 64).is_ok() && find(&cached, 32).is_err());
}

#[test]
fn what_was_missed_is_noted() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), sum(16).0, &sum(16).1, &arch("aie2p"));
    let builder = KernelStore::builder().kernel_directory(root.path()).compiler(Arc::new(slow()));
    let store = builder.build().unwrap();
    for elements in [16, 32, 13, 32] {
        let _ = store.get(sum(elements).0, &sum(elements).1, &arch("aie2p"));
    }
    let missed = store.missed();
    let names: Vec<_> = missed.iter().map(|missed| missed.kernel.as_str()).collect();
    assert_eq!(names, ["add-32f32-32f32-32f32", "add-13f32-13f32-13f32"]);
    assert_eq!((missed[0].reason.as_str(), missed[0].arch.as_str()), ("compiled", "aie2p"));
    assert!(missed[1].reason.contains("13 is too much"));
}

#[test]
fn in_the_background_who_asks_does_not_wait() {
    let compiler = Arc::new(slow());
    let builder = KernelStore::builder().compiler(Arc::clone(&compiler) as _).policy(JitPolicy::Background);
    let (store, arch) = (builder.build().unwrap(), arch("aie2p"));
    let (op, node) = sum(64);
    for elements in [64, 13, 64] {
        let error = store.get(op, &sum(elements).1, &arch).unwrap_err();
        assert!(matches!(error, StoreError::Pending { .. }), "{error}");
    }
    wait_for(&store, 2);
    store.get(op, &node, &arch).unwrap();
    let error = store.get(op, &sum(13).1, &arch).unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    assert_eq!(compiler.calls.load(SeqCst), 2);
}

fn wait_for(store: &KernelStore, arrivals: u64) {
    let start = Instant::now();
    while store.arrivals() < arrivals {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn in_the_background_kernels_are_compiled_side_by_side_and_a_panic_costs_one() {
    let compiler = Arc::new(Double { panics_for: Some(13), together: Barrier::new(3), ..Double::new("1") });
    let builder = KernelStore::builder().compiler(Arc::clone(&compiler) as _).policy(JitPolicy::Background);
    let store = builder.background_threads(3).build().unwrap();
    for elements in [13, 16, 32, 48, 64, 80, 96] {
        store.get(sum(elements).0, &sum(elements).1, &arch("aie2p")).unwrap_err();
    }
    wait_for(&store, 6);
    assert_eq!((compiler.calls.load(SeqCst), compiler.most.load(SeqCst)), (7, 3));
}

#[test]
fn in_the_background_what_is_there_comes_at_once() {
    let root = tempfile::tempdir().unwrap();
    let (op, node) = sum(64);
    let name = put(root.path(), op, &node, &arch("aie2p"));
    fs::write(root.path().join("aie2p").join(format!("{}.pdi", name.replace("64", "32"))), "").unwrap();
    fs::write(root.path().join("aie2p").join(format!("{}_insts.bin", name.replace("64", "32"))), "").unwrap();
    let builder = KernelStore::builder().kernel_directory(root.path()).policy(JitPolicy::Background);
    let store = builder.compiler(Arc::new(ReferenceCompiler)).build().unwrap();
    store.get(op, &node, &arch("aie2p")).unwrap();
    for _ in 0..2 {
        let error = store.get(op, &sum(32).1, &arch("aie2p")).unwrap_err();
        assert!(matches!(error, StoreError::Directory(_)), "{error}");
    }
}

/// Embedded before the directory before the cache before a compiler, whichever of them have the kernel.
#[rstest]
fn sources_are_asked_in_order(
    #[values(false, true)] embedded: bool,
    #[values(false, true)] directory: bool,
    #[values(false, true)] cached: bool,
) {
    let root = tempfile::tempdir().unwrap();
    let ((op, node), arch) = (sum(64), arch("aie2p"));
    let folders = ["pack", "kernels", "cache"].map(|name| root.path().join(name));
    folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let compiler: Arc<dyn KernelCompiler> = Arc::new(slow());
    let open_cache = || KernelCache::open(&folders[2]).unwrap();
    if cached {
        let store = KernelStore::builder().cache(open_cache()).compiler(Arc::clone(&compiler)).build().unwrap();
        store.get(op, &node, &arch).unwrap();
    }
    let mut builder = KernelStore::builder().cache(open_cache()).compiler(compiler).kernel_directory(&folders[1]);
    if directory {
        put(&folders[1], op, &node, &arch);
    }
    if embedded {
        put(&folders[0], op, &node, &arch);
        let (bytes, _) = crate::pack::pack(&folders[0].join("aie2p"), &arch).unwrap();
        builder = builder.embedded(KernelPack::open("aie2p", bytes).unwrap());
    }
    let store = builder.build().unwrap();
    store.get(op, &node, &arch).unwrap();
    let none = StoreCounters::default();
    let expected = match (embedded, directory, cached) {
        (true, _, _) => StoreCounters { embedded: 1, ..none },
        (_, true, _) => StoreCounters { directory: 1, ..none },
        (_, _, true) => StoreCounters { cache: 1, ..none },
        _ => StoreCounters { compiled: 1, ..none },
    };
    assert_eq!(store.counters(), expected);
}

#[test]
fn a_damaged_kernel_in_the_library_is_reported_and_made_again() {
    let root = tempfile::tempdir().unwrap();
    let ((op, node), arch) = (sum(64), arch("aie2p"));
    let name = put(root.path(), op, &node, &arch);
    let folder = root.path().join("aie2p");
    let (mut bytes, _) = crate::pack::pack(&folder, &arch).unwrap();
    let pdi = fs::read(folder.join(format!("{name}.pdi"))).unwrap();
    let start = bytes.windows(pdi.len()).position(|place| place == pdi).unwrap();
    // In the words that every PDI begins with.
    bytes[start + 0x14] ^= 1;
    let pack = KernelPack::open("aie2p", bytes).unwrap();
    let store = KernelStore::builder().embedded(pack).compiler(Arc::new(ReferenceCompiler)).build().unwrap();
    store.get(op, &node, &arch).unwrap();
    assert_eq!(store.counters(), StoreCounters { compiled: 1, ..StoreCounters::default() });
    let logged: Vec<String> = store.shared.sources.logged.lock().iter().cloned().collect();
    assert!(
        matches!(&logged[..], [one] if one.contains("add-64f32-64f32-64f32: its PDI cannot be used")),
        "{logged:?}"
    );
}

#[test]
fn reference_artifacts_do_not_reach_silicon() {
    let builder = KernelStore::builder().compiler(Arc::new(ReferenceCompiler)).for_silicon();
    let (op, node) = sum(64);
    let message = builder.build().unwrap().get(op, &node, &arch("aie2p")).unwrap_err().to_string();
    assert!(message.contains("which only simulated devices execute"), "{message}");
}

#[test]
fn a_generation_that_is_not_embedded_is_reported() {
    let root = tempfile::tempdir().unwrap();
    let (op, node) = sum(64);
    put(root.path(), op, &node, &arch("aie2"));
    let (bytes, _) = crate::pack::pack(&root.path().join("aie2"), &arch("aie2")).unwrap();
    let embedded = || KernelStore::builder().embedded(KernelPack::open("aie2", bytes.clone()).unwrap());
    let store = embedded().build().unwrap();
    assert_eq!(store.serves(&arch("aie2")), Ok(()));
    store.get(op, &node, &arch("aie2")).unwrap();
    assert_eq!((store.counters().embedded, store.missed()), (1, vec![]));
    let message = store.serves(&arch("aie2p")).unwrap_err().to_string();
    assert!(message.contains("available in this build: [aie2], device reports: [aie2p]"), "{message}");
    assert!(store.get(op, &node, &arch("aie2p")).unwrap_err().to_string().contains("not built into the library"));
    let compiling = embedded().compiler(Arc::new(ReferenceCompiler));
    assert_eq!(compiling.build().unwrap().serves(&arch("aie2p")), Ok(()));
    let off = embedded().compiler(Arc::new(ReferenceCompiler)).policy(JitPolicy::Off);
    off.build().unwrap().serves(&arch("aie2p")).unwrap_err();
}

/// Planning a graph asks once per node, so an answer from memory must be far below a dispatch's 30 microseconds.
#[test]
fn answers_from_memory_are_cheap() {
    let (store, arch) = (store(), arch("aie2p"));
    let (op, node) = sum(4096);
    store.get(op, &node, &arch).unwrap();
    let start = Instant::now();
    let rounds = 10_000;
    for _ in 0..rounds {
        store.get(op, &node, &arch).unwrap();
    }
    let each = start.elapsed() / rounds;
    println!("{each:?} for an answer from memory");
    assert!(each < Duration::from_micros(30), "{each:?}");
}

/// No worker is started: whether there is a design for the operation is enough.
#[test]
fn a_kernel_is_expected_where_a_compiler_takes_the_node() {
    let designs = tempfile::tempdir().unwrap();
    fs::write(designs.path().join("binary_ops.py"), "").unwrap();
    let worker = || {
        let command = WorkerCommand::new("no-such-program", [""; 0]);
        Arc::new(WorkerCompiler::new("iron", command, "").designs(designs.path()))
    };
    let x = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
    let silu = Node::new("SILU", OpParams::default(), x, vec![Some(x)]);
    let (add, sum) = sum(64);
    let expects = |store: &KernelStore, op, node: &Node| store.expects(op, node, &arch("aie2"));
    let op = table::lookup("SILU").unwrap();
    let alone = KernelStore::builder().compiler(worker()).build().unwrap();
    assert_eq!((expects(&alone, add, &sum), expects(&alone, op, &silu)), (true, false));
    let both = KernelStore::builder().compiler(worker()).compiler(Arc::new(ReferenceCompiler)).build().unwrap();
    assert!(expects(&both, op, &silu));
    // An answer is better than an expectation.
    assert!(alone.get(add, &sum, &arch("aie2")).is_err());
    assert!(!expects(&alone, add, &sum));
}
