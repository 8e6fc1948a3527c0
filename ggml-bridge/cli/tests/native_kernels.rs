//! Kernels of `ggml-hsa-gen-kernels --compiler native` from their files: every kernel of the list that the documents of the C++
//! backend have, generated with no tool installed, executed on the emulated array and compared with the reference kernels.

use aie_conformance::Rig;
use aie_conformance::rig::{contents, record, whole};
use aie_driver_mock::MockDriver;
use aie_hal::{Arch, ArchRegistry, Buffer, Driver};
use aie_jit_iron::{KernelDirectory, Wanted};
use aie_ops::artifact::is_code;
use aie_ops::normalise::normalise;
use aie_ops::{DataType, F16Policy, Node, OpParams, Operation, ReferenceExecutor, Tensor, table};
use half::bf16;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// What test-backend-ops allows: the error's energy by that of the result, for most operations and for products.
const NMSE: f64 = 1e-7;
const NMSE_PRODUCT: f64 = 5e-4;
/// Of results in bf16.
const NMSE_BF16: f64 = 1e-6;

/// The kernels of `configuration`, generated into `folder`; the report.
fn generate(configuration: &Path, folder: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ggml-hsa-gen-kernels"));
    // Nothing on PATH: no tool can be started.
    command.env_clear().env("PATH", "/nonexistent").args(["--compiler", "native", "--json", "--config"]);
    let output = command.arg(configuration).arg("--output-dir").arg(folder).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert!(output.status.success(), "{report:#}");
    report
}

fn aie2() -> Arc<Arch> {
    ArchRegistry::builtin().get("aie2").unwrap()
}

/// The device, whose kernels come from files.
struct Emulated {
    rig: Rig,
    kernels: KernelDirectory,
}

impl Emulated {
    fn new(folder: &Path) -> Self {
        let driver = MockDriver::new(Arc::new(ReferenceExecutor));
        let device = driver.open(&"mock:aie2".parse().unwrap()).unwrap().remove(0);
        Self { rig: Rig::new(device), kernels: KernelDirectory::open(folder).unwrap() }
    }

    /// Runs the kernel that backends find for `node` in the folder, and its reference kernel, on the same bytes; their results.
    fn run(&self, op: &dyn Operation, node: &Node, sources: &[Vec<u8>]) -> [Vec<f32>; 2] {
        let node = normalise(op, node, F16Policy::F32).unwrap().node;
        let artifact = self.kernels.load(&Wanted::of(op, &node, &aie2())).unwrap();
        let artifact = artifact.unwrap_or_else(|| panic!("no kernel of {} under its name", node.op));
        assert!(is_code(&artifact), "{}", artifact.name());
        let executable = self.rig.device.load_executable(&artifact).unwrap();
        let inputs: Vec<Arc<dyn Buffer>> = sources.iter().map(|bytes| self.rig.buffer(bytes)).collect();
        let output = self.rig.zeroed(node.output.span_bytes());
        let arguments = inputs.iter().chain([&output]).map(whole).collect();
        let before = self.rig.device.counters().bundles;
        self.rig.run(&record(|list| list.dispatch(&executable, arguments)));
        assert!(self.rig.device.counters().bundles > before, "{}: no core has run", artifact.name());
        let mut expected = vec![0; node.output.span_bytes()];
        let inputs: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        op.reference(&node).unwrap().run(&inputs, &mut expected).unwrap();
        [contents(&output), expected].map(|bytes| floats(node.output.dtype, &bytes))
    }
}

fn floats(dtype: DataType, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        DataType::BF16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        // Below 2^24, which f32 holds exactly.
        DataType::I32 => bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f32).collect(),
        _ => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

fn bytes_of(dtype: DataType, values: impl Iterator<Item = f32>) -> Vec<u8> {
    match dtype {
        DataType::BF16 => values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect(),
        DataType::I8 => values.map(|value| (value as i8).cast_unsigned()).collect(),
        _ => values.flat_map(f32::to_le_bytes).collect(),
    }
}

/// The energy of the difference by that of what is expected.
fn nmse([found, expected]: &[Vec<f32>; 2]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected).map(|(found, expected)| (f64::from(*found), f64::from(*expected)));
    let (error, energy) = pairs.fold((0.0, 0.0), |(error, energy), (found, expected)| {
        (error + (found - expected).powi(2), energy + expected.powi(2))
    });
    error / energy
}

/// Random values in a range.
fn random(random: &mut fastrand::Rng, tensor: &Tensor, [from, to]: [f32; 2]) -> Vec<u8> {
    bytes_of(tensor.dtype, (0..tensor.elements()).map(|_| from + (to - from) * random.f32()))
}

/// A kernel of the list: its entry in a configuration, its node, and the values its sources may have.
#[derive(Clone)]
struct Entry {
    text: Value,
    node: Node,
    ranges: Vec<[f32; 2]>,
    bound: f64,
}

impl Entry {
    fn new(
        op: &str,
        function: &str,
        file: &str,
        sources: &[(DataType, [usize; 4])],
        out: (DataType, [usize; 4]),
    ) -> Self {
        let text = |dtype: DataType, [a, b, c, d]: [usize; 4]| format!("({a},{b},{c},{d})/{}", dtype.name());
        let tensors: Vec<Option<Tensor>> =
            sources.iter().map(|(dtype, ne)| Some(Tensor::contiguous(*dtype, *ne))).collect();
        let exported = format!("{}_{}_documents", op.to_lowercase(), out.0.name());
        Self {
            text: json!({"kernel_name": function, "kernel_source": file, "arch": "aie2",
                "input_tensors": sources.iter().map(|(dtype, ne)| text(*dtype, *ne)).collect::<Vec<_>>(),
                "output_tensor": text(out.0, out.1), "exported_name": exported}),
            node: Node::new(op, OpParams::default(), Tensor::contiguous(out.0, out.1), tensors),
            ranges: vec![[-4.0, 4.0]; sources.len()],
            bound: NMSE,
        }
    }
}

/// ADD SUB MUL DIV and the unary ones of a type.
fn of_elements(dtype: DataType) -> Vec<Entry> {
    let mut list = Vec::new();
    let row = (dtype, [1024, 1, 1, 1]);
    // Of a result in bf16 a rounding that falls to the other side is an error of 2^-8 of one element.
    let bound = if dtype == DataType::BF16 { NMSE_BF16 } else { NMSE };
    for op in ["ADD", "SUB", "MUL", "DIV"] {
        let function = format!("ggml_op_{}", op.to_lowercase());
        let mut entry = Entry::new(op, &function, "binary_ops.py", &[row, row], row);
        if op == "DIV" {
            entry.ranges[1] = [0.5, 4.0];
        }
        list.push(entry);
    }
    for op in ["SQR", "SQRT", "LOG"] {
        let mut entry = Entry::new(op, &format!("ggml_op_{}", op.to_lowercase()), "unary_ops.py", &[row], row);
        entry.ranges[0] = [0.01, 8.0];
        list.push(entry);
    }
    let unary = [
        "ABS",
        "SGN",
        "NEG",
        "STEP",
        "TANH",
        "ELU",
        "RELU",
        "SIGMOID",
        "GELU",
        "GELU_QUICK",
        "SILU",
        "HARDSWISH",
        "HARDSIGMOID",
        "EXP",
        "GELU_ERF",
        "FLOOR",
        "CEIL",
        "ROUND",
        "TRUNC",
    ];
    for op in unary {
        let function = format!("ggml_unary_op_{}", op.to_lowercase());
        list.push(Entry::new(op, &function, "unary_ops.py", &[row], row));
    }
    list.into_iter().map(|entry| Entry { bound, ..entry }).collect()
}

/// The documents' list: functions of elements in f32 and bf16, and MUL_MAT in bf16 and i8.
fn list() -> Vec<Entry> {
    let mut list = [DataType::F32, DataType::BF16].map(of_elements).concat();
    let operands = [(DataType::BF16, [256, 128, 1, 1]), (DataType::BF16, [256, 32, 1, 1])];
    let product = Entry::new("MUL_MAT", "ggml_op_mul_mat", "mul_mat.py", &operands, (DataType::F32, [128, 32, 1, 1]));
    list.push(Entry { bound: NMSE_PRODUCT, ..product });
    let operands = [(DataType::I8, [256, 128, 1, 1]), (DataType::I8, [256, 32, 1, 1])];
    let product = Entry::new("MUL_MAT", "ggml_op_mul_mat", "mul_mat.py", &operands, (DataType::I32, [128, 32, 1, 1]));
    list.push(Entry { bound: 0.0, ranges: vec![[-128.0, 128.0]; 2], ..product });
    list
}

#[test]
fn the_documents_list_is_generated_and_right() {
    let folder = tempfile::tempdir().unwrap();
    let (configuration, list) = (folder.path().join("c.json"), list());
    let kernels: Vec<&Value> = list.iter().map(|entry| &entry.text).collect();
    fs::write(&configuration, serde_json::to_vec(&json!({ "kernels": kernels })).unwrap()).unwrap();
    let report = generate(&configuration, &folder.path().join("out"));
    assert_eq!(report["generated"], list.len());
    all_are_right(&folder.path().join("out"), &list);
}

/// Executes the kernels of a folder.
fn all_are_right(folder: &Path, list: &[Entry]) {
    let emulated = Emulated::new(folder);
    let mut rng = fastrand::Rng::with_seed(15);
    let mut wrong = Vec::new();
    for entry in list {
        let tensors = entry.node.inputs();
        let sources: Vec<_> =
            tensors.zip(&entry.ranges).map(|(tensor, range)| random(&mut rng, tensor, *range)).collect();
        let error = nmse(&emulated.run(table::lookup(&entry.node.op).unwrap(), &entry.node, &sources));
        if error.is_nan() || error > entry.bound {
            wrong.push(format!("{}: NMSE {error:e}, {:e} is allowed", entry.node.op, entry.bound));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_smallest_example_needs_nothing_installed() {
    let folder = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../jit-iron/examples/kernels");
    let report = generate(&examples.join("minimal-kernel-config.json"), &folder.path().join("out"));
    assert_eq!(report["generated"], 2);
    assert!(report["kernels"].as_array().unwrap().iter().all(|kernel| kernel["compiler"] == "native"), "{report:#}");
}

/// What the larger example has for aie2: a row added to rows, an activation, and a product, in bf16.
#[test]
fn the_larger_example_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../jit-iron/examples/kernels/example-kernel-config.json");
    let mut text: Value = serde_json::from_slice(&fs::read(example).unwrap()).unwrap();
    let kernels = text["kernels"].as_array_mut().unwrap();
    kernels.retain(|kernel| kernel["arch"] == "aie2");
    assert_eq!(kernels.len(), 3);
    let configuration = folder.path().join("c.json");
    fs::write(&configuration, serde_json::to_vec(&text).unwrap()).unwrap();
    let report = generate(&configuration, &folder.path().join("out"));
    assert_eq!(report["generated"], 3, "{report:#}");
    let bf16 = |ne| (DataType::BF16, ne);
    let (rows, row) = (bf16([4096, 8, 1, 1]), bf16([4096, 1, 1, 1]));
    let operands = [bf16([768, 1024, 1, 1]), bf16([768, 64, 1, 1])];
    let product = (DataType::F32, [1024, 64, 1, 1]);
    let list = [
        Entry { bound: NMSE_BF16, ..Entry::new("ADD", "ggml_op_add", "binary_ops.py", &[rows, row], rows) },
        Entry { bound: NMSE_BF16, ..Entry::new("GELU", "ggml_unary_op_gelu", "unary_ops.py", &[row], row) },
        Entry { bound: NMSE_PRODUCT, ..Entry::new("MUL_MAT", "ggml_op_mul_mat", "mul_mat.py", &operands, product) },
    ];
    all_are_right(&folder.path().join("out"), &list);
}
