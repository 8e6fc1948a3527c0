//! The whole way of a kernel for the array: store, worker process, Python worker, design, the two tools, cache.
//!
//! The tools are the test doubles of `iron/tests/doubles`: IRON itself does not run. They check their command lines, and write the
//! two files they are given. Needs Python 3.10 or later.

mod rig;

use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::pdi;
use aie_hal::{Arch, ArchRegistry, KernelArtifact};
use aie_jit_iron::configuration::{Document, Rules, parse};
use aie_jit_iron::iron::IronPlaces;
use aie_jit_iron::manifest::Manifest;
use aie_jit_iron::pregeneration::{Interruption, Options, OutputDirectory, Progress, Status, generate};
use aie_jit_iron::{KernelCache, KernelDirectory, KernelStore, StoreCounters, Wanted};
use aie_ops::compiler::{KernelCompiler, ReferenceCompiler};
use aie_ops::{F16Policy, Operation};
use rig::{arch, sum};
use rstest::rstest;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const DESIGN: &str = r#"
from design import CoreFunction, Design, Unsupported

def ggml_op_add(arch, input_tensors, output_tensor, op_params):
    if output_tensor.numel() == 13:
        raise Unsupported("13 elements")
    if output_tensor.numel() == 14:
        return Design("module { link_with = \"missing.o\" }", [])
    core = CoreFunction("add.o", text="// add of " + str(output_tensor.numel()) + "\n", compile_flags=("-DINPUT_DTYPE=f32",))
    return Design("module { link_with = \"add.o\" }", [core])
"#;

/// Makes a virtual environment with the doubles, and prints its variables.
const INSTALL: &str = "import json, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); \
    from support import Installation; print(json.dumps(Installation(Path(sys.argv[2]), sys.argv[3]).environment))";

struct Rig {
    root: tempfile::TempDir,
    arch: Arc<Arch>,
    op: &'static dyn Operation,
}

fn iron() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("iron")
}

impl Rig {
    fn new(version: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (environment, kernels) = (root.path().join("environment"), root.path().join("kernels"));
        fs::create_dir(&environment).unwrap();
        fs::create_dir(&kernels).unwrap();
        fs::write(kernels.join("binary_ops.py"), DESIGN).unwrap();
        let tests = iron().join("tests");
        let made =
            Command::new("python3").args(["-B", "-c", INSTALL]).arg(tests).arg(&environment).arg(version).output();
        let made = made.expect("python3 is needed (Debian: apt-get install python3)");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let variables: Value = serde_json::from_slice(&made.stdout).unwrap();
        let mut script = String::from("#!/bin/sh\n");
        for (name, value) in variables.as_object().unwrap() {
            script += &format!("export {name}='{}'\n", value.as_str().unwrap());
        }
        script += &format!("exec '{}' -B \"$@\"\n", environment.join("bin/python3").display());
        let python = root.path().join("python");
        fs::write(&python, script).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        // Code for the array, as far as a simulated device can tell.
        let mut cdo = CdoBuilder::new();
        cdo.write(0x0023_2000, 1);
        let rig = Self { root, arch: arch(), op: sum(64).0 };
        fs::write(environment.join("given.pdi"), pdi::write(&cdo).unwrap()).unwrap();
        fs::write(environment.join("given_insts.bin"), rig.reference().instructions()).unwrap();
        rig
    }

    fn reference(&self) -> KernelArtifact {
        ReferenceCompiler.compile(self.op, &sum(64).1, &self.arch).unwrap()
    }

    fn store(&self) -> KernelStore {
        let kernels = Some(self.root.path().join("kernels"));
        let places = IronPlaces { directory: iron(), kernels, python: Some(self.root.path().join("python")) };
        let cache = KernelCache::open(&self.root.path().join("cache")).unwrap();
        let compiler = Arc::new(places.compiler().unwrap());
        KernelStore::builder().cache(cache).compiler(compiler).for_silicon().build().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().join("cache/aie2p").join(name)
    }

    /// The command lines of a double.
    fn lines(&self, program: &str) -> Vec<Vec<String>> {
        let log = fs::read_to_string(self.root.path().join("environment/log.jsonl")).unwrap_or_default();
        let runs = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let runs = runs.filter(|run| run["program"] == program);
        runs.map(|run| serde_json::from_value(run["arguments"].clone()).unwrap()).collect()
    }
}

#[rstest]
#[case("1.3.1", "--aie-generate-pdi")]
#[case("1.4.4", "--get-pdi")]
fn a_kernel_is_compiled_by_a_design_and_kept(#[case] version: &str, #[case] option: &str) {
    let rig = Rig::new(version);
    let store = rig.store();
    let artifact = store.get(rig.op, &sum(64).1, &rig.arch).unwrap();
    assert_eq!((artifact.name(), artifact.instructions()), ("add-64f32-64f32-64f32", rig.reference().instructions()));
    let manifest = Manifest::parse(&fs::read(rig.file("add-64f32-64f32-64f32.json")).unwrap()).unwrap();
    assert_eq!(manifest.origin.compiler, "iron");
    assert!(manifest.origin.toolchain.starts_with(&format!("mlir_aie {version}; ")), "{}", manifest.origin.toolchain);
    let (aiecc, clang) = (rig.lines("aiecc"), rig.lines("clang++"));
    assert_eq!((aiecc.len(), clang.len()), (1, 1));
    assert!(aiecc[0].iter().any(|argument| argument == option), "{aiecc:?}");
    for expected in ["-O2", "-DINPUT_DTYPE=f32", "--target=aie2p-none-unknown-elf"] {
        assert!(clang[0].iter().any(|argument| argument == expected), "{clang:?}");
    }
    let compiled = StoreCounters { compiled: 1, ..StoreCounters::default() };
    assert_eq!(store.counters(), compiled);
    drop(store);
    // The next process finds it.
    let store = rig.store();
    store.get(rig.op, &sum(64).1, &rig.arch).unwrap();
    assert_eq!((store.counters().cache, rig.lines("aiecc").len()), (1, 1));
    drop(store);
    // A design that was changed makes it stale.
    fs::write(rig.root.path().join("kernels/binary_ops.py"), format!("{DESIGN}# changed\n")).unwrap();
    let store = rig.store();
    store.get(rig.op, &sum(64).1, &rig.arch).unwrap();
    assert_eq!((store.counters().compiled, rig.lines("aiecc").len()), (1, 2));
}

#[test]
fn verdicts_are_remembered_with_all_that_the_tools_said() {
    let rig = Rig::new("1.3.1");
    let message = rig.store().get(rig.op, &sum(14).1, &rig.arch).unwrap_err().to_string();
    assert!(message.contains("[aiecc] Compilation failed with exit code 1"), "{message}");
    let output = fs::read_to_string(rig.file("add-14f32-14f32-14f32.failed.log")).unwrap();
    assert!(output.contains("cannot open missing.o"), "{output}");
    let message = rig.store().get(rig.op, &sum(14).1, &rig.arch).unwrap_err().to_string();
    assert!(message.contains("cached in"), "{message}");
    assert_eq!(rig.lines("aiecc").len(), 1);
    let message = rig.store().get(rig.op, &sum(13).1, &rig.arch).unwrap_err().to_string();
    assert!(message.contains("compiler iron does not support it") && message.contains("13 elements"), "{message}");
    assert!(!rig.file("add-13f32-13f32-13f32.failed.json").exists());
}

/// Outside the IRON environment, what was compiled in it is still used.
#[test]
fn without_the_toolchain_cached_kernels_are_taken() {
    let rig = Rig::new("1.3.1");
    rig.store().get(rig.op, &sum(64).1, &rig.arch).unwrap();
    fs::remove_dir_all(rig.root.path().join("environment/lib")).unwrap();
    let store = rig.store();
    store.get(rig.op, &sum(64).1, &rig.arch).unwrap();
    assert_eq!(store.counters().cache, 1);
    let message = store.get(rig.op, &sum(32).1, &rig.arch).unwrap_err().to_string();
    assert!(message.contains("Failed to import kernel build module: No module named 'numpy'"), "{message}");
    assert!(message.contains("source env_setup.sh"), "{message}");
}

/// A folder that somebody else wrote: packages with relative imports, functions of any name that return specifications.
#[test]
fn a_configuration_names_designs_of_others() {
    let rig = Rig::new("1.4.4");
    let folder = iron().join("tests/packages/specified");
    let kernel = |function: &str, operation: &str| {
        let tensor = "(64,1,1,1)/f32";
        let mut kernel = json!({"kernel_name": function, "kernel_source": "ops.py", "arch": "aie2p",
            "input_tensors": [tensor, tensor], "output_tensor": tensor, "exported_name": format!("{function}{operation}")});
        if !operation.is_empty() {
            kernel["operation"] = operation.into();
        }
        kernel
    };
    let functions = [("own_unbound", "ADD"), ("own_alternatives", ""), ("own_of_another", ""), ("own_missing", "")];
    let kernels: Vec<Value> = functions.iter().map(|(function, operation)| kernel(function, operation)).collect();
    let arches = ArchRegistry::builtin();
    let document = Document::new("c.json", json!({ "kernels": kernels }).to_string());
    let rules = Rules { arches: &arches, f16: F16Policy::F32, kernels_dir: Some(&folder) };
    let wanted = parse(&document, &rules).unwrap();
    let places =
        IronPlaces { directory: iron(), kernels: Some(folder.clone()), python: Some(rig.root.path().join("python")) };
    let compiler = places.compiler().unwrap();
    let path = rig.root.path().join("out");
    let output = OutputDirectory::open(&path).unwrap();
    let options = Options { jobs: 1, force: false, arches: Vec::new() };
    let (silent, never) = (Progress::silent(), Interruption::default());
    let (report, _) = generate(&wanted, &[&compiler], &output, &options, &silent, &never);
    let told: Vec<(Status, &str)> =
        report.kernels.iter().map(|kernel| (kernel.status, kernel.cause.as_deref().unwrap_or_default())).collect();
    assert_eq!(told[..2], [(Status::Made, ""); 2], "{told:?}");
    for ((status, cause), expected) in told[2..].iter().zip(["own_of_another", "has no function own_missing"]) {
        assert!(*status == Status::Failed && cause.contains(expected), "{cause}");
    }
    // The backend finds the one that computes an operation of ggml's.
    assert!(KernelDirectory::open(&path).unwrap().load(&Wanted::of(rig.op, &sum(64).1, &rig.arch)).unwrap().is_some());
    assert!(path.join("aie2p/ops.own_alternatives-64f32-64f32-64f32.pdi").is_file());
}
