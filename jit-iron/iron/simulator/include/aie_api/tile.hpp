// The core that runs the function: its modes.

#pragma once

#include "detail/rounding.hpp"

#include <concepts>
#include <cstdint>

namespace aie {

inline void set_rounding(rounding_mode mode) { simulation::state.rounding = static_cast<unsigned>(mode); }
inline rounding_mode get_rounding() { return simulation::rounding(); }
inline void set_saturation(saturation_mode mode) { simulation::state.saturation = static_cast<unsigned>(mode); }
inline saturation_mode get_saturation() { return static_cast<saturation_mode>(simulation::state.saturation); }

inline rounding_mode swap_rounding(rounding_mode mode) {
    const rounding_mode before = get_rounding();
    set_rounding(mode);
    return before;
}

inline saturation_mode swap_saturation(saturation_mode mode) {
    const saturation_mode before = get_saturation();
    set_saturation(mode);
    return before;
}

class tile {
public:
    static tile current() { return {}; }
    void set_rounding(rounding_mode mode) const { aie::set_rounding(mode); }
    rounding_mode get_rounding() const { return aie::get_rounding(); }
    void set_saturation(saturation_mode mode) const { aie::set_saturation(mode); }
    saturation_mode get_saturation() const { return aie::get_saturation(); }

    /// Time is not simulated.
    std::uint64_t cycles() const { return 0; }
};

/// Sets a mode until the end of a block.
template <typename Mode>
    requires std::same_as<Mode, rounding_mode> || std::same_as<Mode, saturation_mode>
class scoped_mode {
public:
    explicit scoped_mode(const Mode &mode) : before_(swap(mode)) {}
    scoped_mode(const scoped_mode &) = delete;
    scoped_mode &operator=(const scoped_mode &) = delete;
    ~scoped_mode() { swap(before_); }

private:
    static rounding_mode swap(rounding_mode mode) { return swap_rounding(mode); }
    static saturation_mode swap(saturation_mode mode) { return swap_saturation(mode); }

    Mode before_;
};

}  // namespace aie
