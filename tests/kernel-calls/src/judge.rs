//! Judging the runs of several kernels: by what is checked in, and simulated ones beside real ones.
//!
//! Beside the sources are `answers.json`, what simulated kernels answer; `known.toml`, differences between them and real ones, with
//! reasons; and `seen.json`, what runs on real ones have exercised.

use crate::answers::{Answers, answers, changes};
use crate::compare::{Difference, differences};
use crate::known::Known;
use crate::record::{self, Record};
use crate::seen::{Run, Seen};
use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What a player prints where a script should have ended on its own.
const BROKEN: &str = "the script";

/// A run as a file: the name of what was asked, `=`, and the file with what was printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFile {
    name: String,
    file: PathBuf,
}

impl RunFile {
    /// Reads `NAME=FILE`. A name can have `=` as well, and a file cannot.
    ///
    /// # Errors
    /// When there is no `=`.
    pub fn read(text: &str) -> Result<Self, String> {
        let (name, file) = text.rsplit_once('=').ok_or("expected a value like `7.2 npu4=run.jsonl`")?;
        Ok(Self { name: name.to_owned(), file: file.into() })
    }

    fn records(&self) -> Result<Vec<Record>> {
        let text = fs::read_to_string(&self.file).with_context(|| format!("cannot read {}", self.file.display()))?;
        records(&self.name, &text)
    }
}

/// The runs to judge.
#[derive(Debug, clap::Args)]
pub struct Runs {
    /// A run on a simulated machine whose answers are checked in, `7.2 aie2p=FILE`
    #[arg(long, value_name = "NAME=FILE", value_parser = RunFile::read)]
    pub simulated: Vec<RunFile>,
    /// Another run on a machine that is a simulated kernel as such: what varies is found, and the page gets what the run has exercised
    #[arg(long, value_name = "NAME=FILE", value_parser = RunFile::read)]
    pub again: Vec<RunFile>,
    /// A run on a real kernel, `7.2 npu4=FILE`
    #[arg(long, value_name = "NAME=FILE", value_parser = RunFile::read)]
    pub real: Vec<RunFile>,
    /// The run on the simulated machine that a real kernel is compared with, under the real kernel's name
    #[arg(long, value_name = "NAME=FILE", value_parser = RunFile::read)]
    pub like: Vec<RunFile>,
    /// Write what was exercised and what simulated kernels answer to seen.json and answers.json
    #[arg(long)]
    pub write: bool,
    /// The folder with these files and known.toml
    #[arg(long, value_name = "DIR", default_value = env!("CARGO_MANIFEST_DIR"))]
    pub folder: PathBuf,
}

/// A kernel; a real one beside the simulated one.
#[derive(Debug, Default, Serialize)]
pub struct Compared {
    /// `7.2, simulated`, or the name of a run on a real kernel.
    pub kernel: String,
    /// Calls that were made.
    pub calls: usize,
    /// Differences that are known.
    pub known: usize,
    /// The others.
    pub differences: Vec<Difference>,
    /// Entries of known.toml that no difference has matched.
    pub stale: Vec<String>,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct Judgement {
    /// A row for each kernel.
    pub kernels: Vec<Compared>,
    /// Scripts that break or vary, answers that are others than before, unknown differences, entries without one.
    pub problems: Vec<String>,
    /// The page of the documentation.
    pub page: String,
}

/// Judges `runs`.
///
/// # Errors
/// When a file cannot be read or written.
pub fn judge(runs: &Runs) -> Result<Judgement> {
    let (mut judgement, mut found) = (Judgement::default(), BTreeMap::new());
    let mut seen: Seen = read_json(&runs.folder, "seen.json")?;
    let checked_in: BTreeMap<String, Answers> = read_json(&runs.folder, "answers.json")?;
    for run in &runs.simulated {
        let (name, records) = (&run.name, run.records()?);
        let now = answers(&for_anybody(&records));
        judgement.problems.extend(broken(&records).map(|what| format!("{name}: {what}")));
        if !runs.write {
            let before = checked_in.get(name).cloned().unwrap_or_default();
            let changes = changes(&before, &now);
            judgement.problems.extend(changes.iter().map(|change| format!("{name}: answers.json: {change}")));
        }
        found.insert(name.clone(), now);
        if let Some(again) = runs.again.iter().find(|again| again.name == *name) {
            let varies = differences(&records, &again.records()?);
            judgement.problems.extend(varies.iter().map(|varies| format!("{name} varies: {varies}")));
            let kernel = name.split(' ').next().unwrap_or(name);
            judgement.kernels.push(Compared {
                kernel: format!("{kernel}, simulated"),
                calls: records.len(),
                ..Compared::default()
            });
            seen.simulated.insert(kernel.to_owned(), Run::of(&for_anybody(&records)));
        }
    }
    let known = known(&runs.folder)?;
    for run in &runs.real {
        let (name, records) = (&run.name, run.records()?);
        let like = runs.like.iter().find(|like| like.name == *name);
        let simulated = like.with_context(|| format!("{name} has no simulated run to compare with"))?.records()?;
        judgement.problems.extend(broken(&records).map(|what| format!("{name}: {what}")));
        let judged = known.judge(name, differences(&simulated, &records));
        judgement.kernels.push(Compared {
            kernel: name.clone(),
            calls: records.len(),
            known: judged.known.len(),
            differences: judged.unknown,
            stale: judged.stale.iter().map(|entry| entry.name()).collect(),
        });
        seen.real.insert(name.clone(), Run::of(&records));
    }
    if runs.write {
        write_json(&runs.folder, "seen.json", &seen)?;
        write_json(&runs.folder, "answers.json", &found)?;
    }
    for Compared { kernel, differences, stale, .. } in &judgement.kernels {
        // Script, step, call: what: simulated | real.
        judgement.problems.extend(differences.iter().map(|difference| format!("{kernel}: {difference}")));
        judgement.problems.extend(stale.iter().map(|name| format!("{kernel}: known, but no longer observed: {name}")));
    }
    judgement.page = seen.page();
    Ok(judgement)
}

/// What a machine has answered; errors if that is nothing.
fn records(name: &str, text: &str) -> Result<Vec<Record>> {
    let records = record::read(text).map_err(|error| anyhow!("the run on {name}: {error}"))?;
    ensure!(!records.is_empty(), "the run on {name} has no record of a call");
    Ok(records)
}

fn known(folder: &Path) -> Result<Known> {
    let file = folder.join("known.toml");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Known::parse(&text).map_err(|error| anyhow!("{}: {error}", file.display()))
}

fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T> {
    let path = folder.join(name);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not what `--write` writes", path.display()))
}

fn write_json(folder: &Path, name: &str, value: &impl Serialize) -> Result<()> {
    let (path, text) = (folder.join(name), serde_json::to_string_pretty(value)? + "\n");
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// What does not depend on who runs it: only the super-user may set something.
fn for_anybody(records: &[Record]) -> Vec<Record> {
    records.iter().filter(|record| !record.script.starts_with("state: ")).cloned().collect()
}

/// Scripts that did not end by themselves.
fn broken(records: &[Record]) -> impl Iterator<Item = String> + '_ {
    let ends = records.iter().filter(|record| record.call == BROKEN);
    ends.map(|record| format!("the script `{}` {}", record.script, record.result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_have_an_equals_sign() {
        let RunFile { name, file } = RunFile::read("7.2 addresses=iova=/tmp/16.jsonl").unwrap();
        assert_eq!((&*name, &*file), ("7.2 addresses=iova", Path::new("/tmp/16.jsonl")));
        assert!(RunFile::read("7.2").is_err());
    }

    #[test]
    fn scripts_that_break_are_named() {
        let line = r#"{"script":"bo: sizes","step":9,"call":"the script","result":"did not end in time"}"#;
        let records = records("a machine", line).unwrap();
        assert_eq!(broken(&records).collect::<Vec<_>>(), ["the script `bo: sizes` did not end in time"]);
        assert!(super::records("a machine", "").unwrap_err().to_string().contains("no record"));
    }

    #[test]
    fn what_is_checked_in_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        known(folder).unwrap();
        read_json::<Seen>(folder, "seen.json").unwrap();
        let answers: BTreeMap<String, Answers> = read_json(folder, "answers.json").unwrap();
        assert!(!answers.is_empty());
    }

    #[test]
    fn what_differs_from_before_varies_or_has_no_reason_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).unwrap();
            RunFile { name: "7.2 aie2p".to_owned(), file: folder.path().join(name) }
        };
        let line = |result: &str| format!(r#"{{"script":"a","step":1,"call":"CREATE_BO","result":"{result}"}}"#);
        let [ok, other] = [("ok", "ok"), ("other", "EINVAL")].map(|(name, result)| file(name, &line(result)));
        for (name, text) in [("seen.json", "{}"), ("answers.json", "{}"), ("known.toml", "")] {
            file(name, text);
        }
        let runs = |again: &RunFile, real: &RunFile, write| Runs {
            simulated: vec![ok.clone()],
            again: vec![again.clone()],
            real: vec![real.clone()],
            like: vec![ok.clone()],
            write,
            folder: folder.path().to_owned(),
        };
        let first = judge(&runs(&other, &other, false)).unwrap();
        assert!(first.problems[0].contains("answers.json: `a`: none | ok"), "{:?}", first.problems);
        assert!(first.problems[1].contains("7.2 aie2p varies"), "{:?}", first.problems);
        assert_eq!(first.kernels.iter().map(|kernel| kernel.differences.len()).collect::<Vec<_>>(), [0, 1]);
        judge(&runs(&ok, &ok, true)).unwrap();
        let second = judge(&runs(&ok, &ok, false)).unwrap();
        assert!(second.problems.is_empty() && second.kernels[1].differences.is_empty(), "{second:?}");
        assert!(second.page.contains("CREATE_BO"));
    }
}
