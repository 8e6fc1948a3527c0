//! The form in which a node's tensors reach the array.
//!
//! The order of the steps is the C++ backend's, because kernel names are built from the result: element types are substituted,
//! layouts become trivial, and where the operation allows it all shapes are flattened. Views need no step of their own: a
//! view differs from its base by strides and an offset only. What has changed is listed argument by argument, so that the
//! caller can place a conversion before or after the kernel.
//!
//! Two kinds of sources keep their layout: those that the operation reads with the strides they have
//! ([`Operation::keeps_strides`]), and those whose elements share memory but that ggml counts as contiguously allocated (extents
//! 2, 2, 2 with strides 4, 4, 20 in f32). The latter is what the C++ backend does, so that it is part of the names; where shapes
//! are flattened such a source is packed first, because its elements do not follow each other.

use crate::node::Node;
use crate::operation::{Flatten, Operation, Unsupported};
use crate::tensor::{DataType, Tensor};

/// What becomes of f16, which the array does not compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum F16Policy {
    /// f16 becomes f32, so that no accuracy is lost; operands of matrix products become bf16.
    #[default]
    F32,
    /// f16 becomes bf16, as in the C++ backend, but where the operation decides itself ([`Operation::array_type`]):
    ///
    /// - FILL, REPEAT, CONCAT, CPY, CONT, DUP, GET_ROWS, SET_ROWS and FLASH_ATTN_EXT keep f16: they move it, or their cores
    ///   read it;
    /// - MUL_MAT_ID keeps the f16 of its weights (source 0), whose chosen rows its cores read; its other sources follow this rule;
    /// - SILU_BACK, OUT_PROD, POOL_1D, POOL_2D and IM2COL compute f16 in f32 (IM2COL's source 0, of which only the extents
    ///   count, stays as it is).
    ///
    /// Operands of MUL_MAT and of the operations fused from it become bf16 under either policy.
    Bf16,
}

/// A text names no [`F16Policy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a type that f16 can be computed in; possible: f32 (the default), bf16")]
pub struct F16PolicyError(String);

impl F16Policy {
    /// The policy that `GGML_HSA_F16` asks for.
    ///
    /// # Errors
    /// [`F16PolicyError`] lists the possible values.
    pub fn parse(text: &str) -> Result<Self, F16PolicyError> {
        match text.to_ascii_lowercase().as_str() {
            "" | "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16),
            _ => Err(F16PolicyError(text.to_owned())),
        }
    }

    /// The type on the array for `dtype`, before the operation has its say.
    fn array_type(self, dtype: DataType) -> DataType {
        match (dtype, self) {
            (DataType::F16, Self::F32) => DataType::F32,
            (DataType::F16, Self::Bf16) => DataType::BF16,
            _ => dtype,
        }
    }
}

/// Which tensor of a node an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The source in this slot.
    Source(usize),
    /// The result.
    Output,
}

/// One argument of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelArgument {
    /// Which tensor of the node.
    pub role: Role,
    /// The tensor as the node has it.
    pub original: Tensor,
    /// The tensor as the kernel has it. As many elements as `original`, in the same order.
    pub array: Tensor,
    /// Whether the bytes of the two differ. When not, the kernel can use the original memory.
    pub conversion: bool,
}

impl KernelArgument {
    /// The tensors between which a conversion copies: `original` and `array`. Where both have elements that share memory, these
    /// are the two pieces of memory from end to end, so that nothing is written twice.
    pub fn converted(&self) -> (Tensor, Tensor) {
        if self.array.is_contiguous() || self.array.nb != self.original.nb {
            return (self.original, self.array);
        }
        let whole = |tensor: &Tensor| Tensor::contiguous(tensor.dtype, [tensor.elements(), 1, 1, 1]);
        (whole(&self.original), whole(&self.array))
    }
}

/// A node in the form its kernel computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Normalised {
    /// The node with the tensors of the array.
    pub node: Node,
    /// Arguments in the order of the kernel: present sources by slot, then the output.
    pub arguments: Vec<KernelArgument>,
}

impl Normalised {
    /// Whether any argument needs a conversion.
    pub fn needs_conversion(&self) -> bool {
        self.arguments.iter().any(|argument| argument.conversion)
    }
}

/// Brings `node`, which has passed [`Operation::check`], into the form of its kernel.
///
/// # Errors
/// [`Unsupported::Shape`] when a tensor is empty or not well formed; there is nothing to compute then.
pub fn normalise(op: &dyn Operation, node: &Node, policy: F16Policy) -> Result<Normalised, Unsupported> {
    let mut arguments = Vec::with_capacity(node.sources.len() + 1);
    for (slot, source) in node.sources.iter().enumerate() {
        if let Some(source) = source {
            arguments.push(argument(op, node, Role::Source(slot), source, policy)?);
        }
    }
    arguments.push(argument(op, node, Role::Output, &node.output, policy)?);
    if let Some(tensor) = node.further_outputs.iter().find(|t| t.dtype != DataType::F32 || !t.is_contiguous()) {
        let reason = format!(
            "a further output has type {} and strides {:?}; it must be f32 without gaps",
            tensor.dtype, tensor.nb
        );
        return Err(Unsupported::Shape { op: op.name(), reason });
    }

    let same_shape = arguments.iter().all(|argument| argument.array.same_shape(&node.output));
    let flatten = match op.flatten() {
        Flatten::Never => false,
        Flatten::Always => true,
        Flatten::SameShape => same_shape,
    };
    // The C++ backend asks in addition that all tensors are contiguously allocated; after the layout step they are.
    if flatten {
        for argument in &mut arguments {
            let KernelArgument { original, array, .. } = argument;
            *array = Tensor::contiguous(array.dtype, [array.elements(), 1, 1, 1]);
            argument.conversion = array.dtype != original.dtype || !original.is_contiguous();
        }
    }

    let mut array = node.clone();
    for argument in &arguments {
        match argument.role {
            Role::Source(slot) => array.sources[slot] = Some(argument.array),
            Role::Output => array.output = argument.array,
        }
    }
    while matches!(array.sources.last(), Some(None)) {
        array.sources.pop();
    }
    Ok(Normalised { node: array, arguments })
}

fn argument(
    op: &dyn Operation,
    node: &Node,
    role: Role,
    original: &Tensor,
    policy: F16Policy,
) -> Result<KernelArgument, Unsupported> {
    let (slot, operand) = match role {
        Role::Source(slot) => (Some(slot), format!("source {slot}")),
        Role::Output => (None, "the output".into()),
    };
    let shape = |reason| Unsupported::Shape { op: op.name(), reason };
    original.validate().map_err(|reason| shape(format!("{operand} is not well formed: {reason}")))?;
    if original.elements() == 0 {
        return Err(shape(format!("{operand} has no elements, so there is nothing to compute: skip the node")));
    }
    let dtype = op.array_type(node, slot, policy.array_type(original.dtype));
    if !original.ne[0].is_multiple_of(dtype.block_elements()) {
        let (row, block) = (original.ne[0], dtype.block_elements());
        return Err(shape(format!(
            "{operand} would become {dtype}, but its rows of {row} are not whole blocks of {block}"
        )));
    }
    if dtype == original.dtype && slot.is_some_and(|slot| op.keeps_strides(node, slot)) {
        return Ok(KernelArgument { role, original: *original, array: *original, conversion: false });
    }
    if slot.is_some() && dtype.block_bytes() == original.dtype.block_bytes() && original.shares_memory() {
        let array = Tensor { dtype, ..*original };
        return Ok(KernelArgument { role, original: *original, array, conversion: dtype != original.dtype });
    }
    let array = Tensor::contiguous(dtype, original.ne);
    let conversion = dtype != original.dtype || !original.is_contiguous();
    Ok(KernelArgument { role, original: *original, array, conversion })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::OpParams;
    use crate::table::lookup;
    use crate::tensor::DataType::{BF16, F16, F32, I32, Q4_1};
    use rstest::rstest;

    fn normal(
        op: &str,
        policy: F16Policy,
        output: Tensor,
        sources: &[Option<Tensor>],
    ) -> Result<Normalised, Unsupported> {
        normalise(lookup(op).unwrap(), &Node::new(op, OpParams::default(), output, sources.to_vec()), policy)
    }

    fn flags(normalised: &Normalised) -> Vec<(Role, DataType, bool)> {
        normalised.arguments.iter().map(|a| (a.role, a.array.dtype, a.conversion)).collect()
    }

    #[rstest]
    #[case(F16Policy::F32, F32)]
    #[case(F16Policy::Bf16, BF16)]
    fn half_precision_follows_the_policy(#[case] policy: F16Policy, #[case] dtype: DataType) {
        let half = Tensor::contiguous(F16, [8, 4, 1, 1]);
        let normalised = normal("SILU", policy, half, &[Some(half)]).unwrap();
        assert_eq!(flags(&normalised), [(Role::Source(0), dtype, true), (Role::Output, dtype, true)]);
        let flat = Tensor::contiguous(dtype, [32, 1, 1, 1]);
        assert_eq!((normalised.node.output, normalised.node.source(0)), (flat, Some(&flat)));
        assert!(normalised.needs_conversion());
    }

    #[rstest]
    #[case(F16, BF16)]
    #[case(Q4_1, Q4_1)]
    fn weights_of_products_become_bf16_unless_they_come_in_blocks(#[case] weights: DataType, #[case] array: DataType) {
        let weights = Tensor::contiguous(weights, [256, 16, 1, 1]);
        let input = Tensor::contiguous(F32, [256, 4, 1, 1]);
        let product = Tensor::contiguous(F32, [16, 4, 1, 1]);
        let normalised = normal("MUL_MAT", F16Policy::F32, product, &[Some(weights), Some(input)]).unwrap();
        assert_eq!(normalised.arguments[0].array, Tensor::contiguous(array, weights.ne));
        assert_eq!(normalised.arguments[0].conversion, array == BF16);
        assert_eq!(normalised.arguments[2].array, product);
        assert!(!normalised.arguments[2].conversion);
    }

    #[test]
    fn permuted_and_strided_tensors_become_trivial() {
        let output = Tensor { dtype: F32, ne: [4, 3, 2, 1], nb: [4, 32, 96, 192] };
        let permuted = Tensor { dtype: F32, ne: [4, 3, 2, 1], nb: [4, 32, 16, 96] };
        let plain = Tensor::contiguous(F32, [4, 1, 1, 1]);
        let normalised = normal("ADD", F16Policy::F32, output, &[Some(permuted), Some(plain)]).unwrap();
        let trivial = Tensor::contiguous(F32, [4, 3, 2, 1]);
        assert_eq!(normalised.node.sources, [Some(trivial), Some(plain)]);
        assert_eq!(normalised.node.output, trivial);
        let conversions: Vec<_> = normalised.arguments.iter().map(|a| a.conversion).collect();
        assert_eq!(conversions, [true, false, true]);
        assert_eq!(normalised.arguments[0].original, permuted);
    }

    /// Extents 2, 2, 2 whose rows share an element.
    fn overlapping(dtype: DataType) -> Tensor {
        let size = dtype.block_bytes();
        Tensor { dtype, ne: [2, 2, 2, 1], nb: [size, size, 5 * size, 10 * size] }
    }

    #[test]
    fn a_source_that_shares_memory_keeps_its_layout() {
        let (source, output) = (overlapping(F32), Tensor::contiguous(F32, [2, 2, 2, 1]));
        assert!(source.is_contiguously_allocated() && !source.is_contiguous());
        let sums = Tensor::contiguous(F32, [1, 2, 2, 1]);
        let normalised = normal("SUM_ROWS", F16Policy::F32, sums, &[Some(source)]).unwrap();
        assert_eq!((normalised.node.source(0), normalised.needs_conversion()), (Some(&source), false));
        // Flattened, its elements have to follow each other.
        let normalised = normal("SILU", F16Policy::F32, output, &[Some(source)]).unwrap();
        assert_eq!(normalised.node.source(0), Some(&Tensor::contiguous(F32, [8, 1, 1, 1])));
        assert_eq!(flags(&normalised), [(Role::Source(0), F32, true), (Role::Output, F32, false)]);
        assert_eq!(normalised.arguments[0].converted(), (source, Tensor::contiguous(F32, [8, 1, 1, 1])));
    }

    #[test]
    fn a_conversion_between_shared_layouts_is_one_from_end_to_end() {
        let sums = Tensor::contiguous(F16, [1, 2, 2, 1]);
        let argument = |policy| normal("SUM_ROWS", policy, sums, &[Some(overlapping(F16))]).unwrap().arguments[0];
        let found = argument(F16Policy::Bf16);
        assert_eq!((found.array, found.conversion), (overlapping(BF16), true));
        let whole = |dtype| Tensor::contiguous(dtype, [8, 1, 1, 1]);
        assert_eq!(found.converted(), (whole(F16), whole(BF16)));
        // f32 has another size: the layout cannot stay, and the name is not the C++ backend's anyway.
        let expected = (overlapping(F16), Tensor::contiguous(F32, [2, 2, 2, 1]));
        assert_eq!(argument(F16Policy::F32).converted(), expected);
    }

    #[test]
    fn strides_of_single_elements_do_not_matter() {
        let odd = Tensor { dtype: F32, ne: [4, 1, 2, 1], nb: [4, 99, 16, 7] };
        let plain = Tensor::contiguous(F32, [4, 1, 2, 1]);
        assert!(!normal("SILU", F16Policy::F32, plain, &[Some(odd)]).unwrap().needs_conversion());
    }

    #[test]
    fn broadcasts_keep_their_shape_and_equal_shapes_do_not() {
        let plane = Tensor::contiguous(F32, [4, 3, 1, 1]);
        let row = Tensor::contiguous(F32, [4, 1, 1, 1]);
        let broadcast = normal("MUL", F16Policy::F32, plane, &[Some(plane), Some(row)]).unwrap();
        assert_eq!(broadcast.node.output, plane);
        let same = normal("MUL", F16Policy::F32, plane, &[Some(plane); 2]).unwrap();
        assert!(same.node.arguments().all(|t| t.ne == [12, 1, 1, 1]));
    }

    #[test]
    fn holes_stay_and_trailing_ones_go() {
        let x = Tensor::contiguous(F32, [64, 2, 3, 1]);
        let positions = Tensor::contiguous(I32, [3, 1, 1, 1]);
        let normalised = normal("ROPE", F16Policy::F32, x, &[Some(x), Some(positions), None, None]).unwrap();
        assert_eq!(normalised.node.sources, [Some(x), Some(positions)]);
        let sinks = Tensor::contiguous(F32, [2, 1, 1, 1]);
        let normalised = normal("SOFT_MAX", F16Policy::F32, x, &[Some(x), None, Some(sinks)]).unwrap();
        assert_eq!(normalised.node.sources.len(), 3);
        let roles: Vec<_> = normalised.arguments.iter().map(|a| a.role).collect();
        assert_eq!(roles, [Role::Source(0), Role::Source(2), Role::Output]);
    }

    #[rstest]
    #[case([0, 1, 1, 1], "SILU: source 0 has no elements, so there is nothing to compute: skip the node")]
    #[case([usize::MAX; 4], "SILU: source 0 is not well formed")]
    fn empty_and_malformed_tensors_are_rejected(#[case] ne: [usize; 4], #[case] expected: &str) {
        let tensor = Tensor { dtype: F32, ne, nb: [4; 4] };
        let message = normal("SILU", F16Policy::F32, tensor, &[Some(tensor)]).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }

    #[rstest]
    #[case("bf16", Ok(F16Policy::Bf16))]
    #[case("BF16", Ok(F16Policy::Bf16))]
    #[case("", Ok(F16Policy::F32))]
    #[case("f32", Ok(F16Policy::F32))]
    fn policies_are_read(#[case] text: &str, #[case] expected: Result<F16Policy, F16PolicyError>) {
        assert_eq!(F16Policy::parse(text), expected);
    }

    #[test]
    fn unknown_policies_are_explained() {
        assert!(F16Policy::parse("f8").unwrap_err().to_string().contains("possible: f32 (the default), bf16"));
    }
}
