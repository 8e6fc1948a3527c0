//! From loops and conditions to blocks: straight sequences with a branch at their end.

use super::builder::CoreBuilder;
use super::error::CoreError;
use super::flow::{Count, Node};
use super::operation::{Effect, Label, Op, Operand, Row, Val};
use super::register::{Class, Reg};

/// How a block ends.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The next block follows.
    Fall,
    /// A jump, or the end of the program if there is no row.
    Jump { branch: Option<Row>, target: Option<usize> },
    /// A conditional branch; the next block follows otherwise.
    Branch { branch: Row, target: usize },
    /// The end of a hardware loop's body: back to its start, or on.
    Loop,
}

/// A straight sequence.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub ops: Vec<Op>,
    pub end: End,
    /// Whether something jumps here. Its first bundle is aligned then.
    pub target: bool,
    /// Operations that set up the hardware loop that follows.
    pub setup: Vec<usize>,
    /// The number of the loop whose body this is.
    pub body_of: Option<usize>,
}

/// What is known of a loop before it is scheduled.
#[derive(Clone, Debug)]
pub(super) struct LoopInfo {
    pub name: String,
    pub count: Count,
}

/// A program as blocks.
#[derive(Debug)]
pub(super) struct Lowered {
    pub blocks: Vec<Block>,
    /// The block of each label.
    pub labels: Vec<usize>,
    pub loops: Vec<LoopInfo>,
}

struct Lowering<'b> {
    builder: &'b mut CoreBuilder,
    blocks: Vec<Block>,
    labels: Vec<Option<usize>>,
    loops: Vec<LoopInfo>,
}

/// Makes blocks of a program.
pub(super) fn lower(builder: &mut CoreBuilder, program: &[Node]) -> Result<Lowered, CoreError> {
    let mut lowering = Lowering { builder, blocks: vec![empty()], labels: Vec::new(), loops: Vec::new() };
    lowering.sequence(program)?;
    // Whatever the author has written last, the core does not run on into what is not the program.
    lowering.emit(CoreBuilder::done)?;
    lowering.end(End::Jump { branch: None, target: None });
    lowering.blocks.pop();
    let labels = lowering.labels.into_iter().map(|label| label.unwrap_or(0)).collect();
    Ok(Lowered { blocks: lowering.blocks, labels, loops: lowering.loops })
}

fn empty() -> Block {
    Block { ops: Vec::new(), end: End::Fall, target: false, setup: Vec::new(), body_of: None }
}

impl Lowering<'_> {
    fn sequence(&mut self, nodes: &[Node]) -> Result<(), CoreError> {
        nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Result<(), CoreError> {
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
        match count.value {
            _ if body.is_empty() => return Ok(()),
            Operand::Imm(0) => return Ok(()),
            Operand::Imm(1) => return self.sequence(body),
            _ => {}
        }
        let ops: Option<Vec<Op>> = body
            .iter()
            .map(|node| match node {
                Node::Op(op) if op.effect != Effect::Done => Some(op.clone()),
                _ => None,
            })
            .collect();
        match ops {
            Some(ops) => self.hardware_loop(name, count, ops),
            None => self.counted_loop(count, body),
        }
    }

    /// A loop with a counter of its own and a branch.
    fn counted_loop(&mut self, count: Count, body: &[Node]) -> Result<(), CoreError> {
        let counter = self.builder.named(Class::Scalar, "counter");
        let end = self.label();
        self.emit(|b| match count.value {
            Operand::Imm(number) => b.constant_into(counter, number),
            Operand::Reg(reg) => b.mov(counter, reg),
        })?;
        if count.at_least == 0 {
            self.branch("jz", counter, end)?;
        }
        let top = self.bound();
        self.sequence(body)?;
        self.emit(|b| b.emit_with("add", &[counter.into(), counter.into(), Operand::Imm(-1)]))?;
        self.branch("jnz", counter, top)?;
        self.bind(end);
        Ok(())
    }

    /// A loop that the hardware repeats.
    fn hardware_loop(&mut self, name: String, count: Count, ops: Vec<Op>) -> Result<(), CoreError> {
        let end = self.label();
        if let (Operand::Reg(reg), 0) = (count.value, count.at_least) {
            self.branch("jz", reg, end)?;
        }
        let body = self.label();
        self.setup(count.value, 0, body)?;
        self.end(End::Fall);
        self.bind(body);
        let number = self.loops.len();
        self.loops.push(LoopInfo { name, count });
        for op in ops {
            self.push(op);
        }
        self.last().body_of = Some(number);
        self.end(End::Loop);
        self.bind(end);
        Ok(())
    }

    /// Sets the registers of the hardware loop, for `fewer` iterations fewer than `count`.
    fn setup(&mut self, count: Operand, fewer: i64, body: usize) -> Result<(), CoreError> {
        let first = self.last().ops.len();
        let [ls, le, lc] = ["ls", "le", "lc"].map(|name| self.builder.special(name));
        for (register, label) in [(ls, Label::Block(body)), (le, Label::LastBundleOf(body))] {
            let row = self.row("movxm", vec![Val::Reg(register), Val::Label(label)])?;
            self.push(Op { rows: vec![row], effect: Effect::None });
        }
        self.emit(|b| match count {
            Operand::Imm(number) => b.constant_into(lc, number - fewer),
            Operand::Reg(reg) => b.emit_with("add.nc", &[lc.into(), reg.into(), Operand::Imm(-fewer)]),
        })?;
        let all = first..self.last().ops.len();
        self.last().setup = all.collect();
        Ok(())
    }

    fn last(&mut self) -> &mut Block {
        if self.blocks.is_empty() {
            self.blocks.push(empty());
        }
        let last = self.blocks.len() - 1;
        &mut self.blocks[last]
    }

    fn push(&mut self, op: Op) {
        self.last().ops.push(op);
    }

    /// Adds what the author's own methods would.
    fn emit(&mut self, write: impl FnOnce(&mut CoreBuilder)) -> Result<(), CoreError> {
        self.builder.open.push(Vec::new());
        write(self.builder);
        let nodes = self.builder.open.pop().unwrap_or_default();
        if let Some(error) = self.builder.take_error() {
            return Err(error);
        }
        self.sequence(&nodes)
    }

    fn label(&mut self) -> usize {
        self.labels.push(None);
        self.labels.len() - 1
    }

    /// Ends a block and begins the next.
    fn end(&mut self, end: End) {
        self.last().end = end;
        self.blocks.push(empty());
    }

    /// The next operation is where the label points to.
    fn bind(&mut self, label: usize) {
        let last = self.last();
        if !last.ops.is_empty() {
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

    fn row(&mut self, mnemonic: &str, values: Vec<Val>) -> Result<Row, CoreError> {
        let isa = self.builder.isa();
        let mut rows = isa.instructions_named(mnemonic).filter(|row| row.operands.len() == values.len());
        let error = CoreError::Instruction { isa: isa.name(), name: mnemonic.into() };
        let instruction = rows.find(|row| row.slot == aie_isa::Slot::Lng).ok_or(error)?;
        Ok(Row { instruction, values })
    }

    fn branch(&mut self, mnemonic: &str, condition: Reg, label: usize) -> Result<(), CoreError> {
        let branch = self.row(mnemonic, vec![Val::Reg(condition), Val::Label(Label::Block(label))])?;
        self.end(End::Branch { branch, target: label });
        Ok(())
    }

    fn jump(&mut self, label: usize) -> Result<(), CoreError> {
        let branch = Some(self.row("j", vec![Val::Label(Label::Block(label))])?);
        self.end(End::Jump { branch, target: Some(label) });
        Ok(())
    }
}
