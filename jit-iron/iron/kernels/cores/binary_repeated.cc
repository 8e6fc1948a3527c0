// One operation on a part of a tensor and a second tensor that repeats to its shape and is here as a whole.
//
// Macros as in binary.cc, and EXTENTS: the four extents of the first tensor, then those of the second. `progress[0]` counts the
// calls of a dispatch, of which there are `calls`; the first call's elements begin at `first`, those of the others `tile` further
// each.

#include "arithmetic.h"
#include "repeated.h"
#include "two_names.h"

SHARED_CODE compute(const INPUT_0_TYPE *__restrict a, const INPUT_1_TYPE *__restrict b, OUTPUT_TYPE *__restrict out,
                    int32_t *__restrict progress, int32_t count, int32_t first, int32_t tile, int32_t calls) {
    constexpr repeated::Extents extents{EXTENTS};
    repeated::Walk<INPUT_1_TYPE, lanes::kLanes, extents> walk(b, first + progress[0] * tile);
    progress[0] = progress[0] + 1 == calls ? 0 : progress[0] + 1;
    lanes::for_each(out, count, [a, &walk](int at) {
        return arithmetic::FUNCTION(lanes::load(a + at), lanes::widen(walk.next()));
    });
}

CORE_FUNCTIONS((const INPUT_0_TYPE *__restrict a, const INPUT_1_TYPE *__restrict b, OUTPUT_TYPE *__restrict out,
                int32_t *__restrict progress, int32_t count, int32_t first, int32_t tile, int32_t calls),
               (a, b, out, progress, count, first, tile, calls))
