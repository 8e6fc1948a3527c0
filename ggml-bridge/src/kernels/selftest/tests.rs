//! Trials that end in every way there is, and what becomes of them.

use super::dispatch::{Place, dispatch};
use super::gate::Gate;
use super::npu::{Conditions, Npu};
use super::record::Record;
use super::subject::Subject;
use super::tester::Tester;
use super::trial::{self, Open, Trial};
use super::*;
use crate::config::{Config, NativeLoops, SelfTest};
use crate::device::drivers;
use crate::doubles;
use crate::plan::context::DeviceContext;
use aie_hal::mock::MockQueue;
use aie_hal::semaphore::TimelineSemaphore;
use aie_hal::{Arch, ArchRegistry, Buffer, Device, DeviceError};
use aie_jit_iron::{CachePath, KernelCache, KernelStore};
use aie_jit_native::codegen::LoopForm;
use aie_jit_native::families::FAMILIES;
use aie_jit_native::kit::Family;
use aie_jit_native::{Admission, NativeCompiler};
use aie_ops::compiler::{KernelCompiler, ReferenceCompiler};
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use parking_lot::Mutex;
use rstest::rstest;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The family that is made fastest.
fn copies() -> &'static Family {
    FAMILIES.iter().find(|family| family.name == "copies").unwrap()
}

fn aie2() -> Arc<Arch> {
    ArchRegistry::builtin().get("aie2").unwrap()
}

/// Opens a simulated device, and counts how often.
fn simulated(uri: &str) -> (Arc<Open>, Arc<AtomicUsize>) {
    let (uri, opened) = (uri.parse().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&opened);
    let open = move || {
        count.fetch_add(1, SeqCst);
        let devices = drivers::mock(ArchRegistry::builtin()).open(&uri).map_err(|cause| cause.to_string())?;
        devices.into_iter().next().ok_or_else(|| "no device".to_owned())
    };
    (Arc::new(open), opened)
}

const LONG: Duration = Duration::from_secs(120);

fn tried(uri: &str, rounds: u32) -> Result<Trial, String> {
    trial::run(Subject::Family(copies()), &aie2(), &simulated(uri).0, LONG, rounds)
}

fn outcome(uri: &str) -> Result<Outcome, String> {
    tried(uri, 1).map(|trial| trial.outcome)
}

#[rstest]
#[case::right("", "right", "", "")]
#[case::wrong("?fault=garbage@3", "wrong", "CONCAT", "bytes differ")]
#[case::untouched("?fault=untouched@3", "wrong", "CONCAT", "bytes differ")]
#[case::zeroes("?fault=zero@1", "wrong", "CONT", "bytes differ")]
#[case::hung("?fault=timeout@5", "hung", "GET_ROWS", "never signalled")]
#[case::lost("?fault=lost@2", "hung", "DUP", "lost")]
fn a_trial_says_which_node_is_not_right(
    #[case] fault: &str,
    #[case] word: &str,
    #[case] case: &str,
    #[case] how: &str,
) {
    let outcome = outcome(&format!("mock:aie2{fault}")).unwrap();
    assert_eq!(outcome.word(), word);
    let text = outcome.to_string();
    assert!(text.starts_with(case) && text.contains(how), "{text}");
}

/// What is wrong only once in a while is found in a later round, whose numbers are others.
#[test]
fn every_round_counts() {
    let nodes = (copies().cases)(&aie2()).len() as u32;
    let uri = format!("mock:aie2?fault=untouched@{}", 2 * nodes + 1);
    assert_eq!(tried(&uri, 2).unwrap().outcome, Outcome::Right);
    assert_eq!(tried(&uri, 3).unwrap().outcome.word(), "wrong");
    let case = &(copies().cases)(&aie2())[0];
    assert_ne!(case.material(0).unwrap().expected, case.material(1).unwrap().expected);
}

/// The last line of a result may come late; anything else that does is wrong.
#[test]
fn a_late_last_line_is_read_again() {
    let late = tried("mock:aie2?coherent=false&fault=late@1", 1).unwrap();
    assert_eq!((late.outcome, late.late_lines), (Outcome::Right, 1));
    let stale = tried("mock:aie2?coherent=false&fault=stale@3", 1).unwrap();
    assert_eq!((stale.outcome.word(), stale.late_lines), ("wrong", 0));
}

/// A device that says that it has done what it was given, and has written a byte behind the last buffer that was allocated.
#[test]
fn what_is_written_outside_of_arguments_is_seen() {
    let open: Arc<Open> = Arc::new(|| {
        let buffers = Arc::new(Mutex::new(Vec::<Arc<dyn Buffer>>::new()));
        let mut device = doubles::device();
        device.load_kernels();
        device.expect_clocks().returning(|| None);
        let kept = Arc::clone(&buffers);
        device.expect_allocate().returning(move |params| {
            kept.lock().push(doubles::coherent(params.size));
            Ok(Arc::clone(kept.lock().last().unwrap()))
        });
        device.expect_create_semaphore().returning(|initial| Ok(Arc::new(TimelineSemaphore::new(initial))));
        device.expect_create_queue().returning(move || {
            let (mut queue, buffers) = (MockQueue::new(), Arc::clone(&buffers));
            queue.expect_submit().returning(move |submission| {
                let last = buffers.lock().pop().unwrap();
                last.write(last.size() - 1, &[0]).unwrap();
                submission.signals.iter().for_each(|point| point.semaphore.signal(point.value).unwrap());
                Ok(())
            });
            Ok(Arc::new(queue))
        });
        let device: Arc<dyn Device> = Arc::new(device);
        Ok(device)
    });
    let outcome = trial::run(Subject::Family(copies()), &aie2(), &open, LONG, 1).unwrap().outcome;
    assert!(outcome.word() == "wrong" && outcome.to_string().contains("1 bytes behind the"), "{outcome}");
}

/// Imported memory that the array sees elsewhere shows in the first node; the same family in the device's memory does not see it.
#[rstest]
#[case::right("", "right", "")]
#[case::not_coherent("?coherent=false", "right", "")]
#[case::all_elsewhere("?fault=import@*", "wrong", "CONT")]
#[case::the_last_elsewhere("?fault=import@9", "wrong", "CPY")]
#[case::elsewhere_not_coherent("?coherent=false&fault=import@*", "wrong", "CONT")]
fn a_trial_of_imported_memory_reads_a_mapped_file(#[case] fault: &str, #[case] word: &str, #[case] case: &str) {
    let uri = format!("mock:aie2{fault}");
    let outcome_of = |subject| trial::run(subject, &aie2(), &simulated(&uri).0, LONG, 1).unwrap().outcome;
    let outcome = outcome_of(Subject::ImportedMemory);
    assert_eq!(outcome.word(), word);
    assert!(word == "right" || outcome.to_string().starts_with(case), "{outcome}");
    assert_eq!(outcome_of(Subject::Family(copies())), Outcome::Right);
}

/// Of what is submitted together all but the first are executed with the one before, 16 arguments being the most. The commands of a
/// trial are one for each submission, and two for the last.
#[rstest]
#[case::right("", "right", "")]
#[case::not_coherent("?coherent=false", "right", "")]
#[case::alone("?fault=untouched@1", "wrong", "NEG f32[602] -> f32[602]: ")]
#[case::eight_arguments("?fault=garbage@4", "wrong", "NEG f32[602] -> f32[602] 4 times together: dispatch ")]
#[case::chained("?fault=garbage@5", "wrong", "3 times together, each on the result of the one before: dispatch ")]
#[case::sixteen_arguments("?fault=untouched@6", "wrong", "8 times together: dispatch 1: ")]
#[case::the_second_of_a_chain("?fault=untouched@8", "wrong", "16 times together: dispatch 9: ")]
fn a_trial_of_joined_dispatches_has_as_many_arguments_as_fit(
    #[case] fault: &str,
    #[case] word: &str,
    #[case] expected: &str,
) {
    let device = simulated(&format!("mock:aie2{fault}")).0().unwrap();
    let kept = Arc::clone(&device);
    let open: Arc<Open> = Arc::new(move || Ok(Arc::clone(&kept)));
    let outcome = trial::run(Subject::JoinedDispatches, &aie2(), &open, LONG, 1).unwrap().outcome;
    assert_eq!(outcome.word(), word);
    assert!(outcome.to_string().contains(expected), "{outcome}");
    if word == "right" {
        let counters = device.counters();
        assert_eq!((counters.dispatches, counters.joined, counters.submissions), (37, 29, 7));
    }
}

/// Dispatches stay apart where joined ones are wrong, and that is tried once.
#[rstest]
#[case::right("mock:aie2", true)]
#[case::wrong("mock:aie2?fault=untouched@2", false)]
fn dispatches_are_joined_where_that_is_right(#[case] uri: &str, #[case] expected: bool) {
    let (gate, opened) = gate(uri, SelfTest::Auto);
    let hal = drivers::mock(ArchRegistry::builtin()).open(&"mock:aie2".parse().unwrap()).unwrap().remove(0);
    let context = |config: &Config| {
        let context = DeviceContext::new(0, Arc::clone(&hal), doubles::store(), config);
        context.with_gate(Some(Arc::clone(&gate)))
    };
    assert!(!context(&Config { unjoined: true, ..Config::default() }).joins());
    assert_eq!(opened.load(SeqCst), 0, "nothing has to be known of it");
    let context = context(&Config::default());
    assert_eq!([context.joins(); 2], [expected; 2]);
    // Loops, and joined dispatches.
    assert_eq!(opened.load(SeqCst), 2);
}

/// A device that imports nothing has none that could be wrong.
#[test]
fn a_device_that_refuses_memory_is_no_verdict() {
    let open: Arc<Open> = Arc::new(|| {
        let mut device = doubles::device();
        device.expect_create_queue().returning(|| Ok(Arc::new(MockQueue::new())));
        device.expect_import().returning(|_| Err(DeviceError::Unsupported("it is not pinned".into())));
        let device: Arc<dyn Device> = Arc::new(device);
        Ok(device)
    });
    let reason = trial::run(Subject::ImportedMemory, &aie2(), &open, LONG, 1).unwrap_err();
    assert!(reason.contains("it is not pinned"), "{reason}");
}

/// What keeps a family from being tried says nothing about it.
#[test]
fn a_device_without_memory_is_no_verdict() {
    let reason = outcome("mock:aie2?fault=alloc@1").unwrap_err();
    assert!(reason.contains("out of memory"), "{reason}");
    assert!(outcome("mock:aie3").is_err());
    let aie9 = Arch { name: "aie9".into(), instruction_set: None, ..(*aie2()).clone() };
    assert!(
        trial::run(Subject::Family(copies()), &aie9, &simulated("mock:aie2").0, LONG, 1)
            .unwrap_err()
            .contains("no program")
    );
}

/// A device that takes work and never ends it, not even with an error.
fn stuck() -> Arc<Open> {
    Arc::new(|| {
        let mut device = doubles::device();
        device.load_kernels();
        device.expect_allocate().returning(|params| Ok(doubles::coherent(params.size)));
        device.expect_create_semaphore().returning(|initial| Ok(Arc::new(TimelineSemaphore::new(initial))));
        device.expect_create_queue().returning(|| {
            let mut queue = MockQueue::new();
            queue.expect_submit().returning(|_| Ok(()));
            Ok(Arc::new(queue))
        });
        let device: Arc<dyn Device> = Arc::new(device);
        Ok(device)
    })
}

#[test]
fn what_never_ends_is_left_behind_when_the_time_is_up() {
    let (begun, limit) = (Instant::now(), Duration::from_millis(200));
    let outcome = trial::run(Subject::Family(copies()), &aie2(), &stuck(), limit, 1).unwrap().outcome;
    assert_eq!(outcome.word(), "hung");
    assert!(outcome.to_string().contains("within 0.2 seconds"), "{outcome}");
    assert!((limit..LONG).contains(&begun.elapsed()));
    let asleep: Arc<Open> = Arc::new(|| {
        loop {
            std::thread::park();
        }
    });
    assert!(trial::run(Subject::Family(copies()), &aie2(), &asleep, limit, 1).unwrap_err().contains("opening the NPU"));
}

fn npu(firmware: &str, kernels: &str) -> Npu {
    let conditions = Conditions {
        arch: "aie2".into(),
        npu: "Phoenix".into(),
        firmware: firmware.into(),
        driver: "Linux 6.18".into(),
        kernels: kernels.into(),
    };
    Npu::new("pci-0000:c6:00.1", conditions).unwrap()
}

fn record(folder: &Path) -> Record {
    Record::open(&CachePath::of(&aie_hal::Environment::from_pairs([(
        "GGML_HSA_KERNEL_CACHE_DIR",
        folder.to_str().unwrap(),
    )])))
    .unwrap()
}

fn tester(folder: &Path, npu: Npu, open: Arc<Open>) -> Tester {
    Tester::new(open, LONG, Some((npu, Some(record(folder)))))
}

#[test]
fn an_outcome_is_kept_until_something_that_it_depends_on_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (open, opened) = simulated("mock:aie2?fault=garbage@1");
    let ask = |npu: Npu, open: &Arc<Open>| {
        tester(folder.path(), npu, Arc::clone(open)).known_or_tested(Subject::Family(copies()), &aie2())
    };
    let first = ask(npu("1.5", "a"), &open).unwrap();
    assert_eq!((first.word(), opened.load(SeqCst)), ("wrong", 1));
    assert_eq!(ask(npu("1.5", "a"), &open), Ok(first));
    assert_eq!(opened.load(SeqCst), 1, "a second trial");
    let (good, _) = simulated("mock:aie2");
    assert_eq!(ask(npu("1.6", "a"), &good), Ok(Outcome::Right));
    assert_eq!(ask(npu("1.6", "a"), &open), Ok(Outcome::Right));
    assert_eq!(ask(npu("1.6", "b"), &open).unwrap().word(), "wrong");
    // Repeated on demand, and forgotten.
    let tester = tester(folder.path(), npu("1.6", "b"), good);
    assert_eq!(tester.tested(Subject::Family(copies()), &aie2()), Ok(Outcome::Right));
    tester.forget().unwrap();
    assert_eq!(record(folder.path()).turn().unwrap().outcome(&npu("1.6", "b"), "copies"), None);
}

#[test]
fn what_was_not_tried_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let (open, opened) = simulated("mock:aie2?fault=alloc@*");
    let tester = tester(folder.path(), npu("1.5", "a"), open);
    for count in 1..=2 {
        assert!(tester.known_or_tested(Subject::Family(copies()), &aie2()).is_err());
        assert_eq!(opened.load(SeqCst), count);
    }
}

#[test]
fn a_trial_that_a_machine_did_not_survive_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let npu = npu("1.5", "a");
    record(folder.path()).turn().unwrap().note(&npu, "copies", Some(&Outcome::Begun), false, None).unwrap();
    let (open, opened) = simulated("mock:aie2");
    let outcome = tester(folder.path(), npu.clone(), open).known_or_tested(Subject::Family(copies()), &aie2()).unwrap();
    assert_eq!((outcome.word(), opened.load(SeqCst)), ("interrupted", 0));
    assert!(outcome.to_string().contains("never came to its end"), "{outcome}");
}

/// What depends on how the kernel module came up is tried again after a start of the machine, unless the machine died of it.
#[test]
fn an_outcome_can_be_for_one_boot() {
    let folder = tempfile::tempdir().unwrap();
    let (record, first) = (record(folder.path()), npu("1.5", "a"));
    let mut second = first.clone();
    second.boot = "another".into();
    let turn = record.turn().unwrap();
    turn.note(&first, "copies", Some(&Outcome::Right), false, None).unwrap();
    turn.note(&first, "product", Some(&Outcome::Right), true, None).unwrap();
    turn.note(&first, "attention", Some(&Outcome::Begun), true, None).unwrap();
    let known = |npu: &Npu| ["copies", "product", "attention"].map(|subject| turn.outcome(npu, subject));
    assert_eq!(known(&first), [Some(Outcome::Right), Some(Outcome::Right), Some(Outcome::Begun)]);
    assert_eq!(known(&second), [Some(Outcome::Right), None, Some(Outcome::Begun)]);
    let one_boot = |subject: &Subject| subject.is_for_one_boot(&aie2());
    let named: Vec<&str> = Subject::all().filter(one_boot).map(Subject::name).collect();
    assert_eq!(named, ["copies", "product", "prompts", "token", "attention", "imported-memory"]);
}

#[test]
fn a_damaged_record_knows_nothing_and_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (record, npu) = (record(folder.path()), npu("1.5", "a"));
    std::fs::write(record.path(), "{\"npus\": 7").unwrap();
    let turn = record.turn().unwrap();
    assert_eq!(turn.outcome(&npu, "copies"), None);
    turn.note(&npu, "copies", Some(&Outcome::Right), false, None).unwrap();
    assert_eq!(turn.outcome(&npu, "copies"), Some(Outcome::Right));
    assert_eq!(turn.outcome(&npu, "rope"), None);
}

/// Without a test of hardware loops.
const HARDWARE: NativeLoops = NativeLoops::Always(LoopForm::Hardware);

fn gate_of(tester: Tester, mode: SelfTest, loops: NativeLoops, uri: &str) -> Gate {
    Gate::new(tester, mode, loops, aie2(), uri.to_owned())
}

fn gate(uri: &str, mode: SelfTest) -> (Arc<Gate>, Arc<AtomicUsize>) {
    let (open, opened) = simulated(uri);
    (Arc::new(gate_of(Tester::of_simulated(open, LONG), mode, NativeLoops::default(), uri)), opened)
}

#[test]
fn a_gate_asks_once() {
    let (gate, opened) = gate("mock:aie2?fault=garbage@1", SelfTest::Auto);
    let refused = gate.admits(copies(), &aie2()).unwrap_err();
    assert!(refused.contains("copies") && refused.contains("wrong: CONT"), "{refused}");
    assert_eq!((gate.admits(copies(), &aie2()), opened.load(SeqCst)), (Err(refused), 1));
}

#[test]
fn a_gate_that_is_off_admits_untested() {
    let (gate, opened) = gate("mock:aie2?fault=garbage@1", SelfTest::Off);
    assert_eq!((gate.admits(copies(), &aie2()), opened.load(SeqCst)), (Ok(()), 0));
}

/// Models are copied where imported memory is read wrongly, and the outcome is kept beside those of families.
#[rstest]
#[case::right("mock:aie2", SelfTest::Auto, true, 1)]
#[case::wrong("mock:aie2?fault=import@*", SelfTest::Auto, false, 1)]
#[case::untested("mock:aie2?fault=alloc@*", SelfTest::Always, false, 1)]
#[case::off("mock:aie2?fault=import@*", SelfTest::Off, true, 0)]
fn models_are_used_in_place_when_imported_memory_is_right(
    #[case] uri: &str,
    #[case] mode: SelfTest,
    #[case] expected: bool,
    #[case] trials: usize,
) {
    let folder = tempfile::tempdir().unwrap();
    let (open, opened) = simulated(uri);
    let kept = || tester(folder.path(), npu("1.5", "a"), Arc::clone(&open));
    let gate = Arc::new(gate_of(kept(), mode, HARDWARE, uri));
    let hal = drivers::mock(ArchRegistry::builtin()).open(&"mock:aie2".parse().unwrap()).unwrap().remove(0);
    let context = || {
        let context = DeviceContext::new(0, Arc::clone(&hal), doubles::store(), &Config::default());
        context.with_gate(Some(Arc::clone(&gate)))
    };
    assert!(doubles::context(doubles::device()).imports(), "a simulated device has no gate");
    let first = context();
    assert_eq!([first.imports(), first.imports(), context().imports()], [expected; 3]);
    assert_eq!(opened.load(SeqCst), trials);
    // `ggml-hsa doctor` says so without a trial of its own.
    let remembered = gate_of(kept(), SelfTest::Auto, HARDWARE, uri).known_against_imports();
    assert_eq!(remembered.is_some(), mode == SelfTest::Auto && !expected, "{remembered:?}");
    assert_eq!(kept().known(Subject::Family(copies()), &aie2()), None);
    assert_eq!(opened.load(SeqCst), trials);
}

/// Where hardware loops run once, kernels that branch back are made, and they are right.
#[rstest]
#[case::repeating("mock:aie2", NativeLoops::Auto, LoopForm::Hardware, true)]
#[case::once("mock:aie2?loops=once", NativeLoops::Auto, LoopForm::Jnz, true)]
#[case::once_all_the_same("mock:aie2?loops=once", HARDWARE, LoopForm::Hardware, false)]
#[case::without_need("mock:aie2", NativeLoops::Always(LoopForm::Jnz), LoopForm::Jnz, true)]
fn kernels_have_loops_that_work(
    #[case] uri: &str,
    #[case] loops: NativeLoops,
    #[case] form: LoopForm,
    #[case] is_right: bool,
) {
    let folder = tempfile::tempdir().unwrap();
    let (open, opened) = simulated(uri);
    let gate =
        || Arc::new(gate_of(tester(folder.path(), npu("1.5", "a"), Arc::clone(&open)), SelfTest::Auto, loops, uri));
    let compiler = NativeCompiler::admitted_by(gate());
    assert_eq!(compiler.identity(), NativeCompiler::with_loops(form).identity());
    let family = FAMILIES.iter().find(|family| family.name == "copies").unwrap();
    let case = (family.cases)(&aie2()).into_iter().find(|case| case.node.op == "CPY").unwrap();
    assert_eq!(compiler.admits(&case.node, &aie2()).is_ok(), is_right);
    let trials = opened.load(SeqCst);
    let kernel = compiler.compile(table::lookup("CPY").unwrap(), &case.node, &aie2()).unwrap();
    let (device, material) = (open().unwrap(), case.material(0).unwrap());
    let queue = device.create_queue().unwrap();
    let found = dispatch(&*device, &*queue, &material, &kernel, Place::Allocated).unwrap().result().unwrap();
    assert_eq!(case.judge(&found, &material.expected).is_ok(), is_right);
    // What is known is not tried again by the next program.
    assert_eq!((gate().loops(), opened.load(SeqCst)), (form, trials + 1));
}

/// The other compilers make what a family that is wrong does not, also when its kernel is in the cache already.
#[rstest]
#[case("mock:aie2", "native")]
#[case("mock:aie2?fault=garbage@1", "reference")]
fn kernels_of_a_wrong_family_come_from_elsewhere(#[case] uri: &str, #[case] expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let x = Tensor::contiguous(DataType::F32, [64, 4, 1, 1]);
    let node = Node::new("CONT", OpParams::default(), x, vec![Some(x)]);
    let find = |native: NativeCompiler| {
        let cache = KernelCache::open(folder.path()).unwrap();
        let builder = KernelStore::builder().cache(cache).compiler(Arc::new(native));
        let store = builder.compiler(Arc::new(ReferenceCompiler)).build().unwrap();
        let op = table::lookup("CONT").unwrap();
        let at_once = store.make_code(op, &node, &aie2()).is_ok_and(|made| made.is_some());
        (store.find(op, &node, &aie2()).unwrap().supplier.name().to_owned(), at_once)
    };
    assert_eq!(find(NativeCompiler::default()), ("native".into(), true));
    let tested = NativeCompiler::admitted_by(gate(uri, SelfTest::Auto).0);
    assert_eq!(find(tested), (expected.into(), expected == "native"));
}
