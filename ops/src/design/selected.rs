//! Operations whose operand is picked by ids that are known only when the graph runs: experts' weights and biases.
//!
//! The instruction stream of a kernel is fixed, so it cannot start the transfers of the rows that ids name. A core does: it reads
//! the ids first, then sends control packets to the shim of its column, which set the offset in a buffer descriptor and put it
//! into the task queue of the channel that feeds the column's cores. So only what was picked leaves memory. The packets take the
//! second output stream of one core in each column, and a buffer in it; the ids arrive on the stream of the other operand.

use super::{CoreMemory, Design, Flow, PRODUCT_STACK_BYTES, all_cores, bytes_of, resources, rowwise};
use crate::node::{Node, Unsupported};
use crate::tensor::DataType;
use aie_hal::Arch;

/// Bytes of the packets that start one transfer: header and words of a buffer descriptor, header and word of a task.
const PACKET_BYTES: usize = 48;
/// Bytes of ids that a core looks at at a time.
const ID_BYTES: usize = 1024;
/// Columns of source 1 that pass with an expert's weights at a time.
const COLUMNS: usize = 32;
/// Extents of a tile of weights that are tried, largest first.
const ROWS: [usize; 4] = [64, 32, 16, 8];
const DEPTHS: [usize; 5] = [2048, 1024, 512, 256, 64];

/// Plans rows as [`rowwise`] does, of which those of source 1 are picked by source 2.
pub fn selected_rows(node: &Node, arch: &Arch) -> Design {
    Design { flow: Flow::Picked, ..rowwise(node.output.rows(), arch) }
}

/// Plans the products of source 0's matrices with the columns of source 1 for which source 2 picks them. Weights arrive in the
/// type they have; a core decodes a tile of them to bf16, or multiplies it as it is when that is a type of the matrix unit. All
/// columns that picked an expert meet its weights together, as many as fit at a time. Rows of weights are spread over all cores.
///
/// # Errors
/// [`Unsupported::Resources`] when the generation has no matrix unit for bf16 or a tile does not fit.
pub fn selected_products(op: &'static str, node: &Node, arch: &Arch) -> Result<Design, Unsupported> {
    let (Some(weights), Some(input), Some(ids)) = (node.source(0), node.source(1), node.source(2)) else {
        return Err(Unsupported::Shape { op, reason: "a product with ids needs sources 0, 1 and 2".into() });
    };
    let Some(unit) = arch.mmul.iter().find(|mmul| mmul.types == "bf16 x bf16") else {
        return Err(resources(op, arch, "no matrix unit for bf16 x bf16".into()));
    };
    let [depth, rows, ..] = weights.ne;
    let columns = ids.elements().clamp(1, COLUMNS).next_multiple_of(if ids.elements() > 4 { unit.n.max(1) } else { 1 });
    // A piece of a row is whole blocks and whole steps of the unit.
    let step = weights.dtype.block_elements().max(unit.k.max(1));
    let whole = depth.next_multiple_of(step);
    let plan = |deepest: usize, m: usize| {
        let k = deepest.next_multiple_of(step).min(whole);
        let mut memory = CoreMemory::new(PRODUCT_STACK_BYTES)
            .with(format!("source 0, {k} x {m}"), bytes_of(weights.dtype, k).saturating_mul(m), 2)
            .with(format!("source 1, {k} x {columns}"), bytes_of(input.dtype, k).saturating_mul(columns), 1)
            .with(format!("output, {m} x {columns}"), bytes_of(node.output.dtype, m).saturating_mul(columns), 1)
            .with("ids", bytes_of(DataType::I32, ids.elements()).min(ID_BYTES), 2)
            .with("control packets", PACKET_BYTES, 2);
        if weights.dtype != DataType::BF16 {
            memory = memory.with("source 0 as bf16", bytes_of(DataType::BF16, k).saturating_mul(m), 1);
        }
        let blocks = rows.div_ceil(m).max(1);
        let cores = blocks.min(arch.array.core_rows);
        (memory, Design::new(Flow::Picked, blocks.div_ceil(cores), cores, arch))
    };
    // Deep tiles save sums, high ones repeated columns; depth first, since with one token there is only one column.
    let candidates = ROWS.into_iter().flat_map(|m| DEPTHS.into_iter().map(move |k| (k, m)));
    let mut fitting = candidates.map(|(k, m)| plan(k, m)).filter(|(memory, _)| memory.fits(arch));
    let busy = |(_, design): &(CoreMemory, Design)| design.cores() == all_cores(arch);
    let (memory, design) = match fitting.next() {
        Some(first) if busy(&first) => first,
        Some(first) => fitting.find(busy).unwrap_or(first),
        None => plan(DEPTHS[4], ROWS[3]),
    };
    memory.check(op, arch)?;
    Ok(design)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{arch, node};
    use super::*;
    use crate::tensor::DataType::{BF16, F32, I32, IQ2_XXS, Q4_K, Q8_0};
    use crate::tensor::Tensor;
    use rstest::rstest;

    fn product(dtype: DataType, [k, m, experts]: [usize; 3], [used, tokens]: [usize; 2]) -> Node {
        let sources = [(dtype, [k, m, experts, 1]), (F32, [k, 1, tokens, 1]), (I32, [used, tokens, 1, 1])];
        let sources = sources.map(|(dtype, ne)| Tensor::contiguous(dtype, ne));
        node(Tensor::contiguous(F32, [m, used, tokens, 1]), &sources)
    }

    #[rstest]
    fn products_fit_both_generations(
        #[values("aie2", "aie2p")] generation: &str,
        #[values(F32, BF16, Q8_0, Q4_K, IQ2_XXS)] dtype: DataType,
        #[values([2048, 768, 128], [4096, 14336, 8], [256, 16, 4])] extents: [usize; 3],
        #[values([8, 1], [2, 512])] ids: [usize; 2],
    ) {
        let arch = arch(generation);
        let design = selected_products("MUL_MAT_ID", &product(dtype, extents, ids), &arch).unwrap();
        if extents[1] >= 768 {
            assert_eq!(design.cores(), all_cores(&arch), "{design:?}");
        }
    }

    #[test]
    fn picked_rows_are_dealt_out_as_others() {
        let a = Tensor::contiguous(F32, [576, 4, 32, 1]);
        let sources = [a, Tensor::contiguous(F32, [576, 64, 1, 1]), Tensor::contiguous(I32, [4, 32, 1, 1])];
        let design = selected_rows(&node(a, &sources), &arch("aie2"));
        assert_eq!((design.flow, design.columns), (Flow::Picked, 4));
    }
}
