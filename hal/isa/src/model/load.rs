//! Reads the tables, and rejects any that contradict themselves.
//!
//! The columns are described in `hal/isa/README.md`. Checked while reading: every name used exists; every bit of a slot word is
//! fixed, an operand's, or filler, exactly once; every bit of a bundle is fixed or a slot's; slots have the same width in all
//! formats and instructions; every operand has a timing.

use super::instruction::{Access, Direction, Extension, Flags, Form, Immediate, Instruction, Kind, Operand, Part};
use super::instruction_set::InstructionSet;
use super::timing::{Bypass, Port, Timing, Unit, UnitUse};
use super::{Format, Isa, MOST_OPERANDS, Register, RegisterClass, RegisterInfo, Slot};
use std::collections::HashMap;

/// The tables of one instruction set, as text.
#[derive(Debug)]
pub struct Tables {
    /// Which it is.
    pub set: InstructionSet,
    bundles: &'static str,
    instructions: &'static str,
    registers: &'static str,
    timing: &'static str,
}

/// The tables of XDNA (npu1).
pub const AIE2: Tables = Tables {
    set: InstructionSet::Aie2,
    bundles: include_str!("../../data/aie2/bundles.tsv"),
    instructions: include_str!("../../data/aie2/instructions.tsv"),
    registers: include_str!("../../data/aie2/registers.tsv"),
    timing: include_str!("../../data/aie2/timing.tsv"),
};

/// The tables of XDNA2 (npu4 and its relatives).
pub const AIE2P: Tables = Tables {
    set: InstructionSet::Aie2p,
    bundles: include_str!("../../data/aie2p/bundles.tsv"),
    instructions: include_str!("../../data/aie2p/instructions.tsv"),
    registers: include_str!("../../data/aie2p/registers.tsv"),
    timing: include_str!("../../data/aie2p/timing.tsv"),
};

/// A table that cannot be right.
#[derive(Debug, thiserror::Error)]
#[error("{table}.tsv line {line}: {problem}")]
pub struct TableError {
    table: &'static str,
    line: usize,
    problem: String,
}

/// One row: its line and the cells.
struct Row<'a> {
    table: &'static str,
    line: usize,
    columns: &'a [&'static str],
    cells: Vec<&'static str>,
}

type Result<T> = std::result::Result<T, TableError>;

impl Row<'_> {
    /// The cell of a column; empty if the line ends before it.
    fn get(&self, column: &str) -> &'static str {
        let index = self.columns.iter().position(|name| *name == column);
        index.and_then(|index| self.cells.get(index)).copied().unwrap_or("")
    }

    fn error(&self, problem: impl Into<String>) -> TableError {
        TableError { table: self.table, line: self.line, problem: problem.into() }
    }

    fn number<T: Number>(&self, text: &str) -> Result<T> {
        T::parse(text).ok_or_else(|| self.error(format!("`{text}` is no number")))
    }

    fn require(&self, holds: bool, problem: impl FnOnce() -> String) -> Result<()> {
        if holds { Ok(()) } else { Err(self.error(problem())) }
    }
}

/// Decimal, or hexadecimal after `0x`.
trait Number: Sized {
    fn parse(text: &str) -> Option<Self>;
}

macro_rules! number {
    ($($type:ty)*) => {
        $(impl Number for $type {
            fn parse(text: &str) -> Option<Self> {
                text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| Self::from_str_radix(digits, 16)).ok()
            }
        })*
    };
}
number!(u8 u32 u64 u128 i64);

/// Calls `read` for each row of a table. Lines with `#` are comments; the first other line names the columns.
fn rows(table: &'static str, text: &'static str, mut read: impl FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let Some((_, head)) = lines.next() else {
        return Err(TableError { table, line: 1, problem: "no line names the columns".into() });
    };
    let columns: Vec<&'static str> = head.split('\t').collect();
    for (index, line) in lines {
        read(&Row { table, line: index + 1, columns: &columns, cells: line.split('\t').collect() })?;
    }
    Ok(())
}

fn ones(high: u32, low: u32) -> u128 {
    (u128::MAX >> (127 - (high - low))) << low
}

impl Isa {
    /// Reads tables.
    ///
    /// Errors with the line of the first row that contradicts the others.
    pub fn load(tables: &Tables) -> Result<Self> {
        let mut isa = Self {
            set: tables.set,
            formats: Default::default(),
            instructions: Vec::new(),
            by_slot: Default::default(),
            by_mnemonic: HashMap::new(),
            registers: Vec::new(),
            register_names: HashMap::new(),
            classes: Vec::new(),
            units: Vec::new(),
            timings: Vec::new(),
        };
        isa.read_registers(tables.registers)?;
        let patterns = isa.read_patterns(tables.timing)?;
        isa.read_instructions(tables.instructions, &patterns)?;
        isa.read_choices(tables.timing, &patterns)?;
        isa.read_formats(tables.bundles)?;
        Ok(isa)
    }

    fn register_of(&self, row: &Row<'_>, name: &str) -> Result<Register> {
        self.register_named(name).ok_or_else(|| row.error(format!("there is no register `{name}`")))
    }

    fn class_of(&self, row: &Row<'_>, name: &str) -> Result<u16> {
        let index = self.classes.iter().position(|class| class.name == name);
        index.map(|index| index as u16).ok_or_else(|| row.error(format!("there is no register class `{name}`")))
    }

    fn read_registers(&mut self, text: &'static str) -> Result<()> {
        rows("registers", text, |row| {
            if row.get("kind") == "reg" {
                let register = Register(self.registers.len() as u16);
                let info = RegisterInfo {
                    name: row.get("name"),
                    bits: row.number(row.get("bits"))?,
                    parts: Vec::new(),
                    leaves: Vec::new(),
                };
                let other = self.register_names.insert(info.name, register);
                row.require(other.is_none(), || format!("a second register `{}`", info.name))?;
                self.registers.push(info);
            }
            Ok(())
        })?;
        rows("registers", text, |row| match row.get("kind") {
            "reg" => self.read_parts(row),
            "class" | "set" => self.read_class(row),
            "alias" => self.read_aliases(row),
            kind => Err(row.error(format!("kind `{kind}` is none of reg, class, set, alias"))),
        })?;
        for index in 0..self.registers.len() {
            let mut leaves = Vec::new();
            self.collect_leaves(Register(index as u16), &mut leaves);
            self.registers[index].leaves = leaves;
        }
        Ok(())
    }

    fn read_parts(&mut self, row: &Row<'_>) -> Result<()> {
        let register = self.register_of(row, row.get("name"))?;
        let names = row.get("data").split_whitespace();
        let parts = names.map(|name| self.register_of(row, name)).collect::<Result<Vec<_>>>()?;
        let bits: u32 = parts.iter().map(|part| self.register(*part).bits).sum();
        row.require(parts.is_empty() || bits == self.register(register).bits, || {
            format!("the parts have {bits} bits")
        })?;
        self.registers[register.index()].parts = parts;
        Ok(())
    }

    /// A register that contains itself would recurse without end; the sizes of parts, checked before, exclude that.
    fn collect_leaves(&self, register: Register, leaves: &mut Vec<Register>) {
        let parts = &self.register(register).parts;
        if parts.is_empty() {
            leaves.push(register);
        }
        parts.iter().for_each(|part| self.collect_leaves(*part, leaves));
    }

    fn read_class(&mut self, row: &Row<'_>) -> Result<()> {
        let is_set = row.get("kind") == "set";
        let bits = if is_set { 0 } else { row.number(row.get("bits"))? };
        let (mut registers, mut numbers) = (vec![None; 1 << bits], HashMap::new());
        for (index, entry) in row.get("data").split(',').enumerate() {
            let (number, name) = if is_set { (index as u32, entry) } else { self.numbered(row, entry)? };
            let register = self.register_of(row, name)?;
            if !is_set {
                let place = registers.get_mut(number as usize);
                let place = place.ok_or_else(|| row.error(format!("{number} needs more than {bits} bits")))?;
                row.require(place.replace(register).is_none(), || format!("two registers have the number {number}"))?;
            }
            row.require(numbers.insert(register, number).is_none(), || format!("`{name}` has two numbers"))?;
        }
        self.classes.push(RegisterClass { name: row.get("name"), bits, registers, aliases: HashMap::new(), numbers });
        Ok(())
    }

    fn numbered<'a>(&self, row: &Row<'_>, entry: &'a str) -> Result<(u32, &'a str)> {
        let (number, name) = entry.split_once('=').ok_or_else(|| row.error(format!("`{entry}` is not NUMBER=NAME")))?;
        Ok((row.number(number)?, name))
    }

    fn read_aliases(&mut self, row: &Row<'_>) -> Result<()> {
        let class = self.class_of(row, row.get("name"))?;
        for entry in row.get("data").split(',') {
            let (number, name) = self.numbered(row, entry)?;
            let register = self.register_of(row, name)?;
            let class = &mut self.classes[usize::from(class)];
            row.require(class.register(number).is_none(), || format!("{number} is a register's own number"))?;
            class.aliases.insert(number, register);
        }
        Ok(())
    }

    fn read_patterns(&mut self, text: &'static str) -> Result<HashMap<&'static str, u16>> {
        rows("timing", text, |row| {
            if row.get("kind") == "unit" {
                self.units.push(Unit { name: row.get("name"), about: row.get("units") });
            }
            Ok(())
        })?;
        let mut names = HashMap::new();
        rows("timing", text, |row| {
            if row.get("kind") == "pattern" {
                let timing = self.read_pattern(row)?;
                let other = names.insert(row.get("name"), self.timings.len() as u16);
                row.require(other.is_none(), || format!("a second pattern `{}`", row.get("name")))?;
                self.timings.push(timing);
            }
            Ok(())
        })?;
        Ok(names)
    }

    fn read_pattern(&self, row: &Row<'_>) -> Result<Timing> {
        let ports = row.get("operands").split_whitespace().map(|port| read_port(row, port)).collect::<Result<_>>()?;
        let uses = row.get("units").split_whitespace().map(|text| {
            let (name, cycles) =
                text.split_once('@').ok_or_else(|| row.error(format!("`{text}` is not UNIT@CYCLES")))?;
            let (first, last) = cycles.split_once('-').unwrap_or((cycles, cycles));
            let name = name.strip_prefix('?').map_or((name, false), |name| (name, true));
            let unit = self.units.iter().position(|unit| unit.name == name.0);
            let unit = unit.ok_or_else(|| row.error(format!("there is no unit `{}`", name.0)))? as u16;
            Ok(UnitUse { unit, first: row.number(first)?, last: row.number(last)?, weak: name.1 })
        });
        let units = uses.collect::<Result<_>>()?;
        let mut timing = Timing { ports, units, memory_read: None, memory_write: None };
        for access in row.get("memory").split_whitespace() {
            let port = read_port(row, access)?;
            match port.direction {
                Direction::Read => timing.memory_read = Some(port.cycle),
                Direction::Write => timing.memory_write = Some(port.cycle),
            }
        }
        Ok(timing)
    }

    fn read_instructions(&mut self, text: &'static str, patterns: &HashMap<&str, u16>) -> Result<()> {
        rows("instructions", text, |row| {
            let instruction = self.read_instruction(row, patterns)?;
            let index = instruction.index;
            self.by_slot[instruction.slot as usize].push(index);
            self.by_mnemonic.entry(instruction.mnemonic).or_default().push(index);
            let twice = self.instructions.iter().any(|other| other.key == instruction.key);
            row.require(!twice, || format!("a second instruction `{}`", instruction.key))?;
            self.instructions.push(instruction);
            Ok(())
        })
    }

    fn read_instruction(&self, row: &Row<'_>, patterns: &HashMap<&str, u16>) -> Result<Instruction> {
        let slot = Slot::named(row.get("slot")).ok_or_else(|| row.error("there is no such slot"))?;
        let mut operands: Vec<Operand> = Vec::new();
        let texts: Vec<&'static str> = row.get("operands").split("; ").filter(|text| !text.is_empty()).collect();
        let names: Vec<&str> = texts.iter().filter_map(|text| text.split(':').next()).collect();
        for text in &texts {
            operands.push(self.read_operand(row, text, &names)?);
        }
        row.require(operands.len() <= MOST_OPERANDS, || format!("more than {MOST_OPERANDS} operands"))?;
        let registers = |column| -> Result<Vec<Register>> {
            row.get(column).split_whitespace().map(|name| self.register_of(row, name)).collect()
        };
        let mut flags = Flags::default();
        for flag in row.get("flags").split_whitespace() {
            match flag {
                "branch" => flags.branch = true,
                "lock" => flags.lock = true,
                "stream" => flags.stream = true,
                "cascade" => flags.cascade = true,
                "unproven" => flags.unproven = true,
                // The column `access` says more.
                "load" | "store" | "sideeffect" | "tm" => {}
                _ => return Err(row.error(format!("unknown flag `{flag}`"))),
            }
        }
        let timing = row.get("timing");
        let instruction = Instruction {
            index: self.instructions.len(),
            slot,
            key: row.get("key"),
            mnemonic: row.get("mnemonic"),
            syntax: row.get("syntax"),
            mask: row.number(row.get("mask"))?,
            value: row.number(row.get("value"))?,
            zero: row.number(row.get("zero"))?,
            ignored: row.number(row.get("ignored"))?,
            operands,
            writes: registers("writes")?,
            reads: registers("reads")?,
            flags,
            access: read_access(row, row.get("access"))?,
            timing: *patterns.get(timing).ok_or_else(|| row.error(format!("there is no pattern `{timing}`")))?,
            choices: Vec::new(),
        };
        check_bits(row, &instruction)?;
        self.check_ports(row, &instruction, instruction.timing)?;
        Ok(instruction)
    }

    fn read_operand(&self, row: &Row<'_>, text: &'static str, names: &[&str]) -> Result<Operand> {
        let [name, direction, kind, bits] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(row.error(format!("`{text}` is not NAME:DIRECTION:KIND:BITS")));
        };
        let mut pieces = Vec::new();
        for piece in bits.split('+').filter(|piece| !piece.is_empty()) {
            let (high, low) = piece.split_once('-').unwrap_or((piece, piece));
            pieces.push((row.number(high)?, row.number(low)?));
        }
        let direction = match direction {
            "r" => Direction::Read,
            "w" => Direction::Write,
            _ => return Err(row.error(format!("direction `{direction}` of {name} is neither r nor w"))),
        };
        let kind = if let Some(tie) = kind.strip_prefix('=') {
            let (target, part) = tie.split_once('.').map_or((tie, ""), |(target, part)| (target, part));
            let operand = names.iter().position(|name| *name == target);
            let part = match part {
                "" => Part::Whole,
                "dc" => Part::Counter(None),
                "lo.dc" => Part::Counter(Some(0)),
                "hi.dc" => Part::Counter(Some(1)),
                "lf" => Part::LoadFifo,
                "pos" => Part::FifoPosition,
                _ => return Err(row.error(format!("`{kind}` of {name} names no part"))),
            };
            let operand =
                operand.ok_or_else(|| row.error(format!("{name} is tied to `{target}`, which is no operand")))?;
            Kind::Tied { operand: operand as u8, part }
        } else if pieces.is_empty() {
            Kind::Fixed(self.register_of(row, kind)?)
        } else if let Some(immediate) = read_immediate(kind) {
            Kind::Immediate(immediate)
        } else {
            Kind::Class(self.class_of(row, kind)?)
        };
        let operand = Operand { name, direction, kind, pieces };
        let width = match kind {
            Kind::Class(class) => self.class(class).bits,
            Kind::Immediate(immediate) => immediate.bits,
            Kind::Fixed(_) | Kind::Tied { .. } => 0,
        };
        row.require(operand.bits() == width, || format!("{name} has {} bits and needs {width}", operand.bits()))?;
        Ok(operand)
    }

    fn check_ports(&self, row: &Row<'_>, instruction: &Instruction, timing: u16) -> Result<()> {
        let operands = instruction.operands.iter().map(|operand| operand.direction);
        let writes = instruction.writes.iter().map(|_| Direction::Write);
        let reads = instruction.reads.iter().map(|_| Direction::Read);
        let ports = self.timings[usize::from(timing)].ports.iter().map(|port| port.direction);
        row.require(operands.chain(writes).chain(reads).eq(ports), || {
            format!("the timing of `{}` is for other operands", instruction.key)
        })
    }

    fn read_choices(&mut self, text: &'static str, patterns: &HashMap<&str, u16>) -> Result<()> {
        let keys: HashMap<&str, usize> = self.instructions.iter().map(|row| (row.key, row.index)).collect();
        rows("timing", text, |row| match row.get("kind") {
            "unit" | "pattern" => Ok(()),
            "choice" => {
                let key = row.get("name");
                let index = *keys.get(key).ok_or_else(|| row.error(format!("there is no instruction `{key}`")))?;
                let mut conditions = Vec::new();
                for condition in row.get("units").split_whitespace() {
                    let (operand, class) = condition.split_once('=').unwrap_or((condition, ""));
                    let operand = self.instructions[index].operand(operand);
                    let operand = operand.ok_or_else(|| row.error(format!("`{condition}` names no operand")))?;
                    conditions.push((operand as u8, self.class_of(row, class)?));
                }
                let pattern = row.get("operands");
                let timing =
                    *patterns.get(pattern).ok_or_else(|| row.error(format!("there is no pattern `{pattern}`")))?;
                self.check_ports(row, &self.instructions[index], timing)?;
                self.instructions[index].choices.push((conditions, timing));
                Ok(())
            }
            kind => Err(row.error(format!("kind `{kind}` is none of unit, pattern, choice"))),
        })
    }

    fn read_formats(&mut self, text: &'static str) -> Result<()> {
        rows("bundles", text, |row| {
            let bits: u32 = row.number(row.get("bits"))?;
            let mut format = Format {
                name: row.get("format"),
                bits,
                mask: row.number(row.get("mask"))?,
                value: row.number(row.get("value"))?,
                ignored: row.number(row.get("ignored"))?,
                slots: Vec::new(),
            };
            let mut seen = format.mask | format.ignored;
            row.require(format.mask & format.ignored == 0, || "bits are both fixed and ignored".into())?;
            row.require(format.value & !format.mask == 0, || "the value has bits outside of the mask".into())?;
            for text in row.get("slots").split_whitespace() {
                let parts =
                    text.split_once('=').and_then(|(name, bits)| Some((Slot::named(name)?, bits.split_once(':')?)));
                let (slot, (high, low)) = parts.ok_or_else(|| row.error(format!("`{text}` is not SLOT=HIGH:LOW")))?;
                let (high, low) = (row.number(high)?, row.number(low)?);
                let place = ones(high, low);
                row.require(seen & place == 0, || format!("bits of {slot} are used twice"))?;
                let mut widths = self.instructions_of(slot).map(width);
                row.require(widths.all(|width| width == high - low + 1), || format!("{slot} has another width"))?;
                seen |= place;
                format.slots.push((slot, high, low));
            }
            row.require(seen == ones(bits - 1, 0), || "a bit has no meaning".into())?;
            self.formats[bits as usize / 16].push(format);
            Ok(())
        })
    }
}

/// The width of a slot word, from the bits that an instruction explains.
fn width(instruction: &Instruction) -> u32 {
    let fields = instruction.operands.iter().map(|operand| operand.place((1u64 << operand.bits()) - 1));
    let all = fields.fold(instruction.mask | instruction.zero | instruction.ignored, |all, field| all | field);
    64 - all.leading_zeros()
}

fn check_bits(row: &Row<'_>, instruction: &Instruction) -> Result<()> {
    let mut seen = 0u64;
    let fillers = [instruction.mask, instruction.zero, instruction.ignored];
    let fields = instruction.operands.iter().map(|operand| operand.place((1u64 << operand.bits()) - 1));
    for bits in fillers.into_iter().chain(fields) {
        row.require(seen & bits == 0, || format!("bits {:#x} of the word are used twice", seen & bits))?;
        seen |= bits;
    }
    row.require((seen + 1).is_power_of_two(), || {
        format!("bits {:#x} of the word have no meaning", !seen & (seen >> 1))
    })?;
    row.require(instruction.value & !instruction.mask == 0, || "the value has bits outside of the mask".into())
}

/// `u7`, `s4*32`, `n12*4`, `a20`.
fn read_immediate(kind: &str) -> Option<Immediate> {
    let form = match kind.chars().next()? {
        'u' => Form::Unsigned,
        's' => Form::Signed,
        'n' => Form::Negative,
        'a' => Form::Address,
        _ => return None,
    };
    let (bits, step) = kind[1..].split_once('*').unwrap_or((&kind[1..], "1"));
    Some(Immediate { bits: bits.parse().ok()?, form, step: step.parse().ok()? })
}

/// `w5`, `r3~vec`.
fn read_port(row: &Row<'_>, text: &str) -> Result<Port> {
    let (port, bypass) = text.split_once('~').unwrap_or((text, ""));
    let direction = match port.chars().next() {
        Some('r') => Direction::Read,
        Some('w') => Direction::Write,
        _ => return Err(row.error(format!("`{text}` is neither read nor written"))),
    };
    let bypass = match bypass {
        "" => None,
        "mov" | "mv" => Some(Bypass::Move),
        "vec" => Some(Bypass::Vector),
        _ => return Err(row.error(format!("unknown bypass `{bypass}`"))),
    };
    Ok(Port { direction, cycle: row.number(&port[1..])?, bypass })
}

fn read_access(row: &Row<'_>, text: &str) -> Result<Option<Access>> {
    let parts: Vec<&str> = text.split(':').collect();
    let bytes = || row.number(parts.get(1).copied().unwrap_or(""));
    Ok(Some(match (parts[0], parts.get(1).copied(), parts.get(2).copied()) {
        ("", ..) => return Ok(None),
        ("ld", _, Some("tilemap")) => Access::LoadTileRegister,
        ("st", _, Some("tilemap")) => Access::StoreTileRegister,
        ("ld", Some("gather4"), None) => Access::Gather,
        ("ld", Some("stream" | "fifo"), None) => Access::LoadStream,
        ("st", Some("stream" | "fifo"), None) => Access::StoreStream,
        ("ld", _, None) => Access::Load { bytes: bytes()?, extension: None },
        ("ld", _, Some("sign")) => Access::Load { bytes: bytes()?, extension: Some(Extension::Sign) },
        ("ld", _, Some("zero")) => Access::Load { bytes: bytes()?, extension: Some(Extension::Zero) },
        ("st", _, None) => Access::Store { bytes: bytes()? },
        ("rmw", _, None) => Access::PartWordStore { bytes: bytes()? },
        _ => return Err(row.error(format!("unknown access `{text}`"))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// A table with one instruction, into which a mistake is put.
    fn isa(instruction: &'static str) -> Result<Isa> {
        let text = |text: String| -> &'static str { text.leak() };
        Isa::load(&Tables {
            set: InstructionSet::Aie2,
            bundles: "format\tbits\tmask\tvalue\tignored\tslots\nF\t16\t0xff\t0x1\t0x0\talu=15:8",
            instructions: text(format!(
                "slot\tkey\tmnemonic\tsyntax\tmask\tvalue\tzero\tignored\toperands\treads\twrites\tflags\taccess\ttiming\n{}",
                instruction
            )),
            registers: "kind\tname\tbits\tdata\nreg\tr0\t32\nreg\tr1\t32\nclass\teR\t1\t0=r0,1=r1",
            timing: "kind\tname\tunits\toperands\tmemory\nunit\tU\tabout\npattern\tt0\tU@1\tw1 r1",
        })
    }

    #[rstest]
    #[case::right("alu\tMOV\tmov\tmov $d, $s\t0x3f\t0x5\t0x0\t0x0\td:w:eR:7; s:r:eR:6\t\t\t\t\tt0", None)]
    #[case::a_bit_twice("alu\tMOV\tmov\t\t0x7f\t0x5\t0x0\t0x0\td:w:eR:7; s:r:eR:6\t\t\t\t\tt0", Some("used twice"))]
    #[case::a_bit_without_meaning(
        "alu\tMOV\tmov\t\t0x1f\t0x5\t0x0\t0x0\td:w:eR:7; s:r:eR:6\t\t\t\t\tt0",
        Some("no meaning")
    )]
    #[case::an_unknown_class(
        "alu\tMOV\tmov\t\t0x3f\t0x5\t0x0\t0x0\td:w:eQ:7; s:r:eR:6\t\t\t\t\tt0",
        Some("no register class `eQ`")
    )]
    #[case::an_unknown_pattern(
        "alu\tMOV\tmov\t\t0x3f\t0x5\t0x0\t0x0\td:w:eR:7; s:r:eR:6\t\t\t\t\tt7",
        Some("no pattern `t7`")
    )]
    #[case::a_timing_of_others(
        "alu\tMOV\tmov\t\t0x3f\t0x5\t0x0\t0x0\td:r:eR:7; s:r:eR:6\t\t\t\t\tt0",
        Some("other operands")
    )]
    #[case::an_unknown_register(
        "alu\tMOV\tmov\t\t0x3f\t0x5\t0x0\t0x0\td:w:eR:7; s:r:eR:6\tr9\t\t\t\tt0",
        Some("no register `r9`")
    )]
    fn contradictions_are_found(#[case] instruction: &'static str, #[case] expected: Option<&str>) {
        let found = isa(instruction).err().map(|error| error.to_string());
        match expected {
            None => assert_eq!(found, None),
            Some(part) => assert!(found.as_ref().is_some_and(|text| text.contains(part)), "{found:?}"),
        }
    }
}
