//! What a program computes and never reads.
//!
//! Operations without any other effect are taken out. Of those that stay, it is noted which results are unused: such a result
//! must not be on its way while an older value is still read, or the program would look as if it had missed the new one.

use super::error::CoreError;
use super::flow::{Count, Node};
use super::operation::{Effect, Op, RegOrImm};
use super::register::{Class, Reg, Variable};
use aie_isa::Direction;
use std::collections::HashSet;

/// Leaves of variables: the variable and the leaf's number within it.
type Live = HashSet<(u32, u8)>;

/// Removes dead code.
///
/// Errors with a variable that is read on a way on which nothing has written it.
pub(super) fn prune(variables: &[Variable], program: &[Node]) -> Result<Vec<Node>, CoreError> {
    let mut live = Live::new();
    let kept = Pruning { variables }.sequence(program, &mut live);
    let unwritten = live.iter().map(|(variable, _)| *variable);
    let unwritten = unwritten.filter(|variable| {
        let variable = &variables[*variable as usize];
        !variable.undefined && variable.class != Class::Special
    });
    match unwritten.min() {
        None => Ok(kept),
        Some(first) => {
            let Variable { class, name, .. } = &variables[first as usize];
            Err(CoreError::Unwritten { class: class.name(), variable: name.clone() })
        }
    }
}

struct Pruning<'v> {
    variables: &'v [Variable],
}

fn leaves(reg: Reg) -> impl Iterator<Item = (u32, u8)> {
    (reg.first..reg.first + reg.leaves).map(move |leaf| (reg.variable, leaf))
}

impl Pruning<'_> {
    /// Prunes a sequence; `live` is what is read after it, and becomes what is read from its start on.
    fn sequence(&self, nodes: &[Node], live: &mut Live) -> Vec<Node> {
        let mut kept: Vec<Node> = nodes.iter().rev().filter_map(|node| self.node(node, live)).collect();
        kept.reverse();
        kept
    }

    fn node(&self, node: &Node, live: &mut Live) -> Option<Node> {
        Some(match node {
            Node::Op(op) => Node::Op(self.operation(op, live)?),
            Node::If { condition, then, otherwise } => {
                let mut other = live.clone();
                let (then, otherwise) = (self.sequence(then, live), self.sequence(otherwise, &mut other));
                live.extend(other);
                live.extend(leaves(*condition));
                Node::If { condition: *condition, then, otherwise }
            }
            Node::Repeat { name, count, body } => {
                let after = live.clone();
                let body = self.repeated(body, live, &after);
                if count.at_least == 0 {
                    live.extend(after);
                }
                if let Count { value: RegOrImm::Reg(reg), .. } = count {
                    live.extend(leaves(*reg));
                }
                Node::Repeat { name: name.clone(), count: *count, body }
            }
            Node::While { condition, body } => {
                live.extend(leaves(*condition));
                let after = live.clone();
                Node::While { condition: *condition, body: self.repeated(body, live, &after) }
            }
            Node::Forever(body) => {
                live.clear();
                Node::Forever(self.repeated(body, live, &Live::new()))
            }
        })
    }

    /// Prunes a body after which comes itself or what reads `after`.
    fn repeated(&self, body: &[Node], live: &mut Live, after: &Live) -> Vec<Node> {
        let mut end = after.clone();
        loop {
            *live = end.clone();
            let kept = self.sequence(body, live);
            let before = end.len();
            end.extend(live.iter().copied());
            if end.len() == before {
                return kept;
            }
        }
    }

    fn operation(&self, op: &Op, live: &mut Live) -> Option<Op> {
        let row = &op.rows[0];
        let special = |reg: &Reg| self.variables[reg.variable as usize].class == Class::Special;
        let written: Vec<Reg> = row.registers().filter(|(d, _)| *d == Direction::Write).map(|(_, reg)| reg).collect();
        let plain = matches!(op.effect, Effect::None | Effect::Load(_)) && !row.instruction.flags.branch;
        let unread = |reg: &Reg| !special(reg) && leaves(*reg).all(|leaf| !live.contains(&leaf));
        if plain && !written.is_empty() && written.iter().all(unread) {
            return None;
        }
        let dead =
            written.iter().filter(|reg| !special(reg)).flat_map(|reg| leaves(*reg)).filter(|l| !live.contains(l));
        let op = Op { dead: dead.collect(), ..op.clone() };
        for reg in &written {
            leaves(*reg).for_each(|leaf| {
                live.remove(&leaf);
            });
        }
        live.extend(row.registers().filter(|(d, _)| *d == Direction::Read).flat_map(|(_, reg)| leaves(reg)));
        Some(op)
    }
}
