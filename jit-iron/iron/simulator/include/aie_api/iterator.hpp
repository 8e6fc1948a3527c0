// Iterators that walk through memory by vectors.

#pragma once

#include "memory.hpp"

#include <iterator>

namespace aie {

namespace simulation {

/// Stands for a vector in memory; what is assigned to it is stored.
template <typename T, unsigned N>
class VectorReference {
public:
    explicit VectorReference(T *at) : at_(at) {}
    operator vector<T, N>() const { return load_v<N>(at_); }

    const VectorReference &operator=(const vector<T, N> &v) const {
        store_v(at_, v);
        return *this;
    }

    const VectorReference &operator=(const VectorReference &other) const { return *this = static_cast<vector<T, N>>(other); }

    VectorReference(const VectorReference &) = default;

private:
    T *at_;
};

template <typename T, unsigned N>
class VectorIterator {
public:
    using value_type = vector<std::remove_const_t<T>, N>;
    using reference = std::conditional_t<std::is_const_v<T>, value_type, VectorReference<T, N>>;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using iterator_category = std::random_access_iterator_tag;

    explicit VectorIterator(T *at) : at_(at) {}

    reference operator*() const {
        if constexpr (std::is_const_v<T>)
            return load_v<N>(at_);
        else
            return reference(at_);
    }

    reference operator[](difference_type steps) const { return *(*this + steps); }

    VectorIterator &operator++() { return *this += 1; }
    VectorIterator &operator--() { return *this -= 1; }

    VectorIterator operator++(int) {
        const VectorIterator before = *this;
        *this += 1;
        return before;
    }

    VectorIterator operator--(int) {
        const VectorIterator before = *this;
        *this -= 1;
        return before;
    }

    VectorIterator &operator+=(difference_type steps) {
        at_ += steps * static_cast<difference_type>(N);
        return *this;
    }

    VectorIterator &operator-=(difference_type steps) { return *this += -steps; }
    VectorIterator operator+(difference_type steps) const { return VectorIterator(*this) += steps; }
    VectorIterator operator-(difference_type steps) const { return VectorIterator(*this) -= steps; }
    difference_type operator-(const VectorIterator &other) const { return (at_ - other.at_) / static_cast<difference_type>(N); }
    auto operator<=>(const VectorIterator &) const = default;

private:
    T *at_;
};

/// Goes back to the beginning after the last vector.
template <typename T, unsigned N>
class CircularIterator {
public:
    CircularIterator(T *base, std::size_t elements) : base_(base), elements_(elements) {}

    auto operator*() const { return *VectorIterator<T, N>(base_ + at_); }

    CircularIterator &operator++() {
        at_ = (at_ + N) % elements_;
        return *this;
    }

    CircularIterator operator++(int) {
        const CircularIterator before = *this;
        ++*this;
        return before;
    }

private:
    T *base_;
    std::size_t elements_;
    std::size_t at_ = 0;
};

}  // namespace simulation

template <unsigned Elems, aie_dm_resource = aie_dm_resource::none, ElemBaseType T>
auto begin_vector(T *base) {
    return simulation::VectorIterator<T, Elems>(base);
}

template <unsigned Elems, aie_dm_resource = aie_dm_resource::none, ElemBaseType T>
auto begin_vector(const T *base) {
    return simulation::VectorIterator<const T, Elems>(base);
}

template <unsigned Elems, aie_dm_resource = aie_dm_resource::none, ElemBaseType T>
auto cbegin_vector(const T *base) {
    return simulation::VectorIterator<const T, Elems>(base);
}

template <unsigned Elems, aie_dm_resource = aie_dm_resource::none, ElemBaseType T>
auto begin_restrict_vector(T *base) {
    return simulation::VectorIterator<T, Elems>(base);
}

template <unsigned Elems, aie_dm_resource = aie_dm_resource::none, ElemBaseType T>
auto begin_restrict_vector(const T *base) {
    return simulation::VectorIterator<const T, Elems>(base);
}

template <unsigned Elems, aie_dm_resource = aie_dm_resource::none, ElemBaseType T>
auto cbegin_restrict_vector(const T *base) {
    return simulation::VectorIterator<const T, Elems>(base);
}

template <unsigned Elems, aie_dm_resource = aie_dm_resource::none, ElemBaseType T>
auto begin_vector_circular(T *base, std::size_t elements) {
    return simulation::CircularIterator<T, Elems>(base, elements);
}

template <unsigned Elems, aie_dm_resource = aie_dm_resource::none, ElemBaseType T>
auto cbegin_vector_circular(const T *base, std::size_t elements) {
    return simulation::CircularIterator<const T, Elems>(base, elements);
}

}  // namespace aie
