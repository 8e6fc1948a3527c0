//! What ggml's scheduler says of the graphs it cuts (`GGML_SCHED_DEBUG`, shown by llama.cpp at verbosity 5).
//!
//! Each graph that is cut has a line `## SPLIT` for every split, with the backend's name. At `GGML_SCHED_DEBUG=2` a line
//! for every node follows, with ten letters of its operation and the backend it was given to. A graph that is used again
//! is not cut again.

use anyhow::{Context, Result};
use regex::Regex;
use std::collections::BTreeMap;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Graph {
    pub splits: Vec<String>,
    /// Nodes by backend and operation (its first ten letters); empty at `GGML_SCHED_DEBUG=1`.
    pub nodes: BTreeMap<(String, String), usize>,
}

impl Graph {
    /// Whether all of it is one split on `backend`.
    pub fn is_whole_on(&self, backend: &str) -> bool {
        self.splits == [backend]
    }

    /// Operations given to another backend than `backend`, with their number of nodes.
    pub fn not_on(&self, backend: &str) -> impl Iterator<Item = (&str, usize)> {
        self.nodes.iter().filter(move |((name, _), _)| name != backend).map(|((_, op), count)| (op.as_str(), *count))
    }
}

/// The graphs in a log, in order.
///
/// Errors if a split or a node comes before the first split of a graph.
pub fn graphs(log: &str) -> Result<Vec<Graph>> {
    let pattern =
        Regex::new(r"## SPLIT #(\d+): (\S+) #|node #\s*\d+ \(\s*(\S+)\): .{0,200}? \(\s*\d+[KM]\) \[\s*(\S+)")?;
    let mut graphs: Vec<Graph> = Vec::new();
    for found in pattern.captures_iter(log) {
        if found.get(1).is_some_and(|number| number.as_str() == "0") {
            graphs.push(Graph::default());
        }
        let graph = graphs.last_mut().context("the scheduler's output has a split or node before a first split")?;
        match (found.get(2), found.get(3), found.get(4)) {
            (Some(backend), ..) => graph.splits.push(backend.as_str().to_owned()),
            (None, Some(op), Some(backend)) => {
                *graph.nodes.entry((backend.as_str().to_owned(), op.as_str().to_owned())).or_default() += 1;
            }
            _ => {}
        }
    }
    Ok(graphs)
}

/// The part of a log of llama.cpp after its contexts were made: what comes before are graphs of the largest size, cut to
/// find out how much memory they need, and never computed.
pub fn after_reservation(log: &str) -> Result<&str> {
    let mark = "sched_reserve: reserve took";
    let start = log.rfind(mark).with_context(|| format!("llama.cpp did not say `{mark}`"))?;
    Ok(&log[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "## SPLIT #0: CPU # 0 inputs0.1 D\nsched_reserve: reserve took 2 ms\n\
        ## SPLIT #0: HSA0 # 0 inputs0.00.1 D \n\
        0.00.1 D node #  0 (  GET_ROWS):                 embd (   1K) [ HSA0         ] use=2,c=1:0.1 D  w ( 1K) [  CPU  ]\n\
        0.00.1 D node #  1 (  SET_ROWS):               (view) (   1K) [ HSA0         ] use=0,c=0:0.1 D\n\
        0.00.1 D\n## SPLIT #1: CPU # 1 inputs: [a]\n\
        0.00.1 D node #  2 (FLASH_ATTN):         __fattn__-0 ( 12M) [  CPU         ] use=0,c=0:0.1 D\n\
        ## SPLIT #0: HSA0 # 0 inputs\n";

    #[test]
    fn graphs_and_their_nodes_are_read() {
        let graphs = graphs(after_reservation(LOG).unwrap()).unwrap();
        assert_eq!(graphs.len(), 2);
        assert_eq!(graphs[0].splits, ["HSA0", "CPU"]);
        assert!(!graphs[0].is_whole_on("HSA0") && graphs[1].is_whole_on("HSA0") && !graphs[1].is_whole_on("CPU"));
        assert_eq!(graphs[0].not_on("HSA0").collect::<Vec<_>>(), [("FLASH_ATTN", 1)]);
        assert_eq!(graphs[0].not_on("CPU").count(), 2);
    }

    #[test]
    fn a_log_without_its_marks_is_an_error() {
        assert!(after_reservation("nothing").is_err());
        assert!(graphs("## SPLIT #1: CPU # 0 inputs").is_err());
        assert!(graphs("nothing").unwrap().is_empty());
    }
}
