// Sums of products as the array's multipliers make them.
//
// aie2: products of bf16 are exact; products and accumulator are aligned to the largest exponent with 23 fractional bits, each
// rounded to nearest even, and the sum is rounded once more. Seen in values captured on silicon for eight products without an
// accumulator; that the accumulator joins like a product is an assumption. Numbers with exponent 0 count as zero.
// aie2p: one product after the other, each exact and added in f32.
// Sums of two accumulators are those of IEEE 754 on both. Products of f32 are made of three parts of bf16 each, as AMD's headers do.

#pragma once

#include "rounding.hpp"

#include <array>
#include <bit>
#include <cstdint>

namespace aie::simulation {

inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// value / 2^shift to nearest, ties to even.
inline std::uint64_t shift_to_even(std::uint64_t value, int shift) {
    if (shift == 0)
        return value;
    if (shift > 63)
        return 0;
    const std::uint64_t down = value >> shift, rest = value & ((std::uint64_t{1} << shift) - 1);
    const std::uint64_t half = std::uint64_t{1} << (shift - 1);
    return down + (rest > half || (rest == half && (down & 1)));
}

/// A sum of up to sixteen products and two accumulators on aie2.
class AlignedSum {
public:
    void product(std::uint16_t left, std::uint16_t right, bool negate) {
        const int left_exponent = left >> 7 & 0xff, right_exponent = right >> 7 & 0xff;
        if (left_exponent == 0 || right_exponent == 0)
            return;
        special_ |= left_exponent == 255 || right_exponent == 255;
        const std::uint64_t significand = std::uint64_t((left & 0x7f) | 0x80) * ((right & 0x7f) | 0x80);
        push(significand << 9, left_exponent + right_exponent, ((left ^ right) >> 15 & 1) != negate);
    }

    void accumulator(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const int exponent = bits >> 23 & 0xff;
        if (exponent == 0)
            return;
        special_ |= exponent == 255;
        push((bits & 0x7fffff) | 0x800000, exponent + 127, bits >> 31);
    }

    float result() const {
        std::int64_t sum = 0;
        for (int term = 0; term < count_; ++term) {
            const auto aligned = static_cast<std::int64_t>(shift_to_even(terms_[term].significand, largest_ - terms_[term].exponent));
            sum += terms_[term].negative ? -aligned : aligned;
        }
        const std::uint32_t sign = sum < 0 ? 0x80000000u : 0;
        if (special_)
            return std::bit_cast<float>(sign | 0x7f800001u);
        if (sum == 0)
            return 0;
        const auto magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
        const int extra = 64 - std::countl_zero(magnitude) - 24;
        std::uint64_t significand = extra > 0 ? shift_to_even(magnitude, extra) : magnitude << -extra;
        int exponent = largest_ - 127 + extra;
        if (significand >> 24) {
            significand >>= 1;
            ++exponent;
        }
        if (exponent <= 0)
            return std::bit_cast<float>(sign);
        if (exponent >= 255)
            return std::bit_cast<float>(sign | 0x7f800000u);
        return std::bit_cast<float>(sign | std::uint32_t(exponent) << 23 | (static_cast<std::uint32_t>(significand) & 0x7fffff));
    }

private:
    struct Term {
        std::uint64_t significand;
        int exponent;
        bool negative;
    };

    void push(std::uint64_t significand, int exponent, bool negative) {
        largest_ = exponent > largest_ ? exponent : largest_;
        terms_[count_++] = {significand, exponent, negative};
    }

    // Not cleared: only the first `count_` are read, and these sums are most of what a simulation does.
    Term terms_[18];
    int count_ = 0;
    int largest_ = 0;
    bool special_ = false;
};

/// first + second + the sum of left[i] * right[i], where a null is no accumulator; `negate` is said of the products. One
/// multiply-accumulate of the array.
template <unsigned Count>
inline float multiply_accumulate(const std::uint16_t *left, unsigned left_step, const std::uint16_t *right, unsigned right_step,
                                 bool negate, const float *first, const float *second = nullptr) {
    if constexpr (is_aie2p) {
        float sum = 0;
        bool any = false;
        if (first)
            sum = *first, any = true;
        for (unsigned i = 0; i < Count; ++i) {
            const float product = from_bf16(left[i * left_step]) * from_bf16(right[i * right_step]);
            const float term = negate ? -product : product;
            sum = any ? sum + term : term;
            any = true;
        }
        return second ? sum + *second : sum;
    } else {
        AlignedSum sum;
        if (first)
            sum.accumulator(*first);
        if (second)
            sum.accumulator(*second);
        for (unsigned i = 0; i < Count; ++i)
            sum.product(left[i * left_step], right[i * right_step], negate);
        return sum.result();
    }
}

/// An f32 as a sum of three bf16, each cut from what the ones before leave.
struct Parts {
    std::array<std::uint16_t, 3> part;
};

inline Parts parts(float value) {
    constexpr std::uint16_t one = 0x3f80;
    Parts result;
    float rest = value;
    for (int i = 0; i < 3; ++i) {
        result.part[i] = round_to_bf16(rest, rounding_mode::floor);
        if (i < 2)
            rest = multiply_accumulate<1>(&result.part[i], 1, &one, 1, true, &rest);
    }
    return result;
}

/// Which parts are multiplied with which, in the order of the sums.
inline constexpr std::array<std::array<int, 2>, 9> kPartProducts{{{2, 2}, {2, 1}, {1, 2}, {0, 2}, {1, 1}, {2, 0}, {1, 0}, {0, 1}, {0, 0}}};

// AMD's headers let a core function trade accuracy for time by these names.
#if defined(AIE2_FP32_EMULATION_ACCURACY_LOW)
inline constexpr int kFirstPartProduct = 6;
#elif defined(AIE2_FP32_EMULATION_ACCURACY_FAST)
inline constexpr int kFirstPartProduct = 3;
#else
inline constexpr int kFirstPartProduct = 0;
#endif

/// accumulator + the sum of left[i] * right[i] of f32 numbers, where null is no accumulator.
template <unsigned Count>
inline float multiply_accumulate(const Parts *left, unsigned left_step, const Parts *right, unsigned right_step, bool negate,
                                 const float *accumulator) {
    std::uint16_t a[Count], b[Count];
    float sum = 0;
    for (int product = kFirstPartProduct; product < 9; ++product) {
        const bool is_first = product == kFirstPartProduct, is_last = product == 8;
        for (unsigned i = 0; i < Count; ++i) {
            a[i] = left[i * left_step].part[kPartProducts[product][0]];
            b[i] = right[i * right_step].part[kPartProducts[product][1]];
        }
        sum = multiply_accumulate<Count>(a, 1, b, 1, negate, is_first ? nullptr : &sum, is_last ? accumulator : nullptr);
    }
    return sum;
}

}  // namespace aie::simulation
