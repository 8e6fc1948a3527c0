// A function of one buffer times the other. GATE names the function (activations.h); with LIMIT both are held within it, with
// SLOPE it is that of SWIGLU_OAI. Both are bits of f32. INPUT_TYPE is the type of all buffers.

#include "activations.h"
#include "two_names.h"

namespace {

using namespace lanes;

#ifdef LIMIT
/// `x` below the limit; NaN stays.
inline Floats bounded_above(Floats x) { return choose(above(x, from_bits(LIMIT)), all(from_bits(LIMIT)), x); }

inline Floats bounded(Floats x) {
    return choose(below(x, -from_bits(LIMIT)), all(-from_bits(LIMIT)), bounded_above(x));
}
#endif

inline Floats gated(Floats x, Floats g) {
#if defined(SLOPE)
    const Floats below_limit = bounded_above(x);
    const Floats gate = activations::gate(below_limit, sigmoid(mul(below_limit, from_bits(SLOPE))));
    return product(gate, add(bounded(g), all(1.0f)));
#elif defined(LIMIT)
    return product(activations::GATE(bounded_above(x)), bounded(g));
#else
    return product(activations::GATE(x), g);
#endif
}

}  // namespace

SHARED_CODE compute(const INPUT_TYPE *__restrict x, const INPUT_TYPE *__restrict g, INPUT_TYPE *__restrict out, int32_t count) {
    for_each(out, count, [x, g](int at) { return gated(load(x + at), load(g + at)); });
}

CORE_FUNCTIONS((const INPUT_TYPE *__restrict x, const INPUT_TYPE *__restrict g, INPUT_TYPE *__restrict out, int32_t count),
               (x, g, out, count))
