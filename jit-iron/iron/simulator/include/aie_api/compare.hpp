// Comparisons, and choices by them. Numbers compare as IEEE 754 has it; what the array does with NaN is not public.

#pragma once

#include "arithmetic.hpp"
#include "mask.hpp"

namespace aie {

#define AIE_SIMULATION_COMPARISON(NAME, OPERATOR)                                                                                  \
    template <ElemBaseType T, unsigned N>                                                                                          \
    mask<N> NAME(const vector<T, N> &a, const vector<T, N> &b) {                                                                   \
        return simulation::mask_of<N>([&](unsigned i) { return a.data()[i] OPERATOR b.data()[i]; });                               \
    }                                                                                                                              \
    template <ElemBaseType T, unsigned N, ElemOf<T> E>                                                                             \
    mask<N> NAME(const vector<T, N> &a, const E &b) {                                                                              \
        return NAME(a, simulation::spread<T, N>(b));                                                                               \
    }                                                                                                                              \
    template <ElemBaseType T, unsigned N, ElemOf<T> E>                                                                             \
    mask<N> NAME(const E &a, const vector<T, N> &b) {                                                                              \
        return NAME(simulation::spread<T, N>(a), b);                                                                               \
    }

AIE_SIMULATION_COMPARISON(lt, <)
AIE_SIMULATION_COMPARISON(le, <=)
AIE_SIMULATION_COMPARISON(gt, >)
AIE_SIMULATION_COMPARISON(ge, >=)
AIE_SIMULATION_COMPARISON(eq, ==)
AIE_SIMULATION_COMPARISON(neq, !=)

#undef AIE_SIMULATION_COMPARISON

AIE_SIMULATION_ELEMENTWISE(max, x < y ? y : x)
AIE_SIMULATION_ELEMENTWISE(min, y < x ? y : x)
AIE_SIMULATION_ELEMENTWISE(maxdiff, x > y ? simulation::subtract_elements(x, y) : T(0))

#undef AIE_SIMULATION_ELEMENTWISE

// Of two numbers, which are computed without vectors.
#define AIE_SIMULATION_SCALAR(NAME, RESULT, EXPRESSION)                                                                            \
    template <typename T>                                                                                                          \
        requires simulation::is_float_element<T>                                                                                   \
    RESULT NAME(T a, T b) {                                                                                                        \
        return EXPRESSION;                                                                                                         \
    }

AIE_SIMULATION_SCALAR(lt, bool, a < b)
AIE_SIMULATION_SCALAR(le, bool, a <= b)
AIE_SIMULATION_SCALAR(gt, bool, a > b)
AIE_SIMULATION_SCALAR(ge, bool, a >= b)
AIE_SIMULATION_SCALAR(eq, bool, a == b)
AIE_SIMULATION_SCALAR(neq, bool, a != b)
AIE_SIMULATION_SCALAR(max, T, a < b ? b : a)
AIE_SIMULATION_SCALAR(min, T, b < a ? b : a)
AIE_SIMULATION_SCALAR(add, T, simulation::add_elements(a, b))
AIE_SIMULATION_SCALAR(sub, T, simulation::subtract_elements(a, b))

#undef AIE_SIMULATION_SCALAR

template <ElemBaseType T, unsigned N, typename Low, typename High>
vector<T, N> clamp(const vector<T, N> &v, const Low &low, const High &high) {
    return min(max(v, low), high);
}

template <ElemBaseType T, unsigned N>
bool equal(const vector<T, N> &a, const vector<T, N> &b) {
    return eq(a, b).full();
}

template <ElemBaseType T, unsigned N>
bool not_equal(const vector<T, N> &a, const vector<T, N> &b) {
    return !equal(a, b);
}

/// The element of the second where the lane is set, else that of the first.
template <ElemBaseType T, unsigned N>
vector<T, N> select(const vector<T, N> &a, const vector<T, N> &b, const mask<N> &m) {
    return simulation::generate<T, N>([&](unsigned i) { return m.test(i) ? b.data()[i] : a.data()[i]; });
}

template <ElemBaseType T, unsigned N, ElemOf<T> E>
vector<T, N> select(const E &a, const vector<T, N> &b, const mask<N> &m) {
    return select(simulation::spread<T, N>(a), b, m);
}

template <ElemBaseType T, unsigned N, ElemOf<T> E>
vector<T, N> select(const vector<T, N> &a, const E &b, const mask<N> &m) {
    return select(a, simulation::spread<T, N>(b), m);
}

template <Elem A, Elem B, unsigned N>
    requires std::same_as<simulation::Scalar<A>, simulation::Scalar<B>>
auto select(const A &a, const B &b, const mask<N> &m) {
    using T = simulation::Scalar<A>;
    return select(simulation::spread<T, N>(a), simulation::spread<T, N>(b), m);
}

template <ElemBaseType T, unsigned N>
auto max_cmp(const vector<T, N> &a, const vector<T, N> &b) {
    return std::make_tuple(max(a, b), lt(a, b));
}

template <ElemBaseType T, unsigned N>
auto min_cmp(const vector<T, N> &a, const vector<T, N> &b) {
    return std::make_tuple(min(a, b), ge(a, b));
}

}  // namespace aie
