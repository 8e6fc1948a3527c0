//! Whether native kernels are tested on an NPU before they are used there.

/// When a family of native kernels is tested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SelfTest {
    /// Once for an NPU, its firmware, its driver and this library.
    #[default]
    Auto,
    /// In every process.
    Always,
    /// Never: kernels are used untested.
    Off,
}

impl SelfTest {
    /// Reads a value.
    pub fn parse(text: &str) -> Option<Self> {
        let all = [("auto", Self::Auto), ("always", Self::Always), ("off", Self::Off)];
        all.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| value)
    }
}
