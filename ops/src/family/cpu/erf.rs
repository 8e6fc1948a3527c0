//! The normal distribution, in a form that the compiler can vectorise.

use super::exp::exp_double;

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
    use super::normal_distribution;

    #[test]
    fn agrees_with_the_complementary_error_function() {
        for i in -13_000..13_000 {
            let x = i as f32 * 1e-3;
            let exact = 0.5 * libm::erfc(-f64::from(x) / 2.0_f64.sqrt());
            let found = normal_distribution(x);
            assert!((found / exact - 1.0).abs() < 3e-9, "at {x}: {found}, expected {exact}");
        }
    }

    #[test]
    fn ends_of_the_range() {
        assert!((normal_distribution(0.0) - 0.5).abs() < 1e-9);
        assert_eq!(normal_distribution(f32::INFINITY), 1.0);
        assert!(normal_distribution(f32::NEG_INFINITY).abs() < 1e-300);
        assert!(normal_distribution(f32::NAN).is_nan());
    }
}
