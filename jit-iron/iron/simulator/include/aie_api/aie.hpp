// For the host's compiler: what core functions of the array use of AMD's aie_api, with the numerics of the array.
//
// Compile with -std=c++20 and -D__AIE_ARCH__=20 (aie2) or 21 (aie2p). What exists on one generation only does not compile for the
// other. Not simulated: complex numbers, integers of four bits, block floating point, streams and cascades, time.

#pragma once

#include "accum.hpp"
#include "arithmetic.hpp"
#include "compare.hpp"
#include "elementary.hpp"
#include "intrinsics.hpp"
#include "iterator.hpp"
#include "mask.hpp"
#include "memory.hpp"
#include "mmul.hpp"
#include "multiply.hpp"
#include "reduce.hpp"
#include "shuffle.hpp"
#include "tile.hpp"
#include "types.hpp"
#include "vector.hpp"
