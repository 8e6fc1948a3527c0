//! Errors of the functions over all bf16 inputs, and over f32 ones, beside f64.

use super::model::{Model, wide};
use super::*;
use rstest::rstest;

type Floats = [f32; 16];

/// The largest relative error over normal results, in units of 2^-23, and where; results that are not normal numbers are compared by
/// class. `inputs` are those that the function is made for.
fn largest_error(
    inputs: impl Iterator<Item = f32>,
    function: impl Fn(&mut Model, Floats) -> Floats,
    exact: impl Fn(f64) -> f64,
) -> (f64, f32) {
    let inputs: Vec<f32> = inputs.collect();
    let mut worst = (0.0, 0.0);
    for chunk in inputs.chunks(16) {
        let mut x = [1.0; 16];
        x[..chunk.len()].copy_from_slice(chunk);
        let y = function(&mut Model::default(), x);
        for (x, y) in x.into_iter().zip(y).take(chunk.len()) {
            let expected = exact(x.into());
            let as_f32 = expected as f32;
            let error = if as_f32.is_infinite() {
                if y == as_f32 { 0.0 } else { f64::INFINITY }
            } else if as_f32.abs() < f32::MIN_POSITIVE {
                if y.abs() <= f32::MIN_POSITIVE * 1.01 { 0.0 } else { f64::INFINITY }
            } else {
                ((f64::from(y) - expected) / expected).abs() * 2f64.powi(23)
            };
            if error.is_nan() || error > worst.0 {
                worst = (if error.is_nan() { f64::INFINITY } else { error }, x);
            }
        }
    }
    worst
}

/// All finite bf16 that are not denormal.
fn all() -> impl Iterator<Item = f32> {
    (0..=u16::MAX).map(wide).filter(|x| x.is_normal() || *x == 0.0)
}

/// f32 with all mantissa bits in use.
fn random(count: u32, from: f32, to: f32) -> impl Iterator<Item = f32> {
    (0..count).map(move |i| {
        let bits = i.wrapping_mul(0x9e37_79b9) ^ (i >> 3).wrapping_mul(0x85eb_ca6b);
        from + (to - from) * (bits as f32 / u32::MAX as f32)
    })
}

fn check(name: &str, (error, at): (f64, f32), bound: f64) {
    println!("{name}: {error:.2} at {at:e}");
    assert!(error <= bound, "{name}: {error} units in the last place at {at:e}, expected at most {bound}");
}

/// The bits of f32 near all f16 and between two, beyond them, and any.
#[test]
fn halves_are_the_nearest() {
    let near = (0..=0x7FFFu32).flat_map(|half| {
        let bits = (half << 13).wrapping_add(0x3800_0000) & 0x7FFF_FFFF;
        [0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF].map(|more| bits.wrapping_add(more))
    });
    let small = (0..0x400u32)
        .flat_map(|unit| [0.0, 0.25, 0.5, 0.75].map(|part| ((unit as f32 + part) / 16_777_216.0).to_bits()));
    let any = random(10_000, -1.0, 1.0).map(f32::to_bits);
    let mut l = Model::default();
    for bits in near.chain(small).chain(any).flat_map(|bits| [bits, bits | 0x8000_0000]) {
        let x = f32::from_bits(bits);
        let found = half::half(&mut l, [x; 16])[0];
        let expected = ::half::f16::from_f32(x);
        let is_right = if x.is_nan() { found & 0x7FFF > 0x7C00 } else { found == u32::from(expected.to_bits()) };
        assert!(is_right, "{x:e}: {found:#x} instead of {expected:?}");
    }
}

#[test]
fn exponentials() {
    let run = |l: &mut Model, x| exponential::exp(l, x);
    check("exp of bf16", largest_error(all(), run, f64::exp), 12.0);
    check("exp", largest_error(random(40_000, -87.0, 88.6), run, f64::exp), 16.0);
    // Rounding to bf16 loses up to 2^15 units.
    let run = |l: &mut Model, x| exponential::exp_of_negative_coarse(l, x);
    let exact = |x: f64| (-x).exp();
    check("coarse exp of bf16", largest_error(all().filter(|x| (0.0..87.0).contains(x)), run, exact), 12000.0);
    check("coarse exp", largest_error(random(40_000, 0.0, 87.0), run, exact), 18000.0);
    let run = |l: &mut Model, x| exponential::expm1_held(l, x);
    check("expm1 of bf16", largest_error(all().filter(|x| *x < 87.0), run, f64::exp_m1), 16.0);
    check("expm1", largest_error(random(40_000, -3.0, 3.0), run, f64::exp_m1), 40.0);
}

#[test]
fn sigmoids() {
    let exact = |x: f64| 1.0 / (1.0 + (-x).exp());
    let run = |l: &mut Model, x| exponential::sigmoid(l, x);
    let inputs = || all().filter(|x| *x > -86.9);
    check("sigmoid of bf16", largest_error(inputs(), run, exact), 16.0);
    check("sigmoid", largest_error(random(40_000, -30.0, 30.0), run, exact), 16.0);
}

/// In units of 2^-23 of the number that is gated.
#[test]
fn gates() {
    let error = |inputs: Vec<f32>| {
        let mut worst = (0f64, 0f32);
        for x in inputs.as_chunks::<16>().0 {
            let y = exponential::gated(&mut Model::default(), *x, [3.7; 16]);
            for (x, y) in x.iter().zip(y) {
                let expected = 1.0 / (1.0 + (-f64::from(*x)).exp());
                let error = (f64::from(y) / f64::from(3.7f32) - expected).abs() * 2f64.powi(23);
                worst = if error > worst.0 || error.is_nan() { (error, *x) } else { worst };
            }
        }
        worst
    };
    check("gate of bf16", error(all().collect()), 128.0);
    check("gate", error(random(40_000, -30.0, 30.0).collect()), 128.0);
}

#[test]
fn quotients() {
    let run = |l: &mut Model, x| quotient::reciprocal(l, x);
    let inputs = || all().filter(|x| (f32::MIN_POSITIVE..8.0e37).contains(x));
    check("1/d of bf16", largest_error(inputs(), run, f64::recip), 3.0);
    check("1/d", largest_error(random(40_000, 1.0, 4.0), run, f64::recip), 3.0);
    check("1/d, negative", largest_error(random(40_000, -4.0, -1.0), run, f64::recip), 3.0);
    let run = |l: &mut Model, x| quotient::quotient(l, [3.7; 16], x);
    check("3.7/d", largest_error(random(40_000, -9.0, 9.0).chain([0.0, -0.0]), run, |d| f64::from(3.7f32) / d), 6.0);
}

#[test]
fn roots() {
    let run = |l: &mut Model, x| root::reciprocal_root(l, x);
    let inputs = || all().filter(|x| (f32::MIN_POSITIVE..3.2e32).contains(x));
    check("1/sqrt of bf16", largest_error(inputs(), run, |x| x.sqrt().recip()), 3.0);
    check("1/sqrt", largest_error(random(40_000, 1.0, 4.0), run, |x| x.sqrt().recip()), 3.0);
    let run = |l: &mut Model, x| root::root(l, x);
    check("sqrt of bf16", largest_error(all().filter(|x| (0.0..3.2e32).contains(x)), run, f64::sqrt), 5.0);
    check("sqrt", largest_error(random(40_000, 0.0, 100.0), run, f64::sqrt), 5.0);
}

#[test]
fn logarithms() {
    let run = |l: &mut Model, x| logarithm::log(l, x);
    let inputs = || all().filter(|x| *x >= f32::MIN_POSITIVE && *x != 1.0);
    check("log of bf16", largest_error(inputs(), run, f64::ln), 16.0);
    check("log", largest_error(random(40_000, 0.01, 3.0), run, f64::ln), 48.0);
}

/// Absolute errors count, in units of 2^-23 of 1.
#[rstest]
#[case(6.5, 64.0)]
#[case(1000.0, 64.0)]
fn sines_and_cosines(#[case] range: f32, #[case] bound: f64) {
    let mut worst = [0f64; 2];
    let inputs: Vec<f32> = random(20_000, -range, range).collect();
    for chunk in inputs.as_chunks::<16>().0 {
        let (s, c) = trigonometry::of_radians(&mut Model::default(), *chunk);
        for lane in 0..16 {
            let x = f64::from(chunk[lane]);
            worst[0] = worst[0].max((f64::from(s[lane]) - x.sin()).abs() * 2f64.powi(23));
            worst[1] = worst[1].max((f64::from(c[lane]) - x.cos()).abs() * 2f64.powi(23));
        }
    }
    println!("sine and cosine up to {range}: {worst:?}");
    assert!(worst.iter().all(|error| *error <= bound), "{worst:?}");
}

#[test]
fn products_are_those_of_f32() {
    let a: Vec<f32> = random(20_000, -9.0, 9.0).collect();
    let b: Vec<f32> = random(20_001, 0.0, 1e4).skip(1).collect();
    let mut worst = [0f64; 2];
    for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
        let y = product::product(&mut Model::default(), *a, *b);
        let z = product::scaled(&mut Model::default(), *a, 0.1);
        for lane in 0..16 {
            let error = |y: f32, expected: f64| ((f64::from(y) - expected) / expected).abs() * 2f64.powi(23);
            worst[0] = worst[0].max(error(y[lane], f64::from(a[lane]) * f64::from(b[lane])));
            worst[1] = worst[1].max(error(z[lane], f64::from(a[lane]) * f64::from(0.1f32)));
        }
    }
    println!("product, scaled: {worst:?}");
    assert!(worst.iter().all(|error| *error <= 2.0), "{worst:?}");
}

/// Beside the normal distribution itself; the formula has an error of 7.5e-8.
#[test]
fn tails_of_the_normal_distribution() {
    let inputs: Vec<f32> = random(20_000, 0.0, 13.0).collect();
    let mut worst = 0f64;
    for z in inputs.as_chunks::<16>().0 {
        let t = z.map(|z| 1.0 / (1.0 + exponential::ERF_SLOPE * z));
        let y = exponential::normal_tail(&mut Model::default(), t);
        for lane in 0..16 {
            let z = f64::from(z[lane]);
            let tail = f64::from(y[lane]) * (-z * z / 2.0).exp();
            worst = worst.max((tail - 0.5 * libm::erfc(z * std::f64::consts::FRAC_1_SQRT_2)).abs());
        }
    }
    println!("tail of the normal distribution: {worst:e}");
    assert!(worst < 4e-7, "{worst:e}");
}
