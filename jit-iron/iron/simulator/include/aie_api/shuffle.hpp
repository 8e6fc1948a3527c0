// Vectors whose elements are those of others in another order.

#pragma once

#include "vector.hpp"

namespace aie {

/// Elements that come in are undefined on the array; here they are zero.
template <ElemBaseType T, unsigned N>
vector<T, N> shuffle_up(const vector<T, N> &v, unsigned n) {
    return simulation::generate<T, N>([&](unsigned i) { return i >= n ? v.data()[i - n] : T(0); });
}

template <ElemBaseType T, unsigned N>
vector<T, N> shuffle_up_rotate(const vector<T, N> &v, unsigned n) {
    return simulation::generate<T, N>([&](unsigned i) { return v.data()[(i + N - n % N) % N]; });
}

template <ElemBaseType T, unsigned N>
vector<T, N> shuffle_up_replicate(const vector<T, N> &v, unsigned n) {
    return simulation::generate<T, N>([&](unsigned i) { return i >= n ? v.data()[i - n] : v.data()[0]; });
}

template <ElemBaseType T, unsigned N>
vector<T, N> shuffle_up_fill(const vector<T, N> &v, const vector<T, N> &fill, unsigned n) {
    return simulation::generate<T, N>([&](unsigned i) { return i >= n ? v.data()[i - n] : fill.data()[(i + N - n) % N]; });
}

/// Elements that come in are undefined on the array; here they are zero.
template <ElemBaseType T, unsigned N>
vector<T, N> shuffle_down(const vector<T, N> &v, unsigned n) {
    return simulation::generate<T, N>([&](unsigned i) { return i + n < N ? v.data()[i + n] : T(0); });
}

template <ElemBaseType T, unsigned N>
vector<T, N> shuffle_down_rotate(const vector<T, N> &v, unsigned n) {
    return simulation::generate<T, N>([&](unsigned i) { return v.data()[(i + n) % N]; });
}

template <ElemBaseType T, unsigned N>
vector<T, N> shuffle_down_replicate(const vector<T, N> &v, unsigned n) {
    return simulation::generate<T, N>([&](unsigned i) { return i + n < N ? v.data()[i + n] : v.data()[N - 1]; });
}

template <ElemBaseType T, unsigned N>
vector<T, N> shuffle_down_fill(const vector<T, N> &v, const vector<T, N> &fill, unsigned n) {
    return simulation::generate<T, N>([&](unsigned i) { return i + n < N ? v.data()[i + n] : fill.data()[(i + n - N) % N]; });
}

template <ElemBaseType T, unsigned N>
vector<T, N> reverse(const vector<T, N> &v) {
    return simulation::generate<T, N>([&](unsigned i) { return v.data()[N - 1 - i]; });
}

/// A matrix by rows becomes one by columns.
template <ElemBaseType T, unsigned N>
vector<T, N> transpose(const vector<T, N> &v, unsigned rows, unsigned columns) {
    if (rows * columns != N) {
        simulation::fail("aie::transpose: %u rows of %u columns of a vector of %u elements", rows, columns, N);
        return v;
    }
    return simulation::generate<T, N>([&](unsigned i) { return v.data()[(i % rows) * columns + i / rows]; });
}

namespace simulation {

/// Element `i` of two vectors behind each other.
template <typename T, unsigned N>
T of_both(const vector<T, N> &a, const vector<T, N> &b, unsigned i) {
    return i < N ? a.data()[i] : b.data()[i - N];
}

}  // namespace simulation

/// The chunks of both by turns.
template <ElemBaseType T, unsigned N>
std::pair<vector<T, N>, vector<T, N>> interleave_zip(const vector<T, N> &a, const vector<T, N> &b, unsigned chunk) {
    const auto element = [&](unsigned i) {
        const unsigned pair = i / (2 * chunk), within = i % (2 * chunk);
        return within < chunk ? a.data()[pair * chunk + within] : b.data()[pair * chunk + within - chunk];
    };
    return {simulation::generate<T, N>(element), simulation::generate<T, N>([&](unsigned i) { return element(N + i); })};
}

/// The even chunks of both, and the odd ones.
template <ElemBaseType T, unsigned N>
std::pair<vector<T, N>, vector<T, N>> interleave_unzip(const vector<T, N> &a, const vector<T, N> &b, unsigned chunk) {
    const auto element = [&](unsigned i, unsigned odd) {
        return simulation::of_both(a, b, (i / chunk * 2 + odd) * chunk + i % chunk);
    };
    return {simulation::generate<T, N>([&](unsigned i) { return element(i, 0); }),
            simulation::generate<T, N>([&](unsigned i) { return element(i, 1); })};
}

template <ElemBaseType T, unsigned N>
vector<T, N / 2> filter_even(const vector<T, N> &v, unsigned chunk = 1) {
    return simulation::generate<T, N / 2>([&](unsigned i) { return v.data()[i / chunk * 2 * chunk + i % chunk]; });
}

template <ElemBaseType T, unsigned N>
vector<T, N / 2> filter_odd(const vector<T, N> &v, unsigned chunk = 1) {
    return simulation::generate<T, N / 2>([&](unsigned i) { return v.data()[(i / chunk * 2 + 1) * chunk + i % chunk]; });
}

}  // namespace aie
