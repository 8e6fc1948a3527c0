use super::super::testing::*;
use super::*;

/// What a case has besides its shape.
#[derive(Clone, Copy)]
struct Options {
    mask: Option<[usize; 4]>,
    sinks: bool,
    max_bias: f32,
    softcap: f32,
}

const PLAIN: Options = Options { mask: None, sinks: false, max_bias: 0.0, softcap: 0.0 };

/// Sources 0 to 4.
struct Case {
    q: Data,
    k: Data,
    v: Data,
    mask: Option<Data>,
    sinks: Option<Data>,
    options: Options,
}

const SCALE: f32 = 0.7;

impl Case {
    fn new(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Self {
        let mut random = Rng::with_seed(71);
        let mask = options.mask.map(|ne| {
            let mut values = random.floats(ne.iter().product());
            for (i, value) in values.iter_mut().enumerate() {
                let (key, token) = (i % ne[0], i / ne[0] % ne[1]);
                // Forbidden keys here and there, a stretch that no token sees, and a free one.
                match key {
                    _ if key > 0 && (key + token).is_multiple_of(5) => *value = f32::NEG_INFINITY,
                    64..128 => *value = f32::NEG_INFINITY,
                    128..192 => *value = 0.0,
                    _ => {}
                }
            }
            Data::contiguous(DataType::F16, ne, &values)
        });
        let sinks = f32s([q.ne[2], 1, 1, 1]);
        let sinks = options.sinks.then(|| Data::random(sinks, &mut random));
        let [q, k, v] = [q, k, v].map(|tensor| Data::random(tensor, &mut random));
        Self { q, k, v, mask, sinks, options }
    }

    fn params(&self) -> OpParams {
        let mut params = params(&[(0, SCALE), (1, self.options.max_bias), (2, self.options.softcap)]);
        params.0[3] = 10;
        params
    }

    fn output(&self) -> Tensor {
        let [_, tokens, heads, batch] = self.q.tensor.ne;
        f32s([self.v.tensor.ne[0], heads, tokens, batch])
    }

    fn run(&self) -> Vec<f32> {
        let sources = [Some(&self.q), Some(&self.k), Some(&self.v), self.mask.as_ref(), self.sinks.as_ref()];
        run(NAME, self.params(), self.output(), &sources).unwrap().values()
    }

    /// The definition in double precision.
    fn exact(&self) -> Vec<f64> {
        let [dk, _, heads, _] = self.q.tensor.ne;
        let (keys, out) = (self.k.tensor.ne[1], self.output().ne);
        let [q, k, v] = [&self.q, &self.k, &self.v].map(Data::values);
        let mask = self.mask.as_ref().map(|mask| (mask, mask.values()));
        let power = 2.0_f64.powf((heads as f64).log2().floor());
        let (bias, cap) = (f64::from(self.options.max_bias), f64::from(self.options.softcap));
        let mut result = Vec::new();
        for [_, head, token, batch] in indices([1, out[1], out[2], out[3]]) {
            let kv = |tensor: &Tensor| (head / (heads / tensor.ne[2]), batch / (out[3] / tensor.ne[3]));
            let ((k_head, k_batch), (v_head, v_batch)) = (kv(&self.k.tensor), kv(&self.v.tensor));
            let h = head as f64;
            let slope = match () {
                () if bias <= 0.0 => 1.0,
                () if h < power => 2.0_f64.powf(-bias / power).powf(h + 1.0),
                () => 2.0_f64.powf(-bias / 2.0 / power).powf(2.0 * (h - power) + 1.0),
            };
            let score = |key: usize| {
                let at = |d| self.q.get(&q, [d, token, head, batch]) * self.k.get(&k, [d, key, k_head, k_batch]);
                let mut score = (0..dk).map(at).sum::<f64>() * f64::from(SCALE);
                if cap != 0.0 {
                    score = cap * (score / cap).tanh();
                }
                score + mask.as_ref().map_or(0.0, |(mask, values)| slope * mask.get(values, [key, token, head, batch]))
            };
            let scores: Vec<f64> = (0..keys).map(score).collect();
            let sink = self.sinks.as_ref().map(|sinks| f64::from(sinks.values()[head]));
            let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
            let total = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - max).exp());
            for d in 0..out[0] {
                let value = |key: usize| weights[key] * self.v.get(&v, [d, key, v_head, v_batch]);
                result.push((0..keys).map(value).sum::<f64>() / total);
            }
        }
        result
    }

    fn assert(&self, tolerance: f64) {
        assert_close(&self.run(), self.exact(), tolerance);
    }
}

/// Few rows and many, whole blocks and parts of them, one part of the cache and several, groups, batches.
#[rstest]
#[case::one_of_everything([1, 1, 1, 1], 1, [1, 1], 1)]
#[case::a_token([64, 1, 9, 1], 256, [3, 1], 64)]
#[case::a_token_with_a_long_cache([64, 1, 9, 1], 2000, [3, 1], 64)]
#[case::a_token_without_groups([40, 1, 4, 2], 113, [4, 2], 40)]
#[case::a_token_with_a_large_group([96, 1, 20, 1], 700, [1, 1], 64)]
#[case::a_long_cache_for_a_large_group([32, 1, 80, 1], 1500, [1, 1], 48)]
#[case::two_tokens([80, 2, 4, 3], 75, [2, 1], 80)]
#[case::a_prompt([64, 70, 6, 1], 200, [2, 1], 64)]
#[case::odd_sizes([33, 45, 3, 2], 67, [1, 2], 21)]
#[case::values_longer_than_keys([16, 35, 2, 1], 130, [2, 1], 72)]
fn is_the_definition(
    #[case] q: [usize; 4],
    #[case] keys: usize,
    #[case] kv: [usize; 2],
    #[case] dv: usize,
    #[values(PLAIN, Options { mask: Some([0; 4]), sinks: true, max_bias: 8.0, softcap: 3.0 })] mut options: Options,
    #[values(DataType::F32, DataType::F16)] dtype: DataType,
) {
    options.mask = options.mask.map(|_| [keys + 3, q[1] + 2, 1, 1]);
    let (k, v) =
        (Tensor::contiguous(dtype, [q[0], keys, kv[0], kv[1]]), Tensor::contiguous(dtype, [dv, keys, kv[0], kv[1]]));
    Case::new(f32s(q), k, v, options).assert(1e-5);
}

#[rstest]
#[case::mask(0.0, 0.0, false)]
#[case::alibi(8.0, 0.0, false)]
#[case::cap(0.0, 10.0, false)]
#[case::sinks(0.0, 0.0, true)]
fn options_work_alone(
    #[case] max_bias: f32,
    #[case] softcap: f32,
    #[case] sinks: bool,
    #[values(1, 20)] tokens: usize,
) {
    let (q, kv) = (f32s([64, tokens, 6, 2]), Tensor::contiguous(DataType::F16, [64, 210, 2, 2]));
    // Heads have masks of their own.
    let options = Options { mask: Some([210, tokens, 3, 2]), sinks, max_bias, softcap };
    Case::new(q, kv, kv, options).assert(1e-5);
    if max_bias == 0.0 {
        Case::new(q, kv, kv, Options { mask: None, ..options }).assert(1e-5);
    }
}

#[rstest]
#[case(DataType::BF16, DataType::F32)]
#[case(DataType::F32, DataType::BF16)]
#[case(DataType::Q8_0, DataType::Q8_0)]
#[case(DataType::Q8_0, DataType::F16)]
#[case(DataType::F16, DataType::Q8_0)]
#[case(DataType::Q4_0, DataType::IQ4_NL)]
fn keys_and_values_have_types_of_their_own(#[case] k: DataType, #[case] v: DataType, #[values(1, 30)] tokens: usize) {
    let q = f32s([64, tokens, 4, 1]);
    let options = Options { mask: Some([100, tokens, 1, 1]), ..PLAIN };
    Case::new(q, Tensor::contiguous(k, [64, 100, 2, 1]), Tensor::contiguous(v, [96, 100, 2, 1]), options).assert(1e-5);
}

#[rstest]
fn keys_and_values_may_have_different_heads(#[values(1, 12)] tokens: usize) {
    let q = f32s([16, tokens, 12, 2]);
    let (k, v) = (Tensor::contiguous(DataType::F16, [16, 90, 2, 1]), Tensor::contiguous(DataType::F16, [32, 90, 6, 2]));
    Case::new(q, k, v, PLAIN).assert(1e-5);
}

/// As llama.cpp passes them: heads beside each other in every position, queries permuted.
#[rstest]
fn views_of_a_cache_are_read_as_they_are(#[values(1, 40)] tokens: usize) {
    let q = permuted(&f32s([64, 9, tokens, 1]), [0, 2, 1, 3]);
    let mut cache = permuted(&Tensor::contiguous(DataType::F16, [64, 3, 300, 1]), [0, 2, 1, 3]);
    cache.ne[1] = 256;
    let case = Case::new(q, cache, cache, Options { mask: Some([256, 64, 1, 1]), ..PLAIN });
    case.assert(1e-5);
    let sources = [Some(case.q.tensor), Some(cache), Some(cache), case.mask.as_ref().map(|mask| mask.tensor)];
    let node = node(NAME, case.params(), case.output(), &sources);
    let normalised = crate::normalise::normalise(find(NAME), &node, crate::normalise::F16Policy::Bf16).unwrap();
    assert!(!normalised.needs_conversion());
    assert_eq!(normalised.node, node);
}

#[rstest]
fn a_query_without_any_key_gives_zeros(#[values(1, 30)] tokens: usize, #[values(false, true)] sinks: bool) {
    let (q, kv) = (f32s([32, tokens, 2, 1]), Tensor::contiguous(DataType::F16, [32, 80, 2, 1]));
    let mut case = Case::new(q, kv, kv, Options { sinks, ..PLAIN });
    let mut mask = vec![0.0; 80 * tokens];
    mask[..80].fill(f32::NEG_INFINITY);
    case.mask = Some(Data::contiguous(DataType::F16, [80, tokens, 1, 1], &mask));
    let result = case.run();
    assert!(result[..64].iter().all(|value| *value == 0.0));
    assert!(result[64..].iter().all(|value| value.is_finite() && *value != 0.0));
}

#[test]
fn scores_far_apart_do_not_overflow() {
    // Each block has a larger maximum than the one before, by more than an exponential can hold.
    let tensor = f32s([1, 256, 1, 1]);
    let keys: Vec<f32> = (0..256).map(|key| (key / 64 * 300) as f32).collect();
    let values: Vec<f32> = (0..256).map(|key| (key / 64) as f32).collect();
    for tokens in [1, 20] {
        let q = f32s([1, tokens, 1, 1]);
        let mut case = Case::new(q, tensor, tensor, PLAIN);
        case.q = Data::new(q, &vec![1.0; tokens]);
        (case.k, case.v) = (Data::new(tensor, &keys), Data::new(tensor, &values));
        assert_close(&case.run(), vec![3.0; tokens], 0.0);
    }
}

#[rstest]
#[case::no_keys(|n: &mut Node| n.sources.truncate(1))]
#[case::half_queries(|n: &mut Node| n.sources[0] = Some(Tensor::contiguous(DataType::F16, [64, 4, 6, 1])))]
#[case::half_result(|n: &mut Node| n.output.dtype = DataType::F16)]
#[case::integer_keys(|n: &mut Node| n.sources[1] = Some(Tensor::contiguous(DataType::I32, [64, 50, 2, 1])))]
#[case::other_head_size(|n: &mut Node| n.sources[1] = Some(Tensor::contiguous(DataType::F16, [32, 50, 2, 1])))]
#[case::fewer_values(|n: &mut Node| n.sources[2] = Some(Tensor::contiguous(DataType::F16, [64, 49, 2, 1])))]
#[case::heads_do_not_divide(|n: &mut Node| n.sources[1] = Some(Tensor::contiguous(DataType::F16, [64, 50, 4, 1])))]
#[case::no_heads(|n: &mut Node| n.sources[1] = Some(Tensor::contiguous(DataType::F16, [64, 50, 0, 1])))]
#[case::short_mask(|n: &mut Node| n.sources[3] = Some(Tensor::contiguous(DataType::F16, [49, 4, 1, 1])))]
#[case::mask_for_fewer_tokens(|n: &mut Node| n.sources[3] = Some(Tensor::contiguous(DataType::F16, [50, 3, 1, 1])))]
#[case::single_mask(|n: &mut Node| n.sources[3] = Some(f32s([50, 4, 1, 1])))]
#[case::alibi_without_mask(|n: &mut Node| { n.sources[3] = None; n.params.0[1] = 8.0_f32.to_bits().cast_signed() })]
#[case::few_sinks(|n: &mut Node| n.sources[4] = Some(f32s([5, 1, 1, 1])))]
#[case::unknown_precision(|n: &mut Node| n.params.0[3] = 7)]
#[case::result_not_permuted(|n: &mut Node| n.output = f32s([64, 4, 6, 1]))]
#[case::keys_with_gaps(|n: &mut Node| n.sources[1].as_mut().unwrap().nb[0] = 4)]
fn rejects(#[case] change: fn(&mut Node)) {
    let (q, kv) = (f32s([64, 4, 6, 1]), Tensor::contiguous(DataType::F16, [64, 50, 2, 1]));
    let (mask, sinks) = (Tensor::contiguous(DataType::F16, [50, 4, 1, 1]), f32s([6, 1, 1, 1]));
    let output = f32s([64, 6, 4, 1]);
    assert_rejected(
        node(NAME, OpParams::default(), output, &[Some(q), Some(kv), Some(kv), Some(mask), Some(sinks)]),
        change,
    );
}
