//! What a token and a dispatch cost at the kernel, measured on the simulated kernel device.
//!
//! For a token two runs are compared that differ only in the number of tokens they decode. For a dispatch a small program is run
//! through the HAL, and where there is a runtime below twice with its own functions: with as many dispatches for a doorbell, and
//! with one.

use crate::build;
use crate::difference::per_piece;
use crate::generation::{DeviceRun, Request};
use crate::output::{self, Report};
use crate::process;
use crate::session::{Options, Session};
use crate::simulation::KernelReport;
use crate::stats::Counters;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const PROMPT: &str = "The three states of matter are";
/// Tokens of the shorter and the longer run.
const TOKENS: (usize, usize) = (16, 48);
const LIMIT: Duration = Duration::from_secs(1800);
const PACKAGE: &str = "dispatch-cost";
/// The ways to dispatch: what is printed, the program's word for it, and the dispatches for a doorbell.
const WAYS: [(&str, &str, u32); 3] = [
    ("HAL, chains of 32", "hal", 32),
    ("runtime's functions, chains of 32", "plain", 32),
    ("runtime's functions, a doorbell each", "plain", 1),
];

/// The only kernel on which ROCR 7.2.4 dispatches on its own: it waits with WAIT_CMD.
const KERNEL_OF_ROCR: &str = "legacy";

type Count = fn(&Decoded) -> f64;

/// What is counted of a run, beside kernel calls and buffer objects.
const COUNTS: [(&str, Count); 7] = [
    (DOORBELLS, |run| run.kernel.doorbells as f64),
    (COMMANDS, |run| run.kernel.commands as f64),
    (CONTEXTS, |run| run.kernel.contexts_created as f64),
    ("context switches", |run| run.kernel.context_switches as f64),
    ("bytes written back", |run| run.counters.bytes_flushed as f64),
    ("bytes invalidated", |run| run.counters.bytes_invalidated as f64),
    (DEVICE_MS, |run| run.kernel.virtual_ns as f64 / 1e6),
];
const DOORBELLS: &str = "doorbells";
const COMMANDS: &str = "commands in them";
const CONTEXTS: &str = "contexts created";
const DEVICE_MS: &str = "ms of the device's own time";
const CALLS: &str = "kernel calls";

#[derive(Debug, Serialize)]
pub struct KernelCosts {
    /// Per decoded token after the warm-up, by name.
    pub token: BTreeMap<String, f64>,
    /// The least doorbells the limits allow for one: a chain ends at a limit of the generation, and where the host has to
    /// compute in between. Counted on the simulated device without ROCR, which has the same limits.
    pub least_doorbells: f64,
    pub dispatch: Vec<DispatchCosts>,
    /// Host time of a dispatch through the HAL, as a multiple of the runtime's functions with the same chains; `None` without a
    /// runtime.
    pub hal_to_plain: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct DispatchCosts {
    pub way: &'static str,
    /// Dispatches for a doorbell.
    pub chain: u32,
    /// Nanoseconds on the host, the kernel's work on this CPU included.
    pub ns: f64,
    /// The same in the fastest round.
    pub fastest_ns: f64,
    pub calls: f64,
    /// Contexts made, for a doorbell.
    pub contexts_per_doorbell: f64,
    /// Microseconds of the device's own time.
    pub virtual_us: f64,
}

#[derive(Deserialize)]
struct Printed {
    ns_per_dispatch: f64,
    fastest_ns_per_dispatch: f64,
}

impl KernelCosts {
    /// Measures on the simulated kernel device of `session`; `None` if it has none.
    pub fn measure(session: &Session, model: &Path, threads: usize, options: &Options) -> Result<Option<Self>> {
        let Some(simulation) = &session.simulation else { return Ok(None) };
        let run = |tokens| -> Result<Decoded> {
            let run = decode(session, model, threads, tokens)?;
            let counters = run.device()?.counters;
            Ok(Decoded { counters, kernel: run.kernel.context("the session has a simulated kernel device")? })
        };
        // What the simulated device without ROCR takes for the same run.
        let chains = |tokens| -> Result<f64> {
            Ok(decode(&session.on_mock(), model, threads, tokens)?.device()?.counters.chains as f64)
        };
        let tokens = TOKENS.1 - TOKENS.0;
        let least_doorbells = (chains(TOKENS.1)? - chains(TOKENS.0)?) / tokens as f64;
        let mut token = per_piece(&run(TOKENS.0)?.counts(), &run(TOKENS.1)?.counts(), tokens);
        token.retain(|_, count| *count != 0.0);
        let program = build::program(PACKAGE, options.offline)?;
        let ways = if simulation.has_runtime() { &WAYS[..] } else { &WAYS[..1] };
        let dispatch = ways
            .iter()
            .map(|way| DispatchCosts::measure(session, &program, way).with_context(|| way.0))
            .collect::<Result<Vec<_>>>()?;
        let hal_to_plain = dispatch.get(1).map(|plain| dispatch[0].ns / plain.ns);
        Ok(Some(Self { token, least_doorbells, dispatch, hal_to_plain }))
    }

    pub fn report(&self, report: &mut Report) -> Result<()> {
        let count = |name: &str| self.token.get(name).copied().unwrap_or_default();
        let mut table = output::table(&["at the kernel, for a decoded token", "#number"]);
        table.add_row(["doorbells, at least", &format!("{:.2}", self.least_doorbells)]);
        for (name, number) in &self.token {
            table.add_row([name, &format!("{number:.2}")]);
        }
        report.line(table);
        report.rows(
            "dispatch",
            &self.dispatch,
            &[
                ("a dispatch", |way| way.way.to_owned()),
                ("#host ns", |way| format!("{:.0}", way.ns)),
                ("#fastest", |way| format!("{:.0}", way.fastest_ns)),
                ("#kernel calls", |way| format!("{:.2}", way.calls)),
                ("#contexts per doorbell", |way| format!("{:.2}", way.contexts_per_doorbell)),
                ("#device us", |way| format!("{:.1}", way.virtual_us)),
            ],
        )?;
        let mut table = output::table(&["a decoded token", "#doorbells", "#contexts", "#kernel calls", "#device ms"]);
        let mut row = |name: &str, numbers: [f64; 4]| {
            table.add_row([name.to_owned()].into_iter().chain(numbers.map(|number| format!("{number:.1}"))));
        };
        row("HAL", [DOORBELLS, CONTEXTS, CALLS, DEVICE_MS].map(count));
        if let Some(each) = self.dispatch.iter().find(|way| way.chain == 1) {
            // The model cannot be run this way: after 255 contexts ROCR 7.2.4 takes wrong PDIs. So it is what its dispatches
            // cost above.
            let costs = [1.0, each.contexts_per_doorbell, each.calls, each.virtual_us / 1000.0];
            row("its dispatches with a doorbell each, at the cost above", costs.map(|cost| cost * count(COMMANDS)));
        }
        report.line(table);
        if let Some(ratio) = self.hal_to_plain {
            report.line(format!(
                "host time of a dispatch through the HAL: {ratio:.2} times that of the runtime's functions, chains of 32 on both \
                 sides on kernel {KERNEL_OF_ROCR}, the simulated kernel device's share included"
            ));
        }
        report.field("kernel", self)
    }
}

/// Decodes so many tokens, whatever the model says of the end.
fn decode(session: &Session, model: &Path, threads: usize, tokens: usize) -> Result<DeviceRun> {
    let request = Request {
        model: model.to_owned(),
        prompt: PROMPT.to_owned(),
        tokens,
        threads: Some(threads),
        flash_attention: false,
    };
    request.on_device(session, |command| {
        command.arg("--ignore-eos");
    })
}

/// A run, as the kernel saw it and as the driver counted it.
struct Decoded {
    kernel: KernelReport,
    counters: Counters,
}

impl Decoded {
    fn counts(&self) -> BTreeMap<String, f64> {
        let counts = COUNTS.iter().map(|(name, count)| ((*name).to_owned(), count(self)));
        let calls = self.kernel.calls.iter().map(|(name, calls)| (format!("{CALLS}: {name}"), calls.count as f64));
        let bos = self
            .kernel
            .bos_created
            .iter()
            .map(|(kind, count)| (format!("buffer objects created: {kind}"), *count as f64));
        let all = [(CALLS.to_owned(), self.kernel.total_calls() as f64)];
        counts.chain(calls).chain(bos).chain(all).collect()
    }
}

impl DispatchCosts {
    fn measure(session: &Session, program: &Path, (way, word, chain): &(&'static str, &str, u32)) -> Result<Self> {
        let simulation = session.simulation.as_ref().context("there is a simulated kernel device")?;
        let on_its_kernel = simulation.has_runtime().then(|| simulation.on_kernel(KERNEL_OF_ROCR));
        let simulation = on_its_kernel.as_ref().unwrap_or(simulation);
        let mut command = simulation.command(&session.testbed, program);
        command.args([word, "--chain", &chain.to_string(), "--device", &session.device]);
        let printed: Printed = process::run(&mut command, LIMIT)?.json(PACKAGE)?;
        let report = simulation.report()?;
        if *word == "hal" {
            // Without the HAL's driver ROCR leaves a mapping of every allocation behind.
            simulation.nothing_open(&report)?;
        }
        let commands = report.commands.max(1) as f64;
        Ok(Self {
            way,
            chain: *chain,
            ns: printed.ns_per_dispatch,
            fastest_ns: printed.fastest_ns_per_dispatch,
            calls: report.total_calls() as f64 / commands,
            contexts_per_doorbell: report.contexts_created as f64 / report.doorbells.max(1) as f64,
            virtual_us: report.virtual_ns as f64 / 1e3 / commands,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_of_a_run_has_a_name() {
        let kernel: KernelReport = serde_json::from_str(&crate::simulation::tests::sample(0)).unwrap();
        let counters = Counters { bytes_flushed: 4096, ..Counters::default() };
        let counts = Decoded { kernel, counters }.counts();
        assert_eq!((counts[DOORBELLS], counts[CONTEXTS], counts[DEVICE_MS]), (3.0, 1.0, 7.0));
        assert_eq!((counts["kernel calls: EXEC_CMD"], counts["buffer objects created: CMD"]), (3.0, 3.0));
        assert_eq!((counts[CALLS], counts["bytes written back"]), (7.0, 4096.0));
    }
}
