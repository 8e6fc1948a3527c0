//! From decoded instructions to what the core executes: operands with places in the register file and the cycles they act in.

use super::operation::{self, Operation};
use super::registers::{Layout, Place};
use aie_isa::{Access, Bypass, Decoded, Direction, Instruction, Isa, Kind, Part, Value};
use arrayvec::ArrayVec;

/// The most values that an instruction reads.
pub const MOST_SOURCES: usize = 10;

/// Bytes of a value of the cascade.
pub const CASCADE_BYTES: u16 = 64;

/// Where a source's value comes from.
#[derive(Clone, Debug)]
pub enum Input {
    Register(Place),
    Immediate(i64),
}

/// A value that is read.
#[derive(Clone, Debug)]
pub struct Source {
    pub input: Input,
    /// The cycle it is read in.
    pub stage: u8,
    pub bypass: Option<Bypass>,
}

/// A register that is written.
#[derive(Clone, Debug)]
pub struct Target {
    pub place: Place,
    /// The cycle it is written in.
    pub stage: u8,
    pub bypass: Option<Bypass>,
}

/// What is added to a pointer.
#[derive(Clone, Debug)]
pub enum Offset {
    Immediate(i32),
    Register(Place),
}

/// One dimension of a modifier: steps of `jump` while `count` has not reached `size`.
#[derive(Clone, Debug)]
pub struct Dimension {
    pub jump: Place,
    pub size: Place,
    pub count: Place,
}

/// How a pointer is used and changed.
#[derive(Clone, Debug)]
pub enum Addressing {
    /// pointer + offset; the pointer stays.
    Indexed(Offset),
    /// The pointer, which then grows by the offset.
    PostModify(Offset),
    /// The pointer, which then moves through one or two dimensions; `step` when all are at their end.
    Dimensions { dimensions: ArrayVec<Dimension, 2>, step: Place },
}

/// The address of an instruction.
#[derive(Clone, Debug)]
pub struct Address {
    pub pointer: Place,
    pub addressing: Addressing,
}

/// Whether numbers are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Fixed(bool),
    /// A control register, the source of this index.
    Source(u8),
}

/// Control registers that an instruction reads, as indices of sources.
#[derive(Clone, Copy, Debug, Default)]
pub struct Controls {
    pub saturation: Option<u8>,
    pub rounding: Option<u8>,
    /// Whether accumulator lanes have 64 bits, or numbers their larger width.
    pub mode: Option<u8>,
}

/// One instruction of a bundle.
#[derive(Clone, Debug)]
pub struct MicroOperation {
    pub instruction: &'static Instruction,
    pub operation: Operation,
    /// Operands that are read, then registers that are read without being operands; not those of the address.
    pub sources: Box<[Source]>,
    /// Operands that are written, not those of the address.
    pub targets: Box<[Target]>,
    pub address: Option<Box<Address>>,
    pub sign: Sign,
    pub controls: Controls,
    /// The cycle in which data memory is read.
    pub memory_read: u8,
    /// The cycle in which data memory is written.
    pub memory_write: u8,
    /// The last cycle in which something is read, memory included.
    pub last_read: u8,
    /// A bit for each cycle after the first in which something is read.
    pub reads: u16,
    /// Bytes of data memory that are read or written.
    access_bytes: u8,
    /// Whether it only loads a register that lies in one piece.
    loads_one_piece: bool,
    /// Whether all it does is compute a register that lies in one piece.
    pub makes_one_piece: bool,
}

impl MicroOperation {
    /// Lowers an instruction.
    pub fn new(isa: &'static Isa, layout: &Layout, decoded: &Decoded<'static>) -> Self {
        let instruction = decoded.instruction;
        let operation = operation::of(instruction);
        let timed = isa.timing(decoded);
        let is_address = |operand: usize| has_address(operation) && is_of_address(instruction, operand);
        let (mut sources, mut targets) = (Vec::<Source>::new(), Vec::new());
        let (mut controls, mut sign) = (Controls::default(), Sign::Fixed(true));
        for (index, value) in decoded.values.iter().enumerate() {
            if let Value::Immediate(number) = value
                && instruction.operands[index].direction == Direction::Read
                && !is_address(index)
            {
                sources.push(Source { input: Input::Immediate(*number), stage: 1, bypass: None });
            } else if let Value::Register(_) = value {
                let Some(port) = timed.registers().find(|port| port.operand == Some(index)) else { continue };
                let (place, stage, bypass) = (layout.place(isa, port.register), port.cycle, port.bypass);
                match port.direction {
                    _ if is_address(index) => {}
                    Direction::Read => sources.push(Source { input: Input::Register(place), stage, bypass }),
                    Direction::Write => {
                        let place = match operation {
                            Operation::CascadeRead { part } => {
                                place.part(u16::from(part) * CASCADE_BYTES, CASCADE_BYTES)
                            }
                            _ => place,
                        };
                        targets.push(Target { place, stage, bypass });
                    }
                }
            }
        }
        let implied = timed.registers().filter(|port| port.operand.is_none() && port.direction == Direction::Read);
        for port in implied {
            let name = isa.register(port.register).name;
            let index = Some(sources.len() as u8);
            match name {
                "crSat" => controls.saturation = index,
                "crRnd" => controls.rounding = index,
                "crUPSMode" | "crSRSMode" | "crUnpackSize" | "crPackSize" => controls.mode = index,
                "lr" | "srCarry" => {}
                _ if name.contains("Sign") => {
                    sign = match name.as_bytes().last() {
                        Some(b'0') => Sign::Fixed(false),
                        Some(b'1') => Sign::Fixed(true),
                        _ => Sign::Source(sources.len() as u8),
                    };
                    if sign != Sign::Source(sources.len() as u8) {
                        continue;
                    }
                }
                _ => continue,
            }
            let place = layout.place(isa, port.register);
            sources.push(Source { input: Input::Register(place), stage: port.cycle, bypass: port.bypass });
        }
        // Registers written besides the operands that the model computes: the return address, and what became of a stream's word.
        for port in timed.registers().filter(|port| port.operand.is_none() && port.direction == Direction::Write) {
            if matches!(isa.register(port.register).name, "lr" | "srSS0" | "srMS0") {
                targets.push(Target {
                    place: layout.place(isa, port.register),
                    stage: port.cycle,
                    bypass: port.bypass,
                });
            }
        }
        let timing = timed.timing();
        let memory_read = timing.memory_read.unwrap_or(0);
        let is_load = matches!(operation, Operation::Load { .. });
        let stages = sources.iter().map(|source| source.stage);
        let last_read = stages.chain(is_load.then_some(memory_read)).max().unwrap_or(1);
        let stages = sources.iter().map(|source| source.stage).chain(is_load.then_some(memory_read));
        let reads = stages.filter(|stage| *stage > 1).fold(0, |reads, stage| reads | 1 << stage);
        let access_bytes = match instruction.access {
            Some(Access::Load { bytes, .. } | Access::Store { bytes } | Access::PartWordStore { bytes }) => bytes as u8,
            _ => 0,
        };
        let one_piece = match &targets[..] {
            [target] if target.place.is_one_piece() => Some(target.place.bytes),
            _ => None,
        };
        let only_loads = matches!(operation, Operation::Load { extension: None, widen: None }) && sources.is_empty();
        Self {
            access_bytes,
            loads_one_piece: only_loads && one_piece == Some(access_bytes.into()),
            makes_one_piece: one_piece.is_some() && makes_lanes(operation),
            instruction,
            operation,
            sources: sources.into(),
            targets: targets.into(),
            address: has_address(operation).then(|| address(isa, layout, decoded)).flatten().map(Box::new),
            sign,
            controls,
            memory_read,
            memory_write: timing.memory_write.unwrap_or(0),
            last_read,
            reads,
        }
    }
}

impl MicroOperation {
    /// Whether data memory is read.
    pub fn is_load(&self) -> bool {
        matches!(self.operation, Operation::Load { .. })
    }

    /// Whether data memory is read or written.
    pub fn accesses_memory(&self) -> bool {
        matches!(self.operation, Operation::Load { .. } | Operation::Store { .. })
    }

    /// How many bytes of data memory are read or written.
    pub fn access_bytes(&self) -> usize {
        self.access_bytes.into()
    }

    /// What it loads as it is, if that is all it does.
    #[inline]
    pub fn loaded(&self) -> Option<&Target> {
        self.targets.first().filter(|_| self.loads_one_piece)
    }

    /// Whether a result is the bits of a comparison, rather than lanes.
    pub fn is_flag_target(&self, target: usize) -> bool {
        target + 1 == self.targets.len()
    }
}

/// Whether all results are lanes, computed from all sources: not a comparison, whose flags are a result, too.
fn makes_lanes(operation: Operation) -> bool {
    use Operation as O;
    matches!(operation, O::Accumulate(_) | O::Widen(_) | O::Narrow(_) | O::Shuffle | O::Load { widen: Some(_), .. })
}

fn has_address(operation: Operation) -> bool {
    use Operation as O;
    matches!(operation, O::Load { .. } | O::Store { .. } | O::Pointer)
}

/// Whether an operand belongs to the address of an access.
pub fn is_of_address(instruction: &Instruction, operand: usize) -> bool {
    let operand = &instruction.operands[operand];
    matches!(operand.kind, Kind::Tied { .. }) || matches!(operand.name, "ptr" | "imm" | "dj" | "mod")
}

fn address(isa: &'static Isa, layout: &Layout, decoded: &Decoded<'static>) -> Option<Address> {
    let instruction = decoded.instruction;
    let value = |name: &str| instruction.operand(name).map(|operand| decoded.values[operand]);
    let place = |register| layout.place(isa, register);
    let pointer = match value("ptr") {
        Some(pointer) => pointer.register()?,
        None => isa.register_named("sp")?,
    };
    let offset = match (value("imm"), value("dj"), value("mod")) {
        (Some(Value::Immediate(number)), ..) => Offset::Immediate(number as i32),
        (_, Some(index), _) => Offset::Register(place(index.register()?)),
        (_, _, Some(modifier)) => Offset::Register(place(modifier.register()?)),
        _ => Offset::Immediate(0),
    };
    let tied = |part: Part| {
        instruction.operands.iter().any(|operand| matches!(operand.kind, Kind::Tied { part: p, .. } if p == part))
    };
    let dimension = |modifier| -> Option<Dimension> {
        // A modifier consists of m, dn, dj and dc.
        let parts = &isa.register(modifier).parts;
        Some(Dimension { jump: place(*parts.get(2)?), size: place(*parts.get(1)?), count: place(*parts.get(3)?) })
    };
    let first_step = |modifier| Some(place(*isa.register(modifier).parts.first()?));
    let addressing = if tied(Part::Counter(None)) {
        let modifier = value("mod")?.register()?;
        Addressing::Dimensions { dimensions: [dimension(modifier)?].into_iter().collect(), step: first_step(modifier)? }
    } else if tied(Part::Counter(Some(0))) {
        let halves = &isa.register(value("mod")?.register()?).parts;
        let (low, high) = (*halves.first()?, *halves.get(1)?);
        let dimensions = [dimension(low)?, dimension(high)?].into_iter().collect();
        Addressing::Dimensions { dimensions, step: first_step(low)? }
    } else if tied(Part::Whole) || value("ptr").is_none() && instruction.access.is_none() {
        Addressing::PostModify(offset)
    } else {
        Addressing::Indexed(offset)
    };
    Some(Address { pointer: place(pointer), addressing })
}
