// What stands for the core's own state: the modes of rounding and saturation, and the first error of a core function.
//
// A simulator loads each core function as a shared object. The state is one for a thread and a shared object, so a simulator that
// runs several cores saves it behind a call and restores it before the next one of the same core: on the array the modes stay
// from one call to the next.

#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>

#define AIE_SIMULATION_LOCAL __attribute__((visibility("hidden")))
#define AIE_SIMULATION_EXPORT __attribute__((used, visibility("default")))

namespace aie::simulation {

struct AIE_SIMULATION_LOCAL State {
    std::uint32_t rounding = 0;
    std::uint32_t saturation = 0;
    bool failed = false;
    char message[400] = {};
};

// Hidden: otherwise the dynamic linker would give all core functions of a process the same one.
AIE_SIMULATION_LOCAL inline thread_local State state;

/// Keeps the first error; the function goes on with whatever it has, and its results are not to be used.
__attribute__((format(printf, 1, 2))) AIE_SIMULATION_LOCAL inline void fail(const char *format, ...) {
    if (state.failed)
        return;
    state.failed = true;
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(state.message, sizeof state.message, format, arguments);
    va_end(arguments);
}

}  // namespace aie::simulation

extern "C" {

/// The first error since the last call of `aie_simulator_clear_error`, or null.
AIE_SIMULATION_EXPORT inline const char *aie_simulator_error() {
    return aie::simulation::state.failed ? aie::simulation::state.message : nullptr;
}

AIE_SIMULATION_EXPORT inline void aie_simulator_clear_error() { aie::simulation::state.failed = false; }

/// The modes as one number: rounding in the low byte, saturation above it. 0 is what a core has after a reset.
AIE_SIMULATION_EXPORT inline std::uint32_t aie_simulator_modes() {
    return aie::simulation::state.rounding | aie::simulation::state.saturation << 8;
}

AIE_SIMULATION_EXPORT inline void aie_simulator_set_modes(std::uint32_t modes) {
    aie::simulation::state.rounding = modes & 0xff;
    aie::simulation::state.saturation = modes >> 8 & 0xff;
}

/// The generation the core function was compiled for: 20 or 21.
AIE_SIMULATION_EXPORT inline std::uint32_t aie_simulator_architecture() { return __AIE_ARCH__; }
}
