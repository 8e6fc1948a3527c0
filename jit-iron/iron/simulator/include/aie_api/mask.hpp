// aie::mask: a bit for every lane.

#pragma once

#include "vector.hpp"

#include <bitset>

namespace aie {

template <unsigned Elems>
class mask {
public:
    static constexpr unsigned size() { return Elems; }

    explicit mask(bool all = false) {
        if (all)
            bits_.set();
    }

    template <typename... Words>
        requires(sizeof...(Words) == (Elems <= 32 ? 1 : Elems / 32))
    static mask from_uint32(Words... words) {
        mask result;
        unsigned at = 0;
        const auto put = [&](std::uint32_t word) {
            for (unsigned i = 0; i < 32 && at < Elems; ++i, ++at)
                result.bits_[at] = word >> i & 1;
        };
        (put(static_cast<std::uint32_t>(words)), ...);
        return result;
    }

    template <typename... Words>
        requires(sizeof...(Words) == (Elems <= 64 ? 1 : Elems / 64))
    static mask from_uint64(Words... words) {
        mask result;
        unsigned at = 0;
        const auto put = [&](std::uint64_t word) {
            for (unsigned i = 0; i < 64 && at < Elems; ++i, ++at)
                result.bits_[at] = word >> i & 1;
        };
        (put(static_cast<std::uint64_t>(words)), ...);
        return result;
    }

    bool test(unsigned index) const { return bits_[index % Elems]; }

    void set(unsigned index) { bits_[index % Elems] = true; }

    void clear(unsigned index) { bits_[index % Elems] = false; }

    unsigned count() const { return static_cast<unsigned>(bits_.count()); }

    bool empty() const { return bits_.none(); }

    bool full() const { return bits_.all(); }

    /// Lanes at the beginning that are not set.
    unsigned ctz() const {
        unsigned lanes = 0;
        while (lanes < Elems && !bits_[lanes])
            ++lanes;
        return lanes;
    }

    /// Lanes at the end that are not set.
    unsigned clz() const {
        unsigned lanes = 0;
        while (lanes < Elems && !bits_[Elems - 1 - lanes])
            ++lanes;
        return lanes;
    }

    std::uint32_t to_uint32(unsigned index = 0) const { return static_cast<std::uint32_t>(word(index, 32)); }

    std::uint64_t to_uint64(unsigned index = 0) const { return word(index, 64); }

    template <unsigned ElemsOut>
    mask<ElemsOut> extract(unsigned index) const {
        mask<ElemsOut> result;
        for (unsigned i = 0; i < ElemsOut; ++i)
            if (test(index * ElemsOut + i))
                result.set(i);
        return result;
    }

    bool operator==(const mask &) const = default;
    mask operator&(const mask &other) const { return mask(bits_ & other.bits_); }
    mask operator|(const mask &other) const { return mask(bits_ | other.bits_); }
    mask operator~() const { return mask(~bits_); }
    mask operator<<(unsigned shift) const { return mask(bits_ << shift); }
    mask operator>>(unsigned shift) const { return mask(bits_ >> shift); }
    mask &operator&=(const mask &other) { return *this = *this & other; }
    mask &operator|=(const mask &other) { return *this = *this | other; }
    mask &operator<<=(unsigned shift) { return *this = *this << shift; }
    mask &operator>>=(unsigned shift) { return *this = *this >> shift; }

private:
    explicit mask(const std::bitset<Elems> &bits) : bits_(bits) {}

    std::uint64_t word(unsigned index, unsigned width) const {
        std::uint64_t result = 0;
        for (unsigned i = 0; i < width && index * width + i < Elems; ++i)
            result |= std::uint64_t{bits_[index * width + i]} << i;
        return result;
    }

    std::bitset<Elems> bits_;
};

namespace simulation {

template <unsigned N, typename Function>
mask<N> mask_of(Function function) {
    mask<N> result;
    for (unsigned i = 0; i < N; ++i)
        if (function(i))
            result.set(i);
    return result;
}

}  // namespace simulation
}  // namespace aie
