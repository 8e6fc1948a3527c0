//! The pipeline: bundles issue one a cycle, and every operand acts in the cycle that the timing tables give it.
//!
//! An instruction that reads something after its issue is in flight until it has read everything; then it is computed, and its
//! results are on their way to registers or memory. Buffers are allocated once and used again, as is what is decoded: a bundle
//! costs no allocation.

use super::compute::compute;
use super::early_reads::EarlyReads;
use super::lanes::Bytes;
use super::lower::{Input, MOST_SOURCES, MicroOperation};
use super::operation::Operation;
use super::program::{Bundle, Program};
use super::registers::{Layout, MOST_BYTES, Place, Registers, copy};
use super::{Fault, Jumps, Loops, Reach, Surroundings, Wait};
use aie_isa::{Access, DecodeError, InstructionSet, Isa, share_bank};

/// Nothing acts later than this many cycles after its issue.
const HORIZON: usize = 16;
/// The most bytes that an instruction stores.
const MOST_STORED: usize = 64;
/// Accesses of data memory that a bundle has at most: two loads and a store.
const MOST_ACCESSES: usize = 3;
/// Bundles that are executed after a branch before it takes effect.
const DELAY_SLOTS: u8 = 5;
/// Bytes that AIE2P fetches at once.
const LINE: u32 = 16;
/// Cycles that a store of part of a word, which reads the word before it writes it, occupies data memory for. Accesses within
/// them wait, the one conflict of units that LLVM calls a stall; compiled programs keep the distance.
const PART_WORD_STORE: u64 = 7;

/// The registers that control flow works with.
#[derive(Debug)]
pub struct Special {
    loop_start: Place,
    loop_end: Place,
    loop_count: Place,
    pub carry: Place,
    pub core_id: Place,
}

/// An instruction that reads or writes something after its issue.
#[derive(Debug)]
struct Flight {
    /// Its number in the program.
    operation: usize,
    issued: u64,
    pc: u32,
    address: u32,
    inputs: Box<[Bytes; MOST_SOURCES]>,
    memory: Box<Bytes>,
}

/// Bytes on their way to data memory.
#[derive(Debug)]
struct Store {
    address: u32,
    bytes: usize,
    data: [u8; MOST_STORED],
    /// The bit of [`Pipeline::lost`] that says whether it is lost; beyond them for what never is.
    lost_by: u8,
}

/// What a core is besides its program.
#[derive(Debug)]
pub struct Pipeline {
    pub special: Special,
    pub(super) set: InstructionSet,
    pub registers: Registers,
    /// The address of the next bundle.
    pub pc: u32,
    /// How far the address is ahead of what is executed: on AIE2P a jump into a line goes on at the beginning of the line.
    skew: u32,
    jumps: Jumps,
    /// What zero-overhead loops do.
    pub loops: Loops,
    /// By time of issue modulo [`HORIZON`]: stores of part of a word that a hardware loop has lost by jumping back.
    lost: u32,
    /// Cycles since reset, without those of stalls.
    pub cycle: u64,
    /// Bundles executed since reset.
    pub bundles: u64,
    /// Whether `done` has been executed.
    pub done: bool,
    begun: bool,
    /// The first cycle in which data memory can be accessed again after a store of part of a word.
    part_word_until: u64,
    branch: Option<(u8, u32)>,
    flights: Vec<Flight>,
    free: Vec<usize>,
    /// By time modulo [`HORIZON`]: instructions that read something at that time, and the stage it is of.
    reads: [Vec<(usize, u8)>; HORIZON],
    /// By time modulo [`HORIZON`].
    stores: [Vec<Store>; HORIZON],
    output: Box<Bytes>,
    /// What was read early, if that is recorded.
    pub early_reads: Option<Box<EarlyReads>>,
}

/// The accesses of a bundle that issues.
#[derive(Default)]
struct Banks {
    accesses: [(u32, u32); MOST_ACCESSES],
    count: usize,
    /// How many of them need a bank that an earlier one needs.
    conflicts: u64,
}

impl Banks {
    #[inline]
    fn add(&mut self, address: u32, bytes: u32) {
        let (earlier, access) = (&self.accesses[..self.count], (address, bytes));
        self.conflicts += u64::from(earlier.iter().any(|other| share_bank(*other, access)));
        if let Some(place) = self.accesses.get_mut(self.count) {
            *place = access;
            self.count += 1;
        }
    }
}

impl Pipeline {
    /// After reset: all registers zero but the core's number.
    pub fn new(isa: &'static Isa, layout: &Layout, core_id: u32, jumps: Jumps) -> Self {
        let place = |name: &str| {
            let register = isa.register_named(name).expect("both generations have the registers of control flow");
            layout.place(isa, register)
        };
        let special = Special {
            loop_start: place("ls"),
            loop_end: place("le"),
            loop_count: place("lc"),
            carry: place("srCarry"),
            core_id: place(if isa.register_named("core_id").is_some() { "core_id" } else { "CORE_ID" }),
        };
        let mut registers = Registers::new(layout);
        registers.set(&special.core_id, core_id);
        Self {
            special,
            set: isa.set(),
            registers,
            pc: 0,
            skew: 0,
            jumps,
            loops: Loops::default(),
            lost: 0,
            cycle: 0,
            bundles: 0,
            done: false,
            begun: false,
            part_word_until: 0,
            branch: None,
            flights: Vec::new(),
            free: Vec::new(),
            reads: Default::default(),
            stores: Default::default(),
            output: Box::new([0; MOST_BYTES]),
            early_reads: None,
        }
    }

    /// Executes one bundle, or finds out what it has to wait for.
    pub fn step(
        &mut self,
        isa: &'static Isa,
        layout: &Layout,
        program: &mut Program,
        around: &mut impl Surroundings,
    ) -> Result<Option<Wait>, (u32, Fault)> {
        let pc = self.pc;
        if !self.begun {
            self.begin_cycle(program, around)?;
            self.begun = true;
        }
        let at = |fault: Fault| (pc, fault);
        let bundle = program.fetch(isa, layout, pc - self.skew).map_err(|error| at(error.into()))?;
        if bundle.accesses {
            while self.cycle < self.part_word_until {
                self.cycle += 1;
                self.begin_cycle(program, around)?;
            }
        }
        if bundle.waits || bundle.accesses {
            let mut banks = Banks::default();
            for number in bundle.operations() {
                let operation = program.operation(number);
                let wait = if operation.accesses_memory() {
                    let address = self.accessed(operation);
                    banks.add(address, operation.access_bytes() as u32);
                    (!around.reaches(Reach::Memory(address))).then_some(Wait::Neighbour)
                } else {
                    self.has_to_wait(operation, around).map_err(at)?
                };
                if wait.is_some() {
                    return Ok(wait);
                }
            }
            if banks.conflicts > 0 {
                around.at(self.cycle);
                around.bank_conflicts(banks.conflicts);
            }
        }
        let next = pc + bundle.bytes;
        let link = if bundle.links {
            let slots = after_delay_slots(isa, layout, program, next - self.skew);
            slots.map_err(|error| at(error.into()))? + self.skew
        } else {
            0
        };
        if let Some(early_reads) = &mut self.early_reads {
            early_reads.issue(pc, self.cycle, bundle.operations().map(|number| program.operation(number)));
        }
        let branch = self.issue_bundle(bundle, program, link, around).map_err(at)?;
        self.bundles += 1;
        self.pc = next;
        if let Some((left, target)) = self.branch {
            if branch.is_some() {
                return Err(at(Fault::BranchInDelaySlots));
            }
            self.branch = (left > 1).then_some((left - 1, target));
            if left == 1 {
                self.jump(isa, layout, program, target).map_err(at)?;
            }
        } else if let Some(target) = branch {
            self.branch = Some((DELAY_SLOTS, target));
        }
        let jumped = self.pc != next;
        self.cycle += 1;
        self.begin_cycle(program, around)?;
        // The hardware loop sees registers as they are once the bundle at its end has issued.
        let count = self.registers.word(&self.special.loop_count);
        if count > 0 && self.registers.word(&self.special.loop_end) == pc {
            self.registers.set(&self.special.loop_count, count - 1);
            if count > 1 && !jumped && self.loops == Loops::Close {
                if bundle.stores_part {
                    self.lost |= 1 << ((self.cycle - 1) % HORIZON as u64);
                }
                let start = self.registers.word(&self.special.loop_start);
                self.jump(isa, layout, program, start).map_err(at)?;
            }
        }
        if self.done {
            self.finish(program, around)?;
        }
        Ok(None)
    }

    /// Goes on at another address.
    #[inline]
    fn jump(&mut self, isa: &'static Isa, layout: &Layout, program: &mut Program, target: u32) -> Result<(), Fault> {
        let skew = match self.set {
            InstructionSet::Aie2 => 0,
            InstructionSet::Aie2p => target % LINE,
        };
        (self.pc, self.skew) = (target, skew);
        let may = self.skew == 0
            || self.jumps == Jumps::Silicon
            || program.does_nothing(isa, layout, target - self.skew, target);
        if may { Ok(()) } else { Err(Fault::UnalignedJump { target }) }
    }

    fn issue_bundle(
        &mut self,
        bundle: Bundle,
        program: &Program,
        link: u32,
        around: &mut impl Surroundings,
    ) -> Result<Option<u32>, Fault> {
        let mut branch = None;
        for number in bundle.operations() {
            if let Some(target) = self.issue(number, program.operation(number), link, around)? {
                branch = Some(target);
            }
        }
        Ok(branch)
    }

    /// What lands and what is read at the beginning of a cycle: results and stores of its time, then reads of the time after it.
    fn begin_cycle(&mut self, program: &Program, around: &mut impl Surroundings) -> Result<(), (u32, Fault)> {
        self.registers.land(self.cycle);
        self.write_stores(self.cycle, around)?;
        let slot = (self.cycle + 1) as usize % HORIZON;
        if self.reads[slot].is_empty() {
            return Ok(());
        }
        // What is read now leads to nothing that is read now.
        let mut reads = std::mem::take(&mut self.reads[slot]);
        for (flight, stage) in reads.drain(..) {
            let pc = self.flights[flight].pc;
            self.read_stage(flight, stage, program, around).map_err(|fault| (pc, fault))?;
        }
        self.reads[slot] = reads;
        Ok(())
    }

    fn write_stores(&mut self, time: u64, around: &mut impl Surroundings) -> Result<(), (u32, Fault)> {
        let slot = &mut self.stores[time as usize % HORIZON];
        for store in slot.iter().filter(|store| self.lost >> store.lost_by & 1 == 0) {
            around.store(store.address, &store.data[..store.bytes]).map_err(|fault| (self.pc, fault))?;
        }
        slot.clear();
        Ok(())
    }

    /// Writes all stores that are on their way, in order: a lock that is released covers them.
    pub fn drain_stores(&mut self, around: &mut impl Surroundings) -> Result<(), Fault> {
        for time in self.cycle + 1..self.cycle + HORIZON as u64 {
            self.write_stores(time, around).map_err(|(_, fault)| fault)?;
        }
        Ok(())
    }

    /// `done`: what is in flight still lands.
    fn finish(&mut self, program: &Program, around: &mut impl Surroundings) -> Result<(), (u32, Fault)> {
        for _ in 0..HORIZON {
            self.cycle += 1;
            self.begin_cycle(program, around)?;
        }
        Ok(())
    }

    /// Instructions whose operands are read in several cycles, or that work on vectors or memory.
    pub fn issue_general(&mut self, number: usize, operation: &MicroOperation) -> Result<(), Fault> {
        let address = self.address(operation);
        let index = self.free.pop().unwrap_or_else(|| {
            let (inputs, memory) = (Box::new([[0; MOST_BYTES]; MOST_SOURCES]), Box::new([0; MOST_BYTES]));
            self.flights.push(Flight { operation: 0, issued: 0, pc: 0, address: 0, inputs, memory });
            self.flights.len() - 1
        });
        let issued = self.cycle;
        if matches!(operation.instruction.access, Some(Access::PartWordStore { .. })) {
            self.part_word_until = issued + PART_WORD_STORE;
            self.lost &= !(1 << (issued % HORIZON as u64));
        }
        let flight = &mut self.flights[index];
        (flight.operation, flight.issued, flight.pc, flight.address) = (number, issued, self.pc, address);
        capture(&self.registers, operation, 1, issued + 1, &mut flight.inputs);
        if operation.last_read <= 1 {
            return self.complete(index, operation);
        }
        let mut stages = operation.reads;
        while stages != 0 {
            let stage = stages.trailing_zeros() as u8;
            stages &= stages - 1;
            self.reads[(issued + u64::from(stage)) as usize % HORIZON].push((index, stage));
        }
        Ok(())
    }

    /// Goes on with an instruction in flight: once it has read everything, its results are on their way.
    fn read_stage(
        &mut self,
        index: usize,
        stage: u8,
        program: &Program,
        around: &mut impl Surroundings,
    ) -> Result<(), Fault> {
        let flight = &mut self.flights[index];
        let operation = program.operation(flight.operation);
        if let Some(target) = operation.loaded() {
            // Nothing but memory is read, and goes to the register as it is.
            let (address, bytes, time) =
                (flight.address, operation.access_bytes(), flight.issued + u64::from(target.stage));
            self.free.push(index);
            check_aligned(address, bytes)?;
            return self
                .registers
                .write_made(&target.place, time, target.bypass, |room| around.load(address, &mut room[..bytes]));
        }
        capture(&self.registers, operation, stage, flight.issued + u64::from(stage), &mut flight.inputs);
        if operation.is_load() && operation.memory_read == stage {
            let bytes = operation.access_bytes();
            check_aligned(flight.address, bytes)?;
            around.load(flight.address, &mut flight.memory[..bytes])?;
        }
        if stage < operation.last_read { Ok(()) } else { self.complete(index, operation) }
    }

    /// Computes an instruction that has read all its sources.
    fn complete(&mut self, index: usize, operation: &MicroOperation) -> Result<(), Fault> {
        self.free.push(index);
        let flight = &self.flights[index];
        let wide = operation.targets.first().map_or(0, |target| usize::from(target.place.bytes));
        let (flags, output) = match (operation.operation, operation.sources.first().map(|source| &source.input)) {
            // What only passes through is not copied.
            (Operation::Load { extension: None, widen: None }, _) if wide == operation.access_bytes() => {
                (None, &*flight.memory)
            }
            (Operation::Move, Some(Input::Register(place))) if usize::from(place.bytes) == wide => {
                (None, &flight.inputs[0])
            }
            (Operation::Store { narrow: None, .. }, _) => (None, &flight.inputs[0]),
            _ if operation.makes_one_piece => {
                let (registers, target, cycle, set) =
                    (&mut self.registers, &operation.targets[0], self.cycle, self.set);
                let time = flight.issued + u64::from(target.stage);
                return registers.write_made(&target.place, time, target.bypass, |room| {
                    compute(operation, set, cycle, &flight.inputs, &flight.memory, room).map(|_| ())
                });
            }
            _ => {
                let output = &mut self.output;
                (compute(operation, self.set, self.cycle, &flight.inputs, &flight.memory, output)?, &**output)
            }
        };
        if let Operation::Store { .. } = operation.operation {
            let bytes = operation.access_bytes();
            check_aligned(flight.address, bytes)?;
            let time = flight.issued + u64::from(operation.memory_write.max(operation.last_read));
            let part = matches!(operation.instruction.access, Some(Access::PartWordStore { .. }));
            let lost_by = if part { flight.issued % HORIZON as u64 } else { HORIZON as u64 } as u8;
            let mut store = Store { address: flight.address, bytes, data: [0; MOST_STORED], lost_by };
            copy(&mut store.data[..bytes], &output[..bytes]);
            self.stores[time as usize % HORIZON].push(store);
            return Ok(());
        }
        for (index, target) in operation.targets.iter().enumerate() {
            let time = flight.issued + u64::from(target.stage);
            let flag_bytes = flags.unwrap_or_default().to_le_bytes();
            let bytes = if flags.is_some() && operation.is_flag_target(index) { &flag_bytes[..] } else { &output[..] };
            self.registers.write(&target.place, time, target.bypass, bytes);
        }
        Ok(())
    }
}

/// The address after the delay slots that begin at `next`.
fn after_delay_slots(isa: &'static Isa, layout: &Layout, program: &mut Program, next: u32) -> Result<u32, DecodeError> {
    let mut after = next;
    for _ in 0..DELAY_SLOTS {
        after += program.fetch(isa, layout, after)?.bytes;
    }
    Ok(after)
}

/// Reads the sources of one stage.
#[inline]
fn capture(
    registers: &Registers,
    operation: &MicroOperation,
    stage: u8,
    time: u64,
    inputs: &mut [Bytes; MOST_SOURCES],
) {
    for (source, bytes) in operation.sources.iter().zip(inputs) {
        match &source.input {
            Input::Immediate(number) if stage == 1 => bytes[..8].copy_from_slice(&number.to_le_bytes()),
            Input::Register(place) if source.stage == stage => registers.read(place, time, source.bypass, bytes),
            _ => {}
        }
    }
}

fn check_aligned(address: u32, bytes: usize) -> Result<(), Fault> {
    // Vectors of 64 bytes are read as two of 32. All sizes are powers of two, and a division would take longer than the access.
    let low_bits = bytes.min(32).wrapping_sub(1);
    if address as usize & low_bits == 0 { Ok(()) } else { Err(Fault::Unaligned { address, bytes }) }
}
