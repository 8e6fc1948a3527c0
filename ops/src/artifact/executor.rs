//! Running reference artifacts on the CPU.
//!
//! A simulated device is given this executor and so needs to know no operation. What an artifact computes is read from its
//! description; its kernel checks sizes on every run, because they come from the recorder of the dispatch.

use super::read_description;
use crate::table;
use crate::tensor::Tensor;
use aie_hal::{HostFunction, HostFunctionError, KernelArtifact, KernelExecutor};
use std::sync::Arc;

/// Executes reference artifacts with the reference kernels of the operation table. Thread-safe.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReferenceExecutor;

impl KernelExecutor for ReferenceExecutor {
    fn prepare(&self, artifact: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError> {
        let rejected = |reason: String| HostFunctionError::NotExecutable(reason);
        let description = read_description(artifact).map_err(|error| rejected(error.to_string()))?;
        let node = &description.node;
        let op =
            table::lookup(&node.op).ok_or_else(|| rejected(format!("operation {} is not in the table", node.op)))?;
        let kernel = op.reference(node).map_err(|error| rejected(error.to_string()))?;
        let bytes = node.arguments().map(Tensor::span_bytes).collect();
        Ok(Arc::new(Named { name: description.kernel, bytes, kernel }))
    }
}

/// A reference kernel with the name of its artifact.
#[derive(Debug)]
struct Named {
    name: String,
    bytes: Vec<usize>,
    kernel: Arc<dyn HostFunction>,
}

impl HostFunction for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn input_count(&self) -> usize {
        self.kernel.input_count()
    }

    fn output_count(&self) -> usize {
        self.kernel.output_count()
    }

    fn argument_bytes(&self, index: usize) -> Option<usize> {
        self.bytes.get(index).copied()
    }

    fn run(&self, inputs: &[&[u8]], output: &mut [u8]) -> Result<(), HostFunctionError> {
        self.run_all(inputs, &mut [output])
    }

    fn run_all(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), HostFunctionError> {
        self.kernel.run_all(inputs, outputs).map_err(|error| match error {
            HostFunctionError::Arguments { reason, .. } => {
                HostFunctionError::Arguments { kernel: self.name.clone(), reason }
            }
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference_artifact;
    use super::super::tests::{artifact, compiled};
    use super::*;
    use crate::family::testing::arch;
    use crate::node::{Node, OpParams};
    use crate::normalise::{F16Policy, normalise};
    use crate::operation::Placement;
    use crate::tensor::DataType;
    use rstest::rstest;

    fn sum() -> KernelArtifact {
        artifact(&super::super::tests::sum(4), "aie2p")
    }

    fn bytes(values: [f32; 4]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn an_artifact_computes_and_leaves_the_rest_alone() {
        let kernel = ReferenceExecutor.prepare(&sum()).unwrap();
        assert_eq!((kernel.name(), kernel.input_count()), ("add-4f32-4f32-4f32", 2));
        let mut longer = bytes([1.0, 2.0, 3.0, 4.0]);
        longer.extend([9; 5]);
        let mut output = vec![7; 20];
        kernel.run(&[&longer, &bytes([0.5, 0.25, 0.0, -4.0])], &mut output).unwrap();
        assert_eq!(output[..16], bytes([1.5, 2.25, 3.0, 0.0]));
        assert_eq!(output[16..], [7; 4]);
    }

    #[rstest]
    #[case(&[16], 16, "expected [2, 1] inputs and outputs, given [1, 1]")]
    #[case(&[16, 15], 16, "source 1 needs 16 bytes, given 15")]
    #[case(&[16, 16], 12, "the result needs 16 bytes, given 12")]
    fn wrong_arguments_are_rejected(#[case] inputs: &[usize], #[case] output: usize, #[case] expected: &str) {
        let kernel = ReferenceExecutor.prepare(&sum()).unwrap();
        let inputs: Vec<_> = inputs.iter().map(|size| vec![0; *size]).collect();
        let inputs: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
        let error = kernel.run(&inputs, &mut vec![0; output]).unwrap_err().to_string();
        assert_eq!(error, format!("arguments of `add-4f32-4f32-4f32`: {expected}"));
    }

    #[test]
    fn compiled_code_is_not_executable() {
        let error = ReferenceExecutor.prepare(&compiled(4)).unwrap_err().to_string();
        assert!(error.starts_with("cannot execute: kernel add-4f32-4f32-4f32 holds compiled AIE code"), "{error}");
    }

    /// For every operation of the array, on every generation: the artifact of the normalised node, executed, gives exactly what
    /// the reference kernel of the original node gives.
    #[rstest]
    fn every_array_operation_runs_as_an_artifact(#[values("aie2", "aie2p")] generation: &str) {
        let arch = arch(generation);
        let mut compared = std::collections::BTreeSet::new();
        for op in table::all() {
            let types = [DataType::F32, DataType::I8, DataType::I16, DataType::I32];
            for mut node in types.iter().flat_map(|dtype| op.examples(*dtype)) {
                // A factor or an epsilon where an operation has one; XIELU has four behind its number.
                let half = 0.5f32.to_bits().cast_signed();
                node.params.0[0] = half;
                if op.name() == "XIELU" {
                    node.params.0[1..5].fill(half);
                }
                if op.check(&node).is_err() || op.placement(&node) != Placement::Array {
                    continue;
                }
                let normalised = normalise(op, &node, F16Policy::F32).unwrap();
                if normalised.needs_conversion() {
                    continue;
                }
                let kernel =
                    ReferenceExecutor.prepare(&reference_artifact(op, &normalised.node, &arch).unwrap()).unwrap();
                let inputs: Vec<_> = node.inputs().enumerate().map(|(seed, tensor)| data(seed, tensor)).collect();
                let inputs: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
                let memory = || node.outputs().map(|output| vec![0; output.span_bytes()]).collect::<Vec<Vec<u8>>>();
                let (mut expected, mut found) = (memory(), memory());
                let run = |kernel: &dyn HostFunction, outputs: &mut [Vec<u8>]| {
                    let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
                    kernel.run_all(&inputs, &mut outputs).unwrap();
                };
                run(&*op.reference(&node).unwrap(), &mut expected);
                run(&*kernel, &mut found);
                assert!(found == expected, "{} differs", kernel.name());
                let zero = found.iter().any(|output| output.iter().all(|byte| *byte == 0));
                assert!(!zero, "{} gives zeros only", kernel.name());
                compared.insert((op.name(), node.inputs().next().map(|source| source.dtype)));
            }
        }
        let floats = ["ADD", "SCALE", "SILU", "SWIGLU", "RMS_NORM", "SOFT_MAX", "ROPE", "MUL_MAT"];
        let bytes = ["ADD", "SUB", "MUL", "ABS", "NEG", "MUL_MAT"];
        let is_compared = |name, dtype| compared.contains(&(name, Some(dtype)));
        assert!(floats.iter().all(|name| is_compared(*name, DataType::F32)), "{compared:?}");
        assert!(bytes.iter().all(|name| is_compared(*name, DataType::I8)), "{compared:?}");
    }

    /// The kernel gets the source as it lies: five numbers, of which the rows share some.
    #[test]
    fn elements_that_share_memory_are_read_where_they_are() {
        let source = Tensor { dtype: DataType::F32, ne: [2, 2, 2, 1], nb: [4, 4, 20, 40] };
        let output = Tensor::contiguous(DataType::F32, [1, 2, 2, 1]);
        let op = table::lookup("SUM_ROWS").unwrap();
        let node = Node::new("SUM_ROWS", OpParams::default(), output, vec![Some(source)]);
        let normalised = normalise(op, &node, F16Policy::F32).unwrap();
        assert!(!normalised.needs_conversion());
        let artifact = reference_artifact(op, &normalised.node, &arch("aie2p")).unwrap();
        assert_eq!(artifact.name(), "sum_rows-1x2x2f32-2x2x2f32n");
        let input: Vec<u8> = (0_u8..8).flat_map(|index| f32::from(1_u8 << index).to_le_bytes()).collect();
        let mut found = vec![0; output.span_bytes()];
        ReferenceExecutor.prepare(&artifact).unwrap().run(&[&input], &mut found).unwrap();
        let expected: Vec<u8> = [3.0_f32, 6.0, 96.0, 192.0].into_iter().flat_map(f32::to_le_bytes).collect();
        assert_eq!(found, expected);
    }

    /// Strides that are not whole words are no obstacle: shims move the span, and the kernel picks its elements.
    #[test]
    fn halves_that_share_memory_are_read_where_they_are() {
        let source = Tensor { dtype: DataType::BF16, ne: [2, 2, 2, 1], nb: [2, 2, 10, 20] };
        let output = Tensor::contiguous(DataType::BF16, source.ne);
        let node = Node::new("SQR", OpParams::default(), output, vec![Some(source)]);
        let artifact = reference_artifact(table::lookup("SQR").unwrap(), &node, &arch("aie2p")).unwrap();
        let bytes = |values: [f32; 8]| values.map(|value| half::bf16::from_f32(value).to_le_bytes()).concat();
        let mut found = vec![0; output.span_bytes()];
        let input = bytes([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]);
        ReferenceExecutor.prepare(&artifact).unwrap().run(&[&input], &mut found).unwrap();
        assert_eq!(found, bytes([1.0, 4.0, 4.0, 16.0, 1024.0, 4096.0, 4096.0, 16384.0]));
    }

    /// Values that differ from element to element and from seed to seed: fractions for f32, small integers for the others, which
    /// of i32 are places.
    fn data(seed: usize, tensor: &Tensor) -> Vec<u8> {
        (0..tensor.elements())
            .flat_map(|index| {
                let small = i16::try_from((index * 37 + seed * 11) % 101).unwrap() - 50;
                match tensor.dtype {
                    DataType::F32 => (f32::from(small) / 16.0 + 0.01).to_le_bytes().to_vec(),
                    DataType::I8 => small.to_le_bytes()[..1].to_vec(),
                    DataType::I16 => small.to_le_bytes().to_vec(),
                    _ => i32::from(small.abs() % 4).to_le_bytes().to_vec(),
                }
            })
            .collect()
    }
}
