//! How fast blocks are decoded and encoded, on one core, with rows that stay in the cache.
//!
//! `cargo run --release -p aie-ops --example block_speed [TYPE...]`; rates are in 10^9 elements per second, the best of many
//! repetitions.

use aie_ops::DataType;
use aie_ops::blocks::{can_decode, can_encode, decode, encode};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ELEMENTS: usize = 4096;

/// Elements in 10^9 per second of `work`, which handles [`ELEMENTS`].
fn rate(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < Duration::from_millis(100) {
        let start = Instant::now();
        (0..16).for_each(|_| work());
        best = best.min(start.elapsed());
    }
    16.0 * ELEMENTS as f64 / best.as_nanos() as f64
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    println!("{:10} {:>8} {:>8}", "type", "decode", "encode");
    for &dtype in DataType::ALL.iter().filter(|dtype| can_decode(**dtype)) {
        if !wanted.is_empty() && !wanted.iter().any(|name| DataType::from_name(name) == Some(dtype)) {
            continue;
        }
        let mut values: Vec<f32> = (0..ELEMENTS).map(|i| ((i * i) as f32 * 0.37).sin()).collect();
        let mut bytes: Vec<u8> = (0..dtype.row_bytes(ELEMENTS)).map(|i| (i * i / 7 % 97) as u8).collect();
        let written = if can_encode(dtype) {
            format!("{:8.3}", rate(|| assert!(encode(dtype, black_box(&values), black_box(&mut bytes)))))
        } else {
            "-".to_owned()
        };
        let read = rate(|| assert!(decode(dtype, black_box(&bytes), black_box(&mut values))));
        println!("{:10} {read:8.2} {written:>8}", dtype.name());
    }
}
