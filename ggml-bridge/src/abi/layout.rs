//! Which of ggml's three structure layouts is loaded.
//!
//! | layout | ggml | `api_version` | recognised by |
//! |---|---|---|---|
//! | [`Layout::V2a`] | up to 0.9.11 | 2 | neither symbol |
//! | [`Layout::V2b`] | 0.10 to 0.25 | 2 | `ggml_backend_tensor_set_2d` |
//! | [`Layout::V3`] | from 0.26 | 3 | `ggml_backend_buft_alloc_buffer_n` |
//!
//! The version number ggml checks does not distinguish the first two: 0.10 inserted members into the callback tables
//! without raising it, and a backend with the wrong table crashes. The symbols came with the members, so they are the proof.

/// A generation of ggml's backend structures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// Before 0.10.
    V2a,
    /// 0.10 to 0.25.
    V2b,
    /// From 0.26 on.
    V3,
}

/// The newest `major.minor` of ggml whose structures were compared with ours.
pub const NEWEST_KNOWN: (u32, u32) = (0, 27);

impl Layout {
    /// Decides by which symbols exist.
    pub fn probe(has: impl Fn(&str) -> bool) -> Self {
        if has("ggml_backend_buft_alloc_buffer_n") {
            Self::V3
        } else if has("ggml_backend_tensor_set_2d") {
            Self::V2b
        } else {
            Self::V2a
        }
    }

    /// What `ggml_backend_reg.api_version` has to be.
    pub fn api_version(self) -> i32 {
        match self {
            Self::V2a | Self::V2b => 2,
            Self::V3 => 3,
        }
    }

    /// Whether nodes carry `GGML_TENSOR_FLAG_COMPUTE`: since 0.9.6. Before, the bit is never set.
    pub fn has_compute_flag(self, version: Option<Version>) -> bool {
        self >= Self::V2b || version.is_some_and(|v| v >= Version(0, 9, 6))
    }
}

/// `major.minor.patch`, ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Reads what `ggml_version()` returns, e.g. `0.27.0` or `0.9.5-dev`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().splitn(3, '.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse::<u32>().ok()
        });
        Some(Self(parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
    }

    /// Whether it is newer than any version whose structures are known.
    pub fn is_newer_than_known(self) -> bool {
        (self.0, self.1) > NEWEST_KNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(&[], Layout::V2a, 2)]
    #[case(&["ggml_backend_tensor_set_2d"], Layout::V2b, 2)]
    #[case(&["ggml_backend_tensor_set_2d", "ggml_backend_buft_alloc_buffer_n"], Layout::V3, 3)]
    fn symbols_decide(#[case] symbols: &[&str], #[case] layout: Layout, #[case] api: i32) {
        let probed = Layout::probe(|name| symbols.contains(&name));
        assert_eq!((probed, probed.api_version()), (layout, api));
    }

    #[rstest]
    #[case("0.27.0", Some(Version(0, 27, 0)))]
    #[case("0.9.5-dev", Some(Version(0, 9, 5)))]
    #[case("1.2", Some(Version(1, 2, 0)))]
    #[case("unknown", None)]
    #[case("", None)]
    fn versions_are_read(#[case] text: &str, #[case] version: Option<Version>) {
        assert_eq!(Version::parse(text), version);
    }

    #[rstest]
    #[case(Layout::V2a, Some(Version(0, 9, 5)), false)]
    #[case(Layout::V2a, Some(Version(0, 9, 6)), true)]
    #[case(Layout::V2a, None, false)]
    #[case(Layout::V2b, None, true)]
    #[case(Layout::V3, None, true)]
    fn the_compute_flag_is_gated(#[case] layout: Layout, #[case] version: Option<Version>, #[case] has: bool) {
        assert_eq!(layout.has_compute_flag(version), has);
    }

    #[test]
    fn unknown_versions_are_reported() {
        assert!(Version(0, 28, 0).is_newer_than_known() && Version(1, 0, 0).is_newer_than_known());
        assert!(!Version(0, 27, 9).is_newer_than_known());
    }
}
