//! `cargo xtask cmake`: the CMake package, as a user of ggml would build, install and use it.
//!
//! CMake builds the backend and installs it into a prefix, which is then moved: an installed tree is found from its own files.
//! Another project finds it with `find_package`, pkg-config names its parts, stock llama.cpp generates text with it, and the
//! library finds its helper program. What the options come to, and what is said when something is missing, is seen with
//! doubles of cargo and rustc: they write down how they were called and build nothing.
//!
//! cargo's own build folder is the one of the other commands, so that nothing is compiled twice.

mod consumer;
mod doubles;
mod installation;
mod program;

use crate::session::{DeviceOptions, Options, Session};
use crate::settings::CARGO;
use crate::steps::Steps;
use crate::{library, tools, workspace};
use anyhow::{Result, bail};
use clap::Args;
use consumer::Consumer;
use installation::Installation;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Build, install and use the backend with CMake.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask cmake
  cargo xtask cmake --keep /tmp/ggml-hsa    keeps the installed tree there for inspection
  cargo xtask cmake --json | jq '.steps[] | select(.problem)'

cmake and pkg-config are the machine's own, or come as Python packages into target/python.
Exit code 1 if a step failed.")]
pub struct CmakeArgs {
    /// Install into this new folder, and keep it
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

struct Setup {
    cmake: PathBuf,
    pkg_config: PathBuf,
    session: Session,
    cargo_target: PathBuf,
    work: tempfile::TempDir,
    offline: bool,
}

pub fn run(args: &CmakeArgs, options: &Options) -> Result<()> {
    let setup = Setup::new(options)?;
    let prefix = match &args.keep {
        Some(path) if path.exists() => bail!("--keep {}: it exists already; name a new folder", path.display()),
        Some(path) => crate::files::absolute(path)?,
        None => setup.work.path().join("moved"),
    };
    let mut steps = Steps::default();
    let installed = steps.take("configure, build and install", || Installation::make(&setup, &prefix));
    if let Some(installation) = installed {
        installed_steps(&mut steps, &setup, &installation);
    }
    steps.check("options reach cargo", || doubles::options_reach_cargo(&setup));
    steps.check("defaults reach cargo", || doubles::defaults_reach_cargo(&setup));
    steps.check("GGML_HSA=OFF", || doubles::off_installs_nothing(&setup));
    steps.check("no cargo", || doubles::missing_cargo(&setup));
    steps.check("an old rustc", || doubles::old_rustc(&setup));
    steps.check("no folder to embed", || doubles::missing_kernels(&setup));

    let version = tools::run_cmake(&mut setup.cmake(&["--version"]))?;
    let cmake = version.lines().next().unwrap_or_default().trim_start_matches("cmake version ").to_owned();
    let mut report = steps.report()?;
    report.summary(format!("CMake {cmake}"));
    report.field("cmake", cmake)?;
    report.field("prefix", prefix)?;
    report.finish("cmake", options)
}

fn installed_steps(steps: &mut Steps, setup: &Setup, installation: &Installation) {
    steps.check("installed files", || installation.files(setup));
    steps.check("installed programs", || installation.programs());
    steps.check("env_setup.sh", || installation.environment_script(setup.offline));
    steps.check("building again", || installation.build_again(setup));
    steps.check("pkg-config", || installation.pkg_config(setup));
    steps.check("find_package", || Consumer::of_package(setup, installation)?.check(setup));
    steps.check("find_package, another version", || consumer::wrong_version(setup, installation));
    steps.check("add_subdirectory", || Consumer::of_sources(setup)?.check(setup));
    steps.check("llama.cpp lists the device", || program::lists_device(setup, installation));
    steps.check("llama.cpp generates text", || program::generates(setup, installation));
}

impl Setup {
    fn new(options: &Options) -> Result<Self> {
        let device = DeviceOptions { device: None, library: None };
        let session = Session::open(options, &device)?;
        let offline = options.offline;
        tools::compilers(offline)?;
        Ok(Self {
            cmake: tools::CMAKE.find(offline)?,
            pkg_config: tools::PKG_CONFIG.find(offline)?,
            session,
            cargo_target: library::build_folder(offline)?,
            work: tempfile::Builder::new().prefix("xtask-cmake-").tempdir()?,
            offline,
        })
    }

    fn cmake(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.cmake);
        command.args(arguments);
        command
    }

    fn configure(&self, sources: &Path, build: &Path) -> Command {
        let mut command = self.cmake(&["-DCMAKE_BUILD_TYPE=Release"]);
        command.arg("-S").arg(sources).arg("-B").arg(build);
        command
    }

    fn build(&self, build: &Path) -> Command {
        let mut command = self.cmake(&["--build"]);
        command.arg(build);
        command
    }

    /// Settings for a build with the cargo of this run, in its own build folder, and with cargo's defaults: that build is there.
    fn cargo_settings(&self) -> Vec<OsString> {
        let mut settings = vec![tools::argument("-DGGML_HSA_CARGO_TARGET_DIR=", &self.cargo_target)];
        settings.push("-DGGML_HSA_JIT_STDOUT_REDIRECT=ON".into());
        if let Some(cargo) = CARGO.get() {
            settings.push(tools::argument("-DGGML_HSA_CARGO=", Path::new(&cargo)));
        }
        if self.offline {
            settings.push("-DGGML_HSA_OFFLINE=ON".into());
        }
        settings
    }
}

/// The folder with the backend's CMakeLists.txt.
fn sources() -> PathBuf {
    workspace::root().join("ggml-bridge")
}
