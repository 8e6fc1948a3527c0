//! The program of a core, as a listing.

use super::descriptor::Owner;
use aie_isa::{Bundle, Isa, Value};
use serde::Serialize;
use std::collections::BTreeMap;

/// Program memory is written in units of so many bytes.
const ROW: usize = 16;

/// A line of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Line {
    /// Address in program memory.
    pub address: usize,
    /// The bundle's bytes in hexadecimal, in the order of memory.
    pub bytes: String,
    /// Its instructions. None if it cannot be decoded.
    pub text: Option<String>,
    /// Why it cannot be decoded.
    pub error: Option<String>,
}

/// A lock that a program names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CoreLock {
    /// Whose lock, seen from the core.
    pub owner: Owner,
    /// Its number there.
    pub lock: u8,
    /// Whether it is acquired, and not released.
    pub acquire: bool,
}

/// What is in a core's program memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Program {
    /// Bytes of all lines.
    pub bytes: usize,
    /// Bundles that can be decoded.
    pub bundles: usize,
    /// Lines that cannot.
    pub undecoded: usize,
    /// The listing.
    pub lines: Vec<Line>,
}

impl Program {
    /// The program in the words of program memory, by their addresses, and the locks it names. Rows of zeros at the end of what
    /// was written in one piece are left out.
    pub(super) fn of(isa: &Isa, words: &BTreeMap<u32, u32>) -> (Self, Vec<CoreLock>) {
        let mut program = Self { bytes: 0, bundles: 0, undecoded: 0, lines: Vec::new() };
        let mut locks = Vec::new();
        for (start, bytes) in pieces(words) {
            for line in isa.listing(&bytes) {
                let hex = bytes[line.address..line.address + line.bytes].iter().map(|byte| format!("{byte:02x}"));
                let (text, error) = match &line.bundle {
                    Ok(bundle) => {
                        locks.extend(locks_of(bundle));
                        (Some(isa.text(bundle)), None)
                    }
                    Err(error) => (None, Some(error.to_string())),
                };
                program.bytes += line.bytes;
                program.bundles += usize::from(text.is_some());
                program.undecoded += usize::from(error.is_some());
                program.lines.push(Line { address: start + line.address, bytes: hex.collect(), text, error });
            }
        }
        locks.sort();
        locks.dedup();
        (program, locks)
    }
}

/// Words that follow each other, as bytes.
fn pieces(words: &BTreeMap<u32, u32>) -> Vec<(usize, Vec<u8>)> {
    let mut pieces: Vec<(usize, Vec<u8>)> = Vec::new();
    for (address, word) in words {
        let address = *address as usize;
        match pieces.last_mut() {
            Some((start, bytes)) if *start + bytes.len() == address => bytes.extend(word.to_le_bytes()),
            _ => pieces.push((address, word.to_le_bytes().to_vec())),
        }
    }
    for (_, bytes) in &mut pieces {
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(end.next_multiple_of(ROW).min(bytes.len()));
    }
    pieces.retain(|(_, bytes)| !bytes.is_empty());
    pieces
}

/// The locks that a bundle acquires and releases by number. Cores count those of four tiles: south, west, north, own.
fn locks_of(bundle: &Bundle<'_>) -> Vec<CoreLock> {
    let owners = [Owner::South, Owner::West, Owner::North, Owner::Own];
    let of = |acquire: bool, id: i64| {
        let owner = owners.get(usize::try_from(id / 16).ok()?)?;
        Some(CoreLock { owner: *owner, lock: (id % 16) as u8, acquire })
    };
    bundle
        .instructions()
        .filter_map(|decoded| {
            let acquire = match decoded.instruction.mnemonic {
                "acq" | "acq.cond" => true,
                "rel" | "rel.cond" => false,
                _ => return None,
            };
            match decoded.values.get(decoded.instruction.operand("id")?)? {
                Value::Immediate(id) => of(acquire, *id),
                Value::Register(_) => None,
            }
        })
        .collect()
}
