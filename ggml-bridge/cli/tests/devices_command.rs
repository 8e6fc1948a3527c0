//! `ggml-hsa devices` as a program, on this machine's NPUs, if any, and simulated ones.

use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> (Output, String) {
    let cache = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ggml-hsa"));
    command.arg("devices").args(arguments).env("GGML_HSA_KERNEL_CACHE_DIR", cache.path());
    command.env_remove("GGML_HSA_DEVICES").env_remove("GGML_HSA").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

fn rows(variables: &[(&str, &str)]) -> (Option<i32>, Vec<Value>) {
    let (output, text) = run(&["--json"], variables);
    (output.status.code(), serde_json::from_str(&text).unwrap())
}

fn find<'a>(rows: &'a [Value], uri: &str) -> &'a Value {
    rows.iter().find(|row| row["uri"] == uri).unwrap_or_else(|| panic!("no {uri} in {rows:?}"))
}

#[test]
fn simulated_devices_are_listed_and_offered_when_they_are_requested() {
    let (_, all) = rows(&[]);
    let row = find(&all, "mock:aie2p");
    assert_eq!((&row["state"], &row["columns"], &row["simulated"]), (&"available".into(), &8.into(), &true.into()));
    let (code, all) = rows(&[("GGML_HSA_DEVICES", "mock:aie2p?devices=2;mock:aie2")]);
    assert_eq!(code, Some(0));
    let offered: Vec<&Value> = all.iter().filter(|row| row["state"] == "offered").collect();
    let names: Vec<&Value> = offered.iter().map(|row| &row["offered_as"][0]).collect();
    assert_eq!(names, ["HSA0", "HSA1", "HSA2"]);
    assert_eq!(offered[1]["uri"], "mock:aie2p/1?devices=2");
    assert!(!find(&all, "mock:aie2")["columns"].is_null());
}

#[test]
fn a_wrong_entry_is_a_row_with_its_reason() {
    let (code, all) = rows(&[("GGML_HSA_DEVICES", "bogus://x;mock:aie9;mock:aie2?colour=red")]);
    assert_eq!(code, Some(1));
    for (uri, reason) in [
        ("bogus://x", "available in this build: [xdna, mock]"),
        ("mock:aie9", "there is no arch file for `aie9`"),
        ("mock:aie2?colour=red", "colour"),
    ] {
        let row = find(&all, uri);
        assert_eq!(row["state"], "rejected");
        assert!(row["reasons"][0].as_str().unwrap().contains(reason), "{row}");
    }
}

#[test]
fn without_an_offer_the_text_says_why() {
    let (output, text) = run(&[], &[("GGML_HSA", "off")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("would be offered no device") && text.contains("GGML_HSA is off"), "{text}");
    assert!(!text.contains('\u{1b}'), "colours are for terminals: {text:?}");
    let (output, text) = run(&[], &[("GGML_HSA_DEVICES", "")]);
    assert!(output.status.code() == Some(1) && text.contains("GGML_HSA_DEVICES is set and empty"), "{text}");
}
