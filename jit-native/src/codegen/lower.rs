//! From loops and conditions to blocks: straight sequences with a branch at their end.

use super::block::{Block, End};
use super::builder::CoreBuilder;
use super::error::CoreError;
use super::flow::{Count, LoopForm, Node};
use super::operation::{Effect, Label, Op, RegOrImm, Row, Val};
use super::pipeline::{self, Found, LoopPlan};
use super::register::{Class, Reg};
use super::reservation::Formats;
use super::timing::Context;
use aie_isa::Register;
use std::collections::{HashMap, HashSet};

/// What is known of a loop before it is scheduled.
#[derive(Clone, Debug)]
pub(super) struct LoopInfo {
    pub name: String,
    pub found: Found,
    /// Multiply-accumulates of an iteration, and the most that its instructions could do in a cycle.
    pub macs: (u32, u32),
}

/// What decides how a program is lowered, and what has been found out before.
pub(super) struct Plan<'p> {
    pub formats: &'p Formats,
    pub form: LoopForm,
    pub default: LoopPlan,
    /// By the number of the loop.
    pub loops: HashMap<usize, LoopPlan>,
    /// Schedules that have been looked for.
    pub found: HashMap<(usize, LoopPlan), Found>,
    /// Registers that nothing reads.
    pub unread: HashSet<Register>,
}

/// A program as blocks.
#[derive(Debug)]
pub(super) struct Lowered {
    pub blocks: Vec<Block>,
    /// The block of each label.
    pub labels: Vec<usize>,
    pub loops: Vec<LoopInfo>,
}

struct Lowering<'b, 'p> {
    builder: &'b mut CoreBuilder,
    plan: &'b mut Plan<'p>,
    /// How often each variable occurs in the program.
    occurrences: HashMap<u32, usize>,
    origin: usize,
    blocks: Vec<Block>,
    labels: Vec<Option<usize>>,
    loops: Vec<LoopInfo>,
}

/// Makes blocks of a program.
pub(super) fn lower(builder: &mut CoreBuilder, program: &[Node], plan: &mut Plan<'_>) -> Result<Lowered, CoreError> {
    let mut occurrences = HashMap::new();
    occurrences_in(program, &mut occurrences);
    let (blocks, labels, loops) = (vec![Block::empty(0)], Vec::new(), Vec::new());
    let mut lowering = Lowering { builder, plan, occurrences, origin: 0, blocks, labels, loops };
    lowering.sequence(program)?;
    // Whatever the author has written last, the core does not run on into what is not the program.
    lowering.emit(CoreBuilder::done)?;
    lowering.end(End::Jump { branch: None, target: None });
    lowering.blocks.pop();
    let labels = lowering.labels.into_iter().map(|label| label.unwrap_or(0)).collect();
    Ok(Lowered { blocks: lowering.blocks, labels, loops: lowering.loops })
}

/// Counts operands that are variables.
fn occurrences_in(program: &[Node], counts: &mut HashMap<u32, usize>) {
    for node in program {
        let (registers, bodies): (Vec<Reg>, [&[Node]; 2]) = match node {
            Node::Op(op) => (op.registers().map(|(_, reg)| reg).collect(), [&[], &[]]),
            Node::Repeat { count: Count { value: RegOrImm::Reg(reg), .. }, body, .. } => (vec![*reg], [body, &[]]),
            Node::Repeat { body, .. } | Node::Forever(body) => (Vec::new(), [body, &[]]),
            Node::While { condition, body } => (vec![*condition], [body, &[]]),
            Node::If { condition, then, otherwise } => (vec![*condition], [then, otherwise]),
        };
        for reg in registers {
            *counts.entry(reg.variable).or_default() += 1;
        }
        for body in bodies {
            occurrences_in(body, counts);
        }
    }
}

impl Lowering<'_, '_> {
    fn sequence(&mut self, nodes: &[Node]) -> Result<(), CoreError> {
        nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Result<(), CoreError> {
        if !matches!(node, Node::Op(_)) {
            self.origin += 1;
        }
        match node {
            Node::Op(op) => self.push(op.clone()),
            Node::Repeat { name, count, body } => self.repeat(name.as_deref(), *count, body)?,
            Node::While { condition, body } => {
                let top = self.bound();
                self.sequence(body)?;
                self.branch("jnz", *condition, top)?;
            }
            Node::If { condition, then, otherwise } => self.condition(*condition, then, otherwise)?,
            Node::Forever(body) => {
                let top = self.bound();
                self.sequence(body)?;
                self.jump(top)?;
            }
        }
        Ok(())
    }

    fn condition(&mut self, condition: Reg, then: &[Node], otherwise: &[Node]) -> Result<(), CoreError> {
        let (other, end) = (self.label(), self.label());
        if then.is_empty() {
            self.branch("jnz", condition, end)?;
            self.sequence(otherwise)?;
        } else if otherwise.is_empty() {
            self.branch("jz", condition, end)?;
            self.sequence(then)?;
        } else {
            self.branch("jz", condition, other)?;
            self.sequence(then)?;
            self.jump(end)?;
            self.bind(other);
            self.sequence(otherwise)?;
        }
        self.bind(end);
        Ok(())
    }

    fn repeat(&mut self, name: Option<&str>, count: Count, body: &[Node]) -> Result<(), CoreError> {
        let name = name.map_or_else(|| format!("loop {}", self.loops.len()), String::from);
        let nothing = matches!(count.value, RegOrImm::Imm(0)) || body.is_empty();
        if nothing {
            return Ok(());
        }
        if count.value == RegOrImm::Imm(1) {
            return self.sequence(body);
        }
        let ops: Option<Vec<Op>> = body
            .iter()
            .map(|node| match node {
                Node::Op(op) if op.effect != Effect::Done => Some(op.clone()),
                _ => None,
            })
            .collect();
        match ops {
            Some(ops) => self.innermost_loop(name, count, ops),
            None => self.counted_loop(count, body),
        }
    }

    /// A loop with a counter of its own and a branch.
    fn counted_loop(&mut self, count: Count, body: &[Node]) -> Result<(), CoreError> {
        let counter = self.builder.named(Class::Scalar, "counter");
        let end = self.label();
        self.emit(|b| match count.value {
            RegOrImm::Imm(number) => b.constant_into(counter, number),
            RegOrImm::Reg(reg) => b.mov(counter, reg),
        })?;
        if count.at_least == 0 {
            self.branch("jz", counter, end)?;
        }
        let top = self.bound();
        self.sequence(body)?;
        self.emit(|b| b.emit_with("add", &[counter.into(), counter.into(), RegOrImm::Imm(-1)]))?;
        self.branch("jnz", counter, top)?;
        self.bind(end);
        Ok(())
    }

    /// A loop without loops or conditions in it.
    fn innermost_loop(&mut self, name: String, count: Count, ops: Vec<Op>) -> Result<(), CoreError> {
        let number = self.loops.len();
        let plan = self.plan.loops.get(&number).copied().unwrap_or(self.plan.default);
        let ordered = |op: &Op| !matches!(op.effect, Effect::None | Effect::Load(_) | Effect::Store(_));
        let plan = LoopPlan { plain: plan.plain || count.in_turn || ops.iter().any(ordered), ..plan };
        let context = Context::new(self.builder.isa(), &self.builder.variables, &self.plan.unread);
        let mut inside: HashMap<u32, usize> = HashMap::new();
        for (_, reg) in ops.iter().flat_map(Op::registers) {
            *inside.entry(reg.variable).or_default() += 1;
        }
        let elsewhere = |variable: u32| inside.get(&variable) != self.occurrences.get(&variable);
        let local = pipeline::locals(&context, &ops, elsewhere)?;
        let copies = |builder: &mut CoreBuilder, copies: u32| {
            pipeline::unroll(&ops, copies, &local, |variable| builder.copy_of(variable))
        };
        let found = match self.plan.found.get(&(number, plan)) {
            Some(found) => found.clone(),
            None => self.look_for(&ops, count, plan, &copies)?,
        };
        self.plan.found.insert((number, plan), found.clone());
        let unrolled = found.modulo.as_ref().map_or(1, |_| found.unrolled);
        let body = copies(self.builder, unrolled);
        let macs = super::macs::of(&body, &self.builder.variables);
        self.loops.push(LoopInfo { name, found: found.clone(), macs });
        let end = self.label();
        let Some(modulo) = found.modulo else {
            self.plain_loop(number, count, body, end)?;
            self.bind(end);
            return Ok(());
        };
        // The fewest iterations of the source that fill the stages.
        let needed = modulo.stages as u32 * unrolled;
        match count.value {
            RegOrImm::Reg(reg) if count.at_least < needed => {
                let (few, limit) = (self.builder.reg(Class::Scalar), self.builder.reg(Class::Scalar));
                self.emit(|b| {
                    b.constant_into(limit, needed.into());
                    b.emit("ltu", [few, reg, limit]);
                })?;
                let plain = self.label();
                self.branch("jnz", few, plain)?;
                self.overlapped_loop(number, count, &body, unrolled, &modulo)?;
                self.jump(end)?;
                self.bind(plain);
                self.plain_loop(number, count, ops, end)?;
            }
            _ => self.overlapped_loop(number, count, &body, unrolled, &modulo)?,
        }
        self.bind(end);
        Ok(())
    }

    fn look_for(
        &mut self,
        ops: &[Op],
        count: Count,
        plan: LoopPlan,
        copies: &dyn Fn(&mut CoreBuilder, u32) -> Vec<Op>,
    ) -> Result<Found, CoreError> {
        let (multiple, most) = match count.value {
            RegOrImm::Imm(number) => (number as u32, number as u32),
            RegOrImm::Reg(_) => (count.multiple_of, u32::MAX),
        };
        // Copies have variables of their own: those are made in a builder that is thrown away.
        let mut builder = self.builder.clone();
        let mut bodies: HashMap<u32, Vec<Op>> = HashMap::new();
        for number in pipeline::COPIES {
            let body = copies(&mut builder, number);
            bodies.insert(number, body);
        }
        let back = match self.plan.form {
            LoopForm::Hardware => Vec::new(),
            LoopForm::Jnz => {
                let counter = builder.reg(Class::Scalar);
                back_edge(&mut builder, counter, 0)?
            }
        };
        let context = Context::new(builder.isa(), &builder.variables, &self.plan.unread);
        pipeline::find(&context, self.plan.formats, ops, (multiple, most), plan, &back, |copies| {
            bodies.get(&copies).cloned()
        })
    }

    /// A loop whose iterations do not overlap.
    fn plain_loop(&mut self, number: usize, count: Count, ops: Vec<Op>, end: usize) -> Result<(), CoreError> {
        if let (RegOrImm::Reg(reg), 0) = (count.value, count.at_least) {
            self.branch("jz", reg, end)?;
        }
        let body = self.label();
        let mut back = self.setup(count.value, 0, body)?.into_iter();
        self.end(End::Fall);
        self.bind(body);
        if let Some(counter) = back.next() {
            self.push(counter);
            self.last().counter = Some(0);
        }
        for op in ops {
            self.push(op);
        }
        self.last().body_of = Some(number);
        match back.next().and_then(|branch| branch.rows.into_iter().next()) {
            None => self.end(End::Loop),
            Some(branch) => self.end(End::Branch { branch, target: body }),
        }
        Ok(())
    }

    /// A loop whose iterations overlap; the count is enough for its stages.
    fn overlapped_loop(
        &mut self,
        number: usize,
        count: Count,
        ops: &[Op],
        unrolled: u32,
        modulo: &super::modulo::Modulo,
    ) -> Result<(), CoreError> {
        let iterations = match count.value {
            RegOrImm::Imm(number) => RegOrImm::Imm(number / i64::from(unrolled)),
            RegOrImm::Reg(reg) if unrolled > 1 => {
                let fewer = self.builder.reg(Class::Scalar);
                let shift = -i64::from(unrolled.trailing_zeros());
                self.emit(|b| b.binary_into(fewer, "lshl", reg, RegOrImm::Imm(shift)))?;
                RegOrImm::Reg(fewer)
            }
            RegOrImm::Reg(reg) => RegOrImm::Reg(reg),
        };
        let kernel = self.label();
        let fewer = modulo.stages as i64 - 1 + modulo.back.map_or(0, |back| back.lag);
        let back = self.setup(iterations, fewer, kernel)?;
        let context = Context::new(self.builder.isa(), &self.builder.variables, &self.plan.unread);
        let bundles = pipeline::expand(&context, ops, modulo, &back)?;
        self.end(End::Fall);
        self.last().pipelined = Some((number, bundles.prologue));
        self.end(End::Fall);
        self.bind(kernel);
        self.last().pipelined = Some((number, bundles.kernel));
        self.last().body_of = Some(number);
        let branch = back.into_iter().flat_map(|op| op.rows).last();
        self.end(branch.map_or(End::Loop, |branch| End::Branch { branch, target: kernel }));
        self.last().pipelined = Some((number, bundles.epilogue));
        self.end(End::Fall);
        Ok(())
    }

    /// Sets what counts the loop, for `fewer` iterations fewer than `count`. Gives the operations that count and branch back where
    /// the hardware does not.
    fn setup(&mut self, count: RegOrImm, fewer: i64, body: usize) -> Result<Vec<Op>, CoreError> {
        match self.plan.form {
            LoopForm::Hardware => self.hardware_setup(count, fewer, body).map(|()| Vec::new()),
            LoopForm::Jnz => {
                let counter = self.builder.named(Class::Scalar, "counter");
                self.emit(|b| match count {
                    RegOrImm::Imm(number) => b.constant_into(counter, number - fewer),
                    RegOrImm::Reg(reg) if fewer == 0 => b.mov(counter, reg),
                    RegOrImm::Reg(reg) => b.emit_with("add", &[counter.into(), reg.into(), RegOrImm::Imm(-fewer)]),
                })?;
                back_edge(self.builder, counter, body)
            }
        }
    }

    fn hardware_setup(&mut self, count: RegOrImm, fewer: i64, body: usize) -> Result<(), CoreError> {
        let first = self.last().ops.len();
        let [ls, le, lc] = ["ls", "le", "lc"].map(|name| self.builder.special(name));
        for (register, label) in [(ls, Label::Block(body)), (le, Label::LastBundleOf(body))] {
            let row = long_row(self.builder, "movxm", vec![Val::Reg(register), Val::Label(label)])?;
            self.push(Op { rows: vec![row], effect: Effect::None, dead: Vec::new() });
        }
        self.emit(|b| match count {
            // Compiled programs of AIE2P never set it by a short move.
            RegOrImm::Imm(number) => b.emit_with("movxm", &[lc.into(), RegOrImm::Imm(number - fewer)]),
            RegOrImm::Reg(reg) => b.emit_with("add.nc", &[lc.into(), reg.into(), RegOrImm::Imm(-fewer)]),
        })?;
        let all = first..self.last().ops.len();
        self.last().setup = all.collect();
        Ok(())
    }

    fn last(&mut self) -> &mut Block {
        if self.blocks.is_empty() {
            self.blocks.push(Block::empty(self.origin));
        }
        let last = self.blocks.len() - 1;
        &mut self.blocks[last]
    }

    fn push(&mut self, op: Op) {
        self.last().ops.push(op);
    }

    /// Adds what the author's own methods would.
    fn emit(&mut self, write: impl FnOnce(&mut CoreBuilder)) -> Result<(), CoreError> {
        let nodes = written(self.builder, write)?;
        self.sequence(&nodes)
    }

    fn label(&mut self) -> usize {
        self.labels.push(None);
        self.labels.len() - 1
    }

    /// Ends a block and begins the next.
    fn end(&mut self, end: End) {
        self.last().end = end;
        let origin = self.origin;
        self.blocks.push(Block::empty(origin));
    }

    /// The next operation is where the label points to.
    fn bind(&mut self, label: usize) {
        let last = self.last();
        if !last.ops.is_empty() || last.pipelined.is_some() {
            self.end(End::Fall);
        }
        self.last().target = true;
        self.labels[label] = Some(self.blocks.len() - 1);
    }

    fn bound(&mut self) -> usize {
        let label = self.label();
        self.bind(label);
        label
    }

    fn branch(&mut self, mnemonic: &str, condition: Reg, label: usize) -> Result<(), CoreError> {
        let branch = conditional(self.builder, mnemonic, condition, label)?;
        self.end(End::Branch { branch, target: label });
        Ok(())
    }

    fn jump(&mut self, label: usize) -> Result<(), CoreError> {
        let branch = Some(long_row(self.builder, "j", vec![Val::Label(Label::Block(label))])?);
        self.end(End::Jump { branch, target: Some(label) });
        Ok(())
    }
}

/// What the author's own methods would add.
fn written(builder: &mut CoreBuilder, write: impl FnOnce(&mut CoreBuilder)) -> Result<Vec<Node>, CoreError> {
    builder.open.push(Vec::new());
    write(builder);
    let nodes = builder.open.pop().unwrap_or_default();
    builder.take_error().map_or(Ok(nodes), Err)
}

/// A row of the long slot.
fn long_row(builder: &CoreBuilder, mnemonic: &str, values: Vec<Val>) -> Result<Row, CoreError> {
    let isa = builder.isa();
    let mut rows = isa.instructions_named(mnemonic).filter(|row| row.operands.len() == values.len());
    let error = CoreError::Instruction { isa: isa.name(), name: mnemonic.into() };
    let instruction = rows.find(|row| row.slot == aie_isa::Slot::Lng).ok_or(error)?;
    Ok(Row { instruction, values })
}

fn conditional(builder: &CoreBuilder, mnemonic: &str, condition: Reg, label: usize) -> Result<Row, CoreError> {
    long_row(builder, mnemonic, vec![Val::Reg(condition), Val::Label(Label::Block(label))])
}

/// The operations that count a loop down and go back to its body: the counter's, then the branch.
fn back_edge(builder: &mut CoreBuilder, counter: Reg, body: usize) -> Result<Vec<Op>, CoreError> {
    let step = |b: &mut CoreBuilder| b.emit_with("add", &[counter.into(), counter.into(), RegOrImm::Imm(-1)]);
    let counted = written(builder, step)?.into_iter().filter_map(|node| match node {
        Node::Op(op) => Some(op),
        _ => None,
    });
    let branch = conditional(builder, "jnz", counter, body)?;
    let branch = Op { rows: vec![branch], effect: Effect::None, dead: Vec::new() };
    Ok(counted.chain([branch]).collect())
}
