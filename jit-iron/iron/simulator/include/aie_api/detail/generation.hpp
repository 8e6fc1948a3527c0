// The two generations, told apart by __AIE_ARCH__ as in AMD's compiler: 20 is aie2 (XDNA1), 21 is aie2p (XDNA2).

#pragma once

#ifndef __AIE_ARCH__
#error "__AIE_ARCH__ is not defined; pass -D__AIE_ARCH__=20 for aie2 or -D__AIE_ARCH__=21 for aie2p"
#elif __AIE_ARCH__ != 20 && __AIE_ARCH__ != 21
#error "this __AIE_ARCH__ is not simulated; available: 20 (aie2), 21 (aie2p)"
#endif

#if defined(__clang__) == 0 && defined(__GNUC__) && defined(__x86_64__) == 0
// GCC contracts a * b + c to one rounding where the machine can; sums must not depend on the host.
#pragma GCC optimize("fp-contract=off")
#elif defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#ifndef restrict
#define restrict __restrict
#endif

namespace aie::simulation {

inline constexpr bool is_aie2p = __AIE_ARCH__ == 21;

/// What an address of a vector of that many bits must be a multiple of.
constexpr unsigned alignment(unsigned bits) {
    if (bits <= 128)
        return 16;
    return bits == 256 || !is_aie2p ? 32 : 64;
}

}  // namespace aie::simulation
