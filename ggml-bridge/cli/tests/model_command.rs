//! `ggml-hsa explain` and `ggml-hsa prebuild` as programs, with small files of models.

mod model_file;

use model_file::model;
use rstest::rstest;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ggml-hsa");

/// The variable with the arguments of [`stand_in`].
const STAND_IN: &str = "LLAMA_SERVER_STAND_IN";
/// A copy of this program in the folder, for a user who may not start it elsewhere.
const COPY: &str = "stand-in";

/// A folder with a model, a library and a program in the place of llama.cpp's, which others may read.
fn folder(architecture: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let readable = || fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), readable()).unwrap();
    fs::write(folder.path().join("model.gguf"), model(architecture)).unwrap();
    let elf = [&fs::read(PROGRAM).unwrap()[..20], b"\0ggml_backend_init\0"].concat();
    fs::write(folder.path().join("libggml-hsa.so"), elf).unwrap();
    let (this, copied) = (std::env::current_exe().unwrap(), folder.path().join(COPY));
    let script = folder.path().join("llama-server.sh");
    let text = format!(
        "#!/bin/sh\n[ -x '{1}' ] && exe='{1}' || exe='{0}'\n{STAND_IN}=\"$*\" exec \"$exe\" stand_in --exact --nocapture\n",
        this.display(),
        copied.display()
    );
    fs::write(&script, text).unwrap();
    copy(&script, &folder.path().join("llama-server"));
    folder
}

/// Copies a program. Not by `fs::copy`: what another test starts meanwhile would have the copy open for writing, and it could not be
/// executed.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("install").arg(from).arg(to).status().unwrap().success());
}

/// Not a test: in the place of `llama-server` this program answers requests, and writes graphs that `llama-server` built.
#[test]
fn stand_in() {
    let Ok(arguments) = std::env::var(STAND_IN) else { return };
    let words: Vec<&str> = arguments.split(' ').collect();
    let after = |option: &str| words.iter().skip_while(|word| **word != option).nth(1).copied().unwrap();
    if after("-m").ends_with("unloadable.gguf") {
        panic!("a model that cannot be loaded");
    }
    assert_eq!(std::env::var("GGML_HSA_DEVICES").unwrap(), "mock:aie2p?execute=plan");
    assert!(std::env::var("GGML_BACKEND_PATH").unwrap().ends_with("libggml-hsa.so"));
    let graphs = match std::env::var("LLAMA_ARG_FLASH_ATTN").unwrap().as_str() {
        "on" => include_str!("graphs/flash.jsonl"),
        _ => include_str!("graphs/plain.jsonl"),
    };
    let [prompt, token] = graphs.lines().collect::<Vec<_>>()[..] else { panic!("{}", graphs.lines().count()) };
    let (mut computed, mut cached) = (0, 0);
    for stream in UnixListener::bind(after("--host")).unwrap().incoming() {
        let mut stream = BufReader::new(stream.unwrap());
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let path = line.split(' ').nth(1).unwrap().to_owned();
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
            length = line.strip_prefix("Content-Length: ").map_or(length, |length| length.trim().parse().unwrap());
        }
        let mut content = vec![0; length];
        stream.read_exact(&mut content).unwrap();
        if path == "/completion" {
            if after("-m").ends_with("slow.gguf") {
                fs::write(Path::new(after("--host")).with_file_name("asked"), "").unwrap();
                sleep(Duration::from_secs(120));
            }
            let asked: serde_json::Value = serde_json::from_slice(&content).unwrap();
            let tokens = asked["prompt"].as_array().unwrap().len();
            let context: usize = after("-c").parse().unwrap();
            assert!(tokens < context, "{tokens} of {context}");
            cached = if asked["cache_prompt"] == true { cached.min(tokens - 1) } else { 0 };
            computed = tokens - cached;
            let decoded = asked["n_predict"] == 2;
            assert!(decoded || asked["n_predict"] == 0);
            cached = tokens + usize::from(decoded);
            let file = std::env::var("GGML_HSA_GRAPHS").unwrap();
            let mut file = fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
            writeln!(file, "{}", if computed == 1 { token } else { prompt }).unwrap();
            if decoded {
                writeln!(file, "{token}").unwrap();
            }
        }
        let answer = serde_json::json!({"timings": {"prompt_n": computed}}).to_string();
        write!(stream.get_mut(), "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).unwrap();
    }
}

/// The program in `folder`, with the cache `cache` there.
fn program(folder: &Path, cache: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.current_dir(folder).env_clear().env("GGML_HSA_KERNEL_CACHE_DIR", folder.join(cache));
    command.env("GGML_HSA_JIT_WORKERS", "0").env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    command
}

/// Exit code, standard output, standard error.
fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const SMALL: [&str; 10] =
    ["--device", "mock:aie2p", "--ctx", "256", "--batch", "8", "--prompt", "8", "--library", "libggml-hsa.so"];

#[rstest]
#[case("gpt-oss")]
#[case("falcon-h1")]
#[case("command-r")]
#[case("hunyuan-dense")]
fn architectures_with_a_hyphen_are_read(#[case] architecture: &str) {
    let folder = folder(architecture);
    let (code, out, err) = run(program(folder.path(), "cache").args(["explain", "model.gguf", "--json"]).args(SMALL));
    let explained: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|cause| panic!("{cause}: {err}"));
    assert_eq!(explained["model"]["architecture"], architecture);
    assert!(code == 0 && !err.contains("not a usable GGUF file"), "{err}");
    let (code, out, err) =
        run(program(folder.path(), "cache").args(["prebuild", "model.gguf", "--dry-run", "--json"]).args(SMALL));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|cause| panic!("{cause}: {err}"));
    assert!(code == 0 && report["kernels"].as_u64() > Some(8), "{report}");
}

#[test]
fn kernels_that_the_cache_keeps_are_made_once() {
    let folder = folder("llama");
    let prebuild = || run(program(folder.path(), "cache").args(["prebuild", "model.gguf"]).args(SMALL));
    let (code, out, err) = prebuild();
    assert!(code == 0 && out.contains(" kernels: 0 existed, "), "{out}{err}");
    let (code, out, err) = prebuild();
    assert!(code == 0 && out.contains(" existed, 0 made, 0 cannot be made"), "{out}{err}");
}

#[rstest]
#[case::read_only("cache")]
#[case::below_a_read_only_folder("cache/below")]
#[case::a_file("file")]
#[case::below_a_file("file/below")]
fn a_cache_that_keeps_nothing_is_a_failure(#[case] cache: &str) {
    let folder = folder("llama");
    fs::create_dir(folder.path().join("cache")).unwrap();
    fs::set_permissions(folder.path().join("cache"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::write(folder.path().join("file"), "mine").unwrap();
    let mut command = program(folder.path(), cache);
    command.args(["prebuild", "model.gguf"]).args(SMALL);
    // Permissions do not stop root, and its folders may be closed to others.
    if fs::metadata(folder.path()).unwrap().uid() == 0 {
        let copy = folder.path().join("ggml-hsa");
        self::copy(Path::new(PROGRAM), &copy);
        self::copy(&std::env::current_exe().unwrap(), &folder.path().join(COPY));
        let mut sandboxed = Command::new(copy);
        sandboxed.args(command.get_args()).current_dir(folder.path()).env_clear();
        sandboxed.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).uid(65_534).gid(65_534);
        command = sandboxed;
    }
    let (code, out, err) = run(&mut command);
    assert!(code == 1 || code == 2, "{code}: {out}{err}");
    assert!(err.contains(folder.path().join(cache).to_str().unwrap()), "{err}");
    assert!(err.contains("GGML_HSA_KERNEL_CACHE_DIR"), "{err}");
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "mine");
    assert_eq!(fs::read_dir(folder.path().join("cache")).unwrap().count(), 0);
}

#[test]
fn numbers_beyond_the_model_are_said() {
    let folder = folder("llama");
    let explain = |options: &[&str]| {
        let arguments = ["explain", "model.gguf", "--device", "mock:aie2p", "--library", "."];
        run(program(folder.path(), "cache").args(arguments).args(options))
    };
    for (options, expected) in [
        (&["--past", "512"][..], "--past 512: the context has 512 tokens, one of which is decoded"),
        (&["--past", "100", "--ctx", "100"], "--past 100: the context has 100 tokens"),
        (&["--prompt", "600"], "--prompt 600: a batch has at most 511 tokens"),
        (&["--prompt", "9", "--batch", "8"], "--prompt 9: a batch has at most 8 tokens"),
    ] {
        let (code, out, err) = explain(options);
        assert!(code == 2 && out.is_empty() && err.contains(expected), "{options:?}: {out}{err}");
    }
    let (code, _, err) = explain(&["--ctx", "4096", "--past", "600"]);
    assert!(code == 0 && err.contains("--ctx 4096: the model was trained for 512 tokens"), "{code} {err}");
    let (code, _, err) = explain(&["--past", "511", "--prompt", "511"]);
    assert_eq!(code, 0, "{err}");
    assert!(!err.contains("trained for"), "{err}");
    let prebuild = ["prebuild", "model.gguf", "--device", "mock:aie2p", "--batch", "8", "--prompt", "9-20"];
    let (code, _, err) = run(program(folder.path(), "cache").args(prebuild));
    assert!(code == 2 && err.contains("--prompt 9-20: a batch has at most 8 tokens"), "{err}");
}

/// Without llama.cpp there is nothing to explain; what to install is said. So is why a model cannot be loaded.
#[test]
fn what_llama_cpp_lacks_is_said() {
    let folder = folder("llama");
    let explain = |path: &str, model: &str| {
        run(program(folder.path(), "cache").env("PATH", path).args(["explain", model]).args(SMALL))
    };
    let (code, out, err) = explain("/nowhere", "model.gguf");
    assert!(code == 2 && out.is_empty(), "{code}: {out}{err}");
    for part in ["llama-server", "/nowhere", "sudo apt install llama.cpp", "--llama-server"] {
        assert!(err.contains(part), "{part} is not in {err}");
    }
    fs::copy(folder.path().join("model.gguf"), folder.path().join("unloadable.gguf")).unwrap();
    let (code, _, err) = explain(&folder.path().display().to_string(), "unloadable.gguf");
    assert!(code == 2 && err.contains("a model that cannot be loaded"), "{err}");
    fs::remove_file(folder.path().join("libggml-hsa.so")).unwrap();
    let (code, _, err) = explain(&folder.path().display().to_string(), "model.gguf");
    assert!(code == 2 && err.contains("--library"), "{err}");
}

/// `explain` cannot end anything when it is killed, and its server would stay with a model in memory.
#[test]
fn the_server_of_an_explain_that_is_killed_ends() {
    let folder = folder("llama");
    fs::copy(folder.path().join("model.gguf"), folder.path().join("slow.gguf")).unwrap();
    let mut explain = program(folder.path(), "cache");
    explain.args(["explain", "slow.gguf"]).args(SMALL).env("TMPDIR", folder.path());
    let mut explain = explain.spawn().unwrap();
    let until = |is_so: &dyn Fn() -> bool| {
        let limit = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < limit, "nothing has happened for a minute");
            sleep(Duration::from_millis(20));
        }
    };
    let plan = || {
        let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.into_iter().find(|path| path.join("asked").exists())
    };
    until(&|| plan().is_some());
    let socket = plan().unwrap().join("s.sock");
    assert!(UnixStream::connect(&socket).is_ok());
    explain.kill().unwrap();
    explain.wait().unwrap();
    until(&|| UnixStream::connect(&socket).is_err());
}

/// What a shell does with a device that has no room: an error, and no panic.
#[rstest]
#[case(&["--help"])]
#[case(&["explain", "--help"])]
#[case(&["--version"])]
#[case(&["explain", "model.gguf", "--device", "mock:aie2p", "--library", ".", "--llama-server", "./llama-server"])]
#[case(&["env", "--library", "libggml-hsa.so"])]
fn output_that_cannot_be_written_is_a_failure(#[case] arguments: &[&str]) {
    let folder = folder("llama");
    for name in ["ggml-hsa", "ggml-hsa-gen-kernels"] {
        // The other program has no commands.
        if name != "ggml-hsa" && !arguments[0].starts_with("--") {
            continue;
        }
        let program: PathBuf = Path::new(PROGRAM).with_file_name(name);
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(program).args(arguments).current_dir(folder.path()).stdout(full).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name} {arguments:?}: {err}");
        assert!(err.contains("No space left on device") && !err.contains("panicked"), "{name} {arguments:?}: {err}");
    }
}
