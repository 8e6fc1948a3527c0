//! `cargo xtask store`: where kernels come from, seen from stock llama.cpp.
//!
//! The same text is generated again and again on the simulated device, each time with another state of the kernel store, and
//! the statistics say what the store did: compile, find, heal, do without. The text must not depend on it, except where nodes
//! run elsewhere than on the array, which may round differently.

mod idle;

use crate::generation::{Request, StatsFile, errors, library_messages, require_success};
use crate::library;
use crate::output::{self, Report};
use crate::session::{DeviceOptions, Options, Session};
use crate::stats::{DeviceStats, Stats};
use aie_hal::KernelArtifact;

use aie_hal::format::extent::ArgumentExtent;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TOKENS: usize = 16;
const PROMPT: &str = "The three states of matter are";

/// Check where kernels come from: compiled, cached, given, embedded, or not at all.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask store
  cargo xtask store --json

Exit code 1 if a state of the kernel store has another effect than it should.")]
pub struct StoreArgs {
    #[command(flatten)]
    device: DeviceOptions,
}

#[derive(Serialize)]
struct Row {
    state: &'static str,
    /// What the store did.
    kernels: String,
    array: u64,
    host: u64,
    problem: Option<String>,
}

/// One run and what it left.
struct Run {
    text: String,
    stats: Stats,
    device: Option<DeviceStats>,
    messages: Vec<String>,
}

struct Rig {
    session: Session,
    request: Request,
    root: tempfile::TempDir,
    offline: bool,
}

/// Runs the command.
pub fn run(args: &StoreArgs, options: &Options) -> Result<()> {
    let session = Session::open(options, &args.device)?;
    let request = Request { model: session.model(None)?, prompt: PROMPT.into(), tokens: TOKENS, threads: None };
    let root = tempfile::Builder::new().prefix("ggml-hsa-store-").tempdir()?;
    let rig = Rig { session, request, root, offline: options.offline };
    let mut rows = Vec::new();
    let first = rig.check(&mut rows, "an empty cache", &[], |run| {
        ensure!(run.stats.store.compiled > 0 && run.stats.store.cache == 0, "kernels should have been compiled");
        ensure!(run.messages.is_empty(), "the library said {:?}", run.messages);
        Ok(())
    })?;
    let kernels = first.stats.store.compiled;
    let text = &first.text;
    let same = |run: &Run| {
        ensure!(run.text == *text, "the text is another: {}", run.text);
        ensure!(run.array() == first.array(), "{} operations ran on the array, {} before", run.array(), first.array());
        Ok(())
    };
    rig.check(&mut rows, "a full cache", &[], |run| {
        ensure!((run.stats.store.compiled, run.stats.store.cache) == (0, kernels), "nothing should be compiled");
        ensure!(run.messages.is_empty(), "the library said {:?}", run.messages);
        same(run)
    })?;
    rig.damage()?;
    rig.check(&mut rows, "two damaged kernels in the cache", &[], |run| {
        ensure!((run.stats.store.compiled, run.stats.store.cache) == (2, kernels - 2), "two should be made again");
        let told = run.messages.iter().filter(|line| line.contains("is damaged")).count();
        ensure!(told == 2, "{told} of 2 damaged kernels were told: {:?}", run.messages);
        same(run)
    })?;
    rig.check(&mut rows, "a cache to be cleared", &[("GGML_HSA_KERNEL_CACHE_CLEAR", "1")], |run| {
        ensure!(run.stats.store.compiled == kernels, "all kernels should be compiled again");
        same(run)
    })?;
    let given = rig.cache().join("reference");
    let off = ("GGML_HSA_JIT", "off");
    let elsewhere = rig.fresh("empty-1")?;
    let directory = [off, ("GGML_HSA_KERNEL_DIR", text_of(&given)?), (CACHE, text_of(&elsewhere)?)];
    rig.check(&mut rows, "a kernel directory, no compiling", &directory, |run| {
        ensure!(run.stats.store.directory == kernels, "all kernels should be the directory's");
        same(run)
    })?;
    let mixed = rig.exchange(&given)?;
    let empty = rig.fresh("empty-7")?;
    let directory = [("GGML_HSA_KERNEL_DIR", text_of(&mixed)?), (CACHE, text_of(&empty)?)];
    rig.check(&mut rows, "kernels for other shapes in the directory", &directory, |run| {
        ensure!((run.stats.store.directory, run.stats.store.compiled) == (kernels - 2, 2), "two should be compiled");
        let refused = |line: &&String| line.contains("is not used: it ") && line.contains("other types or shapes");
        let told = run.messages.iter().filter(refused).count();
        ensure!(told == 2, "{told} of 2 kernels that do not fit were told: {:?}", run.messages);
        same(run)
    })?;
    let empty = rig.fresh("empty-2")?;
    let nothing = [off, (CACHE, text_of(&empty)?)];
    rig.check(&mut rows, "no kernels, no compiling", &nothing, |run| {
        ensure!(run.array() == 0 && run.host() > 0, "everything should run on the host");
        let device = run.device.as_ref().context("there is no device")?;
        let told = device.operations.iter().filter_map(|operation| operation.host_reason.as_deref());
        ensure!(told.into_iter().any(|reason| reason.contains("compiling is off")), "the reason is not told");
        idle::once(&run.messages, idle::NOTHING_RAN)
    })?;
    let empty = rig.fresh("empty-3")?;
    let background = [("GGML_HSA_JIT", "background"), (CACHE, text_of(&empty)?)];
    rig.check(&mut rows, "compiling in the background", &background, |run| {
        let device = run.device.as_ref().context("there is no device")?;
        let mut reasons = device.operations.iter().filter_map(|operation| operation.host_reason.as_deref());
        ensure!(reasons.any(|reason| reason.contains("is being compiled")), "no graph went without a kernel");
        ensure!(run.array() > 0, "no kernel was picked up when it was ready");
        Ok(())
    })?;
    let empty = rig.fresh("empty-4")?;
    let here = [("GGML_HSA_JIT_WORKERS", "0"), (CACHE, text_of(&empty)?)];
    rig.check(&mut rows, "compiling without workers", &here, |run| {
        ensure!(run.stats.store.compiled == kernels, "all kernels should be compiled");
        same(run)
    })?;
    rig.check(&mut rows, "no work on the host", &[("GGML_HSA_CPU_FALLBACK", "off")], |run| {
        ensure!(run.host() == 0 && run.array() > 0, "{} operations ran on the host", run.host());
        Ok(())
    })?;
    idle::check(&rig, &mut rows, text)?;
    let generated = rig.generate(&first.stats)?;
    let empty = rig.fresh("empty-5")?;
    let directory = [off, ("GGML_HSA_KERNEL_DIR", text_of(&generated)?), (CACHE, text_of(&empty)?)];
    rig.check(&mut rows, "kernels made ahead from the statistics", &directory, |run| {
        ensure!(run.stats.store.directory == kernels, "all kernels should be the directory's");
        ensure!(run.stats.store.missed.is_empty(), "{} were missed", run.stats.store.missed.len());
        same(run)
    })?;
    if rig.session.simulation.is_none() && args.device.library.is_none() {
        rig.embedded(&mut rows, &generated, kernels, &same)?;
    }
    report(&rows, options)
}

/// The generation of the simulated device, and its number in instruction streams.
const ARCH: &str = "aie2p";
const GENERATION: u8 = 4;
/// The variable of the cache, which every run sets.
const CACHE: &str = "GGML_HSA_KERNEL_CACHE_DIR";

fn report(rows: &[Row], options: &Options) -> Result<()> {
    let mut report = Report::default();
    report.rows(
        "states",
        rows,
        &[
            ("state of the store", |row| row.state.to_owned()),
            ("kernels", |row| row.kernels.clone()),
            ("#on the array", |row| row.array.to_string()),
            ("#on the host", |row| row.host.to_string()),
            ("result", |row| output::verdict(row.problem.is_none())),
        ],
    )?;
    for Row { state, problem, .. } in rows {
        report.problems.extend(problem.iter().map(|problem| format!("{state}: {problem}")));
    }
    report.summary(format!("store: {} states, {} failed", rows.len(), report.problems.len()));
    report.finish("store", options)
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

    /// A directory that is not there yet.
    fn fresh(&self, name: &str) -> Result<PathBuf> {
        Ok(self.root.path().join(name))
    }

    fn check(
        &self,
        rows: &mut Vec<Row>,
        state: &'static str,
        environment: &[(&str, &str)],
        expect: impl Fn(&Run) -> Result<()>,
    ) -> Result<Run> {
        let run = self.run(&self.session, environment).with_context(|| format!("with {state}"))?;
        let broken = errors(&run.messages).first().map(|error| format!("the library reported an error: {error}"));
        let problem = broken.or_else(|| expect(&run).err().map(|problem| problem.to_string()));
        let (kernels, array, host) = (run.stats.store.summary(), run.array(), run.host());
        rows.push(Row { state, kernels, array, host, problem });
        Ok(run)
    }

    fn run(&self, session: &Session, environment: &[(&str, &str)]) -> Result<Run> {
        let stats = StatsFile::new()?;
        let mut command = session.on_device("llama-completion", Some(&stats.path()))?;
        command.env(CACHE, self.cache()).envs(environment.iter().copied());
        let finished = self.request.run(command, |_| ())?;
        require_success(&finished)?;
        let stats = Stats::read(&stats.path())?;
        let device = stats.used().ok().cloned();
        Ok(Run { text: finished.stdout.clone(), device, stats, messages: library_messages(&finished.stderr) })
    }

    /// Cuts one PDI of the cache, and changes a byte of another.
    fn damage(&self) -> Result<()> {
        let folder = self.cache().join("reference").join(ARCH);
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut pdis: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        pdis.retain(|path| path.extension().is_some_and(|ending| ending == "pdi"));
        pdis.sort();
        let [first, second, ..] = &pdis[..] else { bail!("{} holds less than two kernels", folder.display()) };
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
        let mut streams: Vec<(PathBuf, Vec<ArgumentExtent>)> = Vec::new();
        let entries = fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))?;
        let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
        names.sort();
        for name in names.iter().filter_map(|name| name.to_str()) {
            // Manifests would show the exchange.
            if !name.ends_with(".json") {
                fs::copy(from.join(name), to.join(name))?;
            }
            if let Some(stem) = name.strip_suffix(".pdi") {
                let stream = format!("{stem}_insts.bin");
                let (pdi, instructions) = (fs::read(from.join(name))?, fs::read(from.join(&stream))?);
                let artifact = KernelArtifact::new(stem, ARCH, GENERATION, pdi, instructions)?;
                streams.push((to.join(stream), artifact.argument_extents()?));
            }
        }
        let pair = streams.iter().enumerate().find_map(|(index, (one, extents))| {
            let differs = |other: &Vec<ArgumentExtent>| other.len() == extents.len() && other != extents;
            let (other, _) = streams[index + 1..].iter().find(|(_, other)| differs(other))?;
            Some((one, other))
        });
        let (one, other) = pair.with_context(|| format!("{} holds no two kernels to exchange", from.display()))?;
        let spare = self.root.path().join("spare");
        fs::rename(one, &spare)?;
        fs::rename(other, one)?;
        fs::rename(&spare, other)?;
        Ok(target)
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

    /// A library with the kernels of aie2p built in: they are all it needs, and another generation is refused.
    fn embedded(
        &self,
        rows: &mut Vec<Row>,
        packs: &Path,
        kernels: u64,
        same: &impl Fn(&Run) -> Result<()>,
    ) -> Result<()> {
        let library = library::with_kernels(packs, self.offline).context("GGML_HSA_EMBED_KERNELS")?;
        let session = self.session.with(&library, &self.session.device);
        let empty = self.fresh("empty-6")?;
        let only = [("GGML_HSA_JIT", "off"), (CACHE, text_of(&empty)?)];
        let embedding =
            Self { session, request: self.request.clone(), root: tempfile::tempdir()?, offline: self.offline };
        embedding.check(rows, "kernels built into the library", &only, |run| {
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
        let told = library_messages(&finished.stderr).iter().any(|line| line.contains(expected));
        rows.push(Row {
            state: "a generation that is not built in",
            kernels: "none".into(),
            array: 0,
            host: 0,
            problem: (!told)
                .then(|| format!("it should say: {expected}; it said {:?}", library_messages(&finished.stderr))),
        });
        Ok(())
    }
}

fn text_of(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
