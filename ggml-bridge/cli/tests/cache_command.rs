//! `ggml-hsa cache` as a program: what it prints and its exit codes.

use aie_hal::{Arch, ArchRegistry, KernelArtifact};
use aie_jit_iron::{KernelCache, Wanted};
use aie_ops::compiler::{CompileError, KernelCompiler, ReferenceCompiler};
use aie_ops::{DataType, Node, OpParams, Operation, Tensor, table};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// As the reference compiler, of another version.
#[derive(Debug)]
struct Older;

impl KernelCompiler for Older {
    fn name(&self) -> &str {
        ReferenceCompiler.name()
    }
    fn folder(&self) -> &str {
        ReferenceCompiler.folder()
    }
    fn identity(&self) -> String {
        "reference 0.0".into()
    }
    fn sources(&self) -> String {
        ReferenceCompiler.sources()
    }
    fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
        ReferenceCompiler.compile(op, node, arch)
    }
}

fn fill(path: &Path, compiler: &dyn KernelCompiler, elements: usize) {
    let tensor = Tensor::contiguous(DataType::F32, [elements, 1, 1, 1]);
    let node = Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2]);
    let (op, arch) = (table::lookup("ADD").unwrap(), ArchRegistry::builtin().get("aie2p").unwrap());
    KernelCache::open(path).unwrap().fetch(compiler, &Wanted::of(op, &node, &arch)).unwrap();
}

fn run(path: &Path, arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ggml-hsa"));
    let output = command.arg("cache").args(arguments).env("GGML_HSA_KERNEL_CACHE_DIR", path).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_cache_is_listed_verified_pruned_and_cleared() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("cache");
    let (output, text) = run(&path, &["list"]);
    assert!(output.status.success() && text.starts_with("no cache: "), "{text}");

    fill(&path, &ReferenceCompiler, 64);
    fill(&path, &Older, 32);
    fs::write(path.join("reference/notes.txt"), "mine").unwrap();
    let (output, text) = run(&path, &["list"]);
    assert!(output.status.success() && text.contains("1 good, 1 stale, 0 damaged, 0 failed"), "{text}");
    assert!(text.contains("toolchain `reference 0.0`") && text.contains("notes.txt"), "{text}");

    let pdi = path.join("reference/aie2p/add-64f32-64f32-64f32.pdi");
    let mut bytes = fs::read(&pdi).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&pdi, bytes).unwrap();
    assert!(run(&path, &["list"]).0.status.success());
    let (output, text) = run(&path, &["verify", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&text);
    let states: Vec<_> = report["items"].as_array().unwrap().iter().map(|item| item["state"].clone()).collect();
    assert_eq!(states, ["stale", "damaged"]);

    let (output, text) = run(&path, &["prune"]);
    assert!(output.status.success() && text.starts_with("removed 2 entries"), "{text}");
    fill(&path, &ReferenceCompiler, 64);
    assert!(run(&path, &["prune", "--max-size", "1G", "--older-than", "1"]).1.starts_with("removed 0 entries"));
    let (output, text) = run(&path, &["clear", "--json"]);
    assert!(output.status.success());
    assert_eq!((json(&text)["items"].as_u64(), json(&text)["kept"].as_array().unwrap().len()), (Some(1), 1));
    assert!(path.join("reference/notes.txt").is_file());
}

#[test]
fn mistakes_are_explained() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(".git")).unwrap();
    for action in ["list", "clear", "prune"] {
        let (output, _) = run(root.path(), &[action]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(message.contains(".git") && message.contains("GGML_HSA_KERNEL_CACHE_DIR"), "{message}");
    }
    let (output, _) = run(root.path(), &["prune", "--max-size", "lots"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("possible: bytes, or a number with K, M, G or T"));
    assert_eq!(run(root.path(), &["empty"]).0.status.code(), Some(2));
    assert!(run(root.path(), &["--help"]).1.contains("Examples:"));
}
