//! The statistics file of `libggml-hsa.so` (`GGML_HSA_STATS`), version 1, and what the commands conclude from it.

use crate::output;
use anyhow::{Context, Result, bail};
use comfy_table::Table;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stats {
    version: u32,
    /// One entry per device, used or not.
    pub devices: Vec<DeviceStats>,
    #[serde(default)]
    pub store: Store,
}

/// Kernels by where they came from, for all devices together.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Store {
    pub embedded: u64,
    pub directory: u64,
    pub cache: u64,
    pub compiled: u64,
    pub failed: u64,
    /// Those that neither the library nor the kernel directory had.
    #[serde(default)]
    pub missed: Vec<serde_json::Value>,
}

impl Store {
    pub fn summary(&self) -> String {
        let sources = [
            (self.compiled, "compiled"),
            (self.cache, "from the cache"),
            (self.directory, "from the kernel directory"),
            (self.embedded, "built into the library"),
            (self.failed, "not available"),
        ];
        // Always said, because that it is none is what a second run is about.
        let named = sources.iter().filter(|(count, what)| *count > 0 || *what == "compiled");
        let parts: Vec<_> = named.map(|(count, what)| format!("{count} {what}")).collect();
        format!("kernels: {}", parts.join(", "))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceStats {
    /// The name ggml knows it by.
    pub name: String,
    pub uri: String,
    pub arch: String,
    pub counters: Counters,
    pub graphs: Graphs,
    pub weights: Weights,
    /// What ran where, per operation and shape.
    pub operations: Vec<Operation>,
    #[serde(default)]
    pub work: Work,
    /// Conversions of sources and results, which are host calls.
    #[serde(default)]
    pub conversions: Conversions,
    /// Dispatches that stand for several nodes.
    #[serde(default)]
    pub fusion: Fusion,
    /// The last graphs, oldest first.
    pub graph_log: Vec<GraphEntry>,
}

/// What the driver has counted since the device was opened, as `aie_hal::Counters` says it.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    pub submissions: u64,
    pub dispatches: u64,
    pub joined: u64,
    pub stream_bytes: u64,
    pub host_calls: u64,
    pub chains: u64,
    pub doorbells: u64,
    pub contexts_created: u64,
    pub context_switches: u64,
    pub bytes_copied: u64,
    pub bytes_flushed: u64,
    pub bytes_invalidated: u64,
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub peak_bytes: u64,
    pub virtual_ns: u64,
    pub bundles: u64,
}

/// The least share of the multiply-accumulates that has to be machine code, on the emulated array.
const LEAST_CODE: f64 = 0.95;

/// Dispatches and multiply-accumulates, by what did them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    pub code_dispatches: u64,
    /// Different PDIs of the kernels that are machine code.
    pub code_pdis: u64,
    pub reference_dispatches: u64,
    pub code_macs: u64,
    pub reference_macs: u64,
    pub host_macs: u64,
}

impl Work {
    /// The share of all multiply-accumulates that ran as machine code; 0 when there was none.
    pub fn code_share(&self) -> f64 {
        let all = self.code_macs + self.reference_macs + self.host_macs;
        self.code_macs as f64 / all.max(1) as f64
    }

    /// Whether enough ran as machine code on the emulated array to say that the result is that of machine code.
    pub fn mostly_code(&self) -> Result<()> {
        if self.code_share() < LEAST_CODE {
            bail!("too little ran as machine code, {:.0} % is needed: {}", 100.0 * LEAST_CODE, self.summary(0));
        }
        Ok(())
    }

    pub fn summary(&self, bundles: u64) -> String {
        format!(
            "machine code: {} dispatches of {} PDIs, {bundles} bundles, {:.2} % of the multiply-accumulates; reference kernels: {} \
             dispatches",
            self.code_dispatches,
            self.code_pdis,
            100.0 * self.code_share(),
            self.reference_dispatches
        )
    }
}

/// Graphs computed, and whether their command list was recorded again or replayed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Graphs {
    pub computed: u64,
    pub built: u64,
    pub replayed: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Weights {
    pub converted: u64,
    pub bytes: u64,
    pub cap_bytes: u64,
    pub refused: u64,
}

/// Conversions that ran as host calls.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Conversions {
    pub host_calls: u64,
    pub bytes: u64,
}

/// Fused dispatches, and the nodes they stand for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Fusion {
    pub dispatches: u64,
    pub nodes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Operation {
    pub op: String,
    /// The kernel's name.
    pub shape: String,
    /// Who made its kernel.
    #[serde(default)]
    pub kernel: Option<String>,
    /// How often it ran on the array.
    pub array: u64,
    /// How often of these as machine code.
    #[serde(default)]
    pub code: u64,
    pub host: u64,
    pub host_reason: Option<String>,
    /// Bytes of its tensors over all runs.
    pub bytes: u64,
    /// Multiply-accumulates over all runs.
    #[serde(default)]
    pub macs: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GraphEntry {
    pub nodes: u64,
    pub submissions: u64,
    pub allocations: u64,
    /// Whether a recorded command list was used again.
    pub replayed: bool,
}

impl Stats {
    /// Reads the file. An empty or missing one says that the library did not load or could not write it.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("the library wrote no statistics: cannot read {}", path.display()))?;
        if text.trim().is_empty() {
            bail!("the library left the statistics file {} empty: it ended before its exit handler", path.display());
        }
        let stats: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a statistics file of version 1", path.display()))?;
        if stats.version != 1 {
            bail!("{} has statistics version {}, this program reads version 1", path.display(), stats.version);
        }
        Ok(stats)
    }

    /// The one device that was used, judged by its computed graphs.
    pub fn used(&self) -> Result<&DeviceStats> {
        match self.devices.iter().filter(|device| device.operations_run() > 0).collect::<Vec<_>>()[..] {
            [device] => Ok(device),
            [] if self.devices.is_empty() => bail!("the library opened no device; its messages above say why"),
            [] => bail!("no operation ran on the device: llama.cpp kept the whole graph on the CPU"),
            _ => bail!("several devices were used where one was expected"),
        }
    }
}

impl DeviceStats {
    /// Operations that ran on the device, wherever.
    pub fn operations_run(&self) -> u64 {
        self.array() + self.host()
    }

    pub fn array(&self) -> u64 {
        self.operations.iter().map(|operation| operation.array).sum()
    }

    pub fn host(&self) -> u64 {
        self.operations.iter().map(|operation| operation.host).sum()
    }

    /// Dispatches of an operation as machine code, and as reference kernels.
    pub fn dispatches_of(&self, operation: &str) -> (u64, u64) {
        let of = self.operations.iter().filter(|found| found.op.eq_ignore_ascii_case(operation));
        of.fold((0, 0), |(code, reference), one| (code + one.code, reference + one.array - one.code))
    }

    /// Reasons that name a damaged kernel file: its operations ran on the host, which the user did not ask for.
    pub fn damaged_kernels(&self) -> Vec<&str> {
        let reasons = self.operations.iter().filter_map(|operation| operation.host_reason.as_deref());
        reasons.filter(|reason| reason.starts_with("kernel file ")).collect()
    }

    /// Operations, shapes added up: where they ran and why not on the array.
    pub fn operation_table(&self) -> Table {
        #[derive(Default)]
        struct Sum<'a> {
            array: u64,
            code: u64,
            host: u64,
            bytes: u64,
            shapes: u64,
            reasons: Vec<&'a str>,
        }
        let mut sums: BTreeMap<&str, Sum<'_>> = BTreeMap::new();
        for operation in &self.operations {
            let sum = sums.entry(&operation.op).or_default();
            sum.array += operation.array;
            sum.code += operation.code;
            sum.host += operation.host;
            sum.bytes += operation.bytes;
            sum.shapes += 1;
            if let Some(reason) = operation.host_reason.as_deref()
                && !sum.reasons.contains(&reason)
            {
                sum.reasons.push(reason);
            }
        }
        let columns =
            ["operation", "#shapes", "#on the array", "#as machine code", "#on the host", "#MB", "why on the host"];
        let mut table = output::table(&columns);
        for (name, sum) in sums {
            table.add_row([
                name.to_owned(),
                sum.shapes.to_string(),
                sum.array.to_string(),
                sum.code.to_string(),
                sum.host.to_string(),
                megabytes(sum.bytes),
                sum.reasons.join("; "),
            ]);
        }
        table
    }

    /// The device's totals, one line each.
    pub fn summary_table(&self) -> Table {
        let counters = &self.counters;
        let mut table = output::table(&["device", &format!("#{} ({})", self.uri, self.arch)]);
        let per_graph = counters.submissions as f64 / self.graphs.computed.max(1) as f64;
        let rows = [
            ("graphs computed", self.graphs.computed.to_string()),
            ("  of them replayed", self.graphs.replayed.to_string()),
            ("submissions", format!("{} ({per_graph:.2} per graph)", counters.submissions)),
            ("kernel dispatches", counters.dispatches.to_string()),
            ("  of them for several nodes", format!("{} ({} nodes)", self.fusion.dispatches, self.fusion.nodes)),
            ("  of them joined with another", counters.joined.to_string()),
            ("host calls", format!("{} (conversions {})", counters.host_calls, self.conversions.host_calls)),
            ("chains", counters.chains.to_string()),
            ("contexts created / switches", format!("{} / {}", counters.contexts_created, counters.context_switches)),
            ("weights converted", format!("{} ({} MB)", self.weights.converted, megabytes(self.weights.bytes))),
            ("device allocations", format!("{} (peak {} MB)", counters.allocations, megabytes(counters.peak_bytes))),
            ("time on the simulated clock", format!("{:.1} ms", counters.virtual_ns as f64 / 1e6)),
        ];
        for (name, value) in rows {
            table.add_row([name.to_owned(), value]);
        }
        table
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A file with one used device and `log` as its graph log.
    pub fn sample(log: &str) -> String {
        format!(
            r#"{{"version":1,"devices":[{{"name":"HSA0","uri":"mock:aie2p","arch":"aie2p","counters":{{"submissions":3,"dispatches":9,
            "host_calls":1,"chains":3,"doorbells":3,"contexts_created":1,"context_switches":0,"bytes_copied":0,"bytes_flushed":5,
            "bytes_invalidated":5,"allocations":4,"allocated_bytes":9,"peak_bytes":9,"virtual_ns":7}},
            "graphs":{{"computed":3,"built":1,"replayed":2}},"weights":{{"converted":1,"bytes":2,"cap_bytes":3,"refused":0}},
            "operations":[{{"op":"ADD","shape":"add-4f32","array":8,"host":0,"host_reason":null,"bytes":64}},
            {{"op":"CPY","shape":"cpy","array":0,"host":1,"host_reason":"copies stay on the host","bytes":8}}],
            "graph_log":{log}}}]}}"#
        )
    }

    fn read(text: &str) -> Result<Stats> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("stats.json");
        fs::write(&path, text)?;
        Stats::read(&path)
    }

    #[test]
    fn a_file_is_read_and_summed() {
        let stats = read(&sample("[]")).unwrap();
        let device = stats.used().unwrap();
        assert_eq!((device.array(), device.host()), (8, 1));
        assert_eq!((device.dispatches_of("add"), device.dispatches_of("MUL")), ((0, 8), (0, 0)));
        let text = device.operation_table().to_string();
        assert!(text.contains("ADD") && text.contains("copies stay on the host"), "{text}");
        assert!(device.summary_table().to_string().contains("1.00 per graph"));
    }

    #[test]
    fn the_share_of_machine_code_is_of_all_products() {
        let work = Work { code_macs: 95, reference_macs: 3, host_macs: 2, ..Work::default() };
        assert_eq!((work.code_share(), Work::default().code_share()), (0.95, 0.0));
    }

    #[test]
    fn damaged_kernels_are_distinguished_from_other_reasons() {
        let text = sample("[]");
        assert!(read(&text).unwrap().devices[0].damaged_kernels().is_empty());
        let damaged = text.replace("copies stay on the host", "kernel file /k/a.pdi: 3 bytes");
        assert_eq!(read(&damaged).unwrap().devices[0].damaged_kernels(), ["kernel file /k/a.pdi: 3 bytes"]);
    }

    #[test]
    fn files_that_prove_nothing_are_errors() {
        assert!(Stats::read(Path::new("/nowhere/stats.json")).is_err());
        assert!(read("").unwrap_err().to_string().contains("empty"));
        assert!(read("[").is_err());
        assert!(read(&sample("[]").replace("\"version\":1", "\"version\":2")).is_err());
        let idle =
            read(&sample("[]").replace("\"array\":8", "\"array\":0").replace("\"host\":1", "\"host\":0")).unwrap();
        assert!(idle.used().unwrap_err().to_string().contains("no operation ran"));
        assert!(read(r#"{"version":1,"devices":[]}"#).unwrap().used().unwrap_err().to_string().contains("no device"));
    }
}
