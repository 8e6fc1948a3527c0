//! Conveniences for vectors and memory: loads, stores, conversions, multiply-accumulate.

use super::builder::CoreBuilder;
use super::operation::RegOrImm;
use super::register::{Class, Reg};

/// Which address a load or store uses, and what becomes of its pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// Bytes from the pointer, which stays.
    At(i64),
    /// The pointer plus a [`Class::Jump`] register; the pointer stays.
    Index(Reg),
    /// The pointer, which then moves by bytes.
    Then(i64),
    /// The pointer, which then moves by a [`Class::Modifier`] register.
    ThenBy(Reg),
    /// The pointer, which then moves by a [`Class::Dimensions2`] or [`Class::Dimensions3`] register, whose counters change.
    Then2D(Reg),
}

impl Address {
    fn operand(self) -> RegOrImm {
        match self {
            Self::At(number) | Self::Then(number) => RegOrImm::Imm(number),
            Self::Index(reg) | Self::ThenBy(reg) | Self::Then2D(reg) => RegOrImm::Reg(reg),
        }
    }

    /// The mnemonic with its dimensions: `vlda.2d.conv.fp32.bf16`.
    fn mnemonic(self, plain: &str) -> String {
        let dimensions = match self {
            Self::Then2D(reg) if reg.class == Class::Dimensions3 => ".3d",
            Self::Then2D(_) => ".2d",
            _ => return plain.into(),
        };
        let at = plain.find('.').unwrap_or(plain.len());
        format!("{}{dimensions}{}", &plain[..at], &plain[at..])
    }
}

impl CoreBuilder {
    /// bf16 as matrices: 4x8 times 8x4 to 4x4 in fp32 (128 multiply-accumulates), and additions of fp32 lanes.
    pub const MATRIX_BF16: u32 = 28;
    /// i8 as matrices: 4x8 times 8x8 to 4x8 in i32 (256 multiply-accumulates), with the signs of both.
    pub const MATRIX_I8: u32 = 776;
    /// Block floating point as matrices, the second one transposed: 8x8 times 8x8 to 8x8 in fp32 (512 multiply-accumulates).
    pub const MATRIX_BLOCKS: u32 = 0x30C;
    /// bf16 lane by lane: `a[i] * b[i] + a[i + 16] * b[i + 16]` in fp32 (32 multiply-accumulates).
    pub const LANES_BF16: u32 = 60;

    /// Loads a register from memory: `w`, halves of `x` one after the other, quarters of accumulators, scalars and addresses,
    /// masks. Vectors come through either load unit, by the scheduler's choice.
    ///
    /// The address must be a multiple of 32 bytes for vectors, of the size for others. What no single instruction loads is
    /// loaded in halves, and the pointer moves as said once both are loaded; halves cannot have [`Address::Index`] and
    /// [`Address::Then2D`].
    pub fn load(&mut self, target: Reg, pointer: Reg, address: Address) {
        self.access(&["vlda", "vldb", "lda"], target, None, pointer, address);
    }

    /// Loads through one unit or of another kind: `lda.u16`, `vlda.conv.fp32.bf16` (32 bytes of bf16 to 16 lanes of fp32 in a
    /// `bm`), `vldb`.
    pub fn load_as(&mut self, mnemonic: &str, target: Reg, pointer: Reg, address: Address) {
        self.access(&[mnemonic], target, None, pointer, address);
    }

    /// Loads with a shift: `vlda.ups.s32.d16`.
    pub fn load_shifted(&mut self, mnemonic: &str, target: Reg, shift: Reg, pointer: Reg, address: Address) {
        self.access(&[mnemonic], target, Some(shift), pointer, address);
    }

    /// Stores a register; as [`CoreBuilder::load`].
    pub fn store(&mut self, source: Reg, pointer: Reg, address: Address) {
        self.access(&["vst", "st"], source, None, pointer, address);
    }

    /// Stores of another kind: `st.s16`, `vst.conv.bf16.fp32` (16 lanes of fp32 in a `bm` to 32 bytes of bf16).
    pub fn store_as(&mut self, mnemonic: &str, source: Reg, pointer: Reg, address: Address) {
        self.access(&[mnemonic], source, None, pointer, address);
    }

    /// Stores with a shift: `vst.srs.s16.s32`.
    pub fn store_shifted(&mut self, mnemonic: &str, source: Reg, shift: Reg, pointer: Reg, address: Address) {
        self.access(&[mnemonic], source, Some(shift), pointer, address);
    }

    fn access(&mut self, mnemonics: &[&str], reg: Reg, shift: Option<Reg>, pointer: Reg, address: Address) {
        let names: Vec<String> = mnemonics.iter().map(|mnemonic| address.mnemonic(mnemonic)).collect();
        let mut operands = vec![RegOrImm::from(reg)];
        operands.extend(shift.map(RegOrImm::from));
        operands.extend([pointer.into(), address.operand()]);
        let post = !matches!(address, Address::At(_) | Address::Index(_));
        let names = names.iter().map(String::as_str);
        let fitting: Vec<&str> = names.clone().filter(|name| self.accepts_addressed(name, &operands, post)).collect();
        if !fitting.is_empty() {
            return self.emit_addressed(&fitting, &operands, post);
        }
        let halves = reg.lo().leaves > 0 && mnemonics.len() > 1 && shift.is_none();
        let bytes = i64::from(self.bytes(reg.lo()));
        match address {
            Address::At(at) if halves => {
                self.access(mnemonics, reg.lo(), shift, pointer, Address::At(at));
                self.access(mnemonics, reg.hi(), shift, pointer, Address::At(at + bytes));
            }
            Address::Then(by) if halves => {
                self.access(mnemonics, reg.lo(), shift, pointer, Address::Then(bytes));
                self.access(mnemonics, reg.hi(), shift, pointer, Address::Then(by - bytes));
            }
            Address::ThenBy(_) if halves => {
                self.access(mnemonics, reg.hi(), shift, pointer, Address::At(bytes));
                self.access(mnemonics, reg.lo(), shift, pointer, address);
            }
            // A number beyond the field.
            Address::At(at) => {
                let index = self.reg(Class::Jump);
                self.constant_into(index, at);
                self.access(mnemonics, reg, shift, pointer, Address::Index(index));
            }
            Address::Then(by) => {
                let modifier = self.reg(Class::Modifier);
                self.constant_into(modifier, by);
                self.access(mnemonics, reg, shift, pointer, Address::ThenBy(modifier));
            }
            _ => self.emit_addressed(&names.collect::<Vec<_>>(), &operands, post),
        }
    }

    /// Gives all vector registers and accumulators a value. To be written once, where a program begins that leaves parts of its
    /// variables [undefined](CoreBuilder::undefined): what it reads there is then a number on all paths.
    pub fn clear_vectors(&mut self) {
        self.cleared = true;
        let zero = self.scalar(0);
        for class in [Class::X, Class::Acc2048] {
            for register in super::register::members(self.isa(), class) {
                let register = self.fixed(self.isa().register(*register).name);
                if class == Class::X {
                    self.broadcast(32, register, zero)
                } else {
                    self.emit("vclr", [register])
                }
                self.keep_last();
            }
        }
    }

    /// Size of a register in bytes.
    fn bytes(&self, reg: Reg) -> u32 {
        let register = self.variable(reg).candidates.first();
        let part = register.and_then(|whole| super::register::part_of(self.isa(), *whole, reg.first, reg.leaves));
        part.map_or(0, |part| self.isa().register(part).bits / 8)
    }

    /// Sets a scalar in all lanes of an `x`: `bits` 8, 16, 32 or 64 (from an `l`).
    pub fn broadcast(&mut self, bits: u32, target: Reg, scalar: Reg) {
        self.emit(&format!("vbcst.{bits}"), [target, scalar]);
    }

    /// Rounds 16 lanes of fp32 in a `bm` to bf16 in a `w`, by `crRnd`.
    pub fn to_bf16(&mut self, target: Reg, source: Reg) {
        self.emit("vconv.bf16.fp32", [target, source]);
    }

    /// Widens 16 lanes of bf16 in a `w` to fp32 in a `bm`.
    pub fn to_fp32(&mut self, target: Reg, source: Reg) {
        self.emit("vconv.fp32.bf16", [target, source]);
    }

    /// Shuffles two `x` by a mode in a scalar.
    pub fn shuffle(&mut self, target: Reg, a: Reg, b: Reg, mode: Reg) {
        self.emit("vshuffle", [target, a, b, mode]);
    }

    /// Lane by lane: a bit of 0 takes `a`, 1 takes `b`. `bits` 8 (selection in an `l`), 16 or 32 (in a scalar).
    pub fn select_lanes(&mut self, bits: u32, target: Reg, a: Reg, b: Reg, selection: Reg) {
        self.emit(&format!("vsel.{bits}"), [target, a, b, selection]);
    }

    /// `target = a * b` with a configuration word in a scalar; bf16 to a `bm`.
    pub fn mul_f(&mut self, target: Reg, a: Reg, b: Reg, configuration: Reg) {
        self.emit("vmul.f", [target, a, b, configuration]);
    }

    /// `target = accumulator + a * b`; bf16 to a `bm`.
    pub fn mac_f(&mut self, target: Reg, accumulator: Reg, a: Reg, b: Reg, configuration: Reg) {
        self.emit("vmac.f", [target, accumulator, a, b, configuration]);
    }

    /// `target = accumulator - a * b`; bf16 to a `bm`.
    pub fn msc_f(&mut self, target: Reg, accumulator: Reg, a: Reg, b: Reg, configuration: Reg) {
        self.emit("vmsc.f", [target, accumulator, a, b, configuration]);
    }

    /// `target = a + b`, 16 lanes of fp32 in `bm`s, with [`CoreBuilder::MATRIX_BF16`] as configuration.
    pub fn add_f(&mut self, target: Reg, a: Reg, b: Reg, configuration: Reg) {
        self.emit("vadd.f", [target, a, b, configuration]);
    }

    /// `target = a - b`, 16 lanes of fp32 in `bm`s, with [`CoreBuilder::MATRIX_BF16`] as configuration.
    pub fn sub_f(&mut self, target: Reg, a: Reg, b: Reg, configuration: Reg) {
        self.emit("vsub.f", [target, a, b, configuration]);
    }

    /// `target = accumulator + a * b` on integers: `x` times `x` to a `cm`.
    pub fn mac(&mut self, target: Reg, accumulator: Reg, a: Reg, b: Reg, configuration: Reg) {
        self.emit("vmac", [target, accumulator, a, b, configuration]);
    }
}
