// One function of one integer. FUNCTION names it (integers.h), ELEMENT_TYPE is the type of both buffers, and CORE_FUNCTION is the
// name under which the design calls it.

#include "integers.h"

extern "C" void CORE_FUNCTION(const ELEMENT_TYPE *__restrict in, ELEMENT_TYPE *__restrict out, int32_t count) {
    integers::for_each(out, count, [in](int at) {
        return integers::FUNCTION<ELEMENT_TYPE>(aie::load_v<integers::kLanes<ELEMENT_TYPE>>(in + at));
    });
}
