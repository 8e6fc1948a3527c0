//! The simulated NPU behind the kernel interface: how a program gets it, and what it saw.
//!
//! A preload library answers the calls our driver, AMD's HSA runtime or AMD's XRT make of the kernel, so that these are what users
//! have. At the end of a program it writes a report, which says what the program asked of the kernel and what it left
//! open.

use crate::library;
use crate::session::{DriverName, SimulationOptions};
use crate::testbed::Testbed;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

const REPORT: &str = "report.json";

/// A simulated kernel device for the programs of one session.
#[derive(Debug, Clone)]
pub struct Simulation {
    preload: PathBuf,
    /// The HSA runtime, when programs use one.
    rocr: Option<PathBuf>,
    npus: String,
    kernel: String,
    machine: Option<String>,
    dir: Arc<TempDir>,
}

impl Simulation {
    /// What is behind `driver`; `None` for one that needs no kernel.
    pub fn for_driver(
        driver: DriverName,
        testbed: &Testbed,
        options: &SimulationOptions,
        offline: bool,
    ) -> Result<Option<Self>> {
        let rocr = match (driver, options.rocr.as_str()) {
            (DriverName::Mock, _) => return Ok(None),
            (DriverName::Xdna, _) => None,
            (DriverName::Rocr, "new") => Some(testbed.rocr()?),
            (DriverName::Rocr, "old") => Some(testbed.old_rocr()?),
            (DriverName::Rocr, file) => {
                Some(std::path::absolute(file).with_context(|| format!("cannot resolve {file}"))?)
            }
        };
        let dir = Arc::new(tempfile::Builder::new().prefix("xtask-kernel-reports-").tempdir()?);
        let preload = library::preload(offline)?;
        Ok(Some(Self {
            preload,
            rocr,
            npus: options.npus.clone(),
            kernel: options.kernel.clone(),
            machine: options.machine.clone(),
            dir,
        }))
    }

    /// The same simulation with reports of its own.
    pub fn apart(&self) -> Result<Self> {
        let dir = Arc::new(tempfile::Builder::new().prefix("xtask-kernel-reports-").tempdir()?);
        Ok(Self { dir, ..self.clone() })
    }

    /// The same device with another kernel.
    pub fn on_kernel(&self, kernel: &str) -> Self {
        Self { kernel: kernel.to_owned(), ..self.clone() }
    }

    /// A command for a program of the testbed, or one linked to its libraries, on the simulated device. What an earlier
    /// program reported is forgotten.
    pub fn command(&self, testbed: &Testbed, program: &Path) -> Command {
        // Absent unless a program has ended since.
        let _ = fs::remove_file(self.dir.path().join(REPORT));
        let mut command = testbed.command_with(program, Some(&self.preload));
        command
            .env("AMDXDNA_SIM_DEVICES", &self.npus)
            .env("AMDXDNA_SIM_KERNEL", &self.kernel)
            .env("AMDXDNA_SIM_REPORT", self.dir.path().join(REPORT));
        if let Some(machine) = &self.machine {
            command.env("AMDXDNA_SIM_MACHINE", machine);
        }
        // Without one a path to nowhere shows that none is looked for.
        let nowhere = Path::new("/nonexistent/libhsa-runtime64.so.1");
        command.env("AIE_HAL_LIBHSA_PATH", self.rocr.as_deref().unwrap_or(nowhere));
        command
    }

    /// Whether programs use an HSA runtime.
    pub fn has_runtime(&self) -> bool {
        self.rocr.is_some()
    }

    /// What programs may leave open.
    fn kept(&self) -> Levels {
        if self.rocr.is_some() { KEPT_BY_ROCR } else { KEPT_BY_THE_DRIVER }
    }

    /// Errors if a program left anything open that AMD's runtime does not always leave.
    pub fn nothing_open(&self, report: &KernelReport) -> Result<()> {
        self.nothing_open_but(report, Levels::default())
    }

    /// The same; `more` may be open as well.
    pub fn nothing_open_but(&self, report: &KernelReport, more: Levels) -> Result<()> {
        report.open_within(self.kept(), more)
    }

    /// What the program that ended last did.
    pub fn report(&self) -> Result<KernelReport> {
        KernelReport::read(&self.dir.path().join(REPORT))
    }
}

/// A word for the shell that stands for itself.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The report of the simulated kernel device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KernelReport {
    pub calls: BTreeMap<String, Calls>,
    /// Submissions of command chains.
    pub doorbells: u64,
    pub commands: u64,
    pub contexts_created: u64,
    /// Changes of the context the array runs.
    pub context_switches: u64,
    /// The device's own time.
    pub virtual_ns: u64,
    /// Buffer objects made, by type.
    pub bos_created: BTreeMap<String, u64>,
    /// The most that was open at once.
    pub peak: Levels,
    /// What the program did not close.
    pub open_at_exit: Levels,
    /// What the device had to say.
    pub messages: Vec<String>,
}

/// What our driver has open for an NPU that a program keeps in a static, as test suites and llama.cpp do: the node, and the device
/// heap, mapped.
const KEPT_BY_THE_DRIVER: Levels = Levels { bos: 1, bo_bytes: 64 << 20, mappings: 1, contexts: 0, files: 1 };

/// What a started ROCR 7.2.4 has open itself: the device heap and the ring of its one queue, both mapped, and the node.
/// Programs end without shutting it down, because a shut down runtime has even been seen to keep the node and the heap.
const KEPT_BY_ROCR: Levels = Levels { bos: 2, bo_bytes: (64 << 20) + 4096, mappings: 2, contexts: 0, files: 1 };

/// How often a kernel call was made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Calls {
    pub count: u64,
    /// Those that failed, by error code.
    pub errors: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    /// Buffer objects.
    pub bos: i64,
    pub bo_bytes: i64,
    pub mappings: i64,
    pub contexts: i64,
    /// Open files of the device.
    pub files: i64,
}

impl KernelReport {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| {
            format!(
                "the simulated kernel device wrote no report: cannot read {}; either the program ended before it started, \
                 or the preload library was not loaded",
                path.display()
            )
        })?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not a report of the simulated device", path.display()))
    }

    pub fn total_calls(&self) -> u64 {
        self.calls.values().map(|calls| calls.count).sum()
    }

    /// Errors if the program left anything open.
    pub fn nothing_open(&self) -> Result<()> {
        self.open_within(Levels::default(), Levels::default())
    }

    /// Errors if the program left more open than `kept` and `more`.
    fn open_within(&self, kept: Levels, more: Levels) -> Result<()> {
        let parts = |levels: Levels| {
            let Levels { bos, bo_bytes, mappings, contexts, files } = levels;
            [bos, bo_bytes, mappings, contexts, files]
        };
        let most = parts(kept).into_iter().zip(parts(more)).map(|(kept, more)| kept.saturating_add(more));
        let within = parts(self.open_at_exit).into_iter().zip(most).all(|(open, most)| open <= most);
        let Levels { bos, bo_bytes, mappings, contexts, files } = self.open_at_exit;
        if !within {
            bail!(
                "the program left open on the kernel device: {bos} buffer objects ({bo_bytes} bytes), {mappings} mappings, \
                 {contexts} contexts, {files} files; {} buffer objects and {} files are expected",
                kept.bos,
                kept.files
            );
        }
        Ok(())
    }

    pub fn summary(&self) -> String {
        format!(
            "kernel device: {} calls, {} doorbells with {} commands, {} contexts made, {} switches, {:.1} ms of its own \
             time, nothing unexpected left open",
            self.total_calls(),
            self.doorbells,
            self.commands,
            self.contexts_created,
            self.context_switches,
            self.virtual_ns as f64 / 1e6
        )
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A report with so many open contexts.
    pub fn sample(contexts: i64) -> String {
        format!(
            r#"{{"pid":1,"devices":[],"calls":{{"EXEC_CMD":{{"count":3,"errors":{{"EINVAL":1}}}},"MMAP":{{"count":4,"errors":{{}}}}}},
            "contexts_created":1,"context_switches":0,"chains":3,"commands":9,"commands_run":9,"doorbells":3,"virtual_ns":7000000,
            "bos_created":{{"CMD":3}},"peak":{{"bos":5,"bo_bytes":9,"mappings":4,"contexts":1,"files":1}},
            "open_at_exit":{{"bos":0,"bo_bytes":0,"mappings":0,"contexts":{contexts},"files":0}},"messages":[]}}"#
        )
    }

    #[test]
    fn a_report_is_read_and_summed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        fs::write(&path, sample(0)).unwrap();
        let report = KernelReport::read(&path).unwrap();
        report.open_within(KEPT_BY_ROCR, Levels::default()).unwrap();
        assert_eq!(report.total_calls(), 7);
        assert!(report.summary().contains("3 doorbells with 9 commands"), "{}", report.summary());
    }

    #[test]
    fn what_is_left_open_is_an_error() {
        let report: KernelReport = serde_json::from_str(&sample(2)).unwrap();
        assert!(report.open_within(KEPT_BY_ROCR, Levels::default()).unwrap_err().to_string().contains("2 contexts"));
        let mut report: KernelReport = serde_json::from_str(&sample(0)).unwrap();
        report.open_at_exit = KEPT_BY_ROCR;
        report.open_within(KEPT_BY_ROCR, Levels::default()).unwrap();
        report.open_at_exit.mappings += 1;
        assert!(report.open_within(KEPT_BY_ROCR, Levels::default()).unwrap_err().to_string().contains("3 mappings"));
        report.open_at_exit = KEPT_BY_ROCR;
        report.open_at_exit.bo_bytes += 1;
        assert!(report.open_within(KEPT_BY_ROCR, Levels::default()).is_err());
    }

    #[test]
    fn words_stand_for_themselves_in_a_script() {
        assert_eq!(quoted("/a b/c"), "'/a b/c'");
        let output = Command::new("sh").args(["-c", &format!("printf %s {}", quoted("it's $HOME"))]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it's $HOME");
    }

    #[test]
    fn a_report_that_is_not_there_says_what_that_means() {
        let error = format!("{:#}", KernelReport::read(Path::new("/nowhere/report.json")).unwrap_err());
        assert!(error.contains("preload library"), "{error}");
    }
}
