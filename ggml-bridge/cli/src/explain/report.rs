//! What is told of a model on a device.

use super::contexts::Contexts;
use super::ordinary_run::OrdinaryRun;
use super::planning::{Planned, plan};
use super::prediction::{Prediction, Submitted};
use super::sequence::{Configuration, Joins, Sequence, Stretch};
use crate::model::arena::Place;
use crate::model::{Batch, Cache, Model};
use aie_hal::Device;
use aie_hal::format::extent::Traffic;
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
    /// What was assumed or left out: what follows is right as far as these are.
    pub reservations: Vec<String>,
    /// Memory of the device.
    pub memory: MemoryReport,
    /// Decode and prefill, each alone in a process.
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
    /// Bytes of its weights.
    pub bytes: usize,
    /// Whether every tensor of it has its place in the graphs.
    pub whole: bool,
}

/// Bytes in memory.
#[derive(Debug, Clone, Default, Serialize)]
pub struct MemoryReport {
    /// Weights that the graphs read, as the file has them.
    pub weights: usize,
    /// Copies of weights that the array reads in another type.
    pub converted_weights: u64,
    /// Keys and values.
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

/// One operation with one shape.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Operation {
    /// Its name.
    pub op: String,
    /// The name of its kernel, which holds types and extents.
    pub shape: String,
    /// Dispatches.
    pub array: u64,
    /// Host calls.
    pub host: u64,
    /// Why it runs on the host.
    pub host_reason: Option<String>,
    /// Who makes or has its kernel: a compiler, `embedded` or `directory`.
    pub kernel: Option<String>,
    /// Where the kernel comes from: `embedded`, `directory`, `cache` or `compiled`.
    pub from: Option<String>,
    /// Whether the kernel is machine code.
    pub code: bool,
    /// Bytes of its tensors, all times together.
    pub bytes: u64,
    /// Multiply-accumulates, all times together.
    pub macs: u64,
    /// What its dispatches read of memory, or write there, whatever takes longer. Not known of kernels that are only described, and of
    /// those whose streams are made for their data.
    pub traffic: Option<Traffic>,
    /// What its dispatches would take, with a command each.
    pub predicted_ns: Option<f64>,
}

/// What is to be explained.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// Tokens of the context; by default the model's.
    pub context: Option<usize>,
    /// Tokens in the cache when one is decoded.
    pub past: usize,
    /// Tokens that are computed at once at most.
    pub batch: usize,
    /// Tokens of the prompt's first batch; by default as many as possible.
    pub prompt: Option<usize>,
    /// Whether attention is one operation.
    pub flash: bool,
}

/// Explains `model` on `device`.
///
/// # Errors
/// A node cannot be planned.
pub fn explain(
    model: &Model,
    question: &Question,
    device: &Arc<dyn Device>,
    store: &Arc<KernelStore>,
    config: &Config,
) -> Result<Explanation, PlanError> {
    let cache = Cache::new(question.context.unwrap_or(model.hyper.context), question.batch, question.flash);
    let past = question.past.min(cache.size - 1);
    let prompt = question.prompt.unwrap_or(cache.reserved).clamp(1, cache.reserved);
    let mut memory = MemoryReport::default();
    let mut passes = Vec::new();
    let planned = |batch| plan(model, batch, device, store, config);
    let (decode, prefill) = (planned(Batch::new(1, past, cache))?, planned(Batch::new(prompt, 0, cache))?);
    let behind = Batch::new(1, past.max(prompt).min(cache.size - 1), cache);
    let run = match behind == decode.batch {
        true => OrdinaryRun::of(&prefill, &decode),
        false => OrdinaryRun::of(&prefill, &planned(behind)?),
    };
    for (name, planned) in [("decode", decode), ("prefill", prefill)] {
        memory.weights = planned.arena.bytes(Place::Weights);
        memory.cache = planned.arena.bytes(Place::Cache);
        memory.scratch = memory.scratch.max(planned.plan.scratch_bytes);
        memory.converted_weights = memory.converted_weights.max(planned.context.weights.counts().bytes);
        passes.push(Pass::of(name, &planned, store));
    }
    Ok(Explanation {
        version: 1,
        model: ModelReport {
            name: model.name.clone(),
            architecture: model.architecture.clone(),
            layers: model.layers.len(),
            bytes: model.bytes,
            whole: model.is_whole(),
        },
        device: device.info().uri.to_string(),
        generation: device.info().arch.clone(),
        columns: device.arch().array.columns,
        rows: device.arch().array.rows,
        context: cache.size,
        flash_attention: cache.flash,
        reservations: model.reservations(),
        memory,
        passes,
        run,
    })
}

impl Pass {
    fn of(name: &'static str, planned: &Planned, store: &KernelStore) -> Self {
        let Planned { batch, plan, context, .. } = planned;
        let share = &plan.share;
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
        let list = plan.commands();
        let (limits, arch) = (context.hal.limits(), context.hal.arch());
        let Sequence { stretches, configurations, joins, chains, context_switches, operations: executed, traffic } =
            list.map_or_else(Sequence::default, |list| Sequence::of(list, &mut Contexts::new(limits), limits, arch));
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
            keys: batch.keys(None),
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
