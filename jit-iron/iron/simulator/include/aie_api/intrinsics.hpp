// What core functions use beside aie_api: names that AMD's compilers know without a header.

#pragma once

#include "accum.hpp"
#include "shuffle.hpp"

#include <cassert>
#include <cstdint>

// A core stops at a failed assertion. Here the simulation goes on and tells.
#undef assert
#define assert(condition) \
    (static_cast<bool>(condition) ? void(0) : aie::simulation::fail("assertion failed: %s (%s:%d)", #condition, __FILE__, __LINE__))

#define chess_prepare_for_pipelining
#define chess_loop_range(...)
#define chess_loop_count(...)
#define chess_unroll_loop(...)
#define chess_flatten_loop
#define chess_storage(...)
#define chess_protect_access
#define chess_copy(x) (x)
#define chess_separator_scheduler(...)
#define chess_memory_fence()
#define __aie_dm_resource_a
#define __aie_dm_resource_b
#define __aie_dm_resource_c
#define __aie_dm_resource_d
#define __aie_dm_resource_stack
#define __aie_inline inline

/// Marks for traces, which are not simulated.
inline void event0() {}
inline void event1() {}

using v8float = aie::vector<float, 8>;
using v16float = aie::vector<float, 16>;
using v32float = aie::vector<float, 32>;
using v8bfloat16 = aie::vector<bfloat16, 8>;
using v16bfloat16 = aie::vector<bfloat16, 16>;
using v32bfloat16 = aie::vector<bfloat16, 32>;
using v64bfloat16 = aie::vector<bfloat16, 64>;
using v16int8 = aie::vector<int8, 16>;
using v32int8 = aie::vector<int8, 32>;
using v64int8 = aie::vector<int8, 64>;
using v32uint8 = aie::vector<uint8, 32>;
using v64uint8 = aie::vector<uint8, 64>;
using v16int16 = aie::vector<int16, 16>;
using v32int16 = aie::vector<int16, 32>;
using v16uint16 = aie::vector<uint16, 16>;
using v32uint16 = aie::vector<uint16, 32>;
using v8int32 = aie::vector<int32, 8>;
using v16int32 = aie::vector<int32, 16>;
using v16uint32 = aie::vector<uint32, 16>;
using v8accfloat = aie::accum<accfloat, 8>;
using v16accfloat = aie::accum<accfloat, 16>;
using v32accfloat = aie::accum<accfloat, 32>;

inline v16int32 broadcast_to_v16int32(int32 x) { return aie::broadcast<int32, 16>(x); }
inline v32int16 broadcast_to_v32int16(int16 x) { return aie::broadcast<int16, 32>(x); }
inline v64int8 broadcast_to_v64int8(int8 x) { return aie::broadcast<int8, 64>(x); }
inline v16float broadcast_to_v16float(float x) { return aie::broadcast<float, 16>(x); }
inline v32bfloat16 broadcast_to_v32bfloat16(bfloat16 x) { return aie::broadcast<bfloat16, 32>(x); }
inline v16int32 broadcast_zero_s32() { return {}; }
inline v16float broadcast_zero_float() { return {}; }
inline v32bfloat16 broadcast_zero_bfloat16() { return {}; }
inline v32int16 broadcast_zero_to_v32int16() { return {}; }
inline v32bfloat16 broadcast_zero_to_v32bfloat16() { return {}; }
inline v32bfloat16 broadcast_one_to_v32bfloat16() { return broadcast_to_v32bfloat16(bfloat16(1.0f)); }

template <typename T, unsigned N>
T extract_elem(const aie::vector<T, N> &v, unsigned number) {
    if (number < N)
        return v.data()[number];
    aie::simulation::fail("extract_elem: element %u of a vector of %u", number, N);
    return T(0);
}

template <typename T, unsigned N>
T ext_elem(const aie::vector<T, N> &v, unsigned number) {
    return extract_elem(v, number);
}

/// All elements become that with this number.
template <typename T, unsigned N>
aie::vector<T, N> broadcast_elem(const aie::vector<T, N> &v, unsigned number) {
    return aie::broadcast<T, N>(extract_elem(v, number));
}

inline v16bfloat16 to_v16bfloat16(const v16accfloat &a) { return a.to_vector<bfloat16>(); }

/// v * 2^shift to the integer below.
inline v16int32 bfloat16_to_int(const v16bfloat16 &v, int shift) {
    return aie::simulation::generate<int32, 16>([&](unsigned i) {
        const double scaled = std::floor(std::ldexp(double(float(v.data()[i])), shift));
        return scaled >= 2147483647.0 ? INT32_MAX : scaled <= -2147483648.0 ? INT32_MIN : scaled == scaled ? static_cast<int32>(scaled) : 0;
    });
}

/// The bytes from `bytes` on of both vectors behind each other.
template <typename T, unsigned N>
aie::vector<T, N> shift_bytes(const aie::vector<T, N> &a, const aie::vector<T, N> &b, unsigned bytes) {
    aie::vector<T, N> result;
    if (bytes > result.bytes()) {
        aie::simulation::fail("shift_bytes: by %u bytes in vectors of %u bytes", bytes, result.bytes());
        return result;
    }
    auto *to = reinterpret_cast<unsigned char *>(result.data());
    std::memcpy(to, reinterpret_cast<const unsigned char *>(a.data()) + bytes, result.bytes() - bytes);
    std::memcpy(to + result.bytes() - bytes, b.data(), bytes);
    return result;
}

/// The modes by their numbers.
inline void set_rnd(unsigned mode) { aie::simulation::state.rounding = mode; }
inline unsigned get_rnd() { return aie::simulation::state.rounding; }
inline void set_sat() { aie::simulation::state.saturation = 1; }
inline void clr_sat() { aie::simulation::state.saturation = 0; }
inline void set_satmode(unsigned mode) { aie::simulation::state.saturation = mode; }
