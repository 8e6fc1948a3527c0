//! `ggml-hsa env` and `ggml-hsa run` as programs: what they set, what they say, their exit codes, and how signals pass.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rstest::rstest;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ggml-hsa");

/// An installation: this program in `bin`, a file in the library's place, and a program that prints what it was given.
fn installation(root: &Path) -> (PathBuf, PathBuf) {
    for folder in ["bin", "lib/x86_64-linux-gnu", "tools"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let library = root.join("lib/x86_64-linux-gnu/libggml-hsa.so");
    fs::write(&library, elf("ggml_backend_init")).unwrap();
    let program = root.join("bin/ggml-hsa");
    let text = root.join("llama-tool.sh");
    fs::write(&text, "#!/bin/sh\necho \"$GGML_BACKEND_PATH|${GGML_HSA_DEVICES-unset}|$*\"\nexit 7\n").unwrap();
    // By another process: what other tests start meanwhile would have files that this one writes open, and these could not be
    // executed.
    for (from, to) in [(Path::new(PROGRAM), &program), (&text, &root.join("tools/llama-tool"))] {
        assert!(Command::new("install").arg(from).arg(to).status().unwrap().success());
    }
    fs::write(root.join("tools/no-program"), "text").unwrap();
    (program, library)
}

/// The head of an ELF file for this processor, and the name of a function.
fn elf(function: &str) -> Vec<u8> {
    [&fs::read(PROGRAM).unwrap()[..20], b"\0", function.as_bytes(), b"\0"].concat()
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
    for (uri, expected) in [
        ("mock:aie9", "there is no arch file for `aie9`"),
        ("xdna:banana", "`banana` is no name of an NPU"),
        ("xdna:0?lanes=4", "unknown; `xdna` takes"),
    ] {
        for command in [&["env", "--device", uri][..], &["run", "--device", uri, "llama-tool"]] {
            let (output, out, err) = run(&program, root.path(), command);
            assert_eq!((output.status.code(), out.as_str()), (Some(2), ""), "{err}");
            assert!(err.contains("--device: ") && err.contains(expected), "{err}");
        }
    }
    let other = root.path().join("other.so");
    for (bytes, expected) in [
        (vec![], "cannot be read"),
        (b"a text that is longer than the head of a file".to_vec(), "does not begin as ELF files do"),
        (elf("malloc"), "it is no backend of ggml"),
    ] {
        fs::write(&other, bytes).unwrap();
        for command in [
            &["env", "--library", other.to_str().unwrap()][..],
            &["run", "--library", other.to_str().unwrap(), "llama-tool"],
        ] {
            let (output, out, err) = run(&program, root.path(), command);
            assert_eq!((output.status.code(), out.as_str()), (Some(2), ""), "{err}");
            assert!(err.contains("other.so cannot be loaded: ") && err.contains(expected), "{err}");
        }
    }
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

/// Puts a script into the tools of an installation.
fn script(root: &Path, name: &str, text: &str) {
    let tool = root.join("tools").join(name);
    fs::write(&tool, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
}

const STATISTICS: &str = r#"{"version":1,"devices":[{"name":"HSA0","uri":"mock:aie2p","operations":[{"array":3,"host":1}],
    "work":{"code_macs":0,"reference_macs":4,"host_macs":0}}],"store":{"compiled":1}}"#;

#[test]
fn the_last_line_says_what_the_npu_did() {
    let root = tempfile::tempdir().unwrap();
    let (program, _) = installation(root.path());
    let (output, out, err) = run(&program, root.path(), &["run", "llama-tool"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(err, "ggml-hsa: the NPU was not used: llama-tool has not loaded libggml-hsa.so\n");
    assert_eq!(out.lines().count(), 1);

    let log =
        "0.1 I common_perf_print:        eval time = 9 ms / 9 runs (  1 ms per token,     5.75 tokens per second)";
    let text = format!(
        "echo text\necho last >&2\ncat >\"$GGML_HSA_STATS\" <<'E'\n{STATISTICS}\nE\necho '{log}' >\"$LLAMA_ARG_LOG_FILE\""
    );
    script(root.path(), "llama-completion", &text);
    let (output, out, err) = run(&program, root.path(), &["run", "llama-completion"]);
    assert_eq!((output.status.code(), out.as_str()), (Some(0), "text\n"));
    let expected = "last\nggml-hsa: HSA0 (mock:aie2p): 75.0 % of 4 operations and 100.0 % of the multiply-accumulates on the array; \
        1 kernel compiled; 5.75 tokens/s\n";
    assert_eq!(err, expected);
}

#[test]
fn the_statistics_of_the_user_are_read_if_this_run_wrote_them() {
    let root = tempfile::tempdir().unwrap();
    let (program, _) = installation(root.path());
    let file = root.path().join("mine.json");
    fs::write(&file, STATISTICS).unwrap();
    script(root.path(), "writes", &format!("cat >\"$GGML_HSA_STATS\" <<'E'\n{STATISTICS}\nE"));
    let said = |tool: &str| {
        let path = format!("{}:/usr/bin:/bin", root.path().join("tools").display());
        let output =
            Command::new(&program).args(["run", tool]).env("PATH", path).env("GGML_HSA_STATS", &file).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said("llama-tool").contains("has not loaded"), "an older run's statistics are not this run's");
    assert!(said("writes").contains("75.0 % of 4 operations"));
    assert!(file.exists());
}

#[test]
fn without_a_place_for_statistics_the_program_runs_all_the_same() {
    let root = tempfile::tempdir().unwrap();
    let (program, _) = installation(root.path());
    let path = format!("{}:/usr/bin:/bin", root.path().join("tools").display());
    let mut command = Command::new(&program);
    let output =
        command.args(["run", "llama-tool"]).env("PATH", path).env("TMPDIR", "/no/such/folder").output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(7) && err.contains("there is no place for statistics"), "{err}");
}

#[test]
fn a_quiet_run_becomes_the_program() {
    let root = tempfile::tempdir().unwrap();
    let (program, _) = installation(root.path());
    script(root.path(), "number", "echo $$ ${GGML_HSA_STATS-unset}");
    let path = format!("{}:/usr/bin:/bin", root.path().join("tools").display());
    let mut command = Command::new(&program);
    command.args(["run", "--quiet", "number"]).env("PATH", path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.env_remove("GGML_HSA_STATS").spawn().unwrap();
    let expected = format!("{} unset\n", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!((String::from_utf8(output.stdout).unwrap(), output.stderr), (expected, Vec::new()));
}

#[rstest]
#[case::terminate(Signal::SIGTERM, "TERM")]
#[case::interrupt(Signal::SIGINT, "INT")]
#[case::hang_up(Signal::SIGHUP, "HUP")]
fn a_signal_reaches_the_program(#[case] signal: Signal, #[case] name: &str) {
    let root = tempfile::tempdir().unwrap();
    let (program, _) = installation(root.path());
    // A shell runs a trap when the program it waits for ends.
    script(root.path(), "waits", &format!("trap 'echo got; exit 5' {name}\necho ready\nwhile :; do sleep 0.05; done"));
    let path = format!("{}:/usr/bin:/bin", root.path().join("tools").display());
    let mut command = Command::new(&program);
    command.args(["run", "waits"]).env("PATH", path).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    assert_eq!(lines.collect::<Vec<_>>(), ["got"]);
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[rstest]
#[case("KILL", 9)]
#[case("TERM", 15)]
#[case("SEGV", 11)]
fn a_signal_that_ends_the_program_ends_the_run(#[case] name: &str, #[case] number: i32) {
    let root = tempfile::tempdir().unwrap();
    let (program, _) = installation(root.path());
    script(root.path(), "falls", &format!("kill -{name} $$"));
    let (output, _, err) = run(&program, root.path(), &["run", "falls"]);
    assert_eq!(output.status.signal(), Some(number), "{err}");
    assert!(err.contains(&format!("signal {number} ended falls before")), "{err}");
}

/// A terminal sends Ctrl-C to all programs in its foreground; a second one would make llama.cpp's programs drop everything.
#[test]
fn the_ctrl_c_of_a_terminal_comes_once() {
    const TYPES: &str = "import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
text = b''
def read():
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b''
while b'ready' not in text:
    text += read() or sys.exit('no ready')
os.write(terminal, b'\\x03')
while part := read():
    text += part
print(text.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";
    let root = tempfile::tempdir().unwrap();
    let (program, _) = installation(root.path());
    let counts = "n=0\ntrap 'n=$((n+1))' INT\necho ready\ni=0\nwhile [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done\necho count=$n";
    script(root.path(), "counts", counts);
    let path = format!("{}:/usr/bin:/bin", root.path().join("tools").display());
    let mut command = Command::new("python3");
    command.args(["-c", TYPES]).arg(&program).args(["run", "counts"]).env("PATH", path);
    let output = command.output().expect("python3 is needed, as for the rest of the tests: install it");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("count=1") && text.trim_end().ends_with(" 0"), "{text} {output:?}");
    assert!(text.contains("ggml-hsa: the NPU was not used"), "{text}");
}
