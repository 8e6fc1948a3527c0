//! Reading the file of `GGML_HSA_GRAPHS` while it is written.

use super::Graph;
use ggml_hsa::report::graph_file::Line;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Graphs that are kept: more than a stream of the library recognises.
const KEPT: usize = 32;

/// What was read of a file.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    /// The last graphs with their numbers.
    recent: VecDeque<(u64, Graph)>,
}

impl Reader {
    /// Reads `path`, which need not exist yet.
    pub fn of(path: PathBuf) -> Self {
        Self { path, recent: VecDeque::new() }
    }

    /// The graphs that were computed since the last call, in their order; the file is empty then. To be called when nothing is being
    /// computed.
    ///
    /// # Errors
    /// The file cannot be read, or has something else.
    pub fn computed(&mut self) -> io::Result<Vec<Graph>> {
        let text = match fs::read_to_string(&self.path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        File::options().write(true).open(&self.path)?.set_len(0)?;
        let unknown = |number| io::Error::other(format!("graph {number} was not written down"));
        let mut graphs = Vec::new();
        for line in text.lines() {
            let Line { graph: number, recorded, .. } = serde_json::from_str(line)?;
            if let Some(recorded) = recorded {
                self.recent.push_front((number, Arc::new(recorded)));
                self.recent.truncate(KEPT);
            }
            let known = self.recent.iter().find(|(known, _)| *known == number);
            graphs.push(known.map(|(_, graph)| Arc::clone(graph)).ok_or_else(|| unknown(number))?);
        }
        Ok(graphs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_that_come_again_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graphs");
        let mut reader = Reader::of(path.clone());
        assert!(reader.computed().unwrap().is_empty());
        let new = |number| {
            format!(r#"{{"device":"HSA0","graph":{number},"recorded":{{"nodes":[],"buffers":[],"foreseen":[]}}}}"#)
        };
        fs::write(&path, format!("{}\n{}\n", new(0), new(1))).unwrap();
        let first = reader.computed().unwrap();
        assert!(first.len() == 2 && reader.computed().unwrap().is_empty());
        fs::write(&path, "{\"device\":\"HSA0\",\"graph\":1}\n{\"device\":\"HSA0\",\"graph\":0}\n").unwrap();
        let again = reader.computed().unwrap();
        assert!(Arc::ptr_eq(&again[0], &first[1]) && Arc::ptr_eq(&again[1], &first[0]));
        fs::write(&path, "{\"device\":\"HSA0\",\"graph\":7}\n").unwrap();
        assert!(reader.computed().unwrap_err().to_string().contains("graph 7"));
    }
}
