//! The exponential and its relatives, the logarithm and the normal distribution among them, in forms that the compiler can vectorise:
//! no branches, no tables.

/// Adding this leaves the rounded integer in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`: the remainder, and the integer.
#[inline(always)]
fn reduce(x: f32) -> (f32, i32) {
    // ln 2 in two parts; the product of the first with a small integer is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    (r, shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed())
}

/// `exp(r) - 1` for a remainder. The series to the seventh power leaves an error below 6e-9, relative to exp(r).
#[inline(always)]
fn series(r: f32) -> f32 {
    let mut p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p * r
}

/// `x` times two to the power `n`, in two halves, so that neither leaves the range of normal numbers.
#[inline(always)]
fn scale(x: f32, n: i32) -> f32 {
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned());
    let half = n >> 1;
    x * power(half) * power(n.wrapping_sub(half))
}

/// `exp(x)` to about one unit in the last place. Inputs beyond the range give 0 and infinity; NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (r, n) = reduce(x);
    scale(series(r) + 1.0, n)
}

/// `exp(x) - 1` without the loss near zero, to about two units in the last place. NaN stays NaN.
///
/// With x = n ln 2 + r it is 2^n ((exp(r) - 1) + (1 - 2^-n)), where the second term is zero for n = 0.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let x = if x > 89.0 { 89.0 } else { x };
    // Below, the result is -1 in this precision.
    let x = if x < -20.0 { -20.0 } else { x };
    let (r, n) = reduce(x);
    scale(series(r) + (1.0 - scale(1.0, n.wrapping_neg())), n)
}

/// `tanh(x)`, by `expm1(-2 |x|)`.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let e = expm1(-2.0 * x.abs());
    (-e / (2.0 + e)).copysign(x)
}

/// `exp(x)` of a double to twelve digits, for results that are rounded to f32 in the end. Zero below -700, as for f32; not
/// meant for arguments above 700. NaN stays NaN.
#[inline(always)]
pub fn exp_double(x: f64) -> f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let x = if x < -700.0 { -700.0 } else { x };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let r = x - (shifted - ROUND) * std::f64::consts::LN_2;
    let mut p = 1.0 / 3_628_800.0;
    p = p * r + 1.0 / 362_880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits());
    p * f64::from_bits(n.wrapping_add(1023) << 52)
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `1 / (1 + exp(-x))` with the exponential rounded correctly, as the C library's is, so that the result has ggml's bits.
/// A router of experts sorts by these values: where two inputs are neighbours, one unit in the last place decides which
/// expert comes first.
#[inline(always)]
pub fn sigmoid_rounded(x: f32) -> f32 {
    // Beyond 89 the exponential is infinite in single precision.
    let x = if x < -100.0 { -100.0 } else { x };
    1.0 / (1.0 + exp_double(-f64::from(x)) as f32)
}

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

/// The probability that a standard normal variable is below `x`: `(1 + erf(x / sqrt(2))) / 2`, to nine digits, in the lower
/// tail too, where the sum with the error function would leave nothing. NaN stays NaN.
///
/// With z = |x| / sqrt(2) and t = 2 / (2 + z), erfc(z) = t exp(-z^2) q(2 t - 1). The polynomial q interpolates at the
/// Chebyshev points; its error is below 1e-9.
#[inline(always)]
pub fn normal_distribution(x: f32) -> f64 {
    const Q: [f64; 14] = [
        0.510_791_352_757,
        0.343_580_342_063,
        0.139_736_032_932,
        0.018_221_129_907,
        -0.010_755_119_365,
        -0.003_239_821_487,
        0.001_544_061_870,
        0.000_420_051_230,
        -0.000_328_128_499,
        -0.000_021_339_524,
        0.000_067_713_748,
        -0.000_010_615_490,
        -0.000_008_517_704,
        0.000_002_857_532,
    ];
    let x = f64::from(x);
    let z = x.abs() * std::f64::consts::FRAC_1_SQRT_2;
    let t = 2.0 / (2.0 + z);
    let u = 2.0 * t - 1.0;
    let mut q = 0.0;
    for coefficient in Q.iter().rev() {
        q = q * u + coefficient;
    }
    let tail = 0.5 * t * q * exp_double(-0.5 * x * x);
    if x > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(from: f32, to: f32, step: f32) -> impl Iterator<Item = f32> {
        (0..((to - from) / step) as i32).map(move |i| from + i as f32 * step)
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for x in sweep(-87.0, 88.7, 0.001_37) {
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.5e-7, "exp({x}) is off by {error}");
        }
    }

    #[test]
    fn expm1_and_tanh_are_exact_near_zero_too() {
        for x in sweep(-30.0, 88.7, 0.001_37).chain(sweep(-1e-3, 1e-3, 1.3e-6)) {
            for (found, exact) in [(expm1(x), f64::from(x).exp_m1()), (tanh(x), f64::from(x).tanh())] {
                let error = (f64::from(found) - exact).abs();
                assert!(error <= 3e-7 * exact.abs(), "at {x}: {found}, expected {exact}");
            }
        }
    }

    #[test]
    fn doubles_have_twelve_digits() {
        for x in sweep(-600.0, 600.0, 0.037) {
            let exact = f64::from(x).exp();
            assert!((exp_double(x.into()) / exact - 1.0).abs() < 1e-12, "at {x}");
        }
        assert!(exp_double(f64::NEG_INFINITY) < 1e-300 && exp_double(f64::NAN).is_nan());
    }

    #[test]
    fn the_rounded_sigmoid_has_the_bits_of_the_c_library() {
        let values = sweep(-30.0, 30.0, 1.37e-4).chain(sweep(-1.0, 1.0, 1.19e-6)).collect::<Vec<_>>();
        let different = values.iter().filter(|x| sigmoid_rounded(**x) != 1.0 / (1.0 + (-**x).exp())).count();
        // The C library's exponential is not rounded correctly in about one of 500 values.
        assert!(different * 200 < values.len(), "{different} of {}", values.len());
        assert_eq!([-1e9, f32::NEG_INFINITY, -90.0].map(sigmoid_rounded), [0.0; 3]);
        assert_eq!([1e9, f32::INFINITY].map(sigmoid_rounded), [1.0; 2]);
        assert!(sigmoid_rounded(f32::NAN).is_nan());
    }

    #[test]
    fn all_keep_their_manners_at_the_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1000.0), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(1000.0), f32::INFINITY);
        assert_eq!([expm1(0.0), expm1(f32::NEG_INFINITY), expm1(1e9)], [0.0, -1.0, f32::INFINITY]);
        assert_eq!([tanh(0.0), tanh(f32::NEG_INFINITY), tanh(f32::INFINITY), tanh(1e-30)], [0.0, -1.0, 1.0, 1e-30]);
        assert!([exp(f32::NAN), expm1(f32::NAN), tanh(f32::NAN)].iter().all(|y| y.is_nan()));
    }

    #[test]
    fn logarithms_have_nine_digits_everywhere() {
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
    fn logarithms_at_the_ends_of_the_range() {
        assert_eq!(log(0.0), f64::NEG_INFINITY);
        assert_eq!(log(-0.0), f64::NEG_INFINITY);
        assert_eq!(log(f64::INFINITY), f64::INFINITY);
        assert_eq!(log(1.0), 0.0);
        assert!(log(-1.0).is_nan() && log(f64::NAN).is_nan() && log(f64::NEG_INFINITY).is_nan());
    }

    #[test]
    fn the_normal_distribution_agrees_with_the_complementary_error_function() {
        for i in -13_000..13_000 {
            let x = i as f32 * 1e-3;
            let exact = 0.5 * libm::erfc(-f64::from(x) / 2.0_f64.sqrt());
            let found = normal_distribution(x);
            assert!((found / exact - 1.0).abs() < 3e-9, "at {x}: {found}, expected {exact}");
        }
    }

    #[test]
    fn the_normal_distribution_at_the_ends_of_the_range() {
        assert!((normal_distribution(0.0) - 0.5).abs() < 1e-9);
        assert_eq!(normal_distribution(f32::INFINITY), 1.0);
        assert!(normal_distribution(f32::NEG_INFINITY).abs() < 1e-300);
        assert!(normal_distribution(f32::NAN).is_nan());
    }
}
