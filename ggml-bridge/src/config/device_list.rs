//! Lists of device URIs.

/// Splits a list of URIs. A comma may be part of a path (`xdna://0,1`) or of a parameter (`mock?fault=timeout,lost`); it separates
/// when a URI follows: a known scheme, or behind a URI without parameters anything with the form of a scheme and a colon, so that
/// a scheme that is not known is rejected as one. Other commas stay, also the last character: what has them is rejected when it is opened, and
/// nothing is left out of a list without a word.
pub fn split_uris(list: &str) -> Vec<String> {
    let mut uris = Vec::new();
    for word in list.split(|c: char| c == ';' || c.is_whitespace()) {
        let mut rest = word;
        while let Some(comma) = separator(rest) {
            uris.push(rest[..comma].to_owned());
            rest = &rest[comma + 1..];
        }
        uris.push(rest.to_owned());
    }
    uris.retain(|uri| !uri.is_empty());
    uris
}

fn separator(text: &str) -> Option<usize> {
    text.match_indices(',').map(|(at, _)| at).find(|&at| {
        let next = &text[at + 1..];
        let scheme = next.split([':', '?', ',']).next().unwrap_or_default();
        let parameters = text[..at].contains('?');
        let unknown = || {
            let is_scheme = scheme.starts_with(|c: char| c.is_ascii_lowercase())
                && scheme.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_+.".contains(c));
            // An id of an NPU has colons too.
            is_scheme && next[scheme.len()..].starts_with(':') && !scheme.starts_with("pci-")
        };
        matches!(scheme, "mock" | "xdna") || (!parameters && unknown())
    })
}

#[cfg(test)]
mod tests {
    use super::split_uris;
    use rstest::rstest;

    #[rstest]
    #[case("mock", &["mock"])]
    #[case("mock:aie2p,mock:aie2", &["mock:aie2p", "mock:aie2"])]
    #[case("xdna://0,1", &["xdna://0,1"])]
    #[case("xdna://0,1,mock", &["xdna://0,1", "mock"])]
    #[case(" mock ;xdna:0\txdna:1", &["mock", "xdna:0", "xdna:1"])]
    #[case("mock?fault=timeout,lost", &["mock?fault=timeout,lost"])]
    #[case("mock,", &["mock,"])]
    #[case("xdna://0,", &["xdna://0,"])]
    #[case("xdna://0,;mock", &["xdna://0,", "mock"])]
    #[case("?;", &["?"])]
    #[case("nonsense://x", &["nonsense://x"])]
    #[case("mock:aie2,bogus:0,xdna", &["mock:aie2", "bogus:0", "xdna"])]
    #[case("xdna://pci-0000:c6:00.1,pci-0000:c7:00.1", &["xdna://pci-0000:c6:00.1,pci-0000:c7:00.1"])]
    #[case("mock?fault=timeout,lost:3", &["mock?fault=timeout,lost:3"])]
    #[case("", &[])]
    fn lists_of_uris(#[case] list: &str, #[case] expected: &[&str]) {
        assert_eq!(split_uris(list), expected);
    }
}
