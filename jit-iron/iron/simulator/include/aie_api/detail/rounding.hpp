// Rounding and saturation as the array does them, by the modes of the core.

#pragma once

#include "generation.hpp"
#include "simulation.hpp"

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace aie {

enum class saturation_mode : unsigned {
    none = 0,
    truncate = 1,
    saturate = 1,
    symmetric = 3,
};

enum class rounding_mode : unsigned {
    floor = 0,
    ceil = 1,
    symmetric_floor = 2,
    symmetric_ceil = 3,
    negative_inf = 8,
    positive_inf = 9,
    symmetric_zero = 10,
    symmetric_inf = 11,
    conv_even = 12,
    conv_odd = 13,
};

namespace simulation {

inline rounding_mode rounding() { return static_cast<rounding_mode>(state.rounding); }

/// Whether a number that lies between two others goes to the upper one. `rest` compares it with the middle: below 0, at 0, above 0.
/// `odd` is said of the lower one.
constexpr bool rounds_up(rounding_mode mode, int rest, bool negative, bool odd) {
    switch (mode) {
    case rounding_mode::floor:
        return false;
    case rounding_mode::ceil:
        return true;
    case rounding_mode::symmetric_floor:
        return negative;
    case rounding_mode::symmetric_ceil:
        return !negative;
    case rounding_mode::negative_inf:
        return rest > 0;
    case rounding_mode::positive_inf:
        return rest >= 0;
    case rounding_mode::symmetric_zero:
        return rest > 0 || (rest == 0 && negative);
    case rounding_mode::symmetric_inf:
        return rest > 0 || (rest == 0 && !negative);
    case rounding_mode::conv_even:
        return rest > 0 || (rest == 0 && odd);
    case rounding_mode::conv_odd:
        return rest > 0 || (rest == 0 && !odd);
    }
    return false;
}

/// The same for a number given by sign and magnitude: whether the magnitude grows.
constexpr bool rounds_away(rounding_mode mode, int rest, bool negative, bool odd) {
    switch (mode) {
    case rounding_mode::floor:
        return negative;
    case rounding_mode::ceil:
        return !negative;
    case rounding_mode::symmetric_floor:
        return false;
    case rounding_mode::symmetric_ceil:
        return true;
    case rounding_mode::negative_inf:
        return rest > 0 || (rest == 0 && negative);
    case rounding_mode::positive_inf:
        return rest > 0 || (rest == 0 && !negative);
    case rounding_mode::symmetric_zero:
        return rest > 0;
    case rounding_mode::symmetric_inf:
        return rest >= 0;
    case rounding_mode::conv_even:
        return rest > 0 || (rest == 0 && odd);
    case rounding_mode::conv_odd:
        return rest > 0 || (rest == 0 && !odd);
    }
    return false;
}

/// value / 2^shift, an integer; a negative shift multiplies and drops what exceeds 64 bits.
inline std::int64_t shift_round(std::int64_t value, int shift) {
    if (shift <= 0)
        return shift <= -64 ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << -shift);
    if (shift > 63) {
        fail("aie: a result is shifted right by %d bits; shifts go from 0 to 63", shift);
        return 0;
    }
    const std::int64_t down = value >> shift;
    const auto rest = static_cast<std::uint64_t>(value) & ((std::uint64_t{1} << shift) - 1);
    const std::uint64_t half = std::uint64_t{1} << (shift - 1);
    if (rest == 0)
        return down;
    return down + rounds_up(rounding(), rest < half ? -1 : rest > half, value < 0, down & 1);
}

/// The low bits, or the nearest value that there is, by the mode. `bits` up to 32.
inline std::int64_t saturate(std::int64_t value, unsigned bits, bool is_signed) {
    const std::int64_t low_bits = (std::int64_t{1} << bits) - 1;
    if (state.saturation == 0) {
        const std::int64_t low = value & low_bits;
        return is_signed && (low >> (bits - 1)) ? low - low_bits - 1 : low;
    }
    const std::int64_t highest = is_signed ? low_bits >> 1 : low_bits;
    const std::int64_t lowest = !is_signed ? 0 : state.saturation == 3 ? -highest : -highest - 1;
    return value < lowest ? lowest : value > highest ? highest : value;
}

/// The bf16 with the upper 16 bits of an f32, rounded; what is no number stays none, as was seen on silicon.
constexpr std::uint16_t round_to_bf16(float value, rounding_mode mode) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t upper = bits >> 16;
    const std::uint32_t rest = bits & 0xffff;
    if ((bits & 0x7f800000) == 0x7f800000)
        return static_cast<std::uint16_t>((bits & 0x7fffff) != 0 && (upper & 0x7f) == 0 ? upper | 1 : upper);
    if (rest == 0)
        return static_cast<std::uint16_t>(upper);
    const bool negative = bits >> 31;
    const bool away = rounds_away(mode, rest < 0x8000 ? -1 : rest > 0x8000, negative, upper & 1);
    return static_cast<std::uint16_t>(upper + away);
}

}  // namespace simulation
}  // namespace aie
