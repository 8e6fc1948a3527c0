//! `cargo xtask iron`: the Python side of compiling with IRON, without IRON.
//!
//! mlir-aie and Peano cannot be had from a package index, so nothing here runs them. Doubles check the command lines that both generations
//! of the toolchain are given, and the protocol between the library and its workers is spoken for real. The designs run in
//! the simulator (docs/iron-simulator.md), with their core functions compiled by the machine's C++ compiler.

use crate::library::generator;
use crate::process::{self, run_helper};
use crate::python::{python, scripts};
use crate::session::Options;
use crate::tools::compilers;
use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SOURCES: &str = "jit-iron/iron";
const TESTS: &str = "jit-iron/iron/tests";
/// For all shapes of the designs in a file.
const LIMIT: Duration = Duration::from_secs(7200);
/// Two seconds on an idle machine.
const ENVIRONMENT_LIMIT: Duration = Duration::from_secs(120);

/// The configurations that are installed; the last has 126 kernels, which take a minute.
const EXAMPLES: [&str; 3] = ["minimal-kernel-config.json", "example-kernel-config.json", "list-kernel-config.json"];

/// How many shapes of each case run in the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kernels {
    /// One in every twelfth case, and core functions of one generation each
    Few,
    /// Two of each case
    Some,
    /// All of them
    All,
}

/// Run the tests of the IRON worker, on doubles of aiecc and Peano's clang++, and the designs and example configurations in the simulator.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask iron
  cargo xtask iron --kernels all             every shape of every design, which takes half an hour or more
  cargo xtask iron --shells \"bash zsh\"      also the set-up script in these shells

Needs Python 3.10 or later, a C++ compiler, and numpy and ml_dtypes, which it puts into target/python. IRON itself does not run. Exit
code 1 if a test failed.")]
pub struct IronArgs {
    /// Shells to try env_setup.sh in, separated by spaces
    #[arg(long, value_name = "LIST")]
    shells: Option<String>,
    /// How much of the designs' cases runs in the simulator
    #[arg(long, value_enum, value_name = "PART", default_value_t = Kernels::Few)]
    kernels: Kernels,
}

pub fn run(args: &IronArgs, options: &Options) -> Result<()> {
    compilers(options.offline)?;
    // What designs and simulator import.
    let packages = scripts(options.offline)?;
    let kernels = match args.kernels {
        Kernels::Few => "few",
        Kernels::Some => "some",
        Kernels::All => "all",
    };
    // A file at a time on each processor: most tests keep only one busy.
    let run = |file: &String| {
        let mut command = python();
        command.args(["-m", "unittest", "discover", "-s", TESTS, "-p", file]).current_dir(workspace::root());
        // Python would leave its caches among the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", &packages).env("KERNELS", kernels);
        if let Some(shells) = &args.shells {
            command.env("TEST_SHELLS", shells);
        }
        process::run(&mut command, LIMIT)
    };
    let files = test_files()?;
    let mut failed = Vec::new();
    for (file, finished) in files.iter().zip(process::parallel(&files, process::processors(), run)?) {
        println!("{file}: {:.0} s\n{}{}", finished.elapsed.as_secs_f64(), finished.stdout, finished.stderr.trim_end());
        if !finished.success() {
            failed.push(file.as_str());
        }
    }
    if !failed.is_empty() {
        bail!(
            "iron: tests of the IRON worker or of the designs failed, in {}; their output is above",
            failed.join(", ")
        );
    }
    println!("{}", environment_script(&workspace::root().join(SOURCES), options.offline)?);
    let examples = if args.kernels == Kernels::Few { &EXAMPLES[..2] } else { &EXAMPLES };
    simulated(examples, &packages, options)
}

/// The files with tests, the longest ones first: those of designs in the simulator.
fn test_files() -> Result<Vec<String>> {
    let folder = workspace::root().join(TESTS);
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut files = names.collect::<Result<Vec<_>>>()?;
    files.retain(|name| name.starts_with("test_") && name.ends_with(".py"));
    files.sort_by_key(|name| (!name.contains("kernels"), name.clone()));
    ensure!(!files.is_empty(), "no tests in {}", folder.display());
    Ok(files)
}

/// The `env_setup.sh` of `folder`, sources or an installation, says ready after it has compiled with what is there, on doubles.
pub fn environment_script(folder: &Path, offline: bool) -> Result<String> {
    let script = workspace::root().join(SOURCES).join("tests/installed_environment.py");
    let mut command = python();
    command.arg(script).arg(folder).env("PYTHONPATH", scripts(offline)?).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(run_helper(&mut command, ENVIRONMENT_LIMIT)?.trim().to_owned())
}

/// Example configurations on the simulator, beside the reference kernels and the native ones.
fn simulated(examples: &[&str], packages: &Path, options: &Options) -> Result<()> {
    let generator = generator(options.offline)?;
    for example in examples {
        let mut command = Command::new(&generator);
        command
            .arg("--simulate")
            .arg("--config")
            .arg(workspace::root().join("jit-iron/examples/kernels").join(example));
        command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
        let output = command.output().with_context(|| format!("cannot start {}", generator.display()))?;
        let printed = String::from_utf8_lossy(&output.stdout);
        print!("{printed}");
        // Without a design a kernel is no failure of the simulation, but each of an example has one.
        if !output.status.success() || printed.lines().any(|line| line.starts_with("none ")) {
            bail!("iron: {example} is not right on the simulator: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(())
}
