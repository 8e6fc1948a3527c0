// exp(x - max) of a row, divided by its sum, where x is the row times a factor plus a slope times a row of the mask.
//
// Macros as in rms_norm.cc, with FACTOR the bits of the factor. With a mask: MASK_TYPE, MASK_TENSOR and MASK_WINDOW; how its rows
// meet the rows, EXTENTS: rows, heads and batches of the whole, then of the mask. `slopes` has a number for each head.
//
// `progress`: the row, the part, and the bits of the divisor's reciprocal.

#include "exponential.h"
#include "rows.h"

namespace {

constexpr rows::Source kSource{ROW_LENGTH, ROW_OBJECT, TENSOR, WINDOW};

/// Replaces the row by its exponentials; returns the reciprocal of their sum.
template <typename Mask>
inline lanes::Floats exponentials(float *__restrict row, Mask mask_at) {
    using namespace lanes;
    Floats largest = all(-kInfinity);
    for (int at = 0; at < kSource.object; at += static_cast<int>(kLanes)) {
        const Floats x = mask_at(at, mul(load(row + at), from_bits(FACTOR)));
        store(row + at, x);
    }
    rows::fill_behind(row, kSource, -kInfinity);
    for (int at = 0; at < kSource.object; at += static_cast<int>(kLanes))
        largest = aie::max(largest, load(row + at));
    const Floats most = all(aie::reduce_max(largest));
    Floats sums = all(0.0f);
    for (int at = 0; at < kSource.object; at += static_cast<int>(kLanes)) {
        const Floats y = exp(sub(load(row + at), most));
        store(row + at, y);
        sums = add(sums, y);
    }
    // What lies behind the row is exp(-infinity), unless there is nothing but -infinity.
    const Floats total = all(aie::reduce_add(sums));
    return keep_nan(total, reciprocal_of_normal(total));
}

inline void end_part(int32_t *progress, int32_t count) {
    if (++progress[1] == ROW_LENGTH / PART) {
        progress[1] = 0;
        progress[0] = progress[0] + 1 == count ? 0 : progress[0] + 1;
    }
}

inline void write(const float *row, float *out, const int32_t *progress) {
    const float factor = lanes::from_bits(static_cast<std::uint32_t>(progress[2]));
    rows::write_part(out, row, progress[1] * PART, PART, [factor](lanes::Floats x) { return lanes::mul(x, factor); });
}

}  // namespace

#ifdef MASK_TYPE

namespace {

struct Extents {
    int rows, heads, batches, mask_rows, mask_heads, mask_batches;
};

constexpr Extents kExtents{EXTENTS};
/// What is below this in a mask is as good as minus infinity.
constexpr float kForbidden = -1e30f;
constexpr rows::Source kMask{ROW_LENGTH, ROW_OBJECT, MASK_TENSOR, MASK_WINDOW};

}  // namespace

extern "C" void CORE_FUNCTION(float *__restrict row, MASK_TYPE *__restrict mask, float *__restrict out,
                              const float *__restrict slopes, int32_t *__restrict progress, int32_t first, int32_t count) {
    using namespace lanes;
    set_modes();
    if (progress[1] == 0) {
        const int number = first + progress[0];
        const int within = number % kExtents.rows, plane = number / kExtents.rows;
        const int head = plane % kExtents.heads, batch = plane / kExtents.heads;
        const int mask_plane = batch % kExtents.mask_batches * kExtents.mask_heads + head % kExtents.mask_heads;
        rows::settle(row, kSource, number);
        rows::settle(mask, kMask, mask_plane * kExtents.mask_rows + within);
        const float slope = slopes[head];
        const Floats y = exponentials(row, [mask, slope](int at, Floats x) {
            // A product of f32 is made of several; with infinity as a factor some of them are not numbers.
            const Floats m = load(mask + at);
            const Flags forbidden = below(m, kForbidden);
            return choose(forbidden, all(-kInfinity), fma(choose(forbidden, all(0.0f), m), all(slope), x));
        });
        progress[2] = bits(y).get(0);
    }
    write(row, out, progress);
    end_part(progress, count);
}

#else

extern "C" void CORE_FUNCTION(float *__restrict row, float *__restrict out, int32_t *__restrict progress, int32_t first,
                              int32_t count) {
    lanes::set_modes();
    if (progress[1] == 0) {
        rows::settle(row, kSource, first + progress[0]);
        progress[2] = lanes::bits(exponentials(row, [](int, lanes::Floats x) { return x; })).get(0);
    }
    write(row, out, progress);
    end_part(progress, count);
}

#endif
