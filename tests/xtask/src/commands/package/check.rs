//! The packages as a new user meets them: made twice with the same bytes, installed with apt on a clean Debian root, and used.

use super::binaries::{Binaries, PROGRAMS};
use super::pack::{Packed, megabytes};
use crate::commands::iron;
use crate::generation::{Request, require_success};
use crate::model;
use crate::process::Finished;
use crate::session::{DeviceOptions, DriverName, Options, Session};
use crate::stats::Stats;
use crate::steps::Steps;
use crate::testbed::clean_root::{CleanRoot, USER};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(300);
const PROMPT: &str = "The three states of matter are";
const TOKENS: usize = 16;
/// Where the package has the designs and their compiler.
const DATA: &str = "usr/share/ggml-hsa";
/// Where the archive is unpacked in the user's home.
const ELSEWHERE: &str = "apps/npu";

struct Check {
    root: CleanRoot,
    packed: Packed,
    /// The text that the testbed's llama.cpp generates with the same library.
    expected: String,
    model: String,
    offline: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let binaries = Binaries::as_built(options.offline)?;
    let device = DeviceOptions { device: None, library: None };
    let session = Session::open(options, &device)?;
    let model = model::locate(None, &session.testbed, options.offline)?;
    let work = tempfile::Builder::new().prefix("xtask-package-").tempdir()?;
    let mut steps = Steps::default();
    let packed = steps.take("pack", || pack(&binaries, &work.path().join("first")));
    if let Some(packed) = packed {
        steps.check("pack again", || packed.same_as(&Packed::make(&binaries, &work.path().join("elsewhere/again"))?));
        let check = steps.take("a clean Debian root", || Check::new(options, &session, packed, &model));
        if let Some(check) = check {
            check.steps(&mut steps);
        }
    }
    steps.report()?.finish("package check", options)
}

fn pack(binaries: &Binaries, folder: &Path) -> Result<(Packed, String)> {
    let packed = Packed::make(binaries, folder)?;
    let seen = format!("{:.1} MB as .deb, {:.1} MB as .tar.gz", megabytes(&packed.deb)?, megabytes(&packed.archive)?);
    Ok((packed, seen))
}

fn request(model: &Path) -> Request {
    Request {
        model: model.to_owned(),
        prompt: PROMPT.to_owned(),
        tokens: TOKENS,
        threads: None,
        flash_attention: false,
    }
}

impl Check {
    fn new(options: &Options, session: &Session, packed: Packed, model: &Path) -> Result<(Self, String)> {
        let expected = request(model).text(session.on_device("llama-completion", None)?)?;
        let root = CleanRoot::new(&options.testbed, options.offline)?;
        for file in [&packed.deb, &packed.archive, model] {
            root.give(file)?;
        }
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let seen = format!("{:.0} MB with the packages and the model", root.size("")? as f64 / 1e6);
        Ok((Self { root, expected, model: name(model), packed, offline: options.offline }, seen))
    }

    fn steps(&self, steps: &mut Steps) {
        steps.check("first command: apt install", || self.install());
        steps.check("second command: ggml-hsa run", || self.generates("ggml-hsa"));
        steps.check("doctor", || self.doctor("ggml-hsa", "/usr/lib/"));
        steps.check("man pages and completions", || self.manuals());
        steps.check("env_setup.sh", || iron::environment_script(&self.root.path().join(DATA), self.offline));
        steps.check("removed", || self.remove());
        let program = format!("/home/{USER}/{ELSEWHERE}/bin/ggml-hsa");
        steps.check("the archive, unpacked", || self.unpack());
        let unpacked = self.root.home().join(ELSEWHERE).join("share/ggml-hsa");
        steps.check("the archive's env_setup.sh", || iron::environment_script(&unpacked, self.offline));
        steps.check("the archive's ggml-hsa run", || self.generates(&program));
        steps.check("the archive's doctor", || self.doctor(&program, &format!("~/{ELSEWHERE}/lib/")));
    }

    fn install(&self) -> Result<String> {
        let before = self.root.size("usr")?;
        let deb = format!("/home/{USER}/{}", self.packed.deb.file_name().unwrap_or_default().to_string_lossy());
        let started = Instant::now();
        // What a user types is `apt install ./FILE`; the packages of Debian have been downloaded.
        self.superuser(&["apt-get", "install", "--yes", "-o", "APT::Sandbox::User=root", &deb])?;
        let grown = self.root.size("usr")?.saturating_sub(before) as f64 / 1e6;
        Ok(format!("{:.1} s, {grown:.0} MB with llama.cpp, which comes along", started.elapsed().as_secs_f64()))
    }

    /// The user generates text, which has to be that of the testbed, with operations on the array.
    fn generates(&self, program: &str) -> Result<String> {
        let request = request(Path::new(&self.model));
        let mut arguments = Command::new("llama-completion");
        request.arguments(&mut arguments);
        let stats = "GGML_HSA_STATS=stats.json";
        let mut line = vec!["env".into(), stats.into(), program.into(), "run".into(), "--device".into()];
        line.extend([DriverName::Mock.first_device().into(), "llama-completion".into()]);
        line.extend(arguments.get_args().map(ToOwned::to_owned));
        let finished: Finished = self.root.run(Some(USER), LIMIT, &line)?;
        require_success(&finished)?;
        let text = request.text_in(&finished)?;
        ensure!(text == self.expected, "generated {text:?}, and the testbed's llama.cpp {:?}", self.expected);
        let array = Stats::read(&self.root.home().join("stats.json"))?.used()?.array();
        ensure!(array > 0, "generated {text:?}, and no operation ran on the array");
        Ok(format!("{:.1} s, {text:?}, {array} operations on the array", finished.elapsed.as_secs_f64()))
    }

    /// It finds its own library in `library` and llama.cpp's ggml, and misses an NPU.
    fn doctor(&self, program: &str, library: &str) -> Result<String> {
        let finished = self.root.run(Some(USER), LIMIT, &[program, "doctor", "--json"])?;
        ensure!(finished.status.code() == Some(1), "{} where one for the missing NPU is expected", finished.describe());
        let report: Value = serde_json::from_str(&finished.stdout).context("doctor printed no JSON")?;
        let findings = || report["findings"].as_array().into_iter().flatten();
        let text = |finding: &Value| finding["text"].as_str().unwrap_or_default().to_owned();
        for finding in findings().filter(|finding| finding["level"] == "error") {
            ensure!(finding["check"] == "npu", "{}: {}", finding["check"], text(finding));
        }
        let good = |check: &str, words: &str| {
            let found = findings().find(|f| f["check"] == check && f["level"] == "ok" && text(f).contains(words));
            found.map(text).with_context(|| format!("no `{check}` with `{words}` in {report:#}"))
        };
        let ggml = good("ggml", "layout V")?;
        Ok(format!("{}; {ggml}", good("library", library)?))
    }

    fn manuals(&self) -> Result<String> {
        let listed = self.superuser(&["dpkg", "--listfiles", "ggml-hsa"])?;
        let has = |path: &str| listed.lines().any(|line| line == path);
        for program in PROGRAMS.iter().filter(|program| !program.ends_with("worker")) {
            for path in [
                format!("/usr/share/man/man1/{program}.1.gz"),
                format!("/usr/share/bash-completion/completions/{program}"),
                format!("/usr/share/zsh/vendor-completions/_{program}"),
                format!("/usr/share/fish/vendor_completions.d/{program}.fish"),
            ] {
                ensure!(has(&path), "{path} is not in the package");
            }
            let completion = format!("/usr/share/bash-completion/completions/{program}");
            self.superuser(&["bash", "-n", &completion])?;
            // A page begins with its title once it is unpacked.
            let page = self.superuser(&["zcat", &format!("/usr/share/man/man1/{program}.1.gz")])?;
            ensure!(page.contains(".TH") && page.contains("OPTIONS"), "the man page of {program} is {page:?}");
        }
        Ok(format!("{} man pages", listed.lines().filter(|line| line.contains("/man1/")).count()))
    }

    fn remove(&self) -> Result<String> {
        self.superuser(&["apt-get", "purge", "--yes", "ggml-hsa"])?;
        let left = self.superuser(&["find", "/usr", "/etc", "/opt", "-name", "*ggml-hsa*"])?;
        ensure!(left.trim().is_empty(), "left behind: {left}");
        Ok("nothing is left in /usr and /etc".to_owned())
    }

    fn unpack(&self) -> Result<String> {
        let archive = self.packed.archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let script = format!("mkdir -p apps && tar -xzf {archive} && mv {} {ELSEWHERE}", self.packed.folder);
        self.root.run(Some(USER), LIMIT, &["sh", "-c", &script])?.ensure("tar")?;
        Ok(format!("in ~/{ELSEWHERE}"))
    }

    fn superuser(&self, line: &[&str]) -> Result<String> {
        let finished = self.root.run(None, LIMIT, line)?;
        match finished.success() {
            true => Ok(finished.stdout),
            false => {
                bail!("`{}`: {}\n{}\n{}", line.join(" "), finished.describe(), finished.stdout, finished.last_lines(12))
            }
        }
    }
}
