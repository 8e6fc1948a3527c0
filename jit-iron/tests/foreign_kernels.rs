//! Kernels of the C++ backend in a kernel directory: names and file layout are shared, so that what its designs make is
//! found. What they make for other types than the name says is found too, and must be rejected.
//!
//! The streams here move what the C++ backend's designs move: element by element and row by row whole tensors, one after the
//! other; products in the blocks of a whole-array design, its activations in the type of its weights.

use aie_hal::format::bd::ShimBd;
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{Header, InstructionWriter, Transfer};
use aie_hal::format::pdi;
use aie_hal::{Arch, ArchRegistry};
use aie_jit_iron::{JitPolicy, KernelStore, StoreError};
use aie_ops::DataType::{BF16, F16, F32, I8, I32, I64};
use aie_ops::compiler::ReferenceCompiler;
use aie_ops::name::kernel_name;
use aie_ops::normalise::normalise;
use aie_ops::{DataType, F16Policy, Node, OpParams, Operation, Tensor, table};
use parking_lot::Mutex;
use rstest::rstest;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const INPUT: Direction = Direction::MemoryToStream;
const OUTPUT: Direction = Direction::StreamToMemory;

/// An instruction stream as mlir-aie writes it.
struct Stream {
    writer: InstructionWriter,
    burst: u32,
}

/// Where a transfer runs.
#[derive(Clone, Copy)]
struct Lane {
    column: usize,
    direction: Direction,
    channel: u8,
    descriptor: u8,
}

impl Stream {
    fn new(arch: &Arch, columns: usize) -> Self {
        let aie2 = arch.name == "aie2";
        let columns = columns as u8;
        let header = Header { generation: if aie2 { 3 } else { 4 }, rows: 6, columns, mem_tile_rows: 1 };
        Self { writer: InstructionWriter::new(header), burst: if aie2 { 2 } else { 3 } }
    }

    fn transfer(&mut self, lane: Lane, argument: usize, offset: usize, shape: ShimBd, repeat: usize) -> Transfer {
        let transfer = Transfer {
            column: lane.column as u8,
            direction: lane.direction,
            channel: lane.channel,
            descriptor: lane.descriptor,
            shape,
            argument: argument as u16,
            offset: offset as u64,
            repeat: repeat as u8,
            token: lane.direction == OUTPUT,
        };
        self.writer.transfer(&transfer).unwrap();
        transfer
    }

    /// A whole tensor, in as many words as its elements fill: element counts are rounded up to whole words.
    fn whole(&mut self, lane: Lane, argument: usize, tensor: &Tensor) -> Transfer {
        let words = tensor.span_bytes().div_ceil(4) as u32;
        self.transfer(lane, argument, 0, ShimBd::linear(words, self.burst), 0)
    }

    /// `npu_dma_memcpy_nd`: sizes and strides in elements, outermost first; the outermost is the iteration, and with a stride
    /// of 0 only a repetition.
    fn blocks(
        &mut self,
        lane: Lane,
        argument: usize,
        bytes: usize,
        offset: usize,
        sizes: [usize; 4],
        strides: [usize; 4],
    ) -> Transfer {
        let words = |elements: usize| (elements * bytes / 4) as u32;
        let shape = ShimBd {
            d0_wrap: words(sizes[3]),
            d1_wrap: sizes[2] as u32,
            d1_step: words(strides[2]),
            d2_step: words(strides[1]),
            iteration_wrap: if strides[0] == 0 { 1 } else { sizes[0] as u32 },
            iteration_step: words(strides[0]).max(1),
            ..ShimBd::linear(words(sizes[1] * sizes[2] * sizes[3]), self.burst)
        };
        self.transfer(lane, argument, offset * bytes, shape, sizes[0] - 1)
    }
}

/// One core: inputs on the two channels of the first shim, then the output.
fn one_core(node: &Node, arch: &Arch) -> Vec<u8> {
    let mut stream = Stream::new(arch, 1);
    for (argument, tensor) in node.inputs().enumerate() {
        let lane = Lane { column: 0, direction: INPUT, channel: argument as u8, descriptor: argument as u8 };
        stream.whole(lane, argument, tensor);
    }
    let lane = Lane { column: 0, direction: OUTPUT, channel: 0, descriptor: 2 };
    let output = stream.whole(lane, node.inputs().count(), &node.output);
    stream.writer.wait(&output);
    stream.writer.finish().unwrap()
}

/// The whole array: row blocks of the weights against column blocks of the activations, both in the weights' type.
fn product(node: &Node, arch: &Arch) -> Vec<u8> {
    let (columns, tile) = if arch.name == "aie2" { (4, 8) } else { (8, 16) };
    let (rows, weights, out) = (4, node.source(0).unwrap(), &node.output);
    let ([inner, height, ..], [_, width, ..]) = (weights.ne, out.ne);
    let (operand, result) = (weights.dtype.block_bytes(), out.dtype.block_bytes());
    let mut stream = Stream::new(arch, columns);
    let (band, blocks) = (tile * rows, width / tile / columns);
    for (pair, first) in (0..height / band).step_by(2).enumerate() {
        let bands = (height / band - first).min(2);
        let base = 8 * (pair % 2) as u8;
        let mut outputs = Vec::new();
        for column in 0..columns {
            let lane = Lane { column, direction: OUTPUT, channel: 0, descriptor: base };
            let (sizes, strides) = ([bands, blocks, tile, band], [band, tile * columns * height, height, 1]);
            let offset = first * band + column * tile * height;
            outputs.push(stream.blocks(lane, 2, result, offset, sizes, strides));
            for row in 0..bands {
                let lane = |channel, descriptor| Lane { column, direction: INPUT, channel, descriptor };
                let descriptor = base + 2 * row as u8 + 1;
                if column.is_multiple_of(columns / rows) {
                    let offset = (first + row) * band * inner + column / (columns / rows) * tile * inner;
                    let (sizes, strides) = ([blocks, inner / tile, tile, tile], [0, tile, inner, 1]);
                    stream.blocks(lane(0, descriptor), 0, operand, offset, sizes, strides);
                }
                let (sizes, strides) = ([blocks, inner / tile, tile, tile], [tile * columns * inner, tile, inner, 1]);
                stream.blocks(lane(1, descriptor + 1), 1, operand, column * tile * inner, sizes, strides);
            }
        }
        for output in &outputs {
            stream.writer.wait(output);
        }
    }
    stream.writer.finish().unwrap()
}

fn node(op: &str, params: &[f32], output: Tensor, sources: &[Tensor]) -> Node {
    let params = OpParams(std::array::from_fn(|word| params.get(word).map_or(0, |x| x.to_bits().cast_signed())));
    Node::new(op, params, output, sources.iter().copied().map(Some).collect())
}

fn tensor(dtype: DataType, ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(dtype, ne)
}

fn mul_mat(weights: DataType, activations: DataType, [inner, height, width]: [usize; 3]) -> Node {
    let sources = [tensor(weights, [inner, height, 1, 1]), tensor(activations, [inner, width, 1, 1])];
    node("MUL_MAT", &[], tensor(F32, [height, width, 1, 1]), &sources)
}

/// Nodes of every operation that the C++ backend has a design for, in the types it takes.
fn table_of_the_cpp_backend() -> Vec<Node> {
    let mut nodes = Vec::new();
    for dtype in [F32, F16, BF16] {
        for op in [
            "ABS",
            "SGN",
            "NEG",
            "STEP",
            "RELU",
            "HARDSWISH",
            "HARDSIGMOID",
            "FLOOR",
            "CEIL",
            "ROUND",
            "TRUNC",
            "SQR",
            "LOG",
        ] {
            for ne in [[4096, 1, 1, 1], [64, 3, 5, 2], [7, 1, 1, 1], [1, 1, 1, 1]] {
                nodes.push(node(op, &[], tensor(dtype, ne), &[tensor(dtype, ne)]));
            }
        }
        for op in ["ADD", "SUB", "MUL", "DIV"] {
            let x = tensor(dtype, [10, 5, 4, 3]);
            nodes.push(node(op, &[], x, &[x, x]));
            nodes.push(node(op, &[], x, &[x, tensor(dtype, [10, 1, 1, 1])]));
        }
        let x = tensor(dtype, [33, 3, 1, 1]);
        nodes.push(node("CLAMP", &[-1.0, 1.0], x, &[x]));
    }
    let (x, rows) = (tensor(F32, [32, 8, 1, 1]), tensor(F32, [32, 8, 2, 1]));
    nodes.push(node("SCALE", &[2.0, 0.0], x, &[x]));
    nodes.push(node("SOFT_MAX", &[1.0, 0.0], x, &[x]));
    nodes.push(node("SOFT_MAX", &[0.5, 0.0], rows, &[rows, rows]));
    nodes.push(node("ARGMAX", &[], tensor(I32, [8, 1, 1, 1]), &[x]));
    nodes.push(node("CROSS_ENTROPY_LOSS", &[], tensor(F32, [1, 1, 1, 1]), &[x, x]));
    let counted = tensor(I32, [128, 1, 1, 1]);
    nodes.push(node("COUNT_EQUAL", &[], tensor(I64, [1, 1, 1, 1]), &[counted, counted]));
    nodes.push(mul_mat(BF16, BF16, [64, 128, 128]));
    nodes.push(mul_mat(F16, F16, [256, 512, 384]));
    nodes
}

struct Rig {
    root: tempfile::TempDir,
    arch: Arc<Arch>,
}

impl Rig {
    fn new(generation: &str) -> Self {
        Self { root: tempfile::tempdir().unwrap(), arch: ArchRegistry::builtin().get(generation).unwrap() }
    }

    /// Puts the kernel that the C++ backend's design makes for the normalised node into the directory.
    fn put(&self, name: &str, node: &Node) {
        let stream = if node.op == "MUL_MAT" { product(node, &self.arch) } else { one_core(node, &self.arch) };
        let mut cdo = CdoBuilder::new();
        cdo.nop(&[]).write(0x0023_2000, 1);
        let folder = self.directory().join(&self.arch.name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.pdi")), pdi::write(&cdo).unwrap()).unwrap();
        fs::write(folder.join(format!("{name}_insts.bin")), stream).unwrap();
    }

    fn directory(&self) -> &Path {
        self.root.path()
    }
}

/// The node as the array has it, and its kernel's name.
fn normalised(node: &Node, policy: F16Policy) -> (&'static dyn Operation, Node, String) {
    let op = table::lookup(&node.op).unwrap();
    op.check(node).unwrap();
    let normalised = normalise(op, node, policy).unwrap().node;
    let name = kernel_name(op, &normalised);
    (op, normalised, name)
}

#[rstest]
fn the_cpp_backends_kernels_load(
    #[values("aie2", "aie2p")] generation: &str,
    #[values(F16Policy::F32, F16Policy::Bf16)] policy: F16Policy,
) {
    let rig = Rig::new(generation);
    let builder = KernelStore::builder().kernel_directory(rig.directory()).policy(JitPolicy::Off).for_silicon();
    let store = builder.build().unwrap();
    let mut names = std::collections::BTreeSet::new();
    for node in table_of_the_cpp_backend() {
        let (op, node, name) = normalised(&node, policy);
        rig.put(&name, &node);
        let artifact = store.get(op, &node, &rig.arch).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(artifact.name(), name);
        names.insert(name);
    }
    assert!(names.len() > 100, "{}: {names:?}", names.len());
    assert_eq!(store.counters().directory, names.len() as u64);
    assert_eq!(store.missed(), []);
}

/// Warnings of the code under test.
#[derive(Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Message(String);
        impl Visit for Message {
            fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{value:?}");
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().push(message.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The name says f32 activations, as ggml has them for f16 weights; the design reads them as the bf16 of the weights.
#[rstest]
#[case("aie2", JitPolicy::Eager)]
#[case("aie2p", JitPolicy::Eager)]
#[case("aie2p", JitPolicy::Background)]
fn activations_read_in_the_type_of_the_weights_are_rejected(#[case] generation: &str, #[case] policy: JitPolicy) {
    let rig = Rig::new(generation);
    let (op, node, name) = normalised(&mul_mat(F16, F32, [128, 256, 256]), F16Policy::Bf16);
    assert_eq!(name, "mul_mat-256x256f32-128x256bf16-128x256f32");
    rig.put(&name, &node);
    let misfit = format!(
        "kernel {name} from {} is not used: it reads 65536 bytes of argument 1 (source 1, f32 [128, 256, 1, 1]), which has \
         131072 and is needed whole: it is a kernel for other types or shapes",
        rig.directory().join(generation).display()
    );
    let warnings = Warnings::default();
    let logged = Arc::clone(&warnings.0);
    tracing::subscriber::with_default(warnings, || {
        let store = KernelStore::builder().kernel_directory(rig.directory()).policy(policy).for_silicon();
        let store = store.build().unwrap();
        let error = loop {
            match store.get(op, &node, &rig.arch).unwrap_err() {
                StoreError::Pending { .. } => std::thread::yield_now(),
                error => break error,
            }
        };
        // The caller gets no kernel, so that the node is computed elsewhere, and the reason.
        assert!(matches!(&error, StoreError::NotFound { tried, .. } if tried.contains(&misfit)), "{error}");
        assert_eq!((store.counters().failed, store.counters().directory), (1, 0));
        assert!(!store.expects(op, &node, &rig.arch));
        assert_eq!(store.missed()[0].kernel, name);
    });
    assert_eq!(*logged.lock(), [misfit]);
}

/// A kernel that does not fit is skipped: the source after the directory is tried.
#[test]
fn another_source_can_have_the_right_kernel() {
    let rig = Rig::new("aie2p");
    let (op, node, name) = normalised(&mul_mat(F16, F32, [128, 256, 256]), F16Policy::F32);
    rig.put(&name, &node);
    let store = KernelStore::builder().kernel_directory(rig.directory()).compiler(Arc::new(ReferenceCompiler));
    let store = store.build().unwrap();
    store.get(op, &node, &rig.arch).unwrap();
    assert_eq!((store.counters().directory, store.counters().compiled), (0, 1));
}

/// Kernels for fewer, more or wider elements under the right name.
#[rstest]
#[case::fewer(tensor(F32, [4000, 1, 1, 1]), "it reads 16000 bytes of argument 0 (source 0, f32 [4096, 1, 1, 1]), which has 16384")]
#[case::more(tensor(F32, [8192, 1, 1, 1]), "it reads 32768 bytes of argument 0 (source 0, f32 [4096, 1, 1, 1]), which has 16384")]
#[case::narrower(tensor(I8, [4096, 1, 1, 1]), "it reads 4096 bytes of argument 0 (source 0, f32 [4096, 1, 1, 1]), which has 16384")]
fn other_kernels_under_the_right_name_are_rejected(#[case] made_for: Tensor, #[case] expected: &str) {
    let rig = Rig::new("aie2");
    let x = tensor(F32, [4096, 1, 1, 1]);
    let (op, wanted, name) = normalised(&node("RELU", &[], x, &[x]), F16Policy::F32);
    rig.put(&name, &node("RELU", &[], made_for, &[made_for]));
    let builder = KernelStore::builder().kernel_directory(rig.directory()).policy(JitPolicy::Off).for_silicon();
    let error = builder.build().unwrap().get(op, &wanted, &rig.arch).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}
