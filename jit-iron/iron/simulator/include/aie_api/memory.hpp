// Loads and stores. A vector in memory begins at a multiple of its own size, up to what the generation asks for; on the array the
// low bits of another address are dropped. Here it is an error of the core function.

#pragma once

#include "vector.hpp"

namespace aie {

namespace simulation {

template <typename T, unsigned Elems>
void check_address(const char *call, const void *address, unsigned alignment) {
    if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0)
        fail("aie::%s: a vector of %u elements of %u bits at an address that is %u more than a multiple of %u bytes; it must be a multiple",
             call, Elems, bits_of<T>, static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) % alignment), alignment);
}

template <typename T>
using Element = std::remove_cv_t<T>;

}  // namespace simulation

template <unsigned Elems, aie_dm_resource = aie_dm_resource::none, typename T>
    requires ElemBaseType<T>
vector<T, Elems> load_v(const T *from) {
    simulation::check_address<T, Elems>("load_v", from, vector_ldst_align_v<T, Elems>);
    vector<T, Elems> result;
    std::memcpy(result.data(), from, result.bytes());
    return result;
}

template <aie_dm_resource Resource = aie_dm_resource::none, typename T>
    requires ElemBaseType<T>
vector<T, native_vector_length_v<T>> load_v(const T *from) {
    return load_v<native_vector_length_v<T>, Resource>(from);
}

/// `aligned_elems` is what the caller knows of the address.
template <unsigned Elems, aie_dm_resource = aie_dm_resource::none, typename T>
    requires ElemBaseType<T>
vector<T, Elems> load_unaligned_v(const T *from, unsigned aligned_elems = 1) {
    simulation::check_address<T, Elems>("load_unaligned_v", from, aligned_elems * static_cast<unsigned>(sizeof(T)));
    vector<T, Elems> result;
    std::memcpy(result.data(), from, result.bytes());
    return result;
}

template <aie_dm_resource Resource = aie_dm_resource::none, typename T>
    requires ElemBaseType<T>
vector<T, native_vector_length_v<T>> load_unaligned_v(const T *from, unsigned aligned_elems = 1) {
    return load_unaligned_v<native_vector_length_v<T>, Resource>(from, aligned_elems);
}

/// The vector that begins at the address rounded down to a multiple of `n` elements.
template <unsigned Elems, aie_dm_resource Resource = aie_dm_resource::none, typename T>
    requires ElemBaseType<T>
vector<T, Elems> load_floor_v(const T *from, unsigned n = Elems) {
    const auto address = reinterpret_cast<std::uintptr_t>(from);
    return load_v<Elems, Resource>(reinterpret_cast<const T *>(address - address % (n * sizeof(T))));
}

template <aie_dm_resource = aie_dm_resource::none, typename T, unsigned Elems>
T *store_v(T *to, const vector<std::type_identity_t<T>, Elems> &v) {
    simulation::check_address<T, Elems>("store_v", to, vector_ldst_align_v<T, Elems>);
    std::memcpy(to, v.data(), v.bytes());
    return to;
}

template <aie_dm_resource = aie_dm_resource::none, typename T, unsigned Elems>
T *store_unaligned_v(T *to, const vector<std::type_identity_t<T>, Elems> &v, unsigned aligned_elems = 1) {
    simulation::check_address<T, Elems>("store_unaligned_v", to, aligned_elems * static_cast<unsigned>(sizeof(T)));
    std::memcpy(to, v.data(), v.bytes());
    return to;
}

}  // namespace aie
