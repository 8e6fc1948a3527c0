//! The simulated machine, with the programs that are asked about it.

use crate::process;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Stands for the folder of a case's files in values of variables.
pub const FOLDER: &str = "FOLDER";

const LIMIT: Duration = Duration::from_secs(120);

/// Variables and their values.
pub type Settings = Vec<(&'static str, String)>;

/// A machine with a simulated NPU, on which `ggml-hsa` runs.
pub struct Machine {
    pub program: PathBuf,
    pub preload: PathBuf,
    pub library: PathBuf,
    folder: TempDir,
    _installation: TempDir,
}

impl Machine {
    /// The program and the library are put together as they are installed, so that `ggml-hsa env` names this library.
    pub fn new(program: &Path, preload: PathBuf, library: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("ggml-hsa-doctor-").tempdir()?;
        std::fs::create_dir(folder.path().join("cache"))?;
        let installation = tempfile::Builder::new().prefix("ggml-hsa-installed-").tempdir()?;
        let install = |file: &Path, directory: &str, name: &str| -> Result<PathBuf> {
            let directory = installation.path().join(directory);
            std::fs::create_dir(&directory)?;
            let installed = directory.join(name);
            std::fs::copy(file, &installed).with_context(|| format!("cannot copy {}", file.display()))?;
            Ok(installed)
        };
        let program = install(program, "bin", "ggml-hsa")?;
        let library = install(library, "lib", "libggml-hsa.so")?;
        Ok(Self { program, preload, library, folder, _installation: installation })
    }

    /// Where cases have their files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `variables` with the folder in place of its name.
    pub fn filled_in(&self, variables: &[(&'static str, &str)]) -> Settings {
        let folder = self.folder.path().to_string_lossy();
        variables.iter().map(|(name, value)| (*name, value.replace(FOLDER, &folder))).collect()
    }

    /// The command in the text of a fix that begins with `begin`, with a folder for what it leaves to the user.
    pub fn runnable(&self, fix: &str, begin: &str) -> Result<String> {
        // What is between backticks is a command.
        let mut commands = fix.split('`').skip(1).step_by(2);
        let command = commands.find(|command| command.starts_with(begin));
        let command = command.with_context(|| format!("no command `{begin}...` in `{fix}`"))?;
        Ok(command.replace("=DIR", &format!("={}", self.folder.path().join("cache").display())))
    }

    /// What a login does that reads the file of limits which the fix's command writes, here into the folder: pam_limits sets both
    /// limits, and who may not raise the machine's own comes as far as that.
    pub fn login(&self, fix: &str) -> Result<String> {
        const PLACE: &str = "sudo tee /etc/security/limits.d/70-npu.conf";
        let command = self.runnable(fix, "printf ")?;
        ensure!(command.ends_with(PLACE), "`{command}` does not end with `{PLACE}`");
        let file = self.folder.path().join("70-npu.conf");
        let written = command.replace(PLACE, &format!("cat > '{}'", file.display()));
        let end = process::run(Command::new("sh").args(["-c", &written]), LIMIT)?;
        ensure!(end.success(), "{written}: {}", end.describe());
        let text = std::fs::read_to_string(&file)?;
        let fields: Vec<&str> = text.split_whitespace().collect();
        let ["*", "-", "memlock", limit] = fields[..] else { bail!("`{text}` is no line of limits for everybody") };
        Ok(format!("ulimit -l {limit} 2>/dev/null || ulimit -S -l \"$(ulimit -H -l)\""))
    }

    /// What `ggml-hsa doctor --json` prints after the shell has run `before`, and its exit code.
    pub fn doctor(&self, variables: &Settings, before: &str) -> Result<(Value, Option<i32>)> {
        self.ask(&["doctor", "--library", &self.library.to_string_lossy(), "--json"], variables, before)
    }

    /// The same of `ggml-hsa devices --json`.
    pub fn devices(&self, variables: &Settings) -> Result<(Value, Option<i32>)> {
        self.ask(&["devices", "--json"], variables, "")
    }

    /// Starts `ggml-hsa` from a shell that has run `before`, by the words in `LAUNCHER` where it sets them. Only the program sees the simulated machine.
    pub fn command(&self, arguments: &[&str], variables: &Settings, before: &str) -> Command {
        let mut command = Command::new("sh");
        process::clear_settings(&mut command);
        let script = format!("{before}\nexec $LAUNCHER env LD_PRELOAD=\"$PRELOAD\" \"$PROGRAM\" \"$@\"");
        command.args(["-c", &script, "sh"]).args(arguments);
        let folder = self.program.parent().map(Path::to_path_buf).unwrap_or_default();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&path)));
        command
            .env_remove("LAUNCHER")
            .env("PATH", path.unwrap_or_default())
            .env("PROGRAM", &self.program)
            .env("PRELOAD", &self.preload);
        command.env("AMDXDNA_SIM_DEVICES", "aie2p").env("GGML_HSA_REFERENCE_KERNELS", "1");
        command.env("GGML_HSA_KERNEL_CACHE_DIR", self.folder.path().join("cache")).envs(variables.iter().cloned());
        command
    }

    fn ask(&self, arguments: &[&str], variables: &Settings, before: &str) -> Result<(Value, Option<i32>)> {
        let end = process::run(&mut self.command(arguments, variables, before), LIMIT)?;
        let value = serde_json::from_str(&end.stdout);
        let value = value.with_context(|| format!("{}: {}\n{}", arguments[0], end.describe(), end.last_lines(5)))?;
        Ok((value, end.status.code()))
    }
}
