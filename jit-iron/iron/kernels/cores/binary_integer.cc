// One operation on two buffers of integers with as many elements. FUNCTION names it (integers.h), ELEMENT_TYPE is the type of all
// buffers, and CORE_FUNCTION is the name under which the design calls it.

#include "integers.h"
#include "two_names.h"

SHARED_CODE compute(const ELEMENT_TYPE *__restrict a, const ELEMENT_TYPE *__restrict b, ELEMENT_TYPE *__restrict out,
                    int32_t count) {
    constexpr unsigned lanes = integers::kLanes<ELEMENT_TYPE>;
    integers::for_each(out, count, [a, b](int at) {
        return integers::FUNCTION<ELEMENT_TYPE>(aie::load_v<lanes>(a + at), aie::load_v<lanes>(b + at));
    });
}

CORE_FUNCTIONS((const ELEMENT_TYPE *__restrict a, const ELEMENT_TYPE *__restrict b, ELEMENT_TYPE *__restrict out,
                int32_t count),
               (a, b, out, count))
