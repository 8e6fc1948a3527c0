//! Bindings with llama.cpp in them: for Python from PyPI, for Node.js from npm.

use super::{LIMIT, PROMPT, Setup, TOKENS, on_the_array, script};
use crate::process::{self, run_helper};
use crate::python::Requirements;
use crate::testbed::clean_root::{CleanRoot, USER};
use crate::tools::NODE;
use crate::{files, workspace};
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A binding that has ggml as shared libraries, so that it can load backends.
const PYTHON_BINDING: Requirements = Requirements("llama-cpp-py-sync");
const PYTHON_MODULE: &str = "llama_cpp_py_sync";
const NODE_FOLDER: &str = "tests/clients/node";
const NODE_FILES: [&str; 2] = ["package.json", "package-lock.json"];

/// In a Debian root, because the binding's libraries need a newer C library than older systems have.
pub fn python(setup: &Setup) -> Result<String> {
    let offline = setup.options.offline;
    let binding = PYTHON_BINDING.ensure(offline, |folder| folder.join(PYTHON_MODULE).is_dir())?;
    let root = CleanRoot::new(&setup.options.testbed, offline)?;
    root.install(&["python3", "python3-cffi", "python3-certifi", "python3-numpy", "libgomp1"])?;
    root.give(&setup.model)?;
    root.give(&script("complete.py"))?;
    root.give_folder(&binding, "binding")?;
    root.own_home()?;
    let program = root.give_library(offline)?;
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
    let node = NODE.find(setup.options.offline)?;
    let binding = node_packages(&node, setup.options.offline)?;
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

/// The folder below `target/clients` with the binding for Node.js and all that it needs, as the lock file lists it.
fn node_packages(node: &Path, offline: bool) -> Result<PathBuf> {
    let sources = workspace::root().join(NODE_FOLDER);
    let mut hasher = DefaultHasher::new();
    for name in NODE_FILES {
        files::read(&sources.join(name))?.hash(&mut hasher);
    }
    let all = workspace::target().join("clients");
    let place = all.join(format!("node-{:016x}", hasher.finish()));
    if place.exists() {
        return Ok(place);
    }
    if offline {
        bail!(
            "node-llama-cpp is not in {}, and --offline forbids the download; run the command once without it",
            place.display()
        );
    }
    fs::create_dir_all(&all)?;
    let making = tempfile::Builder::new().prefix(".making-").tempdir_in(&all)?;
    for name in NODE_FILES {
        fs::copy(sources.join(name), making.path().join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    let npm = node.parent().and_then(Path::parent).context("node is in no folder")?;
    let npm = npm.join("lib/node_modules/npm/bin/npm-cli.js");
    let mut install = Command::new(node);
    // Nothing but what the lock file lists, with the hashes it has, and none of the packages' own scripts.
    install.arg(&npm).args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]);
    run_helper(install.current_dir(making.path()), LIMIT).with_context(|| {
        format!(
            "npm could not install what {} lists; try again, or renew it as docs/clients.md says",
            sources.display()
        )
    })?;
    fs::rename(making.path(), &place).with_context(|| format!("cannot put the packages at {}", place.display()))?;
    Ok(place)
}
