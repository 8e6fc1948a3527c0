//! What the compiler makes of a program, stage by stage, as text for people.

use super::allocate::Assignment;
use super::block::End;
use super::builder::CoreBuilder;
use super::flow::{Count, Node};
use super::lower::Lowered;
use super::operation::{Label, RegOrImm, Row, Val};
use super::register::{Reg, part_of};
use super::schedule::Scheduled;
use super::timing::Context;
use std::fmt::{self, Display, Formatter, Write as _};

/// The stages of a program that was made ([`CoreBuilder::finish_with_stages`]). What was tried before and had too few registers or too
/// many bytes is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stages {
    /// What the author has written, on variables, without dead code.
    pub source: String,
    /// Blocks of bundles, still on variables: a line for each cycle.
    pub schedule: String,
    /// The register of each variable.
    pub registers: String,
    /// Machine code: address and bundle.
    pub bundles: String,
}

impl Display for Stages {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (title, text) in [
            ("before scheduling", &self.source),
            ("after scheduling", &self.schedule),
            ("registers", &self.registers),
            ("bundles", &self.bundles),
        ] {
            writeln!(f, "== {title}\n{text}")?;
        }
        Ok(())
    }
}

/// The program as it is before anything is scheduled.
pub(super) fn source(builder: &CoreBuilder, program: &[Node]) -> String {
    let mut text = String::new();
    nodes(builder, program, 0, &mut text);
    text
}

fn nodes(builder: &CoreBuilder, program: &[Node], depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    let block = |head: String, body: &[Node], text: &mut String| {
        // A String takes everything that is written to it.
        let _ = writeln!(text, "{indent}{head}");
        nodes(builder, body, depth + 1, text);
    };
    for node in program {
        match node {
            Node::Op(op) => {
                let _ = writeln!(text, "{indent}{}", row_text(builder, &op.rows[0]));
            }
            Node::Repeat { name, count: Count { value, .. }, body } => {
                let times = match value {
                    RegOrImm::Imm(number) => number.to_string(),
                    RegOrImm::Reg(reg) => reg_text(builder, *reg),
                };
                let name = name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
                block(format!("repeat {times} times{name}"), body, text);
            }
            Node::While { condition, body } => {
                block(format!("repeat while {}", reg_text(builder, *condition)), body, text);
            }
            Node::If { condition, then, otherwise } => {
                block(format!("if {}", reg_text(builder, *condition)), then, text);
                if !otherwise.is_empty() {
                    block("else".into(), otherwise, text);
                }
            }
            Node::Forever(body) => block("for ever".into(), body, text),
        }
    }
}

/// Blocks of bundles on variables.
pub(super) fn schedule(builder: &CoreBuilder, blocks: &[Scheduled], lowered: &Lowered) -> String {
    let mut text = String::new();
    for (number, block) in blocks.iter().enumerate() {
        let body = block.body_of.map(|body| format!(", body of {}", lowered.loops[body].name)).unwrap_or_default();
        let overlapped = if block.pipelined.is_some() { ", iterations overlap" } else { "" };
        let _ = writeln!(text, "block {number}{body}{overlapped}");
        for (cycle, rows) in block.bundles.iter().enumerate() {
            let rows: Vec<String> = rows.iter().map(|row| row_text(builder, row)).collect();
            let _ = writeln!(text, "{cycle:5}  {}", if rows.is_empty() { "nop".into() } else { rows.join("; ") });
        }
        let target = match block.end {
            End::Jump { target: Some(target), .. } | End::Branch { target, .. } => lowered.labels.get(target),
            _ => None,
        };
        if let Some(target) = target {
            let _ = writeln!(text, "       to block {target}");
        }
    }
    text
}

/// The registers of variables that have one.
pub(super) fn registers(context: &Context<'_>, assignment: &Assignment) -> String {
    let mut text = String::new();
    for (variable, register) in assignment.all() {
        let name = &context.variables[variable].name;
        let _ = writeln!(text, "  {name:<16} {}", context.isa.register(register).name);
    }
    text
}

fn reg_text(builder: &CoreBuilder, reg: Reg) -> String {
    let variable = builder.variable(reg);
    if reg.leaves == variable.leaves {
        return variable.name.clone();
    }
    // A part, by the name that it has in the first register that the variable may get.
    let part = variable.candidates.first().and_then(|whole| part_of(builder.isa(), *whole, reg.first, reg.leaves));
    let part = part.map_or_else(String::new, |part| builder.isa().register(part).name.replace(char::is_numeric, ""));
    format!("{}.{part}", variable.name)
}

/// The assembly text of a row, with variables in place of registers.
fn row_text(builder: &CoreBuilder, row: &Row) -> String {
    let mut text = String::new();
    let mut rest = row.instruction.syntax;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let value = row.instruction.operand(&after[..end]).and_then(|index| row.values.get(index));
        text.push_str(&match value {
            Some(Val::Reg(reg)) => reg_text(builder, *reg),
            Some(Val::Imm(number)) => format!("#{number}"),
            Some(Val::Label(Label::Block(label))) => format!("#label{label}"),
            Some(Val::Label(Label::LastBundleOf(label))) => format!("#end{label}"),
            None => after[..end].to_owned(),
        });
        rest = &after[end..];
    }
    text + rest
}
