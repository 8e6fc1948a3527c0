//! Recording a graph.
//!
//! A node planned for the array becomes: conversions of the arguments whose bytes differ on the array (as host calls), the
//! dispatch, and a conversion of the result. A node planned for the CPU, or for which there is no kernel, becomes one host
//! call in the same list, so that the graph stays one submission; the reason is counted.

use super::arena::Arena;
use super::fusion::{Step, fuse};
use super::hazard::{HazardTracker, overlap};
use super::lower::{Dispatch, Lowered, LoweredArgument, foreseen_code, lower};
use super::memory::GraphMemory;
use super::vacate::is_vacated;
use super::{Plan, PlanError};
use crate::config::log;
use crate::kernels::{HostReason, Kernel};
use crate::memory::ranges::RangeSet;
use crate::memory::weights::{Lookup, WeightKey};
use crate::plan::context::DeviceContext;
use crate::plan::graph::{Graph, GraphNode, TensorView};
use crate::report::statistics::{OperationShare, RunShare};
use crate::settings::GGML_HSA_REQUIRE_ARRAY;
use aie_hal::{
    Binding, Buffer, BufferParams, BufferRef, CommandList, CommandListBuilder, HostFunction, KernelArtifact,
};
use aie_jit_iron::settings::GGML_HSA_JIT;
use aie_ops::normalise::{KernelArgument, Role};
use aie_ops::work::multiply_accumulates;
use aie_ops::{DataType, Tensor};
use std::collections::HashSet;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

/// Where scratch memory lies for the hazard tracker: behind every address a process can have.
const SCRATCH_BASE: usize = 1 << (usize::BITS - 1);

/// Memory of a command: for the command, and its addresses for hazards (none for memory that is never written).
struct Operand {
    addresses: Range<usize>,
    reference: BufferRef,
    /// Whether a source is there for its place only: what it holds makes no difference.
    is_place: bool,
}

impl Operand {
    fn scratch(piece: &Range<usize>) -> Self {
        let reference = BufferRef::slot(0, piece.start, piece.len());
        Self { addresses: SCRATCH_BASE + piece.start..SCRATCH_BASE + piece.end, reference, is_place: false }
    }

    fn into_place(self) -> Self {
        Self { is_place: true, ..self }
    }
}

/// A conversion that a later node can use again.
struct Converted {
    source: Range<usize>,
    original: Tensor,
    array: Tensor,
    scratch: Range<usize>,
}

/// A result in scratch memory, for the step that reads it.
struct Moved {
    addresses: Range<usize>,
    piece: Range<usize>,
    /// Whether the step that writes it is recorded, so that the one that reads it is next.
    is_written: bool,
}

struct Recorder<'a> {
    context: &'a DeviceContext,
    memory: GraphMemory<'a>,
    list: CommandListBuilder,
    hazards: HazardTracker,
    arena: Arena,
    converted: Vec<Converted>,
    moved: Option<Moved>,
    /// Written by the graph so far.
    written: RangeSet,
    /// Written by dispatches. What host calls write is in the host's view already.
    dispatched: RangeSet,
    /// Those of them that update a source, of which dispatches write few rows.
    updated: RangeSet,
    /// Written anywhere in the graph.
    outputs: RangeSet,
    flush: RangeSet,
    flush_once: RangeSet,
    used: RangeSet,
    /// Read by commands before the graph has written it.
    taken: RangeSet,
    /// Whether no command writes what is taken.
    repeats: bool,
    share: RunShare,
    cleared: Vec<Binding>,
}

pub(super) fn record(context: &DeviceContext, graph: &Graph) -> Result<Plan, PlanError> {
    let weights_generation = context.weights.generation();
    let arrivals = context.kernels.arrivals();
    let mut outputs = RangeSet::default();
    graph.nodes.iter().for_each(|node| outputs.insert(node.output.span.range()));
    let mut recorder = Recorder {
        context,
        memory: GraphMemory::new(context, graph)?,
        list: CommandList::builder(),
        hazards: HazardTracker::default(),
        arena: Arena::default(),
        converted: Vec::new(),
        moved: None,
        written: RangeSet::default(),
        dispatched: RangeSet::default(),
        updated: RangeSet::default(),
        outputs,
        flush: RangeSet::default(),
        flush_once: RangeSet::default(),
        used: RangeSet::default(),
        taken: RangeSet::default(),
        repeats: true,
        share: RunShare { nodes: graph.nodes.len(), ..RunShare::default() },
        cleared: Vec::new(),
    };
    // Whether a kernel is missing that is on its way.
    let mut provisional = false;
    let foreseen = context.foreseen.take();
    let (steps, expected, kernel_moves) = loop {
        let moves = context.kernels.moves();
        let steps = lowered_steps(context, graph, &mut provisional, false)?;
        let expected: Vec<Kernel> = foreseen.iter().filter_map(|node| foreseen_code(context, node)).collect();
        // What they need together decides their PDIs.
        if !context.kernels.settle() {
            break (steps, expected, moves);
        }
    };
    let steps = with_fewest_changes(context, graph, steps, &mut provisional)?;
    // Of one step nothing is joined, so nothing has to be known of it.
    let joins = steps.len() > 1 && context.joins();
    if !joins {
        recorder.list.keep_apart();
    }
    let moves = joins && context.kernels.store.prefers_code();
    let vacated: Vec<bool> = (0..steps.len()).map(|index| moves && is_vacated(&steps, index)).collect();
    for (Step { node, nodes, found }, vacated) in steps.into_iter().zip(vacated) {
        recorder.next_step(&node, vacated);
        let in_node = |cause| PlanError::Node { op: node.op, source: Box::new(cause) };
        let lowered = found.map_or_else(|| lower(context, &node, false), Ok).map_err(in_node)?;
        recorder.node(&node, &lowered).map_err(in_node)?;
        if nodes > 1 {
            recorder.share.fusion.dispatches += 1;
            recorder.share.fusion.nodes += nodes as u64;
        }
    }
    recorder.expect(&expected);
    let shared = graph.nodes.iter().any(|node| is_shared(context, node));
    recorder.clear(graph)?;
    let plan = recorder.finish()?;
    Ok(Plan { shared, weights_generation, kernel_moves, awaiting: provisional.then_some(arrivals), ..plan })
}

/// The steps of a graph with all that is looked up for them.
fn lowered_steps<'a>(
    context: &DeviceContext,
    graph: &'a Graph,
    provisional: &mut bool,
    apart: bool,
) -> Result<Vec<Step<'a, Lowered>>, PlanError> {
    let mut steps = if context.fusion {
        fuse(graph, |node| fused(context, node, provisional, apart))
    } else {
        graph.nodes.iter().map(Step::single).collect()
    };
    for Step { node, found, .. } in &mut steps {
        if found.is_none() {
            let in_node = |cause| PlanError::Node { op: node.op, source: Box::new(cause) };
            *found = Some(lower(context, node, apart).map_err(in_node)?);
        }
        *provisional |= found.iter().any(|lowered| lowered.dispatch.as_ref().is_err_and(|reason| reason.pending));
    }
    Ok(steps)
}

/// These steps, or those without configurations, if the array then changes its PDI less often: where a model has products that a
/// configuration does not take, its kernels would alternate with others.
fn with_fewest_changes<'a>(
    context: &DeviceContext,
    graph: &'a Graph,
    steps: Vec<Step<'a, Lowered>>,
    provisional: &mut bool,
) -> Result<Vec<Step<'a, Lowered>>, PlanError> {
    let artifacts = |steps: &[Step<'a, Lowered>]| -> Vec<KernelArtifact> {
        steps.iter().filter_map(|step| step.found.as_ref()?.artifact().cloned()).collect()
    };
    let changes = |artifacts: &[KernelArtifact]| {
        artifacts.windows(2).filter(|neighbours| neighbours[0].digest() != neighbours[1].digest()).count()
    };
    let together = artifacts(&steps);
    if changes(&together) == 0 || together.iter().all(|artifact| artifact.configuration().is_none()) {
        return Ok(steps);
    }
    let without = lowered_steps(context, graph, provisional, true)?;
    let apart = artifacts(&without);
    // Nothing goes to the host for it.
    let is_better = hosts(&without) <= hosts(&steps) && changes(&apart) < changes(&together);
    Ok(if is_better { without } else { steps })
}

/// Steps that are not dispatched.
fn hosts(steps: &[Step<'_, Lowered>]) -> usize {
    steps.iter().filter(|step| step.found.as_ref().is_none_or(|lowered| lowered.dispatch.is_err())).count()
}

/// A fused node, if there is a kernel for it, or will be and the CPU can compute it as one until then.
fn fused(context: &DeviceContext, node: &GraphNode, provisional: &mut bool, apart: bool) -> Option<Lowered> {
    let reason = match lower(context, node, apart) {
        Ok(lowered) => match &lowered.dispatch {
            // One description must not take the place of several kernels that are code.
            Ok(dispatch) if dispatch.kernel.kind.code.is_none() && context.kernels.store.prefers_code() => {
                "its kernel is not machine code".to_owned()
            }
            Ok(_) => return Some(lowered),
            // A host call has one result.
            Err(HostReason { pending: true, .. }) if node.further_outputs.is_empty() => return Some(lowered),
            Err(HostReason { text, pending, .. }) => {
                *provisional |= pending;
                text.clone()
            }
        },
        Err(cause) => cause.to_string(),
    };
    log::info(|| format!("{}: nodes are not fused into {}: {reason}", context.name, node.op));
    None
}

impl Recorder<'_> {
    /// Begins a step; `vacated`: its result gets memory of its own.
    fn next_step(&mut self, node: &GraphNode, vacated: bool) {
        match self.moved.take() {
            Some(moved) if !moved.is_written => self.moved = Some(Moved { is_written: true, ..moved }),
            _ => self.arena.release(),
        }
        if vacated && self.moved.is_none() {
            let addresses = node.output.span.range();
            let piece = self.arena.keep(addresses.len());
            self.converted.retain(|c| !overlap(&c.scratch, &piece) && !overlap(&c.source, &addresses));
            self.moved = Some(Moved { addresses, piece, is_written: false });
        }
    }

    /// Where a result is that is not in its own memory.
    fn moved(&self, view: &TensorView, is_written: bool) -> Option<Operand> {
        let here = |moved: &&Moved| moved.is_written == is_written && moved.addresses == view.span.range();
        self.moved.as_ref().filter(here).map(|moved| Operand::scratch(&moved.piece))
    }

    fn node(&mut self, view: &GraphNode, lowered: &Lowered) -> Result<(), PlanError> {
        let late = lowered.dispatch.as_ref().is_ok_and(|dispatch| self.is_late(dispatch));
        match &lowered.dispatch {
            Ok(_) if late => self.host(view, lowered)?,
            Ok(dispatch) => self.array(view, dispatch, lowered.op.result_source())?,
            Err(reason) => {
                if reason.fallback.is_some() {
                    if self.context.require_array {
                        return Err(array_required(view, reason));
                    }
                    log::info(|| format!("{}: {} falls back to the CPU: {}", self.context.name, view.op, reason.text));
                }
                self.host(view, lowered)?;
            }
        }
        let late_reason;
        let place = match &lowered.dispatch {
            Ok(_) if late => {
                late_reason = HostReason::by_design("its rows are computed by the same graph");
                Err(&late_reason)
            }
            Ok(dispatch) => Ok(&dispatch.kernel.kind),
            Err(reason) => Err(reason),
        };
        let index = self.context.statistics.operation(lowered.op.name(), &lowered.name, place);
        let bytes: usize = lowered.node.arguments().map(data_bytes).sum();
        let share = OperationShare {
            bytes: bytes as u64,
            macs: multiply_accumulates(&lowered.node),
            ..OperationShare::default()
        };
        self.share.add(index, place.is_ok(), share);
        Ok(())
    }

    /// Whether the stream of a dispatch goes by data that this graph writes before it. The executor would have to wait for it, as
    /// for a host call.
    fn is_late(&self, dispatch: &Dispatch) -> bool {
        let maker = dispatch.kernel.executable.artifact().stream_maker();
        maker.is_some_and(|maker| {
            let mut read = maker.reads().iter().filter_map(|argument| dispatch.arguments.get(*argument));
            read.any(|argument| self.written.overlaps(&argument.view.span.range()))
        })
    }

    fn host(&mut self, view: &GraphNode, lowered: &Lowered) -> Result<(), PlanError> {
        let function = lowered.op.reference(&lowered.node)?;
        let result_source = lowered.op.result_source();
        let mut inputs = Vec::with_capacity(view.sources.len());
        for (slot, source) in view.sources.iter().enumerate() {
            if let Some(source) = source {
                let never_read = result_source == Some(slot);
                inputs.push(if never_read { self.operand(source)?.into_place() } else { self.input(source)? });
            }
        }
        let updated = self.is_updated(&view.output, result_source);
        let output = if updated { self.operand(&view.output)? } else { self.output(&view.output)? };
        self.host_call(&function, inputs, output)
    }

    /// Whether a result updates memory that is a source too, as a KV cache is. Whatever was written to it before has been written
    /// back: by an earlier graph, or when the program uploaded it.
    fn is_updated(&self, output: &TensorView, result_source: Option<usize>) -> bool {
        let own = self.context.buffers.contains(&output.span.range());
        result_source.is_some() && self.context.writes_all_results() && own
    }

    fn array(&mut self, view: &GraphNode, dispatch: &Dispatch, result_source: Option<usize>) -> Result<(), PlanError> {
        let updated = self.is_updated(&view.output, result_source);
        let direct = dispatch.arguments.iter().map(|argument| match (&argument.conversion, argument.tensors.role) {
            (None, Role::Source(slot)) if result_source == Some(slot) => {
                self.operand(&argument.view).map(|operand| Some(operand.into_place()))
            }
            (None, Role::Output) if updated => self.operand(&argument.view).map(Some),
            _ => self.direct(argument),
        });
        let direct = direct.collect::<Result<Vec<_>, _>>()?;
        let converted = dispatch.arguments.iter().zip(&direct).filter(|(_, direct)| direct.is_none());
        let lengths: Vec<usize> = converted.map(|(argument, _)| argument.tensors.array.span_bytes()).collect();
        let room = self.arena.room(&lengths);
        // Conversions that lie where this node needs room are given up before any of them is looked for.
        self.converted.retain(|c| room.iter().all(|piece| !overlap(&c.scratch, piece)));
        let mut room = room.into_iter();
        let mut operands = Vec::with_capacity(direct.len() + view.further_outputs.len());
        let mut back = None;
        for (argument, direct) in dispatch.arguments.iter().zip(direct) {
            operands.push(match (direct, &argument.conversion) {
                (None, Some(function)) => {
                    let piece = room.next().unwrap_or_default();
                    match argument.tensors.role {
                        Role::Source(_) => self.convert(function, argument, piece)?,
                        Role::Output => {
                            back = Some((function, argument, Operand::scratch(&piece)));
                            Operand::scratch(&piece)
                        }
                    }
                }
                (Some(operand), _) => operand,
                (None, None) => self.operand(&argument.view)?,
            });
        }
        for further in &view.further_outputs {
            operands.push(self.output(further)?);
        }
        let outputs = 1 + view.further_outputs.len();
        let (inputs, written) = operands.split_at(operands.len().saturating_sub(outputs));
        self.order(inputs, written);
        for output in written.iter().filter(|output| output.addresses.end <= SCRATCH_BASE) {
            let set = if updated { &mut self.updated } else { &mut self.dispatched };
            set.insert(output.addresses.clone());
        }
        let bindings = operands.into_iter().map(|operand| operand.reference).collect();
        self.list.dispatch_outputs(&dispatch.kernel.executable, bindings, outputs)?;
        if let Some((function, argument, piece)) = back {
            self.count_conversion(&argument.tensors);
            let output = self.output(&argument.view)?;
            self.host_call(function, vec![piece], output)?;
        }
        Ok(())
    }

    /// The memory of an argument whose bytes are right, or were converted when the plan was built. `None`: convert it.
    fn direct(&mut self, argument: &LoweredArgument) -> Result<Option<Operand>, PlanError> {
        let LoweredArgument { tensors, view, conversion } = argument;
        match (conversion, tensors.role) {
            (None, Role::Source(_)) => self.input(view).map(Some),
            (None, Role::Output) => self.output(view).map(Some),
            (Some(function), Role::Source(_)) if view.weights => {
                let copy = self.converted_weights(function, &view.span.range(), tensors);
                let whole = |copy: Arc<dyn Buffer>| BufferRef::direct(&copy, 0, tensors.array.span_bytes());
                Ok(copy.map(|copy| Operand { addresses: 0..0, reference: whole(copy), is_place: false }))
            }
            _ => Ok(None),
        }
    }

    /// The NPU copy of weights, made now if it has to be. `None`: convert them in the graph.
    fn converted_weights(
        &self,
        function: &Arc<dyn HostFunction>,
        memory: &Range<usize>,
        tensors: &KernelArgument,
    ) -> Option<Arc<dyn Buffer>> {
        let weights = &self.context.weights;
        // Only for our own buffers does ggml tell us when they are written or freed.
        let own = self.context.buffers.find(memory).filter(|_| !self.outputs.overlaps(memory));
        let Some(own) = own else {
            weights.count_rejection();
            return None;
        };
        let key = WeightKey { address: memory.start, original: tensors.original, array: tensors.array };
        match weights.find(&key) {
            Lookup::Found(copy) => return Some(copy),
            Lookup::Rejected => return None,
            Lookup::Missing => {}
        }
        match self.convert_weights(function, &own, tensors.array.span_bytes()) {
            Ok(copy) => {
                weights.insert(key, Arc::clone(&copy));
                Some(copy)
            }
            Err(cause) => {
                if weights.count_rejection() {
                    log::warn(&format!(
                        "{}: weights are converted again in every graph, these and perhaps others: {cause}",
                        self.context.name
                    ));
                }
                None
            }
        }
    }

    fn convert_weights(
        &self,
        function: &Arc<dyn HostFunction>,
        from: &Binding,
        length: usize,
    ) -> Result<Arc<dyn Buffer>, PlanError> {
        if self.context.only_plans {
            return Ok(self.context.hal.allocate(&BufferParams::data(length))?);
        }
        let mut original = vec![0; from.length];
        from.buffer.read(from.offset, &mut original)?;
        let mut array = vec![0; length];
        function.run(&[&original], &mut array)?;
        drop(original);
        let copy = self.context.hal.allocate(&BufferParams::data(length))?;
        copy.write(0, &array)?;
        copy.flush(0..length)?;
        Ok(copy)
    }

    /// Converts a source into `piece`, unless an earlier node did the same and both are still valid.
    fn convert(
        &mut self,
        function: &Arc<dyn HostFunction>,
        argument: &LoweredArgument,
        piece: Range<usize>,
    ) -> Result<Operand, PlanError> {
        let LoweredArgument { tensors: KernelArgument { original, array, .. }, view, .. } = argument;
        let memory = view.span.range();
        let same = |c: &&Converted| (&c.source, &c.original, &c.array) == (&memory, original, array);
        if let Some(earlier) = self.converted.iter().find(same) {
            return Ok(Operand::scratch(&earlier.scratch));
        }
        self.count_conversion(&argument.tensors);
        let input = match self.moved(view, true) {
            Some(moved) => moved,
            None => {
                self.read(&memory);
                self.operand(view)?
            }
        };
        self.host_call(function, vec![input], Operand::scratch(&piece))?;
        let operand = Operand::scratch(&piece);
        self.converted.push(Converted { source: memory, original: *original, array: *array, scratch: piece });
        Ok(operand)
    }

    fn count_conversion(&mut self, tensors: &KernelArgument) {
        self.share.conversions.host_calls += 1;
        self.share.conversions.bytes += (data_bytes(&tensors.original) + data_bytes(&tensors.array)) as u64;
    }

    /// Notes that the graph reads memory.
    fn read(&mut self, memory: &Range<usize>) {
        for part in self.written.missing(memory) {
            self.flush.insert(part);
        }
    }

    fn input(&mut self, view: &TensorView) -> Result<Operand, PlanError> {
        if let Some(moved) = self.moved(view, true) {
            return Ok(moved);
        }
        let memory = view.span.range();
        if view.weights && !self.outputs.overlaps(&memory) {
            self.flush_once.insert(memory);
        } else {
            self.read(&memory);
        }
        self.operand(view)
    }

    fn output(&mut self, view: &TensorView) -> Result<Operand, PlanError> {
        if let Some(moved) = self.moved(view, false) {
            return Ok(moved);
        }
        // What the node leaves unwritten must survive: the device's view of it is read back with the rest.
        if view.view || !view.tensor.is_contiguous() {
            self.read(&view.span.range());
        }
        self.operand(view)
    }

    fn operand(&mut self, view: &TensorView) -> Result<Operand, PlanError> {
        let addresses = view.span.range();
        self.used.insert(addresses.clone());
        let Binding { buffer, offset, length } = self.memory.find(&addresses)?;
        Ok(Operand { addresses, reference: BufferRef::direct(&buffer, offset, length), is_place: false })
    }

    /// Orders a command after those it depends on, and notes what it writes.
    fn order(&mut self, inputs: &[Operand], outputs: &[Operand]) {
        let addresses = |operand: &Operand| operand.addresses.clone();
        let (reads, writes): (Vec<_>, Vec<_>) =
            (inputs.iter().map(addresses).collect(), outputs.iter().map(addresses).collect());
        if self.hazards.command(&reads, &writes) {
            self.list.barrier();
        }
        for input in inputs.iter().filter(|input| !input.is_place) {
            self.written.missing(&input.addresses).into_iter().for_each(|part| self.taken.insert(part));
        }
        self.repeats &= !writes.iter().any(|write| self.taken.overlaps(write));
        for written in writes {
            self.converted.retain(|c| !overlap(&c.source, &written));
            self.written.insert(written);
        }
    }

    fn host_call(
        &mut self,
        function: &Arc<dyn HostFunction>,
        inputs: Vec<Operand>,
        output: Operand,
    ) -> Result<(), PlanError> {
        self.order(&inputs, slice::from_ref(&output));
        let inputs = inputs.into_iter().map(|input| input.reference).collect();
        self.list.host_call(function, inputs, output.reference)?;
        Ok(())
    }

    /// Notes which results of a plan that nothing runs are cleared in its place, because the program goes by them: those it reads, and
    /// whole numbers, which can be rows that a node elsewhere is to take.
    fn clear(&mut self, graph: &Graph) -> Result<(), PlanError> {
        if !self.context.only_plans {
            return Ok(());
        }
        let last = graph.nodes.last().map(|node| node.output.id);
        let outputs = graph.nodes.iter().map(|node| node.output);
        for view in outputs.filter(|view| view.read || Some(view.id) == last || view.tensor.dtype == DataType::I32) {
            self.memory.split(view.span.range(), &mut self.cleared)?;
        }
        Ok(())
    }

    /// Has the device make room for the machine code of later graphs, with the first graph.
    fn expect(&mut self, foreseen: &[Kernel]) {
        let mut expected = HashSet::new();
        for Kernel { executable, kind } in foreseen {
            if kind.code.is_some_and(|pdi| expected.insert(pdi)) {
                self.list.expect(executable);
            }
        }
    }

    fn finish(self) -> Result<Plan, PlanError> {
        let list = self.list.finish();
        let bindings = |set: &RangeSet| {
            let mut parts = Vec::new();
            set.iter().try_for_each(|range| self.memory.split(range, &mut parts)).map(|()| parts)
        };
        for part in bindings(&self.flush_once)? {
            part.buffer.flush(part.offset..part.offset + part.length)?;
        }
        Ok(Plan {
            commands: (!list.commands().is_empty()).then(|| Arc::new(list)),
            scratch_bytes: self.arena.size(),
            flush: bindings(&self.flush)?,
            invalidate: bindings(&self.dispatched)?,
            updated: bindings(&self.updated)?,
            used: self.used,
            repeats: self.repeats,
            cleared: self.cleared,
            shared: false,
            share: self.share,
            weights_generation: 0,
            kernel_moves: 0,
            awaiting: None,
        })
    }
}

/// Bytes of a tensor's elements, without gaps.
fn data_bytes(tensor: &Tensor) -> usize {
    tensor.dtype.row_bytes(tensor.ne[0]) * tensor.rows()
}

/// Whether the program may touch memory of `node` as soon as `graph_compute` has returned: it writes the inputs of its next
/// graph, and memory outside our buffers, without asking us. Weights stay as they are.
fn is_shared(context: &DeviceContext, node: &GraphNode) -> bool {
    let foreign = |view: &TensorView| !context.buffers.contains(&view.span.range());
    node.inputs().any(|view| !view.weights && (view.input || foreign(view))) || foreign(&node.output)
}

/// Work has to run on the array (`GGML_HSA_REQUIRE_ARRAY`) and has no kernel: what it is, and why it cannot run there.
fn array_required(node: &GraphNode, reason: &HostReason) -> PlanError {
    let hint = if reason.pending { format!("; with {GGML_HSA_JIT}=eager graphs wait for it") } else { String::new() };
    PlanError::ArrayRequired(format!(
        "{} belongs on the array and would run on the CPU, which {GGML_HSA_REQUIRE_ARRAY} forbids: {}{hint}",
        node.describe(),
        reason.text
    ))
}
