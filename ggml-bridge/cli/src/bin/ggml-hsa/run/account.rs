//! What the NPU did in a run, in one line: from the statistics that the library writes, and the speed that llama.cpp logs.

use aie_hal::Environment;
use ggml_hsa::settings::{GGML_HSA_STATS, LLAMA_ARG_LOG_FILE};
use serde::Deserialize;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::SystemTime;
use tempfile::TempDir;

/// Programs that log the speed at their end. A server logs that of every request, without an end.
const WITH_SPEED: [&str; 2] = ["llama-completion", "llama-cli"];

/// Where a run leaves what is known of it.
pub struct Account {
    folder: TempDir,
    program: String,
    /// The user's own file, or one of ours.
    statistics: PathBuf,
    /// When an older run wrote it.
    before: Option<SystemTime>,
    log: Option<PathBuf>,
}

/// The part of the statistics that is shown.
#[derive(Deserialize)]
struct Statistics {
    devices: Vec<Device>,
    store: Store,
}

#[derive(Deserialize)]
struct Device {
    name: String,
    uri: String,
    operations: Vec<Operation>,
    work: Work,
}

#[derive(Deserialize)]
struct Operation {
    array: u64,
    host: u64,
}

#[derive(Deserialize)]
struct Work {
    code_macs: u64,
    reference_macs: u64,
    host_macs: u64,
}

#[derive(Deserialize)]
struct Store {
    compiled: u64,
}

impl Account {
    /// For a run of `program`, which has not begun.
    ///
    /// # Errors
    /// There is no place for temporary files.
    pub fn open(program: &Path, environment: &Environment) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ggml-hsa-run-").tempdir()?;
        let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let given = environment.get(&GGML_HSA_STATS).filter(|path| !path.is_empty()).map(PathBuf::from);
        let statistics = given.unwrap_or_else(|| folder.path().join("statistics.json"));
        let logs = WITH_SPEED.contains(&program.as_str()) && environment.get(&LLAMA_ARG_LOG_FILE).is_none();
        let log = logs.then(|| folder.path().join("log"));
        let before = written(&statistics);
        Ok(Self { folder, program, statistics, before, log })
    }

    /// Variables that say where the program writes its statistics and its log.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = Vec::new();
        if self.statistics.starts_with(self.folder.path()) {
            variables.push((GGML_HSA_STATS.name, self.statistics.clone().into_os_string()));
        }
        variables.extend(self.log.iter().map(|log| (LLAMA_ARG_LOG_FILE.name, log.clone().into_os_string())));
        variables
    }

    /// What the NPU did, after the run's end.
    pub fn line(&self, status: ExitStatus) -> String {
        let changed = written(&self.statistics).filter(|time| Some(*time) != self.before);
        let text = changed.and_then(|_| fs::read_to_string(&self.statistics).ok());
        let Some(text) = text else {
            return match status.signal() {
                Some(signal) => format!("signal {signal} ended {} before it could say what the NPU did", self.program),
                None => format!("the NPU was not used: {} has not loaded libggml-hsa.so", self.program),
            };
        };
        match serde_json::from_str::<Statistics>(&text) {
            Ok(statistics) => statistics.line(self.log.as_deref().and_then(speed)),
            Err(cause) => format!("what the NPU did is not known: {}: {cause}", self.statistics.display()),
        }
    }
}

fn written(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|data| data.modified()).ok()
}

/// The tokens of a second of the generation that llama.cpp logged last.
fn speed(log: &Path) -> Option<f64> {
    let text = String::from_utf8_lossy(&fs::read(log).ok()?).into_owned();
    let generation = |line: &&str| line.contains(" eval time =") && !line.contains("prompt eval time");
    let line = text.lines().rev().find(generation)?;
    line.split(" tokens per second").next()?.rsplit([' ', ',']).next()?.parse().ok()
}

impl Statistics {
    fn line(&self, speed: Option<f64>) -> String {
        if self.devices.is_empty() {
            return "the NPU was not used: the library offered no device; `ggml-hsa doctor` says what is in the way"
                .to_owned();
        }
        let mut parts: Vec<String> = self.devices.iter().map(Device::part).collect();
        parts.push(match self.store.compiled {
            1 => "1 kernel compiled".to_owned(),
            count => format!("{count} kernels compiled"),
        });
        parts.extend(speed.map(|speed| format!("{speed} tokens/s")));
        parts.join("; ")
    }
}

impl Device {
    fn part(&self) -> String {
        let Self { name, uri, operations, work } = self;
        let array: u64 = operations.iter().map(|operation| operation.array).sum();
        let all = array + operations.iter().map(|operation| operation.host).sum::<u64>();
        if all == 0 {
            return format!("{name} ({uri}): not used, llama.cpp gave it no work");
        }
        let mut part = format!("{name} ({uri}): {} of {all} operations", share(array, all));
        let on_array = work.code_macs + work.reference_macs;
        let macs = on_array + work.host_macs;
        if macs > 0 {
            part.push_str(&format!(" and {} of the multiply-accumulates", share(on_array, macs)));
        }
        part + " on the array"
    }
}

/// A share in percent; all and nothing are said only of all and nothing.
fn share(part: u64, all: u64) -> String {
    let percent = 100.0 * part as f64 / all as f64;
    let shown = if part == 0 || part == all { percent } else { percent.clamp(0.1, 99.9) };
    format!("{shown:.1} %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const ONE: &str = r#"{"version":1,"devices":[{"name":"HSA0","uri":"mock:aie2p","arch":"aie2p",
        "operations":[{"op":"ADD","array":7,"host":0},{"op":"CONV","array":0,"host":1}],
        "work":{"code_macs":5,"reference_macs":4,"host_macs":1}}],"store":{"compiled":3}}"#;

    fn line(text: &str, speed: Option<f64>) -> String {
        serde_json::from_str::<Statistics>(text).unwrap().line(speed)
    }

    #[test]
    fn shares_kernels_and_speed_are_shown() {
        let expected = "HSA0 (mock:aie2p): 87.5 % of 8 operations and 90.0 % of the multiply-accumulates on the array; \
            3 kernels compiled";
        assert_eq!(line(ONE, None), expected);
        assert_eq!(line(ONE, Some(5.75)), format!("{expected}; 5.75 tokens/s"));
    }

    #[test]
    fn a_device_that_did_nothing_is_shown() {
        let idle = ONE.replace("\"array\":7", "\"array\":0").replace("\"host\":1", "\"host\":0");
        assert!(line(&idle, None).starts_with("HSA0 (mock:aie2p): not used"));
        assert!(line(r#"{"devices":[],"store":{"compiled":0}}"#, None).contains("offered no device"));
    }

    #[rstest]
    #[case(0, 7, "0.0 %")]
    #[case(1, 100_000, "0.1 %")]
    #[case(99_999, 100_000, "99.9 %")]
    #[case(7, 7, "100.0 %")]
    fn nearly_all_is_not_all(#[case] part: u64, #[case] all: u64, #[case] expected: &str) {
        assert_eq!(share(part, all), expected);
    }

    #[test]
    fn the_speed_is_that_of_the_generation() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!(speed(&log), None);
        let perf = "0.02 I common_perf_print: prompt eval time =  41.31 ms /     5 tokens (    8.26 ms per token,   121.04 tokens per second)\n\
            0.02 I common_perf_print:        eval time =    1564.50 ms /     9 runs   (  173.83 ms per token,     5.75 tokens per second)\n";
        fs::write(&log, perf).unwrap();
        assert_eq!(speed(&log), Some(5.75));
    }
}
