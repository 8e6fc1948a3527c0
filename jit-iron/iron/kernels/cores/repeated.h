// Where the elements of a source are that repeats to the shape of another: extents N0 to N3 of the whole, M0 to M3 of the source.

#pragma once

#include <aie_api/aie.hpp>

namespace repeated {

struct Extents {
    int n0, n1, n2, n3, m0, m1, m2, m3;
};

/// Walks through the whole in steps of `Lanes` elements and reads the source's elements that meet them.
template <typename T, int Lanes, Extents E>
class Walk {
public:
    Walk(const T *source, int first) : source_(source) {
        int left = first;
        i0_ = left % E.n0, left /= E.n0;
        i1_ = left % E.n1, left /= E.n1;
        i2_ = left % E.n2, i3_ = left / E.n2;
    }

    /// The elements that meet the next vector.
    aie::vector<T, Lanes> next() {
        aie::vector<T, Lanes> values;
        if constexpr (E.n0 % Lanes == 0 && E.m0 % Lanes == 0) {
            values = aie::load_v<Lanes>(source_ + row() + i0_ % E.m0);
            advance(Lanes);
        } else if constexpr (E.n0 % Lanes == 0 && E.m0 == 1) {
            values = aie::broadcast<T, Lanes>(source_[row()]);
            advance(Lanes);
        } else {
            alignas(64) T gathered[Lanes];
            for (int lane = 0; lane < Lanes; ++lane) {
                gathered[lane] = source_[row() + i0_ % E.m0];
                advance(1);
            }
            values = aie::load_v<Lanes>(gathered);
        }
        return values;
    }

private:
    int row() const { return (((i3_ % E.m3) * E.m2 + i2_ % E.m2) * E.m1 + i1_ % E.m1) * E.m0; }

    void advance(int elements) {
        i0_ += elements;
        if (i0_ < E.n0)
            return;
        i0_ = 0;
        if (++i1_ < E.n1)
            return;
        i1_ = 0;
        if (++i2_ < E.n2)
            return;
        i2_ = 0;
        ++i3_;
    }

    const T *source_;
    int i0_, i1_, i2_, i3_;
};

}  // namespace repeated
