//! Sums in double precision that the compiler can vectorise.

/// The sum of a function of the elements, in double precision and in lanes, so that it vectorises.
#[inline(always)]
pub fn sum(values: &[f32], function: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [0.0_f64; 16];
    let (chunks, tail) = values.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += function(f64::from(*value));
        }
    }
    lanes.iter().sum::<f64>() + tail.iter().map(|value| function(f64::from(*value))).sum::<f64>()
}
