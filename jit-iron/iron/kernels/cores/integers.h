// Whole vectors of integers. Results wrap, as those of the C++ backend's cores do.

#pragma once

#include <aie_api/aie.hpp>

namespace integers {

template <typename T>
inline constexpr unsigned kLanes = 64 / sizeof(T);

template <typename T>
using Vector = aie::vector<T, kLanes<T>>;

template <typename T>
inline Vector<T> add(Vector<T> a, Vector<T> b) {
    return aie::add(a, b);
}

template <typename T>
inline Vector<T> sub(Vector<T> a, Vector<T> b) {
    return aie::sub(a, b);
}

template <typename T>
inline Vector<T> mul(Vector<T> a, Vector<T> b) {
    return aie::mul(a, b).template to_vector<T>(0);
}

template <typename T>
inline Vector<T> neg(Vector<T> a) {
    return aie::sub(aie::zeros<T, kLanes<T>>(), a);
}

/// The least number has no positive counterpart and stays itself.
template <typename T>
inline Vector<T> abs(Vector<T> a) {
    return aie::max(a, neg<T>(a));
}

template <typename T>
inline Vector<T> relu(Vector<T> a) {
    return aie::max(a, aie::zeros<T, kLanes<T>>());
}

template <typename T>
inline Vector<T> sgn(Vector<T> a) {
    const Vector<T> one = aie::broadcast<T, kLanes<T>>(1);
    return aie::max(aie::min(a, one), neg<T>(one));
}

template <typename T>
inline Vector<T> step(Vector<T> a) {
    return aie::min(relu<T>(a), aie::broadcast<T, kLanes<T>>(1));
}

/// Applies `function`, which is given the index of its first element, to every vector of a buffer of `count` elements; as in lanes.h.
template <typename T, typename Function>
inline void for_each(T *__restrict out, int count, Function function) {
    constexpr int lanes = static_cast<int>(kLanes<T>);
    aie::set_saturation(aie::saturation_mode::none);
    const int whole = count / lanes * lanes;
    alignas(64) T last[kLanes<T>];
    for (int at = 0; at < count; at += lanes)
        aie::store_v(at < whole ? out + at : last, function(at));
    for (int at = whole; at < count; ++at)
        out[at] = last[at - whole];
}

}  // namespace integers
