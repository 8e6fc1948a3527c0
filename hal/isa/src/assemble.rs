//! From text to program memory.
//!
//! One bundle a line, its instructions separated by `;`, in the syntax of [`Isa::text`]: registers by their names, numbers as
//! `#7` or `#0x7`. Nothing is scheduled: who writes the text writes the bundles, with the distances that latencies ask for.
//!
//! ```text
//! // A comment. Labels stand for the address of the next bundle.
//!         movxm le, #last
//! loop:   add r0, r0, r1; mova r2, #1
//! last:   .128 nop                      // in a bundle of at least 128 bits
//!         .align 16                     // two-byte nops up to a multiple of 16 bytes
//!         jnz r0, #loop
//!         .word 0x1234                  // 16 bits as they are
//! ```
//!
//! Where two rows of one mnemonic fit, the first whose slot is free in the bundle is taken; `alu: mov ...` chooses a slot.

use crate::{Decoded, EncodeError, Form, Instruction, Isa, Kind, Slot, Value, Values};
use std::collections::HashMap;

/// A line that is no bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct AssembleError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// No instruction of this name.
    #[error("there is no instruction `{0}`")]
    Mnemonic(String),
    /// No row of the mnemonic has such operands.
    #[error("`{text}` fits none of: {syntaxes}")]
    Operands {
        /// The instruction as it stands there.
        text: String,
        /// What is possible.
        syntaxes: String,
    },
    /// A label that is nowhere.
    #[error("there is no label `{0}`")]
    Label(String),
    /// A label that is there twice.
    #[error("the label `{0}` is there twice")]
    LabelTwice(String),
    /// A directive or number that cannot be read.
    #[error("`{0}` cannot be read")]
    Syntax(String),
    /// The instructions do not fit together, or a number does not fit its field.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// A line without labels and comments.
enum Line<'a> {
    Bundle { text: &'a str, bits: u32 },
    Align(usize),
    Word(u16),
}

impl Isa {
    /// Assembles a program that begins at address 0.
    ///
    /// # Errors
    ///
    /// [`AssembleError`] with the first line that is wrong.
    pub fn assemble(&self, text: &str) -> Result<Vec<u8>, AssembleError> {
        // The first pass takes every label for 0: a bundle's length does not depend on the numbers in it.
        let (_, labels) = self.pass(text, None)?;
        Ok(self.pass(text, Some(&labels))?.0)
    }

    fn pass<'t>(
        &self,
        text: &'t str,
        known: Option<&HashMap<&'t str, usize>>,
    ) -> Result<(Vec<u8>, HashMap<&'t str, usize>), AssembleError> {
        let (mut code, mut labels) = (Vec::new(), HashMap::new());
        for (index, line) in text.lines().enumerate() {
            let at = |problem| AssembleError { line: index + 1, problem };
            let mut line = line.split("//").next().unwrap_or("").trim();
            while let Some((label, rest)) = line.split_once(':').filter(|(label, _)| is_label(label)) {
                if labels.insert(label, code.len()).is_some() {
                    return Err(at(Problem::LabelTwice(label.into())));
                }
                line = rest.trim();
            }
            if line.is_empty() {
                continue;
            }
            match read_line(line).map_err(at)? {
                Line::Align(bytes) => {
                    while code.len() % bytes != 0 {
                        let nop = self.bundle(&[]).and_then(|nop| self.encode(&nop));
                        code.extend(nop.map_err(|error| at(error.into()))?);
                    }
                }
                Line::Word(word) => code.extend(word.to_le_bytes()),
                Line::Bundle { text, bits } => {
                    let bytes = self.line(text, bits, known).map_err(at)?;
                    code.extend(bytes);
                }
            }
        }
        Ok((code, labels))
    }

    fn line(
        &self,
        text: &str,
        bits: u32,
        labels: Option<&HashMap<&str, usize>>,
    ) -> Result<impl IntoIterator<Item = u8>, Problem> {
        let mut instructions: Vec<Decoded<'_>> = Vec::new();
        for text in text.split(';').map(str::trim).filter(|text| !text.is_empty() && *text != "nop") {
            let decoded = self.instruction_of(text, &instructions, labels)?;
            instructions.push(decoded);
        }
        let bundle = self.bundle_of(&instructions, bits)?;
        Ok(self.encode(&bundle)?)
    }

    fn instruction_of(
        &self,
        text: &str,
        before: &[Decoded<'_>],
        labels: Option<&HashMap<&str, usize>>,
    ) -> Result<Decoded<'_>, Problem> {
        let chosen = text.split_once(':').and_then(|(slot, rest)| Some((Slot::named(slot.trim())?, rest.trim())));
        let (slot, text) = chosen.map_or((None, text), |(slot, rest)| (Some(slot), rest));
        let mnemonic = text.split_whitespace().next().unwrap_or("");
        let mut rows = self.instructions_named(mnemonic).peekable();
        if rows.peek().is_none() {
            return Err(Problem::Mnemonic(mnemonic.into()));
        }
        let taken = |row: &Instruction| before.iter().any(|other| other.instruction.slot == row.slot);
        let (mut syntaxes, mut second) = (Vec::new(), None);
        for row in rows.filter(|row| slot.is_none_or(|slot| slot == row.slot)) {
            syntaxes.push(row.syntax);
            if let Some(values) = self.match_syntax(row, text, labels)? {
                let decoded = Decoded { instruction: row, values };
                if !taken(row) {
                    return Ok(decoded);
                }
                second = Some(decoded);
            }
        }
        // Only slots that are taken: the bundle will say so.
        second.ok_or_else(|| Problem::Operands { text: text.into(), syntaxes: syntaxes.join(" | ") })
    }

    /// Reads the operands of a text that has a row's syntax; None if it has another.
    fn match_syntax(
        &self,
        row: &Instruction,
        text: &str,
        labels: Option<&HashMap<&str, usize>>,
    ) -> Result<Option<Values>, Problem> {
        let implied = |kind| match kind {
            Kind::Fixed(register) => Value::Register(register),
            _ => Value::Immediate(0),
        };
        let mut values: Values = row.operands.iter().map(|operand| implied(operand.kind)).collect();
        let (mut syntax, mut text) = (tokens(row.syntax), tokens(text));
        loop {
            let (expected, found) = match (syntax.next(), text.next()) {
                (Some(expected), Some(found)) => (expected, found),
                (None, None) => break,
                _ => return Ok(None),
            };
            let Some(name) = expected.strip_prefix('$') else {
                if expected.eq_ignore_ascii_case(found) {
                    continue;
                }
                return Ok(None);
            };
            let Some(index) = row.operand(name) else {
                return Ok(None);
            };
            let Some(value) = self.read_value(row.operands[index].kind, found, labels)? else {
                return Ok(None);
            };
            values[index] = value;
        }
        Ok(self.tie(row, &mut values).map(|()| values))
    }

    fn read_value(
        &self,
        kind: Kind,
        text: &str,
        labels: Option<&HashMap<&str, usize>>,
    ) -> Result<Option<Value>, Problem> {
        let Kind::Immediate(immediate) = kind else {
            let register = self.registers().iter().position(|info| info.name.eq_ignore_ascii_case(text));
            let register = register.and_then(|index| self.register_named(self.registers()[index].name));
            let fits = |register| match kind {
                Kind::Class(class) => self.class(class).contains(register),
                Kind::Fixed(fixed) => fixed == register,
                // Whether it agrees with its operand is not checked: the other one decides.
                Kind::Tied { .. } | Kind::Immediate(_) => true,
            };
            return Ok(register.filter(|register| fits(*register)).map(Value::Register));
        };
        let Some(number) = text.strip_prefix('#') else {
            return Ok(None);
        };
        let value = match (read_number(number), labels) {
            (Some(value), _) => value,
            (None, _) if !is_label(number) => return Err(Problem::Syntax(text.into())),
            (None, None) => 0,
            (None, Some(labels)) => *labels.get(number).ok_or_else(|| Problem::Label(number.into()))? as i64,
        };
        // 32-bit immediates may be written unsigned too.
        let wrapped = i64::from(value as u32 as i32);
        let whole = immediate.bits == 32 && immediate.form == Form::Signed && i64::from(value as u32) == value;
        let value = if whole { wrapped } else { value };
        Ok(immediate.field(value).map(|_| Value::Immediate(value)))
    }
}

fn read_line(line: &str) -> Result<Line<'_>, Problem> {
    let syntax = || Problem::Syntax(line.into());
    let Some((directive, rest)) = line.strip_prefix('.').map(|line| line.split_once(' ').unwrap_or((line, ""))) else {
        return Ok(Line::Bundle { text: line, bits: 16 });
    };
    let number = || read_number(rest.trim()).ok_or_else(syntax);
    match directive {
        "align" => {
            usize::try_from(number()?).ok().filter(|bytes| bytes.is_power_of_two()).map(Line::Align).ok_or_else(syntax)
        }
        "word" => u16::try_from(number()?).map(Line::Word).map_err(|_| syntax()),
        bits => match bits.parse() {
            Ok(bits) if bits <= 128 => Ok(Line::Bundle { text: rest, bits }),
            _ => Err(syntax()),
        },
    }
}

/// Decimal or, after `0x`, hexadecimal, with a sign.
fn read_number(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let number = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    number.ok().filter(|number| *number >= 0).map(|number| sign * number)
}

fn is_label(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && Slot::named(text).is_none()
}

/// Words and punctuation. A word keeps a `$`, `#`, `-` or dot in front of it; a dot within begins another, for suffixes of operands.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start();
    std::iter::from_fn(move || {
        let start = rest.find(|c| !"$#-.".contains(c)).unwrap_or(rest.len());
        let length = rest[start..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len() - start);
        let end = (start + length).max(rest.chars().next()?.len_utf8());
        let (token, after) = rest.split_at(end);
        rest = after.trim_start();
        Some(token)
    })
}
