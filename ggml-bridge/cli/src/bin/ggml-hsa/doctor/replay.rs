//! Plays a record against the simulated kernel device, so that a report from another machine becomes a test.

use super::record::{Record, RecordedNpu, RecordedTest};
use crate::Ended;
use aie_ops::ReferenceExecutor;
use amdxdna_sim::replay::Recorded;
use amdxdna_sys::recording::RecordedCall;
use ggml_hsa_cli::output::{Shade, say, shaded, show};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// What became of one NPU's calls.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// The NPU's name.
    pub name: String,
    /// How many calls the record has.
    pub calls: usize,
    /// The variables of the simulated machine.
    pub machine: BTreeMap<&'static str, String>,
    /// Answers that differ.
    pub differences: Vec<Difference>,
    /// What the self-test had found there, family by family.
    pub selftest: Vec<RecordedTest>,
}

/// A call whose answer differs.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its place, from 1 on.
    pub call: usize,
    /// The record's line.
    pub recorded: String,
    /// The simulated kernel's.
    pub simulated: String,
}

/// Replays the record in `path` and prints what differs.
pub fn run(path: &Path, as_json: bool) -> Ended {
    let replayed = Record::read(path).map_err(|cause| cause.to_string()).and_then(|record| all(&record));
    let replayed = replayed.map_err(|cause| format!("{}: {cause}", path.display()))?;
    show(as_json, &replayed, |replayed| {
        replayed.iter().for_each(print);
        if replayed.is_empty() {
            say(&"the record has no NPU with kernel calls");
        }
    });
    let differs = replayed.iter().any(|npu| !npu.differences.is_empty());
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Replays each NPU that was opened.
///
/// # Errors
/// A record that cannot be replayed, and why.
pub fn all(record: &Record) -> Result<Vec<Replayed>, String> {
    let opened = record.npus.iter().filter(|npu| !npu.calls.is_empty());
    opened
        .map(|npu| {
            let tests = record.selftest.iter().filter(|test| test.npu == npu.name);
            replayed(npu, tests.cloned().collect())
        })
        .collect()
}

fn replayed(npu: &RecordedNpu, selftest: Vec<RecordedTest>) -> Result<Replayed, String> {
    let calls: Result<Vec<RecordedCall>, _> = npu.calls.iter().map(|line| line.parse()).collect();
    let calls = calls.map_err(|cause| cause.to_string())?;
    let arch = npu.generation.clone().ok_or("its generation is not in the record")?;
    let pci = npu.pci.as_deref().and_then(ids).ok_or("its PCI device id is not in the record")?;
    let machine = Recorded { arch, pci, firmware: npu.firmware.clone() };
    let found = machine.replay(&calls, Arc::new(ReferenceExecutor)).map_err(|cause| cause.to_string())?;
    let difference = |found: amdxdna_sim::replay::Difference| Difference {
        call: found.call,
        recorded: found.recorded,
        simulated: found.simulated,
    };
    Ok(Replayed {
        name: npu.name.clone(),
        calls: calls.len(),
        machine: machine.variables(&calls),
        differences: found.into_iter().map(difference).collect(),
        selftest,
    })
}

fn ids(text: &str) -> Option<(u16, u8)> {
    let (device, revision) = text.split_once(':')?;
    Some((u16::from_str_radix(device, 16).ok()?, u8::from_str_radix(revision, 16).ok()?))
}

fn print(npu: &Replayed) {
    let variables: Vec<String> = npu.machine.iter().map(|(name, value)| format!("{name}={value}")).collect();
    say(&format!("{}: {} calls, on the simulated machine {}", npu.name, npu.calls, variables.join(" ")));
    for Difference { call, recorded, simulated } in &npu.differences {
        say(&format!("{}  call {call}: recorded `{recorded}`", shaded(Shade::Doubtful, &"differs")));
        say(&format!("{:9}simulated `{simulated}`", ""));
    }
    say(&format!("{} differences", npu.differences.len()));
    if !npu.selftest.is_empty() {
        say(&tests_in_words(&npu.selftest));
    }
}

/// Families by outcome, then what was wrong.
fn tests_in_words(tests: &[RecordedTest]) -> String {
    let mut by_outcome: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for test in tests {
        by_outcome.entry(&test.outcome).or_default().push(&test.family);
    }
    let outcomes: Vec<String> =
        by_outcome.iter().map(|(outcome, families)| format!("{outcome}: {}", families.join(", "))).collect();
    let reasons = tests
        .iter()
        .filter_map(|test| Some(format!("\n{} is {}: {}", test.family, test.outcome, test.reason.as_ref()?)));
    format!("its self-test, {}{}", outcomes.join("; "), reasons.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// Records of simulated devices, one for each kernel and generation; `cargo xtask doctor --write-records` makes them.
    fn records() -> Vec<(PathBuf, Record)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records");
        let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|path| (path.clone(), Record::read(&path).unwrap())).collect()
    }

    #[test]
    fn every_record_is_repeated_without_a_difference() {
        let records = records();
        for (path, record) in &records {
            let replayed = all(record).unwrap();
            assert_eq!(replayed.len(), 1, "{}", path.display());
            assert_eq!(replayed[0].differences, [], "{}", path.display());
            assert!(replayed[0].calls >= 30, "{}: {} calls", path.display(), replayed[0].calls);
        }
        assert!(records.len() >= 8, "{} records", records.len());
    }

    #[test]
    fn an_answer_that_no_simulated_kernel_gives_is_found() {
        let (_, mut record) = records().remove(0);
        let line = record.npus[0].calls.iter_mut().find(|line| line.starts_with("CREATE_HWCTX")).unwrap();
        *line = format!("{} = EBUSY", line.split(" = ").next().unwrap());
        let replayed = all(&record).unwrap();
        assert!(replayed[0].differences.iter().any(|found| found.recorded.ends_with("= EBUSY")), "{replayed:?}");
    }

    #[test]
    fn results_of_the_self_test_are_shown_with_their_npu() {
        let (_, mut record) = records().remove(0);
        let test = |npu: &str, family: &str, outcome: &str, reason: Option<&str>| RecordedTest {
            npu: npu.to_owned(),
            family: family.to_owned(),
            outcome: outcome.to_owned(),
            reason: reason.map(ToOwned::to_owned),
        };
        let npu = record.npus[0].name.clone();
        record.selftest = vec![
            test(&npu, "copy", "right", None),
            test(&npu, "product", "wrong", Some("element 3 is 1 instead of 2")),
            test(&npu, "norm", "right", None),
            test("another NPU", "copy", "hung", None),
        ];
        let written = serde_json::to_string(&record).unwrap();
        let record: Record = serde_json::from_str(&written).unwrap();
        let replayed = all(&record).unwrap();
        assert_eq!(replayed[0].selftest, record.selftest[..3]);
        assert_eq!(
            tests_in_words(&replayed[0].selftest),
            "its self-test, right: copy, norm; wrong: product\nproduct is wrong: element 3 is 1 instead of 2"
        );
    }

    #[test]
    fn a_record_that_cannot_be_replayed_says_why() {
        let (_, record) = records().remove(0);
        let with = |change: fn(&mut RecordedNpu)| {
            let mut record = record.clone();
            change(&mut record.npus[0]);
            all(&record).unwrap_err()
        };
        assert!(with(|npu| npu.generation = Some("aie9".into())).contains("unknown generation `aie9`"));
        assert!(with(|npu| npu.pci = Some("17f0".into())).contains("PCI device id"));
        assert!(with(|npu| npu.calls[1] = "nonsense".into()).contains("`nonsense` is not the line of a call"));
    }
}
