//! Conveniences for scalars: constants, moves, arithmetic, locks.

use super::builder::CoreBuilder;
use super::operation::RegOrImm;
use super::register::{Class, Reg};

impl CoreBuilder {
    /// A scalar with a number, taken modulo 2^32.
    pub fn scalar(&mut self, number: i64) -> Reg {
        let reg = self.reg(Class::Scalar);
        self.constant_into(reg, number);
        reg
    }

    /// Sets a register of 32 bits or less, a special one too, to a number.
    pub fn constant_into(&mut self, target: Reg, number: i64) {
        let number = if i64::from(number as u32) == number { i64::from(number as u32 as i32) } else { number };
        self.variables[target.variable as usize].constant = Some(number);
        let operands = [target.into(), RegOrImm::Imm(number)];
        let short = ["mova", "movx", "mov"].into_iter().filter(|mnemonic| self.accepts(mnemonic, &operands));
        let short: Vec<&str> = short.collect();
        if short.is_empty() { self.emit_any(&["movxm"], &operands) } else { self.emit_any(&short, &operands) }
    }

    /// Copies a register: between all scalar, address and special registers, between `w` and quarters of accumulators, between
    /// `x` and `bm`, `cm` to `cm`. Wider ones are copied in halves.
    pub fn mov(&mut self, target: Reg, source: Reg) {
        let operands = [target.into(), source.into()];
        if let Some(mnemonic) = ["mov", "vmov", "movx"].into_iter().find(|mnemonic| self.accepts(mnemonic, &operands)) {
            return self.emit_any(&[mnemonic], &operands);
        }
        if target.lo().leaves > 0 && source.lo().leaves > 0 {
            self.mov(target.lo(), source.lo());
            self.mov(target.hi(), source.hi());
        } else if target.class == Class::Dimensions2 && source.class == Class::Dimensions2 {
            for part in [Reg::modifier, Reg::size, Reg::jump, Reg::counter] {
                self.mov(part(target), part(source));
            }
        } else {
            // No row: the error says so.
            self.emit_any(&["mov", "vmov"], &operands);
        }
    }

    /// A scalar operation of two sources into a new scalar: `add`, `sub`, `and`, `or`, `xor`, `mul`, `lshl`, `ashl`, `eq`, `ne`,
    /// `lt`, `ge`, `ltu`, `geu`. The second may be a number. `lshl` and `ashl` by -n shift right by n.
    pub fn binary(&mut self, mnemonic: &str, a: Reg, b: impl Into<RegOrImm>) -> Reg {
        let target = self.reg(Class::Scalar);
        self.binary_into(target, mnemonic, a, b);
        target
    }

    /// [`CoreBuilder::binary`] into a variable.
    pub fn binary_into(&mut self, target: Reg, mnemonic: &str, a: Reg, b: impl Into<RegOrImm>) {
        let b = match b.into() {
            RegOrImm::Imm(number) if !self.accepts(mnemonic, &[target.into(), a.into(), RegOrImm::Imm(number)]) => {
                RegOrImm::Reg(self.scalar(number))
            }
            b => b,
        };
        self.emit_any(&[mnemonic], &[target.into(), a.into(), b]);
    }

    /// `a + b`.
    pub fn add(&mut self, a: Reg, b: impl Into<RegOrImm>) -> Reg {
        self.binary("add", a, b)
    }

    /// `if_true` where the condition is not zero, else `if_false`.
    pub fn select(&mut self, condition: Reg, if_true: Reg, if_false: Reg) -> Reg {
        let target = self.reg(Class::Scalar);
        self.emit("sel.nez", [target, if_true, if_false, condition]);
        target
    }

    /// Moves a pointer by bytes; a number must be a multiple of 4 (else it goes through a modifier), a register a modifier.
    pub fn advance(&mut self, pointer: Reg, by: impl Into<RegOrImm>) {
        let all = ["padda", "paddb", "padds"];
        let by = match by.into() {
            RegOrImm::Imm(number) if !all.iter().any(|m| self.accepts(m, &[pointer.into(), RegOrImm::Imm(number)])) => {
                let modifier = self.reg(Class::Modifier);
                self.constant_into(modifier, number);
                RegOrImm::Reg(modifier)
            }
            RegOrImm::Reg(reg) if reg.class != Class::Modifier => {
                let modifier = self.reg(Class::Modifier);
                self.mov(modifier, reg);
                RegOrImm::Reg(modifier)
            }
            by => by,
        };
        let operands = [pointer.into(), by];
        let fitting: Vec<&str> = all.into_iter().filter(|mnemonic| self.accepts(mnemonic, &operands)).collect();
        self.emit_any(&fitting, &operands);
    }

    /// Acquires a lock, by its number as the core sees it (48 to 63 are the tile's own on aie2): waits until its value is at
    /// least `-by` for a negative `by`, exactly `by` otherwise; then takes that much away.
    pub fn acquire(&mut self, lock: u8, by: impl Into<RegOrImm>) {
        self.use_lock("acq", lock, by.into());
    }

    /// Releases a lock: adds `by` to its value, once all accesses to memory before it are done.
    pub fn release(&mut self, lock: u8, by: impl Into<RegOrImm>) {
        self.use_lock("rel", lock, by.into());
    }

    fn use_lock(&mut self, mnemonic: &str, lock: u8, by: RegOrImm) {
        let by = match by {
            RegOrImm::Imm(number) => self.scalar(number),
            RegOrImm::Reg(reg) => reg,
        };
        self.emit_with(mnemonic, &[lock.into(), by.into()]);
    }

    /// Raises a core event, 0 to 3.
    pub fn event(&mut self, number: u8) {
        self.emit("event", [i64::from(number)]);
    }

    /// Ends the program: the core stops until it is reset.
    pub fn done(&mut self) {
        self.emit_with("done", &[]);
    }
}
