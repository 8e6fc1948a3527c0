//! Lists of device URIs.

/// Splits a list of URIs. A comma may be part of a path (`xdna://0,1`); it separates only when a letter follows and the part
/// before it is not inside parameters.
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
        matches!(scheme, "mock" | "xdna") || (next.is_empty() && !text[..at].contains('?'))
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
    #[case("mock,", &["mock"])]
    #[case("nonsense://x", &["nonsense://x"])]
    #[case("", &[])]
    fn lists_of_uris(#[case] list: &str, #[case] expected: &[&str]) {
        assert_eq!(split_uris(list), expected);
    }
}
