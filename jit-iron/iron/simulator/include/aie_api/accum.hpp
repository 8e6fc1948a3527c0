// aie::accum: lanes of 32 or 64 bits or of f32, in which products are summed.

#pragma once

#include "detail/float_sums.hpp"
#include "vector.hpp"

namespace aie {

template <AccumElemBaseType Tag, unsigned Elems>
class accum {
    static_assert(std::has_single_bit(Elems), "aie::accum: the number of lanes is a power of two");

public:
    using value_type = Tag;
    using lane_type = simulation::LaneOf<Tag>;
    using storage_t = accum;

    static constexpr unsigned size() { return Elems; }
    static constexpr unsigned accum_bits() { return simulation::bits_of<lane_type>; }
    static constexpr unsigned value_bits() { return accum_bits(); }
    static constexpr unsigned memory_bits() { return accum_bits(); }
    static constexpr unsigned bits() { return accum_bits() * Elems; }
    static constexpr bool is_complex() { return false; }
    static constexpr bool is_real() { return true; }
    static constexpr bool is_floating_point() { return std::same_as<lane_type, float>; }

    accum() = default;

    template <AccumElemBaseType Other>
        requires(!std::same_as<Other, Tag>) && std::same_as<simulation::LaneOf<Other>, lane_type>
    accum(const accum<Other, Elems> &other) {
        for (unsigned i = 0; i < Elems; ++i)
            lanes_[i] = other.lane(i);
    }

    template <typename T>
    explicit accum(const vector<T, Elems> &v, int shift = 0) {
        from_vector(v, shift);
    }

    template <typename T>
    accum &operator=(const vector<T, Elems> &v) {
        from_vector(v);
        return *this;
    }

    /// Only sums of floating-point numbers become vectors without being asked.
    template <typename T>
    operator vector<T, Elems>() const
        requires(is_floating_point() && simulation::is_float_element<T>)
    {
        return to_vector<T>();
    }

    template <typename T>
    void from_vector(const vector<T, Elems> &v, int shift = 0) {
        from_vector_sign(v, simulation::is_signed_element<T>, shift);
    }

    /// An f32 that goes into lanes of 32-bit integers keeps its bits: there is no conversion on the way on the array.
    template <typename T>
    void from_vector_sign(const vector<T, Elems> &v, bool sign, int shift = 0) {
        static_assert(simulation::is_float_element<T> == is_floating_point() || (std::same_as<T, float> && accum_bits() == 32),
                      "aie::accum: integers and floating-point numbers do not go into each other's accumulators");
        for (unsigned i = 0; i < Elems; ++i) {
            if constexpr (is_floating_point()) {
                lanes_[i] = v.data()[i];
            } else if constexpr (std::same_as<T, float>) {
                lanes_[i] = std::bit_cast<lane_type>(v.data()[i]);
            } else {
                const std::int64_t value = sign ? std::int64_t{static_cast<std::make_signed_t<T>>(v.data()[i])}
                                                : std::int64_t{static_cast<std::make_unsigned_t<T>>(v.data()[i])};
                lanes_[i] = static_cast<lane_type>(simulation::shift_round(value, -shift));
            }
        }
    }

    /// Integers are shifted right, rounded and saturated by the modes; f32 becomes bf16 by the rounding mode.
    template <typename T>
    vector<T, Elems> to_vector(int shift = 0) const {
        return to_vector_sign<T>(simulation::is_signed_element<T>, shift);
    }

    auto to_vector() const
        requires(is_floating_point())
    {
        return to_vector<float>();
    }

    template <typename T>
    vector<T, Elems> to_vector_sign(bool sign, int shift = 0) const {
        static_assert(ElemBaseType<T>, "aie::accum::to_vector: there are no vectors of this type");
        static_assert(simulation::is_float_element<T> == is_floating_point() || (std::same_as<T, float> && accum_bits() == 32),
                      "aie::accum::to_vector: an accumulator of integers gives integers, one of f32 gives float or bfloat16");
        return simulation::generate<T, Elems>([&](unsigned i) -> T {
            if constexpr (std::same_as<lane_type, float>)
                return std::same_as<T, float> ? T(lanes_[i]) : narrow<T>(lanes_[i]);
            else if constexpr (std::same_as<T, float>)
                return std::bit_cast<float>(lanes_[i]);
            else
                return static_cast<T>(simulation::saturate(simulation::shift_round(lanes_[i], shift), simulation::bits_of<T>, sign));
        });
    }

    /// The same bits as lanes of another kind.
    template <AccumElemBaseType To>
    auto cast_to() const {
        accum<To, bits() / simulation::bits_of<simulation::LaneOf<To>>> result;
        std::memcpy(result.data(), data(), sizeof lanes_);
        return result;
    }

    template <unsigned ElemsOut>
    accum<Tag, ElemsOut> extract(unsigned index) const {
        static_assert(ElemsOut <= Elems, "aie::accum::extract: the part is larger than the accumulator");
        check(index, Elems / ElemsOut);
        accum<Tag, ElemsOut> result;
        for (unsigned i = 0; i < ElemsOut; ++i)
            result.data()[i] = lanes_[(index * ElemsOut + i) % Elems];
        return result;
    }

    template <unsigned ElemsIn, AccumElemBaseType Other>
        requires std::same_as<simulation::LaneOf<Other>, lane_type>
    accum &insert(unsigned index, const accum<Other, ElemsIn> &part) {
        static_assert(ElemsIn <= Elems, "aie::accum::insert: the part is larger than the accumulator");
        check(index, Elems / ElemsIn);
        for (unsigned i = 0; i < ElemsIn; ++i)
            lanes_[(index * ElemsIn + i) % Elems] = part.lane(i);
        return *this;
    }

    template <unsigned ElemsOut>
    accum<Tag, ElemsOut> grow() const {
        return accum<Tag, ElemsOut>().insert(0, *this);
    }

    template <unsigned ElemsOut>
    accum<Tag, ElemsOut> grow_replicate() const {
        accum<Tag, ElemsOut> result;
        for (unsigned i = 0; i < ElemsOut / Elems; ++i)
            result.insert(i, *this);
        return result;
    }

    template <unsigned ElemsOut>
    accum<Tag, ElemsOut> grow_extract(unsigned index) const {
        if constexpr (ElemsOut > Elems)
            return grow<ElemsOut>();
        else
            return extract<ElemsOut>(index);
    }

    lane_type lane(unsigned index) const { return lanes_[index]; }
    lane_type *data() { return lanes_.data(); }
    const lane_type *data() const { return lanes_.data(); }

private:
    template <typename T>
    static T narrow(float value) {
        if constexpr (std::same_as<T, bfloat16>)
            return bfloat16::from_bits(simulation::round_to_bf16(value, simulation::rounding()));
        else
            return T(value);
    }

    static void check(unsigned index, unsigned count) {
        if (index >= count)
            simulation::fail("aie::accum: part %u of an accumulator that has %u of them", index, count);
    }

    std::array<lane_type, Elems> lanes_{};
};

namespace simulation {

template <typename Tag, unsigned N, typename Function>
accum<Tag, N> accumulate_lanes(Function function) {
    accum<Tag, N> result;
    for (unsigned i = 0; i < N; ++i)
        result.data()[i] = function(i);
    return result;
}

/// Sums of integers drop what exceeds the lane.
template <typename Lane>
constexpr Lane wrapping(std::uint64_t value) {
    return static_cast<Lane>(static_cast<std::int64_t>(value));
}

}  // namespace simulation

template <AccumElemBaseType Tag, unsigned Elems>
accum<Tag, Elems> zeros() {
    return {};
}

template <Accum A, Accum... As>
    requires(std::same_as<A, As> && ...)
auto concat(const A &first, const As &...others) {
    accum<typename A::value_type, A::size() * (1 + sizeof...(As))> result;
    unsigned index = 0;
    result.insert(index++, first);
    (result.insert(index++, others), ...);
    return result;
}

template <typename T, Accum A>
auto to_vector(const A &a, int shift = 0) {
    return a.template to_vector<T>(shift);
}

template <AccumElemBaseType Tag, Vector V>
auto from_vector(const V &v, int shift = 0) {
    return accum<Tag, V::size()>(v, shift);
}

}  // namespace aie
