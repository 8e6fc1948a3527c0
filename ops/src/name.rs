//! Names of kernels.
//!
//! The grammar is that of the C++ ggml-hsa backend, so that kernels compiled for one serve the other:
//!
//! ```text
//! name   := op "-" tensor ( "-" source )* [ "-" hash ]
//! source := "null" | tensor
//! tensor := ne0 ("x" ne1 ("x" ne2 ("x" ne3))) type [ "n" nb0 ("x" nb1 ("x" nb2 ("x" nb3))) ]
//! ```
//!
//! The output comes first (fused operations may have several), then the sources by slot. Extents are innermost first, as many as the tensor has dimensions; `n`
//! marks a tensor that is not contiguous. Where an operation reads sources with the strides they have
//! ([`Operation::keeps_strides`], unknown to the C++ backend, which packs such tensors), the strides in bytes follow the mark.
//! The hash is there when a parameter word is not zero and the operation is not unary in the C++ backend's sense
//! ([`Operation::params_in_name`]).
//!
//! With [`F16Policy::Bf16`](crate::normalise::F16Policy::Bf16) the name of a node is the C++ backend's, bit for bit, for every
//! operation that backend has a design for, all types and layouts. It is not, because what reaches the array is another tensor:
//!
//! - with the default policy, where f16 becomes f32 (products apart);
//! - where f16 stays or becomes f32 under either policy: FILL, REPEAT, CONCAT, FLASH_ATTN_EXT, MUL_MAT_ID, SILU_BACK, OUT_PROD,
//!   POOL_1D, POOL_2D, IM2COL, and copies, GET_ROWS and SET_ROWS;
//! - where sources keep strides, of which names of the C++ backend say nothing (see `keeps_strides`);
//! - for fused operations, which the C++ backend does not know.

use crate::node::{Node, OpParams};
use crate::operation::Operation;
use crate::tensor::Tensor;
use std::fmt::Write as _;

/// The name of the kernel that computes a normalised node.
pub fn kernel_name(op: &dyn Operation, node: &Node) -> String {
    let mut name = op.name().to_ascii_lowercase();
    push_tensor(&mut name, Some(&node.output), false);
    for further in &node.further_outputs {
        push_tensor(&mut name, Some(further), false);
    }
    let slots = node.sources.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    for (slot, source) in node.sources[..slots].iter().enumerate() {
        push_tensor(&mut name, source.as_ref(), op.keeps_strides(node, slot));
    }
    if op.params_in_name() && node.params.0.iter().any(|word| *word != 0) {
        // Writing to a string cannot fail.
        let _ = write!(name, "-{:x}", params_hash(&node.params));
    }
    name
}

fn push_tensor(name: &mut String, tensor: Option<&Tensor>, strides: bool) {
    name.push('-');
    let Some(tensor) = tensor else {
        name.push_str("null");
        return;
    };
    for (index, extent) in tensor.ne[..tensor.dimensions()].iter().enumerate() {
        let separator = if index == 0 { "" } else { "x" };
        let _ = write!(name, "{separator}{extent}");
    }
    name.push_str(tensor.dtype.name());
    if !tensor.is_contiguous() {
        name.push('n');
        for (index, stride) in tensor.nb[..tensor.dimensions()].iter().enumerate().filter(|_| strides) {
            let separator = if index == 0 { "" } else { "x" };
            let _ = write!(name, "{separator}{stride}");
        }
    }
}

/// The hash of the 64 bytes of parameters: what libstdc++'s `std::hash<std::string_view>` gives on a 64-bit machine, which is
/// a variant of MurmurHash64A with a fixed seed.
pub fn params_hash(params: &OpParams) -> u64 {
    const SEED: u64 = 0xc70f_6907;
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |value: u64| value ^ (value >> 47);
    let bytes = params.to_bytes();
    let length = bytes.len() as u64;
    let hash = bytes.as_chunks::<8>().0.iter().fold(SEED ^ length.wrapping_mul(MULTIPLIER), |hash, chunk| {
        let word = mix(u64::from_le_bytes(*chunk).wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
        (hash ^ word).wrapping_mul(MULTIPLIER)
    });
    mix(mix(hash).wrapping_mul(MULTIPLIER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normalise::{F16Policy, normalise};
    use crate::table::lookup;
    use crate::tensor::DataType::{self, BF16, F16, F32, I32};
    use rstest::rstest;

    const BF16_POLICY: Option<F16Policy> = Some(F16Policy::Bf16);

    /// The name of a node as it is, or of what a policy makes of it.
    fn name(op: &str, params: &[i32], policy: Option<F16Policy>, output: Tensor, sources: &[Option<Tensor>]) -> String {
        let mut words = [0; 16];
        words[..params.len()].copy_from_slice(params);
        let mut node = Node::new(op, OpParams(words), output, sources.to_vec());
        let op = lookup(op).unwrap();
        if let Some(policy) = policy {
            node = normalise(op, &node, policy).unwrap().node;
        }
        kernel_name(op, &node)
    }

    /// Both values were computed by g++ with libstdc++ on x86-64.
    #[test]
    fn hash_is_that_of_libstdcxx() {
        let mut words = [0; 16];
        words[0] = 1.5f32.to_bits().cast_signed();
        assert_eq!(format!("{:x}", params_hash(&OpParams(words))), "925a34a8500216b0");
        let counting = std::array::from_fn(|i| {
            let first = u8::try_from(4 * i).unwrap();
            i32::from_le_bytes([first, first + 1, first + 2, first + 3])
        });
        assert_eq!(format!("{:x}", params_hash(&OpParams(counting))), "dc69e5d9facc641");
    }

    /// The C++ backend's own names; its f16 policy applies.
    #[rstest]
    #[case::flattened("ADD", F32, &[[32, 32, 1, 1]; 3], "add-1024f32-1024f32-1024f32")]
    #[case::broadcast("ADD", F32, &[[10, 5, 4, 3], [10, 5, 4, 3], [10, 1, 1, 1]], "add-10x5x4x3f32-10x5x4x3f32-10f32")]
    #[case::unary_half("RELU", F16, &[[64, 64, 1, 1]; 2], "relu-4096bf16-4096bf16")]
    #[case::one_element("ADD", F32, &[[1; 4]; 3], "add-1f32-1f32-1f32")]
    #[case::leading_ones("RELU", F32, &[[1, 1, 3, 1]; 2], "relu-3f32-3f32")]
    fn names_of_the_cpp_backend(
        #[case] op: &str,
        #[case] dtype: DataType,
        #[case] tensors: &[[usize; 4]],
        #[case] expected: &str,
    ) {
        let tensors: Vec<_> = tensors.iter().map(|ne| Some(Tensor::contiguous(dtype, *ne))).collect();
        assert_eq!(name(op, &[], BF16_POLICY, tensors[0].unwrap(), &tensors[1..]), expected);
    }

    /// The C++ backend packs what is permuted or has gaps, and leaves what counts as contiguously allocated.
    #[rstest]
    #[case::shared(F32, [4, 4, 20, 40], "sum_rows-1x2x2f32-2x2x2f32n")]
    #[case::shared_halves(F16, [2, 2, 10, 20], "sum_rows-1x2x2bf16-2x2x2bf16n")]
    #[case::gaps(F32, [4, 16, 32, 64], "sum_rows-1x2x2f32-2x2x2f32")]
    #[case::permuted(F32, [8, 4, 16, 32], "sum_rows-1x2x2f32-2x2x2f32")]
    fn layouts_in_names_of_the_cpp_backend(#[case] dtype: DataType, #[case] nb: [usize; 4], #[case] expected: &str) {
        let (output, source) = (Tensor::contiguous(dtype, [1, 2, 2, 1]), Tensor { dtype, ne: [2, 2, 2, 1], nb });
        assert_eq!(name("SUM_ROWS", &[], BF16_POLICY, output, &[Some(source)]), expected);
    }

    #[rstest]
    fn a_product_names_its_output_first(#[values(F16Policy::Bf16, F16Policy::F32)] policy: F16Policy) {
        let [half, output] = [F16, F32].map(|dtype| Tensor::contiguous(dtype, [64, 64, 1, 1]));
        let name = name("MUL_MAT", &[], Some(policy), output, &[Some(half); 2]);
        assert_eq!(name, "mul_mat-64x64f32-64x64bf16-64x64bf16");
    }

    #[rstest]
    #[case("SCALE", 1.5f32.to_bits().cast_signed(), [256, 1, 1, 1], "scale-256f32-256f32-925a34a8500216b0")]
    #[case("SILU", 10, [256, 1, 1, 1], "silu-256f32-256f32")]
    #[case("SOFT_MAX", 1.5f32.to_bits().cast_signed(), [32, 32, 1, 1], "soft_max-32x32f32-32x32f32-925a34a8500216b0")]
    fn parameters_are_hashed_unless_the_operation_is_unary(
        #[case] op: &str,
        #[case] word: i32,
        #[case] ne: [usize; 4],
        #[case] expected: &str,
    ) {
        let tensor = Tensor::contiguous(F32, ne);
        assert_eq!(name(op, &[word], None, tensor, &[Some(tensor)]), expected);
    }

    #[test]
    fn holes_and_gaps_are_marked() {
        let heads = Tensor::contiguous(BF16, [64, 8, 4, 1]);
        let gaps = Tensor { nb: [2, 256, 2048, 8192], ..heads };
        let sources = [Some(gaps), None, Some(Tensor::contiguous(I32, [4, 1, 1, 1])), None];
        assert_eq!(name("ROPE", &[], None, heads, &sources), "rope-64x8x4bf16-64x8x4bf16n-null-4i32");
    }
}
