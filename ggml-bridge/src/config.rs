//! What the environment asks for.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `GGML_HSA_DEVICES` | device URIs, separated by `;` or white space; a comma does too when a URI follows it | real NPUs |
//! | `GGML_HSA_DEVICE_TYPE` | `igpu`, `gpu` or `accel`: how llama.cpp sees the devices | see [`crate::device_type`] |
//! | `GGML_HSA_WEIGHTS_MAX` | most bytes of converted weights per device (suffixes K, M, G, T) | half of its memory |
//! | `GGML_HSA_F16` | `f32` or `bf16`: what f16 is computed in on the array | `f32` |
//! | `GGML_HSA_FUSION` | `0` gives every node of a graph a dispatch of its own | on |
//! | `GGML_HSA_STATS` | file that statistics are written to when the process ends | none |
//! | `GGML_HSA_ENABLE_LOG` | a truthy word turns information messages on | off |
//! | `GGML_HSA_VALIDATION` | a truthy word has every call to a driver checked | off |
//! | `GGML_HSA_KERNEL_DIR` | directory of compiled kernels | none |
//! | `GGML_HSA_ISOLATE` | a truthy word has the runtime of real NPUs in a helper process: its death is an error then | off |
//!
//! `GGML_HSA_ISOLATE` is for `xdna` URIs that do not say `isolate=true` or `isolate=false` themselves.
//!
//! A value that cannot be understood is an error message and the default, never the end of the program.

use crate::device_type::DeviceType;
use crate::log::is_truthy;
use aie_ops::F16Policy;
use std::path::PathBuf;

/// The settings, read once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Device URIs; `None` when not set.
    pub devices: Option<Vec<String>>,
    /// Forced device type.
    pub device_type: Option<DeviceType>,
    /// Cap of converted weights in bytes.
    pub weights_max: Option<u64>,
    /// What f16 becomes.
    pub f16: F16Policy,
    /// Whether every node of a graph gets a dispatch of its own.
    pub apart: bool,
    /// Where statistics go.
    pub statistics: Option<PathBuf>,
    /// Whether the runtime of real NPUs is in a helper process when a URI does not say.
    pub isolate: bool,
}

impl Config {
    /// Reads the settings through `variable`, in the role of `std::env::var_os`. Returns messages about what was not understood.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let mut config = Self::default();
        if let Some(list) = variable("GGML_HSA_DEVICES") {
            config.devices = Some(split_uris(&list));
        }
        if let Some(text) = variable("GGML_HSA_DEVICE_TYPE").filter(|t| !t.is_empty()) {
            match DeviceType::parse(&text) {
                Some(kind) => config.device_type = Some(kind),
                None => problems.push(format!(
                    "GGML_HSA_DEVICE_TYPE: `{text}` is not a device type; possible: igpu, gpu, accel; it is ignored"
                )),
            }
        }
        if let Some(text) = variable("GGML_HSA_WEIGHTS_MAX").filter(|t| !t.is_empty()) {
            match parse_bytes(&text) {
                Some(bytes) => config.weights_max = Some(bytes),
                None => problems.push(format!(
                    "GGML_HSA_WEIGHTS_MAX: `{text}` is not a size; possible: bytes, or a number with K, M, G or T; it is ignored"
                )),
            }
        }
        if let Some(text) = variable("GGML_HSA_F16") {
            match F16Policy::parse(&text) {
                Ok(policy) => config.f16 = policy,
                Err(problem) => problems.push(format!("GGML_HSA_F16: {problem}; it is ignored")),
            }
        }
        config.apart = variable("GGML_HSA_FUSION").is_some_and(|text| !text.is_empty() && !is_truthy(&text));
        config.statistics = variable("GGML_HSA_STATS").filter(|t| !t.is_empty()).map(PathBuf::from);
        config.isolate = variable("GGML_HSA_ISOLATE").is_some_and(|text| is_truthy(&text));
        (config, problems)
    }
}

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

/// Splits a list of URIs. A comma may be part of a path (`xdna://0,1`); it separates only when a letter follows and the part
/// before it is not inside parameters.
fn split_uris(list: &str) -> Vec<String> {
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
    use super::*;
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

    #[test]
    fn what_is_not_understood_is_told_and_ignored() {
        let (config, problems) = Config::read(|name| match name {
            "GGML_HSA_DEVICE_TYPE" => Some("tpu".into()),
            "GGML_HSA_WEIGHTS_MAX" => Some("lots".into()),
            "GGML_HSA_F16" => Some("f64".into()),
            _ => None,
        });
        assert_eq!(config, Config::default());
        assert_eq!(problems.len(), 3);
        assert!(problems[0].contains("possible: igpu, gpu, accel"), "{problems:?}");
    }

    #[test]
    fn settings_are_read() {
        let (config, problems) = Config::read(|name| match name {
            "GGML_HSA_DEVICES" => Some("mock".into()),
            "GGML_HSA_DEVICE_TYPE" => Some("ACCEL".into()),
            "GGML_HSA_WEIGHTS_MAX" => Some("1G".into()),
            "GGML_HSA_F16" => Some("bf16".into()),
            "GGML_HSA_FUSION" => Some("0".into()),
            "GGML_HSA_STATS" => Some("out.json".into()),
            "GGML_HSA_ISOLATE" => Some("1".into()),
            _ => None,
        });
        let expected = Config {
            devices: Some(vec!["mock".into()]),
            device_type: Some(DeviceType::Accel),
            weights_max: Some(1 << 30),
            f16: F16Policy::Bf16,
            apart: true,
            statistics: Some("out.json".into()),
            isolate: true,
        };
        assert_eq!((config, problems), (expected, vec![]));
    }
}
