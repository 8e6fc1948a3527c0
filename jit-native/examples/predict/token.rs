//! A decoded token on the emulated array: streams of neighbours with one PDI are joined as a queue joins them, and the command processor
//! takes its time for each operation, so that what passes is the time of both with what they hide of each other.

use crate::costs::Costs;
use crate::model::{Kernel, Kind, Model, Order};
use aie_emulator::array::{Resource, Rules};
use aie_emulator::{Harness, Timing};
use aie_hal::format::FormatError;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::extent::Traffic;
use aie_hal::format::instructions::{ArgumentPlace, InstructionStream, JoinPart, join};
use aie_hal::{Arch, KernelArtifact};
use aie_jit_native::NativeCompiler;
use std::collections::HashMap;
use std::error::Error;

/// Products that read more bytes are emulated with as many rows as read so many; what all rows take follows from two sizes.
const PART_BYTES: u64 = 4 << 20;
/// Sizes of emulated parts are multiples of this: rows of all cores.
const UNIT: usize = 256;
/// Words of the unit in which the emulator has the rate of memory.
const RATE_WORDS: f64 = 1024.0;

/// How fast the command processor and memory are.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Cycles of the array for each operation.
    pub operation_cycles: u64,
    /// Bytes that memory gives in a cycle to all shims together.
    pub bytes_per_cycle: f64,
    /// Bytes that a piece of memory costs besides.
    pub piece_bytes: u64,
}

impl Pace {
    pub fn of(costs: &Costs) -> Self {
        Self {
            operation_cycles: (costs.operation_ns as u128 * u128::from(costs.hertz) / 1_000_000_000) as u64,
            bytes_per_cycle: costs.bytes_per_second as f64 / costs.hertz as f64,
            piece_bytes: costs.piece_bytes,
        }
    }
}

/// What is dispatched for a kernel.
#[derive(Debug)]
struct Step {
    artifact: KernelArtifact,
    /// The same for a size that is emulated, and for half of it where that is not the whole.
    part: KernelArtifact,
    half: Option<KernelArtifact>,
    /// Bytes of the arguments of both.
    part_arguments: Vec<usize>,
    half_arguments: Vec<usize>,
    is_product: bool,
    /// Bytes of weights or of a cache: of all, of the part, of its half.
    bytes: [u64; 3],
}

/// The kernels of a token.
#[derive(Debug)]
pub struct Token {
    steps: Vec<Step>,
    layers: usize,
    arch: Arch,
}

impl Token {
    /// # Errors
    /// When there is no kernel for a node.
    pub fn of(
        model: &Model,
        kernels: &[Kernel],
        compiler: &NativeCompiler,
        arch: &Arch,
    ) -> Result<Self, Box<dyn Error>> {
        let steps = kernels.iter().map(|kernel| Step::of(kernel, compiler, arch)).collect::<Result<_, _>>()?;
        Ok(Self { steps, layers: model.layers as usize, arch: arch.clone() })
    }

    fn groups<'a>(&self, order: &'a [usize]) -> Vec<&'a [usize]> {
        let digest = |kernel: &usize| *self.steps[*kernel].artifact.digest();
        order.chunk_by(|a, b| digest(a) == digest(b)).collect()
    }

    /// Cycles of the array for all dispatches, from the first operation of each to its last. A token with one layer and one with two are
    /// emulated: each further layer takes what the second does.
    ///
    /// # Errors
    /// When a dispatch does not run.
    pub fn cycles(&self, pace: Pace) -> Result<f64, Box<dyn Error>> {
        let rules = self.rules(pace)?;
        let (mut known, mut rests) = (HashMap::new(), HashMap::new());
        let mut of_layers = |layers| -> Result<f64, Box<dyn Error>> {
            let order = Order::token(layers);
            let mut cycles = 0.0;
            for group in self.groups(&order) {
                if !known.contains_key(group) {
                    known.insert(group.to_vec(), self.emulate(group, rules)? as f64);
                }
                cycles += known[group];
            }
            for kernel in &order {
                if !rests.contains_key(kernel) {
                    rests.insert(*kernel, self.steps[*kernel].rest(&self.arch, rules)?);
                }
                cycles += rests[kernel];
            }
            Ok(cycles)
        };
        let (one, two) = (of_layers(1)?, of_layers(2)?);
        Ok(two + (two - one) * (self.layers as f64 - 2.0))
    }

    /// The rules of the emulated array. Memory gives each shim channel that reads weights its share.
    fn rules(&self, pace: Pace) -> Result<Rules, Box<dyn Error>> {
        let mut rules = Rules::default();
        rules.delays = self.arch.cost.delays;
        rules.operation_cycles = pace.operation_cycles;
        let largest = self
            .steps
            .iter()
            .filter(|step| step.is_product)
            .max_by_key(|step| step.bytes[1])
            .ok_or("a token without kernels")?;
        let timing = largest.run(&self.arch, &largest.part, &largest.part_arguments, rules)?;
        let reads = timing.uses.iter().filter(|used| {
            let channel = matches!(used.resource, Resource::Channel { direction: Direction::MemoryToStream, .. });
            used.row == 0 && channel && 4 * used.busy > largest.bytes[1] / 32
        });
        let Traffic { bytes, pieces } = timing.host_traffic(Direction::MemoryToStream);
        let gaps = (bytes + pace.piece_bytes * pieces) as f64 / bytes as f64;
        rules.read_cycles = (4.0 * RATE_WORDS * reads.count() as f64 * gaps / pace.bytes_per_cycle) as u64;
        Ok(rules)
    }

    /// A dispatch of these kernels with their parts.
    fn emulate(&self, group: &[usize], rules: Rules) -> Result<u64, Box<dyn Error>> {
        let steps: Vec<&Step> = group.iter().map(|kernel| &self.steps[*kernel]).collect();
        let mut buffers: Vec<Vec<u8>> = Vec::new();
        let mut places: Vec<Vec<ArgumentPlace>> = Vec::new();
        for step in &steps {
            let place = |at: usize| ArgumentPlace { argument: (buffers.len() + at) as u16, offset: 0 };
            places.push((0..step.part_arguments.len()).map(place).collect());
            buffers.extend(step.part_arguments.iter().map(|bytes| vec![0; *bytes]));
        }
        let parts = steps.iter().zip(&places).map(|(step, places)| {
            let stream = InstructionStream::parse(step.part.instructions())?;
            // Nothing writes weights.
            let (ahead, constant) = (step.part.ahead(), &[true][..usize::from(step.is_product)]);
            let (kept, is_replaceable) = (step.part.kept(), step.part.stream_maker().is_some());
            Ok(JoinPart { stream, places, ahead, kept, constant, is_replaceable })
        });
        let joined = join(&parts.collect::<Result<Vec<_>, FormatError>>()?)?;
        let bound: Vec<usize> = (0..buffers.len()).collect();
        let mut harness = Harness::load_under(&self.arch, steps[0].part.pdi(), rules)?;
        Ok(harness.dispatch(&joined.bytes, &mut buffers, &bound)?.timing.cycles)
    }
}

impl Step {
    fn of(kernel: &Kernel, compiler: &NativeCompiler, arch: &Arch) -> Result<Self, Box<dyn Error>> {
        let made = |size| -> Result<(KernelArtifact, Vec<usize>), Box<dyn Error>> {
            let node = (kernel.node)(size, 1);
            let arguments = node.arguments().map(|tensor| tensor.span_bytes()).collect();
            Ok((compiler.build(&node, arch)?, arguments))
        };
        let is_product = kernel.kind == Kind::Product;
        let bytes_of = |size| kernel.bytes * size as u64 / kernel.size.max(1) as u64;
        let (artifact, arguments) = made(kernel.size)?;
        if kernel.bytes <= PART_BYTES {
            let bytes = [kernel.bytes, kernel.bytes, 0];
            let part = artifact.clone();
            return Ok(Self {
                artifact,
                part,
                half: None,
                part_arguments: arguments,
                half_arguments: Vec::new(),
                is_product,
                bytes,
            });
        }
        let half_size = ((kernel.size as u64 * PART_BYTES / kernel.bytes) as usize / 2 / UNIT).max(1) * UNIT;
        let ((half, half_arguments), (part, part_arguments)) = (made(half_size)?, made(2 * half_size)?);
        let bytes = [kernel.bytes, bytes_of(2 * half_size), bytes_of(half_size)];
        Ok(Self { artifact, part, half: Some(half), part_arguments, half_arguments, is_product, bytes })
    }

    /// Cycles that all of it takes longer than its part.
    fn rest(&self, arch: &Arch, rules: Rules) -> Result<f64, Box<dyn Error>> {
        let Some(half) = &self.half else { return Ok(0.0) };
        let part = self.run(arch, &self.part, &self.part_arguments, rules)?.cycles;
        let half = self.run(arch, half, &self.half_arguments, rules)?.cycles;
        let [all, of_part, of_half] = self.bytes;
        Ok((part.saturating_sub(half)) as f64 / (of_part - of_half) as f64 * (all - of_part) as f64)
    }

    /// Runs a dispatch on zeros: how long it takes does not depend on values.
    fn run(
        &self,
        arch: &Arch,
        kernel: &KernelArtifact,
        arguments: &[usize],
        rules: Rules,
    ) -> Result<Timing, Box<dyn Error>> {
        let mut buffers: Vec<Vec<u8>> = arguments.iter().map(|bytes| vec![0; *bytes]).collect();
        let bound: Vec<usize> = (0..buffers.len()).collect();
        let mut harness = Harness::load_under(arch, kernel.pdi(), rules)?;
        Ok(harness.dispatch(kernel.instructions(), &mut buffers, &bound)?.timing)
    }
}
