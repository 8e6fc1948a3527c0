//! Attention as machine code on the emulated array, beside the definition in double precision and the reference kernel.

#[path = "../mul_mat/device.rs"]
mod device;
mod few;
mod tensors;

use aie_emulator::Timing;
use aie_jit_native::families::{self, attention, rings};
use aie_jit_native::kit::Family;
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use device::{Device, aie2};
use fastrand::Rng;
use rstest::rstest;
use tensors::Data;

/// What is asked for: elements of keys and values, tokens, heads of queries, heads of keys, batches, keys. `interleaved`: heads lie
/// within tokens and keys, as in the cache of llama.cpp.
#[derive(Clone, Copy, Debug)]
struct Shape {
    k: usize,
    v: usize,
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    batch: usize,
    keys: usize,
    interleaved: bool,
}

impl Shape {
    const fn of_one_token(elements: usize, heads: usize, kv_heads: usize, keys: usize) -> Self {
        Self { k: elements, v: elements, tokens: 1, heads, kv_heads, batch: 1, keys, interleaved: false }
    }

    fn output(&self) -> Tensor {
        Tensor::contiguous(DataType::F32, [self.v, self.heads, self.tokens, self.batch])
    }
}

/// The operands of a node.
struct Operands {
    q: Data,
    k: Data,
    v: Data,
    mask: Option<Data>,
    /// ALiBi's largest bias, and the soft cap; 0 for none.
    bias: f32,
    cap: f32,
    sinks: Option<Data>,
}

impl Operands {
    /// Random ones. `later` keys are masked for each token, as a causal mask does.
    fn random(shape: Shape, dtype: DataType, mask: bool, random: &mut Rng) -> Self {
        let Shape { k, v, tokens, heads, kv_heads, batch, keys, interleaved } = shape;
        let tensor = |dtype, [elements, rows, heads]: [usize; 3]| {
            let tensor = Tensor::contiguous(dtype, [elements, rows, heads, batch]);
            let [nb0, nb1, _, nb3] = tensor.nb;
            if interleaved { Tensor { nb: [nb0, nb1 * heads, nb1, nb3], ..tensor } } else { tensor }
        };
        let cache = |elements| tensor(dtype, [elements, keys, kv_heads]);
        let q = Data::random(tensor(DataType::F32, [k, tokens, heads]), random);
        let (k, v) = (Data::random(cache(k), random), Data::random(cache(v), random));
        let mask = mask.then(|| {
            let tensor = Tensor::contiguous(DataType::F16, [keys, tokens, 1, 1]);
            let mut mask = Data::random(tensor, random);
            for token in 0..tokens {
                for key in 0..keys {
                    // The last keys, and a third of the others.
                    if key + tokens > keys + token || (key + token) % 3 == 0 {
                        mask.set_half([key, token, 0, 0], 0xFC00);
                    }
                }
            }
            mask
        });
        Self { q, k, v, mask, bias: 0.0, cap: 0.0, sinks: None }
    }

    fn node(&self, shape: Shape, scale: f32) -> Node {
        let mut params = OpParams::default();
        for (index, value) in [scale, self.bias, self.cap].into_iter().enumerate() {
            params.0[index] = value.to_bits().cast_signed();
        }
        let mask = self.mask.as_ref().map(|mask| mask.tensor);
        let mut sources = vec![Some(self.q.tensor), Some(self.k.tensor), Some(self.v.tensor), mask];
        sources.extend(self.sinks.as_ref().map(|sinks| Some(sinks.tensor)));
        Node::new("FLASH_ATTN_EXT", params, shape.output(), sources)
    }

    /// By the definition of ALiBi: for n heads, a power of two, 2^(-bias / n) to the power of 1, 2, ...; further heads have the odd
    /// powers of its root.
    fn slope(&self, head: usize, heads: usize) -> f64 {
        let power = 1 << heads.ilog2();
        let root = 2f64.powf(-f64::from(self.bias) / 2.0 / f64::from(power));
        let exponent = if head < power as usize { 2 * (head + 1) } else { 2 * (head - power as usize) + 1 };
        root.powi(exponent as i32)
    }

    /// By the definition.
    fn expected(&self, shape: Shape, scale: f32) -> Vec<f64> {
        let mut result = Vec::new();
        for batch in 0..shape.batch {
            for token in 0..shape.tokens {
                for head in 0..shape.heads {
                    let kv = head / (shape.heads / shape.kv_heads);
                    let slope = self.slope(head, shape.heads);
                    let score = |key: usize| {
                        let products =
                            (0..shape.k).map(|i| self.q.get([i, token, head, batch]) * self.k.get([i, key, kv, batch]));
                        let mask = self.mask.as_ref().map_or(0.0, |mask| mask.get([key, token, 0, 0]));
                        let (score, cap) = (f64::from(scale) * products.sum::<f64>(), f64::from(self.cap));
                        let score = if cap > 0.0 { cap * (score / cap).tanh() } else { score };
                        score + slope * mask
                    };
                    let scores: Vec<f64> = (0..shape.keys).map(score).collect();
                    let sink = self.sinks.as_ref().map_or(f64::NEG_INFINITY, |sinks| sinks.get([head, 0, 0, 0]));
                    let most = scores.iter().copied().fold(sink, f64::max);
                    if most == f64::NEG_INFINITY {
                        // Nothing is attended to.
                        result.extend(std::iter::repeat_n(0.0, shape.v));
                        continue;
                    }
                    let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                    let sum = weights.iter().sum::<f64>() + (sink - most).exp();
                    result.extend((0..shape.v).map(|i| {
                        let values = weights.iter().enumerate().map(|(key, w)| w * self.v.get([i, key, kv, batch]));
                        values.sum::<f64>() / sum
                    }));
                }
            }
        }
        result
    }
}

fn nmse(found: &[f64], expected: &[f64]) -> f64 {
    let error: f64 = found.iter().zip(expected).map(|(found, expected)| (found - expected).powi(2)).sum();
    error / expected.iter().map(|value| value * value).sum::<f64>()
}

/// On all cores, and on one of each column.
const FAMILIES: [&Family; 2] = [&attention::FAMILY, &rings::attention::FAMILY];

/// Runs attention on a device for each family, as far as there are devices; compares it with the definition and the reference kernel.
fn compare(devices: &mut [Option<Device>], shape: Shape, operands: &Operands) {
    for (device, family) in devices.iter_mut().zip(FAMILIES) {
        compare_family(device, family, shape, operands);
    }
}

fn compare_family(device: &mut Option<Device>, family: &Family, shape: Shape, operands: &Operands) -> Timing {
    let scale = 1.0 / (shape.k as f32).sqrt();
    let node = operands.node(shape, scale);
    let kernel = (family.build)(&node, &aie2()).unwrap_or_else(|error| panic!("{error}"));
    let device = device.get_or_insert_with(|| Device::new(&kernel));
    let mut buffers: Vec<Vec<u8>> = [&operands.q, &operands.k, &operands.v].map(|data| data.bytes.clone()).into();
    buffers.extend([&operands.mask, &operands.sinks].into_iter().flatten().map(|data| data.bytes.clone()));
    let sources = buffers.clone();
    buffers.push(vec![0xAA; node.output.span_bytes()]);
    let timing = device.run(&kernel, buffers.iter_mut().map(Vec::as_mut_slice).collect());
    let floats = |bytes: &[u8]| -> Vec<f64> {
        bytes.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()).into()).collect()
    };
    let found = floats(buffers.last().unwrap());
    let mut reference = vec![0; node.output.span_bytes()];
    let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    table::lookup("FLASH_ATTN_EXT").unwrap().reference(&node).unwrap().run(&sources, &mut reference).unwrap();
    let expected = operands.expected(shape, scale);
    let of_reference = nmse(&floats(&reference), &expected);
    let of_found = nmse(&found, &expected);
    println!(
        "{} {shape:?}: NMSE {of_found:e}, of the reference {of_reference:e}; {} cycles",
        family.name, timing.cycles
    );
    assert!(of_reference < 1e-6, "the reference: {of_reference:e}");
    assert!(of_found < 1e-4, "NMSE {of_found:e}; found {:?}, expected {:?}", &found[..8], &expected[..8]);
    timing
}

fn run(shape: Shape, dtype: DataType, mask: bool) {
    compare(&mut [None, None], shape, &Operands::random(shape, dtype, mask, &mut Rng::with_seed(5)));
}

#[rstest]
#[case::one_head(Shape::of_one_token(64, 1, 1, 64))]
#[case::four_heads(Shape::of_one_token(64, 4, 1, 64))]
#[case::as_smollm(Shape::of_one_token(64, 9, 3, 256))]
#[case::seven_heads(Shape::of_one_token(16, 7, 1, 96))]
#[case::many_items(Shape::of_one_token(16, 64, 64, 32))]
#[case::few_keys(Shape::of_one_token(32, 2, 2, 18))]
#[case::tiles_that_overlap(Shape::of_one_token(64, 4, 1, 330))]
#[case::unequal_elements(Shape { v: 32, ..Shape::of_one_token(96, 4, 2, 128) })]
#[case::as_a_cache_lies(Shape { interleaved: true, ..Shape::of_one_token(64, 6, 3, 144) })]
#[case::three_tokens(Shape { tokens: 3, batch: 2, ..Shape::of_one_token(64, 4, 2, 128) })]
fn shapes(#[case] shape: Shape, #[values(false, true)] mask: bool) {
    run(shape, DataType::F16, mask);
}

/// The result is 0 where all keys are masked.
#[test]
fn nothing_attended_to() {
    let shape = Shape { tokens: 2, ..Shape::of_one_token(32, 4, 1, 80) };
    let mut operands = Operands::random(shape, DataType::F16, true, &mut Rng::with_seed(7));
    for key in 0..shape.keys {
        operands.mask.as_mut().unwrap().set_half([key, 0, 0, 0], 0xFC00);
    }
    compare(&mut [None, None], shape, &operands);
}

#[rstest]
#[case::alibi(9, 8.0, 0.0)]
#[case::alibi_of_eight(8, 4.0, 0.0)]
#[case::soft_cap(2, 0.0, 1.5)]
#[case::both(4, 8.0, 10.0)]
fn bias_and_cap(#[case] heads: usize, #[case] bias: f32, #[case] cap: f32) {
    let shape = Shape { tokens: 2, ..Shape::of_one_token(32, heads, 1, 80) };
    let operands = Operands::random(shape, DataType::F16, true, &mut Rng::with_seed(13));
    compare(&mut [None, None], shape, &Operands { bias, cap, ..operands });
}

#[rstest]
#[case::one_token(Shape::of_one_token(64, 6, 2, 80), false)]
#[case::three_heads(Shape { tokens: 3, ..Shape::of_one_token(32, 3, 1, 64) }, true)]
#[case::many_items(Shape { tokens: 2, ..Shape::of_one_token(16, 24, 24, 32) }, true)]
fn sinks(#[case] shape: Shape, #[case] mask: bool) {
    let mut random = Rng::with_seed(19);
    let operands = Operands::random(shape, DataType::F16, mask, &mut random);
    let sinks = Data::random(Tensor::contiguous(DataType::F32, [shape.heads, 1, 1, 1]), &mut random);
    compare(&mut [None], shape, &Operands { sinks: Some(sinks), ..operands });
}

/// A soft cap does not need a mask.
#[test]
fn cap_without_mask() {
    let shape = Shape::of_one_token(64, 4, 1, 64);
    let operands = Operands::random(shape, DataType::BF16, false, &mut Rng::with_seed(17));
    compare(&mut [None, None], shape, &Operands { cap: 2.0, ..operands });
}

#[rstest]
fn types(#[values(DataType::F16, DataType::BF16, DataType::F32)] dtype: DataType) {
    run(Shape::of_one_token(32, 4, 2, 64), dtype, true);
}

/// One PDI of a family for all shapes, and nothing that one dispatch leaves behind changes the next.
#[test]
fn dispatches_follow_each_other() {
    let (mut devices, mut random) = ([None, None], Rng::with_seed(9));
    for (shape, dtype, mask) in [
        (Shape::of_one_token(32, 4, 1, 64), DataType::F16, true),
        (Shape::of_one_token(64, 2, 2, 80), DataType::BF16, false),
        (Shape { tokens: 2, ..Shape::of_one_token(32, 4, 1, 66) }, DataType::F16, true),
    ] {
        compare(&mut devices, shape, &Operands::random(shape, dtype, mask, &mut random));
    }
}

/// What is not taken is an error with a reason, on any shape.
#[rstest]
#[case::elements(Shape::of_one_token(40, 4, 1, 64), "multiples of 16")]
#[case::keys(Shape::of_one_token(64, 4, 1, 8), "16 or more")]
#[case::odd_keys(Shape::of_one_token(64, 4, 1, 113), "even number")]
#[case::long_rows(Shape::of_one_token(4096, 4, 1, 64), "do not fit")]
fn rejections(#[case] shape: Shape, #[case] reason: &str) {
    let operands = Operands::random(shape, DataType::F16, true, &mut Rng::with_seed(3));
    let error = families::build(&operands.node(shape, 1.0), &aie2()).unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
}
