//! Whether a kernel touches the bytes that its operation's tensors have.
//!
//! Kernels are found by name, and a name can be right although the kernel is not: another backend has other types behind
//! the same text, a file was copied to the wrong place. What a kernel touches of each argument follows from its files
//! ([`argument_extents`](aie_hal::format::extent::argument_extents)), so that it can be compared with the tensors before
//! the kernel computes garbage. The rules, for each argument:
//!
//! - An **output** is written from its first byte to its last, and nothing behind it. It may be read too.
//! - An **input** is read from its first byte to its last where the operation needs all of it
//!   ([`Operation::needs_all`]), else any part of it. Nothing behind it is read, and nothing of it is written.
//! - DMAs move whole words: a tensor whose bytes are no multiple of 4 ends with its last word. Kernels of the C++ backend
//!   round their element counts up in the same way, and no further, so there is no other padding.
//! - As many bytes are moved as the tensor's elements have, or more: some kernels read an input several times.
//!
//! Every part of a tensor being touched is not checked beyond that: the range and the sum are known, not each byte.

use crate::node::Node;
use crate::operation::Operation;
use crate::tensor::Tensor;
use aie_hal::KernelArtifact;
use aie_hal::buffer::Access;
use aie_hal::format::extent::{ArgumentExtent, Extent, ExtentError};
use thiserror::Error;

/// The result for a kernel that is not rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// It touches what it has to.
    Fits,
    /// What it touches cannot be determined from its files.
    Unknown(ExtentError),
}

/// A kernel touches other bytes of an argument than its tensor has. The message has both numbers.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("{0}: it is a kernel for other types or shapes")]
pub struct Misfit(String);

/// An argument, and what the node says of it.
struct Operand {
    /// Index of the argument: sources that are present in order, then outputs.
    argument: usize,
    /// Which tensor it is, with its type and extents.
    name: String,
    output: bool,
    /// Bytes of the tensor.
    bytes: u64,
    /// The fewest bytes to move, for a tensor that is needed whole.
    least: Option<u64>,
}

/// Compares what `artifact` touches with the tensors of the normalised `node`.
///
/// # Errors
/// [`Misfit`] for the first argument that breaks a rule.
pub fn check(op: &dyn Operation, node: &Node, artifact: &KernelArtifact) -> Result<Fit, Misfit> {
    let extents = match artifact.argument_extents() {
        Ok(extents) => extents,
        Err(cause) => return Ok(Fit::Unknown(cause)),
    };
    let sources = node.sources.iter().enumerate().filter_map(|(slot, tensor)| Some((Some(slot), tensor.as_ref()?)));
    let tensors = sources.chain(node.outputs().map(|tensor| (None, tensor)));
    let operands = tensors.enumerate().map(|(argument, (slot, tensor))| {
        let Tensor { dtype, ne, .. } = tensor;
        let name = slot.map_or_else(|| "output".to_owned(), |slot| format!("source {slot}"));
        let bytes = tensor.span_bytes() as u64;
        // Strides can leave gaps, or put elements on top of each other.
        let least = bytes.min((dtype.row_bytes(ne[0]) * tensor.rows()) as u64);
        let least = op.needs_all(node, slot).then_some(least);
        Operand { argument, name: format!("{name}, {dtype} {ne:?}"), output: slot.is_none(), bytes, least }
    });
    let none = |argument| Operand { argument, name: "no tensor".into(), output: true, bytes: 0, least: None };
    let count = node.arguments().count();
    let untouched = ArgumentExtent::default();
    operands
        .chain((count..extents.len()).map(none))
        .try_for_each(|operand| operand.check(extents.get(operand.argument).unwrap_or(&untouched)))?;
    Ok(Fit::Fits)
}

impl Operand {
    fn check(&self, ArgumentExtent { read, written }: &ArgumentExtent) -> Result<(), Misfit> {
        let end = self.bytes.next_multiple_of(4);
        for (access, touched) in [(Access::Read, read), (Access::Write, written)] {
            if touched.as_ref().is_some_and(|extent| extent.range.end > end) {
                return Err(self.misfit(access, touched, ""));
            }
        }
        if !self.output && written.is_some() {
            return Err(self.misfit(Access::Write, written, " and is an input"));
        }
        let (access, touched, rule) = match self.output {
            true => (Access::Write, written, " and has to be written whole"),
            false => (Access::Read, read, " and is needed whole"),
        };
        let covers = |Extent { range, moved }: &Extent, least| {
            range.start == 0 && range.end >= self.bytes && moved.bytes >= least
        };
        match self.least {
            Some(least) if self.bytes > 0 && !touched.as_ref().is_some_and(|extent| covers(extent, least)) => {
                Err(self.misfit(access, touched, rule))
            }
            _ => Ok(()),
        }
    }

    fn misfit(&self, access: Access, touched: &Option<Extent>, rule: &str) -> Misfit {
        let verb = if access == Access::Read { "reads" } else { "writes" };
        let touched = match touched {
            None => "nothing".to_owned(),
            Some(Extent { range, moved }) => {
                let length = range.end - range.start;
                if range.start > 0 || moved.bytes < length {
                    format!("{} bytes between {} and {}", length.min(moved.bytes), range.start, range.end)
                } else {
                    format!("{length} bytes")
                }
            }
        };
        let Self { argument, name, bytes, .. } = self;
        Misfit(format!("it {verb} {touched} of argument {argument} ({name}), which has {bytes}{rule}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::reference_artifact;
    use crate::family::testing::arch;
    use crate::node::OpParams;
    use crate::normalise::{F16Policy, normalise};
    use crate::operation::Placement;
    use crate::table;
    use crate::tensor::DataType::{self, BF16, F32, I32};
    use aie_hal::format::bd::ShimBd;
    use aie_hal::format::cdo::CdoBuilder;
    use aie_hal::format::dma_channel::Direction;
    use aie_hal::format::instructions::{Header, InstructionWriter, Transfer};
    use aie_hal::format::pdi;
    use rstest::rstest;

    const READ: Direction = Direction::MemoryToStream;
    const WRITE: Direction = Direction::StreamToMemory;
    const NEEDED: &str = " and is needed whole";
    const WRITTEN: &str = " and has to be written whole";

    /// A kernel that moves `words` words of an argument from a byte on, each as given.
    fn kernel(transfers: &[(u16, Direction, u64, u32)]) -> KernelArtifact {
        let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
        for &(argument, direction, offset, words) in transfers {
            let transfer = Transfer {
                column: 0,
                direction,
                channel: 0,
                descriptor: 0,
                shape: ShimBd::linear(words, 3),
                argument,
                offset,
                repeat: 0,
                token: direction == WRITE,
            };
            writer.transfer(&transfer).unwrap();
        }
        let mut cdo = CdoBuilder::new();
        cdo.nop(&[]);
        KernelArtifact::new("k", "aie2p", 4, pdi::write(&cdo).unwrap(), writer.finish().unwrap()).unwrap()
    }

    fn tensor(dtype: DataType, columns: usize, rows: usize) -> Tensor {
        Tensor::contiguous(dtype, [columns, rows, 1, 1])
    }

    fn sum(dtype: DataType, elements: usize) -> Node {
        let tensor = tensor(dtype, elements, 1);
        Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2])
    }

    fn found(node: &Node, artifact: &KernelArtifact) -> Result<Fit, Misfit> {
        check(table::lookup(&node.op).unwrap(), node, artifact)
    }

    /// What every simulated device executes takes the same way as a compiled kernel.
    #[rstest]
    fn reference_artifacts_fit(
        #[values("aie2", "aie2p")] generation: &str,
        #[values(F16Policy::F32, F16Policy::Bf16)] policy: F16Policy,
    ) {
        let mut operations = std::collections::BTreeSet::new();
        for op in table::all() {
            for node in DataType::ALL.iter().flat_map(|dtype| op.examples(*dtype)) {
                if op.check(&node).is_err() || op.placement(&node) != Placement::Array {
                    continue;
                }
                let Ok(normalised) = normalise(op, &node, policy) else { continue };
                let Ok(artifact) = reference_artifact(op, &normalised.node, &arch(generation)) else { continue };
                assert_eq!(check(op, &normalised.node, &artifact), Ok(Fit::Fits), "{normalised:?}");
                operations.insert(op.name());
            }
        }
        assert!(operations.len() > 85, "{}: {operations:?}", operations.len());
    }

    #[rstest]
    #[case::exact(&[(0, READ, 0, 64), (1, READ, 0, 64), (2, WRITE, 0, 64)])]
    #[case::in_parts(&[(0, READ, 128, 32), (0, READ, 0, 32), (1, READ, 0, 64), (2, WRITE, 0, 60), (2, WRITE, 240, 4)])]
    #[case::several_times(&[(0, READ, 0, 64), (0, READ, 0, 64), (1, READ, 0, 64), (1, READ, 8, 2), (2, WRITE, 0, 64)])]
    #[case::output_read_back(&[(0, READ, 0, 64), (1, READ, 0, 64), (2, WRITE, 0, 64), (2, READ, 64, 16)])]
    fn what_covers_the_tensors_fits(#[case] transfers: &[(u16, Direction, u64, u32)]) {
        assert_eq!(found(&sum(F32, 64), &kernel(transfers)), Ok(Fit::Fits));
    }

    /// What the kernel does with which argument, and the rule that this breaks.
    #[rstest]
    #[case::half_an_input(&[(0, READ, 0, 64), (1, READ, 0, 32), (2, WRITE, 0, 64)], "reads 128 bytes", 1, NEEDED)]
    #[case::input_from_the_middle(
        &[(0, READ, 4, 63), (1, READ, 0, 64), (2, WRITE, 0, 64)], "reads 252 bytes between 4 and 256", 0, NEEDED
    )]
    #[case::input_with_a_gap(
        &[(0, READ, 0, 16), (0, READ, 192, 16), (1, READ, 0, 64), (2, WRITE, 0, 64)],
        "reads 128 bytes between 0 and 256", 0, NEEDED
    )]
    #[case::input_unread(&[(0, READ, 0, 64), (2, WRITE, 0, 64)], "reads nothing", 1, NEEDED)]
    #[case::beyond_an_input(&[(0, READ, 0, 65), (1, READ, 0, 64), (2, WRITE, 0, 64)], "reads 260 bytes", 0, "")]
    #[case::input_written(
        &[(0, READ, 0, 64), (1, READ, 0, 64), (1, WRITE, 0, 64), (2, WRITE, 0, 64)], "writes 256 bytes", 1, " and is an input"
    )]
    #[case::half_an_output(&[(0, READ, 0, 64), (1, READ, 0, 64), (2, WRITE, 0, 32)], "writes 128 bytes", 2, WRITTEN)]
    #[case::beyond_an_output(&[(0, READ, 0, 64), (1, READ, 0, 64), (2, WRITE, 0, 128)], "writes 512 bytes", 2, "")]
    #[case::no_output(&[(0, READ, 0, 64), (1, READ, 0, 64), (2, READ, 0, 64)], "writes nothing", 2, WRITTEN)]
    #[case::other_argument(
        &[(0, READ, 0, 64), (1, READ, 0, 64), (2, WRITE, 0, 64), (3, WRITE, 0, 1)], "writes 4 bytes", 3, ""
    )]
    fn what_does_not_is_reported_with_both_numbers(
        #[case] transfers: &[(u16, Direction, u64, u32)],
        #[case] access: &str,
        #[case] argument: usize,
        #[case] rule: &str,
    ) {
        let tensor =
            ["source 0, f32 [64, 1, 1, 1]", "source 1, f32 [64, 1, 1, 1]", "output, f32 [64, 1, 1, 1]", "no tensor"];
        let (tensor, bytes) = (tensor[argument], if argument < 3 { 256 } else { 0 });
        let expected = format!("it {access} of argument {argument} ({tensor}), which has {bytes}{rule}");
        let message = found(&sum(F32, 64), &kernel(transfers)).unwrap_err();
        assert_eq!(message.to_string(), format!("{expected}: it is a kernel for other types or shapes"));
    }

    /// Three elements of 16 bits are two words to a DMA, and the C++ backend rounds up to four elements.
    #[test]
    fn the_last_word_may_be_only_partly_the_tensors() {
        let whole = |words| [(0, READ, 0, words), (1, READ, 0, words), (2, WRITE, 0, words)];
        assert_eq!(found(&sum(BF16, 3), &kernel(&whole(2))), Ok(Fit::Fits));
        assert!(found(&sum(BF16, 3), &kernel(&whole(1))).is_err());
        assert!(found(&sum(BF16, 3), &kernel(&whole(3))).is_err());
    }

    /// A source that is larger than it has to be, or of which rows are chosen, need not be read whole. All that is left is
    /// that nothing behind it is read.
    #[test]
    fn some_sources_are_not_needed_whole() {
        let (x, mask) = (tensor(F32, 16, 4), tensor(F32, 16, 8));
        let soft_max = |mask| Node::new("SOFT_MAX", OpParams::default(), x, vec![Some(x), Some(mask)]);
        let rows = |words| kernel(&[(0, READ, 0, 64), (1, READ, 0, words), (2, WRITE, 0, 64)]);
        assert_eq!(found(&soft_max(mask), &rows(64)), Ok(Fit::Fits));
        assert!(found(&soft_max(mask), &rows(129)).is_err());
        assert_eq!(found(&soft_max(x), &rows(64)), Ok(Fit::Fits));
        assert!(found(&soft_max(x), &rows(63)).is_err());
        let ids = tensor(I32, 4, 1);
        let get_rows = Node::new("GET_ROWS", OpParams::default(), x, vec![Some(tensor(F32, 16, 100)), Some(ids)]);
        let kernel = kernel(&[(0, READ, 0, 64), (1, READ, 0, 4), (2, WRITE, 0, 64)]);
        assert_eq!(found(&get_rows, &kernel), Ok(Fit::Fits));
    }

    #[test]
    fn holes_are_no_arguments_and_operations_without_sources_fit() {
        let x = tensor(F32, 16, 4);
        let sinks = Node::new("SOFT_MAX", OpParams::default(), x, vec![Some(x), None, Some(tensor(F32, 1, 1))]);
        let fits = kernel(&[(0, READ, 0, 64), (1, READ, 0, 1), (2, WRITE, 0, 64)]);
        assert_eq!(found(&sinks, &fits), Ok(Fit::Fits));
        let message = found(&sinks, &kernel(&[(0, READ, 0, 64), (1, READ, 0, 2), (2, WRITE, 0, 64)])).unwrap_err();
        assert!(message.0.contains("argument 1 (source 2, f32 [1, 1, 1, 1])"), "{message}");
        let arange = Node::new("ARANGE", OpParams::default(), x, vec![]);
        assert_eq!(found(&arange, &kernel(&[(0, WRITE, 0, 64)])), Ok(Fit::Fits));
    }

    #[test]
    fn what_cannot_be_determined_is_not_rejected() {
        let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
        writer.custom(0xC8, &[]);
        let kernel = kernel(&[]);
        let kernel = KernelArtifact::new("k", "aie2p", 4, kernel.pdi(), writer.finish().unwrap()).unwrap();
        let Ok(Fit::Unknown(reason)) = found(&sum(F32, 64), &kernel) else { panic!("it is unknown") };
        assert_eq!(reason.to_string(), "operation 0xc8 may change what is moved");
    }
}
