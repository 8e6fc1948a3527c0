// A factor and, where there is one, a summand, both given by their bits; other macros as in unary.cc.

#include "product.h"
#include "two_names.h"

SHARED_CODE compute(const INPUT_TYPE *__restrict in, OUTPUT_TYPE *__restrict out, int32_t count) {
    lanes::for_each(out, count, [in](int at) {
        const lanes::Floats product = lanes::product(lanes::load(in + at), lanes::all(lanes::from_bits(FACTOR)));
#ifdef SUMMAND
        return lanes::add(product, lanes::all(lanes::from_bits(SUMMAND)));
#else
        return product;
#endif
    });
}

CORE_FUNCTIONS((const INPUT_TYPE *__restrict in, OUTPUT_TYPE *__restrict out, int32_t count), (in, out, count))
