//! `ggml-hsa explain` and `ggml-hsa prebuild` as programs, with small files of models.

mod model_file;

use model_file::model;
use rstest::rstest;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ggml-hsa");

/// A folder with a model, which others may read.
fn folder(architecture: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("model.gguf"), model(architecture)).unwrap();
    folder
}

/// The program in `folder`, with the cache `cache` there.
fn program(folder: &Path, cache: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.current_dir(folder).env_clear().env("GGML_HSA_KERNEL_CACHE_DIR", folder.join(cache));
    command.env("GGML_HSA_JIT_WORKERS", "0");
    command
}

/// Exit code, standard output, standard error.
fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const SMALL: [&str; 8] = ["--device", "mock:aie2p", "--ctx", "256", "--batch", "8", "--prompt", "8"];

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
    // 1: the graph of this family was not compared.
    assert!(code < 2 && !err.contains("not a usable GGUF file"), "{err}");
    let (code, out, err) =
        run(program(folder.path(), "cache").args(["prebuild", "model.gguf", "--dry-run", "--json"]).args(SMALL));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|cause| panic!("{cause}: {err}"));
    assert!(code < 2 && report["kernels"].as_u64() > Some(8), "{report}");
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
        // Not by `fs::copy`: what another test starts meanwhile would have the copy open for writing, and it could not be executed.
        assert!(Command::new("cp").arg(PROGRAM).arg(&copy).status().unwrap().success());
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
        run(program(folder.path(), "cache").args(["explain", "model.gguf", "--device", "mock:aie2p"]).args(options))
    };
    for (options, expected) in [
        (&["--past", "512"][..], "--past 512: the context has 512 tokens, one of which is decoded"),
        (&["--past", "100", "--ctx", "100"], "--past 100: the context has 100 tokens"),
        (&["--prompt", "600"], "--prompt 600: a batch has at most 512 tokens"),
        (&["--prompt", "9", "--batch", "8"], "--prompt 9: a batch has at most 8 tokens"),
    ] {
        let (code, out, err) = explain(options);
        assert!(code == 2 && out.is_empty() && err.contains(expected), "{options:?}: {out}{err}");
    }
    let (code, _, err) = explain(&["--ctx", "4096", "--past", "600"]);
    assert!(code == 0 && err.contains("--ctx 4096: the model was trained for 512 tokens"), "{code} {err}");
    let (_, _, err) = explain(&["--past", "511", "--prompt", "512"]);
    assert!(!err.contains("trained for"), "{err}");
    let prebuild = ["prebuild", "model.gguf", "--device", "mock:aie2p", "--batch", "8", "--prompt", "9-20"];
    let (code, _, err) = run(program(folder.path(), "cache").args(prebuild));
    assert!(code == 2 && err.contains("--prompt 9-20: a batch has at most 8 tokens"), "{err}");
}

/// What a shell does with a device that has no room: an error, and no panic.
#[rstest]
#[case(&["--help"])]
#[case(&["explain", "--help"])]
#[case(&["--version"])]
#[case(&["explain", "model.gguf", "--device", "mock:aie2p"])]
#[case(&["env", "--library", "libggml-hsa.so"])]
fn output_that_cannot_be_written_is_a_failure(#[case] arguments: &[&str]) {
    let folder = folder("llama");
    let elf = [&fs::read(PROGRAM).unwrap()[..20], b"\0ggml_backend_init\0"].concat();
    fs::write(folder.path().join("libggml-hsa.so"), elf).unwrap();
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
