use super::*;
use rstest::rstest;

fn tensor(dtype: DataType, ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(dtype, ne)
}

fn turned(tensor: Tensor) -> Tensor {
    let ([a, b, c, d], [e, f, g, h]) = (tensor.ne, tensor.nb);
    Tensor { ne: [b, a, c, d], nb: [f, e, g, h], ..tensor }
}

fn one(size: u64, from: u64, to: u64) -> Loop {
    Loop { size, from, to }
}

#[rstest]
#[case::line(tensor(DataType::F32, [6, 5, 4, 3]), vec![one(360, 1, 1)])]
#[case::bytes(tensor(DataType::I8, [6, 2, 1, 1]), vec![one(3, 1, 1)])]
#[case::long_words(tensor(DataType::I64, [3, 1, 1, 1]), vec![one(6, 1, 1)])]
#[case::blocks(tensor(DataType::Q4_0, [64, 3, 2, 1]), vec![one(54, 1, 1)])]
#[case::turned(turned(tensor(DataType::F32, [6, 5, 4, 1])), vec![one(5, 6, 1), one(6, 1, 5), one(4, 30, 30)])]
#[case::one_word(tensor(DataType::F32, [1, 1, 1, 1]), vec![one(1, 1, 1)])]
fn what_follows_itself_on_both_sides_is_one_run(#[case] from: Tensor, #[case] expected: Vec<Loop>) {
    let movement = Movement::between(&from, &tensor(from.dtype, from.ne)).unwrap();
    assert_eq!((movement.loops, movement.pair), (expected, None));
}

#[test]
fn two_elements_of_the_source_make_a_word() {
    let movement = |from: Tensor| Movement::between(&from, &tensor(DataType::F16, from.ne)).unwrap();
    let line = movement(tensor(DataType::F32, [6, 5, 1, 1]));
    assert_eq!((line.pair, &line.loops[..]), (Some(1), &[one(15, 2, 1)][..]));
    let other = movement(turned(tensor(DataType::F32, [6, 8, 1, 1])));
    assert_eq!((other.pair, &other.loops[..]), (Some(6), &[one(4, 12, 1), one(6, 1, 4)][..]));
    let sizes = |region: Region| region.dimensions.iter().map(|d| (d.size, d.step)).collect::<Vec<_>>();
    assert_eq!(sizes(other.source(0, 0, None)), [(2, 6), (4, 12), (6, 1)]);
    assert_eq!(sizes(other.result(1, 0, Some(Dimension::new(3, 99)))), [(4, 1), (6, 4), (3, 99)]);
}

#[rstest]
#[case::halves(turned(tensor(DataType::F16, [4, 6, 1, 1])), tensor(DataType::F16, [6, 4, 1, 1]))]
#[case::single_bytes(turned(tensor(DataType::I8, [4, 8, 1, 1])), tensor(DataType::I8, [8, 4, 1, 1]))]
#[case::odd_rows(tensor(DataType::F32, [3, 1, 1, 1]), tensor(DataType::F16, [3, 1, 1, 1]))]
#[case::a_half(tensor(DataType::F32, [1, 1, 1, 1]), tensor(DataType::F16, [1, 1, 1, 1]))]
#[case::other_types(tensor(DataType::F16, [4, 1, 1, 1]), tensor(DataType::F32, [4, 1, 1, 1]))]
#[case::counts(tensor(DataType::F32, [4, 1, 1, 1]), tensor(DataType::F32, [5, 1, 1, 1]))]
fn what_words_cannot_do_is_rejected(#[case] from: Tensor, #[case] to: Tensor) {
    let result = Movement::between(&from, &to);
    assert!(result.is_err(), "{result:?}");
}

/// All words once, with the same source as in the whole.
#[rstest]
#[case(tensor(DataType::F32, [100, 7, 1, 1]), 4)]
#[case(turned(tensor(DataType::F32, [9, 11, 5, 2])), 4)]
#[case(turned(tensor(DataType::F32, [2, 3, 1, 1])), 50)]
fn parts_are_the_whole(#[case] from: Tensor, #[case] count: u64) {
    let pairs = |movement: &Movement| {
        let mut words = vec![(movement.from, movement.to)];
        for l in &movement.loops {
            words = words
                .iter()
                .flat_map(|(from, to)| (0..l.size).map(move |step| (from + step * l.from, to + step * l.to)))
                .collect();
        }
        words
    };
    let whole = Movement::between(&from, &tensor(from.dtype, from.ne)).unwrap();
    let parts = whole.clone().parts(count);
    assert!(parts.len() as u64 >= count.min(whole.words()));
    let mut found: Vec<_> = parts.iter().flat_map(pairs).collect();
    let mut expected = pairs(&whole);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}
