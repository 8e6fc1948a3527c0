//! The kernel calls of one dispatch and of a list of dispatches: XRT's and ours, for the same kernel device.

use super::{LIMIT, Machine, Stage, told};
use crate::build;
use crate::judges::calls::Calls;
use crate::judges::xrt_job::LIST;
use crate::output;
use crate::process;
use crate::session::Options;
use anyhow::{Result, ensure};
use comfy_table::Table;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Our program that dispatches through the HAL.
const OURS: &str = "dispatch-cost";
/// Pieces of work in the shorter run and in the longer one. Even, for the program's two buffers.
const PIECES: [u32; 2] = [20, 120];

/// Costs on one machine.
#[derive(Debug, Serialize)]
pub struct Costs {
    generation: String,
    kernel: String,
    /// Dispatches of a list.
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
    /// Measures them, ours with [`program`].
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

/// Builds our program.
pub fn program(options: &Options) -> Result<PathBuf> {
    build::cargo(&["build", "--release", "--package", OURS], options.offline)?.executable("bin", OURS)
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
    let finished = process::run(&mut command, LIMIT)?;
    ensure!(finished.success(), "{OURS}: {}", told(&finished));
    Ok(())
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
}
