//! An exponential that the compiler can vectorise.

/// `exp(x)` to about one unit in the last place. Inputs beyond the range give 0 and infinity; NaN stays NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, exp(x) = 2^n exp(r). The series of exp(r) to the seventh power leaves an error below
/// 6e-9. The power of two is applied in two halves, so that neither leaves the range of normal numbers.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding this leaves the rounded integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; the product of the first with a small integer is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned());
    p * power(half) * power(n - half)
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn is_within_two_units_in_the_last_place() {
        let mut x = -87.0_f32;
        while x < 88.7 {
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.5e-7, "exp({x}) is off by {error}");
            x += 0.001_37;
        }
    }

    #[test]
    fn keeps_its_manners_at_the_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1000.0), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(1000.0), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }
}
