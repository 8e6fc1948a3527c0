//! `cargo xtask store`: where kernels come from, seen from stock llama.cpp.
//!
//! The same text is generated again and again on the simulated device, each time with another state of the kernel store, and
//! the statistics say what the store did: compile, find, heal, do without. The text must not depend on it, except where nodes
//! run elsewhere than on the array, which may round differently.

use crate::generation::{DeviceRun, Request, errors, library_messages, require_success};
use crate::process::Finished;
use crate::session::{DeviceOptions, Options, Session};
use crate::stats::{DeviceStats, Stats};
use crate::steps::Steps;
use crate::{build, library, process, small_disk};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const TOKENS: usize = 16;
const PROMPT: &str = "The three states of matter are";
/// Enough for a few kernels.
const DISK_KIB: usize = 256;
const LIMIT: Duration = Duration::from_secs(600);

/// Check every source of kernels: compiled, cached, from a directory, embedded, or none.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 1 if a state of the kernel store has another effect than it should.")]
pub struct StoreArgs {
    #[command(flatten)]
    device: DeviceOptions,
}

struct Run {
    text: String,
    stats: Stats,
    device: Option<DeviceStats>,
    messages: Vec<String>,
}

#[derive(Clone, Copy)]
enum Cache {
    /// The one of the other runs.
    Kept,
    Fresh,
}

struct Rig {
    session: Session,
    request: Request,
    root: tempfile::TempDir,
    offline: bool,
}

pub fn run(args: &StoreArgs, options: &Options) -> Result<()> {
    let session = Session::open(options, &args.device)?;
    let request = Request {
        model: session.model(None)?,
        prompt: PROMPT.into(),
        tokens: TOKENS,
        threads: None,
        flash_attention: false,
    };
    let root = tempfile::Builder::new().prefix("ggml-hsa-store-").tempdir()?;
    let rig = Rig { session, request, root, offline: options.offline };
    let mut steps = Steps::default();
    let first = rig.check(&mut steps, "an empty cache", Cache::Kept, &[], |run| {
        ensure!(run.stats.store.compiled > 0 && run.stats.store.cache == 0, "kernels should have been compiled");
        ensure!(run.messages.is_empty(), "the library logged {:?}", run.messages);
        Ok(())
    })?;
    let kernels = first.stats.store.compiled;
    let text = &first.text;
    let same = |run: &Run| {
        ensure!(run.text == *text, "the text differs: {}", run.text);
        ensure!(run.array() == first.array(), "{} operations ran on the array, {} before", run.array(), first.array());
        Ok(())
    };
    rig.check(&mut steps, "a full cache", Cache::Kept, &[], |run| {
        ensure!((run.stats.store.compiled, run.stats.store.cache) == (0, kernels), "nothing should be compiled");
        ensure!(run.messages.is_empty(), "the library logged {:?}", run.messages);
        same(run)
    })?;
    rig.damage()?;
    rig.check(&mut steps, "two damaged kernels in the cache", Cache::Kept, &[], |run| {
        ensure!((run.stats.store.compiled, run.stats.store.cache) == (2, kernels - 2), "two should be rebuilt");
        let logged = run.messages.iter().filter(|line| line.contains("is damaged")).count();
        ensure!(logged == 2, "{logged} of 2 damaged kernels were logged: {:?}", run.messages);
        same(run)
    })?;
    rig.check(&mut steps, "a cache to be cleared", Cache::Kept, &[("GGML_HSA_KERNEL_CACHE_CLEAR", "1")], |run| {
        ensure!(run.stats.store.compiled == kernels, "all kernels should be compiled again");
        same(run)
    })?;
    let given = rig.cache().join("reference");
    let off = ("GGML_HSA_JIT", "off");
    let directory = [off, ("GGML_HSA_KERNEL_DIR", text_of(&given)?)];
    rig.check(&mut steps, "a kernel directory, no compiling", Cache::Fresh, &directory, |run| {
        ensure!(run.stats.store.directory == kernels, "all kernels should be the directory's");
        same(run)
    })?;
    let mixed = rig.exchange(&given)?;
    let directory = [("GGML_HSA_KERNEL_DIR", text_of(&mixed)?)];
    rig.check(&mut steps, "kernels for other shapes in the directory", Cache::Fresh, &directory, |run| {
        ensure!((run.stats.store.directory, run.stats.store.compiled) == (kernels - 2, 2), "two should be compiled");
        let rejected = |line: &&String| line.contains("is not used: it ") && line.contains("other types or shapes");
        let logged = run.messages.iter().filter(rejected).count();
        ensure!(logged == 2, "{logged} of 2 kernels that do not fit were logged: {:?}", run.messages);
        same(run)
    })?;
    let nothing = [off];
    rig.check(&mut steps, "no kernels, no compiling", Cache::Fresh, &nothing, |run| {
        ensure!(run.array() == 0 && run.host() > 0, "everything should run on the CPU");
        let device = run.device.as_ref().context("there is no device")?;
        let logged = device.operations.iter().filter_map(|operation| operation.host_reason.as_deref());
        ensure!(logged.into_iter().any(|reason| reason.contains("compiling is off")), "the reason is missing");
        once(&run.messages, NOTHING_RAN)
    })?;
    let background = [("GGML_HSA_JIT", "background")];
    rig.check(&mut steps, "compiling in the background", Cache::Fresh, &background, |run| {
        let device = run.device.as_ref().context("there is no device")?;
        let mut reasons = device.operations.iter().filter_map(|operation| operation.host_reason.as_deref());
        ensure!(reasons.any(|reason| reason.contains("is being compiled")), "no graph went without a kernel");
        ensure!(run.array() > 0, "no kernel was picked up when it was ready");
        Ok(())
    })?;
    let here = [("GGML_HSA_JIT_WORKERS", "0")];
    rig.check(&mut steps, "compiling without workers", Cache::Fresh, &here, |run| {
        ensure!(run.stats.store.compiled == kernels, "all kernels should be compiled");
        same(run)
    })?;
    rig.check(&mut steps, "no work on the CPU", Cache::Kept, &[("GGML_HSA_CPU_FALLBACK", "off")], |run| {
        ensure!(run.host() == 0 && run.array() > 0, "{} operations ran on the host", run.host());
        Ok(())
    })?;
    rig.full_disk(&mut steps, text);
    array_idle(&rig, &mut steps, text)?;
    let generated = rig.generate(&first.stats)?;
    let directory = [off, ("GGML_HSA_KERNEL_DIR", text_of(&generated)?)];
    rig.check(&mut steps, "kernels generated from the statistics", Cache::Fresh, &directory, |run| {
        ensure!(run.stats.store.directory == kernels, "all kernels should be the directory's");
        ensure!(run.stats.store.missed.is_empty(), "{} were missed", run.stats.store.missed.len());
        same(run)
    })?;
    if rig.session.simulation.is_none() && args.device.library.is_none() {
        rig.embedded(&mut steps, &generated, kernels, &same)?;
    }
    steps.report()?.finish("store", options)
}

/// The generation of the simulated device.
const ARCH: &str = "aie2p";
/// The variable of the cache, which every run sets.
const CACHE: &str = "GGML_HSA_KERNEL_CACHE_DIR";

/// What is read of a kernel's manifest.
#[derive(Deserialize)]
struct Manifest {
    node: Node,
}

#[derive(Deserialize)]
struct Node {
    sources: Vec<Option<Tensor>>,
    output: Tensor,
    #[serde(default)]
    further_outputs: Vec<Tensor>,
}

/// Elements and bytes between neighbours, by dimension.
#[derive(Deserialize)]
struct Tensor {
    ne: [u64; 4],
    nb: [u64; 4],
}

impl Node {
    /// Bytes of each argument of its kernel.
    fn argument_bytes(&self) -> Vec<u64> {
        let tensors = self.sources.iter().flatten().chain([&self.output]).chain(&self.further_outputs);
        tensors.map(|Tensor { ne, nb }| ne[3] * nb[3]).collect()
    }
}

impl Run {
    fn array(&self) -> u64 {
        self.device.as_ref().map_or(0, DeviceStats::array)
    }

    fn host(&self) -> u64 {
        self.device.as_ref().map_or(0, DeviceStats::host)
    }
}

impl Rig {
    fn cache(&self) -> PathBuf {
        self.root.path().join("cache")
    }

    fn cache_for(&self, state: &str, cache: Cache) -> PathBuf {
        match cache {
            Cache::Kept => self.cache(),
            Cache::Fresh => self.root.path().join("fresh").join(state),
        }
    }

    fn check(
        &self,
        steps: &mut Steps,
        state: &str,
        cache: Cache,
        environment: &[(&str, &str)],
        expect: impl Fn(&Run) -> Result<()>,
    ) -> Result<Run> {
        let started = Instant::now();
        let run = self.run(&self.cache_for(state, cache), environment).with_context(|| format!("with {state}"))?;
        let judged = || {
            let kernels = run.stats.store.summary();
            let seen = format!("{kernels}; {} operations on the array, {} on the host", run.array(), run.host());
            match errors(&run.messages).first() {
                Some(error) => bail!("the library reported an error: {error}"),
                None => expect(&run).with_context(|| seen.clone()).map(|()| seen),
            }
        };
        steps.record(state, started, judged());
        Ok(run)
    }

    fn run(&self, cache: &Path, environment: &[(&str, &str)]) -> Result<Run> {
        let DeviceRun { finished, stats, .. } = self.request.on_device(&self.session, |command| {
            command.env(CACHE, cache).envs(environment.iter().copied());
        })?;
        let device = stats.used().ok().cloned();
        Ok(Run { messages: library_messages(&finished.stderr), text: finished.stdout, device, stats })
    }

    /// Cuts one PDI of the cache, and changes a byte of another.
    fn damage(&self) -> Result<()> {
        let folder = self.cache().join("reference").join(ARCH);
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut pdis: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        pdis.retain(|path| path.extension().is_some_and(|ending| ending == "pdi"));
        pdis.sort();
        let [first, second, ..] = &pdis[..] else { bail!("{} has fewer than two kernels", folder.display()) };
        let whole = fs::read(first)?;
        fs::write(first, &whole[..whole.len() / 2])?;
        let mut changed = fs::read(second)?;
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        fs::write(second, changed)?;
        Ok(())
    }

    /// A copy of a kernel directory in which two kernels have each other's instruction stream: their names are right, and what
    /// they move is not.
    fn exchange(&self, given: &Path) -> Result<PathBuf> {
        let target = self.root.path().join("exchanged");
        let (from, to) = (given.join(ARCH), target.join(ARCH));
        fs::create_dir_all(&to)?;
        let mut streams: Vec<(PathBuf, Vec<u64>)> = Vec::new();
        let entries = fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))?;
        let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
        names.sort();
        for name in names.iter().filter_map(|name| name.to_str()) {
            // Manifests would show the exchange.
            if !name.ends_with(".json") {
                fs::copy(from.join(name), to.join(name))?;
            }
            if let Some(stem) = name.strip_suffix(".pdi") {
                let manifest = fs::read(from.join(format!("{stem}.json")))?;
                let manifest: Manifest = serde_json::from_slice(&manifest).with_context(|| format!("{stem}.json"))?;
                streams.push((to.join(format!("{stem}_insts.bin")), manifest.node.argument_bytes()));
            }
        }
        let pair = streams.iter().enumerate().find_map(|(index, (one, bytes))| {
            let differs = |other: &Vec<u64>| other.len() == bytes.len() && other != bytes;
            let (other, _) = streams[index + 1..].iter().find(|(_, other)| differs(other))?;
            Some((one, other))
        });
        let (one, other) = pair.with_context(|| format!("{} has no two kernels to swap", from.display()))?;
        let spare = self.root.path().join("spare");
        fs::rename(one, &spare)?;
        fs::rename(other, one)?;
        fs::rename(&spare, other)?;
        Ok(target)
    }

    /// A cache on a disk that is full after a few kernels, and cannot take those that are made behind them.
    fn full_disk(&self, steps: &mut Steps, text: &str) {
        let disk = self.root.path().join("disk");
        let full = "No space left on device";
        steps.check("a full disk", || {
            fs::create_dir(&disk)?;
            let mut command = self.session.on_device("llama-completion", None)?;
            command.env(CACHE, disk.join("cache"));
            let finished = self.request.run(small_disk::command(&command, &disk, DISK_KIB), |_| ())?;
            require_success(&finished)?;
            ensure!(finished.stdout == text, "the text differs: {}", finished.stdout);
            let said = library_messages(&finished.stderr);
            once(&said, full)?;
            Ok(said.into_iter().find(|line| line.contains(full)).unwrap_or_default())
        });
        steps.check("prebuild on a full disk", || {
            let program = build::cargo(&build::BACKEND, self.offline)?.executable("bin", "ggml-hsa")?;
            let mut command = Command::new(program);
            process::clear_settings(&mut command);
            command.env(CACHE, disk.join("cache")).arg("prebuild").arg(&self.request.model);
            command.args(["--device", &self.session.device, "--prompt", "1-8", "--json"]);
            let server = self.session.testbed.script("llama-server", self.root.path())?;
            command.arg("--llama-server").arg(server).arg("--library").arg(&self.session.library);
            let finished = process::run(&mut small_disk::command(&command, &disk, DISK_KIB), LIMIT)?;
            let (code, said) = (finished.status.code(), &finished.stderr);
            ensure!(code == Some(1), "{} and not exit code 1: {said}", finished.describe());
            ensure!(said.contains(full), "`{full}` is not said: {said}");
            let report: serde_json::Value = serde_json::from_str(&finished.stdout)?;
            let lost = report["lost"].as_u64().context("no number of lost kernels")?;
            ensure!(lost > 0 && report["made"].as_u64() > Some(lost), "{report}");
            Ok(format!("{} made, {lost} of them not cached", report["made"]))
        });
    }

    /// Has the generator make the kernels that a run has missed, and packs of them.
    fn generate(&self, stats: &Stats) -> Result<PathBuf> {
        let program = library::generator(self.offline)?;
        let (file, target) = (self.root.path().join("stats.json"), self.root.path().join("generated"));
        fs::write(&file, serde_json::to_vec(stats)?)?;
        let mut command = Command::new(program);
        command.args(["--compiler", "reference", "--embed", "--from-stats"]).arg(&file);
        let output = command.arg("--output-dir").arg(&target).output().context("cannot start the generator")?;
        if !output.status.success() {
            bail!("the generator failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(target)
    }

    /// A library with the kernels of aie2p built in: they are all it needs, and another generation is rejected.
    fn embedded(
        &self,
        steps: &mut Steps,
        packs: &Path,
        kernels: u64,
        same: &impl Fn(&Run) -> Result<()>,
    ) -> Result<()> {
        let library = library::with_kernels(packs, self.offline).context("GGML_HSA_EMBED_KERNELS")?;
        let session = self.session.with(&library, &self.session.device);
        let only = [("GGML_HSA_JIT", "off")];
        let embedding =
            Self { session, request: self.request.clone(), root: tempfile::tempdir()?, offline: self.offline };
        embedding.check(steps, "kernels built into the library", Cache::Fresh, &only, |run| {
            ensure!(run.stats.store.embedded == kernels, "all kernels should be the library's");
            same(run)
        })?;
        let session = self.session.with(&library, "mock:aie2");
        let no_cache = self.root.path().join("file");
        fs::write(&no_cache, "")?;
        let mut command = session.on_device("llama-completion", None)?;
        command.envs(only).env(CACHE, &no_cache);
        let finished = self.request.run(command, |_| ())?;
        let expected = "available in this build: [aie2p], device reports: [aie2]";
        steps.check("a generation that is not built in", || {
            let said = library_messages(&finished.stderr);
            ensure!(
                said.iter().any(|line| line.contains(expected)),
                "expected the message: {expected}; found {said:?}"
            );
            Ok(expected.to_owned())
        });
        Ok(())
    }
}

fn text_of(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// The beginning of the warning about a device that is not offered.
const NOT_OFFERED: &str = "not offered, since everything would run on the CPU";
/// The beginning of the warning at the end of a run.
const NOTHING_RAN: &str = "nothing ran on the NPU: dispatches 0, nodes on the CPU";
/// What an error names.
const FORBIDDEN: &str = "which GGML_HSA_REQUIRE_ARRAY forbids";

/// IRON alone, which is not installed: an NPU without the library's own kernels.
const IRON: (&str, &str) = ("GGML_HSA_COMPILERS", "iron");

/// Whether exactly one message has `part`.
fn once(messages: &[String], part: &str) -> Result<()> {
    let count = messages.iter().filter(|line| line.contains(part)).count();
    ensure!(count == 1, "`{part}` was logged {count} times and not once: {messages:?}");
    Ok(())
}

/// Adds the states. `text` is what a run on the array generates.
fn array_idle(rig: &Rig, steps: &mut Steps, text: &str) -> Result<()> {
    let npu = rig.session.on_simulated_npu()?;
    let finished = run_idle(rig, &npu, &[IRON], "idle-1")?;
    judge(steps, "an NPU without any kernels", || {
        require_success(&finished)?;
        let mut messages = library_messages(&finished.stderr);
        // About the machine that the test runs on.
        messages.retain(|line| !line.contains("ulimit -l"));
        once(&messages, NOT_OFFERED)?;
        ensure!(messages.len() == 1, "unexpected messages: {messages:?}");
        let advice = ["GGML_HSA_KERNEL_DIR", "ggml-hsa-gen-kernels", "GGML_HSA_JIT", "no compiler"];
        ensure!(advice.iter().all(|part| messages[0].contains(part)), "expected {advice:?} in: {}", messages[0]);
        Ok(())
    });
    let finished = run_idle(rig, &npu, &[IRON, ("GGML_HSA_REQUIRE_ARRAY", "1")], "idle-2")?;
    judge(steps, "the same, and the array is required", || forbidden(&finished));

    let required = ("GGML_HSA_REQUIRE_ARRAY", "1");
    let jit = "GGML_HSA_JIT";
    let fallback = "GGML_HSA_CPU_FALLBACK";
    for (state, environment, cache) in [
        ("the array required, no kernels", vec![required, (jit, "off")], "idle-3"),
        ("the same without work on the CPU", vec![required, (jit, "off"), (fallback, "off")], "idle-4"),
        ("the array required, kernels being compiled", vec![required, (jit, "background")], "idle-5"),
    ] {
        let finished = run_idle(rig, &rig.session, &environment, cache)?;
        judge(steps, state, || forbidden(&finished));
    }
    rig.check(steps, "the array required, and available", Cache::Kept, &[required], |run| {
        ensure!(run.text == *text && run.array() > 0, "the text differs: {}", run.text);
        ensure!(run.messages.is_empty(), "the library logged {:?}", run.messages);
        Ok(())
    })?;

    // llama-bench drops what ggml logs.
    let mut command = rig.session.on_device("llama-bench", None)?;
    command.arg("-m").arg(&rig.request.model).args(["-p", "4", "-n", "2", "-r", "1"]);
    command.env(CACHE, rig.cache_for("idle-6", Cache::Fresh)).env(jit, "off");
    let finished = process::run_watched(&mut command, Duration::from_secs(1800), |_| ())?;
    judge(steps, "no kernels, and a program that drops ggml's log", || {
        require_success(&finished)?;
        once(&library_messages(&finished.stderr), NOTHING_RAN)
    });
    Ok(())
}

fn run_idle(rig: &Rig, session: &Session, environment: &[(&str, &str)], cache: &str) -> Result<Finished> {
    let mut command = session.on_device("llama-completion", None)?;
    command.env_remove("GGML_HSA_REFERENCE_KERNELS");
    command.env(CACHE, rig.cache_for(cache, Cache::Fresh)).envs(environment.iter().copied());
    rig.request.run(command, |_| ())
}

/// The program ends with an error, on its own, and the message names node, operation, types, extents and reason.
fn forbidden(finished: &Finished) -> Result<()> {
    let messages = library_messages(&finished.stderr);
    ensure!(finished.status.code().is_some_and(|code| code > 0), "it ended with {}: {messages:?}", finished.describe());
    let logged = messages.iter().find(|line| line.contains(FORBIDDEN));
    let complete = logged.is_some_and(|line| {
        let named = ["node \"", " of ", " to f32 ["].iter().all(|part| line.contains(part));
        named && ["no kernel ", "is being compiled"].iter().any(|part| line.contains(part))
    });
    ensure!(complete, "no message names the node and says why: {messages:?}");
    Ok(())
}

fn judge(steps: &mut Steps, state: &str, expect: impl FnOnce() -> Result<()>) {
    steps.check(state, || expect().map(|()| "as expected".to_owned()));
}
