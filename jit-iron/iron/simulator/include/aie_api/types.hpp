// Types of elements and of accumulators, by the names under which core functions know them.

#pragma once

#include "detail/rounding.hpp"

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

using int8 = std::int8_t;
using int16 = std::int16_t;
using int32 = std::int32_t;
using int64 = std::int64_t;
using uint8 = std::uint8_t;
using uint16 = std::uint16_t;
using uint32 = std::uint32_t;
using uint64 = std::uint64_t;

/// The upper half of an f32. Numbers are cut to it by the core's rounding mode, constants to the nearest as a compiler does it.
class bfloat16 {
public:
    bfloat16() = default;

    template <typename T>
        requires std::is_arithmetic_v<T>
    [[gnu::always_inline]] constexpr bfloat16(T value) : bits_(cut(static_cast<float>(value))) {}

    static constexpr bfloat16 from_bits(std::uint16_t bits) {
        bfloat16 result;
        result.bits_ = bits;
        return result;
    }

    constexpr std::uint16_t bits() const { return bits_; }

    constexpr operator float() const { return std::bit_cast<float>(std::uint32_t{bits_} << 16); }

    template <typename T>
        requires std::is_arithmetic_v<T> || std::same_as<T, bfloat16>
    constexpr bfloat16 &operator+=(T other) {
        return *this = bfloat16(float(*this) + float(other));
    }

    template <typename T>
        requires std::is_arithmetic_v<T> || std::same_as<T, bfloat16>
    constexpr bfloat16 &operator-=(T other) {
        return *this = bfloat16(float(*this) - float(other));
    }

    template <typename T>
        requires std::is_arithmetic_v<T> || std::same_as<T, bfloat16>
    constexpr bfloat16 &operator*=(T other) {
        return *this = bfloat16(float(*this) * float(other));
    }

    template <typename T>
        requires std::is_arithmetic_v<T> || std::same_as<T, bfloat16>
    constexpr bfloat16 &operator/=(T other) {
        return *this = bfloat16(float(*this) / float(other));
    }

private:
    // In line, so that the compiler sees at the call whether the value is a constant.
    [[gnu::always_inline]] static constexpr std::uint16_t cut(float value) {
        if (std::is_constant_evaluated() || __builtin_constant_p(value))
            return aie::simulation::round_to_bf16(value, aie::rounding_mode::conv_even);
        return aie::simulation::round_to_bf16(value, aie::simulation::rounding());
    }

    std::uint16_t bits_ = 0;
};

// Two bf16 give a bf16; with anything else a bf16 becomes an f32 first. Templates, so that no conversion leads here.
template <std::same_as<bfloat16> T>
constexpr bfloat16 operator+(T a, T b) {
    return bfloat16(float(a) + float(b));
}

template <std::same_as<bfloat16> T>
constexpr bfloat16 operator-(T a, T b) {
    return bfloat16(float(a) - float(b));
}

template <std::same_as<bfloat16> T>
constexpr bfloat16 operator*(T a, T b) {
    return bfloat16(float(a) * float(b));
}

template <std::same_as<bfloat16> T>
constexpr bfloat16 operator/(T a, T b) {
    return bfloat16(float(a) / float(b));
}

template <std::same_as<bfloat16> T>
constexpr bfloat16 operator-(T a) {
    return bfloat16::from_bits(static_cast<std::uint16_t>(a.bits() ^ 0x8000));
}

template <>
class std::numeric_limits<bfloat16> {
public:
    static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false;
    static constexpr bool has_infinity = true, has_quiet_NaN = true, has_signaling_NaN = false;
    static constexpr int digits = 8, radix = 2, min_exponent = -125, max_exponent = 128;
    static constexpr bfloat16 min() noexcept { return bfloat16::from_bits(0x0080); }
    static constexpr bfloat16 max() noexcept { return bfloat16::from_bits(0x7f7f); }
    static constexpr bfloat16 lowest() noexcept { return bfloat16::from_bits(0xff7f); }
    static constexpr bfloat16 epsilon() noexcept { return bfloat16::from_bits(0x3c00); }
    static constexpr bfloat16 infinity() noexcept { return bfloat16::from_bits(0x7f80); }
    static constexpr bfloat16 quiet_NaN() noexcept { return bfloat16::from_bits(0x7fc0); }
};

// Tags: at least so many bits. The array has accumulators of 32 and 64 bits and of f32.
struct acc32 {};
struct acc40 {};
struct acc48 {};
struct acc56 {};
struct acc64 {};
struct accfloat {};
struct accauto {};

namespace aie {

enum class aie_dm_resource { none, a, b, c, d, ab, ac, ad, bc, bd, cd, stack };

inline constexpr std::size_t dynamic_extent = std::numeric_limits<std::size_t>::max();

namespace simulation {

template <typename T, typename... Ts>
inline constexpr bool is_one_of = (std::same_as<T, Ts> || ...);

template <typename T>
inline constexpr bool is_integer_element = is_one_of<T, int8, uint8, int16, uint16, int32, uint32>;

template <typename T>
inline constexpr bool is_float_element = is_one_of<T, bfloat16, float>;

template <typename T>
inline constexpr unsigned bits_of = 8 * sizeof(T);

template <typename T>
inline constexpr bool is_signed_element = is_float_element<T> || std::is_signed_v<T>;

template <typename Tag>
struct AccumulatorTag;

template <typename Tag>
    requires is_one_of<Tag, acc32, accauto>
struct AccumulatorTag<Tag> {
    using Lane = std::int32_t;
};

template <typename Tag>
    requires is_one_of<Tag, acc40, acc48, acc56, acc64>
struct AccumulatorTag<Tag> {
    using Lane = std::int64_t;
};

template <>
struct AccumulatorTag<accfloat> {
    using Lane = float;
};

/// The value of one lane of an accumulator of that tag.
template <typename Tag>
using LaneOf = typename AccumulatorTag<Tag>::Lane;

/// Products that the array has instructions or AMD's headers an emulation for.
template <typename A, typename B>
constexpr bool can_multiply() {
    if constexpr (is_one_of<B, int8, uint8>)
        return is_one_of<A, int8, uint8, int16, uint16>;
    else if constexpr (is_one_of<B, int16, uint16>)
        return is_integer_element<A>;
    else if constexpr (is_one_of<B, int32, uint32>)
        return is_one_of<A, int16, uint16, int32, uint32>;
    else
        return is_float_element<B> && std::same_as<A, B>;
}

/// The accumulator that takes products of these unless the caller names one.
template <typename A, typename B>
struct ProductTag {
    using Tag = std::conditional_t<is_float_element<A>, accfloat,
                                   std::conditional_t<sizeof(A) + sizeof(B) <= 4, acc32,
                                                      std::conditional_t<sizeof(A) + sizeof(B) <= 6, acc48, acc64>>>;
};

template <typename Tag, typename A, typename B>
using TagOr = std::conditional_t<std::same_as<Tag, accauto>, typename ProductTag<A, B>::Tag, Tag>;

}  // namespace simulation

/// Elements of vectors. The array has complex numbers, integers of four bits and block floating point too; none is simulated.
template <typename T>
concept ElemBaseType = simulation::is_integer_element<T> || simulation::is_float_element<T>;

template <typename T>
concept AccumElemBaseType = simulation::is_one_of<T, acc32, acc40, acc48, acc56, acc64, accfloat, accauto>;

/// What declarations of buffers in core functions are aligned to.
inline constexpr unsigned vector_decl_align = simulation::is_aie2p ? 64 : 32;

template <typename T, unsigned Elems>
inline constexpr unsigned vector_ldst_align_v = simulation::alignment(simulation::bits_of<T> * Elems);

template <typename T>
inline constexpr unsigned native_vector_length_v = 64 / sizeof(T);

}  // namespace aie
