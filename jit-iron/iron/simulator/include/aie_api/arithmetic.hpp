// Sums, differences, signs, bits and shifts of vectors and accumulators.

#pragma once

#include "accum.hpp"
#include "tile.hpp"

namespace aie {

namespace simulation {

/// Of integers in vectors: what exceeds the element is dropped, whatever the saturation mode. Floating-point numbers are added in
/// f32; bf16 is then rounded by the mode.
template <typename T>
T add_elements(T a, T b) {
    if constexpr (std::same_as<T, float>)
        return a + b;
    else if constexpr (std::same_as<T, bfloat16>)
        return bfloat16::from_bits(round_to_bf16(float(a) + float(b), rounding()));
    else
        return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

template <typename T>
T subtract_elements(T a, T b) {
    if constexpr (std::same_as<T, float>)
        return a - b;
    else if constexpr (std::same_as<T, bfloat16>)
        return bfloat16::from_bits(round_to_bf16(float(a) - float(b), rounding()));
    else
        return static_cast<T>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b));
}

template <typename Lane>
Lane add_lanes(Lane a, Lane b) {
    if constexpr (std::same_as<Lane, float>)
        return a + b;
    else
        return wrapping<Lane>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

template <typename Lane>
Lane subtract_lanes(Lane a, Lane b) {
    if constexpr (std::same_as<Lane, float>)
        return a - b;
    else
        return wrapping<Lane>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

template <typename T, unsigned N, typename Function>
vector<T, N> each(const vector<T, N> &a, Function function) {
    return generate<T, N>([&](unsigned i) -> T { return function(a.data()[i]); });
}

template <typename T, unsigned N, typename Function>
vector<T, N> each(const vector<T, N> &a, const vector<T, N> &b, Function function) {
    return generate<T, N>([&](unsigned i) -> T { return function(a.data()[i], b.data()[i]); });
}

template <typename T>
concept IntegerVector = Vector<T> && is_integer_element<ValueOf<T>>;

}  // namespace simulation

// Of two vectors, or of a vector and an element on either side.
#define AIE_SIMULATION_ELEMENTWISE(NAME, FUNCTION)                                                                                 \
    template <ElemBaseType T, unsigned N>                                                                                          \
    vector<T, N> NAME(const vector<T, N> &a, const vector<T, N> &b) {                                                              \
        return simulation::each(a, b, [](T x, T y) { return FUNCTION; });                                                          \
    }                                                                                                                              \
    template <ElemBaseType T, unsigned N, ElemOf<T> E>                                                                             \
    vector<T, N> NAME(const vector<T, N> &a, const E &b) {                                                                         \
        return NAME(a, simulation::spread<T, N>(b));                                                                               \
    }                                                                                                                              \
    template <ElemBaseType T, unsigned N, ElemOf<T> E>                                                                             \
    vector<T, N> NAME(const E &a, const vector<T, N> &b) {                                                                         \
        return NAME(simulation::spread<T, N>(a), b);                                                                               \
    }

AIE_SIMULATION_ELEMENTWISE(add, simulation::add_elements(x, y))
AIE_SIMULATION_ELEMENTWISE(sub, simulation::subtract_elements(x, y))

#define AIE_SIMULATION_INTEGERS_ONLY(NAME, FUNCTION)                                                                               \
    template <ElemBaseType T, unsigned N>                                                                                          \
        requires simulation::is_integer_element<T>                                                                                 \
    vector<T, N> NAME(const vector<T, N> &a, const vector<T, N> &b) {                                                              \
        return simulation::each(a, b, [](T x, T y) { return static_cast<T>(FUNCTION); });                                          \
    }                                                                                                                              \
    template <ElemBaseType T, unsigned N, ElemOf<T> E>                                                                             \
        requires simulation::is_integer_element<T>                                                                                 \
    vector<T, N> NAME(const vector<T, N> &a, const E &b) {                                                                         \
        return NAME(a, simulation::spread<T, N>(b));                                                                               \
    }                                                                                                                              \
    template <ElemBaseType T, unsigned N, ElemOf<T> E>                                                                             \
        requires simulation::is_integer_element<T>                                                                                 \
    vector<T, N> NAME(const E &a, const vector<T, N> &b) {                                                                         \
        return NAME(simulation::spread<T, N>(a), b);                                                                               \
    }

AIE_SIMULATION_INTEGERS_ONLY(bit_and, x & y)
AIE_SIMULATION_INTEGERS_ONLY(bit_or, x | y)
AIE_SIMULATION_INTEGERS_ONLY(bit_xor, x ^ y)
AIE_SIMULATION_INTEGERS_ONLY(saturating_add,
                             simulation::saturate(std::int64_t{x} + std::int64_t{y}, simulation::bits_of<T>, std::is_signed_v<T>))
AIE_SIMULATION_INTEGERS_ONLY(saturating_sub,
                             simulation::saturate(std::int64_t{x} - std::int64_t{y}, simulation::bits_of<T>, std::is_signed_v<T>))

#undef AIE_SIMULATION_INTEGERS_ONLY

template <simulation::IntegerVector V>
V bit_not(const V &v) {
    using T = typename V::value_type;
    return simulation::each(v, [](T x) { return static_cast<T>(~x); });
}

template <AccumElemBaseType Tag, unsigned N>
accum<Tag, N> add(const accum<Tag, N> &a, const accum<Tag, N> &b) {
    return simulation::accumulate_lanes<Tag, N>([&](unsigned i) { return simulation::add_lanes(a.lane(i), b.lane(i)); });
}

template <AccumElemBaseType Tag, unsigned N, typename T>
accum<Tag, N> add(const accum<Tag, N> &a, const vector<T, N> &b) {
    return add(a, accum<Tag, N>(b));
}

template <AccumElemBaseType Tag, unsigned N, Elem E>
accum<Tag, N> add(const accum<Tag, N> &a, const E &b) {
    return add(a, simulation::spread<simulation::Scalar<E>, N>(b));
}

template <AccumElemBaseType Tag, unsigned N>
accum<Tag, N> sub(const accum<Tag, N> &a, const accum<Tag, N> &b) {
    return simulation::accumulate_lanes<Tag, N>([&](unsigned i) { return simulation::subtract_lanes(a.lane(i), b.lane(i)); });
}

template <AccumElemBaseType Tag, unsigned N, typename T>
accum<Tag, N> sub(const accum<Tag, N> &a, const vector<T, N> &b) {
    return sub(a, accum<Tag, N>(b));
}

template <AccumElemBaseType Tag, unsigned N, Elem E>
accum<Tag, N> sub(const accum<Tag, N> &a, const E &b) {
    return sub(a, simulation::spread<simulation::Scalar<E>, N>(b));
}

/// The least integer stays itself.
template <Vector V>
V neg(const V &v) {
    using T = typename V::value_type;
    return simulation::each(v, [](T x) {
        if constexpr (simulation::is_float_element<T>)
            return T(-x);
        else
            return simulation::subtract_elements(T{0}, x);
    });
}

template <Accum A>
A neg(const A &a) {
    using Tag = typename A::value_type;
    return simulation::accumulate_lanes<Tag, A::size()>([&](unsigned i) {
        if constexpr (A::is_floating_point())
            return -a.lane(i);
        else
            return simulation::subtract_lanes(typename A::lane_type{0}, a.lane(i));
    });
}

/// The least integer stays itself.
template <Vector V>
V abs(const V &v) {
    using T = typename V::value_type;
    return simulation::each(v, [](T x) -> T {
        if constexpr (std::same_as<T, bfloat16>)
            return bfloat16::from_bits(x.bits() & 0x7fff);
        else if constexpr (std::same_as<T, float>)
            return std::fabs(x);
        else
            return x < 0 ? simulation::subtract_elements(T{0}, x) : x;
    });
}

template <Elem E>
auto abs(const E &value) {
    using T = simulation::Scalar<E>;
    const T x = value;
    if constexpr (std::same_as<T, bfloat16>)
        return bfloat16::from_bits(x.bits() & 0x7fff);
    else if constexpr (std::same_as<T, float>)
        return std::fabs(x);
    else
        return static_cast<T>(x < 0 ? simulation::subtract_elements(T{0}, x) : x);
}

/// Through an accumulator, so what does not fit is dropped or saturated by the mode.
template <simulation::IntegerVector V>
V upshift(const V &v, unsigned shift) {
    using T = typename V::value_type;
    using Tag = typename simulation::ProductTag<T, T>::Tag;
    return accum<Tag, V::size()>(v, static_cast<int>(shift)).template to_vector<T>();
}

/// Through an accumulator, so what is cut off is rounded by the mode.
template <simulation::IntegerVector V>
V downshift(const V &v, unsigned shift) {
    using T = typename V::value_type;
    using Tag = typename simulation::ProductTag<T, T>::Tag;
    return accum<Tag, V::size()>(v).template to_vector<T>(static_cast<int>(shift));
}

/// Zeros come in from above.
template <simulation::IntegerVector V>
V logical_downshift(const V &v, unsigned shift) {
    using T = typename V::value_type;
    return simulation::each(v, [&](T x) { return static_cast<T>(static_cast<std::make_unsigned_t<T>>(x) >> shift); });
}

}  // namespace aie
