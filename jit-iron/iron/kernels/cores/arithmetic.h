// Sums, differences, products and quotients of two elements, on sixteen lanes of f32.

#pragma once

#include "exponential.h"
#include "product.h"

namespace arithmetic {

using lanes::Flags;
using lanes::Floats;

inline Floats add(Floats a, Floats b) { return lanes::add(a, b); }

inline Floats sub(Floats a, Floats b) { return lanes::sub(a, b); }

inline Floats mul(Floats a, Floats b) { return lanes::product(a, b); }

/// `x` with the exponent of numbers between 1 and 2.
inline Floats significand(Floats x) {
    using namespace lanes;
    return floats(aie::bit_or(aie::bit_and(bits(x), all_words(static_cast<int>(0x807fffffu))), all_words(0x3f800000)));
}

/// 2^n for n from -127 on, where it is 0.
inline Floats power_of_two(lanes::Words n) {
    return lanes::floats(aie::upshift(aie::add(n, lanes::all_words(127)), 23));
}

/// a / b, with zero, infinity and NaN as IEEE 754 has them. What is too small to be a normal number counts as zero.
inline Floats div(Floats a, Floats b) {
    using namespace lanes;
    // The quotient of the significands, which are far from the ends of the range, where products of f32 lose digits.
    const Floats x = significand(a), y = significand(b);
    const Floats inverse = reciprocal_of_normal(y);
    const Floats guess = lanes::mul(x, inverse);
    const Floats between = fma(fnma(guess, y, x), inverse, guess);
    const Flags doubled = below(magnitude(between), 1.0f);
    const Floats quotient = choose(doubled, lanes::add(between, between), between);
    // The power of two may be out of range by itself, so it comes in two parts.
    const Words a_exponent = exponent(a), b_exponent = exponent(b);
    const Words n = aie::sub(aie::sub(a_exponent, b_exponent), aie::select(all_words(0), all_words(1), doubled));
    const Words half = aie::downshift(n, 1);
    const Floats ordinary = lanes::mul(lanes::mul(quotient, power_of_two(half)), power_of_two(aie::sub(n, half)));
    const Flags too_large = aie::gt(n, all_words(127));

    const Words sign = aie::bit_and(aie::bit_xor(bits(a), bits(b)), all_words(static_cast<int>(0x80000000u)));
    const Floats infinite = floats(aie::bit_or(sign, all_words(0x7f800000)));
    const Flags a_infinite = aie::eq(a_exponent, all_words(255)), b_infinite = aie::eq(b_exponent, all_words(255));
    const Flags a_zero = aie::eq(a_exponent, all_words(0)), b_zero = aie::eq(b_exponent, all_words(0));
    Floats result = choose(a_infinite | b_zero | too_large, infinite, ordinary);
    result = choose(a_zero | b_infinite, floats(sign), result);
    const Flags undefined = (a_zero & b_zero) | (a_infinite & b_infinite) | is_nan(a) | is_nan(b);
    return choose(undefined, all(__builtin_nanf("")), result);
}

}  // namespace arithmetic
