//! What starts and stops a core, and where its cascade goes.
//!
//! A core runs while it is enabled and not in reset; after power-on it is in reset. Its memories survive a reset.
//! Source: aie-rt; the same on aie2 and aie2p.

use super::register::RegisterWrite;

/// Offset of the core's control register.
pub const CONTROL: u32 = 0x3_2000;
/// Bit of [`CONTROL`] that enables the core.
pub const ENABLE: u32 = 1;
/// Bit of [`CONTROL`] that is set while the core is in reset, as it is after power-on.
pub const RESET: u32 = 2;
/// Offset of the register that connects the cascade.
pub const ACCUMULATOR_CONTROL: u32 = 0x3_6060;
/// Offset of the program memory, as writes see it. The core's address 0 is there.
pub const PROGRAM_MEMORY: u32 = 0x2_0000;

/// Enables the core, or stops it where it is.
#[must_use]
pub fn enable(enable: bool) -> RegisterWrite {
    RegisterWrite::masked(CONTROL, ENABLE, if enable { ENABLE } else { 0 })
}

/// Puts the core into reset, or takes it out of it. Resetting clears its registers and its program counter.
#[must_use]
pub fn reset(reset: bool) -> RegisterWrite {
    RegisterWrite::masked(CONTROL, RESET, if reset { RESET } else { 0 })
}

/// Where a core's cascade input comes from, as the register's bits say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CascadeInput {
    /// The core above.
    North = 0,
    /// The core to the left.
    West = 1,
}

/// Where a core's cascade output goes, as the register's bits say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CascadeOutput {
    /// The core below.
    South = 0,
    /// The core to the right.
    East = 1 << 1,
}

/// Connects the core's cascade, 512 bits wide: chains run from west to east and from north to south.
#[must_use]
pub fn cascade(input: CascadeInput, output: CascadeOutput) -> RegisterWrite {
    RegisterWrite::word(ACCUMULATOR_CONTROL, input as u32 | output as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(CascadeInput::North, CascadeOutput::South, 0)]
    #[case(CascadeInput::West, CascadeOutput::South, 1)]
    #[case(CascadeInput::North, CascadeOutput::East, 2)]
    #[case(CascadeInput::West, CascadeOutput::East, 3)]
    fn cascades(#[case] input: CascadeInput, #[case] output: CascadeOutput, #[case] value: u32) {
        assert_eq!(cascade(input, output), RegisterWrite { offset: 0x3_6060, mask: u32::MAX, value });
    }
}
