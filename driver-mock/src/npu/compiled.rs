//! Kernels as a simulated NPU executes them: reference artifacts on the CPU, everything else as machine code.
//!
//! A reference artifact carries a description, and the [`KernelExecutor`] from outside knows what it computes. Any other PDI
//! configures tiles, so it is loaded into an emulated array ([`aie_emulator`]), register write by register write, and its
//! instruction stream runs there on the memory of the arguments.
//!
//! The array keeps its state between dispatches, as silicon does. What is loaded is judged by its [`PdiPlace`], as firmware does it: a
//! PDI is loaded when the context was another one, since nothing of an array survives a change of context; when the last PDI was at
//! another address; and when the last dispatch did not complete.

use super::overlay::{Overlay, Writable};
use super::trace::Trace;
use super::{ContextId, WATCHDOG_NS};
use aie_device_memory::Span;
use aie_emulator::{Array, HostMemory, Loops, Outcome, Reloads, Rules, Timing, Undefined};
use aie_hal::KernelExecutor;
use aie_hal::arch::Arch;
use aie_hal::artifact::KernelArtifact;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{ARRAY_OFFSET, InstructionStream, TRANSLATED_ARGUMENTS};
use aie_hal::format::pdi::Pdi;
use aie_hal::format::reference;
use aie_hal::host_function::{HostFunction, HostFunctionError};
use aie_isa::Isa;
use std::ops::Range;
use std::sync::Arc;

/// A kernel that a simulated NPU can execute.
#[derive(Debug)]
pub enum Kernel {
    /// What a reference artifact describes.
    Reference(Arc<dyn HostFunction>),
    /// A PDI that configures tiles.
    Compiled(KernelArtifact),
}

impl Kernel {
    /// The kernel of an artifact; `executor` turns a description into a function.
    ///
    /// # Errors
    /// [`HostFunctionError::NotExecutable`] when there is a description that `executor` rejects.
    pub fn prepare(artifact: &KernelArtifact, executor: &dyn KernelExecutor) -> Result<Self, HostFunctionError> {
        // A damaged description is the executor's to report.
        let described = Pdi::parse(artifact.pdi()).map(|pdi| reference::extract(&pdi.cdo()));
        if matches!(described, Ok(Ok(None))) {
            return Ok(Self::Compiled(artifact.clone()));
        }
        executor.prepare(artifact).map(Self::Reference)
    }
}

/// Which bytes of its arguments a kernel may touch: those of joined dispatches are wider than what each of them uses.
#[derive(Debug)]
pub struct Allowed {
    /// Where each argument starts.
    pub addresses: Vec<u64>,
    /// What it may read, as addresses.
    pub reads: Ranges,
    /// What it may read and write.
    pub writes: Ranges,
}

/// Ranges of addresses, of which a joined dispatch has hundreds, for a question at each access.
#[derive(Debug)]
pub struct Ranges {
    /// By where they start, with where the one that goes furthest ends, of those that start no later.
    reach: Vec<(u64, u64)>,
}

impl Ranges {
    /// These ranges, in any order.
    pub fn new(ranges: &[Range<u64>]) -> Self {
        let mut reach: Vec<(u64, u64)> = ranges.iter().map(|range| (range.start, range.end)).collect();
        reach.sort_unstable();
        let mut furthest = 0;
        for (_, end) in &mut reach {
            furthest = furthest.max(*end);
            *end = furthest;
        }
        Self { reach }
    }

    /// Whether one of them has all these addresses.
    fn have(&self, start: u64, end: u64) -> bool {
        let count = self.reach.partition_point(|(from, _)| *from <= start);
        self.reach[..count].last().is_some_and(|(_, furthest)| end <= *furthest)
    }
}

impl Allowed {
    fn permits(&self, argument: usize, offset: usize, bytes: usize, is_write: bool) -> bool {
        let Some(address) = self.addresses.get(argument) else { return false };
        let (start, end) = (address + offset as u64, address + (offset + bytes) as u64);
        self.writes.have(start, end) || !is_write && self.reads.have(start, end)
    }
}

/// Where a dispatch's PDI is: what firmware tells configurations of the array apart by, whatever their bytes are. Published reports
/// have it of PDIs that a stream loads on XDNA 2 (mlir-aie pull request 3622).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PdiPlace {
    /// The hardware context that the dispatch belongs to.
    pub context: ContextId,
    /// The PDI's address in the device heap; an index where PDIs have no address.
    pub address: u64,
}

/// The array in one order of events, and where the PDI was that configured it.
#[derive(Debug, Default)]
struct Order {
    rules: Rules,
    reloads: Option<Reloads>,
    loaded: Option<(PdiPlace, Array)>,
}

/// A dispatch, as every order runs it.
struct Run<'a> {
    place: PdiPlace,
    kernel: &'a KernelArtifact,
    stream: &'a InstructionStream<'a>,
    addresses: &'a [u64],
}

/// The array that runs compiled kernels. It belongs to one NPU; who holds it has it alone.
#[derive(Debug)]
pub struct CompiledArray {
    arch: Arc<Arch>,
    cycle_limit: u64,
    keeps_residue: bool,
    loops: Loops,
    trace: Option<Trace>,
    /// What gives the results.
    order: Order,
    /// What has to give the same.
    others: Vec<Order>,
    bundles: u64,
}

impl CompiledArray {
    /// An array of generation `arch`, without a PDI.
    pub fn new(arch: Arc<Arch>) -> Self {
        let cycle_limit = WATCHDOG_NS.saturating_mul(arch.cost.clock_mhz.expected) / 1000;
        let (order, others) = (Order::default(), Vec::new());
        Self {
            arch,
            cycle_limit,
            keeps_residue: false,
            loops: Loops::default(),
            trace: None,
            order,
            others,
            bundles: 0,
        }
    }

    /// Sets after how many cycles the watchdog ends a dispatch; by default those of [`WATCHDOG_NS`].
    pub fn set_cycle_limit(&mut self, cycles: u64) {
        self.cycle_limit = cycles;
    }

    /// Sets the order of events: a fixed one, or that of a [seed](Rules::interleaving). With `others`, each dispatch is also run in so many
    /// other orders, those of the seeds from 1 on, and fails where one of them gives other bytes. With a seed in `reloads` the context
    /// loses the array before some dispatches, others in each order: its PDI is loaded again into one with other noise.
    pub fn set_order(&mut self, seed: Option<u64>, others: u64, reloads: Option<u64>) {
        let order = |seed: Option<u64>| {
            let mut rules = Rules::default();
            rules.interleaving = seed;
            rules.undefined = seed.map_or_else(Undefined::default, Undefined::Noise);
            let reloads = reloads.map(|drawn| Reloads::new(drawn ^ seed.unwrap_or_default() << 32));
            Order { rules, reloads, loaded: None }
        };
        (self.order, self.others) = (order(seed), (1..=others).map(|seed| order(Some(seed))).collect());
    }

    /// Whether a PDI finds the array as the last dispatch left it, instead of one after power-on. Whether firmware clears it is not
    /// published; reports of mem tile channels that hang after a module load (mlir-aie issue 3062) fit one that does not.
    pub fn keep_residue(&mut self, keeps: bool) {
        self.keeps_residue = keeps;
    }

    /// Sets what zero-overhead loops of kernels that are loaded from now on do.
    pub fn set_loops(&mut self, loops: Loops) {
        self.loops = loops;
    }

    /// Records the dispatches from now on.
    pub fn set_trace(&mut self, trace: Trace) {
        self.trace = Some(trace);
    }

    /// Instruction bundles that its cores have executed, those of dispatches that failed included.
    pub fn bundles(&self) -> u64 {
        self.bundles
    }

    /// Runs a stream of a kernel whose PDI is at `place`, one [for firmware](InstructionStream::for_firmware), on its arguments. It may
    /// touch no more of them than `allowed`, if that is given.
    ///
    /// # Errors
    /// Why it never signals: what the array cannot execute, or who waits for what; or in which order it gives something else. The array
    /// is reset then.
    pub fn run(
        &mut self,
        place: PdiPlace,
        kernel: &KernelArtifact,
        stream: &[u8],
        arguments: &[Span<'_>],
        allowed: Option<&Allowed>,
    ) -> Result<Completed, String> {
        let stream = &InstructionStream::parse(stream).map_err(|error| error.to_string())?;
        let addresses: Vec<u64> = (0..arguments.len() as u64).map(|index| (index + 1) * APART).collect();
        let run = Run { place, kernel, stream, addresses: &addresses };
        let memory = || ArgumentMemory { arguments, allowed, written: vec![false; arguments.len()], rejected: None };
        let mut order = std::mem::take(&mut self.order);
        let ran = if self.others.is_empty() {
            let mut memory = memory();
            let ran = self.run_in(&mut order, &run, &mut memory, true);
            ran.map_err(|error| memory.rejected.take().unwrap_or(error)).map(|busy_ns| (busy_ns, memory))
        } else {
            self.run_in_all(&mut order, &run, memory)
        };
        self.order = order;
        let (busy_ns, memory) = ran.inspect_err(|_| self.forget())?;
        Ok(Completed { busy_ns, operations: stream.charged_operations(), written: memory.written })
    }

    /// After a failure nothing of what is loaded counts.
    fn forget(&mut self) {
        self.order.loaded = None;
        self.others.iter_mut().for_each(|other| other.loaded = None);
    }

    /// Runs a dispatch in all orders on the memory as it is, and then lets the writes reach it, if they are the same in all of them.
    fn run_in_all<'a>(
        &mut self,
        order: &mut Order,
        run: &Run<'_>,
        memory: impl Fn() -> ArgumentMemory<'a>,
    ) -> Result<(u64, ArgumentMemory<'a>), String> {
        let mut expected = Overlay::over(memory());
        let ran = self.run_in(order, run, &mut expected, true);
        let busy_ns = ran.map_err(|error| expected.memory().rejected.clone().unwrap_or(error))?;
        let mut others = std::mem::take(&mut self.others);
        let compared = others.iter_mut().try_for_each(|other| {
            let mut found = Overlay::over(memory());
            let ran = self.run_in(other, run, &mut found, false);
            let what = match ran.map_err(|error| found.memory().rejected.clone().unwrap_or(error)) {
                Err(error) => error,
                Ok(_) => match expected.difference(&found) {
                    None => return Ok(()),
                    Some(at) => format!("byte {} of argument {} is another one", at % APART, at / APART - 1),
                },
            };
            let seed = other.rules.interleaving.unwrap_or_default();
            Err(format!("it depends on the order of events: in that of seed {seed}, {what}"))
        });
        self.others = others;
        compared.map(|()| (busy_ns, expected.commit()))
    }

    /// Runs a dispatch in one order. Gives the nanoseconds that it took.
    fn run_in(
        &mut self,
        order: &mut Order,
        run: &Run<'_>,
        memory: &mut impl HostMemory,
        is_traced: bool,
    ) -> Result<u64, String> {
        let reloaded = order.reloads.as_mut().and_then(Reloads::draw);
        let mut array = match order.loaded.take() {
            Some((loaded, mut array)) if loaded == run.place && reloaded.is_none() => {
                array.write(0, 1, 0, WRITTEN_BETWEEN, u32::MAX).map_err(|error| error.to_string())?;
                array
            }
            last => {
                let last = last.map(|(_, array)| array).filter(|_| self.keeps_residue);
                let rules = reloaded.map_or(order.rules, |seed| order.rules.varied(seed));
                let mut array = last.map_or_else(|| self.array(rules), Ok)?;
                let pdi = Pdi::parse(run.kernel.pdi()).map_err(|error| error.to_string())?;
                array.load(&pdi, memory).map_err(|error| format!("loading its PDI: {error}"))?;
                array
            }
        };
        array.record_timeline(is_traced && self.trace.is_some());
        let (begin, before) = (array.now(), array.bundles());
        let outcome = array.execute(run.stream, run.addresses, memory);
        self.bundles += array.bundles() - before;
        if let Some(trace) = self.trace.as_mut().filter(|_| is_traced) {
            let (name, intervals) = (run.kernel.name(), array.take_timeline());
            let written = trace.add(name, array.timing(), begin, &intervals);
            written.unwrap_or_else(|error| tracing::warn!("the trace of `{name}` is incomplete: {error}"));
        }
        match outcome.map_err(|error| error.to_string())? {
            Outcome::Completed => {}
            Outcome::Deadlock { operation, report } => {
                return Err(format!("operation {operation} of its stream waits forever: {report}"));
            }
        }
        let busy_ns = self.busy_ns(array.timing());
        order.loaded = Some((run.place, array));
        Ok(busy_ns)
    }

    /// For how long the array or its memory was busy, whatever takes longer.
    fn busy_ns(&self, timing: &Timing) -> u64 {
        let cost = &self.arch.cost;
        let memory_ns = [Direction::MemoryToStream, Direction::StreamToMemory]
            .map(|direction| cost.ddr_ns(timing.host_traffic(direction)));
        memory_ns.into_iter().fold(timing.cycles * 1000 / cost.clock_mhz.expected.max(1), u64::max)
    }

    fn array(&self, mut rules: Rules) -> Result<Array, String> {
        let arch = &self.arch;
        let isa = arch.instruction_set.as_deref().and_then(Isa::for_arch);
        let isa = isa.ok_or_else(|| format!("there are no instruction tables of generation `{}`", arch.name))?;
        let size = |count: usize| u8::try_from(count).map_err(|_| format!("an array of {count} columns or rows"));
        let (columns, rows) = (size(arch.array.columns)?, size(arch.array.rows)?);
        rules.loops = self.loops;
        rules.delays = arch.cost.delays;
        let mut array = Array::with_rules(isa, columns, rows, rules);
        array.set_cycle_limit(self.cycle_limit);
        Ok(array)
    }
}

/// What a kernel that has signalled did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// Nanoseconds for which the array was busy with it, or the memory with what the array read or wrote, if that took longer.
    pub busy_ns: u64,
    /// Operations of the stream that it ran, as their time is reckoned ([`InstructionStream::charged_operations`]).
    pub operations: u64,
    /// For every argument, whether it was written.
    written: Vec<bool>,
}

impl Completed {
    /// Those of the `arguments` that were written.
    pub fn written<'a>(&self, arguments: &[Span<'a>]) -> impl Iterator<Item = Span<'a>> {
        arguments.iter().zip(&self.written).filter(|(_, written)| **written).map(|(argument, _)| *argument)
    }
}

/// What somebody writes to the first word of the first column's mem tile between two dispatches of a context: seen on a Strix Halo with
/// firmware 1.1.2.65 (HUSRCF/hipscope, docs/npu/report.md, 2026-10-02). No kernel may keep anything there.
const WRITTEN_BETWEEN: u32 = 0x00cd_0cd0;

/// Distance between the device addresses that arguments get here: no offset of one reaches the next.
const APART: u64 = 1 << 40;

/// The arguments of a dispatch as shim DMAs see them.
struct ArgumentMemory<'a> {
    arguments: &'a [Span<'a>],
    allowed: Option<&'a Allowed>,
    written: Vec<bool>,
    /// The first access that was not possible.
    rejected: Option<String>,
}

impl<'a> ArgumentMemory<'a> {
    fn part(&mut self, address: u64, bytes: usize, is_write: bool) -> Option<(usize, Span<'a>)> {
        let found = self.find(address, bytes, is_write);
        found.map_err(|reason| self.rejected.get_or_insert(reason)).ok()
    }

    fn find(&self, address: u64, bytes: usize, is_write: bool) -> Result<(usize, Span<'a>), String> {
        let what = if is_write { "writes" } else { "reads" };
        // What is so far behind an argument is the next one without the offset.
        if address % APART >= APART - ARRAY_OFFSET {
            return Err(format!(
                "a shim DMA {what} argument {} without the array's offset {ARRAY_OFFSET:#x}, which the stream has to add for arguments \
                 from {TRANSLATED_ARGUMENTS} on",
                address / APART
            ));
        }
        let index = usize::try_from(address / APART).ok().and_then(|index| index.checked_sub(1));
        let argument = index.and_then(|index| Some((index, self.arguments.get(index)?)));
        let Some((index, argument)) = argument else {
            return Err(format!("a shim DMA {what} {bytes} bytes at {address:#x}, which belong to no argument"));
        };
        // Less than `APART`, so it fits.
        let (offset, length) = ((address % APART) as usize, argument.length());
        if is_write && argument.writable().is_none() {
            return Err(format!("a shim DMA writes argument {index}, which is an input"));
        }
        let span = argument.part(offset..offset + bytes);
        let span = span.ok_or_else(|| {
            format!("a shim DMA {what} {bytes} bytes at offset {offset} of argument {index}, which has {length}")
        })?;
        if self.allowed.is_some_and(|allowed| !allowed.permits(index, offset, bytes, is_write)) {
            return Err(format!(
                "a shim DMA {what} {bytes} bytes at offset {offset} of argument {index}, which no part of the dispatch {what}"
            ));
        }
        Ok((index, span))
    }
}

impl Writable for ArgumentMemory<'_> {
    fn may_write(&mut self, address: u64, bytes: usize) -> bool {
        self.part(address, bytes, true).is_some_and(|(_, span)| span.writable().is_some())
    }
}

impl HostMemory for ArgumentMemory<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.part(address, bytes.len(), false).map(|(_, span)| span.read(bytes)).is_some()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        let part = self.part(address, bytes.len(), true);
        let Some((index, span)) = part.and_then(|(index, span)| Some((index, span.writable()?))) else { return false };
        self.written[index] = true;
        span.write(bytes);
        true
    }
}

#[cfg(test)]
mod tests;
