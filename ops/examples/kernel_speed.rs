//! Speed of the reference kernels on this machine: `cargo run --release -p aie-ops --example kernel_speed`.
//!
//! Products of the shapes a small language model has are reported in bytes of weights per second (few columns) or floating
//! point operations per second (many columns), the other kernels in bytes touched per second, and blocks, with rows that stay in the
//! cache, in elements per second. The best of several runs counts, because other processes can only slow a run down.

use aie_ops::blocks::{can_decode, can_encode, decode, encode};
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use std::hint::black_box;
use std::time::Instant;

/// Bytes that are sane numbers in every float type: bf16 and f32 values around 1.
fn numbers(bytes: usize) -> Vec<u8> {
    [0x80, 0x3f, 0x00, 0x3f].into_iter().cycle().take(bytes).collect()
}

/// The shortest run of `work` in seconds.
fn best(mut work: impl FnMut()) -> f64 {
    let (mut best, mut runs, end) = (f64::MAX, 0, Instant::now());
    while runs < 5 || end.elapsed().as_millis() < 400 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

fn seconds(op: &str, params: [i32; 16], output: Tensor, sources: &[Option<Tensor>]) -> (f64, usize) {
    let node = Node::new(op, OpParams(params), output, sources.to_vec());
    let operation = table::lookup(op).expect("the operation is in the table");
    let kernel = operation.reference(&node).expect("the node is supported");
    let inputs: Vec<Vec<u8>> = node
        .inputs()
        .map(|tensor| match tensor.dtype {
            DataType::I32 | DataType::I64 => vec![0; tensor.span_bytes()],
            _ => numbers(tensor.span_bytes()),
        })
        .collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut result = vec![0; output.span_bytes()];
    let bytes = node.arguments().map(Tensor::span_bytes).sum();
    let run = || kernel.run(black_box(&inputs), black_box(&mut result)).expect("the kernel runs");
    (best(run), bytes)
}

fn product(dtype: DataType, m: usize, k: usize, n: usize, batch: [usize; 2]) {
    let weights = Tensor::contiguous(dtype, [k, m, batch[0], 1]);
    let right = Tensor::contiguous(DataType::F32, [k, n, batch[1], 1]);
    let output = Tensor::contiguous(DataType::F32, [m, n, batch[1], 1]);
    let (time, _) = seconds("MUL_MAT", [0; 16], output, &[Some(weights), Some(right)]);
    let flops = 2.0 * (m * k * n * batch[1]) as f64;
    let bytes = weights.span_bytes() as f64;
    let shape = format!("{dtype} {m}x{k} by {n} columns, batches {}:{}", batch[0], batch[1]);
    println!(
        "{shape:<46} {:>9.1} us {:>8.1} GFLOP/s {:>7.1} GB/s of weights",
        time * 1e6,
        flops / time / 1e9,
        bytes / time / 1e9
    );
}

fn other(op: &str, params: [i32; 16], output: Tensor, sources: &[Option<Tensor>]) {
    let (time, bytes) = seconds(op, params, output, sources);
    println!("{op:<12} {:<33?} {:>9.1} us {:>7.1} GB/s", output.ne, time * 1e6, bytes as f64 / time / 1e9);
}

/// Blocks of a type read and written.
fn blocks(dtype: DataType) {
    const ELEMENTS: usize = 4096;
    let mut values: Vec<f32> = (0..ELEMENTS).map(|i| ((i * i) as f32 * 0.37).sin()).collect();
    let mut bytes: Vec<u8> = (0..dtype.row_bytes(ELEMENTS)).map(|i| (i * i / 7 % 97) as u8).collect();
    let rate = |seconds: f64| 16.0 * ELEMENTS as f64 / seconds / 1e9;
    let encode = || (0..16).for_each(|_| assert!(encode(dtype, black_box(&values), black_box(&mut bytes))));
    let written = if can_encode(dtype) { rate(best(encode)) } else { 0.0 };
    let read = rate(best(|| (0..16).for_each(|_| assert!(decode(dtype, black_box(&bytes), black_box(&mut values))))));
    println!("{:<12} {read:>9.2} G elements/s decoded {written:>8.3} encoded", dtype.name());
}

fn main() {
    use DataType::{BF16, F16, F32, I64, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0};
    println!("{} threads", rayon::current_num_threads());
    for (m, k) in [(576, 576), (192, 576), (1536, 576), (576, 1536), (49152, 576), (4096, 4096), (14336, 4096)] {
        product(BF16, m, k, 1, [1, 1]);
    }
    for dtype in [Q4_0, Q4_1, Q8_0, Q4_K, Q6_K] {
        for (m, k) in [(192, 576), (576, 576), (1536, 576), (576, 1536), (49152, 576)] {
            product(dtype, m, k / dtype.block_elements() * dtype.block_elements(), 1, [1, 1]);
        }
        for n in [2, 4, 8, 16, 32, 128] {
            product(dtype, 1536, 512, n, [1, 1]);
        }
    }
    for n in [2, 4, 8, 16, 32, 128, 512] {
        product(BF16, 1536, 576, n, [1, 1]);
    }
    product(BF16, 4096, 4096, 512, [1, 1]);
    product(F32, 4096, 4096, 1, [1, 1]);
    product(F32, 1024, 1024, 512, [1, 1]);
    product(F16, 1536, 576, 512, [1, 1]);
    product(BF16, 256, 64, 1, [3, 9]);
    product(BF16, 64, 256, 1, [3, 9]);
    product(BF16, 512, 64, 512, [3, 9]);
    product(BF16, 64, 512, 512, [3, 9]);

    let f32s = |ne| Tensor::contiguous(F32, ne);
    let mut scaled = [0; 16];
    scaled[0] = 0.125_f32.to_bits().cast_signed();
    let mut rope = [0; 16];
    (rope[1], rope[4]) = (64, 8192);
    for (i, value) in [(5, 100_000.0_f32), (6, 1.0), (8, 1.0), (9, 32.0), (10, 1.0)] {
        rope[i] = value.to_bits().cast_signed();
    }
    for n in [1, 512] {
        let x = f32s([576, n, 1, 1]);
        let wide = f32s([1536, n, 1, 1]);
        let scores = f32s([512, n, 9, 1]);
        let heads = f32s([64, 9, n, 1]);
        other("ADD", [0; 16], x, &[Some(x), Some(x)]);
        other("MUL", [0; 16], x, &[Some(x), Some(f32s([576, 1, 1, 1]))]);
        other("RMS_NORM", [0; 16], x, &[Some(x)]);
        other("SILU", [0; 16], wide, &[Some(wide)]);
        other("SWIGLU", [0; 16], wide, &[Some(wide), Some(wide)]);
        other("SOFT_MAX", scaled, scores, &[Some(scores), Some(f32s([512, n, 1, 1]))]);
        other("ROPE", rope, heads, &[Some(heads), Some(Tensor::contiguous(DataType::I32, [n, 1, 1, 1]))]);
        let permuted = Tensor { nb: [4, 256 * n, 256, 2304 * n], ne: [64, 9, n, 1], dtype: F32 };
        other("CONT", [0; 16], f32s([576, n, 1, 1]), &[Some(permuted)]);
        let cache = Tensor::contiguous(F16, [192, 8192, 1, 1]);
        let indices = Tensor::contiguous(I64, [n, 1, 1, 1]);
        other("SET_ROWS", [0; 16], cache, &[Some(f32s([192, n, 1, 1])), Some(indices), Some(cache)]);
        let transposed = Tensor::contiguous(F16, [1, 192 * 8192, 1, 1]);
        let indices = Tensor::contiguous(I64, [192 * n, 1, 1, 1]);
        other("SET_ROWS", [0; 16], transposed, &[Some(f32s([1, 192 * n, 1, 1])), Some(indices), Some(transposed)]);
    }
    DataType::ALL.iter().copied().filter(|dtype| can_decode(*dtype)).for_each(blocks);
}
