//! Regions against a walk written out by hand: every word, in order.

use super::*;
use rstest::rstest;

/// Byte offsets of the words that a region means.
fn meant(region: &Region) -> Vec<u64> {
    let mut words = vec![region.offset];
    for dimension in &region.dimensions {
        words = (0..dimension.size).flat_map(|i| words.iter().map(move |at| at + 4 * i * dimension.step)).collect();
    }
    words
}

/// Byte offsets of the words that tasks move: the counters of the register reference, word by word.
fn moved(runs: &[Run]) -> Vec<u64> {
    let mut words = Vec::new();
    for run in runs {
        let bd = &run.bd;
        for repeat in 0..=u64::from(run.repeat) {
            let iteration = (u64::from(bd.iteration) + repeat) % u64::from(bd.iteration_wrap);
            let (mut i0, mut i1, mut i2) = (0u64, 0u64, 0u64);
            for _ in 0..bd.length {
                let word = iteration * u64::from(bd.iteration_step)
                    + i0 * u64::from(bd.d0_step)
                    + i1 * u64::from(bd.d1_step)
                    + i2 * u64::from(bd.d2_step);
                words.push(run.offset + 4 * word);
                i0 += 1;
                if bd.d0_wrap != 0 && i0 == u64::from(bd.d0_wrap) {
                    (i0, i1) = (0, i1 + 1);
                    if bd.d1_wrap != 0 && i1 == u64::from(bd.d1_wrap) {
                        (i1, i2) = (0, i2 + 1);
                    }
                }
            }
        }
    }
    words
}

fn region(offset: u64, dimensions: &[(u64, u64)]) -> Region {
    let dimensions = dimensions.iter().map(|(size, step)| Dimension::new(*size, *step)).collect();
    Region { argument: 0, offset, dimensions }
}

#[rstest]
#[case::a_word(region(8, &[]), 1)]
#[case::nothing(region(0, &[(5, 1), (0, 5)]), 0)]
#[case::linear(region(4, &[(100_000, 1)]), 1)]
#[case::merged(region(0, &[(30, 1), (7, 30), (5, 210)]), 1)]
#[case::rows(region(0, &[(30, 1), (7, 100)]), 1)]
#[case::long_rows(region(0, &[(4096, 1), (7, 5000)]), 1)]
#[case::many_rows(region(0, &[(30, 1), (5000, 100)]), 1)]
#[case::planes(region(12, &[(30, 1), (50, 100), (7, 6000)]), 1)]
#[case::many_planes(region(0, &[(3, 1), (4, 10), (1500, 50)]), 1)]
#[case::four_dimensions(region(0, &[(3, 1), (4, 10), (5, 50), (64, 300)]), 1)]
#[case::too_many_iterations(region(0, &[(3, 1), (4, 10), (5, 50), (65, 300)]), 2)]
#[case::five_dimensions(region(0, &[(3, 1), (4, 10), (5, 50), (6, 300), (7, 2000)]), 7)]
#[case::transposed(region(0, &[(40, 64), (64, 1)]), 1)]
// 2053 is prime: each row is a run of its own.
#[case::prime_rows(region(0, &[(2053, 1), (100, 3000)]), 2)]
#[case::repeated(region(0, &[(30, 1), (7, 100), (256, 0)]), 1)]
#[case::repeated_often(region(0, &[(30, 1), (257, 0)]), 2)]
#[case::repeated_inside(region(0, &[(30, 1), (3, 0), (5, 40)]), 5)]
#[case::far_apart(region(0, &[(8, 1), (3, (1 << 20) + 1)]), 3)]
#[case::as_far_as_steps_go(region(0, &[(8, 1), (3, 1 << 20)]), 1)]
fn tasks_move_what_regions_mean(#[case] region: Region, #[case] tasks: usize) {
    let runs = region.runs(2).unwrap();
    assert_eq!(runs.len(), tasks);
    assert_eq!(region.tasks(), Ok(tasks));
    assert!(moved(&runs) == meant(&region), "{runs:?}");
    assert_eq!(runs.iter().map(|run| run.words).sum::<u64>(), region.words());
    for run in &runs {
        run.bd.encode().unwrap();
    }
}

/// What three dimensions hold is one run of the descriptor.
#[rstest]
#[case::a_word(&[], 1)]
#[case::a_short_line(&[(16, 1)], 1)]
#[case::a_line(&[(64, 1)], 1)]
#[case::two_rows(&[(32, 1), (2, 100)], 1)]
#[case::rows(&[(30, 1), (64, 100)], 1)]
#[case::transposed(&[(40, 64), (64, 1)], 1)]
#[case::planes(&[(3, 1), (4, 10), (5, 50)], 1)]
#[case::four_dimensions(&[(3, 1), (4, 10), (5, 50), (64, 300)], 64)]
fn iterations_are_for_a_fourth_dimension(#[case] dimensions: &[(u64, u64)], #[case] iterations: u32) {
    let runs = region(0, dimensions).runs(2).unwrap();
    assert_eq!((runs.len(), runs[0].bd.iteration_wrap), (1, iterations));
}

#[rstest]
#[case::contiguous(2, &[30, 7], &[2, 60], &[(105, 1)])]
#[case::odd_end(2, &[31], &[2], &[(16, 1)])]
#[case::rows(2, &[30, 7], &[2, 100], &[(15, 1), (7, 25)])]
#[case::words(4, &[30, 7], &[4, 100], &[(30, 1), (7, 25)])]
#[case::transposed(4, &[7, 30], &[100, 4], &[(1, 1), (7, 25), (30, 1)])]
#[case::broadcast(4, &[30, 7], &[4, 0], &[(30, 1), (7, 0)])]
fn tensors(#[case] element: u64, #[case] elements: &[u64], #[case] strides: &[u64], #[case] dimensions: &[(u64, u64)]) {
    let found = Region::tensor(0, 4, element, elements, strides).unwrap();
    assert_eq!(found, region(4, dimensions));
}

#[rstest]
#[case(Region::tensor(3, 0, 2, &[31, 2], &[2, 64]), "a region of argument 3: 62 consecutive bytes are no whole words")]
#[case(Region::tensor(3, 0, 2, &[30, 2], &[2, 62]), "a region of argument 3: a stride of 62 bytes is no multiple of 4")]
#[case(Region::tensor(3, 0, 2, &[7, 30], &[60, 2]), "a region of argument 3: 2 consecutive bytes are no whole words")]
fn parts_of_words_are_rejected(#[case] region: Result<Region, ArrayError>, #[case] message: &str) {
    assert_eq!(region.unwrap_err().to_string(), message);
}

#[test]
fn regions_that_no_stream_holds_are_rejected() {
    let error = region(2, &[(4, 1)]).runs(2).unwrap_err();
    assert_eq!(error.to_string(), "a region of argument 0: it begins at byte 2, no multiple of 4");
    let error = region(0, &[(1, 1), (3, 7), (2, 0), (20_000, 5)]).runs(2).unwrap_err();
    assert_eq!(error.to_string(), "a region of argument 0: it takes 20000 tasks, more than 16384");
    for beyond in [
        region(0, &[(1 << 47, 1)]),
        region(0, &[(2, u64::MAX)]),
        region(u64::MAX - 3, &[]),
        region(0, &[(1 << 40, 0), (1 << 40, 0)]),
    ] {
        let error = beyond.runs(2).unwrap_err();
        assert_eq!(error.to_string(), "a region of argument 0: it ends beyond any address");
    }
    let error = region(0, &[(1 << 33, 1)]).runs(2).unwrap_err();
    assert_eq!(error.to_string(), "a region of argument 0: it takes 134217728 tasks, more than 16384");
}

/// Regions of up to five dimensions with sizes and steps around the limits of fields, and repeated ones.
#[test]
fn random_regions_are_moved_word_by_word() {
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut moved_words, mut tasks) = (0, 0);
    for _ in 0..1500 {
        let mut words = 1;
        let mut dimensions = Vec::new();
        for _ in 0..1 + random(5) {
            let size = match random(6) {
                0 => 1020 + random(8),
                1 => 60 + random(10),
                2 => 1,
                _ => 1 + random(9),
            };
            if words * size > 16_000 {
                continue;
            }
            // The step that makes it contiguous with what is inside of it, another one, or none.
            let step = match random(5) {
                0 | 1 => dimensions.last().map_or(1, |(size, step): &(u64, u64)| size * step),
                2 => 0,
                3 => (1 << 20) - 1 + random(3),
                _ => 1 + random(300),
            };
            words *= size;
            dimensions.push((size, step));
        }
        let region = region(4 * random(100), &dimensions);
        let runs = region.runs(2).unwrap();
        assert!(moved(&runs) == meant(&region), "{region:?}: {runs:?}");
        assert!(runs.iter().all(|run| run.bd.encode().is_ok()));
        (moved_words, tasks) = (moved_words + words, tasks + runs.len());
    }
    assert!(moved_words > 500_000 && tasks > 1500, "{moved_words} words, {tasks} tasks");
}

/// Parts of a region are its words in their order, wherever they begin and end.
#[rstest]
#[case(&[])]
#[case(&[(24, 1)])]
#[case(&[(3, 1), (4, 10)])]
#[case(&[(3, 1), (2, 0), (4, 7)])]
#[case(&[(2, 1), (3, 4), (2, 30), (2, 100)])]
fn parts_have_the_words_of_the_whole(#[case] dimensions: &[(u64, u64)]) {
    let dimensions = dimensions.iter().map(|(size, step)| Dimension::new(*size, *step)).collect();
    let region = Region { argument: 3, offset: 8, dimensions };
    let words = |region: &Region| {
        let mut places = vec![region.offset];
        for Dimension { size, step } in &region.dimensions {
            places = (0..*size).flat_map(|at| places.iter().map(move |place| place + 4 * step * at)).collect();
        }
        places
    };
    let all = words(&region);
    for start in 0..all.len() {
        for end in start..=all.len() {
            let parts = region.cut(start as u64..end as u64);
            assert_eq!(parts.iter().flat_map(words).collect::<Vec<_>>(), all[start..end], "{start}..{end}: {parts:?}");
        }
    }
    assert_eq!(region.cut(0..u64::MAX), [region]);
}
