//! What is decoded and encoded: everything a byte can be in every place, and rows at the edges of every rule.

use aie_ops::DataType;

/// Pseudo-random numbers (SplitMix64), the same in every run.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.bits() as u8).collect()
    }

    /// From -1 to 1.
    fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    /// About as a normal distribution with variance one.
    fn normal(&mut self) -> f32 {
        (0..3).map(|_| self.unit()).sum()
    }
}

/// The upper bytes of the f16 numbers in a block, where they lie together.
fn upper_bytes(dtype: DataType) -> &'static [usize] {
    match dtype {
        DataType::Q4_1 | DataType::Q5_1 | DataType::Q4_K | DataType::Q5_K => &[1, 3],
        DataType::Q2_K => &[81, 83],
        DataType::Q3_K => &[109],
        DataType::Q6_K => &[209],
        DataType::TQ1_0 => &[53],
        DataType::TQ2_0 => &[65],
        DataType::MXFP4 | DataType::NVFP4 | DataType::IQ1_M => &[],
        _ => &[1],
    }
}

/// Takes a bit off exponents of f16 numbers that stand for infinity or NaN.
fn make_finite(dtype: DataType, block: &mut [u8]) {
    for &upper in upper_bytes(dtype) {
        if block[upper] & 0x7c == 0x7c {
            block[upper] &= !4;
        }
    }
    // Here the number is in the upper halves of four bytes, its exponent in those of two.
    if dtype == DataType::IQ1_M && block[55] & 0x70 == 0x70 && block[53] & 0xc0 == 0xc0 {
        block[53] &= !0x40;
    }
}

/// Blocks to decode, as rows of whole blocks: each place of a block with each value a byte can have, the rest random, so
/// that scales are of every finite kind, subnormal ones too; then blocks of one value only. What a block with an infinite or
/// NaN scale decodes to is not defined by the formats' module, so there are none.
pub fn blocks(dtype: DataType) -> impl Iterator<Item = Vec<u8>> {
    let length = dtype.block_bytes();
    let places = (0..length).map(move |place| {
        let mut random = Random(place as u64);
        let mut row = random.bytes(256 * length);
        row.chunks_mut(length).zip(0..).for_each(|(block, value)| block[place] = value);
        row
    });
    let uniform = (0..=u8::MAX).flat_map(move |value| vec![value; length]).collect();
    places.chain(std::iter::once(uniform)).map(move |mut row| {
        row.chunks_mut(length).for_each(|block| make_finite(dtype, block));
        row
    })
}

/// Blocks in each row to encode.
const BLOCKS: usize = 4;

/// Rows to encode, with what they are.
pub fn rows(elements: usize) -> impl Iterator<Item = (String, Vec<f32>)> {
    let length = BLOCKS * elements;
    let row = move |name: String, value: &mut dyn FnMut(usize) -> f32| (name, (0..length).map(value).collect());
    let mut all: Vec<(String, Vec<f32>)> = Vec::new();

    // Ordinary weights and activations.
    for seed in 0..64 {
        let mut random = Random(seed);
        all.push(row(format!("normal {seed}"), &mut |_| random.normal()));
        let shift = random.normal() * 2.0;
        all.push(row(format!("normal {seed} about {shift}"), &mut |_| random.normal() + shift));
        all.push(row(format!("cubes {seed}"), &mut |_| random.normal().powi(3)));
        all.push(row(format!("sparse {seed}"), &mut |_| {
            if random.bits().is_multiple_of(8) { random.unit() } else { 0.0 }
        }));
        all.push(row(format!("two in {elements} {seed}"), &mut |_| {
            if random.bits() % elements as u64 <= 1 { random.unit() } else { 0.0 }
        }));
    }
    // Every size of number, subnormal ones and the largest too.
    for exponent in -149..=127_i32 {
        let mut random = Random(exponent.unsigned_abs().into());
        let size = 2.0_f64.powi(exponent);
        all.push(row(format!("unit times 2^{exponent}"), &mut |_| (f64::from(random.unit()) * size) as f32));
        all.push(row(format!("just below 2^{exponent}"), &mut |i| {
            let below = f32::from_bits((size as f32).to_bits().saturating_sub((i / elements * 3 + i % 7) as u32));
            if i % 2 == 0 { below } else { -below }
        }));
        all.push(row(format!("2^{exponent} among little"), &mut |i| {
            if i % elements == 5 { size as f32 } else { (size * 1e-3 * f64::from(random.unit())) as f32 }
        }));
    }
    // Ties of rounding, of extremes and of levels; constants; zeros of both signs.
    for parts in 1..=64 {
        all.push(row(format!("integers to {parts} halved"), &mut |i| {
            (i % (2 * parts + 1)) as f32 * 0.5 - parts as f32 * 0.5
        }));
        all.push(row(format!("steps of 1/{parts}"), &mut |i| (i % (parts + 1)) as f32 / parts as f32));
        all.push(row(format!("constant {parts}/8"), &mut |_| parts as f32 / 8.0));
        all.push(row(format!("constant -{parts}/8"), &mut |_| parts as f32 / -8.0));
        all.push(row(format!("signs by {parts}"), &mut |i| if i / parts % 2 == 0 { 1.5 } else { -1.5 }));
        all.push(row(format!("ramp of {parts}"), &mut |i| i as f32 * parts as f32));
        all.push(row(format!("one at {parts}"), &mut |i| if i % elements == parts % elements { -3.0 } else { 0.0 }));
    }
    all.push(row("zeros".to_owned(), &mut |_| 0.0));
    all.push(row("negative zeros".to_owned(), &mut |_| -0.0));
    all.push(row("zeros of both signs".to_owned(), &mut |i| if i % 2 == 0 { 0.0 } else { -0.0 }));
    // A block of nothing among others, and sub-blocks of nothing.
    let mut random = Random(0);
    all.push(row("nothing in every second block".to_owned(), &mut |i| {
        if (i / elements).is_multiple_of(2) { random.normal() } else { 0.0 }
    }));
    all.push(row("nothing in every second sub-block".to_owned(), &mut |i| {
        if (i / 16).is_multiple_of(2) { random.normal() } else { 1e-17 }
    }));
    all.into_iter()
}
