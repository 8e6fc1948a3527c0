//! `ggml-hsa doctor` as a program, on whatever machine this is. Broken machines are in its unit tests.

use aie_hal::ArchRegistry;
use aie_jit_iron::{KernelCache, Wanted};
use aie_ops::compiler::ReferenceCompiler;
use aie_ops::{DataType, Node, OpParams, Tensor, table};
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
fn a_report_is_json_with_levels_and_fixes_and_without_the_user() {
    let variables = [
        ("GGML_HSA_DEVICES", "bogus://x;mock:aie2p"),
        ("GGML_HSA_ENABLE_LOG", "banana"),
        ("AIE_HAL_ARCH_PATH", "/no/such/folder"),
    ];
    let (code, text) = doctor(&["--json"], &variables);
    assert!(!text.contains("jean-luc"), "{text}");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(1));
    let findings = report["findings"].as_array().unwrap();
    let find = |words: &str| {
        let found = findings.iter().find(|finding| finding["text"].as_str().unwrap().contains(words));
        found.unwrap_or_else(|| panic!("`{words}` is not in {text}"))
    };
    let rejected = find("available in this build: [xdna, mock]");
    assert!(rejected["level"] == "error" && rejected["fix"].as_str().unwrap().contains("unset GGML_HSA_DEVICES"));
    assert_eq!(find("`banana` is not valid")["fix"], "correct it, or `unset GGML_HSA_ENABLE_LOG`");
    assert_eq!(find("/no/such/folder")["fix"], "correct it, or `unset AIE_HAL_ARCH_PATH`");
    assert_eq!(find("mock:aie2p works; llama.cpp gets it as HSA0")["level"], "ok");
    for finding in findings {
        let bad = matches!(finding["level"].as_str(), Some("warning" | "error"));
        assert_eq!(finding["fix"].is_string(), bad, "{finding}");
    }
    let count = |level: &str| findings.iter().filter(|finding| finding["level"] == level).count();
    assert_eq!(report["errors"], count("error"));
    assert_eq!(report["warnings"], count("warning"));
}

#[test]
fn a_record_names_neither_the_user_nor_their_files() {
    let folder = tempfile::Builder::new().prefix("jean-luc-").tempdir().unwrap();
    let there = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (record, library, kernels) = (there("record.json"), there("secret work/lib"), there("secret kernels"));
    std::fs::create_dir_all(&library).unwrap();
    let arguments = ["--record", &record, "--library", &library];
    let variables = [("GGML_HSA_KERNEL_DIR", kernels.as_str()), ("GGML_BACKEND_PATH", kernels.as_str())];
    let (code, text) = doctor(&arguments, &variables);
    assert!(code.is_some() && text.contains("recorded in"), "{text}");
    let text = std::fs::read_to_string(&record).unwrap();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for telling in ["jean-luc", "secret", host.trim()] {
        assert!(!text.contains(telling), "`{telling}` is in {text}");
    }
    let parsed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(parsed["format"], 1);
    assert!(parsed["findings"].as_array().unwrap().len() >= 10, "{text}");
    assert!(text.contains("cannot find libggml-hsa.so; tried PATH"), "{text}");
}

#[test]
fn a_record_is_replayed_and_what_is_none_is_not() {
    let records = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/records");
    let (code, text) = doctor(&["--replay", &format!("{records}/aie2p-6.18.json")], &[]);
    assert!(code == Some(0) && text.contains("AMDXDNA_SIM_KERNEL=6.18") && text.contains("0 differences"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let altered = folder.path().join("altered.json");
    let text = std::fs::read_to_string(format!("{records}/aie2p-7.2.json")).unwrap();
    std::fs::write(&altered, text.replace("build=65", "build=66")).unwrap();
    let (code, text) = doctor(&["--replay", altered.to_str().unwrap(), "--json"], &[]);
    let replayed: Value = serde_json::from_str(&text).unwrap();
    let differences = replayed[0]["differences"].as_array().unwrap();
    assert_eq!((code, differences.len()), (Some(1), 1), "{text}");
    assert!(differences[0]["recorded"].as_str().unwrap().ends_with("build=66"), "{text}");
    for (name, text) in [("none.json", "{}"), ("later.json", r#"{"format": 2, "npus": []}"#)] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        assert_eq!(doctor(&["--replay", path.to_str().unwrap()], &[]).0, Some(2), "{name}");
    }
}

#[test]
fn a_damaged_cache_is_named_with_a_command_that_fixes_it() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    let tensor = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
    let node = Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2]);
    let (op, arch) = (table::lookup("ADD").unwrap(), ArchRegistry::builtin().get("aie2p").unwrap());
    KernelCache::open(folder.path()).unwrap().fetch(&ReferenceCompiler, &Wanted::of(op, &node, &arch)).unwrap();
    let variables = [("GGML_HSA_KERNEL_CACHE_DIR", cache)];
    let about_the_cache = || {
        let report: Value = serde_json::from_str(&doctor(&["--closed", "--json"], &variables).1).unwrap();
        report["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == "cache").unwrap().clone()
    };
    assert_eq!(about_the_cache()["level"], "ok");
    let kernels = std::fs::read_dir(folder.path().join("reference/aie2p")).unwrap();
    let pdi = kernels.map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some_and(|e| e == "pdi"));
    std::fs::write(pdi.unwrap(), "cut off").unwrap();
    let found = about_the_cache();
    assert!(
        found["level"] == "warning" && found["text"].as_str().unwrap().starts_with("1 kernel of the cache in "),
        "{found}"
    );
    let fix = found["fix"].as_str().unwrap().trim_matches('`').strip_prefix("ggml-hsa ").unwrap().to_owned();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ggml-hsa"));
    assert!(command.args(fix.split(' ')).envs(variables).status().unwrap().success());
    assert_eq!(about_the_cache()["level"], "ok");
}

#[test]
fn nothing_is_opened_when_that_is_requested_and_text_has_no_colours() {
    let (_, text) = doctor(&["--closed"], &[("GGML_HSA_DEVICES", "bogus://x")]);
    assert!(text.contains("nothing was opened") && !text.contains("bogus") && !text.contains('\u{1b}'), "{text}");
    assert!(doctor(&["--help"], &[]).1.contains("Examples:"));
}
