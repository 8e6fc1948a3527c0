// The extents of products of matrices, as the tables of aie_api's documentation have them for each generation.

#pragma once

#include "../types.hpp"

#include <array>

namespace aie::simulation {

struct MatrixShape {
    unsigned m = 0, k = 0, n = 0;
    unsigned bits = 32;
    bool exists = false;

    constexpr MatrixShape() = default;
    constexpr MatrixShape(unsigned rows, unsigned inner, unsigned columns, unsigned lane_bits)
        : m(rows), k(inner), n(columns), bits(lane_bits), exists(true) {}
};

/// By the widths of the elements; `bits` is the width of the lanes of the sums.
template <typename A, typename B>
constexpr auto matrix_shapes() {
    using Shape = MatrixShape;
    constexpr unsigned a = bits_of<A>, b = bits_of<B>;
    if constexpr (is_float_element<A> || is_float_element<B>) {
        if constexpr (!std::same_as<A, B>)
            return std::array<Shape, 0>{};
        else if constexpr (std::same_as<A, float> && is_aie2p)
            return std::array{Shape(4, 8, 4, 32)};
        else if constexpr (std::same_as<A, float>)
            return std::array{Shape(4, 8, 4, 32), Shape(4, 1, 4, 32), Shape(4, 1, 8, 32)};
        else if constexpr (is_aie2p)
            return std::array{Shape(8, 8, 4, 32), Shape(4, 8, 8, 32), Shape(4, 8, 4, 32), Shape(8, 8, 8, 32), Shape(8, 1, 8, 32)};
        else
            return std::array{Shape(4, 8, 4, 32), Shape(8, 8, 4, 32), Shape(4, 16, 8, 32), Shape(4, 16, 4, 32),
                              Shape(4, 8, 8, 32), Shape(8, 8, 8, 32), Shape(8, 1, 8, 32)};
    } else if constexpr (a == 8 && b == 8) {
        if constexpr (is_aie2p)
            return std::array{Shape(4, 8, 8, 32), Shape(8, 8, 8, 32)};
        else
            return std::array{Shape(4, 8, 4, 32), Shape(4, 16, 4, 32), Shape(8, 8, 4, 32),  Shape(2, 8, 8, 32), Shape(4, 8, 8, 32),
                              Shape(8, 8, 8, 32), Shape(1, 16, 8, 32), Shape(2, 16, 8, 32), Shape(4, 16, 8, 32)};
    } else if constexpr (a == 16 && b == 8) {
        if constexpr (is_aie2p)
            return std::array{Shape(4, 4, 8, 32), Shape(8, 4, 8, 32), Shape(4, 8, 8, 64), Shape(2, 8, 8, 64)};
        else
            return std::array{Shape(4, 4, 4, 32), Shape(8, 4, 4, 32), Shape(4, 8, 4, 64),
                              Shape(4, 4, 8, 32), Shape(8, 4, 8, 32), Shape(2, 8, 8, 64)};
    } else if constexpr (a == 8 && b == 16) {
        if constexpr (is_aie2p)
            return std::array{Shape(8, 2, 8, 32), Shape(4, 4, 8, 64)};
        else
            return std::array{Shape(4, 4, 8, 64), Shape(4, 4, 4, 64)};
    } else if constexpr (a == 16 && b == 16) {
        if constexpr (is_aie2p)
            return std::array{Shape(4, 2, 8, 32), Shape(8, 2, 8, 32), Shape(2, 4, 8, 64), Shape(4, 4, 8, 64), Shape(8, 1, 8, 32)};
        else
            return std::array{Shape(4, 4, 4, 64), Shape(2, 4, 8, 64), Shape(4, 4, 8, 64),
                              Shape(4, 2, 8, 32), Shape(8, 2, 8, 32), Shape(8, 1, 8, 32)};
    } else if constexpr (a == 32 && b == 16) {
        if constexpr (is_aie2p)
            return std::array{Shape(4, 2, 8, 64), Shape(2, 4, 8, 64), Shape(4, 4, 8, 64)};
        else
            return std::array{Shape(2, 4, 8, 64), Shape(4, 4, 8, 64), Shape(4, 4, 4, 64), Shape(4, 2, 4, 64), Shape(4, 1, 8, 64)};
    } else {
        return std::array<Shape, 0>{};
    }
}

template <typename A, typename B>
constexpr MatrixShape find_shape(unsigned m, unsigned k, unsigned n) {
    for (const MatrixShape &shape : matrix_shapes<A, B>())
        if (shape.m == m && shape.k == k && shape.n == n)
            return shape;
    return {};
}

}  // namespace aie::simulation
