//! Reference artifacts: files in the form of compiled kernels that describe what to compute.
//!
//! The PDI carries a [`Description`] where loaders skip it, and the instruction stream is a real one: it moves every argument
//! through a shim DMA and waits for the output. So a reference artifact takes the same way through stores, loaders, packets
//! and queues as a compiled kernel; only a simulated device looks inside and computes, with the [`ReferenceExecutor`]. On silicon it
//! would configure nothing. How a PDI carries bytes that loaders skip is [`aie_hal::format::reference`]'s.

mod executor;

pub use executor::ReferenceExecutor;

use crate::name::kernel_name;
use crate::node::Node;
use crate::operation::{Operation, Unsupported};
use crate::table;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{InstructionWriter, Transfer};
use aie_hal::format::pdi::Pdi;
use aie_hal::format::reference;
use aie_hal::{Arch, KernelArtifact};
use serde::{Deserialize, Serialize};
use std::error::Error;

/// Version of [`Description`]. Readers accept this one only.
const VERSION: u32 = 3;

/// What a reference artifact says of its kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Version of this structure.
    pub version: u32,
    /// Kernel name.
    pub kernel: String,
    /// Generation it is for.
    pub arch: String,
    /// The normalised node.
    pub node: Node,
}

/// A reference artifact cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The operation does not take the node.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// An argument is larger than a buffer descriptor can say.
    #[error("kernel {kernel}: an argument of {bytes} bytes exceeds what one shim buffer descriptor moves")]
    TooLarge {
        /// Kernel name.
        kernel: String,
        /// Bytes of the argument.
        bytes: usize,
    },
    /// A file format cannot hold it.
    #[error(transparent)]
    Format(Box<dyn Error + Send + Sync>),
}

/// An artifact holds no usable description.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// It is a kernel for the array.
    #[error(
        "kernel {kernel} holds compiled AIE code, which only an NPU can run; a simulated device needs a reference artifact: \
         remove the kernel from GGML_HSA_KERNEL_DIR"
    )]
    Compiled {
        /// Kernel name.
        kernel: String,
    },
    /// The PDI or the description in it is damaged, or contradicts itself or its artifact.
    #[error("kernel {kernel}: its description cannot be used: {source}; rebuild the kernel with this version")]
    Damaged {
        /// Kernel name.
        kernel: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Makes the reference artifact of a normalised node for one generation.
///
/// # Errors
/// [`BuildError::Unsupported`] when the operation does not take the node; the others when it exceeds a file format.
pub fn reference_artifact(op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, BuildError> {
    op.check(node)?;
    let kernel = kernel_name(op, node);
    let instructions = instructions(&kernel, node, arch)?;
    let description = Description { version: VERSION, kernel, arch: arch.name.clone(), node: node.clone() };
    let pdi = reference::wrap(&serde_json::to_vec(&description).map_err(format_error)?).map_err(format_error)?;
    KernelArtifact::new(description.kernel, arch.name.as_str(), arch.dev_gen, pdi, instructions).map_err(format_error)
}

fn format_error(error: impl Error + Send + Sync + 'static) -> BuildError {
    BuildError::Format(Box::new(error))
}

/// Moves every source in and the outputs out, each with one buffer descriptor, and waits for the outputs.
fn instructions(kernel: &str, node: &Node, arch: &Arch) -> Result<Vec<u8>, BuildError> {
    let small = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
    let mut writer = InstructionWriter::new(arch.stream_header(arch.array.columns));
    let burst = arch.shim_burst();
    let columns = arch.array.columns.max(1);
    let inputs = node.inputs().count();
    let mut next_descriptor = vec![0u8; columns];
    let mut outputs = Vec::new();
    for (index, tensor) in node.arguments().enumerate() {
        let output = index >= inputs;
        let (direction, channels) = if output {
            (Direction::StreamToMemory, arch.shim.dma.s2mm)
        } else {
            (Direction::MemoryToStream, arch.shim.dma.mm2s)
        };
        // Sources fill the channels of a column before the next one; further sources queue behind them. So do outputs.
        let lane = if output { index - inputs } else { index };
        let column = lane / channels.max(1) % columns;
        let bytes = tensor.span_bytes();
        let words = u32::try_from(bytes.div_ceil(4));
        let length = words.map_err(|_| BuildError::TooLarge { kernel: kernel.into(), bytes })?;
        let transfer = Transfer {
            column: small(column),
            direction,
            channel: small(lane % channels.max(1)),
            descriptor: next_descriptor[column],
            shape: ShimBd::linear(length, burst),
            argument: u16::try_from(index).unwrap_or(u16::MAX),
            offset: 0,
            repeat: 0,
            token: output,
        };
        next_descriptor[column] += 1;
        writer.transfer(&transfer).map_err(format_error)?;
        if output {
            outputs.push(transfer);
        }
    }
    // Only now: a kernel may finish its outputs in any order.
    for transfer in &outputs {
        writer.wait(transfer);
    }
    writer.finish().map_err(format_error)
}

/// Whether an artifact is a kernel for the array, and no description of one.
pub fn is_code(artifact: &KernelArtifact) -> bool {
    matches!(read_description(artifact), Err(DescriptionError::Compiled { .. }))
}

/// The description in an artifact, checked: its tensors are well formed, it agrees with itself and with the artifact's name,
/// generation and number of arguments.
///
/// # Errors
/// [`DescriptionError::Compiled`] for an artifact without one, [`DescriptionError::Damaged`] for a damaged one.
pub fn read_description(artifact: &KernelArtifact) -> Result<Description, DescriptionError> {
    let kernel = || artifact.name().to_owned();
    let damaged = |source| DescriptionError::Damaged { kernel: kernel(), source };
    let pdi = Pdi::parse(artifact.pdi()).map_err(|error| damaged(error.into()))?;
    let bytes = reference::extract(&pdi.cdo()).map_err(|error| damaged(error.into()))?;
    let bytes = bytes.ok_or_else(|| DescriptionError::Compiled { kernel: kernel() })?;
    let description: Description = serde_json::from_slice(&bytes).map_err(|error| damaged(error.into()))?;
    check(&description, artifact).map_err(damaged)?;
    Ok(description)
}

fn check(description: &Description, artifact: &KernelArtifact) -> Result<(), Box<dyn Error + Send + Sync>> {
    let expect = |what: &str, expected: &str, found: &str| {
        if expected == found { Ok(()) } else { Err(format!("expected {what} {expected}, found {found}")) }
    };
    let node = &description.node;
    expect("version", &VERSION.to_string(), &description.version.to_string())?;
    expect("generation", artifact.arch(), &description.arch)?;
    for (index, tensor) in node.arguments().enumerate() {
        tensor.validate().map_err(|reason| format!("argument {index}: {reason}"))?;
    }
    let count = node.arguments().count();
    expect("arguments", &artifact.argument_count().to_string(), &count.to_string())?;
    let op = table::lookup(&node.op).ok_or_else(|| format!("operation {} is not in the table", node.op))?;
    expect("kernel name", artifact.name(), &description.kernel)?;
    Ok(expect("kernel name", &kernel_name(op, node), &description.kernel)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::testing::arch;
    use crate::node::OpParams;
    use crate::tensor::DataType::{BF16, F32, I32};
    use crate::tensor::Tensor;
    use aie_hal::format::cdo::CdoBuilder;
    use aie_hal::format::instructions::{Instruction, InstructionStream};
    use aie_hal::format::pdi;
    use rstest::rstest;

    pub(super) fn sum(elements: usize) -> Node {
        let tensor = Tensor::contiguous(F32, [elements, 1, 1, 1]);
        Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2])
    }

    pub(super) fn artifact(node: &Node, generation: &str) -> KernelArtifact {
        reference_artifact(table::lookup(&node.op).unwrap(), node, &arch(generation)).unwrap()
    }

    #[rstest]
    #[case("aie2", 0x0603_0100, 0x104, 0x8000_0000)]
    #[case("aie2p", 0x0604_0100, 0x108, 0xC000_0000)]
    fn streams_are_for_their_generation(
        #[case] generation: &str,
        #[case] version: u32,
        #[case] shape: u32,
        #[case] burst: u32,
    ) {
        let artifact = artifact(&sum(576), generation);
        let word =
            |index: usize| u32::from_le_bytes(artifact.instructions()[4 * index..4 * index + 4].try_into().unwrap());
        assert_eq!((word(0), word(1)), (version, shape));
        // Header, then the four words before the first buffer descriptor, then its fifth word.
        assert_eq!((word(8), word(12)), (576, burst));
        assert!(artifact.has_completion_token());
        assert_eq!(artifact.argument_count(), 3);
    }

    #[test]
    fn every_argument_has_a_channel_and_the_output_is_waited_for() {
        let heads = Tensor::contiguous(BF16, [64, 9, 2, 1]);
        let node = Node::new(
            "ROPE",
            OpParams(std::array::from_fn(|i| if i == 1 { 64 } else { 0 })),
            heads,
            vec![
                Some(heads),
                Some(Tensor::contiguous(I32, [2, 1, 1, 1])),
                Some(Tensor::contiguous(F32, [32, 1, 1, 1])),
            ],
        );
        let arch = arch("aie2p");
        let bytes = instructions("rope", &node, &arch).unwrap();
        let stream = InstructionStream::parse(&bytes).unwrap();
        let (mut patches, mut queues, mut waits) = (vec![], vec![], 0);
        for operation in stream.operations() {
            match operation {
                Instruction::AddressPatch { register, argument, offset: 0 } => patches.push((register, argument)),
                Instruction::Write { address, value } => queues.push((address, value)),
                Instruction::Sync { direction: Direction::StreamToMemory, column: 0, channel: 0, .. } => waits += 1,
                _ => {}
            }
        }
        assert_eq!(patches, [(0x1D004, 0), (0x1D024, 1), (0x201_D004, 2), (0x1D044, 3)]);
        assert_eq!(queues, [(0x1D214, 0), (0x1D21C, 1), (0x201_D214, 0), (0x1D204, 0x8000_0002)]);
        assert_eq!(waits, 1);
    }

    #[test]
    fn descriptions_come_back() {
        let node = sum(576);
        let description = read_description(&artifact(&node, "aie2")).unwrap();
        assert_eq!(description.node, node);
        assert_eq!(description.kernel, "add-576f32-576f32-576f32");
    }

    #[test]
    fn different_parameters_make_different_pdis() {
        let mut other = sum(576);
        other.params.0[3] = 1;
        assert_ne!(artifact(&sum(576), "aie2p").digest(), artifact(&other, "aie2p").digest());
    }

    /// The artifact of a sum with a PDI of compiled code.
    pub(super) fn compiled(elements: usize) -> KernelArtifact {
        let mut cdo = CdoBuilder::new();
        cdo.write(0x0023_2000, 1);
        with_pdi(elements, pdi::write(&cdo).unwrap())
    }

    fn with_pdi(elements: usize, pdi: Vec<u8>) -> KernelArtifact {
        let good = artifact(&sum(elements), "aie2p");
        KernelArtifact::new(good.name(), "aie2p", 4, pdi, good.instructions()).unwrap()
    }

    #[test]
    fn compiled_code_is_distinguished() {
        let error = read_description(&compiled(576)).unwrap_err();
        assert!(matches!(error, DescriptionError::Compiled { .. }));
        assert!(error.to_string().contains("holds compiled AIE code"), "{error}");
    }

    #[rstest]
    #[case::not_json(|_: &mut Description| (), "line 1", true)]
    #[case::version(|d: &mut Description| d.version = 7, "expected version 3, found 7", false)]
    #[case::generation(|d: &mut Description| d.arch = "aie2".into(), "expected generation aie2p, found aie2", false)]
    #[case::operation(|d: &mut Description| d.node.op = "FLY".into(), "operation FLY is not in the table", false)]
    #[case::arguments(|d: &mut Description| d.node.sources.push(d.node.sources[0]), "expected arguments 3, found 4", false)]
    #[case::name(|d: &mut Description| d.kernel = "sub".into(), "expected kernel name add-576f32", false)]
    #[case::shape(|d: &mut Description| d.node.output.ne[0] = 5, "found add-576f32", false)]
    #[case::overflow(|d: &mut Description| d.node.output.ne = [usize::MAX; 4], "exceed any memory", false)]
    fn damaged_descriptions_are_rejected(
        #[case] change: fn(&mut Description),
        #[case] expected: &str,
        #[case] cut: bool,
    ) {
        let mut description = read_description(&artifact(&sum(576), "aie2p")).unwrap();
        change(&mut description);
        let mut json = serde_json::to_vec(&description).unwrap();
        if cut {
            json.truncate(json.len() / 2);
        }
        let error = read_description(&with_pdi(576, reference::wrap(&json).unwrap())).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn arguments_beyond_a_descriptor_are_rejected() {
        let mut node = sum(576);
        node.output.ne[0] = 1 << 33;
        let error = instructions("add", &node, &arch("aie2p")).unwrap_err();
        assert!(matches!(error, BuildError::TooLarge { bytes, .. } if bytes == 1 << 35), "{error}");
    }
}
