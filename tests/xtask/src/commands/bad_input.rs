//! `cargo xtask bad-input`: mistakes get a clear message and an exit code, and never an abort inside llama.cpp.
//!
//! Each case calls this program again the way a user would, and looks at its exit code and its words. Devices that fail are
//! among the cases: llama.cpp must get an error, and end on its own.

use crate::generation::Request;
use crate::process;
use crate::session::{DeviceOptions, Options, Session};
use crate::steps::Steps;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PROMPT: &str = "Water is";
/// Enough for the header and the vocabulary of the testbed's model, and a third of its weights.
const CUT_BYTES: u64 = 30_000_000;

/// Arguments of `demo` for NPUs behind kernels on which they cannot be used.
const NPU_WITHOUT_WAIT: [&str; 4] = ["--driver", "xdna", "--machine", "wait=none"];
const NPU_WITHOUT_IOMMU: [&str; 4] = ["--driver", "xdna", "--machine", "iommu=off"];
const NPU_IN_PASSTHROUGH: [&str; 4] = ["--driver", "xdna", "--machine", "iommu=passthrough"];

/// Check that mistakes cause a clear message, an exit code and no abort.
#[derive(Debug, Args)]
pub struct BadInputArgs {
    #[command(flatten)]
    device: DeviceOptions,
}

/// A mistake and its expected result.
struct Case {
    name: &'static str,
    /// Arguments after `demo`.
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// Every one of these must be in the message.
    expected: Vec<String>,
}

pub fn run(args: &BadInputArgs, options: &Options) -> Result<()> {
    let session = Session::open(options, &args.device)?;
    let dir = tempfile::Builder::new().prefix("ggml-hsa-bad-input-").tempdir()?;
    let mut steps = Steps::default();
    for case in cases(&session, dir.path())? {
        steps.check(case.name, || check(&case, &session));
    }
    steps.check("the same, in llama.cpp itself: the text is still generated", || {
        statistics_do_not_cost_the_text(&session, dir.path())
    });
    steps.report()?.finish("bad-input", options)
}

fn cases(session: &Session, dir: &Path) -> Result<Vec<Case>> {
    let text = dir.join("letter.gguf");
    fs::write(&text, "Dear reader, this is no model.\n")?;
    // A header that promises what does not follow: only llama.cpp finds out.
    let broken = dir.join("broken.gguf");
    fs::write(&broken, b"GGUF\x03\0\0\0\xff\xff\0\0\0\0\0\0\xff\0\0\0\0\0\0\0")?;
    let cut = dir.join("cut.gguf");
    std::io::copy(&mut fs::File::open(session.model(None)?)?.take(CUT_BYTES), &mut fs::File::create(&cut)?)?;
    let kernels = dir.join("kernels");
    truncated_kernels(session, &kernels)?;
    let path = |path: &Path| path.display().to_string();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let empty = dir.join("empty");
    let stats = path(&dir.join("no/such/folder/stats.json"));
    let case = |name, arguments: &[&str], expected: &[&str]| Case {
        name,
        arguments: words(arguments),
        environment: Vec::new(),
        expected: words(expected),
    };
    let mut cases = vec![
        case("a generation that does not exist", &["--device", "mock:nonsense"], &["mock:nonsense", "available"]),
        case("a scheme that does not exist", &["--device", "bogus://x"], &["bogus", "available"]),
        case("a parameter that does not exist", &["--device", "mock:aie2p?colour=red"], &["colour"]),
        case("a real NPU where there is none", &["--device", "xdna"], &["xdna"]),
        case(
            "a kernel without a way to wait",
            &NPU_WITHOUT_WAIT,
            &["no way to wait for a command", "WAIT_CMD", "timeline"],
        ),
        case("an IOMMU that is off", &NPU_WITHOUT_IOMMU, &["cannot be opened", "IOMMU on", "iommu=pt"]),
        case("an IOMMU in passthrough mode", &NPU_IN_PASSTHROUGH, &["cannot be opened", "IOMMU on", "iommu=pt"]),
        case("a model that is not one", &["--model", &path(&text)], &["is not a GGUF model", "--model"]),
        case("a truncated model", &["--model", &path(&broken)], &["llama.cpp failed", "exit code"]),
        case("a missing model", &["--model", &path(&empty)], &["cannot read the model", "--model"]),
        case("statistics that cannot be written", &["--stats", &stats], &["GGML_HSA_STATS", "cannot be written"]),
        case("statistics into a folder", &["--stats", &path(dir)], &["cannot be written"]),
        case("a model cut off in its tensors", &["--model", &path(&cut)], &["llama.cpp failed", "exit code"]),
        case("too little device memory", &["--device", "mock:aie2p?memory=1000000"], &["error:"]),
        case("no memory for the weights", &["--device", "mock:aie2p?fault=alloc@1"], &["cannot be allocated"]),
        case("a lost device", &["--device", "mock:aie2p?fault=lost@3"], &["device lost", "exit code"]),
        case(
            "a device that hangs twice, also when the graph is repeated",
            &["--device", "mock:aie2p?fault=timeout@3:2"],
            &["timeout", "reported an error"],
        ),
        // Every command from the third on: llama.cpp ignores a failure of its warm-up run, where the first ones are.
        case("a device that hangs", &["--device", "mock:aie2p?fault=timeout@3:1000000"], &["timeout", "exit code"]),
        case("no testbed", &["--offline", "--testbed", &path(&empty)], &["no testbed", "cargo xtask testbed"]),
        case("a missing library", &["--library", &path(&empty)], &["cannot read the library"]),
        Case {
            name: "a truncated kernel",
            arguments: Vec::new(),
            environment: vec![("GGML_HSA_KERNEL_DIR", path(&kernels))],
            expected: words(&["kernel file", "replace the file or remove it"]),
        },
        Case {
            name: "a file as the kernel folder",
            arguments: Vec::new(),
            environment: vec![("GGML_HSA_KERNEL_DIR", path(&text))],
            expected: words(&["kernel directory", "it is not a directory", "GGML_HSA_KERNEL_DIR"]),
        },
    ];
    cases.extend(machines(&empty));
    Ok(cases)
}

/// Machines with an NPU that cannot be used, simulated behind the kernel interface: each has its own message and fix.
fn machines(absent: &Path) -> Vec<Case> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let machine = |name, driver: &str, defect: &str, expected: &[&str]| Case {
        name,
        arguments: words(&["--driver", driver]),
        environment: vec![("AMDXDNA_SIM_MACHINE", defect.to_owned())],
        expected: words(expected),
    };
    let rocr = |name, rocr: &str, expected: &[&str]| Case {
        name,
        arguments: words(&["--driver", "rocr", "--rocr", rocr]),
        environment: Vec::new(),
        expected: words(expected),
    };
    let absent = absent.display().to_string();
    vec![
        machine("an NPU and no KFD", "rocr", "kfd=missing", &["/dev/kfd"]),
        machine("an NPU and a KFD without permission", "rocr", "kfd=forbidden", &["no permission", "/dev/kfd"]),
        machine("an NPU whose node is missing", "xdna", "node=missing", &["accel0 does not exist"]),
        machine("an NPU node without permission", "xdna", "node=forbidden", &["no permission", "accel0"]),
        machine("an NPU of another generation", "xdna", "pci=17f9:00", &["unknown generation", "AIE_HAL_ARCH_PATH"]),
        machine("an NPU with old firmware", "xdna", "firmware=0.0.0.1", &["firmware", "update linux-firmware"]),
        rocr(
            "an HSA runtime that never processes packets",
            "old",
            &["libhsa-runtime64", "never processes", "7.0 or newer"],
        ),
        rocr("a missing HSA runtime", &absent, &[&absent]),
    ]
}

/// Puts broken-off files in place of every kernel the prompt needs for one operation.
fn truncated_kernels(session: &Session, dir: &Path) -> Result<()> {
    let request = Request {
        model: session.model(None)?,
        prompt: PROMPT.to_owned(),
        tokens: 2,
        threads: None,
        flash_attention: false,
    };
    let run = request.on_device(session, |_| ()).context("a run that must work")?;
    let device = run.device()?;
    let folder = dir.join(&device.arch);
    fs::create_dir_all(&folder)?;
    let names: Vec<_> =
        device.operations.iter().filter(|operation| operation.op == "MUL_MAT" && operation.array > 0).collect();
    if names.is_empty() {
        bail!("no MUL_MAT ran on the array");
    }
    for operation in names {
        // The first bytes of a PDI's identification word, and nothing behind.
        fs::write(folder.join(format!("{}.pdi", operation.shape)), [0xdd, 0, 0])?;
        fs::write(folder.join(format!("{}_insts.bin", operation.shape)), [0, 1])?;
    }
    Ok(())
}

/// The end and the message, if they are right.
fn check(case: &Case, session: &Session) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["demo", "-n", "2", "--prompt", PROMPT]);
    let given = |option: &str| case.arguments.iter().any(|argument| argument == option);
    if !given("--library") {
        command.arg("--library").arg(&session.library);
    }
    // The other driver has a first device of its own.
    if !given("--device") && !given("--driver") {
        command.args(["--device", &session.device]);
    }
    if !given("--testbed") {
        command.arg("--testbed").arg(&session.testbed.dir);
    }
    command.args(&case.arguments);
    for (name, value) in &case.environment {
        command.env(name, value);
    }
    let end = process::run(&mut command, Duration::from_secs(600))?;
    let message = process::meaningful(&end.stderr).collect::<Vec<_>>().join("\n");
    let missing: Vec<&String> = case.expected.iter().filter(|words| !message.contains(words.as_str())).collect();
    ensure!(end.status.code() == Some(1), "expected exit code 1, got {}", end.describe());
    ensure!(!message.contains("ended by signal"), "llama.cpp aborted:\n{message}");
    ensure!(missing.is_empty(), "the message lacks {missing:?}; it is\n{message}");
    let logged = message.lines().find(|line| case.expected.iter().any(|words| line.contains(words.as_str())));
    Ok(format!("{}: {}", end.describe(), logged.unwrap_or_default()))
}

/// An unwritable statistics file must not cost the user the text: llama.cpp itself continues.
fn statistics_do_not_cost_the_text(session: &Session, dir: &Path) -> Result<String> {
    let request = Request {
        model: session.model(None)?,
        prompt: PROMPT.to_owned(),
        tokens: 4,
        threads: None,
        flash_attention: false,
    };
    let end = request.run(session.on_device("llama-completion", Some(&dir.join("no/such/folder/s.json")))?, |_| ())?;
    let logged = end.stderr.lines().find(|line| line.contains("GGML_HSA_STATS"));
    ensure!(end.success(), "llama.cpp: {}", end.describe());
    ensure!(end.stdout.trim().len() > PROMPT.len(), "llama.cpp generated nothing");
    Ok(format!("{}: {}", end.describe(), logged.context("no message about the file")?))
}
