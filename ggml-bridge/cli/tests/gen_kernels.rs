//! `ggml-hsa-gen-kernels` as people run it.
//!
//! The reference compiler stands in for the toolchain: its kernels take the same way.

use aie_hal::ArchRegistry;
use aie_jit_iron::settings::GGML_HSA_F16;
use aie_jit_iron::{KernelDirectory, KernelPack, Wanted};
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rstest::rstest;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ggml-hsa-gen-kernels"));
    command.args(arguments).env_remove("GGML_HSA_F16").env_remove("AIE_HAL_ARCH_PATH").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// A folder with a configuration `c.json`; kernels go to `out`.
struct Rig {
    root: TempDir,
}

impl Rig {
    fn new(configuration: &Value) -> Self {
        let root = TempDir::new().unwrap();
        fs::write(root.path().join("c.json"), serde_json::to_string_pretty(configuration).unwrap()).unwrap();
        Self { root }
    }

    fn path(&self, name: &str) -> String {
        self.root.path().join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, more: &[&str]) -> Command {
        let (config, out) = (self.path("c.json"), self.path("out"));
        command(&[&["--config", &config, "--output-dir", &out, "--compiler", "reference"], more].concat())
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    /// Starts it, and waits until it has made so many kernels or has ended.
    fn start_until(&self, kernels: usize) -> Child {
        let folder = self.root.path().join("out/aie2");
        let goal = pdis(&folder) + kernels;
        let generating = self.command(&["--jobs", "2"]);
        // Tests may themselves be run with SIGHUP ignored, as under `nohup`, which programs inherit.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(generating.get_program()).args(generating.get_args());
        for (name, value) in generating.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while pdis(&folder) < goal && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "no kernel in a minute");
            std::thread::sleep(Duration::from_millis(1));
        }
        child
    }
}

fn kernel(function: &str, source: &str, sources: usize, tensor: &str, name: &str) -> Value {
    json!({
        "kernel_name": function, "kernel_source": source, "arch": "aie2",
        "input_tensors": vec![tensor; sources], "output_tensor": tensor, "exported_name": name,
    })
}

/// The example of the C++ tool: four kernels.
fn four() -> Value {
    json!({"description": "four kernels", "kernels": [
        kernel("ggml_op_add", "binary_ops.py", 2, "(1024,1,1,1)/f32", "add_f32_1024"),
        kernel("ggml_op_mul", "binary_ops.py", 2, "(1024,1,1,1)/f32", "mul_f32_1024"),
        kernel("ggml_unary_op_relu", "unary_ops.py", 1, "(2048,1,1,1)/f32", "relu_f32_2048"),
        kernel("ggml_unary_op_gelu", "unary_ops.py", 1, "(4096,1,1,1)/bf16", "gelu_bf16_4096"),
    ]})
}

/// Names that the C++ backend looks for, with the names of the example.
const FOUR: [(&str, &str); 4] = [
    ("add_f32_1024", "add-1024f32-1024f32-1024f32"),
    ("mul_f32_1024", "mul-1024f32-1024f32-1024f32"),
    ("relu_f32_2048", "relu-2048f32-2048f32"),
    ("gelu_bf16_4096", "gelu-4096bf16-4096bf16"),
];

/// Many sums, to have something to do for a while.
fn many(count: usize) -> Value {
    let sum = |index: usize| {
        let tensor = format!("({},1,1,1)/f32", 16 * (index + 1));
        kernel("ggml_op_add", "binary_ops.py", 2, &tensor, &format!("sum_{index}"))
    };
    json!({"kernels": (0..count).map(sum).collect::<Vec<_>>()})
}

#[test]
fn the_example_of_the_cpp_tool_end_to_end() {
    let rig = Rig::new(&four());
    let output = rig.run(&["--verbose"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(stdout(&output).lines().last(), Some("Generated 4/4 kernel(s) successfully"));
    assert!(stderr(&output).contains("On a real NPU they do nothing"), "{output:?}");
    let folder = rig.root.path().join("out/aie2");
    for (exported, looked_for) in FOUR {
        assert!(stderr(&output).contains(&format!("generated aie2/{exported}: ")), "{output:?}");
        for end in [".pdi", "_insts.bin", ".json"] {
            assert!(fs::symlink_metadata(folder.join(format!("{exported}{end}"))).unwrap().is_file());
            let link = fs::read_link(folder.join(format!("{looked_for}{end}"))).unwrap();
            assert_eq!(link, Path::new(&format!("{exported}{end}")));
        }
    }
    // A directory can be moved, and serves as GGML_HSA_KERNEL_DIR.
    let moved = rig.root.path().join("moved");
    fs::rename(rig.root.path().join("out"), &moved).unwrap();
    let directory = KernelDirectory::open(&moved).unwrap();
    let arch = ArchRegistry::builtin().get("aie2").unwrap();
    for (op, dtype, elements, sources) in [
        ("ADD", DataType::F32, 1024, 2),
        ("MUL", DataType::F32, 1024, 2),
        ("RELU", DataType::F32, 2048, 1),
        ("GELU", DataType::BF16, 4096, 1),
    ] {
        let (op, tensor) = (table::lookup(op).unwrap(), Tensor::contiguous(dtype, [elements, 1, 1, 1]));
        let node = Node::new(op.name(), OpParams::default(), tensor, vec![Some(tensor); sources]);
        let wanted = Wanted::of(op, &node, &arch);
        assert!(directory.load(&wanted).unwrap().is_some(), "{}", wanted.name);
    }
}

#[test]
fn a_second_run_keeps_what_is_there() {
    let rig = Rig::new(&four());
    let statuses = |output: &Output| -> Vec<String> {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let kernels = report(output)["kernels"].as_array().unwrap().clone();
        kernels.iter().map(|kernel| kernel["status"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(statuses(&rig.run(&["--json"])), ["made"; 4]);
    assert_eq!(statuses(&rig.run(&["--json", "--jobs", "3"])), ["kept"; 4]);
    fs::write(rig.root.path().join("out/aie2/mul_f32_1024.pdi"), "damaged").unwrap();
    let output = rig.run(&["--json"]);
    assert_eq!(statuses(&output), ["kept", "made", "kept", "kept"]);
    let report = report(&output);
    assert!(report["kernels"][1]["cause"].as_str().unwrap().starts_with("rebuilt: "), "{report}");
    assert_eq!((&report["generated"], &report["total"]), (&json!(4), &json!(4)));
    assert_eq!(statuses(&rig.run(&["--json", "--force"])), ["made"; 4]);
}

#[test]
fn without_the_toolchain_nothing_is_made_and_a_dry_run_is_possible() {
    let rig = Rig::new(&four());
    let (config, out) = (rig.path("c.json"), rig.path("out"));
    let output = run(&["--config", &config, "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).contains("generate aie2/add_f32_1024 (links: add-1024f32-1024f32-1024f32)"), "{output:?}");
    assert!(stdout(&output).ends_with("No errors found: 4 kernel(s) to generate, 0 up to date\n"), "{output:?}");
    let output = run(&["--config", &config, "--output-dir", &out, "--dry-run", "--json"]);
    assert_eq!(report(&output)["kernels"][3]["status"], "planned");
    let mut iron = command(&["--config", &config, "--output-dir", &out, "--compiler", "iron", "--json"]);
    let output = iron.env("GGML_HSA_IRON_DIR", rig.root.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(report(&output)["error"].as_str().unwrap().contains("there is no worker.py"), "{output:?}");
    assert!(!Path::new(&out).exists());
}

/// No native family has TRI.
fn triangle() -> Value {
    json!({"kernels": [{"kernel_name": "ggml_op_tri", "kernel_source": "tri.py", "arch": "aie2",
        "input_tensors": ["(8,8,1,1)/f32"], "output_tensor": "(8,8,1,1)/f32"}]})
}

#[test]
fn what_the_native_compiler_does_not_have_is_said() {
    let rig = Rig::new(&triangle());
    let (config, out) = (rig.path("c.json"), rig.path("out"));
    let output = run(&["--config", &config, "--output-dir", &out, "--compiler", "native", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let cause = report(&output)["kernels"][0]["cause"].as_str().unwrap().to_owned();
    assert!(cause.starts_with("compiler native does not support it: TRI"), "{cause}");
}

#[test]
fn without_a_choice_iron_makes_what_the_native_compiler_does_not_have() {
    let rig = Rig::new(&triangle());
    let (config, out) = (rig.path("c.json"), rig.path("out"));
    let mut both = command(&["--config", &config, "--output-dir", &out, "--json"]);
    let output = both.env("GGML_HSA_IRON_DIR", rig.root.path()).output().unwrap();
    // IRON is missing: nothing is known about the kernel.
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report = report(&output);
    assert_eq!(report["compiler"], "native, iron");
    let cause = report["kernels"][0]["cause"].as_str().unwrap();
    assert!(cause.contains("native does not support it") && cause.contains("there is no worker.py"), "{cause}");
}

#[test]
fn every_mistake_is_reported_with_its_place() {
    let mut configuration = four();
    configuration["kernels"][0]["output_tensor"] = "(1024,1,1)/f32".into();
    configuration["kernels"][1].as_object_mut().unwrap().remove("arch");
    configuration["kernels"][2]["kernel_source"] = "binary_ops.py".into();
    configuration["kernels"][3]["exported_name"] = "../../escape".into();
    let rig = Rig::new(&configuration);
    let output = rig.run(&["--json"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = stderr(&output);
    for expected in [
        ": kernels[0].output_tensor: Shape must have exactly 4 dimensions, got 3 in (1024,1,1)/f32",
        ": kernels[1]: Kernel 1 missing 'arch'",
        ": kernels[2].kernel_source: Kernel source not found: binary_ops.py has no ggml_unary_op_relu",
        ": kernels[3].exported_name: 'exported_name' cannot name files: `../../escape` contains '/'",
        "error: 4 error(s); nothing was generated",
    ] {
        assert!(errors.contains(expected), "{errors} lacks {expected}");
    }
    let report = report(&output);
    let problems = report["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 4);
    assert_eq!(problems[0]["place"]["path"], "kernels[0].output_tensor");
    assert!(problems[0]["place"]["line"].as_u64() > Some(1), "{report}");
    assert!(!rig.root.path().join("out").exists());
}

#[rstest]
#[case(&["--config", "/nowhere.json", "--output-dir", "o"], "/nowhere.json: Failed to load configuration: No such file")]
#[case(&["--config", "c.json"], "--output-dir <DIR>")]
#[case(&["--output-dir", "o"], "--config <FILE>")]
#[case(&["--config", "c.json", "--output-dir", "o", "--arch", "aie9"], "--arch aie9: no such generation; possible: aie2, aie2p")]
#[case(&["--config", "c.json", "--output-dir", "o", "--kernels-dir", "/nowhere"], "Kernels directory not found: /nowhere")]
#[case(&["--config", "c.json", "--output-dir", "o", "--f16", "f8"], "possible: f32 (the default), bf16")]
#[case(&["--config", "c.json", "--output-dir", "o", "--jobs", "0"], "0 is not in 1..=1024")]
fn wrong_usage_is_explained(#[case] arguments: &[&str], #[case] expected: &str) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("c.json"), four().to_string()).unwrap();
    let output = command(arguments).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains(expected), "{output:?}");
}

#[rstest]
#[case::option(&["--f16", "bf16"], "f32", "silu-8bf16-8bf16")]
#[case::environment(&[], "bf16", "silu-8bf16-8bf16")]
#[case::neither(&[], "", "silu-8f32-8f32")]
fn f16_follows_the_option_and_then_the_environment(#[case] more: &[&str], #[case] value: &str, #[case] name: &str) {
    let mut silu = kernel("ggml_unary_op_silu", "unary_ops.py", 1, "(8,1,1,1)/f16", "");
    silu.as_object_mut().unwrap().remove("exported_name");
    let rig = Rig::new(&json!({"kernels": [silu]}));
    let output = rig.command(&[&["--dry-run"], more].concat()).env("GGML_HSA_F16", value).output().unwrap();
    assert!(stdout(&output).starts_with(&format!("generate aie2/{name}\n")), "{output:?}");
}

#[test]
fn settings_that_mean_nothing_are_reported() {
    let rig = Rig::new(&four());
    let misspelt = format!("{GGML_HSA_F16}_");
    let output = rig.command(&["--dry-run"]).env(&misspelt, "bf16").output().unwrap();
    assert!(stderr(&output).contains(&misspelt), "{output:?}");
    let output = rig.command(&["--dry-run"]).env("GGML_HSA_F16", "f8").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("GGML_HSA_F16: `f8` is not a type"), "{output:?}");
}

#[test]
fn an_output_directory_that_cannot_be_used_is_explained() {
    let rig = Rig::new(&four());
    fs::write(rig.root.path().join("out"), "a file").unwrap();
    let config = rig.path("c.json");
    // Not even root may write to /proc.
    for (directory, tried) in [
        (rig.path("out").as_str(), "cannot create it: File exists"),
        ("/proc/kernels", "cannot create it: "),
        ("/proc", "cannot create the file .lock in it: "),
    ] {
        let output = run(&["--config", &config, "--compiler", "reference", "--output-dir", directory]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let expected = format!("error: output directory {directory}: {tried}");
        assert!(stderr(&output).contains(&expected), "{output:?}");
        assert!(stderr(&output).contains("name a directory that you may write to with --output-dir"), "{output:?}");
    }
}

#[rstest]
#[case::no_kernels(json!({"kernels": []}), &[], "the configuration lists no kernels")]
#[case::another_generation(four(), &["--arch", "aie2p"], "none of the 4 kernel(s) is for aie2p (--arch)")]
fn no_kernel_to_make_is_no_success(#[case] configuration: Value, #[case] more: &[&str], #[case] cause: &str) {
    let rig = Rig::new(&configuration);
    for mode in [&[][..], &["--dry-run"], &["--json"]] {
        let output = rig.run(&[more, mode].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(&format!("error: there is no kernel to generate: {cause}")), "{output:?}");
        assert!(!stdout(&output).contains("successfully"), "{output:?}");
        assert!(!Path::new(&rig.path("out")).exists());
    }
}

/// A run that missed nothing is fine; one whose kernels cannot be made is not.
#[test]
fn statistics_without_kernels_to_make() {
    let rig = Rig::new(&four());
    let (file, out) = (rig.path("stats.json"), rig.path("out"));
    let missed = json!({"arch": "aie77", "kernel": "k", "node": Node::new("ADD", OpParams::default(), Tensor::contiguous(DataType::F32, [64, 1, 1, 1]), vec![])});
    for (missed, code, text) in [
        (json!([]), 0, "The run missed no kernel: there is nothing to generate\n"),
        (
            json!([missed]),
            2,
            "error: there is no kernel to generate: every kernel in the statistics was skipped; see the notes",
        ),
    ] {
        fs::write(&file, json!({"version": 1, "store": {"missed": missed}}).to_string()).unwrap();
        let output = run(&["--from-stats", &file, "--output-dir", &out, "--compiler", "reference"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!((stdout(&output) + &stderr(&output)).contains(text), "{output:?}");
    }
}

#[test]
fn generations_can_be_restricted() {
    let mut configuration = four();
    configuration["kernels"][3]["arch"] = "aie2p".into();
    let rig = Rig::new(&configuration);
    let output = rig.run(&["--arch", "aie2p", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report(&output);
    assert_eq!((&report["generated"], &report["total"]), (&json!(1), &json!(1)));
    assert_eq!(report["kernels"][0]["status"], "skipped");
    assert!(rig.root.path().join("out/aie2p/gelu_bf16_4096.pdi").is_file());
    assert!(!rig.root.path().join("out/aie2").exists());
}

#[test]
fn a_failed_kernel_does_not_keep_the_others_from_being_made() {
    let rig = Rig::new(&four());
    let folder = rig.root.path().join("out/aie2");
    fs::create_dir_all(folder.join("mul_f32_1024.pdi/in_the_way")).unwrap();
    let output = rig.run(&["--embed"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        stderr(&output).contains("error: Failed to generate kernel mul_f32_1024 (aie2): cannot write"),
        "{output:?}"
    );
    assert!(stderr(&output).contains("no pack was written: 1 kernel(s) are missing"), "{output:?}");
    assert_eq!(stdout(&output).lines().last(), Some("Generated 3/4 kernel(s) successfully"));
}

#[test]
fn missed_kernels_of_a_run_are_made() {
    let tensor = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
    let node = Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2]);
    let missed =
        |arch: &str| json!({"arch": arch, "kernel": "add-64f32-64f32-64f32", "node": node, "reason": "no compiler"});
    let stats = json!({"version": 1, "graphs": 3, "store": {"missed": [missed("aie2p"), missed("aie77")]}});
    let rig = Rig::new(&four());
    let (file, out) = (rig.path("stats.json"), rig.path("out"));
    fs::write(&file, stats.to_string()).unwrap();
    let output = run(&["--from-stats", &file, "--output-dir", &out, "--compiler", "reference"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stderr(&output).contains("store.missed[1]: skipped: the generation aie77 is not known"), "{output:?}");
    assert_eq!(stdout(&output).lines().last(), Some("Generated 1/1 kernel(s) successfully"));
    assert!(rig.root.path().join("out/aie2p/add-64f32-64f32-64f32.pdi").is_file());
    let both = rig.run(&["--from-stats", &file, "--embed"]);
    assert_eq!(stdout(&both).lines().last(), Some("Generated 5/5 kernel(s) successfully"));
    let pack = fs::read(rig.root.path().join("out/aie2p.pack")).unwrap();
    assert_eq!(KernelPack::open("aie2p", pack).unwrap().len(), 1);
    assert!(rig.root.path().join("out/aie2.pack").is_file());
    fs::write(&file, "{}").unwrap();
    let output = run(&["--from-stats", &file, "--output-dir", &out, "--compiler", "reference"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Interrupted at many moments: what is there is whole, nothing half written is left, and the next run continues.
#[rstest]
#[case(Signal::SIGINT)]
#[case(Signal::SIGTERM)]
#[case(Signal::SIGHUP)]
fn an_interrupted_run_leaves_whole_kernels_and_is_taken_up(#[case] signal: Signal) {
    let count = 400;
    let rig = Rig::new(&many(count));
    let folder = rig.root.path().join("out/aie2");
    let (mut interrupted, mut rounds) = (0, 0);
    loop {
        let mut child = rig.start_until(20);
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        if rounds < 4 {
            // It may have ended just now, which is no error.
            let _ = kill(pid, signal);
        }
        let code = child.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 130)), "{code:?}");
        interrupted += usize::from(code == Some(130));
        check_whole(&folder);
        rounds += 1;
        if code == Some(0) {
            break;
        }
    }
    assert!(interrupted > 0, "{rounds} rounds");
    let sums = fs::read_dir(&folder).unwrap().filter(|entry| name_of(entry).starts_with("sum_")).count();
    assert_eq!(sums, 3 * count);
}

fn name_of(entry: &std::io::Result<fs::DirEntry>) -> String {
    entry.as_ref().unwrap().file_name().into_string().unwrap()
}

fn pdis(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, |entries| entries.filter(|entry| name_of(entry).ends_with(".pdi")).count())
}

/// Every kernel that is there is whole.
fn check_kernels(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        if let Some(stem) = name_of(&entry).strip_suffix(".pdi") {
            for end in ["_insts.bin", ".json"] {
                assert!(folder.join(format!("{stem}{end}")).is_file(), "{stem}{end}");
            }
        }
    }
}

/// And nothing half written is.
fn check_whole(folder: &Path) {
    check_kernels(folder);
    for entry in fs::read_dir(folder).unwrap() {
        assert!(!name_of(&entry).starts_with(".making-"), "{entry:?}");
    }
}

/// A killed run cannot tidy up; the next one does, and what is there is whole.
#[test]
fn a_killed_run_is_taken_up() {
    let rig = Rig::new(&many(200));
    let folder = rig.root.path().join("out/aie2");
    for round in 0..10 {
        let mut child = rig.start_until(1 + 7 * round);
        child.kill().unwrap();
        child.wait().unwrap();
        check_kernels(&folder);
    }
    let output = rig.run(&[]);
    assert_eq!(stdout(&output).lines().last(), Some("Generated 200/200 kernel(s) successfully"), "{output:?}");
    check_whole(&folder);
}

#[test]
fn processes_can_share_an_output_directory() {
    let rig = Rig::new(&many(60));
    let children: Vec<_> = (0..4)
        .map(|_| rig.command(&["--json"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
        .collect();
    let mut made = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let kernels = report(&output)["kernels"].as_array().unwrap().clone();
        made += kernels.iter().filter(|kernel| kernel["status"] == "made").count();
    }
    assert_eq!(made, 60);
    check_whole(&rig.root.path().join("out/aie2"));
}

#[rstest]
#[case("minimal-kernel-config.json", 2, 1)]
#[case("example-kernel-config.json", 8, 2)]
#[case("list-kernel-config.json", 126, 2)]
fn the_installed_examples_are_valid_and_can_be_made(
    #[case] file: &str,
    #[case] kernels: usize,
    #[case] generations: usize,
) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../jit-iron/examples/kernels").join(file);
    let folder = TempDir::new().unwrap();
    let (path, out) = (path.to_str().unwrap(), folder.path().to_str().unwrap());
    for f16 in ["f32", "bf16"] {
        let output = run(&["--config", path, "--dry-run", "--f16", f16]);
        let expected = format!("No errors found: {kernels} kernel(s) to generate, 0 up to date\n");
        assert!(stdout(&output).ends_with(&expected) && output.stderr.is_empty(), "{output:?}");
    }
    let output = run(&["--config", path, "--output-dir", out, "--compiler", "reference"]);
    let expected = format!("Generated {kernels}/{kernels} kernel(s) successfully");
    assert_eq!(stdout(&output).lines().last(), Some(expected.as_str()), "{output:?}");
    let folders = fs::read_dir(out).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(folders.count(), generations);
}

#[test]
fn help_has_examples_and_exit_codes() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    for expected in ["Examples:", "--from-stats run.json", "Exit codes:", "GGML_HSA_KERNEL_DIR", "op_params"] {
        assert!(text.contains(expected), "{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
}
