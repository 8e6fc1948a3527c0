//! A logarithm that the compiler can vectorise.

/// `ln(x)` of a double to ten digits, for results that are rounded to f32 in the end. As in IEEE arithmetic the logarithm of
/// zero is minus infinity and that of a negative number is none; NaN stays NaN. Subnormal doubles, which no f32 widens
/// to, are not handled.
///
/// x = 2^k m with m between sqrt(1/2) and sqrt(2), and ln m = 2 artanh(s) with s = (m - 1) / (m + 1), |s| < 0.172.
#[inline(always)]
pub fn log(x: f64) -> f64 {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const ONE: u64 = 1023 << 52;
    // With these bits for an exponent the low bits are an integer; conversions of integers vectorise on fewer machines.
    const INTEGER: u64 = 0x4330_0000_0000_0000;
    let bits = x.to_bits();
    let exponent = bits.wrapping_sub(SQRT_HALF).wrapping_add(ONE) >> 52;
    let k = f64::from_bits(exponent | INTEGER) - (4_503_599_627_370_496.0 + 1023.0);
    let m = f64::from_bits(bits.wrapping_sub(exponent << 52).wrapping_add(ONE));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut p = 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    let ln = 2.0 * (s + s * z * p) + k * std::f64::consts::LN_2;
    let ln = if x == 0.0 { f64::NEG_INFINITY } else { ln };
    let ln = if x < 0.0 { f64::NAN } else { ln };
    // Infinity and NaN themselves.
    if x < f64::INFINITY { ln } else { x }
}

#[cfg(test)]
mod tests {
    use super::log;

    #[test]
    fn has_nine_digits_everywhere() {
        for bits in (0..0x7f80_0000_u32).step_by(10_007) {
            let x = f64::from(f32::from_bits(bits));
            let (found, exact) = (log(x), x.ln());
            assert!(found == exact || (found - exact).abs() <= 1e-9 * exact.abs(), "ln({x}) = {found}, not {exact}");
        }
        for i in -1000..1000 {
            let x = 1.0 + f64::from(i) * 1e-6;
            assert!((log(x) - x.ln()).abs() <= 1e-9 * x.ln().abs());
        }
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(log(0.0), f64::NEG_INFINITY);
        assert_eq!(log(-0.0), f64::NEG_INFINITY);
        assert_eq!(log(f64::INFINITY), f64::INFINITY);
        assert_eq!(log(1.0), 0.0);
        assert!(log(-1.0).is_nan() && log(f64::NAN).is_nan() && log(f64::NEG_INFINITY).is_nan());
    }
}
