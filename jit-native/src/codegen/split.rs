//! Variables that instructions want in registers of their choice, and that are in each other's way there.
//!
//! An operand that only some registers of a class can be (`r27` for a condition) restricts its variable for all its life. Where
//! that leaves too few registers, the variable is split: it may be anywhere, and moves bring it to and from where it is wanted.

use super::builder::CoreBuilder;
use super::flow::Node;
use super::operation::{Op, Val};
use super::register::{Class, Reg, members, part_of};
use aie_isa::{Direction, Kind, Register};
use std::collections::HashSet;

/// The program with moves for these variables.
pub(super) fn split(builder: &mut CoreBuilder, program: &[Node], variables: &HashSet<u32>) -> Vec<Node> {
    if variables.is_empty() {
        return program.to_vec();
    }
    for variable in variables {
        let class = builder.variables[*variable as usize].class;
        builder.variables[*variable as usize].candidates = members(builder.isa(), class).to_vec();
    }
    sequence(builder, program, variables)
}

fn sequence(builder: &mut CoreBuilder, nodes: &[Node], variables: &HashSet<u32>) -> Vec<Node> {
    let mut all = Vec::new();
    for node in nodes {
        all.push(match node {
            Node::Op(op) => {
                all.extend(operation(builder, op, variables));
                continue;
            }
            Node::Repeat { name, count, body } => {
                Node::Repeat { name: name.clone(), count: *count, body: sequence(builder, body, variables) }
            }
            Node::While { condition, body } => {
                Node::While { condition: *condition, body: sequence(builder, body, variables) }
            }
            Node::Forever(body) => Node::Forever(sequence(builder, body, variables)),
            Node::If { condition, then, otherwise } => Node::If {
                condition: *condition,
                then: sequence(builder, then, variables),
                otherwise: sequence(builder, otherwise, variables),
            },
        });
    }
    all
}

/// An operation with the moves before and after it.
fn operation(builder: &mut CoreBuilder, op: &Op, variables: &HashSet<u32>) -> Vec<Node> {
    let mut op = op.clone();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for index in 0..op.rows[0].values.len() {
        let operand = &op.rows[0].instruction.operands[index];
        let Val::Reg(reg) = op.rows[0].values[index] else {
            continue;
        };
        if !variables.contains(&reg.variable) {
            continue;
        }
        let Some(fitting) = restricted(builder, operand.kind, reg) else {
            continue;
        };
        let stand_in = Reg { variable: builder.copy_of(reg.variable), ..reg };
        builder.variables[stand_in.variable as usize].candidates = fitting;
        builder.variables[stand_in.variable as usize].undefined = true;
        let direction = operand.direction;
        // Rows of other slots may want other registers.
        op.rows.truncate(1);
        op.rows[0].values[index] = Val::Reg(stand_in);
        builder.open.push(Vec::new());
        match direction {
            Direction::Read => builder.mov(stand_in, reg),
            Direction::Write => builder.mov(reg, stand_in),
        }
        let moves = builder.open.pop().unwrap_or_default();
        if direction == Direction::Read { before.extend(moves) } else { after.extend(moves) }
    }
    before.push(Node::Op(op));
    before.extend(after);
    before
}

/// The registers that a variable can have for an operand, if not all of its class.
fn restricted(builder: &CoreBuilder, kind: Kind, reg: Reg) -> Option<Vec<Register>> {
    let isa = builder.isa();
    let accepts = |register: Register| match kind {
        Kind::Class(class) => isa.class(class).contains(register),
        Kind::Fixed(fixed) => fixed == register,
        Kind::Immediate(_) | Kind::Tied { .. } => true,
    };
    let all = members(isa, builder.variables[reg.variable as usize].class);
    let part = |whole: &Register| part_of(isa, *whole, reg.first, reg.leaves);
    let fitting: Vec<Register> = all.iter().copied().filter(|whole| part(whole).is_some_and(accepts)).collect();
    (fitting.len() < all.len()).then_some(fitting)
}

/// Whether a variable has fewer registers than its class because of an instruction.
pub(super) fn is_restricted(builder: &CoreBuilder, variable: u32) -> bool {
    let variable = &builder.variables[variable as usize];
    let whole = !variable.fixed && variable.class != Class::Special;
    whole && variable.candidates.len() < members(builder.isa(), variable.class).len()
}
