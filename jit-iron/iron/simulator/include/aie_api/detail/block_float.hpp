// Block floating point of aie2p: eight numbers with one exponent. Core functions that are compiled with
// AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16=1 multiply matrices of bf16 that way.

#pragma once

#include "float_sums.hpp"

#include <cmath>

namespace aie::simulation {

// Not defined here: core functions ask for it with #ifdef.
#if defined(AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16) && AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16
constexpr bool kWithBlockFloat = true;
#else
constexpr bool kWithBlockFloat = false;
#endif

constexpr bool emulates_with_block_float(unsigned m, unsigned k, unsigned n) {
    return kWithBlockFloat && k == 8 && n == 8 && (m == 4 || m == 8);
}

/// Each number is mantissa * 2^(exponent - 133).
struct Block {
    std::array<int, 8> mantissa;
    int exponent;
};

/// Eight bf16 that are `step` apart. Mantissas are cut towards minus infinity, first to eight bits, then by the distance of exponents;
/// modes of rounding other than floor are not known to be different.
inline Block block_of(const std::uint16_t *from, unsigned step) {
    Block block{{}, 0};
    for (unsigned i = 0; i < 8; ++i) {
        const int exponent = from[i * step] >> 7 & 0xff;
        block.exponent = exponent > block.exponent ? exponent : block.exponent;
    }
    for (unsigned i = 0; i < 8; ++i) {
        const std::uint16_t bits = from[i * step];
        const int exponent = bits >> 7 & 0xff;
        const int hidden = exponent == 0 ? 0 : 0x80;
        const int significand = (bits & 0x7f) | hidden;
        const int distance = block.exponent - exponent;
        block.mantissa[i] = ((bits >> 15 ? -significand : significand) >> 1) >> (distance < 7 ? distance : 7);
    }
    return block;
}

inline float block_product(const Block &left, const Block &right) {
    int sum = 0;
    for (unsigned i = 0; i < 8; ++i)
        sum += left.mantissa[i] * right.mantissa[i];
    return static_cast<float>(std::ldexp(static_cast<double>(sum), left.exponent + right.exponent - 266));
}

}  // namespace aie::simulation
