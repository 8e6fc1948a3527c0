// Products with infinity, NaN and results beyond the range of f32 as IEEE 754 has them.

#pragma once

#include "lanes.h"

namespace lanes {

/// The exponent of f32, biased; 0 for zero and for what is too small to be a normal number.
inline Words exponent(Floats x) {
    return aie::downshift(aie::bit_and(bits(x), all_words(0x7f800000)), 23);
}

/// a * b. The array makes a product of f32 of several products of bf16. Some of these are not numbers where a factor is infinite, or
/// are infinities of both signs where the result is far beyond the range, and their sum is never minus zero; such results are
/// chosen here.
inline Floats product(Floats a, Floats b) {
    const Words a_exponent = exponent(a), b_exponent = exponent(b);
    const Flags a_infinite = aie::eq(a_exponent, all_words(255)), b_infinite = aie::eq(b_exponent, all_words(255));
    // 2^128 and above; just below it only the largest of the parts can be infinite.
    const Flags too_large = aie::gt(aie::add(a_exponent, b_exponent), all_words(2 * 127 + 127));
    const Words sign = aie::bit_and(aie::bit_xor(bits(a), bits(b)), all_words(static_cast<int>(0x80000000u)));
    const Floats infinite = floats(aie::bit_or(sign, all_words(0x7f800000)));
    const Flags a_zero = aie::eq(bits(magnitude(a)), all_words(0)), b_zero = aie::eq(bits(magnitude(b)), all_words(0));
    const Flags undefined = is_nan(a) | is_nan(b) | (a_infinite & b_zero) | (a_zero & b_infinite);
    Floats result = choose(a_infinite | b_infinite | too_large, infinite, mul(a, b));
    result = choose(a_zero | b_zero, floats(sign), result);
    return choose(undefined, all(__builtin_nanf("")), result);
}

}  // namespace lanes
