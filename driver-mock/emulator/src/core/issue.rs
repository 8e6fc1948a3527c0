//! Issue: what instructions do in their first cycle, all of it for those that compute with scalars, branch, or use locks and streams.
//!
//! Others are in flight from then on: see [`pipeline`](super::pipeline).

use super::lower::{self, Address, Addressing, Input, MicroOperation, Offset};
use super::operation::{Branch, Header, Operation};
use super::pipeline::Pipeline;
use super::registers::MOST_BYTES;
use super::{Fault, Reach, Surroundings, Wait, scalar, stream_header};

/// Addresses of data memory have 20 bits.
const ADDRESS: u32 = 0xf_ffff;
/// Bytes of a value of the cascade.
const CASCADE_BYTES: usize = lower::CASCADE_BYTES as usize;

impl Pipeline {
    /// What an instruction that does not access memory would have to wait for.
    pub fn has_to_wait(
        &self,
        operation: &MicroOperation,
        around: &mut impl Surroundings,
    ) -> Result<Option<Wait>, Fault> {
        Ok(match operation.operation {
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
    pub fn issue(
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
                self.write_word(operation, 0, scalar::unary(unary, self.set, a));
            }
            O::SelectScalar { zero } => {
                let [a, b, condition] = [0, 1, 2].map(|source| self.word(operation, source));
                self.write_word(operation, 0, if (condition == 0) == zero { a } else { b });
            }
            O::DivisionStep => {
                let [register, a, b] = [0, 1, 2].map(|source| self.word(operation, source));
                let (remainder, quotient) = scalar::division_step(register, a, b);
                self.write_word(operation, 0, remainder);
                self.write_word(operation, 1, quotient);
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
    pub fn accessed(&self, operation: &MicroOperation) -> u32 {
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
    pub fn address(&mut self, operation: &MicroOperation) -> u32 {
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
}
