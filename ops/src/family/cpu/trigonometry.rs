//! Sine and cosine of runs of numbers, in a form that the compiler can vectorise.
//!
//! x = n pi/2 + r with |r| <= pi/4, in double precision with pi/2 in two parts. That is exact enough up to [`LIMIT`]; the few
//! who need more are computed one by one.

/// Up to this the product of n with the first part of pi/2 is exact.
const LIMIT: f32 = 500_000.0;

/// `sin(x + quarters pi/2)` within [`LIMIT`].
#[inline(always)]
fn sine(x: f32, quarters: u64) -> f32 {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // 33 bits of pi/2, and the rest.
    const HIGH: f64 = f64::from_bits(0x3ff9_21fb_5440_0000);
    const LOW: f64 = 6.077_100_506_506_192e-11;
    let x = f64::from(x);
    let shifted = x * std::f64::consts::FRAC_2_PI + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * HIGH) - n * LOW;
    let z = r * r;
    let mut sin = 1.0 / 362_880.0;
    sin = sin * z - 1.0 / 5040.0;
    sin = sin * z + 1.0 / 120.0;
    sin = sin * z - 1.0 / 6.0;
    let sin = r + r * z * sin;
    let mut cos = -1.0 / 3_628_800.0;
    cos = cos * z + 1.0 / 40_320.0;
    cos = cos * z - 1.0 / 720.0;
    cos = cos * z + 1.0 / 24.0;
    cos = cos * z - 0.5;
    let cos = 1.0 + z * cos;
    let quadrant = shifted.to_bits().wrapping_add(quarters);
    let value = if quadrant & 1 == 0 { sin } else { cos };
    (if quadrant & 2 == 0 { value } else { -value }) as f32
}

#[inline(always)]
fn fill(y: &mut [f32], x: &[f32], quarters: u64, far: fn(f32) -> f32) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = sine(*x, quarters);
    }
    let beyond = |x: &f32| x.abs() > LIMIT;
    if x.iter().fold(false, |found, x| found | beyond(x)) {
        for (y, x) in y.iter_mut().zip(x).filter(|(_, x)| beyond(x)) {
            *y = far(*x);
        }
    }
}

/// The sine of each element, to one unit in the last place. Infinity and NaN give NaN.
#[inline(always)]
pub fn sin(y: &mut [f32], x: &[f32]) {
    fill(y, x, 0, libm::sinf);
}

/// The cosine of each element, to one unit in the last place. Infinity and NaN give NaN.
#[inline(always)]
pub fn cos(y: &mut [f32], x: &[f32]) {
    fill(y, x, 1, libm::cosf);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(x: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (mut s, mut c) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        sin(&mut s, x);
        cos(&mut c, x);
        (s, c)
    }

    #[test]
    fn agree_with_double_precision() {
        let near = (-7000..7000).map(|i| i as f32 * 1e-3);
        let multiples = (1..200_000).step_by(37).map(|n| (f64::from(n) * std::f64::consts::FRAC_PI_2) as f32);
        let large = (0..200).map(|i| 1.7_f32.powi(i % 160) * 0.1);
        let x: Vec<f32> = near.chain(multiples).chain(large).collect();
        let (s, c) = values(&x);
        for ((x, s), c) in x.iter().zip(s).zip(c) {
            for (found, exact) in [(s, f64::from(*x).sin()), (c, f64::from(*x).cos())] {
                assert!((f64::from(found) - exact).abs() <= 1.3e-7 * exact.abs(), "at {x}: {found}, expected {exact}");
            }
        }
    }

    #[test]
    fn ends_of_the_range() {
        let (s, c) = values(&[0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
        assert_eq!((s[0], c[0]), (0.0, 1.0));
        assert!(s[1..].iter().chain(&c[1..]).all(|y| y.is_nan()));
    }
}
