// Sums, differences, products and quotients of two elements, on sixteen lanes of f32.

#pragma once

#include "exponential.h"

namespace arithmetic {

using lanes::Flags;
using lanes::Floats;

inline Floats add(Floats a, Floats b) { return lanes::add(a, b); }

inline Floats sub(Floats a, Floats b) { return lanes::sub(a, b); }

inline Floats mul(Floats a, Floats b) { return lanes::mul(a, b); }

/// a / b, with zero, infinity and NaN as IEEE 754 has them.
inline Floats div(Floats a, Floats b) {
    using namespace lanes;
    const Floats size = magnitude(b);
    // Divisors whose reciprocals are not normal numbers are brought into the middle of the range first.
    const Floats power = choose(above(size, 0x1p100f), all(0x1p-64f), choose(below(size, 0x1p-100f), all(0x1p64f), all(1.0f)));
    const Floats divisor = lanes::mul(b, power);
    const Floats inverse = reciprocal_of_normal(divisor);
    const Floats guess = lanes::mul(a, inverse);
    const Floats closer = fma(fnma(guess, divisor, a), inverse, guess);
    const Flags huge = aie::ge(bits(magnitude(guess)), all_words(0x7f800000));
    const Floats ordinary = lanes::mul(choose(huge, guess, closer), power);

    const Words sign = aie::bit_and(aie::bit_xor(bits(a), bits(b)), all_words(static_cast<int>(0x80000000u)));
    const Floats infinite = floats(aie::bit_or(sign, all_words(0x7f800000)));
    const Words a_size = bits(magnitude(a)), b_size = bits(size);
    const Flags a_infinite = aie::eq(a_size, all_words(0x7f800000)), b_infinite = aie::eq(b_size, all_words(0x7f800000));
    const Flags a_zero = aie::eq(a_size, all_words(0)), b_zero = aie::eq(b_size, all_words(0));
    Floats result = choose(a_infinite | b_zero, infinite, ordinary);
    result = choose(a_zero | b_infinite, floats(sign), result);
    const Flags undefined = (a_zero & b_zero) | (a_infinite & b_infinite) | is_nan(a) | is_nan(b);
    return choose(undefined, all(__builtin_nanf("")), result);
}

}  // namespace arithmetic
