// Reciprocals, roots, the functions that only aie2p has, and conversions between integers and floating-point numbers.
//
// aie2 computes reciprocals of vectors by a first guess and one step of refinement, and those of one number by division; both are
// done here in the same steps. aie2p has instructions whose results were not published: inv, invsqrt and sqrt are correctly rounded
// to f32 here, tanh and exp2 to bf16, to nearest. The array's may differ in the last place.

#pragma once

#include "arithmetic.hpp"
#include "multiply.hpp"

#include <cmath>

namespace aie {

namespace simulation {

/// f32 products and sums as a core function on aie2 makes them of bf16 or f32.
template <typename T>
float product(T a, T b, bool negate = false) {
    return multiply_lane<float>(a, b, negate, static_cast<const float *>(nullptr));
}

template <typename T>
float product_and(T a, T b, float c, bool negate) {
    return multiply_lane<float>(a, b, negate, &c);
}

template <typename T>
T narrowed(float value) {
    if constexpr (std::same_as<T, bfloat16>)
        return bfloat16::from_bits(round_to_bf16(value, rounding()));
    else
        return value;
}

/// A first guess from the bits, brought to within 0.1 % by a product, and one step of Newton's.
template <typename T>
T inverse_by_steps(T x) {
    T guess;
    if constexpr (std::same_as<T, bfloat16>)
        guess = bfloat16::from_bits(static_cast<std::uint16_t>(0x7eb5 - x.bits()));
    else
        guess = std::bit_cast<float>(0x7eb53567u - std::bit_cast<std::uint32_t>(x));
    const T factor = narrowed<T>(product(x, guess, true) + 1.436142f);
    const T scaled = narrowed<T>(product(factor, guess));
    const T negative = narrowed<T>(product(scaled, T(1.9395974f), true));
    const T correction = narrowed<T>(product_and(negative, x, 2.0f, false));
    return narrowed<T>(product(negative, correction, true));
}

template <typename T>
T inverse_root_by_steps(T x) {
    constexpr float c2 = 0.703952253f, c3 = 2.38924456f;
    const T scale = T(c2);
    const T x2 = narrowed<T>(product(x, scale));
    const auto halved = static_cast<std::int32_t>(shift_round(std::bit_cast<std::int32_t>(float(x)), 1));
    const T guess = narrowed<T>(std::bit_cast<float>(0x5f1ffff9 - halved));
    const T square = narrowed<T>(product(guess, guess));
    const T factor = narrowed<T>(product_and(x2, square, c2 * c3, true));
    return narrowed<T>(product(guess, factor));
}

template <typename T>
T nearest_bf16(double value) {
    // To odd in f32, so that the second rounding sees what the first one cut.
    float narrow = static_cast<float>(value);
    if (double(narrow) != value && std::isfinite(narrow)) {
        const auto bits = std::bit_cast<std::uint32_t>(narrow);
        const bool beyond = std::fabs(double(narrow)) > std::fabs(value);
        narrow = std::bit_cast<float>((bits - (beyond ? 1 : 0)) | 1);
    }
    return bfloat16::from_bits(round_to_bf16(narrow, rounding_mode::conv_even));
}

/// value * 2^shift to the nearest integer, ties to even, and the nearest that there is.
template <typename To>
To to_integer(float value, int shift) {
    const double scaled = std::ldexp(static_cast<double>(value), shift);
    if (std::isnan(scaled))
        return 0;
    const double down = std::floor(scaled), rest = scaled - down;
    const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(down, 2.0) != 0);
    const double rounded = down + (up ? 1 : 0);
    constexpr double lowest = std::numeric_limits<To>::lowest(), highest = std::numeric_limits<To>::max();
    return static_cast<To>(rounded < lowest ? lowest : rounded > highest ? highest : rounded);
}

template <typename T>
concept FloatElem = is_float_element<Scalar<T>>;

}  // namespace simulation

template <simulation::FloatElem E>
auto inv(const E &value) {
    using T = simulation::Scalar<E>;
    const T x = value;
    if constexpr (std::same_as<T, bfloat16> && !simulation::is_aie2p)
        return simulation::inverse_by_steps(x);
    else
        return simulation::narrowed<T>(1.0f / float(x));
}

template <simulation::FloatElem E>
auto invsqrt(const E &value) {
    using T = simulation::Scalar<E>;
    const T x = value;
    if constexpr (std::same_as<T, bfloat16> && !simulation::is_aie2p)
        return simulation::inverse_root_by_steps(x);
    else if constexpr (simulation::is_aie2p)
        return simulation::narrowed<T>(static_cast<float>(1.0 / std::sqrt(double(float(x)))));
    else
        return 1.0f / std::sqrt(float(x));
}

template <simulation::FloatElem E>
auto sqrt(const E &value) {
    using T = simulation::Scalar<E>;
    const T x = value;
    return simulation::narrowed<T>(std::sqrt(float(x)));
}

template <ElemBaseType T, unsigned N>
    requires simulation::is_float_element<T>
vector<T, N> inv(const vector<T, N> &v) {
    return simulation::each(v, [](T x) { return simulation::is_aie2p ? inv(x) : simulation::inverse_by_steps(x); });
}

template <ElemBaseType T, unsigned N>
    requires simulation::is_float_element<T>
vector<T, N> invsqrt(const vector<T, N> &v) {
    return simulation::each(v, [](T x) { return simulation::is_aie2p ? invsqrt(x) : simulation::inverse_root_by_steps(x); });
}

template <ElemBaseType T, unsigned N>
    requires simulation::is_float_element<T>
vector<T, N> sqrt(const vector<T, N> &v) {
    return simulation::each(v, [](T x) { return sqrt(x); });
}

inline float div(float a, float b) { return a / b; }

template <ElemBaseType T, unsigned N>
    requires simulation::is_float_element<T>
auto div(const vector<T, N> &a, const vector<T, N> &b) {
    return mul(a, inv(b));
}

template <ElemBaseType T, unsigned N, ElemOf<T> E>
    requires simulation::is_float_element<T>
auto div(const vector<T, N> &a, const E &b) {
    return mul(a, static_cast<T>(inv(b)));
}

/// Only on aie2p: aie2 has no such instruction.
template <typename TR = bfloat16, unsigned N>
vector<TR, N> tanh(const vector<float, N> &v) {
    static_assert(simulation::is_aie2p || N == 0, "aie::tanh exists on aie2p only; on aie2 use a table or a polynomial");
    static_assert(std::same_as<TR, bfloat16>, "aie::tanh gives bfloat16 only");
    return simulation::generate<TR, N>([&](unsigned i) { return simulation::nearest_bf16<TR>(std::tanh(double(v.data()[i]))); });
}

/// Only on aie2p: aie2 has no such instruction.
template <typename TR = bfloat16, unsigned N>
vector<TR, N> exp2(const vector<float, N> &v) {
    static_assert(simulation::is_aie2p || N == 0, "aie::exp2 exists on aie2p only; on aie2 use a table or a polynomial");
    static_assert(std::same_as<TR, bfloat16>, "aie::exp2 gives bfloat16 only");
    return simulation::generate<TR, N>([&](unsigned i) { return simulation::nearest_bf16<TR>(std::exp2(double(v.data()[i]))); });
}

/// v * 2^shift to the nearest integer.
template <typename TR = int32, ElemBaseType T, unsigned N>
    requires simulation::is_float_element<T>
vector<TR, N> to_fixed(const vector<T, N> &v, int shift = 0) {
    return simulation::generate<TR, N>([&](unsigned i) { return simulation::to_integer<TR>(v.data()[i], shift); });
}

template <typename TR = int32, unsigned N>
vector<TR, N> to_fixed(const accum<accfloat, N> &a, int shift = 0) {
    return to_fixed<TR>(a.template to_vector<float>(), shift);
}

template <typename TR = int32>
TR to_fixed(float value, int shift = 0) {
    return simulation::to_integer<TR>(value, shift);
}

/// v * 2^shift to the integer below.
template <typename TR = int32, unsigned N>
    requires std::same_as<TR, int16> || std::same_as<TR, int32>
vector<TR, N> to_fixed_floor(const vector<bfloat16, N> &v, int shift = 0) {
    return simulation::generate<TR, N>([&](unsigned i) {
        const double below = std::floor(std::ldexp(double(float(v.data()[i])), shift));
        return static_cast<TR>(simulation::to_integer<int32>(static_cast<float>(below), 0));
    });
}

/// v / 2^shift.
template <typename TR = float, ElemBaseType T, unsigned N>
    requires simulation::is_integer_element<T>
vector<TR, N> to_float(const vector<T, N> &v, int shift = 0) {
    return simulation::generate<TR, N>(
        [&](unsigned i) { return simulation::narrowed<TR>(static_cast<float>(std::ldexp(double(v.data()[i]), -shift))); });
}

template <typename TR = float, typename T>
    requires std::is_integral_v<T>
TR to_float(T value, int shift = 0) {
    return simulation::narrowed<TR>(static_cast<float>(std::ldexp(double(value), -shift)));
}

}  // namespace aie
