//! The file of `GGML_HSA_GRAPHS`: the graphs that the program has computed, for who plans them elsewhere.
//!
//! It has a JSON object a line, a [`Line`], complete before the graph is planned. A graph that is not recognised as a recent one gets a
//! number and is written down whole; when it comes again the line has its number only. What is written is what plans are made from: types,
//! shapes, parameters, and where in memory tensors are. No data is read for it.

use crate::config::log;
use crate::plan::graph::{Graph, GraphNode};
use crate::settings::GGML_HSA_GRAPHS;
use aie_ops::Node;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// A graph that a device was given.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line<'a> {
    /// The device: `HSA0`, `HSA1`, ...
    pub device: Cow<'a, str>,
    /// The number of the graph in this file.
    pub graph: u64,
    /// The graph, when it has not come before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded<'a>>,
}

/// A graph with what else decides its plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Recorded<'a> {
    /// Its nodes.
    pub nodes: Cow<'a, [GraphNode]>,
    /// Address and size of the device's own buffers.
    pub buffers: Vec<(usize, usize)>,
    /// Nodes that the program has asked about, which later graphs may have. Known with the first graph only.
    pub foreseen: Vec<Node>,
}

/// A file that is being written. Thread-safe.
#[derive(Debug)]
pub struct GraphFile {
    writer: Mutex<Writer>,
}

#[derive(Debug)]
struct Writer {
    file: File,
    graphs: u64,
    /// Whether the file cannot be written any more.
    broken: bool,
}

impl GraphFile {
    /// Makes the file, empty. Lines are added at its end, wherever that is then, so that a reader may cut off what it has read.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        file.set_len(0)?;
        Ok(Self { writer: Mutex::new(Writer { file, graphs: 0, broken: false }) })
    }

    /// Writes a new graph of `device`. Returns its number.
    pub fn add(&self, device: &str, graph: &Graph, buffers: Vec<(usize, usize)>, foreseen: Vec<Node>) -> u64 {
        let mut writer = self.writer.lock();
        let number = writer.graphs;
        writer.graphs += 1;
        let recorded = Some(Recorded { nodes: Cow::Borrowed(&graph.nodes), buffers, foreseen });
        writer.line(&Line { device: device.into(), graph: number, recorded });
        number
    }

    /// Writes that graph `number` has come again.
    pub fn again(&self, device: &str, number: u64) {
        self.writer.lock().line(&Line { device: device.into(), graph: number, recorded: None });
    }
}

impl Writer {
    /// An error ends the file, not the program.
    fn line(&mut self, line: &Line<'_>) {
        if self.broken {
            return;
        }
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut json| {
            json.push(b'\n');
            self.file.write_all(&json)
        });
        if let Err(cause) = written {
            self.broken = true;
            log::error(&format!("{GGML_HSA_GRAPHS}: graphs cannot be written any more: {cause}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::host_memory::HostSpan;
    use crate::plan::graph::TensorView;
    use aie_ops::{DataType, OpParams, Tensor};

    #[test]
    fn graphs_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graphs");
        std::fs::write(&path, "of another run").unwrap();
        let view = |address, read| {
            let tensor = Tensor::contiguous(DataType::F32, [8, 2, 1, 1]);
            TensorView { read, ..TensorView::plain(address, tensor, HostSpan::imagined(address, tensor.span_bytes())) }
        };
        let node = GraphNode::new("SQR", OpParams::default(), view(64, true), vec![None, Some(view(128, false))]);
        let (graph, foreseen) =
            (Graph { nodes: vec![node] }, vec![Node::new("SQR", OpParams::default(), view(0, false).tensor, vec![])]);
        let file = GraphFile::create(&path).unwrap();
        assert_eq!(file.add("HSA0", &graph, vec![(64, 128)], foreseen.clone()), 0);
        file.again("HSA1", 0);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Line<'_>> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [first, again] = &lines[..] else { panic!("{text}") };
        let recorded = first.recorded.as_ref().unwrap();
        assert_eq!(format!("{:?}", recorded.nodes), format!("{:?}", graph.nodes));
        assert_eq!((&recorded.buffers, &recorded.foreseen), (&vec![(64, 128)], &foreseen));
        assert_eq!((&*again.device, again.graph, again.recorded.is_some()), ("HSA1", 0, false));
        // What a reader cut off stays away.
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        file.again("HSA0", 0);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"device\":\"HSA0\",\"graph\":0}\n");
    }
}
