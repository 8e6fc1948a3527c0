// One value from all lanes. Sums of floating-point numbers are made in f32 by halves: lane i and lane i + n/2 first.

#pragma once

#include "compare.hpp"
#include "multiply.hpp"

namespace aie {

namespace simulation {

template <unsigned N>
float sum_by_halves(std::array<float, N> lanes) {
    for (unsigned half = N / 2; half > 0; half /= 2)
        for (unsigned i = 0; i < half; ++i)
            lanes[i] = lanes[i] + lanes[i + half];
    return lanes[0];
}

}  // namespace simulation

template <ElemBaseType T, unsigned N>
T reduce_add(const vector<T, N> &v) {
    if constexpr (simulation::is_float_element<T>) {
        std::array<float, N> lanes;
        for (unsigned i = 0; i < N; ++i)
            lanes[i] = v.data()[i];
        const float sum = simulation::sum_by_halves<N>(lanes);
        if constexpr (std::same_as<T, bfloat16>)
            return bfloat16::from_bits(simulation::round_to_bf16(sum, simulation::rounding()));
        else
            return sum;
    } else {
        T sum = 0;
        for (unsigned i = 0; i < N; ++i)
            sum = simulation::add_elements(sum, v.data()[i]);
        return sum;
    }
}

template <ElemBaseType T, unsigned N>
T reduce_add(const T &start, const vector<T, N> &v) {
    return simulation::add_elements(start, reduce_add(v));
}

template <ElemBaseType T, Accum A>
T reduce_add(const A &a) {
    if constexpr (A::is_floating_point()) {
        std::array<float, A::size()> lanes;
        for (unsigned i = 0; i < A::size(); ++i)
            lanes[i] = a.lane(i);
        return T(simulation::sum_by_halves<A::size()>(lanes));
    } else {
        std::uint64_t sum = 0;
        for (unsigned i = 0; i < A::size(); ++i)
            sum += static_cast<std::uint64_t>(a.lane(i));
        return static_cast<T>(sum);
    }
}

/// The sum of each of the vectors, in the first lanes of one.
template <Vector V, Vector... Vs>
    requires(std::same_as<V, Vs> && ...)
V reduce_add_v(const V &v, const Vs &...others) {
    V result;
    unsigned lane = 0;
    result.set(reduce_add(v), lane++);
    (result.set(reduce_add(others), lane++), ...);
    return result;
}

template <ElemBaseType T, unsigned N>
T reduce_max(const vector<T, N> &v) {
    T result = v.data()[0];
    for (unsigned i = 1; i < N; ++i)
        result = result < v.data()[i] ? v.data()[i] : result;
    return result;
}

template <ElemBaseType T, unsigned N>
T reduce_min(const vector<T, N> &v) {
    T result = v.data()[0];
    for (unsigned i = 1; i < N; ++i)
        result = v.data()[i] < result ? v.data()[i] : result;
    return result;
}

template <ElemBaseType T, unsigned N>
T reduce_mul(const vector<T, N> &v) {
    using Lane = simulation::LaneOf<typename simulation::ProductTag<T, T>::Tag>;
    constexpr const Lane *none = nullptr;
    vector<T, N> product = v;
    for (unsigned half = N / 2; half > 0; half /= 2)
        for (unsigned i = 0; i < half; ++i)
            product.data()[i] = static_cast<T>(simulation::multiply_lane<Lane>(product.data()[i], product.data()[i + half], false, none));
    return product.data()[0];
}

}  // namespace aie
