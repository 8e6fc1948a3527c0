//! `ggml-hsa doctor` as a program, on whatever machine this is. Broken machines are in its unit tests.

use serde_json::Value;
use std::process::Command;

fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home/jean-luc");
    std::fs::create_dir_all(&home).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ggml-hsa"));
    command.arg("doctor").args(arguments).env("HOME", &home).env_remove("XDG_CACHE_HOME");
    let output = command.env_remove("GGML_HSA_DEVICES").envs(variables.iter().copied()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_report_is_json_with_levels_and_mends_and_without_the_user() {
    let variables = [("GGML_HSA_DEVICES", "bogus://x;mock:aie2p"), ("GGML_HSA_ENABLE_LOG", "banana")];
    let (code, text) = doctor(&["--json"], &variables);
    assert!(!text.contains("jean-luc"), "{text}");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(1));
    let findings = report["findings"].as_array().unwrap();
    let find = |words: &str| {
        let found = findings.iter().find(|finding| finding["text"].as_str().unwrap().contains(words));
        found.unwrap_or_else(|| panic!("`{words}` is not in {text}"))
    };
    assert_eq!(find("available in this build: [xdna, mock]")["level"], "error");
    assert_eq!(find("`banana` is not valid")["level"], "warning");
    assert_eq!(find("mock:aie2p works; llama.cpp gets it as HSA0")["level"], "ok");
    for finding in findings {
        let bad = matches!(finding["level"].as_str(), Some("warning" | "error"));
        assert_eq!(finding["mend"].is_string(), bad, "{finding}");
    }
    let count = |level: &str| findings.iter().filter(|finding| finding["level"] == level).count();
    assert_eq!(report["errors"], count("error"));
    assert_eq!(report["warnings"], count("warning"));
}

#[test]
fn nothing_is_opened_when_that_is_requested_and_text_has_no_colours() {
    let (_, text) = doctor(&["--closed"], &[("GGML_HSA_DEVICES", "bogus://x")]);
    assert!(text.contains("nothing was opened") && !text.contains("bogus") && !text.contains('\u{1b}'), "{text}");
    assert!(doctor(&["--help"], &[]).1.contains("Examples:"));
}
