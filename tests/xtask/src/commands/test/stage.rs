//! The stages of CI: what each runs, which it waits for, and what may run beside it.

use crate::session::Options;
use crate::{Cli, workspace};
use clap::CommandFactory;
use std::path::Path;
use std::process::{Command, Stdio};

pub struct Stage {
    pub name: &'static str,
    /// What it checks; empty for this program's own commands, whose help says it.
    about: &'static str,
    program: Program,
    /// Its arguments, separated by blanks.
    arguments: &'static str,
    /// The stages before it that have to end first, passed or failed, where they run too.
    pub after: &'static [&'static str],
    pub company: Company,
}

/// What a stage runs.
#[derive(Clone, Copy)]
enum Program {
    /// cargo, in this environment.
    Cargo(&'static [(&'static str, &'static str)]),
    /// This program.
    Xtask,
}

/// What may run beside a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    Any,
    /// What gives way: the stage waits for answers by a clock that does not wait for it, and keeps one processor busy at most.
    GivesWay,
    /// Nothing: it changes what the others use.
    None,
}

const fn xtask(name: &'static str, arguments: &'static str, after: &'static [&'static str]) -> Stage {
    Stage { name, about: "", program: Program::Xtask, arguments, after, company: Company::Any }
}

const fn cargo(
    name: &'static str,
    about: &'static str,
    arguments: &'static str,
    environment: &'static [(&'static str, &'static str)],
    after: &'static [&'static str],
) -> Stage {
    Stage { name, about, program: Program::Cargo(environment), arguments, after, company: Company::Any }
}

impl Stage {
    const fn with(self, company: Company) -> Self {
        Self { company, ..self }
    }

    /// What it checks: for our own commands the first line of their help.
    pub fn about(&self) -> String {
        let cli = Cli::command();
        let mut command = &cli;
        for word in self.words().filter(|_| self.is_xtask()) {
            command = command.find_subcommand(word).unwrap_or(command);
        }
        if self.about.is_empty() {
            command.get_about().map(ToString::to_string).unwrap_or_default()
        } else {
            self.about.to_owned()
        }
    }

    pub fn is_xtask(&self) -> bool {
        matches!(self.program, Program::Xtask)
    }

    /// Its arguments.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.arguments.split(' ')
    }

    /// Its command, with nothing on standard input; `own` is this program.
    pub fn command(&self, own: &Path, programs: Option<&Path>, options: &Options) -> Command {
        let mut command = match self.program {
            Program::Cargo(environment) => {
                let mut command = workspace::cargo();
                command.envs(environment.iter().copied());
                command
            }
            Program::Xtask => Command::new(own),
        };
        command.args(self.words()).stdin(Stdio::null());
        match self.program {
            Program::Cargo(_) if options.offline && self.name != "fmt" => {
                command.env("CARGO_NET_OFFLINE", "true");
            }
            Program::Cargo(_) => {}
            Program::Xtask => {
                command.arg("--testbed").arg(&options.testbed).args(options.offline.then_some("--offline"));
            }
        }
        let programs = programs.filter(|_| self.name == REAL_PROGRAMS);
        command.args(programs.into_iter().flat_map(|programs| [Path::new("--programs"), programs]));
        command
    }

    /// Its command as a user would type it.
    pub fn shown(&self) -> String {
        match self.program {
            Program::Cargo(environment) => {
                let settings = environment.iter().map(|(name, value)| format!("{name}='{value}' ")).collect::<String>();
                format!("{settings}cargo {}", self.arguments)
            }
            Program::Xtask => format!("cargo xtask {}", self.arguments),
        }
    }
}

/// What has been built, and where the stock programs are.
const RELEASE: &[&str] = &["testbed", "release"];
/// The same where programs are built like tests: they find what these have compiled, once nobody locks it.
const TESTS: &[&str] = &["testbed", "unit", "docs"];
const BOTH: &[&str] = &["testbed", "release", "unit", "docs"];

/// The stages in the order in which they are reported. Of those that may start, the first one does: what many wait for and what takes
/// longest come early, so that no lane is left alone with them.
pub const STAGES: &[Stage] = &[
    cargo("fmt", "all sources are formatted", "fmt --all --check", &[], &[]),
    xtask("typos", "lint typos", &[]),
    xtask("deny", "lint deny", &[]),
    xtask("commits", "lint commits", &[]),
    xtask("environment", "gen environment --check", &[]),
    cargo(
        "release",
        "the library and all programs build in release mode, as other stages use them",
        "build --release --package aie-ggml-bridge --package aie-jit-iron --package aie-ggml-cli --package amdxdna-preload \
         --package virtual-npu --package xdna-stress --package dispatch-cost --package aie-block-formats --package kernel-calls",
        &[],
        &[],
    ),
    // It waits for the network.
    xtask("testbed", "testbed", &[]),
    // cargo gives its folder of development builds to one of these at a time.
    cargo("clippy", "no warning in any target", "clippy --workspace --all-targets -- -D warnings", &[], &[]),
    cargo(
        "unit",
        "unit, conformance and documentation tests of the workspace",
        "test --workspace --no-fail-fast",
        &[],
        &["clippy"],
    ),
    cargo(
        "docs",
        "the documentation builds without a warning",
        "doc --workspace --no-deps --keep-going",
        &[("RUSTDOCFLAGS", "-D warnings")],
        &["unit"],
    ),
    // The guest's kernel gives the NPU 2 s for a chain and 5 s for a message.
    xtask("vm", "vm check --ci", BOTH).with(Company::GivesWay),
    xtask("hsa-headers", "hsa-headers", TESTS),
    xtask("kernel-headers", "kernel-headers", TESTS),
    xtask("kernel-calls", "kernel-calls", RELEASE),
    xtask("formats", "formats", TESTS),
    xtask("xrt", "xrt", BOTH),
    xtask("block-formats", "block-formats", RELEASE),
    xtask("conformance-xdna", "conformance --driver xdna --every-kernel", BOTH),
    xtask("conformance-rocr", "conformance --driver rocr --every-kernel", BOTH),
    xtask("demo", "demo", RELEASE),
    xtask("demo-xdna", "demo --driver xdna", RELEASE),
    xtask("demo-rocr", "demo --driver rocr", RELEASE),
    xtask("demo-emulated", "demo --emulated --flash-attention --products product -n 2", RELEASE),
    xtask("demo-rings", "demo --emulated --flash-attention --products rings --prompt The -n 2", RELEASE),
    xtask("iron", "iron", RELEASE),
    xtask("operations", "gen operations --check", TESTS),
    xtask("backend-ops", "backend-ops --ci", RELEASE),
    // What differs from the stage before is the way of buffers and dispatches, which all operations share.
    xtask(
        "backend-ops-xdna",
        "backend-ops --ci --driver xdna -o ADD,ARGSORT,CLAMP,CONT,EXP,FILL,FLASH_ATTN_EXT,GEGLU,IM2COL,MEAN,MUL_MAT,\
         MUL_MAT_VEC_FUSION,NORM,OUT_PROD,POOL_2D,RMS_NORM,RMS_NORM_MUL_ROPE,ROPE,ROPE_SET_ROWS,SCALE,SET_ROWS,SILU,SOFT_MAX,\
         SSM_CONV,SSM_SCAN,SUM_ROWS,SWIGLU,TANH,TOP_K",
        RELEASE,
    ),
    xtask(
        "backend-ops-emulated",
        "backend-ops --emulated -o CONCAT,CPY,EXP,GEGLU,GET_ROWS,NORM,RMS_NORM,SET_ROWS,SILU,SUB,SWIGLU,TANH",
        RELEASE,
    ),
    xtask("kld", "kld --texts 1", RELEASE),
    xtask("splits", "splits", RELEASE),
    xtask("splits-xdna", "splits --driver xdna", RELEASE),
    xtask("explain", "explain", RELEASE),
    xtask("models", "models", RELEASE),
    xtask("archs", "archs", RELEASE),
    xtask("abi", "abi", RELEASE),
    xtask("cmake", "cmake", RELEASE),
    xtask("rpc", "rpc", RELEASE),
    xtask("faults", "faults", RELEASE),
    xtask("faults-kernels", "faults --kernel legacy,6.14,7.2 --sample 6 --machine hung=dead", RELEASE),
    xtask("faults-rocr", "faults --driver rocr --sample 4", RELEASE),
    xtask("stress", "stress --seconds 30", RELEASE),
    xtask("stress-rocr", "stress --driver rocr --load pdis,queues --seconds 10", RELEASE),
    xtask("selftest", "selftest", RELEASE),
    xtask("package", "package check", RELEASE),
    xtask("clients", "clients", RELEASE),
    xtask("doctor", "doctor", RELEASE),
    xtask("bad-input", "bad-input", RELEASE),
    // It builds another library in the place of the one that all have used, which cargo would build again for them.
    xtask("store", "store", RELEASE).with(Company::None),
];

/// Stages that only run when they are named: what they need is not part of the project.
pub const NAMED_STAGES: &[Stage] = &[xtask(REAL_PROGRAMS, REAL_PROGRAMS, &[])];

/// The stage that takes `--programs`.
pub const REAL_PROGRAMS: &str = "real-programs";

/// The stages named or, without names, all but those of `skip`.
pub fn choose(only: &[String], skip: &[String]) -> Vec<&'static Stage> {
    let named = |names: &[String], stage: &Stage| names.iter().any(|name| name == stage.name);
    let unnamed = STAGES.iter().filter(|stage| (only.is_empty() || named(only, stage)) && !named(skip, stage));
    unnamed.chain(NAMED_STAGES.iter().filter(|stage| named(only, stage))).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::BTreeSet;

    pub const fn trial(name: &'static str, after: &'static [&'static str], company: Company) -> Stage {
        xtask(name, "demo", after).with(company)
    }

    fn names(only: &[&str], skip: &[&str]) -> Vec<&'static str> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        choose(&owned(only), &owned(skip)).iter().map(|stage| stage.name).collect()
    }

    fn place(name: &str) -> Option<usize> {
        STAGES.iter().position(|stage| stage.name == name)
    }

    pub fn options(offline: bool) -> Options {
        Options { offline, testbed: "/t".into(), json: false }
    }

    #[test]
    fn stages_are_chosen_in_their_own_order() {
        assert_eq!(names(&["docs", "fmt"], &[]), ["fmt", "docs"]);
        let all = names(&[], &[]);
        assert_eq!(all.len(), STAGES.len());
        assert_eq!(names(&[], &["fmt"]), all[1..]);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "names are unique");
    }

    #[test]
    fn stages_wait_for_stages_before_them() {
        for (index, stage) in STAGES.iter().enumerate() {
            for before in stage.after {
                assert!(place(before).is_some_and(|place| place < index), "{} waits for {before}", stage.name);
            }
        }
    }

    #[test]
    fn the_release_build_has_what_commands_build() {
        let release = STAGES.iter().find(|stage| stage.name == "release").unwrap();
        let words: Vec<&str> = release.words().collect();
        assert!(words.starts_with(&crate::build::BACKEND), "{words:?}");
    }

    #[test]
    fn stages_and_commands_are_the_same() {
        let cli = Cli::command();
        let stages = || STAGES.iter().chain(NAMED_STAGES).filter(|stage| stage.is_xtask());
        for stage in stages() {
            let programs = if stage.name == REAL_PROGRAMS { " --programs x" } else { "" };
            let line = format!("xtask {}{programs}", stage.arguments);
            assert!(cli.clone().try_get_matches_from(line.split(' ')).is_ok(), "{line}");
        }
        // Timings and predictions are never judged, and `test` is this one.
        let others = ["bench", "predict", "test", "help"];
        for command in cli.get_subcommands().map(clap::Command::get_name) {
            let stage = stages().any(|stage| stage.words().next() == Some(command));
            assert!(stage || others.contains(&command), "`{command}` is no stage of `test`");
        }
    }

    #[test]
    fn options_are_handed_on() {
        let words = |stage: &Stage| {
            let command = stage.command(Path::new("/x"), Some(Path::new("/p")), &options(true));
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(&xtask("trial", "kld", &[])), "kld --testbed /t --offline");
        assert_eq!(words(&NAMED_STAGES[0]), "real-programs --testbed /t --offline --programs /p");
    }

    #[test]
    fn a_stage_is_shown_as_it_would_be_typed() {
        let docs = STAGES.iter().find(|stage| stage.name == "docs").unwrap();
        assert_eq!(docs.shown(), "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --keep-going");
    }
}
