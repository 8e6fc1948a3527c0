use super::super::testing::*;
use super::*;
use aie_hal::HostFunctionError;

/// Compares with the convolution in double precision.
fn assert_convolved(x: &Data, weights: &Data, out: Tensor) {
    assert_formula(CONV, OpParams::default(), out, &[x, weights], 2e-6, |[channel, token, sequence, _], get| {
        let product = |k| get(0, [token + k, channel, sequence, 0]) * get(1, [k, channel, 0, 0]);
        (0..weights.tensor.ne[0]).map(product).sum()
    });
}

#[rstest]
fn convolutions_are_the_definition(
    #[values(1, 2, 3, 4, 9)] window: usize,
    #[values(1, 16, 31)] channels: usize,
    #[values(1, 5, 16, 35)] tokens: usize,
    #[values(1, 3)] sequences: usize,
) {
    let mut random = Rng::with_seed(7);
    let x = Data::random(f32s([window - 1 + tokens, channels, sequences, 1]), &mut random);
    let weights = Data::random(f32s([window, channels, 1, 1]), &mut random);
    assert_convolved(&x, &weights, f32s([channels, tokens, sequences, 1]));
}

#[test]
fn a_convolution_of_large_and_strided_tensors_is_the_same() {
    let mut random = Rng::with_seed(8);
    let weights = Data::random(f32s([4, 200, 1, 1]), &mut random);
    let out = f32s([200, 100, 2, 1]);
    let wide = Tensor { nb: [4, 4 * 120, 4 * 120 * 200, 4 * 120 * 400], ..f32s([103, 200, 2, 1]) };
    for tensor in [wide, permuted(&f32s([200, 103, 2, 1]), [1, 0, 2, 3])] {
        assert_convolved(&Data::random(tensor, &mut random), &weights, out);
    }
}

#[rstest]
#[case::channels([8, 6, 1, 1], [3, 5, 1, 1], [5, 6, 1, 1])]
#[case::short([2, 5, 1, 1], [4, 5, 1, 1], [5, 0, 1, 1])]
#[case::tokens([8, 5, 1, 1], [3, 5, 1, 1], [5, 5, 1, 1])]
#[case::no_window([8, 5, 1, 1], [0, 5, 1, 1], [5, 8, 1, 1])]
#[case::weights_by_sequence([8, 5, 2, 1], [3, 5, 2, 1], [5, 6, 2, 1])]
fn convolutions_that_do_not_fit_are_rejected(
    #[case] x: [usize; 4],
    #[case] weights: [usize; 4],
    #[case] out: [usize; 4],
) {
    assert!(!accepts(CONV, OpParams::default(), f32s(out), &[f32s(x), f32s(weights)]));
}

/// Extents of a scan.
#[derive(Debug, Clone, Copy)]
struct Shape {
    length: usize,
    dim: usize,
    heads: usize,
    groups: usize,
    tokens: usize,
    sequences: usize,
    slots: usize,
    /// A decay for each element of a row.
    fine: bool,
}

impl Shape {
    fn params(&self) -> OpParams {
        words([i32::try_from(self.slots).unwrap()])
    }

    fn output(&self) -> Tensor {
        let states = self.length * self.dim * self.heads * self.sequences * self.slots;
        f32s([self.dim * self.heads * self.tokens * self.sequences + states, 1, 1, 1])
    }

    /// Sources with small steps, so that states do not grow; ids run backwards.
    fn sources(&self, random: &mut Rng) -> Vec<Data> {
        let Self { length, dim, heads, groups, tokens, sequences, fine, .. } = *self;
        let mut sources = vec![
            Data::random(f32s([length, dim, heads, sequences + 1]), random),
            Data::random(f32s([dim, heads, tokens, sequences]), random),
            Data::random(f32s([heads, tokens, sequences, 1]), random),
        ];
        let decays: Vec<f32> = (0..heads * if fine { length } else { 1 }).map(|_| -random.float().abs()).collect();
        sources.push(Data::new(f32s([if fine { length } else { 1 }, heads, 1, 1]), &decays));
        // B and C are parts of a wider projection.
        let wide = Tensor {
            nb: [4, length * 4, (length * groups + 3) * 4, (length * groups + 3) * tokens * 4],
            ..f32s([length, groups, tokens, sequences])
        };
        sources.push(Data::random(wide, random));
        sources.push(Data::random(wide, random));
        let ids: Vec<f32> = (0..sequences).rev().map(|id| id as f32).collect();
        sources.push(Data::contiguous(DataType::I32, [sequences, 1, 1, 1], &ids));
        sources
    }

    fn node(&self) -> Node {
        let sources: Vec<_> = self.sources(&mut Rng::with_seed(1)).iter().map(|data| Some(data.tensor)).collect();
        node(SCAN, self.params(), self.output(), &sources)
    }

    /// The scan in double precision.
    fn exact(&self, sources: &[Data]) -> Vec<f64> {
        let Self { length, dim, heads, groups, tokens, sequences, slots, .. } = *self;
        let values: Vec<_> = sources.iter().map(Data::values).collect();
        let get = |slot: usize, index| sources[slot].get(&values[slot], index);
        let rows = dim * heads;
        let states = rows * tokens * sequences;
        let mut result = vec![0.0; states + rows * length * sequences * slots];
        for sequence in 0..sequences {
            let id = values[6][sequence] as usize;
            for (head, i) in (0..heads).flat_map(|head| (0..dim).map(move |i| (head, i))) {
                let row = head * dim + i;
                let mut state: Vec<f64> = (0..length).map(|k| get(0, [k, i, head, id])).collect();
                for token in 0..tokens {
                    let dt = get(2, [head, token, sequence, 0]).exp().ln_1p();
                    let x = get(1, [i, head, token, sequence]);
                    let group = head / (heads / groups);
                    let mut y = 0.0;
                    for (k, state) in state.iter_mut().enumerate() {
                        let decay = (dt * get(3, [k, head, 0, 0])).exp();
                        *state = *state * decay + get(4, [k, group, token, sequence]) * x * dt;
                        y += *state * get(5, [k, group, token, sequence]);
                    }
                    result[row + rows * (token + tokens * sequence)] = y;
                    let slot = tokens - 1 - token;
                    if slot < slots {
                        let first = states + ((slot * sequences + sequence) * rows + row) * length;
                        result[first..first + length].copy_from_slice(&state);
                    }
                }
            }
        }
        result
    }
}

const SMALL: Shape = Shape { length: 16, dim: 4, heads: 6, groups: 3, tokens: 5, sequences: 2, slots: 1, fine: false };

#[rstest]
#[case::mamba2(SMALL)]
#[case::fine(Shape { fine: true, ..SMALL })]
#[case::mamba1(Shape { dim: 1, heads: 300, groups: 1, fine: true, ..SMALL })]
#[case::tail(Shape { length: 37, ..SMALL })]
#[case::one_element(Shape { length: 1, ..SMALL })]
#[case::large(Shape { length: 128, dim: 64, heads: 8, groups: 2, tokens: 7, ..SMALL })]
#[case::rollback(Shape { slots: 3, ..SMALL })]
#[case::rollback_large(Shape { length: 96, dim: 64, heads: 16, groups: 8, slots: 5, ..SMALL })]
#[case::single_token(Shape { tokens: 1, sequences: 1, ..SMALL })]
fn scans_are_the_definition(#[case] shape: Shape) {
    let sources = shape.sources(&mut Rng::with_seed(91));
    let given: Vec<_> = sources.iter().map(Some).collect();
    let result = run(SCAN, shape.params(), shape.output(), &given).unwrap();
    assert_close(&result.values(), shape.exact(&sources), 5e-6);
}

#[test]
fn states_for_which_there_is_no_token_keep_their_bytes() {
    let shape = Shape { tokens: 2, slots: 4, ..SMALL };
    let sources = shape.sources(&mut Rng::with_seed(92));
    let given: Vec<_> = sources.iter().map(Some).collect();
    let result = run(SCAN, shape.params(), shape.output(), &given).unwrap();
    let untouched = 2 * SMALL.length * SMALL.dim * SMALL.heads * SMALL.sequences * 4;
    let (defined, rest) = result.bytes.split_at(result.bytes.len() - untouched);
    assert!(rest.iter().all(|byte| *byte == 0xAA));
    let expected = shape.exact(&sources);
    let defined: Vec<f32> = defined.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert_close(&defined, expected[..defined.len()].iter().copied(), 5e-6);
}

#[rstest]
#[case(-1)]
#[case(3)]
#[case(i32::MAX)]
fn ids_out_of_range_are_data_errors(#[case] id: i32) {
    let mut sources = SMALL.sources(&mut Rng::with_seed(93));
    sources[6].bytes[4..].copy_from_slice(&id.to_le_bytes());
    let kernel = find(SCAN).reference(&SMALL.node()).unwrap();
    let inputs: Vec<_> = sources.iter().map(|data| data.bytes.as_slice()).collect();
    let error = kernel.run(&inputs, &mut vec![0; SMALL.output().span_bytes()]).unwrap_err();
    assert!(matches!(&error, HostFunctionError::Data { .. }), "{error}");
    assert!(error.to_string().contains(&format!("state {id} is out of range; possible: 0 to 3")), "{error}");
}

#[rstest]
#[case::slots(|node: &mut Node| node.params.0[0] = 0)]
#[case::more_slots_than_room(|node: &mut Node| node.params.0[0] = 2)]
#[case::negative_slots(|node: &mut Node| node.params.0[0] = i32::MIN)]
#[case::ids_of_another_type(|node: &mut Node| node.sources[6] = Some(f32s([2, 1, 1, 1])))]
#[case::missing(|node: &mut Node| node.sources[4] = None)]
#[case::groups(|node: &mut Node| { node.sources[4] = Some(f32s([16, 4, 5, 2])); node.sources[5] = node.sources[4]; })]
#[case::no_groups(|node: &mut Node| { node.sources[4] = Some(f32s([16, 0, 5, 2])); node.sources[5] = node.sources[4]; })]
#[case::output(|node: &mut Node| node.output = f32s([77, 1, 1, 1]))]
#[case::half(|node: &mut Node| node.sources[1] = Some(Tensor::contiguous(DataType::F16, [4, 6, 5, 2])))]
fn scans_that_do_not_fit_are_rejected(#[case] change: fn(&mut Node)) {
    assert_rejected(SMALL.node(), change);
}

#[test]
fn a_fine_decay_keeps_one_state_only() {
    let shape = Shape { fine: true, slots: 2, ..SMALL };
    let message = find(SCAN).check(&shape.node()).unwrap_err().to_string();
    assert!(message.contains("with a decay for each element only 1 can be"), "{message}");
}

#[test]
fn both_are_made() {
    assert_made(OPERATIONS, &[DataType::F32]);
}
