//! The cases on the emulated array, and what they find.

use super::*;
use crate::array::testing::{Device, bytes_of, words_of};
use crate::codegen::LoopForm;
use crate::kit::{Case, Exactness, Material};
use aie_emulator::design::{Design, Problem, Source};
use aie_emulator::{Loops, Rules};
use aie_hal::ArchRegistry;
use aie_hal::artifact::Digest;
use rstest::rstest;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// A generation as it is.
fn arch(name: &str) -> Arch {
    (*ArchRegistry::builtin().get(name).unwrap()).clone()
}

/// Words, the last one filled up.
fn words(bytes: &[u8]) -> Vec<u32> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    words_of(&bytes)
}

/// What is there after a case with the kernel of a family, and how many bundles and cycles that took.
struct Ran {
    found: Vec<u8>,
    bundles: u64,
    cycles: u64,
}

/// An emulated array for each PDI, as contexts have it.
struct Bench {
    arch: Arch,
    loops: Loops,
    devices: HashMap<Digest, Device>,
}

impl Bench {
    fn new(arch: &Arch, loops: Loops) -> Self {
        Self { arch: arch.clone(), loops, devices: HashMap::new() }
    }

    fn run(&mut self, family: &Family, case: &Case, material: &Material) -> Ran {
        let (name, Material { sources, before, expected, .. }) = (case.name(), material);
        let artifact = family.kernel_of(case, &self.arch).unwrap_or_else(|error| panic!("{name}: {error}"));
        let stream = match artifact.stream_maker() {
            Some(maker) => maker.make(&maker.reads().iter().map(|at| &*sources[*at]).collect::<Vec<_>>()).unwrap(),
            None => artifact.instructions().to_vec(),
        };
        let device = self.devices.entry(*artifact.digest()).or_insert_with(|| {
            let mut rules = Rules::default();
            rules.loops = self.loops;
            Device::load_under(&self.arch, artifact.pdi(), rules).unwrap()
        });
        let mut buffers: Vec<Vec<u32>> = sources.iter().chain([before]).map(|bytes| words(bytes)).collect();
        let run = device.dispatch(&stream, &mut buffers).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut found = bytes_of(&buffers[sources.len()]);
        found.truncate(expected.len());
        Ran { found, bundles: run.bundles, cycles: run.timing.cycles }
    }
}

/// Nothing that silicon would not forgive is in its files.
fn expect_no_findings(family: &Family, case: &Case, arch: &Arch) {
    let kernel = family.kernel_of(case, arch).unwrap();
    let source = Source::parse(kernel.pdi(), Some(kernel.instructions())).unwrap();
    let design = Design::read(arch, &source).unwrap();
    let found: Vec<&Problem> = design.problems.iter().chain(&design.doubts).collect();
    assert!(found.is_empty(), "{} {}: {found:#?}", arch.name, case.name());
}

/// The families of a generation, in both forms of loops: the results are the same to the byte. What branches back does so where
/// hardware loops do not repeat.
#[rstest]
#[case::aie2("aie2")]
#[case::aie2p("aie2p")]
fn every_operation_is_right_on_the_emulated_array(#[case] generation: &str) {
    let arch = arch(generation);
    let families = Mutex::new(all().filter(|family| family.is_for(&arch)));
    let next = || families.lock().unwrap().next();
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    // They have nothing in common, and take minutes one after the other.
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(family) = next() {
                    expect_right_operations(family, &arch);
                }
            });
        }
    });
}

fn expect_right_operations(family: &Family, arch: &Arch) {
    let mut hardware = Bench::new(arch, Loops::Close);
    let mut jnz = Bench::new(&LoopForm::Jnz.on(arch), Loops::RunOnce);
    let (mut covered, mut bundles, mut cycles) = (BTreeSet::new(), [0; 2], [0; 2]);
    let begun = Instant::now();
    let cases = family.cases_on(arch);
    for case in &cases {
        let name = case.name();
        covered.insert(case.node.op.clone());
        expect_no_findings(family, case, arch);
        let material = case.material(0).unwrap_or_else(|e| panic!("{name}: {e}"));
        let ran = [&mut hardware, &mut jnz].map(|bench| bench.run(family, case, &material));
        let Material { updated, before, expected, .. } = material;
        case.judge(&ran[0].found, &expected).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(ran[0].found == ran[1].found, "{name} depends on the form of loops");
        for (index, ran) in ran.iter().enumerate() {
            bundles[index] += ran.bundles;
            cycles[index] += ran.cycles;
        }
        assert_eq!(updated.is_some(), case.node.op == "SET_ROWS" || case.node.op == "CPY", "{name}");
        assert_ne!(before, expected, "{name} would be right if nothing ran");
    }
    let (count, pdis, elapsed) = (cases.len(), hardware.devices.len(), begun.elapsed());
    println!(
        "{}: {count} cases, {pdis} PDIs; in both forms {bundles:?} bundles, {cycles:?} cycles, {elapsed:.1?}",
        family.name
    );
    let all: BTreeSet<String> = family.operations.iter().map(ToString::to_string).collect();
    assert_eq!(covered, all, "operations of {} without a case", family.name);
}

/// Its kernels are right where loops repeat, and those with more than one iteration wrong where they do not.
#[rstest]
#[case::repeating(Loops::Close, &[true; 5])]
#[case::once(Loops::RunOnce, &[true, false, false, false, false])]
fn hardware_loops_are_seen_to_repeat(
    #[case] loops: Loops,
    #[case] expected: &[bool],
    #[values("aie2", "aie2p")] generation: &str,
) {
    let family = &HARDWARE_LOOPS;
    let arch = arch(generation);
    let mut bench = Bench::new(&arch, loops);
    let right = family.cases_on(&arch).into_iter().map(|case| {
        let material = case.material(0).unwrap();
        case.judge(&bench.run(family, &case, &material).found, &material.expected).is_ok()
    });
    assert_eq!(right.collect::<Vec<_>>(), expected);
}

/// One element that is off by a tenth, one that is not a number, one byte.
#[test]
fn small_mistakes_are_found() {
    let arch = arch("aie2");
    for case in all().flat_map(|family| family.cases_on(&arch)) {
        let expected = case.material(0).unwrap().expected;
        case.judge(&expected, &expected).unwrap();
        let mut wrong = expected.clone();
        let middle = wrong.len() / 2 / 4 * 4;
        if case.exactness == Exactness::Bytes {
            wrong[middle] ^= 1;
        } else {
            wrong[middle..middle + 4].fill(0xFF);
        }
        assert!(case.judge(&wrong, &expected).is_err(), "{}", case.name());
        let nothing = vec![0; expected.len()];
        assert!(expected == nothing || case.judge(&nothing, &expected).is_err(), "{}", case.name());
    }
}
