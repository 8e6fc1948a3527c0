// Products of matrices. A is M rows of K, B is K rows of N, the sum is M rows of N, each row after row in its vector.

#pragma once

#include "detail/block_float.hpp"
#include "detail/mmul_shapes.hpp"
#include "multiply.hpp"

namespace aie {

template <unsigned M, unsigned K, unsigned N, ElemBaseType TypeA, ElemBaseType TypeB = TypeA, AccumElemBaseType AccumTag = accauto>
struct mmul {
    static constexpr simulation::MatrixShape shape = simulation::find_shape<TypeA, TypeB>(M, K, N);

    static_assert(simulation::is_aie2p || shape.exists,
                  "aie::mmul: aie2 has no product of matrices of these extents (M, K, N) and types; the shapes it has are in "
                  "aie_api/detail/mmul_shapes.hpp");
    static_assert(!simulation::is_aie2p || shape.exists,
                  "aie::mmul: aie2p has no product of matrices of these extents (M, K, N) and types; the shapes it has are in "
                  "aie_api/detail/mmul_shapes.hpp");

    static constexpr unsigned size_A = M * K, size_B = K * N, size_C = M * N;

    using vector_A_type = vector<TypeA, size_A>;
    using vector_B_type = vector<TypeB, size_B>;
    using accum_tag = std::conditional_t<simulation::is_float_element<TypeA>, accfloat, std::conditional_t<shape.bits == 64, acc64, acc32>>;
    using accum_type = accum<accum_tag, size_C>;
    using lane_type = typename accum_type::lane_type;

    static_assert(std::same_as<AccumTag, accauto> || simulation::bits_of<simulation::LaneOf<AccumTag>> <= shape.bits,
                  "aie::mmul: products of this shape are summed in lanes of 32 bits");

    static constexpr unsigned size() { return size_C; }

    mmul() = default;
    mmul(const accum_type &start) : sums_(start), is_empty_(false) {}

    template <typename T>
    mmul(const vector<T, size_C> &start, int shift = 0) : sums_(start, shift), is_empty_(false) {}

    template <typename T>
    mmul &operator=(const vector<T, size_C> &start) {
        return *this = mmul(start);
    }

    void mul(const vector_A_type &a, const vector_B_type &b) {
        is_empty_ = true;
        mac(a, b);
    }

    void mac(const vector_A_type &a, const vector_B_type &b) {
        if constexpr (std::same_as<TypeA, bfloat16>)
            add_products(bits(a), bits(b));
        else if constexpr (std::same_as<TypeA, float>)
            add_products(split(a), split(b));
        else
            add_integers(a, b);
        is_empty_ = false;
    }

    accum_type to_accum() const { return sums_; }

    operator accum_type() const { return sums_; }

    template <typename T>
    vector<T, size_C> to_vector(int shift = 0) const {
        return sums_.template to_vector<T>(shift);
    }

    template <typename T>
    vector<T, size_C> to_vector_sign(bool sign, int shift = 0) const {
        return sums_.template to_vector_sign<T>(sign, shift);
    }

private:
    // As many products as one instruction sums; more of them are several instructions.
    static constexpr unsigned kAtOnce = K < 8 ? K : 8;

    template <unsigned Count>
    static std::array<std::uint16_t, Count> bits(const vector<bfloat16, Count> &v) {
        std::array<std::uint16_t, Count> result;
        for (unsigned i = 0; i < Count; ++i)
            result[i] = v.data()[i].bits();
        return result;
    }

    template <unsigned Count>
    static std::array<simulation::Parts, Count> split(const vector<float, Count> &v) {
        std::array<simulation::Parts, Count> result;
        for (unsigned i = 0; i < Count; ++i)
            result[i] = simulation::parts(v.data()[i]);
        return result;
    }

    template <typename Factor>
    void add_products(const std::array<Factor, size_A> &a, const std::array<Factor, size_B> &b) {
        if constexpr (simulation::is_aie2p && std::same_as<Factor, std::uint16_t> && simulation::emulates_with_block_float(M, K, N)) {
            add_block_float(a, b);
            return;
        } else {
            for (unsigned row = 0; row < M; ++row)
                for (unsigned column = 0; column < N; ++column) {
                    float &sum = sums_.data()[row * N + column];
                    for (unsigned k = 0; k < K; k += kAtOnce)
                        sum = simulation::multiply_accumulate<kAtOnce>(&a[row * K + k], 1, &b[k * N + column], N, false,
                                                                       is_empty_ && k == 0 ? nullptr : &sum);
                }
        }
    }

    void add_block_float(const std::array<std::uint16_t, size_A> &a, const std::array<std::uint16_t, size_B> &b) {
        for (unsigned row = 0; row < M; ++row) {
            const auto left = simulation::block_of(&a[row * K], 1);
            for (unsigned column = 0; column < N; ++column) {
                float &sum = sums_.data()[row * N + column];
                const float product = simulation::block_product(left, simulation::block_of(&b[column], N));
                sum = is_empty_ ? product : sum + product;
            }
        }
    }

    void add_integers(const vector_A_type &a, const vector_B_type &b) {
        for (unsigned row = 0; row < M; ++row)
            for (unsigned column = 0; column < N; ++column) {
                auto sum = is_empty_ ? 0 : static_cast<std::uint64_t>(static_cast<std::int64_t>(sums_.lane(row * N + column)));
                for (unsigned k = 0; k < K; ++k)
                    sum += static_cast<std::uint64_t>(std::int64_t{a.data()[row * K + k]} * std::int64_t{b.data()[k * N + column]});
                sums_.data()[row * N + column] = simulation::wrapping<lane_type>(sum);
            }
    }

    accum_type sums_;
    bool is_empty_ = true;
};

}  // namespace aie
