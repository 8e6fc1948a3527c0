// One function of one integer. FUNCTION names it (integers.h), ELEMENT_TYPE is the type of both buffers, and CORE_FUNCTION is the
// name under which the design calls it.

#include "integers.h"
#include "two_names.h"

SHARED_CODE compute(const ELEMENT_TYPE *__restrict in, ELEMENT_TYPE *__restrict out, int32_t count) {
    integers::for_each(out, count, [in](int at) {
        return integers::FUNCTION<ELEMENT_TYPE>(aie::load_v<integers::kLanes<ELEMENT_TYPE>>(in + at));
    });
}

CORE_FUNCTIONS((const ELEMENT_TYPE *__restrict in, ELEMENT_TYPE *__restrict out, int32_t count), (in, out, count))
