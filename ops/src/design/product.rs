//! Matrix products on the cores' matrix units.

use super::{CoreMemory, Design, Flow, PRODUCT_STACK_BYTES, all_cores, bytes_of, resources};
use crate::node::{Node, Unsupported};
use crate::tensor::{DataType, Tensor};
use aie_hal::Arch;
use aie_hal::arch::Mmul;

/// Extents of a tile that are tried, largest first.
const TILES: [usize; 5] = [128, 64, 32, 16, 8];
/// Up to so many columns of the second operand, weights are streamed through the cores once and no tile of them is used again.
const VECTORS: usize = 4;
/// Words of a vector register: of i32 the vector unit multiplies elements, not matrices.
const WORD_LANES: usize = 16;
/// Bytes of the operand that stays in a core in a product with few columns.
const RESIDENT_BYTES: usize = 16 * 1024;

/// Plans a product of ggml's form: source 0 has K x M elements (its rows are the rows of weights), source 1 has K x N, the
/// output M x N, and further dimensions are computed one after the other.
///
/// Tiles are multiples of the generation's native shape for the type; extents that are not multiples are padded with zeros
/// by the mem tiles. f32 is computed as bf16 products, as the array has no f32 matrix unit; i32 by lanes of the vector unit. With
/// few columns the second operand stays in the cores and the weights stream past all of them; otherwise rows of weights are spread
/// over the cores of a column and columns of the second operand over the columns of the array.
///
/// # Errors
/// [`Unsupported::Resources`] when the generation has no matrix unit for the types or a tile does not fit.
pub fn matmul(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    matmul_with(op, node, arch, Operands { right: 1, weights: 1, results: 1 })
}

/// What a product shares its tiles with, when it is a part of a fused operation.
#[derive(Debug, Clone, Copy)]
pub struct Operands {
    /// Slot of the second operand.
    pub right: usize,
    /// Matrices of weights, in the slots from 0 on: tiles of them take turns on one stream.
    pub weights: usize,
    /// Tiles of the output's size in a core: sums, and what is added to them, which comes behind the second operand.
    pub results: usize,
}

/// As [`matmul`], for a product that is a part of a fused operation.
///
/// # Errors
/// As [`matmul`].
pub fn matmul_with(op: &'static str, node: &Node, arch: &Arch, operands: Operands) -> Result<Design, Unsupported> {
    let (Some(weights), Some(input)) = (node.source(0), node.source(operands.right)) else {
        return Err(Unsupported::Shape { op, reason: format!("a product needs sources 0 and {}", operands.right) });
    };
    let native = native_shape(weights.dtype, input.dtype, arch).ok_or_else(|| {
        let available: Vec<_> = arch.mmul.iter().map(|mmul| mmul.types.as_str()).collect();
        let (left, right, available) = (weights.dtype, input.dtype, available.join(", "));
        resources(op, arch, format!("no matrix unit for {left} x {right}; there is {available}"))
    })?;
    let product = Product { weights, input, output: &node.output, native, arch, operands };
    let (memory, design) = if node.output.ne[1] <= VECTORS { product.streamed() } else { product.tiled() };
    memory.check(op, arch)?;
    Ok(design)
}

/// Extents that tiles are multiples of.
#[derive(Debug, Clone, Copy)]
struct Shape {
    m: usize,
    k: usize,
    n: usize,
}

impl From<&Mmul> for Shape {
    fn from(&Mmul { m, k, n, .. }: &Mmul) -> Self {
        Self { m, k, n }
    }
}

/// The native shape for two types. The array computes all floating-point products as bf16.
fn native_shape(left: DataType, right: DataType, arch: &Arch) -> Option<Shape> {
    if (left, right) == (DataType::I32, DataType::I32) {
        return Some(Shape { m: 1, k: WORD_LANES, n: 1 });
    }
    let unit = |dtype: DataType| match dtype {
        DataType::F32 | DataType::F16 | DataType::BF16 => "bf16",
        // The cores decode blocks to bf16 before they multiply.
        blocks if blocks.is_quantised() => "bf16",
        other => other.name(),
    };
    let types = format!("{} x {}", unit(left), unit(right));
    arch.mmul.iter().find(|mmul| mmul.types == types).map(Shape::from)
}

struct Product<'a> {
    weights: &'a Tensor,
    input: &'a Tensor,
    output: &'a Tensor,
    native: Shape,
    arch: &'a Arch,
    operands: Operands,
}

impl Product<'_> {
    /// Few columns: weights pass every core once.
    fn streamed(&self) -> (CoreMemory, Design) {
        let (rows, columns, depth) = (self.output.ne[0], self.output.ne[1], self.weights.ne[0]);
        let native = self.native.k.max(1);
        let longest = RESIDENT_BYTES / bytes_of(self.input.dtype, columns).max(1) / native * native;
        let k = depth.next_multiple_of(native).min(longest.max(native));
        let mut m = TILES[0];
        loop {
            let memory = self.memory([m, columns, k], [1, 2]);
            let blocks = rows.div_ceil(m);
            if m == 1 || (memory.fits(self.arch) && (m <= TILES[4] || blocks >= all_cores(self.arch))) {
                return (memory, self.design(blocks.div_ceil(self.arch.array.core_rows), blocks));
            }
            m /= 2;
        }
    }

    /// Many columns: tiles of both operands are used several times.
    fn tiled(&self) -> (CoreMemory, Design) {
        let (rows, columns, depth) = (self.output.ne[0], self.output.ne[1], self.weights.ne[0]);
        let tile = |extent: usize, native: usize, largest: usize| {
            let native = native.max(1);
            extent.next_multiple_of(native).min(largest.next_multiple_of(native))
        };
        let plan = |(largest, deepest): (usize, usize)| {
            let (m, n) = (tile(rows, self.native.m, largest), tile(columns, self.native.n, largest));
            // Sums stay in the core over all of K, so a second buffer for them would gain little.
            let memory = self.memory([m, n, tile(depth, self.native.k, deepest)], [2, 1]);
            (memory, self.design(columns.div_ceil(n), rows.div_ceil(m)))
        };
        // Large tiles of the output save the most traffic; how deep they are matters less.
        let candidates = TILES.into_iter().flat_map(|extent| [(extent, extent), (extent, extent / 2)]);
        let fitting = candidates.map(plan).find(|(memory, _)| memory.fits(self.arch));
        fitting.unwrap_or_else(|| plan((TILES[4], TILES[4])))
    }

    /// Tiles of M x K weights, K x N of the second operand, and M x N results, the latter two with the given depths.
    fn memory(&self, [m, n, k]: [usize; 3], [right, results]: [usize; 2]) -> CoreMemory {
        let bytes = |tensor: &Tensor, elements, count| bytes_of(tensor.dtype, elements).saturating_mul(count);
        CoreMemory::new(PRODUCT_STACK_BYTES)
            .with(format!("source 0, {k} x {m}"), bytes(self.weights, k * m, self.operands.weights), 2)
            .with(format!("source 1, {k} x {n}"), bytes(self.input, k * n, 1), right)
            .with(format!("output, {m} x {n}"), bytes(self.output, m * n, self.operands.results), results)
    }

    /// Spreads `wide` units over columns and `deep` over the cores of a column, which share the second operand.
    fn design(&self, wide: usize, deep: usize) -> Design {
        Design::new(Flow::Product, wide, deep.clamp(1, self.arch.array.core_rows), self.arch)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::arch;
    use super::*;
    use crate::tensor::DataType::{BF16, F32, I8, I32, I64};
    use rstest::rstest;

    fn node(types: [DataType; 3], [m, n, k]: [usize; 3]) -> Node {
        let [output, a, b] = [(types[2], m, n), (types[0], k, m), (types[1], k, n)]
            .map(|(dtype, row, rows)| Tensor::contiguous(dtype, [row, rows, 1, 1]));
        super::super::tests::node(output, &[a, b])
    }

    /// Extents are M, N and K; expected are columns and cores in each.
    #[rstest]
    #[case::prefill("aie2p", BF16, [1536, 512, 576], [8, 4])]
    #[case::prefill_narrow("aie2p", BF16, [1536, 32, 576], [1, 4])]
    #[case::large("aie2", BF16, [4096, 4096, 4096], [4, 4])]
    #[case::single_precision("aie2p", F32, [64, 64, 64], [1, 1])]
    #[case::decode("aie2p", BF16, [49152, 1, 576], [8, 4])]
    #[case::decode_small("aie2p", BF16, [192, 1, 576], [6, 4])]
    #[case::decode_deep("aie2", BF16, [4096, 1, 14336], [4, 4])]
    #[case::odd("aie2p", BF16, [33, 5, 7], [1, 1])]
    fn products_fit_the_array(
        #[case] generation: &str,
        #[case] weights: DataType,
        #[case] extents: [usize; 3],
        #[case] expected: [usize; 2],
    ) {
        let design = matmul("MUL_MAT", &node([weights, F32, F32], extents), &arch(generation)).unwrap();
        assert_eq!([design.columns, design.cores_per_column], expected, "{design:#?}");
    }

    #[test]
    fn integers_have_their_own_unit() {
        assert_eq!(matmul("MUL_MAT", &node([I8, I8, I32], [64; 3]), &arch("aie2p")).unwrap().cores(), 1);
        assert_eq!(matmul("MUL_MAT", &node([I32, I32, I32], [64, 2, 70]), &arch("aie2")).unwrap().cores(), 8);
        let message = matmul("MUL_MAT", &node([I64, I64, I64], [8; 3]), &arch("aie2p")).unwrap_err().to_string();
        assert!(message.contains("no matrix unit for i64 x i64; there is i8 x i8"), "{message}");
    }
}
