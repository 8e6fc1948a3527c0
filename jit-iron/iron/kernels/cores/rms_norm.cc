// A row divided by its root mean square, in one or several parts. ROW_LENGTH, ROW_OBJECT, TENSOR and WINDOW describe the source
// (rows.h), PART has the elements of a part, EPSILON the bits of what is added to the mean.
//
// `progress`: the row, the part, and the bits of the row's factor. A dispatch has `count` rows, the first of which is `first`.

#include "exponential.h"
#include "rows.h"

extern "C" void CORE_FUNCTION(float *__restrict row, float *__restrict out, int32_t *__restrict progress, int32_t first,
                              int32_t count) {
    using namespace lanes;
    constexpr rows::Source source{ROW_LENGTH, ROW_OBJECT, TENSOR, WINDOW};
    set_modes();
    if (progress[1] == 0) {
        rows::settle(row, source, first + progress[0]);
        rows::fill_behind(row, source, 0.0f);
        Sums squares(all(0.0f));
        for (int at = 0; at < source.object; at += static_cast<int>(kLanes)) {
            const Floats x = load(row + at);
            squares = aie::mac(squares, x, x);
        }
        const float total = aie::reduce_add(squares.to_vector<float>());
        const Floats mean = add(mul(all(total), 1.0f / ROW_LENGTH), all(from_bits(EPSILON)));
        progress[2] = bits(inverse_root(mean)).get(0);
    }
    const float factor = from_bits(static_cast<std::uint32_t>(progress[2]));
    rows::write_part(out, row, progress[1] * PART, PART, [factor](Floats x) { return mul(x, factor); });
    if (++progress[1] == ROW_LENGTH / PART) {
        progress[1] = 0;
        progress[0] = progress[0] + 1 == count ? 0 : progress[0] + 1;
    }
}
