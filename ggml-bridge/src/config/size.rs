//! Sizes as people write them.

/// What can be written, for messages.
pub const FORMS: &str = "bytes, or a number with K, M, G or T";

/// A size in bytes: digits, perhaps with K, M, G or T (powers of 1024), perhaps with B or iB behind.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;
    use rstest::rstest;

    #[rstest]
    #[case("17", Some(17))]
    #[case("2K", Some(2048))]
    #[case("3 MiB", Some(3 << 20))]
    #[case("1g", Some(1 << 30))]
    #[case("16T", Some(16 << 40))]
    #[case("", None)]
    #[case("x", None)]
    #[case("1.5G", None)]
    #[case("99999999999999999999", None)]
    #[case("18446744073709551615K", None)]
    fn sizes(#[case] text: &str, #[case] expected: Option<u64>) {
        assert_eq!(parse_bytes(text), expected);
    }
}
