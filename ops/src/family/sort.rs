//! ARGSORT and TOP_K: the order of the elements of a row.
//!
//! An element and its index make one 64-bit key whose order is the order requested, so that sorting compares integers and
//! equal elements keep their order. Long rows are sorted digit by digit in a few passes; for the largest `k` of a row a
//! single pass keeps the candidates, and almost all elements are skipped after a comparison with the worst of them.
//!
//! -0 equals 0. NaN has no place in ggml's order; here it comes last either way.

use super::prelude::*;

pub static OPERATIONS: &[&dyn Operation] = &[&ArgSort, &TopK];

const ARGSORT: &str = "ARGSORT";
const TOP_K: &str = "TOP_K";

/// Rows of at least so many elements are sorted by digits.
const LONG_ROW: usize = 2048;

/// Bits of a digit: three make up the 32 bits of a value.
const DIGIT_BITS: u32 = 11;

struct ArgSort;

struct TopK;

fn check_types(op: &'static str, a: &Tensor, out: &Tensor) -> Result<(), Unsupported> {
    typed(op, "source 0", a, DataType::F32)?;
    typed(op, "the result", out, DataType::I32)?;
    require(op, i32::try_from(a.ne[0]).is_ok(), || format!("rows of {} elements have no i32 indices", a.ne[0]))?;
    dense_rows(op, out)
}

/// A source of `dtype` with rows of 512 and a result with rows of `count`.
fn example(op: &'static str, dtype: DataType, count: usize) -> Vec<Node> {
    let tensor = |dtype, count| Tensor::contiguous(dtype, [count, 8, 2, 1]);
    vec![Node::new(op, OpParams::default(), tensor(DataType::I32, count), vec![Some(tensor(dtype, 512))])]
}

impl Operation for ArgSort {
    fn name(&self) -> &'static str {
        ARGSORT
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let [a] = sources(ARGSORT, node)?;
        check_types(ARGSORT, a, &node.output)?;
        same_shape(ARGSORT, "source 0", a, &node.output)?;
        match node.params.int(0) {
            0 | 1 => Ok(()),
            other => shape(ARGSORT, format!("order {other}; possible: 0 (ascending), 1 (descending)")),
        }
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        example(ARGSORT, dtype, 512)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let (out, descending) = (node.output, node.params.int(0) == 1);
        // Comparisons per element.
        let depth = out.ne[0].max(2).ilog2() as usize;
        Ok(map_row_bytes(node, out, out.elements() * depth, move |x, target| {
            let mut keys: Vec<u64> = x.iter().enumerate().map(|(i, x)| key(*x, i, descending)).collect();
            if keys.len() < LONG_ROW {
                keys.sort_unstable();
            } else {
                sort_by_digits(&mut keys);
            }
            write_indices(&keys, target);
        }))
    }
}

impl Operation for TopK {
    fn name(&self) -> &'static str {
        TOP_K
    }

    fn check(&self, node: &Node) -> Result<(), Unsupported> {
        let ([a], out) = (sources(TOP_K, node)?, &node.output);
        check_types(TOP_K, a, out)?;
        require(TOP_K, out.ne[0] <= a.ne[0] && out.ne[1..] == a.ne[1..], || {
            format!("the result has extents {:?}; possible: {:?} with at most {} in a row", out.ne, a.ne, a.ne[0])
        })
    }

    fn examples(&self, dtype: DataType) -> Vec<Node> {
        example(TOP_K, dtype, 8)
    }

    fn compute(&self, node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        let [KernelInput { tensor, .. }] = arguments(node);
        let out = node.output;
        Ok(map_row_bytes(
            node,
            out,
            tensor.elements(),
            #[inline(always)]
            move |x, target| write_indices(&largest(x, out.ne[0]), target),
        ))
    }
}

/// The value of `x` in the upper half, such that smaller keys come first, and the index in the lower.
#[inline(always)]
fn key(x: f32, index: usize, descending: bool) -> u64 {
    // Adding zero makes zeros equal.
    let bits = (x + 0.0).to_bits();
    let sign = (bits.cast_signed() >> 31).cast_unsigned();
    let ascending = bits ^ (sign | 0x8000_0000);
    let ordered = if descending { !ascending } else { ascending };
    let ordered = if x.is_nan() { u32::MAX } else { ordered };
    (u64::from(ordered) << 32) | index as u64
}

/// Writes the lower halves of the keys.
fn write_indices(keys: &[u64], target: &mut [u8]) {
    for (target, key) in target.as_chunks_mut::<4>().0.iter_mut().zip(keys) {
        *target = (*key as u32).to_le_bytes();
    }
}

/// Sorts by the upper halves, from the lowest digit to the highest. Equal values keep their order.
fn sort_by_digits(keys: &mut Vec<u64>) {
    const DIGITS: usize = 1 << DIGIT_BITS;
    let digit = |key: u64, pass: u32| (key >> (32 + pass * DIGIT_BITS)) as usize & (DIGITS - 1);
    let mut counts = vec![[0_u32; DIGITS]; 3];
    for key in keys.iter() {
        for (pass, counts) in (0..).zip(&mut counts) {
            counts[digit(*key, pass)] += 1;
        }
    }
    let mut other = vec![0; keys.len()];
    for (pass, counts) in (0..).zip(&mut counts) {
        // A digit that all share needs no pass.
        if counts.iter().any(|count| *count as usize == keys.len()) {
            continue;
        }
        let mut next = 0;
        for count in counts.iter_mut() {
            next += std::mem::replace(count, next);
        }
        for key in keys.iter() {
            let place = &mut counts[digit(*key, pass)];
            other[*place as usize] = *key;
            *place += 1;
        }
        std::mem::swap(keys, &mut other);
    }
}

/// The keys of the `k` largest elements, largest first.
#[inline(always)]
fn largest(x: &[f32], k: usize) -> Vec<u64> {
    const LANES: usize = 16;
    let room = (2 * k).max(64);
    if k == 0 {
        return Vec::new();
    }
    if room >= x.len() {
        let mut keys: Vec<u64> = x.iter().enumerate().map(|(i, x)| key(*x, i, true)).collect();
        return best(&mut keys, k);
    }
    let mut kept: Vec<u64> = x[..room].iter().enumerate().map(|(i, x)| key(*x, i, true)).collect();
    let mut worst = shrink(&mut kept, k);
    // What is not above the worst candidate cannot be among the largest: equal ones have a higher index. A comparison with
    // NaN lets an element pass to the comparison of keys, which decides.
    let mut bound = x[worst as u32 as usize];
    let mut start = room;
    for chunk in x[room..].chunks(LANES) {
        let below = match <&[f32; LANES]>::try_from(chunk) {
            Ok(chunk) => chunk.iter().fold(true, |all, x| all & (*x <= bound)),
            Err(_) => false,
        };
        if !below {
            for (i, x) in (start..).zip(chunk) {
                let key = key(*x, i, true);
                if key < worst {
                    kept.push(key);
                }
            }
            if kept.len() + LANES > room + k {
                worst = shrink(&mut kept, k);
                bound = x[worst as u32 as usize];
            }
        }
        start += LANES;
    }
    best(&mut kept, k)
}

/// Keeps the `k` smallest of more than `k` keys and returns the largest of them.
fn shrink(keys: &mut Vec<u64>, k: usize) -> u64 {
    let (_, worst, _) = keys.select_nth_unstable(k - 1);
    let worst = *worst;
    keys.truncate(k);
    worst
}

/// The `k` smallest keys in order.
fn best(keys: &mut Vec<u64>, k: usize) -> Vec<u64> {
    if k < keys.len() {
        shrink(keys, k);
    }
    keys.sort_unstable();
    std::mem::take(keys)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    /// The indices of each row by a stable sort of the standard library; NaN last.
    fn exact(values: &[f32], row: usize, descending: bool) -> Vec<f32> {
        let sorted = values.chunks(row).flat_map(|x| {
            let mut indices: Vec<usize> = (0..row).collect();
            indices.sort_by(|&i, &j| {
                let (a, b) = if descending { (x[j], x[i]) } else { (x[i], x[j]) };
                x[i].is_nan().cmp(&x[j].is_nan()).then(a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal))
            });
            indices
        });
        sorted.map(|i| i as f32).collect()
    }

    fn result(ne: [usize; 4]) -> Tensor {
        Tensor::contiguous(DataType::I32, ne)
    }

    #[rstest]
    fn rows_are_sorted(
        #[values([1, 1, 1, 1], [7, 3, 2, 2], [60, 10, 10, 1], [2047, 3, 1, 1], [2048, 3, 1, 1], [30_000, 2, 1, 1])]
        ne: [usize; 4],
        #[values(0, 1)] direction: i32,
        // Few values make many equal ones.
        #[values(1e6, 3.0)] steps: f32,
    ) {
        let mut values = Rng::with_seed(12).floats(ne.iter().product());
        values.iter_mut().for_each(|x| *x = (*x * steps).round() / steps);
        let a = Data::contiguous(DataType::F32, ne, &values);
        let found = run(ARGSORT, words([direction]), result(ne), &[Some(&a)]).unwrap();
        assert_eq!(found.values(), exact(&values, ne[0], direction == 1));
    }

    #[rstest]
    fn the_largest_are_found(
        #[values([1, 1, 1, 1], [7, 3, 2, 2], [200, 10, 10, 1], [4099, 5, 1, 1], [151_936, 1, 1, 1])] ne: [usize; 4],
        #[values(1, 2, 7, 40, 500, 5000)] k: usize,
        #[values(1e6, 3.0)] steps: f32,
    ) {
        let k = k.min(ne[0]);
        let mut values = Rng::with_seed(13).floats(ne.iter().product());
        values.iter_mut().for_each(|x| *x = (*x * steps).round() / steps);
        let a = Data::contiguous(DataType::F32, ne, &values);
        let [_, n1, n2, n3] = ne;
        let found = run(TOP_K, OpParams::default(), result([k, n1, n2, n3]), &[Some(&a)]).unwrap().values();
        let expected = exact(&values, ne[0], true);
        for (found, expected) in found.chunks(k).zip(expected.chunks(ne[0])) {
            assert_eq!(found, &expected[..k]);
        }
    }

    #[test]
    fn growing_and_falling_rows() {
        for sign in [1.0, -1.0] {
            let values: Vec<f32> = (0..10_000).map(|i| sign * i as f32).collect();
            let a = Data::contiguous(DataType::F32, [10_000, 1, 1, 1], &values);
            let found = run(TOP_K, OpParams::default(), result([10, 1, 1, 1]), &[Some(&a)]).unwrap().values();
            assert_eq!(found, exact(&values, 10_000, true)[..10]);
        }
    }

    #[rstest]
    fn special_values_have_a_place(#[values(12, 4000)] count: usize) {
        let special =
            [f32::NAN, 1.0, f32::INFINITY, -0.0, 0.0, f32::NEG_INFINITY, -f32::NAN, -1.0, f32::MIN_POSITIVE, 1e-45];
        let values: Vec<f32> = (0..count).map(|i| special[i % special.len()]).collect();
        let a = Data::contiguous(DataType::F32, [count, 1, 1, 1], &values);
        for direction in [0, 1] {
            let found = run(ARGSORT, words([direction]), result([count, 1, 1, 1]), &[Some(&a)]).unwrap();
            assert_eq!(found.values(), exact(&values, count, direction == 1));
        }
        for k in [1, 3, count / 3, count] {
            let found = run(TOP_K, OpParams::default(), result([k, 1, 1, 1]), &[Some(&a)]).unwrap().values();
            assert_eq!(found, exact(&values, count, true)[..k]);
        }
    }

    #[test]
    fn candidates_that_are_no_numbers_give_way() {
        let mut values = vec![f32::NAN; 500];
        values.extend([f32::NEG_INFINITY, 3.0, -2.0]);
        values.extend([f32::NAN; 500]);
        let a = Data::contiguous(DataType::F32, [values.len(), 1, 1, 1], &values);
        let found = run(TOP_K, OpParams::default(), result([3, 1, 1, 1]), &[Some(&a)]).unwrap().values();
        assert_eq!(found, [501.0, 502.0, 500.0]);
    }

    #[test]
    fn any_layout_is_read() {
        let tensor = permuted(&f32s([3, 9, 2, 1]), [1, 0, 2, 3]);
        let a = Data::random(tensor, &mut Rng::with_seed(14));
        let found = run(ARGSORT, words([0]), result(tensor.ne), &[Some(&a)]).unwrap();
        assert_eq!(found.values(), exact(&a.values(), 9, false));
    }

    #[rstest]
    #[case::type_of_source(ARGSORT, 0, DataType::F16, DataType::I32, [8, 2, 1, 1])]
    #[case::type_of_result(ARGSORT, 0, DataType::F32, DataType::F32, [8, 2, 1, 1])]
    #[case::shape(ARGSORT, 0, DataType::F32, DataType::I32, [7, 2, 1, 1])]
    #[case::order(ARGSORT, 2, DataType::F32, DataType::I32, [8, 2, 1, 1])]
    #[case::more_than_there_are(TOP_K, 0, DataType::F32, DataType::I32, [9, 2, 1, 1])]
    #[case::other_rows(TOP_K, 0, DataType::F32, DataType::I32, [4, 3, 1, 1])]
    fn rejects(
        #[case] op: &str,
        #[case] direction: i32,
        #[case] from: DataType,
        #[case] to: DataType,
        #[case] ne: [usize; 4],
    ) {
        let (a, out) = (Tensor::contiguous(from, [8, 2, 1, 1]), Tensor::contiguous(to, ne));
        assert!(!accepts(op, words([direction]), out, &[a]));
    }
}
