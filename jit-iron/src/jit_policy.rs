//! When kernels are compiled.

/// When missing kernels are compiled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JitPolicy {
    /// Before the graph runs that needs it, as the C++ backend does.
    #[default]
    Eager,
    /// While graphs run: operations run on the CPU until their kernels are ready.
    Background,
    /// Never.
    Off,
}

impl JitPolicy {
    /// Reads a name, in any case. Constant, so that the default of a build can be checked with it.
    pub const fn parse(name: &str) -> Option<Self> {
        const fn is(name: &[u8], word: &[u8]) -> bool {
            match (name, word) {
                ([], []) => true,
                ([x, name @ ..], [y, word @ ..]) => x.eq_ignore_ascii_case(y) && is(name, word),
                _ => false,
            }
        }
        let name = name.as_bytes();
        if is(name, b"eager") {
            Some(Self::Eager)
        } else if is(name, b"background") {
            Some(Self::Background)
        } else if is(name, b"off") {
            Some(Self::Off)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::JitPolicy;

    #[test]
    fn names_are_read_in_any_case() {
        let all = [JitPolicy::Eager, JitPolicy::Background, JitPolicy::Off];
        assert_eq!(["eager", "background", "off"].map(|name| JitPolicy::parse(name).unwrap()), all);
        assert_eq!(JitPolicy::parse("Background"), Some(JitPolicy::Background));
        assert_eq!(["", "lazy", "on", " off"].map(JitPolicy::parse), [None; 4]);
    }
}
