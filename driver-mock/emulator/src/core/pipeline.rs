//! The pipeline: bundles issue one a cycle, and every operand acts in the cycle that the timing tables give it.
//!
//! An instruction that reads something after its issue is in flight until it has read everything; then it is computed, and its
//! results are on their way to registers or memory. Buffers are allocated once and used again, as is what is decoded: a bundle
//! costs no allocation.

use super::compute::compute;
use super::lanes::Bytes;
use super::lower::{Address, Addressing, Input, MOST_SOURCES, MicroOperation, Offset};
use super::operation::{Branch, Header, Operation};
use super::program::{Bundle, Program};
use super::registers::{Layout, MOST_BYTES, Place, Registers, copy};
use super::{Fault, Reach, Surroundings, Wait, lower, scalar, stream_header};
use aie_isa::{Access, DecodeError, Isa};

/// Addresses of data memory have 20 bits.
const ADDRESS: u32 = 0xf_ffff;
/// Nothing acts later than this many cycles after its issue.
const HORIZON: usize = 16;
/// The most bytes that an instruction stores.
const MOST_STORED: usize = 64;
/// Bundles that are executed after a branch before it takes effect.
const DELAY_SLOTS: u8 = 5;
/// Cycles that a store of part of a word, which reads the word before it writes it, occupies data memory for. Accesses within
/// them wait, the one conflict of units that LLVM calls a stall; compiled programs keep the distance.
const PART_WORD_STORE: u64 = 7;
/// Bytes of a value of the cascade.
const CASCADE_BYTES: usize = lower::CASCADE_BYTES as usize;

/// The registers that control flow works with.
#[derive(Debug)]
struct Special {
    loop_start: Place,
    loop_end: Place,
    loop_count: Place,
    carry: Place,
    core_id: Place,
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
}

/// What a core is besides its program.
#[derive(Debug)]
pub struct Pipeline {
    special: Special,
    aie2p: bool,
    pub registers: Registers,
    /// The address of the next bundle.
    pub pc: u32,
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
}

impl Pipeline {
    /// After reset: all registers zero but the core's number.
    pub fn new(isa: &'static Isa, layout: &Layout, core_id: u32) -> Self {
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
            aie2p: isa.name() == "aie2p",
            registers,
            pc: 0,
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
        let bundle = program.fetch(isa, layout, pc).map_err(|error| at(error.into()))?;
        if bundle.accesses {
            while self.cycle < self.part_word_until {
                self.cycle += 1;
                self.begin_cycle(program, around)?;
            }
        }
        if bundle.waits || bundle.accesses {
            for number in bundle.operations() {
                if let Some(wait) = self.has_to_wait(program.operation(number), around).map_err(at)? {
                    return Ok(Some(wait));
                }
            }
        }
        let next = pc + bundle.bytes;
        let link =
            if bundle.links { after_delay_slots(isa, layout, program, next).map_err(|e| at(e.into()))? } else { 0 };
        let branch = self.issue_bundle(bundle, program, link, around).map_err(at)?;
        self.bundles += 1;
        self.pc = next;
        if let Some((left, target)) = self.branch {
            if branch.is_some() {
                return Err(at(Fault::BranchInDelaySlots));
            }
            self.branch = (left > 1).then_some((left - 1, target));
            if left == 1 {
                self.pc = target;
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
            if count > 1 && !jumped {
                self.pc = self.registers.word(&self.special.loop_start);
            }
        }
        if self.done {
            self.finish(program, around)?;
        }
        Ok(None)
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
        for store in slot.iter() {
            around.store(store.address, &store.data[..store.bytes]).map_err(|fault| (self.pc, fault))?;
        }
        slot.clear();
        Ok(())
    }

    /// Writes all stores that are on their way, in order: a lock that is released covers them.
    fn drain_stores(&mut self, around: &mut impl Surroundings) -> Result<(), Fault> {
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

    fn has_to_wait(&self, operation: &MicroOperation, around: &mut impl Surroundings) -> Result<Option<Wait>, Fault> {
        Ok(match operation.operation {
            Operation::Load { .. } | Operation::Store { .. } => {
                let reach = Reach::Memory(self.accessed(operation));
                (!around.reaches(reach)).then_some(Wait::Neighbour)
            }
            Operation::Acquire { conditional } | Operation::Release { conditional } => {
                let (id, value) = (self.word(operation, 0), self.word(operation, 1).cast_signed());
                if conditional && self.word(operation, 2) == 0 {
                    return Ok(None);
                }
                if !around.reaches(Reach::Lock(id)) {
                    return Ok(Some(Wait::Neighbour));
                }
                if matches!(operation.operation, Operation::Release { .. }) {
                    return Ok(None);
                }
                let found = around.lock(id)?;
                let free = if value < 0 { found >= value.saturating_neg() } else { found == value };
                (!free).then_some(Wait::Lock { id, value })
            }
            Operation::StreamRead { blocking: true } => (!around.stream_readable()).then_some(Wait::StreamRead),
            Operation::StreamWrite { blocking: true, .. } => (!around.stream_writable()).then_some(Wait::StreamWrite),
            Operation::CascadeRead { .. } => (!around.cascade_readable()).then_some(Wait::CascadeRead),
            Operation::CascadeWrite if !around.reaches(Reach::Cascade) => Some(Wait::Neighbour),
            Operation::CascadeWrite => (!around.cascade_writable()).then_some(Wait::CascadeWrite),
            _ => None,
        })
    }

    /// A scalar source at its issue.
    #[inline]
    fn word(&self, operation: &MicroOperation, source: usize) -> u32 {
        match operation.sources.get(source).map(|source| (&source.input, source.bypass)) {
            None => 0,
            Some((Input::Immediate(number), _)) => *number as u32,
            Some((Input::Register(place), bypass)) => self.registers.read_word(place, self.cycle + 1, bypass),
        }
    }

    #[inline]
    fn write_word(&mut self, operation: &MicroOperation, target: usize, word: u32) {
        if let Some(target) = operation.targets.get(target) {
            let time = self.cycle + u64::from(target.stage);
            if target.place.bytes == 4 {
                self.registers.write(&target.place, time, target.bypass, &word.to_le_bytes());
            } else {
                let mut bytes = [0; MOST_BYTES];
                bytes[..4].copy_from_slice(&word.to_le_bytes());
                self.registers.write(&target.place, time, target.bypass, &bytes);
            }
        }
    }

    /// Issues an instruction. Gives the target of a branch that is taken. `link`: the address after the delay slots of a branch.
    #[inline]
    fn issue(
        &mut self,
        number: usize,
        operation: &MicroOperation,
        link: u32,
        around: &mut impl Surroundings,
    ) -> Result<Option<u32>, Fault> {
        use Operation as O;
        match operation.operation {
            O::Binary(binary) => {
                let (a, b) = (self.word(operation, 0), self.word(operation, 1));
                let carry = self.registers.word(&self.special.carry) & 1 == 1;
                self.write_word(operation, 0, scalar::binary(binary, a, b, carry));
                if operation.instruction.writes.len() == 1 {
                    let bytes = u32::from(scalar::carry(binary, a, b, carry)).to_le_bytes();
                    self.registers.write(&self.special.carry, self.cycle + 1, None, &bytes);
                }
            }
            O::Unary(unary) => {
                let a = self.word(operation, 0);
                self.write_word(operation, 0, scalar::unary(unary, a));
            }
            O::SelectScalar { zero } => {
                let [a, b, condition] = [0, 1, 2].map(|source| self.word(operation, source));
                self.write_word(operation, 0, if (condition == 0) == zero { a } else { b });
            }
            O::Branch { when, link: links } => return Ok(self.branch(operation, when, links.then_some(link))),
            O::Acquire { conditional } | O::Release { conditional } => {
                if !conditional || self.word(operation, 2) != 0 {
                    self.use_lock(operation, around)?;
                }
            }
            O::Event { number } => {
                around.at(self.cycle);
                around.event(number.unwrap_or_else(|| self.word(operation, 0)));
            }
            O::Done => self.done = true,
            O::StreamRead { .. } => {
                around.at(self.cycle);
                let found = around.read_stream();
                let (word, last) = found.unwrap_or_default();
                self.write_word(operation, 0, word);
                self.write_word(operation, 1, u32::from(found.is_some()) << 1 | u32::from(last));
            }
            O::StreamWrite { .. } => self.write_stream(operation, around),
            O::CascadeRead { .. } | O::CascadeWrite => self.use_cascade(operation, around)?,
            O::Pointer => _ = self.address(operation),
            O::Nop => {}
            _ => self.issue_general(number, operation)?,
        }
        Ok(None)
    }

    /// Sends a word, or a header made of several sources. The status register, if it is written, is 1 if the word was taken.
    fn write_stream(&mut self, operation: &MicroOperation, around: &mut impl Surroundings) {
        let Operation::StreamWrite { blocking, last, last_by_source, header } = operation.operation else {
            return;
        };
        around.at(self.cycle);
        let last = last || last_by_source && self.word(operation, operation.sources.len() - 1) != 0;
        let word = match header {
            None => self.word(operation, 0),
            Some(Header::Packet) => {
                let core = self.registers.word(&self.special.core_id);
                stream_header::packet(self.word(operation, 0), self.word(operation, 1), core)
            }
            Some(Header::ControlPacket) => {
                stream_header::control([0, 1, 2, 3].map(|source| self.word(operation, source)))
            }
        };
        let taken = blocking || around.stream_writable();
        if taken {
            around.write_stream(word, last);
        }
        self.write_word(operation, 0, taken.into());
    }

    fn use_lock(&mut self, operation: &MicroOperation, around: &mut impl Surroundings) -> Result<(), Fault> {
        let (id, value) = (self.word(operation, 0), self.word(operation, 1).cast_signed());
        around.at(self.cycle);
        if matches!(operation.operation, Operation::Release { .. }) {
            self.drain_stores(around)?;
            return around.change_lock(id, value);
        }
        around.change_lock(id, if value < 0 { value } else { -value })
    }

    /// Takes a value from the cascade neighbour into a register of 512 bits, or sends one.
    fn use_cascade(&mut self, operation: &MicroOperation, around: &mut impl Surroundings) -> Result<(), Fault> {
        around.at(self.cycle);
        let (target, source) = (operation.targets.first(), operation.sources.first());
        match (operation.operation, target, source.map(|source| (&source.input, source.bypass))) {
            (Operation::CascadeRead { .. }, Some(target), _) if usize::from(target.place.bytes) == CASCADE_BYTES => {
                let value = around.read_cascade().unwrap_or([0; CASCADE_BYTES]);
                let time = self.cycle + u64::from(target.stage);
                self.registers.write(&target.place, time, target.bypass, &value);
            }
            (Operation::CascadeWrite, _, Some((Input::Register(place), bypass)))
                if usize::from(place.bytes) == CASCADE_BYTES =>
            {
                let (mut bytes, mut value) = ([0; MOST_BYTES], [0; CASCADE_BYTES]);
                self.registers.read(place, self.cycle + 1, bypass, &mut bytes);
                value.copy_from_slice(&bytes[..CASCADE_BYTES]);
                around.write_cascade(&value);
            }
            _ => return Err(Fault::Unmodelled { key: operation.instruction.key, detail: String::new() }),
        }
        Ok(())
    }

    fn branch(&mut self, operation: &MicroOperation, when: Branch, link: Option<u32>) -> Option<u32> {
        let condition = self.word(operation, 0);
        let (taken, target) = match when {
            Branch::Always | Branch::Return => (true, 0),
            Branch::Zero => (condition == 0, 1),
            Branch::NotZero => (condition != 0, 1),
            Branch::NotZeroDecrement => {
                self.write_word(operation, 0, condition.wrapping_sub(1));
                (condition != 0, 1)
            }
        };
        if let Some(after) = link {
            self.write_word(operation, 0, after);
        }
        let target = self.word(operation, target);
        taken.then_some(target)
    }

    /// The address that an instruction would access now.
    #[inline]
    fn accessed(&self, operation: &MicroOperation) -> u32 {
        let Some(Address { pointer, addressing }) = operation.address.as_deref() else {
            return 0;
        };
        let base = self.registers.word(pointer);
        let by = match addressing {
            Addressing::Indexed(Offset::Immediate(number)) => number.cast_unsigned(),
            Addressing::Indexed(Offset::Register(place)) => self.registers.word(place),
            Addressing::PostModify(_) | Addressing::Dimensions { .. } => 0,
        };
        base.wrapping_add(by) & ADDRESS
    }

    /// The address of an access; the pointer and its counters are updated.
    fn address(&mut self, operation: &MicroOperation) -> u32 {
        let Some(Address { pointer, addressing }) = operation.address.as_deref() else {
            return 0;
        };
        let accessed = self.accessed(operation);
        let base = self.registers.word(pointer);
        let moved = match addressing {
            Addressing::Indexed(_) => return accessed,
            Addressing::PostModify(Offset::Immediate(number)) => base.wrapping_add(number.cast_unsigned()),
            Addressing::PostModify(Offset::Register(place)) => base.wrapping_add(self.registers.word(place)),
            Addressing::Dimensions { dimensions, step } => {
                let mut jump = None;
                for dimension in dimensions {
                    let (count, size) = (self.registers.word(&dimension.count), self.registers.word(&dimension.size));
                    let goes_on = jump.is_none() && count != size;
                    let count = if jump.is_some() {
                        count
                    } else if goes_on {
                        count.wrapping_add(1)
                    } else {
                        0
                    };
                    if goes_on {
                        jump = Some(self.registers.word(&dimension.jump));
                    }
                    self.registers.write(&dimension.count, self.cycle + 1, None, &count.to_le_bytes());
                }
                base.wrapping_add(jump.unwrap_or_else(|| self.registers.word(step)))
            }
        };
        self.registers.write(pointer, self.cycle + 1, None, &moved.to_le_bytes());
        accessed
    }

    /// Instructions whose operands are read in several cycles, or that work on vectors or memory.
    fn issue_general(&mut self, number: usize, operation: &MicroOperation) -> Result<(), Fault> {
        let address = self.address(operation);
        let index = self.free.pop().unwrap_or_else(|| {
            let (inputs, memory) = (Box::new([[0; MOST_BYTES]; MOST_SOURCES]), Box::new([0; MOST_BYTES]));
            self.flights.push(Flight { operation: 0, issued: 0, pc: 0, address: 0, inputs, memory });
            self.flights.len() - 1
        });
        let issued = self.cycle;
        if matches!(operation.instruction.access, Some(Access::PartWordStore { .. })) {
            self.part_word_until = issued + PART_WORD_STORE;
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
                let (registers, target, cycle, aie2p) =
                    (&mut self.registers, &operation.targets[0], self.cycle, self.aie2p);
                let time = flight.issued + u64::from(target.stage);
                return registers.write_made(&target.place, time, target.bypass, |room| {
                    compute(operation, aie2p, cycle, &flight.inputs, &flight.memory, room).map(|_| ())
                });
            }
            _ => {
                let output = &mut self.output;
                (compute(operation, self.aie2p, self.cycle, &flight.inputs, &flight.memory, output)?, &**output)
            }
        };
        if let Operation::Store { .. } = operation.operation {
            let bytes = operation.access_bytes();
            check_aligned(flight.address, bytes)?;
            let time = flight.issued + u64::from(operation.memory_write.max(operation.last_read));
            let mut store = Store { address: flight.address, bytes, data: [0; MOST_STORED] };
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
