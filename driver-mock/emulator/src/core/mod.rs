//! A core: bundles issue one a cycle, and everything in flight acts in the cycles that the timing tables say.
//!
//! What the core sees of the array is behind [`Surroundings`], so that a core can be tested alone. A core that has to wait for a
//! lock or a stream does not change at all: its bundle is issued again later, and the cycles of what is in flight stay as they
//! are, because a stall stops the whole pipeline.

mod block_float;
mod compute;
mod early_reads;
mod float;
mod issue;
mod lanes;
mod lower;
mod multiply;
mod operation;
mod pipeline;
mod program;
mod registers;
mod rounding;
mod scalar;
mod shape;
mod stream_header;
mod undefined;
mod vector;
mod width;

use aie_isa::{DecodeError, Instruction, Isa, Kind, Register};
pub use early_reads::EarlyRead;
use early_reads::EarlyReads;
use fastrand::Rng;
use pipeline::Pipeline;
use program::Program;
pub(crate) use registers::copy;
pub use registers::{Layout, MOST_BYTES};
use std::sync::Arc;
pub use undefined::Undefined;

/// What a core reaches outside of itself. What is not implemented is not there: no memory, no locks, streams without words or space,
/// events without an observer.
pub trait Surroundings {
    /// Reads data memory of this tile or a neighbour, at an address as the core sees it.
    fn load(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::Memory { address, bytes: bytes.len() })
    }
    /// Writes data memory of this tile or a neighbour.
    fn store(&mut self, address: u32, bytes: &[u8]) -> Result<(), Fault> {
        Err(Fault::Memory { address, bytes: bytes.len() })
    }
    /// The value of a lock; ids as the core sees them.
    fn lock(&mut self, id: u32) -> Result<i32, Fault> {
        Err(Fault::Lock(id))
    }
    /// Adds to a lock.
    fn change_lock(&mut self, id: u32, _by: i32) -> Result<(), Fault> {
        Err(Fault::Lock(id))
    }
    /// Takes a word from the stream to the core, and whether it is the last of its packet. None if there is none.
    fn read_stream(&mut self) -> Option<(u32, bool)> {
        None
    }
    /// Whether the stream to the core has a word.
    fn stream_readable(&mut self) -> bool {
        false
    }
    /// Whether the stream from the core takes a word.
    fn stream_writable(&mut self) -> bool {
        false
    }
    /// Puts a word into the stream from the core.
    fn write_stream(&mut self, _word: u32, _last: bool) {}
    /// Whether the cascade neighbour has sent a value.
    fn cascade_readable(&mut self) -> bool {
        false
    }
    /// Takes a value of 512 bits from the cascade neighbour. None if there is none.
    fn read_cascade(&mut self) -> Option<[u8; 64]> {
        None
    }
    /// Whether the cascade neighbour takes a value.
    fn cascade_writable(&mut self) -> bool {
        false
    }
    /// Sends a value of 512 bits to the cascade neighbour.
    fn write_cascade(&mut self, _value: &[u8; 64]) {}
    /// Raises core instruction event 0 to 3.
    fn event(&mut self, _number: u32) {}
    /// Whether the core may go there now. If not, it waits before the bundle that would.
    fn reaches(&mut self, reach: Reach) -> bool {
        let _ = reach;
        true
    }
    /// Accesses of the bundle that issues wait for others of it, which need the same memory banks.
    fn bank_conflicts(&mut self, count: u64) {
        let _ = count;
    }
    /// Says in which of the core's own cycles the uses of locks, streams and banks that follow happen.
    fn at(&mut self, cycle: u64) {
        let _ = cycle;
    }
}

/// What of a neighbour a core is about to use; or of its own tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Data memory at an address as the core sees it.
    Memory(u32),
    /// A lock, by its id as the core sees it.
    Lock(u32),
    /// The cascade that the core sends to.
    Cascade,
}

/// What a core waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// A lock, by its id as the core sees it, that has another value than wanted: at least `-value` if `value` is negative,
    /// else exactly `value`.
    Lock {
        /// Its id.
        id: u32,
        /// The operand of acq.
        value: i32,
    },
    /// A word of the stream to the core.
    StreamRead,
    /// Space in the stream from the core.
    StreamWrite,
    /// Leave to reach a neighbour, which [`Surroundings::reaches`] has not given.
    Neighbour,
    /// A value from the cascade neighbour.
    CascadeRead,
    /// The cascade neighbour to take a value.
    CascadeWrite,
}

/// Why an instruction of the tables has no model; None if it has one. A model can still lack values of its operands, such as
/// modes of a shuffle: those stop the core when they occur.
pub fn unmodelled(instruction: &Instruction) -> Option<&'static str> {
    match operation::of(instruction) {
        operation::Operation::Unmodelled(reason) => Some(reason),
        _ => None,
    }
}

/// Whether rows of two generations have the same model: the same text but for names, the same operation, operands of the same sizes.
/// Then what shows that one computes the right values shows it of the other. Products never have: the generations have other
/// shapes.
pub fn computes_the_same((isa, one): (&Isa, &Instruction), (other_isa, other): (&Isa, &Instruction)) -> bool {
    let bits = |isa: &Isa, kind: Kind| match kind {
        Kind::Class(class) => {
            let class = isa.class(class);
            let mut registers = (0..1 << class.bits).filter_map(|number| class.register(number));
            registers.next().map(|register| isa.register(register).bits)
        }
        Kind::Fixed(register) => Some(isa.register(register).bits),
        Kind::Immediate(_) | Kind::Tied { .. } => None,
    };
    let operands = |isa: &Isa, row: &Instruction| -> Vec<_> {
        let operands = row.operands.iter().enumerate();
        let of = |(index, operand): (usize, &aie_isa::Operand)| {
            (operand.direction, bits(isa, operand.kind), lower::is_of_address(row, index).then_some(operand.name))
        };
        operands.map(of).collect()
    };
    let product = matches!(operation::of(one), operation::Operation::Accumulate(accumulate) if accumulate.product);
    // Generations count the sign bit or do not.
    let counts_signs = operation::of(one) == operation::Operation::Unary(operation::Unary::LeadingSignBits);
    !(product || counts_signs)
        && (text(one), one.access) == (text(other), other.access)
        && operation::of(one) == operation::of(other)
        && operands(isa, one) == operands(other_isa, other)
}

/// The assembly text of an instruction, with the numbers of operands for their names.
fn text(row: &Instruction) -> String {
    let mut pieces = row.syntax.split('$');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(piece.len());
        let (name, rest) = piece.split_at(end);
        match row.operand(name) {
            Some(operand) => text += &format!("${operand}{rest}"),
            None => text += piece,
        }
    }
    text
}

/// Why a core stopped for good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The bytes are no bundle.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The instruction is in the tables, and what it computes is not known publicly.
    #[error("`{key}` is not modelled{detail}")]
    Unmodelled {
        /// The row of the instruction table.
        key: &'static str,
        /// What of it.
        detail: String,
    },
    /// An address where the core has no memory, or an access across an end of one.
    #[error("no memory for {bytes} bytes at {address:#x}")]
    Memory {
        /// The address as the core sees it.
        address: u32,
        /// The length.
        bytes: usize,
    },
    /// An access that is not aligned to its size, whose behaviour is not public.
    #[error("{bytes} bytes at {address:#x} are not aligned")]
    Unaligned {
        /// The address as the core sees it.
        address: u32,
        /// The length.
        bytes: usize,
    },
    /// A lock that the tile does not have.
    #[error("there is no lock {0}")]
    Lock(u32),
    /// A release that takes a lock out of its six bits; what hardware does is not documented.
    #[error("releasing lock {id} makes it {value}, outside of 0 to 63")]
    LockRange {
        /// Its id as the core sees it.
        id: u32,
        /// What it would be.
        value: i32,
    },
    /// A jump of AIE2P into a line of program memory, behind instructions.
    #[error("a jump to {target:#x}, which is not a multiple of 16: silicon goes on at {:#x}", target & !15)]
    UnalignedJump {
        /// The target.
        target: u32,
    },
    /// A branch within the delay slots of another.
    #[error("a branch within the delay slots of another")]
    BranchInDelaySlots,
}

/// What a core of AIE2P makes of a jump to an address that is not a multiple of 16. Where the bytes in front of it in its line are
/// bundles that do nothing, both are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jumps {
    /// It stops.
    #[default]
    Reject,
    /// It goes on at the beginning of the line of 16 bytes, while its program counter has the target: so a hardware loop behind
    /// it never sees its end. Inferred from programs that hung on silicon.
    Silicon,
}

/// What zero-overhead loops do. That they repeat is what compiled programs rely on; on one machine self-made ones ran once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loops {
    /// They repeat.
    #[default]
    Close,
    /// A fault: whatever the count says, the body runs once.
    RunOnce,
}

/// How a run of a core ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The bundles asked for have been executed.
    Ran,
    /// The core waits.
    Waits(Wait),
    /// The core has executed `done`.
    Done,
    /// The core cannot continue.
    Fault {
        /// The bundle's address.
        pc: u32,
        /// Why.
        fault: Fault,
    },
}

/// One core.
#[derive(Debug)]
pub struct Core {
    isa: &'static Isa,
    layout: Arc<Layout>,
    program: Program,
    pipeline: Pipeline,
    core_id: u32,
    jumps: Jumps,
    loops: Loops,
    undefined: Undefined,
}

impl Core {
    /// A core after reset, with all registers and its program memory zero.
    ///
    /// `program_bytes`: size of program memory. `core_id`: what the program reads as its core's number.
    pub fn new(isa: &'static Isa, layout: Arc<Layout>, program_bytes: usize, core_id: u32) -> Self {
        let jumps = Jumps::default();
        let (program, pipeline) = (Program::new(program_bytes), Pipeline::new(isa, &layout, core_id, jumps));
        let loops = Loops::default();
        Self { isa, layout, program, pipeline, core_id, jumps, loops, undefined: Undefined::Zero }
    }

    /// Sets what unaligned jumps do, from the next reset on.
    pub fn set_jumps(&mut self, jumps: Jumps) {
        self.jumps = jumps;
    }

    /// Sets what zero-overhead loops do, from the next reset on.
    pub fn set_loops(&mut self, loops: Loops) {
        self.loops = loops;
    }

    /// Sets what registers have that nothing has written, from the next reset on.
    pub fn set_undefined(&mut self, undefined: Undefined) {
        self.undefined = undefined;
    }

    /// Back to the state after reset; program memory stays.
    pub fn reset(&mut self) {
        let mut early_reads = self.pipeline.early_reads.take();
        early_reads.iter_mut().for_each(|early_reads| early_reads.reset());
        self.pipeline = Pipeline::new(self.isa, &self.layout, self.core_id, self.jumps);
        self.pipeline.early_reads = early_reads;
        self.pipeline.loops = self.loops;
        if let Undefined::Noise(seed) = self.undefined {
            self.pipeline.registers.fill(self.isa, &self.layout, Rng::with_seed(!seed ^ u64::from(self.core_id)));
        }
        self.program.tidy();
    }

    /// The address of the next bundle.
    pub fn pc(&self) -> u32 {
        self.pipeline.pc
    }

    /// Cycles since reset in which the core did not wait.
    pub fn cycles(&self) -> u64 {
        self.pipeline.cycle
    }

    /// Bundles executed since reset.
    pub fn bundles(&self) -> u64 {
        self.pipeline.bundles
    }

    /// The rows of the instruction table that it has executed since it was made.
    pub fn executed(&self) -> impl Iterator<Item = &'static Instruction> {
        let rows = self.isa.instructions();
        self.program.decoded().map(|index| &rows[index])
    }

    /// Starts or ends recording reads of registers that a result is on its way to.
    pub fn record_early_reads(&mut self, is_on: bool) {
        self.pipeline.early_reads = is_on.then(Box::<EarlyReads>::default);
    }

    /// The recorded reads, by the addresses of reader and writer.
    pub fn early_reads(&self) -> Vec<EarlyRead> {
        let recorded = self.pipeline.early_reads.as_ref();
        recorded.map_or_else(Vec::new, |early_reads| early_reads.found(|span| self.layout.name(self.isa, span)))
    }

    /// Program memory.
    pub fn program(&self) -> &[u8] {
        self.program.memory()
    }

    /// Writes program memory. False beyond its end.
    pub fn write_program(&mut self, address: usize, bytes: &[u8]) -> bool {
        self.program.write(address, bytes)
    }

    /// A register as it is now, for tests and reports: what is still in flight does not count.
    pub fn register(&self, register: Register) -> Vec<u8> {
        let place = self.layout.place(self.isa, register);
        let mut bytes = [0; MOST_BYTES];
        self.pipeline.registers.read(&place, self.pipeline.cycle, None, &mut bytes);
        bytes[..usize::from(place.bytes)].to_vec()
    }

    /// Sets a register, for tests and loaders.
    pub fn set_register(&mut self, register: Register, bytes: &[u8]) {
        let place = self.layout.place(self.isa, register);
        let mut padded = [0; MOST_BYTES];
        padded[..bytes.len()].copy_from_slice(bytes);
        let (registers, cycle) = (&mut self.pipeline.registers, self.pipeline.cycle);
        registers.write(&place, cycle, None, &padded);
        registers.land(cycle);
    }

    /// Executes at most `bundles` bundles.
    pub fn run(&mut self, bundles: u64, around: &mut impl Surroundings) -> Stop {
        for _ in 0..bundles {
            if self.pipeline.done {
                return Stop::Done;
            }
            match self.pipeline.step(self.isa, &self.layout, &mut self.program, around) {
                Ok(None) => {}
                Ok(Some(wait)) => return Stop::Waits(wait),
                Err((pc, fault)) => return Stop::Fault { pc, fault },
            }
        }
        if self.pipeline.done { Stop::Done } else { Stop::Ran }
    }
}
