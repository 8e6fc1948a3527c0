//! A kernel on an emulated array, with buffers of the host as its arguments: for tests of kernels, examples and measurements.
//!
//! ```no_run
//! use aie_emulator::Harness;
//! use aie_hal::{ArchRegistry, KernelArtifact};
//!
//! # fn show(kernel: &KernelArtifact) -> Result<(), aie_emulator::HarnessError> {
//! let arch = ArchRegistry::builtin().get("aie2").unwrap();
//! let mut harness = Harness::load(&arch, kernel.pdi())?;
//! let mut arguments = [vec![1; 256], vec![0; 256]];
//! let run = harness.run(kernel, &mut arguments)?;
//! println!("{:?} in {} cycles", arguments[1], run.timing.cycles);
//! # Ok(())
//! # }
//! ```

use crate::array::{Array, HostMemory, LoadError, NoHost, Outcome, Report, Rules, Timing, Waiter, Who};
use crate::design::{Design, DesignError, Source};
use crate::reloads::Reloads;
use aie_hal::format::FormatError;
use aie_hal::format::instructions::{AddressError, InstructionStream};
use aie_hal::format::pdi::Pdi;
use aie_hal::{Arch, HostFunctionError, KernelArtifact};
use aie_isa::Isa;

/// An operation of a dispatch that takes more cycles than this is taken not to end.
const CYCLE_LIMIT: u64 = 200_000_000;

/// An emulated array that a PDI was loaded into. Dispatches follow each other on it, as in a context: each finds what the one before
/// has left.
#[derive(Debug)]
pub struct Harness {
    /// The array, for what a run does not say: registers, memory, recordings.
    pub array: Array,
    /// What waits when nothing is under way: endless chains that the PDI has started.
    rest: Vec<Waiter>,
    loaded: Loaded,
    reloads: Option<Reloads>,
}

/// What an array is made of.
#[derive(Debug)]
struct Loaded {
    isa: &'static Isa,
    size: (u8, u8),
    rules: Rules,
    pdi: Vec<u8>,
}

impl Loaded {
    fn array(&self, rules: Rules) -> Result<Array, HarnessError> {
        let mut array = Array::with_rules(self.isa, self.size.0, self.size.1, rules);
        array.load(&Pdi::parse(&self.pdi)?, &mut NoHost)?;
        array.set_cycle_limit(CYCLE_LIMIT);
        Ok(array)
    }
}

/// What one dispatch took.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// Cycles of the array's clock, in all and by what was busy.
    pub timing: Timing,
    /// Bundles that all cores have executed.
    pub bundles: u64,
    /// Operations of the instruction stream, which firmware executes one after the other.
    pub operations: usize,
}

/// Why there is no run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// The generation has no instruction set, or one without tables.
    #[error(transparent)]
    Design(#[from] DesignError),
    /// The generation's file has more columns or rows than there are numbers for tiles.
    #[error("an array of {columns} columns and {rows} rows; at most 255 of each")]
    Size {
        /// Columns of the generation.
        columns: usize,
        /// Its rows.
        rows: usize,
    },
    /// PDI or instruction stream are not in their format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Firmware could not give the stream the addresses of its arguments.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The array cannot execute them.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel makes its stream for the arguments at hand, and there is none for these.
    #[error(transparent)]
    Stream(#[from] HostFunctionError),
    /// An operation waits for something that never happens.
    #[error("operation {operation} waits forever: {report}")]
    Deadlock {
        /// Its place in the stream.
        operation: usize,
        /// Who waits for what.
        report: Report,
    },
    /// The stream is at its end and something other than a core still waits, or waits at another place than after the load of the PDI.
    #[error("still waiting at the end of the dispatch: {0}")]
    Busy(Report),
}

/// Buffers of the host, far from each other.
struct Buffers<'a, B>(&'a mut [B]);

const APART: u64 = 1 << 32;

impl<B: AsMut<[u8]>> Buffers<'_, B> {
    fn place(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let buffer = self.0.get_mut(usize::try_from(address / APART).ok()?.checked_sub(1)?)?;
        let at = usize::try_from(address % APART).ok()?;
        buffer.as_mut().get_mut(at..at.checked_add(bytes)?)
    }
}

impl<B: AsMut<[u8]>> HostMemory for Buffers<'_, B> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.place(address, bytes.len()).map(|place| bytes.copy_from_slice(place)).is_some()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        self.place(address, bytes.len()).map(|place| place.copy_from_slice(bytes)).is_some()
    }
}

impl Harness {
    /// An array of a generation, with its delays, that `pdi` is loaded into.
    ///
    /// # Errors
    /// [`HarnessError`], but for those of a dispatch.
    pub fn load(arch: &Arch, pdi: &[u8]) -> Result<Self, HarnessError> {
        let rules = Rules { delays: arch.cost.delays, ..Rules::default() };
        Self::load_under(arch, pdi, rules)
    }

    /// The same under other rules.
    ///
    /// # Errors
    /// As [`Harness::load`].
    pub fn load_under(arch: &Arch, pdi: &[u8], rules: Rules) -> Result<Self, HarnessError> {
        let isa = arch.instruction_set.as_deref().and_then(Isa::for_arch);
        let isa = isa.ok_or_else(|| DesignError::NoInstructions(arch.name.clone()))?;
        let (columns, rows) = (arch.array.columns, arch.array.rows);
        let (Ok(columns), Ok(rows)) = (u8::try_from(columns), u8::try_from(rows)) else {
            return Err(HarnessError::Size { columns, rows });
        };
        let loaded = Loaded { isa, size: (columns, rows), rules, pdi: pdi.to_vec() };
        let mut array = loaded.array(rules)?;
        let rest = if waiting(&array).is_empty() {
            Vec::new()
        } else {
            array.settle(&mut NoHost).map_err(LoadError::from)?;
            waiting(&array)
        };
        Ok(Self { array, rest, loaded, reloads: None })
    }

    /// What waits between dispatches besides cores: the channels of endless chains that the PDI has started, each at the place where they
    /// were when nothing had been dispatched yet.
    #[must_use]
    pub fn rest(&self) -> &[Waiter] {
        &self.rest
    }

    /// Loads the PDI into another array, as after a change of context: nothing of the one before is left, and what the PDI does not
    /// write is the noise of `seed`.
    ///
    /// # Errors
    /// As [`Harness::load`].
    pub fn reload(&mut self, seed: u64) -> Result<(), HarnessError> {
        self.array = self.loaded.array(self.loaded.rules.varied(seed))?;
        Ok(())
    }

    /// From now on the PDI is [loaded again](Self::reload) before some dispatches, which the seed draws.
    pub fn reload_at_random(&mut self, seed: u64) {
        self.reloads = Some(Reloads::new(seed));
    }

    /// Runs a dispatch of `kernel`, whose PDI has to be the one that was loaded. `arguments` are the buffers of its arguments in
    /// bytes, in their order, each as long as what the kernel accesses of it; it reads and writes them in place.
    ///
    /// # Errors
    /// [`HarnessError`]. The array is of no further use then.
    pub fn run(&mut self, kernel: &KernelArtifact, arguments: &mut [impl AsMut<[u8]>]) -> Result<Run, HarnessError> {
        let made = kernel.stream_maker().map(|maker| {
            let reads: Vec<Vec<u8>> =
                maker.reads().iter().filter_map(|at| Some(arguments.get_mut(*at)?.as_mut().to_vec())).collect();
            maker.make(&reads.iter().map(Vec::as_slice).collect::<Vec<_>>())
        });
        let made = made.transpose()?;
        let bound: Vec<usize> = (0..arguments.len()).collect();
        self.dispatch(made.as_deref().unwrap_or(kernel.instructions()), arguments, &bound)
    }

    /// Executes an instruction stream. `bound` has the buffer of each argument by its place in `buffers`: arguments can share one.
    ///
    /// # Errors
    /// As [`Harness::run`].
    pub fn dispatch(
        &mut self,
        stream: &[u8],
        buffers: &mut [impl AsMut<[u8]>],
        bound: &[usize],
    ) -> Result<Run, HarnessError> {
        let mut host = Buffers(buffers);
        let arguments: Vec<u64> = bound.iter().map(|buffer| (*buffer as u64 + 1) * APART).collect();
        let stream = InstructionStream::for_firmware(stream)?;
        let stream = InstructionStream::parse(&stream)?;
        if let Some(seed) = self.reloads.as_mut().and_then(Reloads::draw) {
            self.reload(seed)?;
        }
        let before = self.array.bundles();
        if let Outcome::Deadlock { operation, report } = self.array.execute(&stream, &arguments, &mut host)? {
            return Err(HarnessError::Deadlock { operation, report });
        }
        self.array.settle(&mut host).map_err(LoadError::from)?;
        let mut waiters = waiting(&self.array);
        if waiters != self.rest {
            waiters.retain(|waiter| !self.rest.contains(waiter));
            return Err(HarnessError::Busy(Report { waiters }));
        }
        let (timing, bundles) = (self.array.timing().clone(), self.array.bundles() - before);
        Ok(Run { timing, bundles, operations: stream.operations().count() })
    }
}

/// What waits besides cores, which wait for the next dispatch.
fn waiting(array: &Array) -> Vec<Waiter> {
    let mut waiters = array.report().waiters;
    waiters.retain(|waiter| !matches!(waiter.who, Who::Core { .. }));
    waiters
}

/// What the files of a kernel configure and do, without running them. Its text has the tiles with their locks, descriptors and switches,
/// the programs of the cores and the operations of the stream.
///
/// # Errors
/// [`HarnessError::Design`], [`HarnessError::Format`].
pub fn design_of(arch: &Arch, kernel: &KernelArtifact) -> Result<Design, HarnessError> {
    let source = Source::parse(kernel.pdi(), Some(kernel.instructions()))?;
    Ok(Design::read(arch, &source)?)
}
