// aie::vector: elements of one type, by value.

#pragma once

#include "types.hpp"

#include <array>
#include <cstring>
#include <tuple>
#include <utility>

namespace aie {

template <ElemBaseType T, unsigned Elems = native_vector_length_v<T>>
class vector;

template <AccumElemBaseType Tag, unsigned Elems>
class accum;

template <unsigned Elems>
class mask;

namespace simulation {

template <typename T>
struct IsVector : std::false_type {};

template <typename T, unsigned N>
struct IsVector<vector<T, N>> : std::true_type {};

template <typename T>
struct IsAccumulator : std::false_type {};

template <typename Tag, unsigned N>
struct IsAccumulator<accum<Tag, N>> : std::true_type {};

/// The integer of the same kind with twice the bits.
template <typename T>
using Wider = std::conditional_t<sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, int16, uint16>,
                                 std::conditional_t<std::is_signed_v<T>, int32, uint32>>;

/// The integer of the same kind with half the bits.
template <typename T>
using Narrower = std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int16, uint16>,
                                    std::conditional_t<std::is_signed_v<T>, int8, uint8>>;

constexpr bool is_vector_size(unsigned bits) { return bits >= 128 && bits % 128 == 0 && std::has_single_bit(bits); }

}  // namespace simulation

template <typename T>
concept Vector = simulation::IsVector<std::remove_cvref_t<T>>::value;

template <typename T>
concept Accum = simulation::IsAccumulator<std::remove_cvref_t<T>>::value;

/// Stands for one element of a vector that can be changed.
template <ElemBaseType T, unsigned N>
class vector_elem_ref {
public:
    using value_type = T;

    constexpr vector_elem_ref(vector<T, N> &parent, unsigned index) : parent_(parent), index_(index) {}
    constexpr operator T() const { return parent_.get(index_); }

    constexpr operator float() const
        requires std::same_as<T, bfloat16>
    {
        return get();
    }

    constexpr T get() const { return parent_.get(index_); }

    constexpr vector_elem_ref &operator=(T value) {
        parent_.set(value, index_);
        return *this;
    }

    constexpr vector_elem_ref &operator=(const vector_elem_ref &other) { return *this = other.get(); }

    vector_elem_ref(const vector_elem_ref &) = default;

private:
    vector<T, N> &parent_;
    unsigned index_;
};

/// Stands for one element of a vector.
template <ElemBaseType T, unsigned N>
class vector_elem_const_ref {
public:
    using value_type = T;

    constexpr vector_elem_const_ref(const vector<T, N> &parent, unsigned index) : parent_(parent), index_(index) {}
    constexpr operator T() const { return parent_.get(index_); }

    constexpr operator float() const
        requires std::same_as<T, bfloat16>
    {
        return get();
    }

    constexpr T get() const { return parent_.get(index_); }

private:
    const vector<T, N> &parent_;
    unsigned index_;
};

namespace simulation {

template <typename T>
struct ScalarOf {
    using Type = T;
};

template <typename T, unsigned N>
struct ScalarOf<vector_elem_ref<T, N>> {
    using Type = T;
};

template <typename T, unsigned N>
struct ScalarOf<vector_elem_const_ref<T, N>> {
    using Type = T;
};

/// The type of the element that is given as itself or as a part of a vector.
template <typename T>
using Scalar = typename ScalarOf<std::remove_cvref_t<T>>::Type;

}  // namespace simulation

template <typename T>
concept Elem = ElemBaseType<simulation::Scalar<T>>;

/// An element that goes with vectors of T.
template <typename E, typename T>
concept ElemOf = Elem<E> && std::same_as<simulation::Scalar<E>, T>;

template <ElemBaseType T, unsigned Elems>
class vector {
    static_assert(simulation::is_vector_size(simulation::bits_of<T> * Elems),
                  "aie::vector has no such size; available: 128, 256, 512 or 1024 bits, or a larger power of two");

public:
    using value_type = T;
    using native_type = vector;
    using storage_t = vector;

    static constexpr unsigned size() { return Elems; }
    static constexpr unsigned type_bits() { return simulation::bits_of<T>; }
    static constexpr unsigned bits() { return type_bits() * Elems; }
    static constexpr unsigned bytes() { return bits() / 8; }
    static constexpr bool is_signed() { return simulation::is_signed_element<T>; }
    static constexpr bool is_complex() { return false; }
    static constexpr bool is_real() { return true; }
    static constexpr bool is_integral() { return simulation::is_integer_element<T>; }
    static constexpr bool is_floating_point() { return simulation::is_float_element<T>; }

    /// Without values on the array; zero here, so that results do not depend on what was there before.
    constexpr vector() = default;

    template <typename... Values>
        requires(sizeof...(Values) < Elems) && (std::convertible_to<Values, T> && ...)
    explicit constexpr vector(T first, Values... values) : elements_{first, static_cast<T>(values)...} {}

    constexpr T get(unsigned index) const {
        check(index, Elems, "element");
        return elements_[index % Elems];
    }

    constexpr void set(T value, unsigned index) {
        check(index, Elems, "element");
        elements_[index % Elems] = value;
    }

    constexpr vector_elem_const_ref<T, Elems> operator[](unsigned index) const { return {*this, index}; }
    constexpr vector_elem_ref<T, Elems> operator[](unsigned index) { return {*this, index}; }
    constexpr vector_elem_const_ref<T, Elems> elem_const_ref(unsigned index) const { return {*this, index}; }
    constexpr vector_elem_const_ref<T, Elems> elem_ref(unsigned index) const { return {*this, index}; }
    constexpr vector_elem_ref<T, Elems> elem_ref(unsigned index) { return {*this, index}; }

    constexpr void push(T value) {
        for (unsigned i = Elems - 1; i > 0; --i)
            elements_[i] = elements_[i - 1];
        elements_[0] = value;
    }

    /// The same bits as elements of another type.
    template <ElemBaseType To>
    auto cast_to() const {
        vector<To, bits() / simulation::bits_of<To>> result;
        std::memcpy(result.data(), data(), bytes());
        return result;
    }

    template <unsigned ElemsOut>
    constexpr vector<T, ElemsOut> extract(unsigned index) const {
        static_assert(ElemsOut <= Elems, "aie::vector::extract: the part is larger than the vector");
        check(index, Elems / ElemsOut, "part");
        vector<T, ElemsOut> result;
        for (unsigned i = 0; i < ElemsOut; ++i)
            result.data()[i] = elements_[(index * ElemsOut + i) % Elems];
        return result;
    }

    template <unsigned ElemsIn>
    constexpr vector &insert(unsigned index, const vector<T, ElemsIn> &part) {
        static_assert(ElemsIn <= Elems, "aie::vector::insert: the part is larger than the vector");
        check(index, Elems / ElemsIn, "part");
        for (unsigned i = 0; i < ElemsIn; ++i)
            elements_[(index * ElemsIn + i) % Elems] = part.data()[i];
        return *this;
    }

    template <unsigned ElemsOut>
    constexpr vector<T, ElemsOut> grow(unsigned index = 0) const {
        return vector<T, ElemsOut>().insert(index, *this);
    }

    template <unsigned ElemsOut>
    constexpr vector<T, ElemsOut> grow_replicate() const {
        vector<T, ElemsOut> result;
        for (unsigned i = 0; i < ElemsOut / Elems; ++i)
            result.insert(i, *this);
        return result;
    }

    template <unsigned ElemsOut>
    constexpr vector<T, ElemsOut> grow_extract(unsigned index) const {
        if constexpr (ElemsOut > Elems)
            return grow<ElemsOut>();
        else
            return extract<ElemsOut>(index);
    }

    /// The parts, as a tuple.
    template <unsigned ElemsOut>
    constexpr auto split() const {
        return [&]<unsigned... I>(std::integer_sequence<unsigned, I...>) {
            return std::make_tuple(extract<ElemsOut>(I)...);
        }(std::make_integer_sequence<unsigned, Elems / ElemsOut>());
    }

    template <typename To = simulation::Wider<T>>
        requires(is_integral() && simulation::is_integer_element<To> && sizeof(To) > sizeof(T))
    vector<To, Elems> unpack() const {
        return unpack_sign<To>(is_signed());
    }

    template <typename To = simulation::Wider<T>>
        requires(is_integral() && simulation::is_integer_element<To> && sizeof(To) > sizeof(T))
    vector<To, Elems> unpack_sign(bool sign) const {
        vector<To, Elems> result;
        for (unsigned i = 0; i < Elems; ++i) {
            if (sign)
                result.data()[i] = static_cast<To>(static_cast<std::make_signed_t<T>>(elements_[i]));
            else
                result.data()[i] = static_cast<To>(static_cast<std::make_unsigned_t<T>>(elements_[i]));
        }
        return result;
    }

    template <typename To = simulation::Narrower<T>>
        requires(is_integral() && simulation::is_integer_element<To> && sizeof(To) < sizeof(T))
    vector<To, Elems> pack() const {
        return pack_sign<To>(is_signed());
    }

    /// By the saturation mode; nothing is rounded.
    template <typename To = simulation::Narrower<T>>
        requires(is_integral() && simulation::is_integer_element<To> && sizeof(To) < sizeof(T))
    vector<To, Elems> pack_sign(bool sign) const {
        vector<To, Elems> result;
        for (unsigned i = 0; i < Elems; ++i)
            result.data()[i] = static_cast<To>(simulation::saturate(elements_[i], simulation::bits_of<To>, sign));
        return result;
    }

    constexpr T *data() { return elements_.data(); }
    constexpr const T *data() const { return elements_.data(); }

private:
    static constexpr void check(unsigned index, unsigned count, const char *what) {
        if (index >= count)
            simulation::fail("aie::vector: %s %u of a vector that has %u of them", what, index, count);
    }

    alignas(simulation::bits_of<T> * Elems >= 512 ? 64 : simulation::bits_of<T> * Elems / 8) std::array<T, Elems> elements_{};
};

namespace simulation {

/// One more vector by a function of every lane.
template <typename R, unsigned N, typename Function>
constexpr vector<R, N> generate(Function function) {
    vector<R, N> result;
    for (unsigned i = 0; i < N; ++i)
        result.data()[i] = function(i);
    return result;
}

/// A vector as it is, or an element as a vector.
template <typename T, unsigned N>
constexpr const vector<T, N> &spread(const vector<T, N> &v) {
    return v;
}

template <typename T, unsigned N, ElemOf<T> E>
constexpr vector<T, N> spread(const E &element) {
    const T value = element;
    return generate<T, N>([&](unsigned) { return value; });
}

template <typename V>
using ValueOf = typename std::remove_cvref_t<V>::value_type;

template <typename V>
inline constexpr unsigned size_of = std::remove_cvref_t<V>::size();

}  // namespace simulation

/// Two vectors, or a vector and an element, that go together lane by lane.
template <typename A, typename B>
concept SameVectors = Vector<A> && Vector<B> && std::same_as<std::remove_cvref_t<A>, std::remove_cvref_t<B>>;

template <ElemBaseType To, Vector V>
auto vector_cast(const V &v) {
    return v.template cast_to<To>();
}

template <Vector V, Vector... Vs>
    requires(std::same_as<V, Vs> && ...)
constexpr auto concat(const V &first, const Vs &...others) {
    vector<typename V::value_type, V::size() * (1 + sizeof...(Vs))> result;
    unsigned index = 0;
    result.insert(index++, first);
    (result.insert(index++, others), ...);
    return result;
}

template <ElemBaseType T, unsigned Elems = native_vector_length_v<T>>
constexpr vector<T, Elems> zeros() {
    return {};
}

template <ElemBaseType T, unsigned Elems = native_vector_length_v<T>>
constexpr vector<T, Elems> broadcast(std::type_identity_t<T> value) {
    return simulation::generate<T, Elems>([&](unsigned) { return value; });
}

template <Elem E>
constexpr auto broadcast(const E &value) {
    using T = simulation::Scalar<E>;
    return broadcast<T, native_vector_length_v<T>>(static_cast<T>(value));
}

}  // namespace aie
