//! From a mnemonic and operands to the rows of the table that fit them.

use super::builder::CoreBuilder;
use super::error::CoreError;
use super::operation::{Effect, Op, RegOrImm, Row, Val, given};
use super::register::{AliasRegion, Class, Reg, members, part_of};
use aie_isa::{Access, Direction, Instruction, Kind, Part, Register};

/// The assembly text's form without mnemonic and names: rows of one form do the same.
fn shape(row: &Instruction) -> (String, Vec<Direction>) {
    let operands = row.syntax.split_once(' ').map_or("", |(_, operands)| operands);
    let punctuation = operands.chars().filter(|c| !c.is_ascii_alphanumeric() && *c != '_').collect();
    (punctuation, given(row).into_iter().map(|index| row.operands[index].direction).collect())
}

/// Whether the assembly text modifies the pointer after the access.
fn is_post(row: &Instruction) -> bool {
    row.syntax.contains("], $")
}

impl CoreBuilder {
    /// Adds an instruction by its mnemonic: operands in the order of the assembly text (see `aie_isa`'s listings), then those
    /// that the text implies (the condition of `sel.eqz`). Where several slots have the instruction, the scheduler chooses.
    ///
    /// A variable that cannot be where the instruction wants it is moved there and back. Loads and stores by mnemonic with a number
    /// have the form `[p, #n]`; [`CoreBuilder::load`] and [`CoreBuilder::store`] say which form is meant. Streams and cascades,
    /// whose moves have the mnemonics of others, are only written by [`CoreBuilder::op`].
    pub fn emit<const N: usize>(&mut self, mnemonic: &str, operands: [impl Into<RegOrImm>; N]) {
        self.emit_any(&[mnemonic], &operands.map(Into::into));
    }

    /// [`CoreBuilder::emit`] with operands of different kinds.
    pub fn emit_with(&mut self, mnemonic: &str, operands: &[RegOrImm]) {
        self.emit_any(&[mnemonic], operands);
    }

    /// Adds an instruction by the key of its row, with operands by their names in the table. Tied operands are not given.
    pub fn op(&mut self, key: &str, operands: &[(&str, RegOrImm)]) {
        let Some(instruction) = self.isa().instruction(key) else {
            return self.fail(CoreError::Instruction { isa: self.isa().name(), name: key.into() });
        };
        let by_name = given(instruction).into_iter().map(|index| {
            let name = instruction.operands[index].name;
            operands.iter().find(|(other, _)| *other == name).map(|(_, operand)| *operand)
        });
        match by_name.collect::<Option<Vec<_>>>() {
            Some(values) if values.len() == operands.len() => self.add_rows(key, vec![instruction], &values),
            _ => {
                let values: Vec<RegOrImm> = operands.iter().map(|(_, operand)| *operand).collect();
                let error = self.no_row(key, &[instruction], &values);
                self.fail(error);
            }
        }
    }

    /// Whether a mnemonic means a row. Streams and cascades share the mnemonics of moves; of rows without evidence others do the same.
    fn is_plain(row: &Instruction) -> bool {
        !(row.flags.unproven || row.flags.stream || row.flags.cascade)
    }

    /// Adds an instruction that several mnemonics stand for, one for each slot.
    pub(super) fn emit_any(&mut self, mnemonics: &[&str], operands: &[RegOrImm]) {
        self.emit_rows(mnemonics, operands, |_| true);
    }

    /// The same for a load or store: `post` means that the pointer is modified after the access.
    pub(super) fn emit_addressed(&mut self, mnemonics: &[&str], operands: &[RegOrImm], post: bool) {
        self.emit_rows(mnemonics, operands, |row| is_post(row) == post);
    }

    fn emit_rows(&mut self, mnemonics: &[&str], operands: &[RegOrImm], wanted: impl Fn(&Instruction) -> bool) {
        let isa = self.isa();
        let rows = mnemonics.iter().flat_map(|mnemonic| isa.instructions_named(mnemonic));
        let rows: Vec<&'static Instruction> = rows.filter(|row| Self::is_plain(row) && wanted(row)).collect();
        if rows.is_empty() {
            return self.fail(CoreError::Instruction { isa: isa.name(), name: mnemonics.join("/") });
        }
        self.add_rows(&mnemonics.join("/"), rows, operands);
    }

    /// Whether a mnemonic has a row for these operands.
    pub(super) fn accepts(&self, mnemonic: &str, operands: &[RegOrImm]) -> bool {
        let mut rows = self.isa().instructions_named(mnemonic).filter(|row| Self::is_plain(row));
        rows.any(|row| self.fits(row, operands, false).is_some())
    }

    /// The same for a load or store.
    pub(super) fn accepts_addressed(&self, mnemonic: &str, operands: &[RegOrImm], post: bool) -> bool {
        let mut rows =
            self.isa().instructions_named(mnemonic).filter(|row| Self::is_plain(row) && is_post(row) == post);
        rows.any(|row| self.fits(row, operands, false).is_some())
    }

    fn add_rows(&mut self, name: &str, rows: Vec<&'static Instruction>, operands: &[RegOrImm]) {
        let invalid = operands.iter().find_map(|operand| match operand {
            RegOrImm::Reg(reg) if reg.leaves == 0 => Some(*reg),
            _ => None,
        });
        if let Some(reg) = invalid {
            let what = format!("such part of {} `{}`", reg.class.name(), self.variable(reg).name);
            return self.fail(CoreError::Register { isa: self.isa().name(), what });
        }
        let fitting: Vec<(&'static Instruction, Vec<Val>)> =
            rows.iter().filter_map(|row| Some((*row, self.fits(row, operands, true)?))).collect();
        if let Some((first, _)) = fitting.first() {
            // `[p, #4]` and `[p], #4` have the same operands and are not the same.
            let shape = shape(first);
            return self.add_fitting(fitting.into_iter().filter(|(row, _)| shape == self::shape(row)).collect());
        }
        // Perhaps a move helps: to a fixed register, or into a part of a class.
        let Some(row) = rows.iter().find(|row| self.fits(row, operands, false).is_some()) else {
            let error = self.no_row(name, &rows, operands);
            return self.fail(error);
        };
        let (mut moved, mut after) = (operands.to_vec(), Vec::new());
        for (index, operand) in given(row).into_iter().zip(&mut moved) {
            let (description, RegOrImm::Reg(reg)) = (&row.operands[index], *operand) else {
                continue;
            };
            if self.allows(description.kind, reg) {
                continue;
            }
            let Some(stand_in) = self.stand_in(description.kind, reg) else {
                let error = self.no_row(name, &rows, operands);
                return self.fail(error);
            };
            if description.direction == Direction::Read {
                self.mov(stand_in, reg);
            } else {
                after.push((reg, stand_in));
            }
            *operand = stand_in.into();
        }
        match self.fits(row, &moved, true) {
            Some(values) => self.add_fitting(vec![(row, values)]),
            None => {
                let error = self.no_row(name, &rows, operands);
                self.fail(error);
            }
        }
        for (reg, stand_in) in after {
            self.mov(reg, stand_in);
        }
    }

    /// A new variable of the same class that the operand can have.
    fn stand_in(&mut self, kind: Kind, reg: Reg) -> Option<Reg> {
        let new = self.reg(reg.class);
        self.variables[new.variable as usize].region = self.variable(reg).region;
        self.allows(kind, new).then_some(new)
    }

    fn add_fitting(&mut self, fitting: Vec<(&'static Instruction, Vec<Val>)>) {
        // Rows of other operand orders would be other operations; rows of one mnemonic family have the same.
        let rows: Vec<Row> = fitting.into_iter().map(|(instruction, values)| Row { instruction, values }).collect();
        for row in &rows {
            for (operand, value) in row.instruction.operands.iter().zip(&row.values) {
                if let Val::Reg(reg) = value {
                    self.restrict(operand.kind, *reg);
                }
            }
        }
        for (direction, reg) in rows[0].registers() {
            if direction == Direction::Write {
                self.variables[reg.variable as usize].writes += 1;
            }
        }
        let effect = self.effect(&rows[0]);
        self.push(Op { rows, effect, dead: Vec::new() });
    }

    fn effect(&self, row: &Row) -> Effect {
        let instruction = row.instruction;
        let region = || -> Option<AliasRegion> {
            let pointer = instruction.operand("ptr").and_then(|index| match row.values[index] {
                Val::Reg(reg) => Some(reg),
                _ => None,
            });
            pointer.and_then(|pointer| self.variable(pointer).region)
        };
        if instruction.mnemonic == "done" {
            return Effect::Done;
        }
        if instruction.flags.lock {
            return if instruction.mnemonic.starts_with("acq") { Effect::Acquire } else { Effect::Release };
        }
        if instruction.flags.stream || instruction.flags.cascade || instruction.mnemonic == "event" {
            return Effect::Ordered;
        }
        match instruction.access {
            None => Effect::None,
            Some(Access::Load { .. }) => Effect::Load(region()),
            Some(Access::Store { .. } | Access::PartWordStore { .. }) => Effect::Store(region()),
            Some(Access::Gather) => Effect::Load(None),
            Some(_) => Effect::Store(None),
        }
    }

    /// The values of all operands of a row, if those given fit it. `strict`: without a move.
    fn fits(&self, row: &'static Instruction, operands: &[RegOrImm], strict: bool) -> Option<Vec<Val>> {
        let order = given(row);
        if order.len() != operands.len() {
            return None;
        }
        let mut values: Vec<Option<Val>> = vec![None; row.operands.len()];
        for (index, operand) in order.into_iter().zip(operands) {
            let kind = row.operands[index].kind;
            values[index] = Some(match (kind, *operand) {
                (Kind::Immediate(immediate), RegOrImm::Imm(number)) => {
                    // 32-bit immediates may be written unsigned too.
                    let wrapped = i64::from(number as u32 as i32);
                    let unsigned = immediate.bits == 32 && i64::from(number as u32) == number;
                    let number = if unsigned { wrapped } else { number };
                    immediate.field(number)?;
                    Val::Imm(number)
                }
                (Kind::Class(_) | Kind::Fixed(_), RegOrImm::Reg(reg)) => {
                    let possible = if strict { self.allows(kind, reg) } else { self.could_allow(kind, reg) };
                    possible.then_some(Val::Reg(reg))?
                }
                _ => return None,
            });
        }
        for (index, operand) in row.operands.iter().enumerate() {
            if let Kind::Tied { operand: other, part } = operand.kind {
                let Some(Val::Reg(reg)) = values[usize::from(other)] else {
                    return None;
                };
                values[index] = Some(Val::Reg(match part {
                    Part::Whole => reg,
                    Part::Counter(None) => reg.counter(),
                    Part::Counter(Some(0)) => reg.lo().counter(),
                    Part::Counter(Some(_)) => reg.hi().counter(),
                    Part::LoadFifo | Part::FifoPosition => return None,
                }));
            }
        }
        values.into_iter().collect()
    }

    fn accepts_register(&self, kind: Kind, register: Register) -> bool {
        match kind {
            Kind::Class(class) => self.isa().class(class).contains(register),
            Kind::Fixed(fixed) => fixed == register,
            Kind::Immediate(_) | Kind::Tied { .. } => true,
        }
    }

    /// Whether one of the registers that a variable may still get fits an operand.
    fn allows(&self, kind: Kind, reg: Reg) -> bool {
        let candidates = &self.variable(reg).candidates;
        let part = |whole: &Register| part_of(self.isa(), *whole, reg.first, reg.leaves);
        candidates.iter().filter_map(part).any(|register| self.accepts_register(kind, register))
    }

    /// Whether any register of its class fits an operand.
    fn could_allow(&self, kind: Kind, reg: Reg) -> bool {
        if reg.class == Class::Special {
            return self.allows(kind, reg);
        }
        members(self.isa(), reg.class).iter().any(|register| self.accepts_register(kind, *register))
    }

    /// Leaves a variable the registers that fit an operand.
    fn restrict(&mut self, kind: Kind, reg: Reg) {
        let isa = self.isa();
        let candidates: Vec<Register> = self.variable(reg).candidates.clone();
        let kept = candidates.into_iter().filter(|whole| {
            part_of(isa, *whole, reg.first, reg.leaves).is_some_and(|part| self.accepts_register(kind, part))
        });
        self.variables[reg.variable as usize].candidates = kept.collect();
    }

    fn no_row(&self, name: &str, rows: &[&'static Instruction], operands: &[RegOrImm]) -> CoreError {
        let operands: Vec<String> = operands
            .iter()
            .map(|operand| match operand {
                RegOrImm::Imm(number) => format!("#{number}"),
                RegOrImm::Reg(reg) => format!("{} `{}`", reg.class.name(), self.variable(*reg).name),
            })
            .collect();
        let forms: Vec<&str> = rows.iter().map(|row| row.syntax).collect();
        CoreError::Operands { name: name.into(), operands: operands.join(", "), forms: forms.join(" | ") }
    }
}
