//! The report of a model on a device.

use super::contexts::Contexts;
use super::operation::Operation;
use super::ordinary_run::OrdinaryRun;
use super::planning::{Planned, plan};
use super::prediction::{Prediction, Submitted};
use super::sequence::{Configuration, Joins, Sequence, Stretch};
use crate::llama_cpp::{Batch, GraphSource};
use crate::model::ModelFile;
use aie_hal::Device;
use aie_jit_iron::KernelStore;
use ggml_hsa::config::Config;
use ggml_hsa::plan::PlanError;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A model on a device.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// Of this structure.
    pub version: u32,
    /// The model.
    pub model: ModelReport,
    /// Where it would run.
    pub device: String,
    /// The device's generation.
    pub generation: String,
    /// Columns of its array, which a context can use.
    pub columns: usize,
    /// Rows of its array, with those of memory and of the way to it.
    pub rows: usize,
    /// Tokens of the context.
    pub context: usize,
    /// Whether attention is one operation.
    pub flash_attention: bool,
    /// What is left out of what follows.
    pub reservations: Vec<String>,
    /// Memory of the device.
    pub memory: MemoryReport,
    /// Decode and prefill, each alone in a process; prefill only of a model that continues no text.
    pub passes: Vec<Pass>,
    /// A prompt like that of prefill and tokens behind it in one process.
    pub run: OrdinaryRun,
}

/// The model.
#[derive(Debug, Clone, Serialize)]
pub struct ModelReport {
    /// What its makers call it.
    pub name: Option<String>,
    /// Its architecture.
    pub architecture: String,
    /// Its layers.
    pub layers: usize,
    /// Bytes of its weights in the file.
    pub bytes: usize,
    /// Whether the device computes each batch as a whole.
    pub whole: bool,
}

/// Bytes in memory.
#[derive(Debug, Clone, Default, Serialize)]
pub struct MemoryReport {
    /// Weights that the graphs read, as the file has them.
    pub weights: usize,
    /// Copies of weights that the array reads in another type.
    pub converted_weights: u64,
    /// Keys, values and states.
    pub cache: usize,
    /// What conversions in a graph need at most.
    pub scratch: usize,
}

/// A graph: one batch of tokens.
#[derive(Debug, Clone, Serialize)]
pub struct Pass {
    /// `decode` or `prefill`.
    pub name: &'static str,
    /// Tokens computed.
    pub tokens: usize,
    /// Places of the cache that attention reads.
    pub keys: usize,
    /// Nodes that compute something.
    pub nodes: usize,
    /// Kernels run on the array.
    pub dispatches: u64,
    /// Of them, those that stand for several nodes, and how many nodes these are.
    pub fused: u64,
    /// The nodes that these stand for.
    pub fused_nodes: u64,
    /// Functions run on the host inside the command list, conversions included.
    pub host_calls: u64,
    /// Conversions among them, and the bytes they read and write.
    pub conversions: u64,
    /// The bytes conversions read and write.
    pub conversion_bytes: u64,
    /// Chains of dispatches between host calls.
    pub chains: usize,
    /// Times the array changes from a hardware context to another, when nothing ran before.
    pub context_switches: u64,
    /// Different kernels.
    pub kernels: usize,
    /// Different configurations of the array among them.
    pub pdis: usize,
    /// Kernels by where they would come from.
    pub sources: BTreeMap<String, usize>,
    /// Bytes of all operations' tensors.
    pub bytes: u64,
    /// Multiply-accumulates.
    pub macs: u64,
    /// By part.
    pub predicted: Prediction,
    /// One for each operation, shape and place.
    pub operations: Vec<Operation>,
    /// How neighbours with one configuration go together.
    pub joins: Joins,
    /// Configurations of the array, in the order in which they are needed first.
    pub configurations: Vec<Configuration>,
    /// What runs behind what, in the order of the queue.
    pub sequence: Vec<Stretch>,
}

/// What is to be explained.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// Tokens of the context, at least two.
    pub context: usize,
    /// Tokens in the cache when one is decoded.
    pub past: usize,
    /// Tokens of the prompt's first batch.
    pub prompt: usize,
    /// Whether attention is one operation.
    pub flash: bool,
    /// Whether the model makes embeddings of a text and continues none: there is no decode then.
    pub embeds: bool,
}

/// Nothing can be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// There are no graphs.
    #[error("{0}")]
    Graphs(String),
    /// A node cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Explains `model`, whose graphs are those of `source`, on `device`.
///
/// # Errors
/// There are no graphs, or a node cannot be planned.
pub fn explain(
    model: &ModelFile,
    question: &Question,
    source: &mut dyn GraphSource,
    device: &Arc<dyn Device>,
    store: &Arc<KernelStore>,
    config: &Config,
) -> Result<Explanation, ExplainError> {
    let Question { context, past, prompt, flash, embeds } = *question;
    let mut planned = |tokens, past| -> Result<Planned, ExplainError> {
        let batch = Batch { tokens, past };
        let graphs = source.graphs(batch).map_err(ExplainError::Graphs)?;
        Ok(plan(batch, graphs, device, store, config)?)
    };
    let prefill = planned(prompt, 0)?;
    // The last place of a context stays free. With a token less before it a token's graph is the same.
    let behind = past.max(prompt).min(context - 2);
    let behind = (!embeds).then(|| planned(1, behind)).transpose()?;
    let run = OrdinaryRun::of(&prefill, behind.as_ref());
    let decode = match behind {
        Some(behind) if behind.batch.past != past => Some(planned(1, past)?),
        behind => behind,
    };
    let mut memory = MemoryReport::default();
    let mut passes = Vec::new();
    let mut most = 1;
    for (name, planned) in [("decode", decode), ("prefill", Some(prefill))] {
        let Some(planned) = planned else { continue };
        let scratch = planned.plans.iter().map(|plan| plan.scratch_bytes).max().unwrap_or(0);
        memory.weights = memory.weights.max(planned.weights());
        memory.cache = memory.cache.max(planned.cache());
        memory.scratch = memory.scratch.max(scratch);
        memory.converted_weights = memory.converted_weights.max(planned.context.weights.counts().bytes);
        most = most.max(planned.graphs.len());
        passes.push(Pass::of(name, &planned, store));
    }
    let apart = |graphs: &usize| *graphs > 1;
    let reservations = Some(most).filter(apart).map(|graphs| {
        format!(
            "llama.cpp divides a batch into {graphs} graphs for this device and leaves the rest to others; what these do is missing below"
        )
    });
    Ok(Explanation {
        version: 1,
        model: ModelReport {
            name: model.name().map(ToOwned::to_owned),
            architecture: model.architecture.clone(),
            layers: model.integer("block_count").unwrap_or(0),
            bytes: model.bytes(),
            whole: reservations.is_none(),
        },
        device: device.info().uri.to_string(),
        generation: device.info().arch.clone(),
        columns: device.arch().array.columns,
        rows: device.arch().array.rows,
        context,
        flash_attention: flash,
        reservations: reservations.into_iter().collect(),
        memory,
        passes,
        run,
    })
}

impl Pass {
    fn of(name: &'static str, planned: &Planned, store: &KernelStore) -> Self {
        let Planned { batch, context, .. } = planned;
        let share = planned.share();
        let missed: BTreeMap<String, String> =
            store.missed().into_iter().map(|missed| (missed.kernel, missed.reason)).collect();
        let counted = context.statistics.operations();
        let operation = |(index, part): (&usize, &ggml_hsa::report::statistics::OperationShare)| {
            let count = &counted[*index];
            Operation {
                op: count.op.clone(),
                shape: count.shape.clone(),
                array: part.array,
                host: part.host,
                host_reason: count.host_reason.clone(),
                kernel: count.kernel.as_ref().map(ToString::to_string),
                from: count.kernel.as_ref().map(|kernel| {
                    // Those that came with the library or from the user are not missed.
                    missed.get(&count.shape).cloned().unwrap_or_else(|| match &**kernel {
                        given @ ("embedded" | "directory") => given.to_owned(),
                        _ => "compiled".to_owned(),
                    })
                }),
                code: count.pdi.is_some(),
                bytes: part.bytes,
                macs: part.macs,
                traffic: None,
                predicted_ns: None,
            }
        };
        let mut operations: Vec<Operation> = share.operations.iter().map(operation).collect();
        let (limits, arch) = (context.hal.limits(), context.hal.arch());
        let Sequence { stretches, configurations, joins, chains, context_switches, operations: executed, traffic } =
            Sequence::of(&planned.lists(), &mut Contexts::new(limits), limits, arch);
        for operation in operations.iter_mut().filter(|operation| operation.array > 0) {
            operation.traffic = traffic.get(&operation.shape).map(|once| once.times(operation.array));
        }
        let mut sources = BTreeMap::new();
        for operation in operations.iter().filter(|operation| operation.array > 0) {
            let (kernel, from) = (operation.kernel.as_deref().unwrap_or(""), operation.from.as_deref().unwrap_or(""));
            let source = if kernel == from { kernel.to_owned() } else { format!("{kernel} ({from})") };
            *sources.entry(source).or_default() += 1;
        }
        let submitted = Submitted { chains, places: joins.places_at_least, operations: executed };
        let predicted = Prediction::of(&mut operations, submitted, arch);
        let sum = |of: fn(&Operation) -> u64| operations.iter().map(of).sum::<u64>();
        Self {
            name,
            tokens: batch.tokens,
            keys: planned.keys(),
            nodes: share.nodes,
            dispatches: sum(|operation| operation.array),
            fused: share.fusion.dispatches,
            fused_nodes: share.fusion.nodes,
            host_calls: sum(|operation| operation.host) + share.conversions.host_calls,
            conversions: share.conversions.host_calls,
            conversion_bytes: share.conversions.bytes,
            chains,
            context_switches,
            kernels: operations.iter().filter(|operation| operation.array > 0).count(),
            pdis: configurations.len(),
            sources,
            bytes: sum(|operation| operation.bytes),
            macs: sum(|operation| operation.macs),
            predicted,
            operations,
            joins,
            configurations,
            sequence: stretches,
        }
    }
}

/// Joined dispatches in a sentence.
pub fn joins_in_words(joins: &Joins) -> String {
    let Joins { enabled, pdi_changes, joined_at_most, places_at_least } = joins;
    let off = if *enabled { "" } else { " (GGML_HSA_JOIN is off)" };
    format!(
        "{pdi_changes} changes of the PDI; {joined_at_most} dispatches can join the one before them{off}, which leaves {places_at_least} places in chains"
    )
}
