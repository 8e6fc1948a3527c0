//! `ggml-hsa dispatch` as a program: a kernel with machine code from its files.

mod kernel_files;

use aie_conformance::compiled;
use aie_hal::ArchRegistry;
use rstest::rstest;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn dispatch(folder: &Path, arguments: &[&str]) -> Output {
    dispatch_files(folder, ["add.pdi", "add_insts.bin"], arguments)
}

fn dispatch_files(folder: &Path, files: [&str; 2], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ggml-hsa"));
    command.current_dir(folder).arg("dispatch").args(files).args(arguments).output().unwrap()
}

fn kernel(arch: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let artifact = compiled::add(&ArchRegistry::builtin().get(arch).unwrap(), 3, 2);
    fs::write(folder.path().join("add.pdi"), artifact.pdi()).unwrap();
    fs::write(folder.path().join("add_insts.bin"), artifact.instructions()).unwrap();
    let words = (0..2 * compiled::BLOCK_WORDS as u32).flat_map(|word| (word * 1000).to_le_bytes());
    fs::write(folder.path().join("source.bin"), words.collect::<Vec<u8>>()).unwrap();
    folder
}

#[rstest]
#[case("aie2")]
#[case("aie2p")]
fn a_kernel_runs_from_its_files(#[case] arch: &str) {
    let folder = kernel(arch);
    let device = format!("mock:{arch}");
    let arguments = ["--device", &device, "--input", "source.bin", "--output", "128:sum.bin", "--times", "2", "--json"];
    let ran = dispatch(folder.path(), &arguments);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&report["dispatches"], &report["outputs"][0]["bytes"]), (&2.into(), &128.into()));
    assert!(report["virtual_ns"].as_u64().unwrap() > 0);
    let expected: Vec<u8> = (0..32_u32).flat_map(|word| (word * 1000 + 3).to_le_bytes()).collect();
    assert_eq!(fs::read(folder.path().join("sum.bin")).unwrap(), expected);

    assert!(report["cycles"].as_u64().unwrap() > 500 && report["bound"].as_str().unwrap().starts_with("core (0, 2): "));

    let ran = dispatch(folder.path(), &[&arguments[..6], &["--trace", "trace.json"]].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let trace: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("trace.json")).unwrap()).unwrap();
    let of = |track: &str| -> Vec<String> {
        let events = trace.as_array().unwrap();
        let named = |event: &&serde_json::Value| event["args"]["name"] == track;
        let track = events.iter().find(named).unwrap_or_else(|| panic!("no track {track}"));
        let same = events.iter().filter(|event| event["ph"] == "X" && event["tid"] == track["tid"]);
        same.map(|event| event["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of("dispatches"), ["add"]);
    assert_eq!(of("S2MM 0 of (0, 2)"), ["BD 0", "BD 0"]);
    assert_eq!(of("MM2S 0 of (0, 2)"), ["BD 1", "BD 1"]);
    // It waits for the first block.
    assert_eq!(of("core (0, 2)")[..2], ["runs", "stalled"]);

    let ran = dispatch(folder.path(), &arguments[..6]);
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(text.starts_with(&format!("add on {device}: completed\n")), "{text}");
    assert!(text.contains("argument 1: 128 bytes: 03000000eb030000"), "{text}");
}

#[test]
fn a_kernel_runs_in_other_orders_of_events() {
    let folder = kernel("aie2");
    let arguments = ["--input", "source.bin", "--output", "128", "--seeds", "5", "--device"];
    let ran = dispatch(folder.path(), &[&arguments[..], &["mock:aie2"]].concat());
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(text.contains("the same bytes in 5 other orders\n"), "{text}");
    let ran = dispatch(folder.path(), &[&arguments[..], &["xdna:0"]].concat());
    let text = String::from_utf8(ran.stderr).unwrap();
    assert!(text.contains("--seeds needs the emulated array: `xdna:0` is no simulated device"), "{text}");
    assert_eq!(ran.status.code(), Some(2));
}

#[test]
fn long_runs_say_how_far_they_are() {
    let folder = kernel("aie2");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ggml-hsa"));
    command.current_dir(folder.path()).args(["dispatch", "add.pdi", "add_insts.bin", "--device", "mock:aie2"]);
    command.args(["--input", "source.bin", "--output", "128", "--times", "4000000000"]);
    let mut program = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stderr.take().unwrap()).read_line(&mut line).unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(line.contains(": dispatch ") && line.contains(" of 4000000000 runs, "), "{line}");
}

#[test]
fn an_xclbin_and_a_stream_as_text_are_taken() {
    let folder = kernel("aie2");
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    for count in [1, 2] {
        let file = kernel_files::xclbin(&read("add.pdi"), count);
        fs::write(folder.path().join(format!("add{count}.xclbin")), file).unwrap();
    }
    fs::write(folder.path().join("add.txt"), kernel_files::text(&read("add_insts.bin"))).unwrap();
    let arguments = ["--device", "mock:aie2", "--input", "source.bin", "--output", "128:sum.bin"];
    for (files, more) in [(["add1.xclbin", "add.txt"], &[][..]), (["add2.xclbin", "add.txt"], &["--pdi-index", "1"])] {
        let ran = dispatch_files(folder.path(), files, &[&arguments[..], more].concat());
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let expected: Vec<u8> = (0..32_u32).flat_map(|word| (word * 1000 + 3).to_le_bytes()).collect();
        assert_eq!(read("sum.bin"), expected);
        fs::remove_file(folder.path().join("sum.bin")).unwrap();
    }
    let ran = dispatch_files(folder.path(), ["add2.xclbin", "add.txt"], &arguments);
    let text = String::from_utf8(ran.stderr).unwrap();
    assert!(text.contains("has 2 PDIs; choose one with --pdi-index, 0 to 1"), "{text}");
    assert_eq!(ran.status.code(), Some(2));
}

#[rstest]
#[case(&["--output", "128"], 2, "add_insts.bin takes 2 arguments, 0 inputs and 1 output are given")]
#[case(&["--input", "source.bin", "--output", "128", "--order", "in,out,in"], 2, "--order has 2 inputs and 1 output, but 1 input and 1 output are given")]
#[case(&["--input", "source.bin", "--output", "128", "--order", "out,out"], 2, "--order has 0 inputs and 2 outputs")]
#[case(&["--output", "x"], 2, "`x` is not a number of bytes above 0")]
#[case(&["--input", "nothing.bin", "--output", "128"], 2, "nothing.bin cannot be read")]
#[case(&["--device", "mock:aie9", "--input", "source.bin", "--output", "128"], 2, "aie9")]
#[case(&["--device", "mock:aie2p", "--input", "source.bin", "--output", "128"], 2, "generation")]
#[case(&["--input", "source.bin", "--output", "64"], 1, "bytes at offset 64 of argument 1, which has 64")]
fn mistakes_are_explained(#[case] arguments: &[&str], #[case] code: i32, #[case] expected: &str) {
    let folder = kernel("aie2");
    let device = if arguments.contains(&"--device") { &[][..] } else { &["--device", "mock:aie2"] };
    let ran = dispatch(folder.path(), &[arguments, device].concat());
    let text = String::from_utf8(ran.stderr).unwrap();
    assert!(text.contains(expected), "{text}");
    // What waits for the kernel is of no interest.
    assert!(!text.contains("semaphore") && !text.contains("timeout"), "{text}");
    assert_eq!(ran.status.code(), Some(code));
}

/// The kernel reads its first argument and writes its second: which of them is whose is said by --order.
#[rstest]
#[case(&["--order", "in,out"], 1, 3)]
#[case(&["--order", "out,in"], 0, 0)]
fn outputs_can_be_any_arguments(#[case] order: &[&str], #[case] argument: u64, #[case] first: u32) {
    let folder = kernel("aie2");
    let files = ["--device", "mock:aie2", "--output", "128:out.bin", "--input", "source.bin", "--json"];
    let ran = dispatch(folder.path(), &[&files[..], order].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["outputs"][0]["argument"], argument);
    assert_eq!(fs::read(folder.path().join("out.bin")).unwrap()[..4], first.to_le_bytes());
}
