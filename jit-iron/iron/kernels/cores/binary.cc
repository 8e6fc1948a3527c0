// One operation on two buffers with as many elements. FUNCTION names it (arithmetic.h), INPUT_0_TYPE, INPUT_1_TYPE and
// OUTPUT_TYPE are the buffers' types, and CORE_FUNCTION is the name under which the design calls it.

#include "arithmetic.h"
#include "two_names.h"

SHARED_CODE compute(const INPUT_0_TYPE *__restrict a, const INPUT_1_TYPE *__restrict b, OUTPUT_TYPE *__restrict out,
                    int32_t count) {
    lanes::for_each(out, count, [a, b](int at) { return arithmetic::FUNCTION(lanes::load(a + at), lanes::load(b + at)); });
}

CORE_FUNCTIONS((const INPUT_0_TYPE *__restrict a, const INPUT_1_TYPE *__restrict b, OUTPUT_TYPE *__restrict out, int32_t count),
               (a, b, out, count))
