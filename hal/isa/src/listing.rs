//! Assembly text of bundles and programs.

use crate::{Bundle, DecodeError, Decoded, Isa, Value};
use std::fmt::Write as _;

/// One line of a listing.
#[derive(Clone, Debug)]
pub struct Listing<'a> {
    /// Byte address of the bundle.
    pub address: usize,
    /// Its length in bytes; where it cannot be decoded, what its first byte says, or what is left.
    pub bytes: usize,
    /// The bundle.
    pub bundle: Result<Bundle<'a>, DecodeError>,
}

impl Isa {
    /// The bundle as assembly text, instructions separated by `; `. A bundle that does nothing is `nop`.
    pub fn text(&self, bundle: &Bundle<'_>) -> String {
        let texts: Vec<String> = bundle.instructions().map(|decoded| self.slot_text(decoded)).collect();
        if texts.is_empty() { "nop".into() } else { texts.join("; ") }
    }

    /// One instruction as assembly text.
    pub fn slot_text(&self, decoded: &Decoded<'_>) -> String {
        let mut text = String::new();
        let mut rest = decoded.instruction.syntax;
        while let Some((before, after)) = rest.split_once('$') {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
            text.push_str(before);
            let operand = decoded.instruction.operand(&after[..end]);
            // A String takes everything that is written to it.
            let _ = match operand.and_then(|operand| decoded.values.get(operand)) {
                Some(Value::Register(register)) => write!(text, "{}", self.register(*register).name),
                Some(Value::Immediate(number)) => write!(text, "#{number}"),
                None => write!(text, "?"),
            };
            rest = &after[end..];
        }
        text + rest
    }

    /// All bundles of a program, one after the other. What cannot be decoded is one line too, and the next begins behind it.
    pub fn listing<'a>(&'a self, code: &'a [u8]) -> impl Iterator<Item = Listing<'a>> {
        let mut address = 0;
        std::iter::from_fn(move || {
            let rest = code.get(address..).filter(|rest| !rest.is_empty())?;
            let bytes = self.bundle_bytes(rest[0]).min(rest.len());
            let line = Listing { address, bytes, bundle: self.decode(rest) };
            address += bytes;
            Some(line)
        })
    }
}
