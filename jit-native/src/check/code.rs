//! Bundles of a program as the checker needs them: decoded when a path comes to them, with their effects joined to timing.

use super::finding::Problem;
use super::program::Program;
use aie_isa::{Access, Bundle, Bypass, DecodeError, Decoded, Direction, Form, Isa, Kind, Register, Value};
use std::collections::BTreeMap;

/// Bundles behind a branch that are executed before it takes effect.
pub const DELAY_SLOTS: u8 = 5;

/// Number of a bundle, in the order in which paths came to them.
pub type BundleId = u32;
/// Number of a read or written register of an instruction.
pub type PortId = u32;

/// A register that an instruction reads or writes.
#[derive(Clone, Debug)]
pub struct Port {
    pub bundle: BundleId,
    /// Index of the instruction in the bundle's format.
    pub slot: u8,
    pub register: Register,
    pub write: bool,
    /// Cycle of the instruction, 1 when it issues.
    pub cycle: u8,
    pub bypass: Option<Bypass>,
    /// The operand; None for a register that the instruction implies.
    pub operand: Option<u8>,
}

/// Where a branch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Address(u32),
    /// A register, by the port that reads it.
    Register(PortId),
    Return,
}

/// What a bundle does to control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    pub target: Target,
    pub conditional: bool,
    /// Whether it is a call.
    pub call: bool,
}

/// A unit that is held in one cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub unit: u16,
    /// Cycle of the instruction, 1 when it issues.
    pub cycle: u8,
    pub weak: bool,
    /// Whether it is a port of registers that the instruction does not have: LLVM's itineraries do not tell them apart.
    pub doubtful: bool,
    pub slot: u8,
}

/// An access of data memory: the first and the last cycle of the instruction in which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    pub first: u8,
    pub last: u8,
    pub write: bool,
}

/// A use of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Acquire,
    Release,
}

/// A bundle that a path comes to.
#[derive(Debug)]
pub struct Placed {
    pub address: u32,
    pub bytes: u32,
    pub decoded: Bundle<'static>,
    /// Its first port, and the one behind its last.
    pub ports: std::ops::Range<PortId>,
    pub holds: Vec<Hold>,
    pub branch: Option<Branch>,
    pub done: bool,
    pub lock: Option<Lock>,
    /// Accesses of data memory outside of the stack.
    pub accesses: Vec<MemoryAccess>,
    /// Whether it stores part of a word.
    pub stores_part: bool,
    /// What `ls`, `le` and `lc` are set to; `Some(None)` for a value that is not in the instruction.
    pub sets: [Option<Option<u32>>; 3],
}

/// Names of the registers in [`Placed::sets`].
pub const LOOP_REGISTERS: [&str; 3] = ["ls", "le", "lc"];

/// The bundles that paths have come to.
#[derive(Debug)]
pub struct Code<'p> {
    pub program: &'p Program<'p>,
    pub bundles: Vec<Placed>,
    pub ports: Vec<Port>,
    by_address: BTreeMap<u32, BundleId>,
}

impl<'p> Code<'p> {
    pub fn new(program: &'p Program<'p>) -> Self {
        Self { program, bundles: Vec::new(), ports: Vec::new(), by_address: BTreeMap::new() }
    }

    pub fn isa(&self) -> &'static Isa {
        self.program.isa
    }

    /// The bundle at an address that a path comes to.
    pub fn bundle_at(&mut self, address: u32) -> Result<BundleId, Problem> {
        if let Some(id) = self.by_address.get(&address) {
            return Ok(*id);
        }
        let bytes = self.program.bytes_at(address).ok_or(Problem::NoCode(address))?;
        let within = |other: &Placed| other.address < address && other.address + other.bytes > address;
        if let Some((other, _)) =
            self.by_address.range(..address).next_back().filter(|(_, id)| within(&self.bundles[**id as usize]))
        {
            return Err(Problem::WithinBundle { other: *other });
        }
        let decoded = self.isa().decode(bytes).map_err(|cause| match cause {
            DecodeError::Truncated { .. } => Problem::NoCode(address + bytes.len() as u32),
            cause => Problem::Decode(cause),
        })?;
        let size = decoded.format.bytes() as u32;
        if let Some((other, _)) = self.by_address.range(address..address.saturating_add(size)).next() {
            return Err(Problem::WithinBundle { other: *other });
        }
        let id = self.bundles.len() as BundleId;
        self.by_address.insert(address, id);
        let placed = self.place(id, address, size, decoded);
        self.bundles.push(placed);
        Ok(id)
    }

    /// The bundle that a path has come to at an address.
    pub fn known(&self, address: u32) -> Option<BundleId> {
        self.by_address.get(&address).copied()
    }

    pub fn text(&self, id: BundleId) -> String {
        self.isa().text(&self.bundles[id as usize].decoded)
    }

    /// The instruction that a port belongs to.
    pub fn instruction(&self, port: &Port) -> &Decoded<'static> {
        &self.bundles[port.bundle as usize].decoded.slots[usize::from(port.slot)]
    }

    fn place(&mut self, id: BundleId, address: u32, bytes: u32, decoded: Bundle<'static>) -> Placed {
        let isa = self.isa();
        let first = self.ports.len() as PortId;
        let (mut holds, mut accesses, mut sets) = (Vec::new(), Vec::new(), [None; 3]);
        let (mut branch, mut done, mut lock) = (None, false, None);
        for (slot, instruction) in decoded.slots.iter().enumerate() {
            if instruction.instruction.is_nop() {
                continue;
            }
            let slot = slot as u8;
            let ports = self.ports.len();
            let timed = isa.timing(instruction);
            for port in timed.registers() {
                self.ports.push(Port {
                    bundle: id,
                    slot,
                    register: port.register,
                    write: port.direction == Direction::Write,
                    cycle: port.cycle,
                    bypass: port.bypass,
                    operand: port.operand.map(|operand| operand as u8),
                });
            }
            let timing = timed.timing();
            for unit in &timing.units {
                let cycles = unit.first..=unit.last;
                let doubtful = !touches(isa, unit.unit, instruction);
                holds.extend(cycles.map(|cycle| Hold { unit: unit.unit, cycle, weak: unit.weak, doubtful, slot }));
            }
            let (read, write) = (timing.memory_read, timing.memory_write);
            // What lies on the stack is private to the core.
            let shared = instruction.instruction.access.is_some() && !uses_stack(instruction);
            if let (true, Some(first), Some(last)) = (shared, read.or(write), write.or(read)) {
                accesses.push(MemoryAccess { first, last, write: write.is_some() });
            }
            for (index, name) in LOOP_REGISTERS.iter().enumerate() {
                let register = isa.register_named(name);
                if self.ports[ports..].iter().any(|port| port.write && Some(port.register) == register) {
                    sets[index] = Some(constant(instruction));
                }
            }
            match instruction.instruction.mnemonic {
                "done" => done = true,
                "acq" | "acq.cond" => lock = Some(Lock::Acquire),
                "rel" | "rel.cond" => lock = Some(Lock::Release),
                _ => {}
            }
            if instruction.instruction.flags.branch {
                branch = Some(self.branch(instruction, ports));
            }
        }
        let ports = first..self.ports.len() as PortId;
        let part = |slot: &Decoded<'_>| matches!(slot.instruction.access, Some(Access::PartWordStore { .. }));
        let stores_part = decoded.slots.iter().any(part);
        Placed { address, bytes, decoded, ports, holds, branch, done, lock, accesses, stores_part, sets }
    }

    fn branch(&self, decoded: &Decoded<'static>, first_port: usize) -> Branch {
        let instruction = decoded.instruction;
        let address = |index: usize| match instruction.operands[index].kind {
            Kind::Immediate(immediate) if immediate.form == Form::Address => match decoded.values[index] {
                Value::Immediate(address) => Some(address as u32),
                Value::Register(_) => None,
            },
            _ => None,
        };
        let direct = (0..instruction.operands.len()).find_map(address);
        // The target is the last register that a branch reads; what it compares is before it.
        let register = (first_port..self.ports.len()).rev().find(|port| !self.ports[*port].write);
        let target = match (direct, register) {
            _ if instruction.mnemonic == "ret" => Target::Return,
            (Some(address), _) => Target::Address(address),
            (None, Some(port)) => Target::Register(port as PortId),
            (None, None) => Target::Return,
        };
        Branch {
            target,
            conditional: matches!(instruction.mnemonic, "jz" | "jnz" | "jnzd"),
            call: instruction.mnemonic == "jl",
        }
    }
}

/// Whether an instruction has a register of the file that a unit is a port of; true for all units but the ports of AIE2's
/// pointers and modifiers, which itineraries name for all scalar registers.
fn touches(isa: &Isa, unit: u16, decoded: &Decoded<'_>) -> bool {
    let (files, direction): (&[&str], _) = match isa.units()[usize::from(unit)].name {
        "P_RM" => (&["p", "m", "dn", "dj", "dc"], Direction::Read),
        "P_WM" => (&["p"], Direction::Write),
        _ => return true,
    };
    let in_file = |register: Register| {
        let name = isa.register(register).name;
        files.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit()))
    };
    let operands = decoded.instruction.operands.iter().zip(&decoded.values);
    // The address has ports of its own.
    let mut data =
        operands.filter(|(operand, _)| !operand.name.starts_with("ptr") && !matches!(operand.name, "mod" | "dj"));
    data.any(|(operand, value)| operand.direction == direction && value.register().is_some_and(in_file))
}

/// Whether an instruction accesses memory relative to the stack pointer.
pub fn uses_stack(decoded: &Decoded<'_>) -> bool {
    decoded.instruction.syntax.contains("[sp")
}

/// The value of an instruction that only writes a number of its own into a register.
pub fn constant(decoded: &Decoded<'_>) -> Option<u32> {
    let reads = |index: usize| decoded.instruction.operands[index].direction == Direction::Read;
    let mut read = decoded.values.iter().enumerate().filter(|(index, _)| reads(*index)).map(|(_, value)| value);
    match (read.next(), read.next(), decoded.instruction.mnemonic) {
        (Some(Value::Immediate(number)), None, "mov" | "mova" | "movs" | "movx" | "movxm") => Some(*number as u32),
        _ => None,
    }
}
