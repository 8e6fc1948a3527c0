// The one or two names of a core function.
//
// The last part of a tensor has a buffer of its own size, hence a declaration of its own in the design. TAIL_FUNCTION is its name
// where a core has that function too; what both do is in program memory once.

#pragma once

/// Before `compute`, which the functions call: it stays one function, however short those are.
#define SHARED_CODE [[gnu::noinline]] static void

/// Defines the core function, and the one for the last part, by the function `compute` above.
#ifdef TAIL_FUNCTION
#define CORE_FUNCTIONS(parameters, arguments)                       \
    extern "C" void CORE_FUNCTION parameters { compute arguments; } \
    extern "C" void TAIL_FUNCTION parameters { compute arguments; }
#else
#define CORE_FUNCTIONS(parameters, arguments) \
    extern "C" void CORE_FUNCTION parameters { compute arguments; }
#endif
