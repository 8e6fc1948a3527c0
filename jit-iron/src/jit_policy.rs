//! When kernels are compiled.
//!
//! This file uses nothing of the crate: the build script of `libggml-hsa.so` checks the default of a build with it.

/// When a kernel is compiled that no directory has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JitPolicy {
    /// Before the graph runs that needs it, as the C++ backend does.
    #[default]
    Eager,
    /// Beside the graphs: operations run elsewhere until their kernels are ready.
    Background,
    /// Never.
    Off,
}

impl JitPolicy {
    /// The names, for messages.
    pub const NAMES: &str = "eager, background, off";

    /// Reads a name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "eager" => Some(Self::Eager),
            "background" => Some(Self::Background),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::JitPolicy;

    #[test]
    fn names_are_read_in_any_case() {
        let all = [JitPolicy::Eager, JitPolicy::Background, JitPolicy::Off];
        assert_eq!(JitPolicy::NAMES.split(", ").map(|name| JitPolicy::parse(name).unwrap()).collect::<Vec<_>>(), all);
        assert_eq!(JitPolicy::parse("Background"), Some(JitPolicy::Background));
        assert_eq!(["", "lazy", "on", " off"].map(JitPolicy::parse), [None; 4]);
    }
}
