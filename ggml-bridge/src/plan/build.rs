//! Recording a graph.
//!
//! A node planned for the array becomes: conversions of the arguments whose bytes differ on the array (as host calls), the
//! dispatch, and a conversion of the result. A node planned for the host, or for which there is no kernel, becomes one host
//! call in the same list, so that the graph stays one submission; the reason is counted.

use super::Plan;
use super::arena::Arena;
use super::fusion::{Step, fuse};
use super::hazard::HazardTracker;
use super::memory::{GraphMemory, range};
use super::required::forbidden;
use crate::graph::{Graph, GraphNode, TensorView};
use crate::kernels::Missing;
use crate::log;
use crate::memory::Place;
use crate::npu::Npu;
use crate::ranges::RangeSet;
use crate::statistics::{HostReason, RunShare};
use crate::weights::{Lookup, WeightKey};
use aie_hal::command_list::RecordError;
use aie_hal::{Buffer, BufferParams, BufferRef, CommandList, Executable, HostFunction};
use aie_ops::family::copy;
use aie_ops::name::kernel_name;
use aie_ops::normalise::{KernelArgument, Role, normalise};
use aie_ops::{Node, Operation, Placement, Tensor, table};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// Where scratch memory lies for the hazard tracker: behind every address a process can have.
const SCRATCH_BASE: usize = 1 << (usize::BITS - 1);

/// Memory of a command.
#[derive(Debug, Clone)]
enum Operand {
    /// Host-visible memory that the graph names.
    Memory(Range<usize>),
    /// Scratch memory.
    Scratch(Range<usize>),
    /// Converted weights; never written after.
    Weights(Arc<dyn Buffer>, usize),
}

impl Operand {
    /// The addresses for hazards.
    fn addresses(&self) -> Range<usize> {
        match self {
            Self::Memory(range) => range.clone(),
            Self::Scratch(range) => SCRATCH_BASE + range.start..SCRATCH_BASE + range.end,
            Self::Weights(..) => 0..0,
        }
    }
}

enum Recorded {
    Barrier,
    /// With the number of outputs.
    Dispatch(Arc<dyn Executable>, Vec<BufferRef>, usize),
    HostCall(Arc<dyn HostFunction>, Vec<BufferRef>, BufferRef),
}

/// A conversion that a later node can use again.
struct Converted {
    source: Range<usize>,
    original: Tensor,
    array: Tensor,
    scratch: Range<usize>,
}

/// An argument on its way to the array.
enum Prepared {
    /// As it is.
    Direct(Operand),
    /// Through scratch memory, with this kernel.
    Convert { kernel: Arc<dyn HostFunction>, memory: Range<usize>, argument: KernelArgument },
}

struct Builder<'a> {
    npu: &'a Npu,
    memory: GraphMemory<'a>,
    steps: Vec<Recorded>,
    hazards: HazardTracker,
    arena: Arena,
    converted: Vec<Converted>,
    /// Written by the graph so far.
    written: RangeSet,
    /// Written by dispatches. What host calls write is in the host's view already.
    dispatched: RangeSet,
    /// Written anywhere in the graph.
    outputs: RangeSet,
    flush: RangeSet,
    flush_once: RangeSet,
    used: RangeSet,
    shared: bool,
    share: RunShare,
    /// Whether a kernel is missing that is on its way.
    provisional: Cell<bool>,
}

pub(super) fn build(npu: &Npu, graph: &Graph) -> Result<Plan, String> {
    let weights_generation = npu.weights().generation();
    let arrivals = npu.kernels().arrivals();
    let mut outputs = RangeSet::default();
    graph.nodes.iter().for_each(|node| outputs.insert(range(node.output.span)));
    let mut builder = Builder {
        npu,
        memory: GraphMemory::new(npu, graph)?,
        steps: Vec::new(),
        hazards: HazardTracker::default(),
        arena: Arena::default(),
        converted: Vec::new(),
        written: RangeSet::default(),
        dispatched: RangeSet::default(),
        outputs,
        flush: RangeSet::default(),
        flush_once: RangeSet::default(),
        used: RangeSet::default(),
        shared: graph.nodes.iter().any(|node| is_shared(npu, node)),
        share: RunShare { nodes: graph.nodes.len(), ..RunShare::default() },
        provisional: Cell::new(false),
    };
    let steps = if npu.fusion() {
        fuse(graph, |node| builder.can_dispatch(node))
    } else {
        graph.nodes.iter().map(|node| Step { node: node.clone(), nodes: 1 }).collect()
    };
    for Step { node, nodes } in &steps {
        builder.node(node).map_err(|cause| format!("{}: {cause}", node.op))?;
        if *nodes > 1 {
            builder.share.fusion.dispatches += 1;
            builder.share.fusion.nodes += *nodes as u64;
        }
    }
    builder.finish(weights_generation, arrivals)
}

impl Builder<'_> {
    /// Whether there is a kernel for `node`, or will be and the host can compute it as one until then.
    fn can_dispatch(&self, node: &GraphNode) -> bool {
        let Some(op) = table::lookup(node.op) else { return false };
        let node = node.node();
        let checked = op.check(&node).and_then(|()| normalise(op, &node, self.npu.f16()));
        let kernel = checked.map_err(|cause| Missing::from(cause.to_string()));
        match kernel.and_then(|normalised| self.npu.kernels().get(op, &normalised.node)) {
            Ok(_) => true,
            // A host call has one result.
            Err(Missing { pending: true, .. }) if node.further_outputs.is_empty() => true,
            Err(Missing { reason, pending, .. }) => {
                self.provisional.set(self.provisional.get() || pending);
                log::info(|| format!("{}: nodes stay apart instead of {}: {reason}", self.npu.name(), op.name()));
                false
            }
        }
    }

    /// The kernel of a normalised node. A plan that goes without one that is on its way is provisional.
    fn kernel(&self, op: &dyn Operation, node: &Node) -> Result<Arc<dyn Executable>, Missing> {
        self.npu.kernels().get(op, node).inspect_err(|missing| {
            self.provisional.set(self.provisional.get() || missing.pending);
        })
    }

    fn node(&mut self, graph_node: &GraphNode) -> Result<(), String> {
        let node = graph_node.node();
        let op = table::lookup(graph_node.op).ok_or("not an operation of this backend; it was never claimed")?;
        op.check(&node).map_err(|cause| cause.to_string())?;
        match op.placement(&node) {
            Placement::Host(text) => self.host(op, graph_node, &node, HostReason { text, fallback: None }),
            Placement::Array => self.array(op, graph_node, &node).or_else(|missing| {
                if self.npu.requires_array() {
                    return Err(forbidden(graph_node, &missing));
                }
                let Missing { reason, cause, .. } = &missing;
                log::info(|| format!("{}: {} runs on the host: {reason}", self.npu.name(), graph_node.op));
                self.host(op, graph_node, &node, HostReason { text: reason, fallback: Some(cause) })
            }),
        }
    }

    fn host(
        &mut self,
        op: &dyn Operation,
        view: &GraphNode,
        node: &Node,
        reason: HostReason<'_>,
    ) -> Result<(), String> {
        let kernel = op.reference(node).map_err(|cause| cause.to_string())?;
        let inputs = view.sources.iter().enumerate().filter_map(|(slot, source)| {
            let source = source.as_ref()?;
            let never_read = op.result_source() == Some(slot);
            Some(if never_read { Operand::Memory(range(source.span)) } else { self.input(source) })
        });
        let inputs: Vec<Operand> = inputs.collect();
        let memory = range(view.output.span);
        // A KV cache is such a result. Whatever was written to it before has been written back: by an earlier graph, or when the
        // program uploaded it.
        let updated = op.result_source().is_some() && self.npu.writes_all_results() && self.memory.is_own(&memory);
        let output = if updated { Operand::Memory(memory) } else { self.output(&view.output) };
        self.host_call(&kernel, &inputs, &output)?;
        self.count(op, node, Some(reason));
        Ok(())
    }

    /// Nothing is recorded when this fails.
    fn array(&mut self, op: &dyn Operation, view: &GraphNode, node: &Node) -> Result<(), Missing> {
        let normalised = normalise(op, node, self.npu.f16()).map_err(|cause| cause.to_string())?;
        let executable = self.kernel(op, &normalised.node)?;
        let prepared = normalised.arguments.iter().map(|argument| self.prepare(view, argument));
        let prepared = prepared.collect::<Result<Vec<_>, _>>()?;

        let lengths: Vec<usize> = prepared
            .iter()
            .filter_map(|p| match p {
                Prepared::Convert { argument, .. } => Some(argument.array.span_bytes()),
                Prepared::Direct(_) => None,
            })
            .collect();
        let room = self.arena.room(&lengths);
        // Conversions that lie where this node needs room are given up before any of them is looked for.
        room.iter().for_each(|piece| self.converted.retain(|c| !overlap(&c.scratch, piece)));
        let mut room = room.into_iter();
        let mut operands = Vec::with_capacity(prepared.len());
        let mut back = None;
        for argument in prepared {
            operands.push(match argument {
                Prepared::Direct(operand) => operand,
                Prepared::Convert { kernel, memory, argument } => {
                    let piece = room.next().ok_or_else(|| "scratch memory was not reserved".to_owned())?;
                    match argument.role {
                        Role::Source(_) => self.convert(&kernel, memory, &argument, piece)?,
                        Role::Output => {
                            back = Some((kernel, piece.clone(), memory, argument));
                            Operand::Scratch(piece)
                        }
                    }
                }
            });
        }
        operands.extend(view.further_outputs.iter().map(|further| self.output(further)));
        self.dispatch(&executable, &operands, 1 + view.further_outputs.len())?;
        if let Some((kernel, piece, memory, output)) = back {
            self.count_conversion(&output);
            if view.output.view || !view.output.tensor.is_contiguous() {
                self.read(&memory);
            }
            self.host_call(&kernel, &[Operand::Scratch(piece)], &Operand::Memory(memory))?;
        }
        self.count(op, node, None);
        Ok(())
    }

    fn prepare(&mut self, view: &GraphNode, argument: &KernelArgument) -> Result<Prepared, String> {
        let tensor = match argument.role {
            Role::Source(slot) => view.sources.get(slot).copied().flatten().ok_or("an argument is missing")?,
            Role::Output => view.output,
        };
        let memory = range(tensor.span);
        if !argument.conversion {
            return Ok(Prepared::Direct(match argument.role {
                Role::Source(_) => self.input(&tensor),
                Role::Output => self.output(&tensor),
            }));
        }
        let (original, array) = argument.converted();
        let (from, to) = match argument.role {
            Role::Source(_) => (&original, &array),
            Role::Output => (&array, &original),
        };
        let kernel = copy::convert(from, to).map_err(|cause| cause.to_string())?;
        if tensor.weights
            && matches!(argument.role, Role::Source(_))
            && let Some(copy) = self.converted_weights(&kernel, &memory, argument)
        {
            return Ok(Prepared::Direct(Operand::Weights(copy, argument.array.span_bytes())));
        }
        Ok(Prepared::Convert { kernel, memory, argument: *argument })
    }

    /// The NPU copy of weights, made now if it has to be. `None`: convert them in the graph.
    fn converted_weights(
        &self,
        kernel: &Arc<dyn HostFunction>,
        memory: &Range<usize>,
        argument: &KernelArgument,
    ) -> Option<Arc<dyn Buffer>> {
        let weights = self.npu.weights();
        // Only for our own buffers does ggml tell us when they are written or freed.
        if !self.memory.is_own(memory) || self.outputs.overlaps(memory) {
            weights.refuse();
            return None;
        }
        let key = WeightKey { address: memory.start, original: argument.original, array: argument.array };
        match weights.find(&key) {
            Lookup::Found(copy) => return Some(copy),
            Lookup::Refused => return None,
            Lookup::Missing => {}
        }
        match self.convert_weights(kernel, memory, argument) {
            Ok(copy) => {
                weights.insert(key, Arc::clone(&copy));
                Some(copy)
            }
            Err(cause) => {
                if weights.refuse() {
                    log::warn(&format!(
                        "{}: weights stay as they are and are converted in each graph, these and perhaps more: {cause}",
                        self.npu.name()
                    ));
                }
                None
            }
        }
    }

    fn convert_weights(
        &self,
        kernel: &Arc<dyn HostFunction>,
        memory: &Range<usize>,
        argument: &KernelArgument,
    ) -> Result<Arc<dyn Buffer>, String> {
        let Place { buffer, offset } = self.memory.place(memory)?;
        let mut original = vec![0; memory.len()];
        buffer.read(offset, &mut original).map_err(|cause| cause.to_string())?;
        let mut array = vec![0; argument.array.span_bytes()];
        kernel.run(&[&original], &mut array).map_err(|cause| cause.to_string())?;
        drop(original);
        let copy = self.npu.device().allocate(&BufferParams::data(array.len())).map_err(|cause| cause.to_string())?;
        copy.write(0, &array).and_then(|()| copy.flush(0..array.len())).map_err(|cause| cause.to_string())?;
        Ok(copy)
    }

    /// Converts a source into `piece`, unless an earlier node did the same and both are still valid.
    fn convert(
        &mut self,
        kernel: &Arc<dyn HostFunction>,
        memory: Range<usize>,
        argument: &KernelArgument,
        piece: Range<usize>,
    ) -> Result<Operand, String> {
        let same = |c: &&Converted| c.source == memory && c.original == argument.original && c.array == argument.array;
        if let Some(earlier) = self.converted.iter().find(same) {
            return Ok(Operand::Scratch(earlier.scratch.clone()));
        }
        self.read(&memory);
        self.count_conversion(argument);
        self.host_call(kernel, &[Operand::Memory(memory.clone())], &Operand::Scratch(piece.clone()))?;
        let (original, array) = (argument.original, argument.array);
        self.converted.push(Converted { source: memory, original, array, scratch: piece.clone() });
        Ok(Operand::Scratch(piece))
    }

    fn count_conversion(&mut self, argument: &KernelArgument) {
        self.share.conversions.host_calls += 1;
        self.share.conversions.bytes += (data_bytes(&argument.original) + data_bytes(&argument.array)) as u64;
    }

    fn count(&mut self, op: &dyn Operation, node: &Node, host_reason: Option<HostReason<'_>>) {
        let shape = match normalise(op, node, self.npu.f16()) {
            Ok(normalised) => kernel_name(op, &normalised.node),
            Err(_) => kernel_name(op, node),
        };
        let bytes: usize = node.arguments().map(data_bytes).sum();
        let index = self.npu.statistics().operation(op.name(), &shape, host_reason);
        self.share.add(index, host_reason.is_none(), bytes as u64);
    }

    /// Notes that the graph reads memory.
    fn read(&mut self, memory: &Range<usize>) {
        for part in self.written.missing(memory) {
            self.flush.insert(part);
        }
    }

    fn input(&mut self, view: &TensorView) -> Operand {
        let memory = range(view.span);
        if view.weights && !self.outputs.overlaps(&memory) {
            self.flush_once.insert(memory.clone());
        } else {
            self.read(&memory);
        }
        Operand::Memory(memory)
    }

    fn output(&mut self, view: &TensorView) -> Operand {
        let memory = range(view.span);
        // What the node leaves unwritten must survive: the device's view of it is read back with the rest.
        if view.view || !view.tensor.is_contiguous() {
            self.read(&memory);
        }
        Operand::Memory(memory)
    }

    fn reference(&mut self, operand: &Operand) -> Result<BufferRef, String> {
        Ok(match operand {
            Operand::Memory(memory) => {
                self.used.insert(memory.clone());
                let Place { buffer, offset } = self.memory.place(memory)?;
                BufferRef::direct(&buffer, offset, memory.len())
            }
            Operand::Scratch(range) => BufferRef::slot(0, range.start, range.len()),
            Operand::Weights(buffer, length) => BufferRef::direct(buffer, 0, *length),
        })
    }

    /// Orders a command after those it depends on, and notes what it writes.
    fn order(&mut self, inputs: &[Operand], outputs: &[Operand]) {
        let addresses = |operands: &[Operand]| operands.iter().map(Operand::addresses).collect::<Vec<Range<usize>>>();
        if self.hazards.command(&addresses(inputs), &addresses(outputs)) {
            self.steps.push(Recorded::Barrier);
        }
        for output in outputs {
            if let Operand::Memory(memory) = output {
                self.written.insert(memory.clone());
                self.converted.retain(|c| !overlap(&c.source, memory));
            }
        }
    }

    fn host_call(
        &mut self,
        kernel: &Arc<dyn HostFunction>,
        inputs: &[Operand],
        output: &Operand,
    ) -> Result<(), String> {
        let references = inputs.iter().map(|i| self.reference(i)).collect::<Result<Vec<_>, _>>()?;
        let target = self.reference(output)?;
        self.order(inputs, std::slice::from_ref(output));
        self.steps.push(Recorded::HostCall(Arc::clone(kernel), references, target));
        Ok(())
    }

    /// `operands` are sources, then `outputs` outputs.
    fn dispatch(
        &mut self,
        executable: &Arc<dyn Executable>,
        operands: &[Operand],
        outputs: usize,
    ) -> Result<(), String> {
        let sources = operands.len().checked_sub(outputs).ok_or("a kernel without arguments")?;
        let references = operands.iter().map(|o| self.reference(o)).collect::<Result<Vec<_>, _>>()?;
        let (inputs, written) = operands.split_at(sources);
        self.order(inputs, written);
        for output in written {
            if let Operand::Memory(memory) = output {
                self.dispatched.insert(memory.clone());
            }
        }
        self.steps.push(Recorded::Dispatch(Arc::clone(executable), references, outputs));
        Ok(())
    }

    fn finish(self, weights_generation: u64, arrivals: u64) -> Result<Plan, String> {
        let scratch_bytes = self.arena.size();
        let commands = if self.steps.is_empty() {
            None
        } else {
            let list = record(&self.steps).map_err(|cause| cause.to_string())?;
            Some(Arc::new(list))
        };
        let ranges = |set: &RangeSet| {
            let mut parts = Vec::new();
            set.iter().try_for_each(|range| self.memory.split(range, &mut parts)).map(|()| parts)
        };
        for part in ranges(&self.flush_once)? {
            part.buffer.flush(part.range).map_err(|cause| cause.to_string())?;
        }
        Ok(Plan {
            commands,
            scratch_bytes,
            flush: ranges(&self.flush)?,
            invalidate: ranges(&self.dispatched)?,
            used: self.used,
            shared: self.shared,
            share: self.share,
            weights_generation,
            awaiting: self.provisional.get().then_some(arrivals),
        })
    }
}

/// Bytes of a tensor's elements, without gaps.
fn data_bytes(tensor: &Tensor) -> usize {
    tensor.dtype.row_bytes(tensor.ne[0]) * tensor.rows()
}

/// Whether the program may touch memory of `node` as soon as `graph_compute` has returned: it writes the inputs of its next
/// graph, and memory outside our buffers, without asking us. Weights stay as they are.
fn is_shared(npu: &Npu, node: &GraphNode) -> bool {
    let foreign = |view: &TensorView| npu.find(&range(view.span)).is_none();
    node.inputs().any(|view| !view.weights && (view.input || foreign(view))) || foreign(&node.output)
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

fn record(steps: &[Recorded]) -> Result<CommandList, RecordError> {
    let mut list = CommandList::builder();
    for step in steps {
        match step {
            Recorded::Barrier => {
                list.barrier();
            }
            Recorded::Dispatch(executable, bindings, outputs) => {
                list.dispatch_outputs(executable, bindings.clone(), *outputs)?;
            }
            Recorded::HostCall(kernel, inputs, output) => {
                list.host_call(kernel, inputs.clone(), output.clone())?;
            }
        }
    }
    Ok(list.finish())
}
