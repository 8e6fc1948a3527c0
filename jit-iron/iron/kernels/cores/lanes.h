// Sixteen lanes of f32: what all core functions on floats compute with, whatever the type of their buffers.
//
// Buffers begin at multiples of 64 bytes. Reading a buffer up to the end of its last vector is harmless; writing is not, because
// another buffer may begin there, so the elements behind the last whole vector are stored one by one.

#pragma once

#include <aie_api/aie.hpp>

#include <cstdint>

/// Before a loop whose body is large: program memory is short, and compilers unroll loops with few rounds.
#if defined(__clang__)
#define KEEP_LOOP _Pragma("clang loop unroll(disable)")
#else
#define KEEP_LOOP _Pragma("GCC unroll 1")
#endif

namespace lanes {

constexpr unsigned kLanes = 16;

using Floats = aie::vector<float, kLanes>;
using Words = aie::vector<int32, kLanes>;
using Sums = aie::accum<accfloat, kLanes>;
using Flags = aie::mask<kLanes>;

/// A constant from its bits, which is how designs pass parameters: no digit is lost on the way.
inline float from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline Floats all(float x) { return aie::broadcast<float, kLanes>(x); }

inline Words all_words(int x) { return aie::broadcast<int32, kLanes>(x); }

inline Floats add(Floats a, Floats b) { return aie::add(a, b); }

inline Floats sub(Floats a, Floats b) { return aie::sub(a, b); }

inline Floats mul(Floats a, Floats b) { return aie::mul(a, b).template to_vector<float>(); }

inline Floats mul(Floats a, float b) { return mul(a, all(b)); }

/// a * b + c.
inline Floats fma(Floats a, Floats b, Floats c) { return aie::mac(Sums(c), a, b).template to_vector<float>(); }

inline Floats fma(Floats a, Floats b, float c) { return fma(a, b, all(c)); }

/// c - a * b.
inline Floats fnma(Floats a, Floats b, Floats c) { return aie::msc(Sums(c), a, b).template to_vector<float>(); }

/// A polynomial by its coefficients, that of the highest power first.
template <int Count>
inline Floats polynomial(const float (&coefficients)[Count], Floats x) {
    Floats sum = all(coefficients[0]);
    KEEP_LOOP
    for (int i = 1; i < Count; ++i)
        sum = fma(sum, x, coefficients[i]);
    return sum;
}

/// `yes` where the flag is set, else `no`.
inline Floats choose(Flags flags, Floats yes, Floats no) { return aie::select(no, yes, flags); }

inline Words bits(Floats x) { return x.template cast_to<int32>(); }

inline Floats floats(Words x) { return x.template cast_to<float>(); }

/// Without the sign.
inline Floats magnitude(Floats x) { return floats(aie::bit_and(bits(x), all_words(0x7fffffff))); }

/// The magnitude of `x` with the sign of `sign`.
inline Floats with_sign(Floats x, Floats sign) {
    return floats(aie::bit_or(bits(magnitude(x)), aie::bit_and(bits(sign), all_words(static_cast<int>(0x80000000u)))));
}

/// Where `x` is not a number, told by its bits, so that it does not depend on how comparisons treat it.
inline Flags is_nan(Floats x) { return aie::gt(bits(magnitude(x)), all_words(0x7f800000)); }

inline Flags above(Floats x, float bound) { return aie::gt(x, all(bound)); }

inline Flags below(Floats x, float bound) { return aie::lt(x, all(bound)); }

inline Floats widen(Floats x) { return x; }

inline Floats widen(aie::vector<bfloat16, kLanes> x) {
    Sums sums;
    sums.from_vector(x);
    return sums.template to_vector<float>();
}

template <typename T>
inline Floats load(const T *from) {
    return widen(aie::load_v<kLanes>(from));
}

inline void store(float *to, Floats x) { aie::store_v(to, x); }

inline void store(bfloat16 *to, Floats x) { aie::store_v(to, Sums(x).template to_vector<bfloat16>()); }

/// Results are rounded to the nearest, ties to even; the array's own default rounds down. Integers wrap.
inline void set_modes() {
    aie::set_rounding(aie::rounding_mode::conv_even);
    aie::set_saturation(aie::saturation_mode::none);
}

/// Applies `function`, which is given the index of its first element, to every vector of a buffer of `count` elements.
///
/// There is one copy of it: the last vector goes to `last` first, if the buffer does not have all of it.
template <typename Out, typename Function>
inline void for_each(Out *__restrict out, int count, Function function) {
    set_modes();
    constexpr int lanes = static_cast<int>(kLanes);
    const int whole = count / lanes * lanes;
    alignas(64) Out last[kLanes];
    for (int at = 0; at < count; at += lanes)
        store(at < whole ? out + at : last, function(at));
    for (int at = whole; at < count; ++at)
        out[at] = last[at - whole];
}

}  // namespace lanes
