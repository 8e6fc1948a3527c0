//! Records of the simulated machines: what is recorded now is what is checked in, and can be replayed.

use super::machine::{Machine, Settings};
use crate::process;
use crate::session::KERNELS;
use crate::steps::Steps;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A simulated machine whose record is checked in.
struct Recorded {
    name: String,
    variables: Vec<(&'static str, &'static str)>,
}

/// One of each kernel and generation, and one with addresses of the driver's own.
fn all() -> Vec<Recorded> {
    let of = |arch: &'static str, kernel: &'static str| Recorded {
        name: format!("{arch}-{kernel}"),
        variables: vec![("AMDXDNA_SIM_DEVICES", arch), ("AMDXDNA_SIM_KERNEL", kernel)],
    };
    let mut all: Vec<Recorded> = KERNELS.iter().flat_map(|kernel| [of("aie2", kernel), of("aie2p", kernel)]).collect();
    let own = [("AMDXDNA_SIM_KERNEL", "7.2"), ("AMDXDNA_SIM_MACHINE", "addresses=iova")];
    all.push(Recorded { name: "aie2p-iova".to_owned(), variables: own.to_vec() });
    all
}

/// Compares the records of all machines with those that are checked in, or writes them.
pub fn check(machine: &Machine, write: bool, steps: &mut Steps) {
    for recorded in all() {
        steps.check(&format!("the record of {}", recorded.name), || compare(machine, &recorded, write));
    }
    steps.check("a record names neither the user nor their files", || names_nobody(machine));
}

fn checked_in(name: &str) -> PathBuf {
    workspace::root().join("ggml-bridge/cli/tests/records").join(format!("{name}.json"))
}

/// What `doctor --record` writes.
fn record(machine: &Machine, variables: &Settings, file: &str) -> Result<String> {
    let path = machine.folder().join(file);
    let path = path.to_str().context("a folder that is not UTF-8")?;
    let end = process::run(&mut machine.command(&["doctor", "--record", path], variables, ""), LIMIT)?;
    fs::read_to_string(path).with_context(|| format!("doctor --record: {}", end.describe()))
}

fn compare(machine: &Machine, recorded: &Recorded, write: bool) -> Result<String> {
    let record: Value =
        serde_json::from_str(&record(machine, &machine.filled_in(&recorded.variables), "record.json")?)?;
    // The rest is of the machine that runs the simulation.
    let record = format!("{:#}\n", json!({"format": record["format"], "npus": record["npus"]}));
    let path = checked_in(&recorded.name);
    if write {
        fs::write(&path, &record)?;
    }
    let expected = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let differs = expected.lines().zip(record.lines()).find(|(expected, now)| expected != now);
    ensure!(
        expected == record,
        "{}: {differs:?}; after a change of what the driver asks: --write-records",
        path.display()
    );
    let arguments = ["doctor", "--replay", path.to_str().unwrap_or_default(), "--json"];
    let end = process::run(&mut machine.command(&arguments, &Settings::new(), ""), LIMIT)?;
    let replayed: Value = end.json("doctor --replay")?;
    let (calls, differences) = (&replayed[0]["calls"], replayed[0]["differences"].as_array().map(Vec::len));
    ensure!(differences == Some(0), "{replayed:#}");
    Ok(format!("{calls} calls, repeated without a difference"))
}

/// As a user with telling names, of folders too.
fn names_nobody(machine: &Machine) -> Result<String> {
    let telling = machine.folder().join("jean-luc/secret work");
    fs::create_dir_all(&telling)?;
    let telling = telling.to_string_lossy();
    let variables = machine.filled_in(&[
        ("HOME", &telling),
        ("USER", "jean-luc"),
        ("GGML_HSA_KERNEL_DIR", &telling),
        ("GGML_BACKEND_PATH", &telling),
        ("GGML_HSA_KERNEL_CACHE_DIR", &telling),
    ]);
    let record = record(machine, &variables, "jean-luc/secret work/record.json")?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let folder = machine.folder().to_string_lossy();
    let program = machine.program.to_string_lossy();
    for word in ["jean-luc", "secret", host.trim(), &*folder, &*program] {
        ensure!(!record.contains(word), "`{word}` is in {record}");
    }
    Ok(format!("{} bytes", record.len()))
}
