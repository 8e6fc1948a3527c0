//! What a token and a dispatch cost at the kernel, measured on the simulated kernel device.
//!
//! For a token two runs are compared that differ only in the number of tokens they decode: what they share, from loading
//! the model to warming up, cancels out, and what is left is the steady state. For a dispatch a small program is run
//! through the HAL, and where there is a runtime below twice with its own functions: with as many dispatches for a doorbell, and
//! with one.

use crate::build;
use crate::generation::{self, Request, StatsFile};
use crate::output;
use crate::process;
use crate::session::{Options, Session};
use crate::simulation::KernelReport;
use crate::stats::Stats;
use aie_hal::Counters;
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

/// The only kernel on which ROCR 7.2.4 dispatches by itself: it waits with WAIT_CMD.
const KERNEL_OF_ROCR: &str = "legacy";

/// Both.
#[derive(Debug, Serialize)]
pub struct KernelCosts {
    /// Per decoded token.
    pub token: TokenCosts,
    /// Per dispatch, by way.
    pub dispatch: Vec<DispatchCosts>,
    /// Host time of a dispatch through the HAL, as a multiple of the runtime's functions with the same chains; `None` without a
    /// runtime.
    pub hal_to_plain: Option<f64>,
}

/// A decoded token, after the warm-up.
#[derive(Debug, Serialize)]
pub struct TokenCosts {
    /// Kernel calls by name.
    pub calls: BTreeMap<String, f64>,
    /// Doorbells: submissions of a chain to the kernel.
    pub doorbells: f64,
    /// The least doorbells the limits allow: a chain ends at a limit of the generation, and where the host has to compute
    /// in between. Counted on the simulated device without ROCR, which has the same limits.
    pub least_doorbells: f64,
    /// Commands in them.
    pub commands: f64,
    /// Hardware contexts made.
    pub contexts_created: f64,
    /// Changes of context.
    pub context_switches: f64,
    /// Bytes whose cache lines were written back.
    pub bytes_written_back: f64,
    /// Bytes whose cache lines were invalidated.
    pub bytes_invalidated: f64,
    /// Buffer objects made, by type.
    pub bos_created: BTreeMap<String, f64>,
    /// Milliseconds of the device's own time.
    pub virtual_ms: f64,
}

/// One way to dispatch.
#[derive(Debug, Serialize)]
pub struct DispatchCosts {
    /// Which.
    pub way: &'static str,
    /// Dispatches for a doorbell.
    pub chain: u32,
    /// Nanoseconds on the host, the kernel's work on this CPU included.
    pub ns: f64,
    /// The same in the fastest round.
    pub fastest_ns: f64,
    /// Kernel calls.
    pub calls: f64,
    /// Contexts made, for a doorbell.
    pub contexts_per_doorbell: f64,
    /// Microseconds of the device's own time.
    pub virtual_us: f64,
}

/// What the program prints.
#[derive(Deserialize)]
struct Printed {
    ns_per_dispatch: f64,
    fastest_ns_per_dispatch: f64,
}

impl KernelCosts {
    /// Measures on the simulated kernel device of `session`; `None` if it has none.
    pub fn measure(session: &Session, model: &Path, threads: usize, options: &Options) -> Result<Option<Self>> {
        let Some(simulation) = &session.simulation else { return Ok(None) };
        let run = |tokens| decode(session, model, threads, tokens);
        let chains = |tokens| least_chains(session, model, threads, tokens);
        let tokens = TOKENS.1 - TOKENS.0;
        let least = (chains(TOKENS.1)? - chains(TOKENS.0)?) / tokens as f64;
        let token = TokenCosts::between(&run(TOKENS.0)?, &run(TOKENS.1)?, tokens, least);
        let program =
            build::cargo(&["build", "--release", "--package", PACKAGE], options.offline)?.executable("bin", PACKAGE)?;
        let ways = if simulation.has_runtime() { &WAYS[..] } else { &WAYS[..1] };
        let dispatch = ways
            .iter()
            .map(|way| DispatchCosts::measure(session, &program, way).with_context(|| way.0))
            .collect::<Result<Vec<_>>>()?;
        let hal_to_plain = dispatch.get(1).map(|plain| dispatch[0].ns / plain.ns);
        Ok(Some(Self { token, dispatch, hal_to_plain }))
    }

    /// Prints the tables.
    pub fn print(&self) {
        let token = &self.token;
        let mut table = output::table(&["at the kernel, for a decoded token", "#number"]);
        let numbers = [
            ("doorbells", token.doorbells),
            ("the least the limits allow", token.least_doorbells),
            ("commands in them", token.commands),
            ("contexts made", token.contexts_created),
            ("context switches", token.context_switches),
            ("bytes written back", token.bytes_written_back),
            ("bytes invalidated", token.bytes_invalidated),
            ("ms of the device's own time", token.virtual_ms),
        ];
        let bos = token.bos_created.iter().map(|(kind, count)| (format!("buffer objects made: {kind}"), *count));
        let calls = token.calls.iter().map(|(name, count)| (format!("kernel calls: {name}"), *count));
        for (name, number) in
            numbers.map(|(name, number)| (name.to_owned(), number)).into_iter().chain(bos).chain(calls)
        {
            table.add_row([name, format!("{number:.2}")]);
        }
        println!("{table}");
        let mut table = output::table(&[
            "a dispatch",
            "#host ns",
            "#fastest",
            "#kernel calls",
            "#contexts per doorbell",
            "#device us",
        ]);
        for way in &self.dispatch {
            table.add_row([
                way.way.to_owned(),
                format!("{:.0}", way.ns),
                format!("{:.0}", way.fastest_ns),
                format!("{:.2}", way.calls),
                format!("{:.2}", way.contexts_per_doorbell),
                format!("{:.1}", way.virtual_us),
            ]);
        }
        println!("{table}");
        let mut table = output::table(&["a decoded token", "#doorbells", "#contexts", "#kernel calls", "#device ms"]);
        let row = |name: &str, numbers: [f64; 4]| {
            std::iter::once(name.to_owned()).chain(numbers.map(|number| format!("{number:.1}"))).collect::<Vec<_>>()
        };
        let calls: f64 = token.calls.values().sum();
        table.add_row(row("HAL", [token.doorbells, token.contexts_created, calls, token.virtual_ms]));
        if let Some(each) = self.dispatch.iter().find(|way| way.chain == 1) {
            // The model cannot be run this way: after 255 contexts ROCR 7.2.4 takes wrong PDIs. So it is what its dispatches
            // cost above.
            let times = token.commands;
            let numbers =
                [times, each.contexts_per_doorbell * times, each.calls * times, each.virtual_us * times / 1000.0];
            table.add_row(row("its dispatches with a doorbell each, at the cost above", numbers));
        }
        println!("{table}");
        if let Some(ratio) = self.hal_to_plain {
            println!(
                "host time of a dispatch through the HAL: {ratio:.2} times that of the runtime's functions, chains of 32 on both \
                 sides on kernel {KERNEL_OF_ROCR}, the simulated kernel device's share included"
            );
        }
    }
}

/// Decodes so many tokens, whatever the model says of the end.
fn decode(session: &Session, model: &Path, threads: usize, tokens: usize) -> Result<Decoded> {
    let file = StatsFile::new()?;
    generate(session, model, threads, tokens, Some(&file.path()))?;
    let kernel = session.kernel_report()?.context("the session has a simulated kernel device")?;
    Ok(Decoded { kernel, counters: Stats::read(&file.path())?.used()?.counters })
}

/// A run, as the kernel saw it and as the driver counted it.
#[derive(Clone)]
struct Decoded {
    kernel: KernelReport,
    counters: Counters,
}

/// Chains the simulated device without ROCR takes for the same run.
fn least_chains(session: &Session, model: &Path, threads: usize, tokens: usize) -> Result<f64> {
    let file = StatsFile::new()?;
    generate(&session.on_mock(), model, threads, tokens, Some(&file.path()))?;
    Ok(Stats::read(&file.path())?.used()?.counters.chains as f64)
}

fn generate(session: &Session, model: &Path, threads: usize, tokens: usize, stats: Option<&Path>) -> Result<()> {
    let request = Request { model: model.to_owned(), prompt: PROMPT.to_owned(), tokens, threads: Some(threads) };
    let mut command = session.on_device("llama-completion", stats)?;
    command.arg("--ignore-eos");
    generation::require_success(&request.run(command, |_| ())?)
}

impl TokenCosts {
    /// What `longer` did more than `shorter`, for each of `tokens`.
    fn between(shorter: &Decoded, longer: &Decoded, tokens: usize, least_doorbells: f64) -> Self {
        let counted = |count: fn(&Counters) -> u64| {
            (count(&longer.counters) as f64 - count(&shorter.counters) as f64) / tokens as f64
        };
        let (bytes_written_back, bytes_invalidated) = (counted(|c| c.bytes_flushed), counted(|c| c.bytes_invalidated));
        let (shorter, longer) = (&shorter.kernel, &longer.kernel);
        let each = |shorter: u64, longer: u64| (longer as f64 - shorter as f64) / tokens as f64;
        let calls = longer.calls.iter().map(|(name, calls)| {
            let before = shorter.calls.get(name).map_or(0, |calls| calls.count);
            (name.clone(), each(before, calls.count))
        });
        let bos = longer.bos_created.iter().map(|(kind, count)| {
            (kind.clone(), each(shorter.bos_created.get(kind).copied().unwrap_or_default(), *count))
        });
        Self {
            calls: calls.filter(|(_, count)| *count != 0.0).collect(),
            doorbells: each(shorter.doorbells, longer.doorbells),
            least_doorbells,
            commands: each(shorter.commands, longer.commands),
            contexts_created: each(shorter.contexts_created, longer.contexts_created),
            context_switches: each(shorter.context_switches, longer.context_switches),
            bytes_written_back,
            bytes_invalidated,
            bos_created: bos.collect(),
            virtual_ms: each(shorter.virtual_ns, longer.virtual_ns) / 1e6,
        }
    }
}

impl DispatchCosts {
    fn measure(session: &Session, program: &Path, (way, word, chain): &(&'static str, &str, u32)) -> Result<Self> {
        let simulation = session.simulation.as_ref().context("there is a simulated kernel device")?;
        let on_its_kernel = simulation.has_runtime().then(|| simulation.on_kernel(KERNEL_OF_ROCR));
        let simulation = on_its_kernel.as_ref().unwrap_or(simulation);
        let mut command = simulation.command(&session.testbed, program);
        command.args([word, "--chain", &chain.to_string(), "--device", &session.device]);
        let finished = process::run(&mut command, LIMIT)?;
        anyhow::ensure!(finished.success(), "{PACKAGE}: {}\n{}", finished.describe(), finished.last_words(6));
        let printed: Printed = serde_json::from_str(&finished.stdout)
            .with_context(|| format!("{PACKAGE} printed no JSON but {:?}", finished.stdout))?;
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
    fn what_two_runs_share_cancels_out() {
        let kernel: KernelReport = serde_json::from_str(&crate::simulation::tests::sample(0)).unwrap();
        let shorter = Decoded { kernel, counters: Counters::default() };
        let mut longer = shorter.clone();
        longer.kernel.doorbells += 8;
        longer.kernel.virtual_ns += 12_000_000;
        longer.kernel.calls.get_mut("EXEC_CMD").unwrap().count += 8;
        longer.counters.bytes_flushed = 4096;
        let costs = TokenCosts::between(&shorter, &longer, 4, 2.0);
        assert_eq!((costs.doorbells, costs.contexts_created, costs.virtual_ms), (2.0, 0.0, 3.0));
        assert_eq!(costs.calls, BTreeMap::from([("EXEC_CMD".to_owned(), 2.0)]));
        assert_eq!((costs.bytes_written_back, costs.bytes_invalidated), (1024.0, 0.0));
        assert_eq!(costs.bos_created["CMD"], 0.0);
    }
}
