use super::*;
use crate::array::testing::aie2;
use aie_isa::InstructionSet;
use aie_ops::{DataType, Node, OpParams, Tensor};

fn problem(elements: usize, tokens: usize, heads: [usize; 2], keys: usize, dtype: DataType) -> Problem {
    Problem::of(&node(elements, tokens, heads, keys, dtype), InstructionSet::Aie2).unwrap()
}

fn node(elements: usize, tokens: usize, [heads, kv_heads]: [usize; 2], keys: usize, dtype: DataType) -> Node {
    let tensor = |dtype, ne| Some(Tensor::contiguous(dtype, ne));
    let cache = tensor(dtype, [elements, keys, kv_heads, 1]);
    let mask = keys.is_multiple_of(2).then(|| Tensor::contiguous(DataType::F16, [keys, tokens, 1, 1]));
    let mut params = OpParams::default();
    params.0[0] = 0.125f32.to_bits().cast_signed();
    let sources = vec![tensor(DataType::F32, [elements, tokens, heads, 1]), cache, cache, mask];
    let output = Tensor::contiguous(DataType::F32, [elements, heads, tokens, 1]);
    Node::new("FLASH_ATTN_EXT", params, output, sources)
}

/// Tiles lie within their piece, and what is not left out of them is each key once.
#[test]
fn each_key_counts_once() {
    for keys in (16..400).chain([1000, 1024, 4098, 20_000, 32_768, 100_000]) {
        let problem = problem(64, 1, [4, 1], keys, DataType::F16);
        let cut = Cut::cheapest(&problem, 1, &aie2().cost).unwrap();
        let (mut seen, mut next) = (vec![0; keys], 0);
        for piece in cut.pieces(&problem) {
            assert_eq!(piece.tiles.start, next);
            next = piece.tiles.end;
            for tile in piece.tiles.clone() {
                let first = cut.first_key(keys, tile);
                assert!(
                    piece.first <= first && first + cut.keys <= piece.first + piece.keys,
                    "{keys} keys, tile {tile}"
                );
                let skipped = tile * cut.keys - first;
                seen[first + skipped..first + cut.keys].iter_mut().for_each(|key| *key += 1);
            }
        }
        assert!(seen.iter().all(|count| *count == 1), "{keys} keys, {cut:?}");
    }
}

/// Each head once, at most four with one head of keys at a time, as evenly as it goes.
#[test]
fn each_head_is_computed() {
    for (heads, kv_heads) in [(9, 3), (32, 8), (7, 1), (4, 4), (14, 2)] {
        let problem = problem(64, 1, [heads, kv_heads], 256, DataType::F16);
        for columns in 1..=4 {
            let mut seen = vec![false; heads];
            let dealt = dealt(&problem, columns);
            let [most, least] = [dealt.iter().map(Vec::len).max(), dealt.iter().map(Vec::len).min()];
            let (group, together) = (heads / kv_heads, problem.together());
            // Heads that are computed twice are written by one channel.
            let unit = if group.is_multiple_of(together) { 1 } else { group.div_ceil(together) };
            assert!(dealt.len() == columns && most.unwrap() - least.unwrap() <= unit);
            assert!(dealt.iter().all(|heads| heads.len().is_multiple_of(unit)));
            assert!(
                dealt
                    .iter()
                    .flat_map(|heads| heads.chunks(unit))
                    .all(|quads| quads[0] / group == quads[unit - 1] / group)
            );
            for first in dealt.into_iter().flatten() {
                assert_eq!(first / group, (first + together - 1) / group, "one head of keys");
                seen[first..first + together].fill(true);
            }
            assert!(seen.iter().all(|seen| *seen), "{heads} heads, {columns} columns");
        }
    }
}

/// What is chosen fits, for all types and the heads of known models.
#[test]
fn cuts_fit() {
    for elements in [16, 64, 80, 96, 128, 192, 256] {
        // 256 elements of f32 take more than a core has.
        let types: &[DataType] = if elements < 256 {
            &[DataType::F16, DataType::BF16, DataType::F32]
        } else {
            &[DataType::F16, DataType::BF16]
        };
        for dtype in types.iter().copied() {
            for (tokens, keys) in [(1, 1024), (4, 1024), (8, 32_768)] {
                let problem = problem(elements, tokens, [8, 2], keys, dtype);
                let cut = Cut::cheapest(&problem, 2, &aie2().cost).unwrap_or_else(|error| panic!("{error}"));
                for piece in cut.pieces(&problem) {
                    assert!(cut.items * piece.tiles.len() <= MOST_RUNS);
                    assert!(cut.bytes(&problem) + cut.mask_bytes(piece.keys) <= ARENA_BYTES, "{cut:?}");
                }
            }
        }
    }
}

/// Elements of values that no product of lanes takes.
#[test]
fn values_are_multiples_of_what_a_unit_takes() {
    let node = |elements| node(elements, 1, [4, 1], 64, DataType::F16);
    let aie2p = |elements| Problem::of(&node(elements), InstructionSet::Aie2p);
    assert_eq!(aie2p(80).unwrap_err(), "heads of 80 elements of values; possible: multiples of 32");
    assert!(aie2p(96).is_ok() && Problem::of(&node(80), InstructionSet::Aie2).is_ok());
}

#[test]
fn what_others_do_is_left_to_them() {
    assert_eq!(taken(problem(64, 9, [4, 1], 64, DataType::F16)).unwrap_err(), "9 tokens; possible: up to 8");
    let sinks = Problem { sinks: Some(3), ..problem(64, 1, [4, 1], 64, DataType::F16) };
    assert_eq!(taken(sinks).unwrap_err(), "sinks; possible: none");
}
