//! `ggml-hsa env` and `ggml-hsa run` as programs: what they set, what they say, their exit codes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ggml-hsa");

/// An installation: this program in `bin`, a file in the library's place, and a program that prints what it was given.
fn installation(root: &Path) -> (PathBuf, PathBuf) {
    for folder in ["bin", "lib/x86_64-linux-gnu", "tools"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let library = root.join("lib/x86_64-linux-gnu/libggml-hsa.so");
    fs::write(&library, "").unwrap();
    let program = root.join("bin/ggml-hsa");
    fs::hard_link(PROGRAM, &program).or_else(|_| fs::copy(PROGRAM, &program).map(drop)).unwrap();
    let tool = root.join("tools/llama-tool");
    fs::write(&tool, "#!/bin/sh\necho \"$GGML_BACKEND_PATH|${GGML_HSA_DEVICES-unset}|$*\"\nexit 7\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(root.join("tools/no-program"), "text").unwrap();
    (program, library)
}

fn run(program: &Path, root: &Path, arguments: &[&str]) -> (Output, String, String) {
    let path = format!("{}:/usr/bin:/bin", root.join("tools").display());
    let mut command = Command::new(program);
    let output = command.args(arguments).env("PATH", path).env_remove("GGML_HSA_DEVICES").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_owned()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

#[test]
fn a_program_gets_the_library_and_the_devices() {
    let root = tempfile::tempdir().unwrap();
    let (program, library) = installation(root.path());
    let library = library.display();
    let (output, out, _) = run(&program, root.path(), &["run", "llama-tool", "--device", "x", "-m", "a b.gguf"]);
    assert_eq!((output.status.code(), out.trim()), (Some(7), &*format!("{library}|unset|--device x -m a b.gguf")));
    let arguments = ["run", "--device", "mock:aie2", "--device", "xdna:0", "llama-tool"];
    let (_, out, _) = run(&program, root.path(), &arguments);
    assert_eq!(out.trim(), format!("{library}|mock:aie2;xdna:0|"));
}

#[test]
fn a_shell_reads_what_env_prints() {
    let root = tempfile::tempdir().unwrap();
    let odd = root.path().join("it's a $HOME");
    fs::create_dir(&odd).unwrap();
    let (program, library) = installation(&odd);
    let script = format!(
        "eval \"$('{}' env --device mock)\"; llama-tool x",
        program.display().to_string().replace('\'', r"'\''")
    );
    let path = format!("{}:/usr/bin:/bin", odd.join("tools").display());
    let output = Command::new("sh").args(["-c", &script]).env("PATH", path).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), format!("{}|mock|x", library.display()));
    let (_, out, _) = run(&program, &odd, &["env", "--json", "--device", "mock"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let expected = serde_json::json!({"GGML_BACKEND_PATH": library.to_str().unwrap(), "GGML_HSA_DEVICES": "mock"});
    assert_eq!(json, expected);
}

#[test]
fn what_is_missing_is_named_with_what_was_tried() {
    let root = tempfile::tempdir().unwrap();
    let (program, library) = installation(root.path());
    let (output, _, err) = run(&program, root.path(), &["run", "llama-nothing"]);
    assert_eq!(output.status.code(), Some(127));
    let tools = root.path().join("tools").display().to_string();
    assert!(err.contains("llama-nothing") && err.contains(&tools) && err.contains("install llama.cpp"), "{err}");
    let (output, _, err) = run(&program, root.path(), &["run", "./no/such/program"]);
    assert!(output.status.code() == Some(127) && err.contains("./no/such/program does not exist"), "{err}");
    let (output, _, err) = run(&program, root.path(), &["run", "no-program"]);
    assert!(output.status.code() == Some(126) && err.contains("cannot be started"), "{err}");
    let (output, _, err) = run(&program, root.path(), &["run", "--device", "bogus://x", "llama-tool"]);
    assert!(output.status.code() == Some(2) && err.contains("available in this build: [xdna, mock]"), "{err}");
    fs::remove_file(library).unwrap();
    for command in [&["env"][..], &["run", "llama-tool"]] {
        let (output, out, err) = run(&program, root.path(), command);
        assert_eq!((output.status.code(), out.as_str()), (Some(2), ""));
        let lib = root.path().join("lib").display().to_string();
        assert!(err.contains(&lib) && err.contains("--library FILE"), "{err}");
    }
    for command in ["env", "run", "devices"] {
        let (output, out, _) = run(&program, root.path(), &[command, "--help"]);
        assert!(output.status.success() && out.contains("Examples:") && out.contains("Exit code:"), "{out}");
    }
}
