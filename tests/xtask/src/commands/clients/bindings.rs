//! Bindings with llama.cpp in them: for Python from PyPI, for Node.js from npm.

use super::{LIMIT, PROMPT, Setup, TOKENS, on_the_array, script};
use crate::process::{self, run_helper};
use crate::python::{pip, python as python_program};
use crate::testbed::clean_root::{CleanRoot, USER};
use crate::tools::NODE;
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A binding that has ggml as shared libraries, so that it can load backends.
const PYTHON_BINDING: &str = "llama-cpp-py-sync==0.11739";
const NODE_BINDING: &str = "node-llama-cpp@3.22.1";

/// In a Debian root, because the binding's libraries need a newer C library than older systems have.
pub fn python(setup: &Setup) -> Result<String> {
    let binding = folder(PYTHON_BINDING, setup.options.offline, |folder| {
        let mut download = pip()?;
        download
            .args(["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"])
            .arg(folder)
            .arg(PYTHON_BINDING);
        run_helper(&mut download, LIMIT)?;
        let wheel = fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path()).next();
        let mut unpack = python_program();
        unpack.args(["-m", "zipfile", "-e"]).arg(wheel.context("pip downloaded no wheel")?).arg(folder);
        run_helper(&mut unpack, LIMIT).map(drop)
    })?;
    let root = CleanRoot::new(&setup.options.testbed, setup.options.offline)?;
    root.install(&["python3", "python3-cffi", "python3-certifi", "python3-numpy", "libgomp1"])?;
    root.give(&setup.model)?;
    root.give(&script("complete.py"))?;
    root.give_folder(&binding, "binding")?;
    root.own_home()?;
    let program = root.give_library(setup.options.offline)?;
    let mut line: Vec<OsString> =
        ["env", "PYTHONPATH=binding", "GGML_HSA_STATS=stats.json", &program, "run", "--device"]
            .map(OsString::from)
            .to_vec();
    line.extend([setup.session.device.clone().into(), "python3".into(), "complete.py".into()]);
    line.extend(arguments(Path::new(setup.model.file_name().unwrap_or_default())));
    let finished = root.run(Some(USER), LIMIT, &line)?;
    finished.ensure("complete.py")?;
    setup.judge(&finished.stdout)?;
    Ok(format!("{:?}, {}", finished.stdout, on_the_array(&root.home().join("stats.json"))?))
}

pub fn node(setup: &Setup) -> Result<String> {
    let platform = match std::env::consts::ARCH {
        "x86_64" => "linux-x64",
        "aarch64" => "linux-arm64",
        other => bail!("node-llama-cpp has no prebuilt binary for {other}"),
    };
    let node = NODE.find(setup.options.offline)?;
    let npm = node.parent().and_then(Path::parent).context("node is in no folder")?;
    let npm = npm.join("lib/node_modules/npm/bin/npm-cli.js");
    let binding = folder(NODE_BINDING, setup.options.offline, |folder| {
        let mut install = Command::new(&node);
        // Its optional packages are binaries for other platforms and GPUs, of hundreds of megabytes.
        install.arg(&npm).args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--omit=optional",
            "--ignore-scripts",
        ]);
        install.arg("--prefix").arg(folder);
        let binary = NODE_BINDING.replace('@', &format!("/{platform}@"));
        install.arg(NODE_BINDING).arg(format!("@{binary}"));
        run_helper(&mut install, LIMIT).map(drop)
    })?;
    // Node.js looks for packages in the script's folder.
    let place = binding.join("complete.mjs");
    fs::copy(script("complete.mjs"), &place)?;
    let mut command = Command::new(&node);
    process::clear_settings(&mut command);
    let stats = setup.prepare(&mut command, "node-llama-cpp");
    command.arg(&place).args(arguments(&setup.model));
    let finished = process::run(&mut command, LIMIT)?;
    finished.ensure("complete.mjs")?;
    setup.judge(&finished.stdout)?;
    Ok(format!("{:?}, {}", finished.stdout, on_the_array(&stats)?))
}

/// What the scripts take.
fn arguments(model: &Path) -> [OsString; 3] {
    [model.as_os_str().to_owned(), PROMPT.into(), OsStr::new(&TOKENS.to_string()).to_owned()]
}

/// A folder below `target/clients` that `fill` puts a binding into, once.
fn folder(name: &str, offline: bool, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let all = workspace::target().join("clients");
    let place = all.join(name);
    if place.exists() {
        return Ok(place);
    }
    if offline {
        bail!("{name} is not in {}, and --offline forbids the download", all.display());
    }
    fs::create_dir_all(&all)?;
    let making = tempfile::Builder::new().prefix(".making-").tempdir_in(&all)?;
    fill(making.path()).with_context(|| format!("cannot get {name}"))?;
    fs::rename(making.path(), &place)?;
    Ok(place)
}
