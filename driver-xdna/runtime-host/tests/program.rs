//! The program by hand.

use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_aie-runtime-host")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn help_says_what_it_is_for() {
    let output = run(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.contains("GGML_HSA_ISOLATE=1") && text.contains("AIE_HAL_RUNTIME_HOST"), "{text}");
}

#[test]
fn without_a_socket_it_says_who_starts_it() {
    let output = run(&[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("standard input is not a socket") && text.contains("--help"), "{text}");
}

#[test]
fn other_arguments_are_refused() {
    let output = run(&["--version", "x"]);
    assert!(output.status.success(), "only the first argument counts");
    let output = run(&["--verbose"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("unknown argument `--verbose`"));
}
