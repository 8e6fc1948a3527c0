//! The kernel calls of one dispatch and of a list of dispatches: XRT's and ours, for the same kernel device.

use super::job::LIST;
use super::{LIMIT, Machine, Stage};
use crate::difference::per_piece;
use crate::session::Options;
use crate::{build, output, process};
use anyhow::{Context, Result, bail, ensure};
use comfy_table::Table;
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Our program that dispatches through the HAL.
const OURS: &str = "dispatch-cost";
/// Pieces of work in the shorter run and in the longer one. Even, for the program's two buffers.
const PIECES: [u32; 2] = [20, 120];

#[derive(Debug, Serialize)]
pub struct Costs {
    generation: String,
    kernel: String,
    list: u32,
    dispatch: Pair,
    runlist: Pair,
}

/// The same work both ways.
#[derive(Debug, Serialize)]
struct Pair {
    xrt: Calls,
    ours: Calls,
}

impl Costs {
    pub fn measure(stage: &Stage, machine: &Machine, kernels: &[serde_json::Value], program: &Path) -> Result<Self> {
        let [less, more] = PIECES;
        let single = |count: u32| json!({"kernels": kernels, "part": "single", "count": count});
        let list = |count: u32| json!({"kernels": kernels, "part": "runlist", "count": LIST, "repetitions": count});
        let stream = |name: &str, count: u32| stage.work.path().join(format!("{name}-{count}.calls"));
        for count in PIECES {
            stage.run_part(machine, &single(count), Some(&stream("single", count)))?;
            stage.run_part(machine, &list(count), Some(&stream("list", count)))?;
        }
        let between = |name: &str| Calls::between(&stream(name, less), &stream(name, more), more - less);
        let xrt = [between("single")?, between("list")?];
        let mut ours = Vec::new();
        for (name, chain) in [("our-single", 1), ("our-list", LIST)] {
            for count in PIECES {
                ours_with(stage, machine, program, chain, count, &stream(name, count))?;
            }
            ours.push(between(name)?);
        }
        let mut pairs = xrt.into_iter().zip(ours).map(|(xrt, ours)| Pair { xrt, ours });
        let (Some(dispatch), Some(runlist)) = (pairs.next(), pairs.next()) else { unreachable!("two were measured") };
        let Machine { generation, kernel } = machine.clone();
        Ok(Self { generation, kernel, list: LIST, dispatch, runlist })
    }

    /// Where ours are more than XRT's.
    ///
    /// Waits are compared with the submissions: how many of them find their submission ended already, and so are not made, depends
    /// on how fast the kernel device is at that moment.
    pub fn problems(&self) -> Vec<String> {
        let place = format!("{} on Linux {}", self.generation, self.kernel);
        let list = format!("a list of {}", self.list);
        let mut problems = Vec::new();
        for (what, Pair { xrt, ours }) in [("a dispatch", &self.dispatch), (list.as_str(), &self.runlist)] {
            let (mine, theirs) = (ours.besides_waits(), xrt.besides_waits());
            if mine > theirs {
                problems
                    .push(format!("{place}: {what} costs us {mine:.2} kernel calls besides waits, XRT {theirs:.2}"));
            }
            let (waits, submissions) = (ours.waits(), ours.submissions());
            if waits > submissions {
                problems.push(format!("{place}: {what} costs us {waits:.2} waits for {submissions:.2} submissions"));
            }
        }
        problems
    }
}

pub fn program(options: &Options) -> Result<PathBuf> {
    build::program(OURS, options.offline)
}

/// Runs our program: so many submissions of so many dispatches, each waited for.
fn ours_with(
    stage: &Stage,
    machine: &Machine,
    program: &Path,
    chain: u32,
    submissions: u32,
    record: &PathBuf,
) -> Result<()> {
    let mut command = stage.testbed.command_with(program, Some(&stage.preload));
    machine.set(&mut command);
    command
        .env("AIE_HAL_LIBHSA_PATH", stage.testbed.rocr()?)
        .env("AMDXDNA_SIM_RECORD", record)
        .env("RUST_BACKTRACE", "0")
        .args(["hal", "--warm-up", "0", "--chain", &chain.to_string(), "--rounds", &submissions.to_string()]);
    process::run(&mut command, LIMIT)?.ensure(OURS)
}

/// A table with a row for each kernel call.
pub fn table(costs: &[Costs]) -> Table {
    let list = format!("#XRT, list of {LIST}");
    let mut table = output::table(&["generation", "kernel", "call", "#XRT, dispatch", "#ours", &list, "#ours"]);
    for costs in costs {
        let columns = [&costs.dispatch.xrt, &costs.dispatch.ours, &costs.runlist.xrt, &costs.runlist.ours];
        let names: BTreeSet<&String> = columns.iter().flat_map(|calls| calls.0.keys()).collect();
        let place = [costs.generation.clone(), costs.kernel.clone()];
        let shown = |count: f64| if count == 0.0 { "-".to_owned() } else { format!("{count:.2}") };
        for name in names {
            let counts = columns.map(|calls| shown(calls.0.get(name).copied().unwrap_or_default()));
            table.add_row(place.iter().cloned().chain([name.clone()]).chain(counts));
        }
        let totals = columns.map(|calls| shown(calls.total()));
        table.add_row(place.into_iter().chain(["all".to_owned()]).chain(totals));
    }
    table
}

/// Calls that wait for a submission. A program makes none when it sees that the submission has ended already, so their number
/// depends on how the machine's processors are used.
const WAITS: [&str; 3] = ["WAIT_CMD", "SYNCOBJ_WAIT", "SYNCOBJ_TIMELINE_WAIT"];
const SUBMIT: &str = "EXEC_CMD";

/// Calls of one piece of work, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Calls(pub BTreeMap<String, f64>);

impl Calls {
    pub fn total(&self) -> f64 {
        self.0.values().sum()
    }

    pub fn submissions(&self) -> f64 {
        self.0.get(SUBMIT).copied().unwrap_or_default()
    }

    pub fn waits(&self) -> f64 {
        WAITS.iter().filter_map(|name| self.0.get(*name)).sum()
    }

    /// How many of them do not.
    pub fn besides_waits(&self) -> f64 {
        self.0.iter().filter(|(name, _)| !WAITS.contains(&name.as_str())).map(|(_, count)| count).sum()
    }

    /// What each of `pieces` more pieces of work costs: the difference of the streams of two runs.
    pub fn between(less: &Path, more: &Path, pieces: u32) -> Result<Self> {
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path);
            text.with_context(|| format!("the simulated kernel device recorded no calls in {}", path.display()))
        };
        Self::difference(&count(&read(less)?), &count(&read(more)?), pieces)
    }

    fn difference(less: &BTreeMap<String, f64>, more: &BTreeMap<String, f64>, pieces: u32) -> Result<Self> {
        ensure!(pieces > 0, "a difference of no work");
        let mut calls = per_piece(less, more, pieces as usize);
        // A run that finds most of its submissions ended already makes fewer waits than a shorter one that finds none.
        calls.retain(|name, count| *count != 0.0 && (*count > 0.0 || !WAITS.contains(&name.as_str())));
        match calls.iter().find(|(_, count)| **count < 0.0) {
            Some((name, _)) => bail!("{name} is called less often for more work"),
            None => Ok(Self(calls)),
        }
    }
}

/// Calls by name. A line is `NAME DETAILS = RESULT`.
fn count(stream: &str) -> BTreeMap<String, f64> {
    let mut calls = BTreeMap::new();
    for name in stream.lines().filter_map(|line| line.split_whitespace().next()) {
        *calls.entry(name.to_owned()).or_default() += 1.0;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(submissions: f64, waits: f64) -> Calls {
        Calls([("EXEC_CMD".to_owned(), submissions), ("WAIT_CMD".to_owned(), waits)].into())
    }

    #[test]
    fn only_more_calls_of_ours_are_a_problem() {
        let mut costs = Costs {
            generation: "aie2p".to_owned(),
            kernel: "6.18".to_owned(),
            list: LIST,
            dispatch: Pair { xrt: calls(1.0, 1.18), ours: calls(1.0, 1.0) },
            runlist: Pair { xrt: calls(1.0, 1.0), ours: calls(1.0, 0.2) },
        };
        assert!(costs.problems().is_empty());
        costs.runlist.ours = calls(1.5, 1.5);
        let expected = "aie2p on Linux 6.18: a list of 24 costs us 1.50 kernel calls besides waits, XRT 1.00";
        assert_eq!(costs.problems(), [expected]);
        costs.runlist.ours = calls(1.0, 2.0);
        assert!(costs.problems()[0].contains("2.00 waits for 1.00 submissions"));
    }

    #[test]
    fn the_difference_is_what_the_work_costs() {
        let less = count("OPEN = ok\nEXEC_CMD 1 = ok\nWAIT = ok\n");
        let more = count("OPEN = ok\nEXEC_CMD 1 = ok\nWAIT = ok\nEXEC_CMD 1 = ok\nWAIT = ok\nWAIT = EINTR\n");
        let calls = Calls::difference(&less, &more, 1).unwrap();
        assert_eq!(calls.0, [("EXEC_CMD".to_owned(), 1.0), ("WAIT".to_owned(), 2.0)].into());
        assert_eq!(calls.total(), 3.0);
        assert_eq!(Calls::difference(&less, &more, 2).unwrap().total(), 1.5);
    }

    #[test]
    fn submissions_and_waits_are_distinguished() {
        let calls = ["EXEC_CMD", "WAIT_CMD", "SYNCOBJ_TIMELINE_WAIT", "SYNC_BO"].map(|name| (name.to_owned(), 1.5));
        let calls = Calls(calls.into());
        assert_eq!((calls.submissions(), calls.waits()), (1.5, 3.0));
        assert_eq!((calls.besides_waits(), calls.total()), (3.0, 6.0));
    }

    #[test]
    fn less_for_more_work_is_an_error() {
        let (less, more) = (count("A\nA\n"), count("A\n"));
        assert!(Calls::difference(&less, &more, 1).unwrap_err().to_string().contains("A is called less often"));
        assert!(Calls::difference(&more, &less, 0).is_err());
        let (waiting, not) = (count("EXEC_CMD\nWAIT_CMD\nWAIT_CMD\n"), count("EXEC_CMD\nEXEC_CMD\n"));
        let calls = Calls::difference(&waiting, &not, 1).unwrap();
        assert_eq!((calls.submissions(), calls.waits()), (1.0, 0.0));
    }
}
