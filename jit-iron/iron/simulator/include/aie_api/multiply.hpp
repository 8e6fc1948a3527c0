// Products, and sums of products in accumulators.

#pragma once

#include "accum.hpp"

namespace aie {

namespace simulation {

/// accumulator + a * b, or minus it; a null accumulator is zero and costs no rounding.
template <typename Lane, typename A, typename B>
Lane multiply_lane(A a, B b, bool negate, const Lane *accumulator) {
    if constexpr (std::same_as<A, bfloat16>) {
        const std::uint16_t left = a.bits(), right = b.bits();
        return multiply_accumulate<1>(&left, 1, &right, 1, negate, accumulator);
    } else if constexpr (std::same_as<A, float>) {
        const Parts left = parts(a), right = parts(b);
        return multiply_accumulate<1>(&left, 1, &right, 1, negate, accumulator);
    } else {
        const std::uint64_t product = static_cast<std::uint64_t>(static_cast<std::int64_t>(a)) *
                                      static_cast<std::uint64_t>(static_cast<std::int64_t>(b));
        const std::uint64_t before = accumulator ? static_cast<std::uint64_t>(static_cast<std::int64_t>(*accumulator)) : 0;
        return wrapping<Lane>(negate ? before - product : before + product);
    }
}

template <typename Tag, typename A, typename B, unsigned N>
accum<Tag, N> multiply(const vector<A, N> &a, const vector<B, N> &b, bool negate, const accum<Tag, N> *accumulator) {
    static_assert(can_multiply<A, B>(), "aie: there is no product of these types of elements");
    static_assert(is_float_element<A> == std::same_as<LaneOf<Tag>, float>,
                  "aie: products of integers go into accumulators of integers, those of floating-point numbers into accfloat");
    return accumulate_lanes<Tag, N>([&](unsigned i) {
        return multiply_lane<LaneOf<Tag>>(a.data()[i], b.data()[i], negate, accumulator ? accumulator->data() + i : nullptr);
    });
}

template <typename Tag, unsigned N>
inline constexpr const accum<Tag, N> *no_accumulator = nullptr;

}  // namespace simulation

#define AIE_SIMULATION_PRODUCT(NAME, NEGATE)                                                                                       \
    template <AccumElemBaseType Tag, ElemBaseType A, ElemBaseType B, unsigned N>                                                   \
    auto NAME(const vector<A, N> &a, const vector<B, N> &b) {                                                                      \
        using Chosen = simulation::TagOr<Tag, A, B>;                                                                               \
        return simulation::multiply<Chosen>(a, b, NEGATE, simulation::no_accumulator<Chosen, N>);                                  \
    }                                                                                                                              \
    template <AccumElemBaseType Tag, ElemBaseType A, unsigned N, Elem E>                                                           \
    auto NAME(const vector<A, N> &a, const E &b) {                                                                                 \
        return NAME<Tag>(a, simulation::spread<simulation::Scalar<E>, N>(b));                                                      \
    }                                                                                                                              \
    template <AccumElemBaseType Tag, ElemBaseType B, unsigned N, Elem E>                                                           \
    auto NAME(const E &a, const vector<B, N> &b) {                                                                                 \
        return NAME<Tag>(simulation::spread<simulation::Scalar<E>, N>(a), b);                                                      \
    }                                                                                                                              \
    template <ElemBaseType A, ElemBaseType B, unsigned N>                                                                          \
    auto NAME(const vector<A, N> &a, const vector<B, N> &b) {                                                                      \
        return NAME<accauto>(a, b);                                                                                                \
    }                                                                                                                              \
    template <ElemBaseType A, unsigned N, Elem E>                                                                                  \
    auto NAME(const vector<A, N> &a, const E &b) {                                                                                 \
        return NAME<accauto>(a, b);                                                                                                \
    }                                                                                                                              \
    template <ElemBaseType B, unsigned N, Elem E>                                                                                  \
    auto NAME(const E &a, const vector<B, N> &b) {                                                                                 \
        return NAME<accauto>(a, b);                                                                                                \
    }

#define AIE_SIMULATION_ACCUMULATION(NAME, NEGATE)                                                                                  \
    template <AccumElemBaseType Tag, ElemBaseType A, ElemBaseType B, unsigned N>                                                   \
    accum<Tag, N> NAME(const accum<Tag, N> &c, const vector<A, N> &a, const vector<B, N> &b) {                                     \
        return simulation::multiply<Tag>(a, b, NEGATE, &c);                                                                        \
    }                                                                                                                              \
    template <AccumElemBaseType Tag, ElemBaseType A, unsigned N, Elem E>                                                           \
    accum<Tag, N> NAME(const accum<Tag, N> &c, const vector<A, N> &a, const E &b) {                                                \
        return NAME(c, a, simulation::spread<simulation::Scalar<E>, N>(b));                                                        \
    }                                                                                                                              \
    template <AccumElemBaseType Tag, ElemBaseType B, unsigned N, Elem E>                                                           \
    accum<Tag, N> NAME(const accum<Tag, N> &c, const E &a, const vector<B, N> &b) {                                                \
        return NAME(c, simulation::spread<simulation::Scalar<E>, N>(a), b);                                                        \
    }

AIE_SIMULATION_PRODUCT(mul, false)
AIE_SIMULATION_PRODUCT(negmul, true)
AIE_SIMULATION_ACCUMULATION(mac, false)
AIE_SIMULATION_ACCUMULATION(msc, true)

#undef AIE_SIMULATION_PRODUCT
#undef AIE_SIMULATION_ACCUMULATION

template <AccumElemBaseType Tag, Vector V>
auto mul_square(const V &v) {
    return mul<Tag>(v, v);
}

template <Vector V>
auto mul_square(const V &v) {
    return mul(v, v);
}

template <Accum A, Vector V>
auto mac_square(const A &a, const V &v) {
    return mac(a, v, v);
}

template <Accum A, Vector V>
auto msc_square(const A &a, const V &v) {
    return msc(a, v, v);
}

/// The sum of whole vectors, each times one element of `coefficients`, from the one at `start` on.
template <unsigned Lanes, Accum A, Vector C, Vector... Vs>
    requires(sizeof...(Vs) > 0)
auto accumulate(A a, const C &coefficients, unsigned start, const Vs &...data) {
    unsigned at = start;
    ((a = mac(a, data, coefficients.get(at++))), ...);
    return a;
}

template <unsigned Lanes, AccumElemBaseType Tag = accauto, Vector C, Vector V, Vector... Vs>
auto accumulate(const C &coefficients, unsigned start, const V &data, const Vs &...others) {
    auto first = mul<Tag>(data, coefficients.get(start));
    if constexpr (sizeof...(Vs) > 0)
        return accumulate<Lanes>(first, coefficients, start + 1, others...);
    else
        return first;
}

}  // namespace aie
