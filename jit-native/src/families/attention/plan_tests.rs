use super::*;
use aie_isa::InstructionSet;
use aie_ops::{DataType, Node, OpParams, Tensor};

fn problem(elements: usize, tokens: usize, heads: [usize; 2], keys: usize, dtype: DataType) -> Problem {
    let tensor = |dtype, ne| Some(Tensor::contiguous(dtype, ne));
    let cache = tensor(dtype, [elements, keys, heads[1], 2]);
    let mut params = OpParams::default();
    params.0[0] = 0.125f32.to_bits().cast_signed();
    let sources = vec![tensor(DataType::F32, [elements, tokens, heads[0], 2]), cache, cache];
    let output = Tensor::contiguous(DataType::F32, [elements, heads[0], tokens, 2]);
    Problem::of(&Node::new("FLASH_ATTN_EXT", params, output, sources), InstructionSet::Aie2).unwrap()
}

/// Tiles lie within the keys, and what is not left out of them is each key once.
#[test]
fn each_key_counts_once() {
    for keys in (16..400).chain([1000, 1024, 4097, 20_000]) {
        let problem = problem(64, 1, [4, 1], keys, DataType::F16);
        let tiling = problem.tiling(4).unwrap();
        let mut seen = vec![0; keys];
        for tile in 0..tiling.tiles * CORES {
            let first = tiling.first_key(&problem, tile);
            let skipped = (tile * tiling.keys - first).min(tiling.keys);
            for key in &mut seen[first + skipped..first + tiling.keys] {
                *key += 1;
            }
            assert!(tile >= tiling.regular_tiles(&problem) || skipped == 0, "{keys} keys, tile {tile}");
        }
        assert!(seen.iter().all(|count| *count == 1), "{keys} keys, {tiling:?}");
    }
}

/// Each token and head of each batch is computed, at most four heads with one head of keys at a time.
#[test]
fn each_head_is_computed() {
    for (heads, kv_heads) in [(9, 3), (32, 8), (7, 1), (4, 4), (14, 2)] {
        for tokens in [1, 2, 5, 9, 32] {
            let problem = problem(64, tokens, [heads, kv_heads], 256, DataType::F16);
            let tiling = problem.tiling(4).unwrap();
            let mut seen = vec![false; 2 * heads * tokens];
            let dealt = problem.items(tiling, 4);
            assert_eq!(dealt.iter().map(Vec::len).sum::<usize>(), problem.item_count(tiling));
            let [most, least] = [dealt.iter().map(Vec::len).max(), dealt.iter().map(Vec::len).min()];
            let group = heads / kv_heads;
            let is_whole = group.is_multiple_of(problem.together());
            let quads = group.div_ceil(problem.together());
            assert!(most.unwrap() - least.unwrap() <= if is_whole { 1 } else { quads * tokens.div_ceil(tiling.units) });
            let mut columns = std::collections::HashMap::new();
            for (column, item) in
                dealt.iter().enumerate().flat_map(|(column, items)| items.iter().map(move |item| (column, item)))
            {
                // Heads that are computed twice are written by one channel.
                assert!(is_whole || *columns.entry((item.batch, item.head / group)).or_insert(column) == column);
                assert_eq!(item.head / group, (item.head + problem.together() - 1) / group, "one head of keys");
                for token in item.token..item.token + tiling.units {
                    for head in item.head..item.head + problem.together() {
                        seen[(item.batch * tokens + token) * heads + head] = true;
                    }
                }
            }
            assert!(seen.iter().all(|seen| *seen), "{heads} heads, {tokens} tokens, {tiling:?}");
        }
    }
}

/// What is chosen fits, for all types and the heads of known models.
#[test]
fn tilings_fit() {
    for elements in [16, 64, 80, 96, 128, 192, 256] {
        // 256 elements of f32 take more than a core has.
        let types: &[DataType] = if elements < 256 {
            &[DataType::F16, DataType::BF16, DataType::F32]
        } else {
            &[DataType::F16, DataType::BF16]
        };
        for dtype in types.iter().copied() {
            for tokens in [1, 4, 16] {
                let problem = problem(elements, tokens, [8, 2], 1024, dtype);
                let tiling = problem.tiling(4).unwrap_or_else(|error| panic!("{error}"));
                let sizes = Sizes::new(&problem, tiling.keys, tiling.units);
                assert!(sizes.core_bytes(tiling.units) <= ARENA_BYTES);
                assert!(sizes.mem_tile_bytes(tiling.units) <= MEM_TILE_BYTES);
                let all = [sizes.keys, sizes.values, sizes.queries, sizes.converted, sizes.state];
                assert!(all.iter().all(|bytes| bytes.is_multiple_of(64)), "{sizes:?}");
            }
        }
    }
}
