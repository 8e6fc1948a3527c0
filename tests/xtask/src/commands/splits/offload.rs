//! Layers that llama.cpp leaves to the CPU (`-ngl`): the device takes nothing of them.
//!
//! llama.cpp gives a device the last layers of a model. So a graph has at most two splits, the layers of the CPU and those of the
//! device, and there is one of our graphs for each of llama.cpp's.

use super::{Graph, expected_splits, generated_graphs, split_problems};
use crate::generation::Request;
use crate::session::{DEVICE_NAME, Session};
use anyhow::{Context, Result, bail};
use regex::Regex;
use serde::Serialize;

/// How the device is asked for.
const WAYS: [(&str, &[&str]); 2] = [("unasked", &[]), ("named", &["--device", DEVICE_NAME])];

#[derive(Serialize)]
pub struct Offload {
    pub way: &'static str,
    /// Layers of the device, the output counted as one.
    pub layers: usize,
    pub of: usize,
    pub prefill: Graph,
    pub decode: Graph,
    /// Graphs of ours.
    pub graphs: u64,
    pub replayed: u64,
    pub seconds: f64,
}

/// Runs with no layer, one, half of them and all, each way.
pub fn measure(session: &Session, request: &Request) -> Result<(Vec<Offload>, Vec<String>)> {
    let (mut rows, mut problems) = (Vec::new(), Vec::new());
    for (way, arguments) in WAYS {
        let run = |layers: usize| run(session, request, way, layers, arguments);
        let none = run(0)?;
        let of = none.of;
        let runs = [none, run(1)?, run(of / 2)?, run(of)?];
        for row in &runs {
            let found = row.problems(session, request.tokens);
            problems.extend(found.into_iter().map(|problem| format!("-ngl {}, {way}: {problem}", row.layers)));
        }
        rows.extend(runs);
    }
    Ok((rows, problems))
}

fn run(session: &Session, request: &Request, way: &'static str, layers: usize, arguments: &[&str]) -> Result<Offload> {
    let run = request.on_device(session, |command| {
        command.env("GGML_SCHED_DEBUG", "1").args(["-lv", "5", "--ignore-eos", "-ngl", &layers.to_string()]);
        command.args(arguments);
    })?;
    let (offloaded, of) = offloaded(&run.finished.stderr)?;
    if offloaded != layers {
        bail!("llama.cpp offloaded {offloaded} of {of} layers, asked for {layers}");
    }
    let graphs = generated_graphs(&run.finished.stderr)?;
    let [prefill, decode, ..] = &graphs[..] else {
        bail!("the scheduler's debug output shows {} graphs of the generation, expected 2", graphs.len());
    };
    let device = run.stats.devices.first().context("the library opened no device")?;
    Ok(Offload {
        way,
        layers,
        of,
        prefill: prefill.clone(),
        decode: decode.clone(),
        graphs: device.graphs.computed,
        replayed: device.graphs.replayed,
        seconds: run.finished.elapsed.as_secs_f64(),
    })
}

/// What llama.cpp says of the layers that devices have, and of all.
fn offloaded(stderr: &str) -> Result<(usize, usize)> {
    let found = Regex::new(r"offloaded (\d+)/(\d+) layers")?.captures(stderr);
    let found = found.context("llama.cpp did not say how many layers it offloaded")?;
    Ok((found[1].parse()?, found[2].parse()?))
}

impl Offload {
    fn problems(&self, session: &Session, tokens: usize) -> Vec<String> {
        let expected: &[&str] = match self.layers {
            0 => &["CPU"],
            layers if layers == self.of => expected_splits(session),
            _ => &["CPU", DEVICE_NAME],
        };
        let mut problems = split_problems("prefill", &self.prefill, expected);
        problems.extend(split_problems("decode", &self.decode, expected));
        // A warm-up, the prompt, and a graph for every token but the last.
        let graphs = if self.layers == 0 { 0 } else { tokens as u64 + 1 };
        if self.graphs != graphs {
            problems.push(format!("{} graphs of the device, expected {graphs}", self.graphs));
        }
        // The warm-up, the prompt and the first token may have plans of their own.
        if self.replayed < graphs.saturating_sub(3) {
            problems.push(format!("{} of {graphs} graphs were replayed, expected all but 3 at most", self.replayed));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_devices_are_read() {
        assert_eq!(offloaded("0.1 I load_tensors: offloaded 15/31 layers to GPU\n").unwrap(), (15, 31));
        assert!(offloaded("offloading 15 layers").is_err());
    }
}
