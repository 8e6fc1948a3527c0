// ggml's functions of one element, on sixteen lanes of f32. Where ggml compares, NaN takes the same side here.

#pragma once

#include "exponential.h"
#include "product.h"

namespace activations {

using namespace lanes;

inline Floats zero_unless(Flags flags, Floats x) { return choose(flags, x, all(0.0f)); }

/// Whether x > bound, which NaN is not.
inline Flags is_above(Floats x, float bound) { return above(choose(is_nan(x), all(bound), x), bound); }

inline Flags is_below(Floats x, float bound) { return below(choose(is_nan(x), all(bound), x), bound); }

inline Floats abs(Floats x) { return magnitude(x); }

inline Floats neg(Floats x) { return floats(aie::bit_xor(bits(x), all_words(static_cast<int>(0x80000000u)))); }

inline Floats sgn(Floats x) {
    return choose(is_above(x, 0.0f), all(1.0f), zero_unless(is_below(x, 0.0f), all(-1.0f)));
}

inline Floats step(Floats x) { return zero_unless(is_above(x, 0.0f), all(1.0f)); }

inline Floats relu(Floats x) { return zero_unless(is_above(x, 0.0f), x); }

inline Floats tanh(Floats x) { return lanes::tanh(x); }

inline Floats exp(Floats x) { return lanes::exp(x); }

inline Floats expm1(Floats x) { return keep_nan(x, lanes::expm1(x)); }

inline Floats elu(Floats x) { return choose(is_above(x, 0.0f), x, expm1(x)); }

inline Floats sigmoid(Floats x) { return lanes::sigmoid(x); }

/// x times a share of it, which is nothing far below zero and all of it far above. The ends are chosen, not computed: a product of
/// f32 is made of several, and with infinity as a factor some of them are not numbers.
inline Floats gate(Floats x, Floats share) {
    const Floats low = choose(is_below(x, -100.0f), all(0.0f), mul(x, share));
    return keep_nan(x, choose(is_above(x, 100.0f), x, low));
}

inline Floats silu(Floats x) { return gate(x, sigmoid(x)); }

inline Floats gelu_quick(Floats x) { return gate(x, sigmoid(mul(x, 1.702f))); }

inline Floats gelu_erf(Floats x) { return gate(x, normal_distribution(x)); }

inline Floats gelu(Floats x) {
    // By a sigmoid, and as in ggml the limits beyond 10.
    const Floats inner = choose(above(magnitude(x), 10.0f), all(10.0f), x);
    const Floats cubic = fma(mul(inner, inner), all(0.044715f), 1.0f);
    const Floats z = mul(mul(inner, 2.0f * 0.79788456080286535588f), cubic);
    const Floats middle = mul(inner, sigmoid(z));
    const Floats low = choose(is_below(x, -10.0f), all(0.0f), middle);
    return keep_nan(x, choose(is_above(x, 10.0f), x, low));
}

inline Floats hardsigmoid(Floats x) {
    const Floats y = relu(mul(add(x, all(3.0f)), 1.0f / 6));
    return choose(is_above(x, 3.0f), all(1.0f), y);
}

inline Floats hardswish(Floats x) {
    const Floats low = choose(is_below(x, -3.0f), all(0.0f), mul(x, hardsigmoid(x)));
    return keep_nan(x, choose(is_above(x, 3.0f), x, low));
}

inline Floats sqr(Floats x) { return product(x, x); }

/// The square root; 0 of what is too small to be a normal number.
inline Floats sqrt(Floats x) {
    // Near the ends of the range products lose digits, so there the exponent is moved by an even number, which is exact.
    const Flags small = below(x, 0x1p-60f);
    const Flags large = above(x, 0x1p60f);
    const Words moved = aie::select(aie::select(all_words(0), all_words(-(80 << 23)), large), all_words(80 << 23), small);
    const Floats scaled = floats(aie::add(bits(x), moved));
    const Floats inverse = inverse_root(scaled);
    const Floats y = mul(scaled, inverse);
    const Floats closer = fma(mul(inverse, 0.5f), fnma(y, y, scaled), y);
    const Floats root = mul(closer, choose(small, all(0x1p-40f), choose(large, all(0x1p40f), all(1.0f))));
    const Words size = bits(magnitude(x));
    const Flags zero = aie::lt(size, all_words(0x00800000));
    const Flags infinite = aie::eq(bits(x), all_words(0x7f800000));
    Floats result = choose(is_below(x, 0.0f), all(__builtin_nanf("")), root);
    result = choose(infinite, x, choose(zero, with_sign(all(0.0f), x), result));
    return keep_nan(x, result);
}

/// The integer towards zero, exactly, however sums are rounded.
inline Floats trunc(Floats x) {
    constexpr float fractionless = 8388608.0f;
    const Floats size = magnitude(x);
    const Flags whole = aie::gt(bits(size), all_words(0x4affffff));
    const Floats bounded = choose(whole, all(0.0f), size);
    const Floats near = sub(add(bounded, all(fractionless)), all(fractionless));
    const Floats down = choose(aie::gt(near, bounded), sub(near, all(1.0f)), near);
    return choose(whole, x, with_sign(down, x));
}

inline Floats floor(Floats x) {
    const Floats t = trunc(x);
    return choose(aie::gt(t, x), sub(t, all(1.0f)), t);
}

inline Floats ceil(Floats x) { return neg(floor(neg(x))); }

inline Floats round(Floats x) {
    const Floats t = magnitude(trunc(x));
    const Floats fraction = sub(magnitude(x), t);
    const Flags up = aie::ge(fraction, all(0.5f)) & aie::lt(bits(magnitude(x)), all_words(0x4b000000));
    return with_sign(choose(up, add(t, all(1.0f)), t), x);
}

inline Floats leaky_relu(Floats x, float slope) { return add(relu(x), product(zero_unless(is_below(x, 0.0f), x), all(slope))); }

}  // namespace activations
