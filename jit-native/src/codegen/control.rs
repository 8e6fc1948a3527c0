//! How an author writes loops and conditions.

use super::builder::CoreBuilder;
use super::error::CoreError;
use super::flow::{Count, Node};
use super::operation::RegOrImm;
use super::register::{Class, Reg};

impl CoreBuilder {
    fn sequence(&mut self, body: impl FnOnce(&mut Self)) -> Vec<Node> {
        self.open.push(Vec::new());
        body(self);
        self.open.pop().unwrap_or_default()
    }

    /// A loop that runs `count` times. Innermost loops without conditions have the program's [`LoopForm`](super::LoopForm), and their iterations
    /// overlap.
    pub fn repeat(&mut self, count: impl Into<Count>, body: impl FnOnce(&mut Self)) {
        let mut count = count.into();
        let name = self.loop_name.take();
        if let RegOrImm::Imm(number) = count.value
            && !(0..1 << 31).contains(&number)
        {
            let what = "the count of a loop".into();
            return self.fail(CoreError::Range { what, value: number, low: 0, high: (1 << 31) - 1 });
        }
        if let RegOrImm::Reg(reg) = count.value
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
