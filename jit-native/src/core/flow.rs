//! Loops and conditions.

use super::builder::CoreBuilder;
use super::error::CoreError;
use super::operation::{Op, Operand};
use super::register::{Class, Reg};
use aie_hal::Arch;
use std::borrow::Cow;

/// What repeats innermost loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LoopForm {
    /// The core's loop registers (LS, LE, LC): no instruction of the body repeats it.
    #[default]
    Hardware,
    /// A counter in a scalar register, and JNZ in the body, whose last five bundles are its delay slots. An iteration of the schedule
    /// takes at least six cycles; nothing uses the loop registers.
    Jnz,
}

impl LoopForm {
    /// The form for programs of a generation.
    #[must_use]
    pub fn of(arch: &Arch) -> Self {
        if arch.hardware_loops { Self::Hardware } else { Self::Jnz }
    }

    /// A generation whose programs have this form.
    #[must_use]
    pub fn on(self, arch: &Arch) -> Cow<'_, Arch> {
        match self {
            Self::Jnz if arch.hardware_loops => Cow::Owned(Arch { hardware_loops: false, ..arch.clone() }),
            _ => Cow::Borrowed(arch),
        }
    }
}

/// How often a loop runs.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    pub(super) value: Operand,
    pub(super) at_least: u32,
    pub(super) multiple_of: u32,
    pub(super) in_turn: bool,
}

impl Count {
    /// The author guarantees that the count is never below this. A loop that may run zero times is guarded by a branch; one
    /// that may run fewer times than its iterations overlap is there twice.
    #[must_use]
    pub fn at_least(self, count: u32) -> Self {
        Self { at_least: self.at_least.max(count), ..self }
    }

    /// The author guarantees that the count is a multiple of this, so that the scheduler may unroll.
    #[must_use]
    pub fn multiple_of(self, factor: u32) -> Self {
        Self { multiple_of: factor.max(1), ..self }
    }

    /// Iterations run one after the other, whatever the scheduling of the program: for bodies of so many operations that they
    /// fill the slots by themselves, while looking for an overlap would take long.
    #[must_use]
    pub fn in_turn(self) -> Self {
        Self { in_turn: true, ..self }
    }
}

impl From<u32> for Count {
    fn from(count: u32) -> Self {
        Self { value: count.into(), at_least: count, multiple_of: count.max(1), in_turn: false }
    }
}

impl From<Reg> for Count {
    /// A count in a scalar register, taken as unsigned below 2^31. It is read once, before the first iteration.
    fn from(count: Reg) -> Self {
        Self { value: count.into(), at_least: 0, multiple_of: 1, in_turn: false }
    }
}

/// A program as the author wrote it.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Op(Op),
    /// Runs its body a number of times.
    Repeat {
        name: Option<String>,
        count: Count,
        body: Vec<Node>,
    },
    /// Runs its body and again as long as the register is not zero.
    While {
        condition: Reg,
        body: Vec<Node>,
    },
    If {
        condition: Reg,
        then: Vec<Node>,
        otherwise: Vec<Node>,
    },
    Forever(Vec<Node>),
}

impl CoreBuilder {
    fn sequence(&mut self, body: impl FnOnce(&mut Self)) -> Vec<Node> {
        self.open.push(Vec::new());
        body(self);
        self.open.pop().unwrap_or_default()
    }

    /// A loop that runs `count` times. Innermost loops without conditions have the program's [`LoopForm`], and their iterations
    /// overlap.
    pub fn repeat(&mut self, count: impl Into<Count>, body: impl FnOnce(&mut Self)) {
        let mut count = count.into();
        let name = self.loop_name.take();
        if let Operand::Imm(number) = count.value
            && !(0..1 << 31).contains(&number)
        {
            let what = "the count of a loop".into();
            return self.fail(CoreError::Range { what, value: number, low: 0, high: (1 << 31) - 1 });
        }
        if let Operand::Reg(reg) = count.value
            && reg.class != Class::Scalar
        {
            // Any scalar, address or control register can be moved into one.
            let scalar = self.reg(Class::Scalar);
            self.mov(scalar, reg);
            count.value = scalar.into();
        }
        let body = self.sequence(body);
        self.push_node(Node::Repeat { name, count, body });
    }

    /// Names the next loop in reports.
    pub fn name_loop(&mut self, name: &str) {
        self.loop_name = Some(name.into());
    }

    /// A loop that ends when the register that the body returns is zero.
    pub fn repeat_while(&mut self, body: impl FnOnce(&mut Self) -> Reg) {
        let mut condition = None;
        let body = self.sequence(|b| condition = Some(body(b)));
        if let Some(condition) = condition {
            self.push_node(Node::While { condition, body });
        }
    }

    /// Runs the body if the register is not zero.
    pub fn when(&mut self, condition: Reg, then: impl FnOnce(&mut Self)) {
        self.when_else(condition, then, |_| {});
    }

    /// Runs one body if the register is not zero, and the other if it is.
    pub fn when_else(&mut self, condition: Reg, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        let (then, otherwise) = (self.sequence(then), self.sequence(otherwise));
        self.push_node(Node::If { condition, then, otherwise });
    }

    /// Runs the body for ever.
    pub fn forever(&mut self, body: impl FnOnce(&mut Self)) {
        let body = self.sequence(body);
        self.push_node(Node::Forever(body));
    }

    /// Runs one of `functions` bodies, chosen by a number from 0; a number beyond runs the last. `body` is called once for each
    /// of them, with its number.
    pub fn choose(&mut self, selector: Reg, functions: u32, mut body: impl FnMut(&mut Self, u32)) {
        self.choose_among(selector, 0, functions, &mut body);
    }

    fn choose_among(&mut self, selector: Reg, low: u32, high: u32, body: &mut dyn FnMut(&mut Self, u32)) {
        match high - low {
            0 => {}
            1 => body(self, low),
            _ => {
                let middle = low + (high - low) / 2;
                let below = self.reg(Class::Scalar);
                let limit = self.scalar(middle.into());
                self.emit("ltu", [below, selector, limit]);
                let then = self.sequence(|b| b.choose_among(selector, low, middle, body));
                let otherwise = self.sequence(|b| b.choose_among(selector, middle, high, body));
                self.push_node(Node::If { condition: below, then, otherwise });
            }
        }
    }
}
