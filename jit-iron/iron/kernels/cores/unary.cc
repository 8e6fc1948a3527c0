// One function of one element. FUNCTION names it (activations.h), INPUT_TYPE and OUTPUT_TYPE are the buffers' types, and
// CORE_FUNCTION is the name under which the design calls it. Functions with a parameter have its bits in PARAMETER_0.

#include "activations.h"
#include "two_names.h"

SHARED_CODE compute(const INPUT_TYPE *__restrict in, OUTPUT_TYPE *__restrict out, int32_t count) {
    lanes::for_each(out, count, [in](int at) {
#ifdef PARAMETER_0
        return activations::FUNCTION(lanes::load(in + at), lanes::from_bits(PARAMETER_0));
#else
        return activations::FUNCTION(lanes::load(in + at));
#endif
    });
}

CORE_FUNCTIONS((const INPUT_TYPE *__restrict in, OUTPUT_TYPE *__restrict out, int32_t count), (in, out, count))
