//! What an author writes a program with.

use super::error::CoreError;
use super::flow::Node;
use super::operation::{Effect, Op};
use super::program::Section;
use super::register::{AliasRegion, Class, Reg, Variable, members};
use aie_isa::{Isa, Register};
use std::collections::HashMap;

/// A program under construction. See the module's documentation.
///
/// Methods do not fail: the first thing that is wrong is what [`CoreBuilder::finish`] returns.
#[derive(Clone, Debug)]
pub struct CoreBuilder {
    isa: &'static Isa,
    pub(super) variables: Vec<Variable>,
    pub(super) regions: Vec<String>,
    /// The sequences that are open, the innermost last.
    pub(super) open: Vec<Vec<Node>>,
    pub(super) loop_name: Option<String>,
    /// Whether all vector registers have a value from the start.
    pub(super) cleared: bool,
    error: Option<CoreError>,
    specials: HashMap<&'static str, Reg>,
    data: (u32, u32, Vec<u8>),
}

impl CoreBuilder {
    /// An empty program.
    pub fn new(isa: &'static Isa) -> Self {
        Self {
            isa,
            variables: Vec::new(),
            regions: Vec::new(),
            open: vec![Vec::new()],
            loop_name: None,
            cleared: false,
            error: None,
            specials: HashMap::new(),
            data: (0, 0, Vec::new()),
        }
    }

    /// The instruction set.
    pub fn isa(&self) -> &'static Isa {
        self.isa
    }

    /// Where in the core's data memory constants may be: offset and bytes. Without it there is no room for any.
    pub fn set_data_area(&mut self, offset: u32, bytes: u32) {
        (self.data.0, self.data.1) = (offset, bytes);
    }

    /// Puts bytes into data memory, aligned to `align` bytes. Gives their offset in the core's data memory; the core sees them at
    /// [`CoreBuilder::OWN_MEMORY`] plus that.
    pub fn constant(&mut self, bytes: &[u8], align: u32) -> u32 {
        let (offset, limit, data) = &mut self.data;
        let start = (*offset + data.len() as u32).next_multiple_of(align.max(1)) - *offset;
        data.resize(start as usize, 0);
        data.extend_from_slice(bytes);
        let (offset, bytes, limit) = (*offset, data.len(), *limit as usize);
        if bytes > limit {
            self.fail(CoreError::DataSize { bytes, limit });
        }
        offset + start
    }

    /// Where a core sees its own data memory.
    pub const OWN_MEMORY: u32 = 0x7_0000;

    pub(super) fn sections(&self) -> Vec<Section> {
        let (offset, _, bytes) = &self.data;
        if bytes.is_empty() { Vec::new() } else { vec![Section { offset: *offset, bytes: bytes.clone() }] }
    }

    /// A part of memory: see the module's documentation.
    pub fn region(&mut self, name: &str) -> AliasRegion {
        self.regions.push(name.into());
        AliasRegion(self.regions.len() as u32 - 1)
    }

    /// A variable.
    pub fn reg(&mut self, class: Class) -> Reg {
        let name = format!("{}{}", class.name(), self.variables.len());
        self.named(class, &name)
    }

    /// A variable with a name for errors.
    pub fn named(&mut self, class: Class, name: &str) -> Reg {
        let candidates = members(self.isa, class).to_vec();
        self.add_variable(name, class, candidates)
    }

    /// A variable that must be in a certain register: `r27`. Each call makes another variable.
    pub fn fixed(&mut self, name: &str) -> Reg {
        let Some(register) = self.isa.register_named(name) else {
            self.fail(CoreError::Register { isa: self.isa.name(), what: format!("register `{name}`") });
            return self.reg(Class::Scalar);
        };
        let class = Class::of(self.isa, register);
        if class == Class::Special {
            return self.special(name);
        }
        let reg = self.add_variable(name, class, vec![register]);
        self.variables[reg.variable as usize].fixed = true;
        reg
    }

    /// A control or status register by name: `crRnd`, `crSat`, `srCarry`. Written with [`CoreBuilder::mov`]; instructions that
    /// it affects stay on their side of it.
    pub fn special(&mut self, name: &str) -> Reg {
        let Some(register) = self.isa.register_named(name) else {
            self.fail(CoreError::Register { isa: self.isa.name(), what: format!("register `{name}`") });
            return self.reg(Class::Scalar);
        };
        let name = self.isa.register(register).name;
        if let Some(reg) = self.specials.get(name) {
            return *reg;
        }
        let reg = self.add_variable(name, Class::Special, vec![register]);
        self.specials.insert(name, reg);
        reg
    }

    /// A pointer into a region, not set yet.
    pub fn pointer(&mut self, region: AliasRegion) -> Reg {
        let reg = self.reg(Class::Pointer);
        self.set_region(reg, region);
        reg
    }

    /// A pointer with an address as the core sees it.
    pub fn pointer_at(&mut self, region: AliasRegion, address: u32) -> Reg {
        let reg = self.pointer(region);
        self.constant_into(reg, address.into());
        reg
    }

    /// Says where a pointer points, for accesses written from now on.
    pub fn set_region(&mut self, pointer: Reg, region: AliasRegion) {
        self.variables[pointer.variable as usize].region = Some(region);
    }

    /// The variable that a register is, or is a part of.
    pub fn whole(&self, reg: Reg) -> Reg {
        let variable = self.variable(reg);
        Reg { variable: reg.variable, class: variable.class, first: 0, leaves: variable.leaves }
    }

    /// Says that a variable's contents may be anything where it has not been written: without that, reading it is an error.
    pub fn undefined(&mut self, reg: Reg) {
        let variable = &mut self.variables[reg.variable as usize];
        (variable.undefined, variable.shares_parts) = (true, self.cleared);
    }

    fn add_variable(&mut self, name: &str, class: Class, candidates: Vec<Register>) -> Reg {
        let Some(first) = candidates.first() else {
            let what = format!("registers of class {}", class.name());
            self.fail(CoreError::Register { isa: self.isa.name(), what });
            return Reg { variable: 0, class, first: 0, leaves: 0 };
        };
        let leaves = self.isa.register(*first).leaves.len() as u8;
        let variable = Variable {
            name: name.into(),
            class,
            leaves,
            candidates,
            region: None,
            fixed: false,
            undefined: false,
            shares_parts: false,
            writes: 0,
            constant: None,
        };
        self.variables.push(variable);
        Reg { variable: self.variables.len() as u32 - 1, class, first: 0, leaves }
    }

    /// Another variable of the same kind.
    pub(super) fn copy_of(&mut self, variable: u32) -> u32 {
        self.variables.push(self.variables[variable as usize].clone());
        self.variables.len() as u32 - 1
    }

    pub(super) fn variable(&self, reg: Reg) -> &Variable {
        &self.variables[reg.variable as usize]
    }

    pub(super) fn push(&mut self, op: Op) {
        self.push_node(Node::Op(op));
    }

    /// Keeps the operation written last, although nothing may read what it writes.
    pub(super) fn keep_last(&mut self) {
        if let Some(Node::Op(op)) = self.open.last_mut().and_then(|sequence| sequence.last_mut()) {
            op.effect = Effect::Ordered;
        }
    }

    pub(super) fn push_node(&mut self, node: Node) {
        if let Some(sequence) = self.open.last_mut() {
            sequence.push(node);
        }
    }

    /// Remembers the first error.
    pub(super) fn fail(&mut self, error: CoreError) {
        self.error.get_or_insert(error);
    }

    pub(super) fn take_error(&mut self) -> Option<CoreError> {
        self.error.take()
    }
}
