// One operation on a part of a tensor of integers and a second tensor that repeats to its shape and is here as a whole; macros
// and arguments as in binary_integer.cc and binary_repeated.cc.

#include "integers.h"
#include "repeated.h"
#include "two_names.h"

SHARED_CODE compute(const ELEMENT_TYPE *__restrict a, const ELEMENT_TYPE *__restrict b, ELEMENT_TYPE *__restrict out,
                    int32_t *__restrict progress, int32_t count, int32_t first, int32_t tile, int32_t calls) {
    constexpr repeated::Extents extents{EXTENTS};
    constexpr unsigned lanes = integers::kLanes<ELEMENT_TYPE>;
    repeated::Walk<ELEMENT_TYPE, static_cast<int>(lanes), extents> walk(b, first + progress[0] * tile);
    progress[0] = progress[0] + 1 == calls ? 0 : progress[0] + 1;
    integers::for_each(out, count, [a, &walk](int at) {
        return integers::FUNCTION<ELEMENT_TYPE>(aie::load_v<lanes>(a + at), walk.next());
    });
}

CORE_FUNCTIONS((const ELEMENT_TYPE *__restrict a, const ELEMENT_TYPE *__restrict b, ELEMENT_TYPE *__restrict out,
                int32_t *__restrict progress, int32_t count, int32_t first, int32_t tile, int32_t calls),
               (a, b, out, progress, count, first, tile, calls))
