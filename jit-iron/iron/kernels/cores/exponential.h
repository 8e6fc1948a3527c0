// The exponential function and the reciprocal, and what follows from them, on sixteen lanes of f32.
//
// There is no mathematical library on a core, and the functions that aie_api has differ between the generations; these use
// sums, products and shifts only and are the same on both. Errors over all bf16 inputs are measured by
// tests/test_kernels_approximations.py.

#pragma once

#include "lanes.h"

namespace lanes {

constexpr float kInfinity = __builtin_inff();
constexpr float kLog2E = 1.44269504088896341f;
/// ln 2 in two parts, the first with so few digits that its multiples up to 2^8 are exact.
constexpr float kLn2High = 0.693359375f;
constexpr float kLn2Low = -2.12194440054690583e-4f;
/// Added to a number below 2^22, this leaves its nearest integer in the low bits.
constexpr float kRounder = 12582912.0f;

/// `result`, but NaN where `x` is.
inline Floats keep_nan(Floats x, Floats result) { return choose(is_nan(x), x, result); }

/// (exp(r) - 1 - r) / r^2 to the sixth power.
constexpr float kExpSeries[] = {1.0f / 40320, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f};

/// exp(x) = (1 + `tail`) * 2^(n + 1), with n where exponents are in the bits of f32; for x between -86 and 89.
struct SplitExp {
    Floats tail;
    Words halved_exponent;
};

inline SplitExp split_exp(Floats x) {
    // Two steps: a product that is made of several would be rounded to an integer several times.
    const Floats rounded = add(mul(x, kLog2E), all(kRounder));
    const Floats n = sub(rounded, all(kRounder));
    const Floats r = fnma(n, all(kLn2Low), fnma(n, all(kLn2High), x));
    // The series of exp(r) - 1 to the eighth power: r stays within ln 2 even where sums are not rounded to the nearest.
    const Floats series = polynomial(kExpSeries, r);
    const Floats p = fma(mul(series, r), r, r);
    // The bits of `rounded` are those of kRounder, whose low nine are zero, plus n.
    const Words exponent = aie::upshift(aie::sub(bits(rounded), all_words(1)), 23);
    return {p, exponent};
}

/// exp(x): 0 below -86, infinity where it exceeds f32.
inline Floats exp(Floats x) {
    constexpr float lowest = -86.0f;
    constexpr float highest = 88.722839f;
    const Floats clamped = choose(below(x, lowest), all(lowest), choose(above(x, highest), all(highest), x));
    const SplitExp parts = split_exp(clamped);
    const Floats half = floats(aie::add(bits(add(parts.tail, all(1.0f))), parts.halved_exponent));
    const Floats y = choose(below(x, lowest), all(0.0f), add(half, half));
    return keep_nan(x, choose(above(x, highest), all(kInfinity), y));
}

/// exp(x) - 1, without losing digits near zero.
inline Floats expm1(Floats x) {
    const Floats small = choose(aie::lt(magnitude(x), all(0.34f)), x, all(0.0f));
    const Floats series = polynomial(kExpSeries, small);
    const Floats p = fma(mul(series, small), small, small);
    return choose(aie::lt(magnitude(x), all(0.34f)), p, sub(exp(x), all(1.0f)));
}

/// 1 / x for x from 2^-100 to 2^100 in magnitude.
inline Floats reciprocal_of_normal(Floats x) {
    // A first guess by the exponent, within an eighth; each step squares the error.
    Floats y = floats(aie::sub(all_words(0x7ef311c7), bits(x)));
    KEEP_LOOP
    for (int step = 0; step < 4; ++step)
        y = fma(y, fnma(x, y, all(1.0f)), y);
    return y;
}

/// 1 / sqrt(x) for normal x from 2^-100 on.
inline Floats inverse_root(Floats x) {
    Floats y = floats(aie::sub(all_words(0x5f3759df), aie::downshift(bits(x), 1)));
    const Floats half = mul(x, 0.5f);
    KEEP_LOOP
    for (int step = 0; step < 4; ++step)
        y = fma(y, fnma(mul(half, y), y, all(0.5f)), y);
    return y;
}

/// 1 / (1 + exp(-x)).
inline Floats sigmoid(Floats x) {
    // The smaller of the two exponentials never overflows: 1 / (1 + e) or e / (1 + e).
    const Floats e = exp(floats(aie::bit_or(bits(x), all_words(static_cast<int>(0x80000000u)))));
    const Floats share = reciprocal_of_normal(add(e, all(1.0f)));
    return keep_nan(x, choose(below(x, 0.0f), mul(e, share), share));
}

/// The hyperbolic tangent, without losing digits near zero.
inline Floats tanh(Floats x) {
    const Floats size = magnitude(x);
    const Flags tiny = aie::lt(size, all(0.3f));
    const Floats small = choose(tiny, size, all(0.0f));
    const Floats square = mul(small, small);
    static constexpr float coefficients[] = {-1382.0f / 155925, 62.0f / 2835, -17.0f / 315, 2.0f / 15, -1.0f / 3};
    Floats p = polynomial(coefficients, square);
    p = fma(mul(p, square), small, small);
    const Floats e = exp(mul(choose(above(size, 20.0f), all(20.0f), size), -2.0f));
    const Floats large = mul(sub(all(1.0f), e), reciprocal_of_normal(add(e, all(1.0f))));
    return keep_nan(x, with_sign(choose(tiny, p, large), x));
}

/// The probability that a standard normal variable is below x.
inline Floats normal_distribution(Floats x) {
    // erfc(z) = t exp(-z^2 + P(t)) with t = 1 / (1 + z / 2); P fitted to 10.5, beyond which f32 has nothing but 0.
    const Floats magnitude_x = magnitude(x);
    const Floats bounded = choose(above(magnitude_x, 14.0f), all(14.0f), magnitude_x);
    const Floats z = mul(bounded, 0.70710678118654752f);
    const Floats t = reciprocal_of_normal(fma(z, all(0.5f), 1.0f));
    static constexpr float coefficients[] = {
        0.1487911492586136f, -0.70184725522995f, 1.2061694860458374f, -0.7619841694831848f, -0.025994688272476196f,
        -0.027512088418006897f, 0.04436234384775162f, 0.38460636138916016f, 0.9988684058189392f, -1.2654595375061035f};
    Floats p = polynomial(coefficients, t);
    const Floats tail = mul(mul(t, exp(fnma(mul(bounded, 0.5f), bounded, p))), 0.5f);
    return keep_nan(x, choose(below(x, 0.0f), tail, sub(all(1.0f), tail)));
}

}  // namespace lanes
