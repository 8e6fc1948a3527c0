//! The program of a core, as a listing.

use super::descriptor::Owner;
use aie_isa::{Bundle, Isa, Value};
use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes of the longest bundle.
const LONGEST_BUNDLE: usize = 16;

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
    /// The program in the words of program memory, by their addresses, and the locks it names. Zeros at the end of what
    /// was written in one piece are left out.
    pub(super) fn of(isa: &Isa, words: &BTreeMap<u32, u32>) -> (Self, Vec<CoreLock>) {
        let mut program = Self { bytes: 0, bundles: 0, undecoded: 0, lines: Vec::new() };
        let mut locks = Vec::new();
        for Piece { start, bytes, used } in pieces(words) {
            for line in isa.listing(&bytes).take_while(|line| line.address < used) {
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

/// Words that follow each other.
struct Piece {
    start: usize,
    bytes: Vec<u8>,
    /// Bytes up to the last that is not zero. Behind them compilers pad, not always to the end of a bundle; the zeros that a last
    /// bundle ends with are still there.
    used: usize,
}

fn pieces(words: &BTreeMap<u32, u32>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (address, word) in words {
        let address = *address as usize;
        match pieces.last_mut() {
            Some(piece) if piece.start + piece.bytes.len() == address => piece.bytes.extend(word.to_le_bytes()),
            _ => pieces.push(Piece { start: address, bytes: word.to_le_bytes().to_vec(), used: 0 }),
        }
    }
    for piece in &mut pieces {
        piece.used = piece.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        piece.bytes.truncate((piece.used + LONGEST_BUNDLE).min(piece.bytes.len()));
    }
    pieces.retain(|piece| piece.used > 0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Compilers fill what they write of program memory up with zeros, to any multiple of a word.
    #[rstest]
    fn padding_is_no_code(
        #[values("movx r0, #-2", "movxm p0, #0x40000", "movxm r1, #0", "acq #48, r0", "j #0", "done")] last: &str,
        #[values(0, 1, 5, 6, 7)] nops: usize,
        #[values(0, 1, 3, 4, 7, 100)] padding: usize,
    ) {
        let isa = Isa::aie2();
        let mut code = isa.assemble(&format!("{}{last}", "nop\n".repeat(nops))).unwrap();
        let lines = isa.listing(&code).count();
        code.resize(code.len().next_multiple_of(4) + 4 * padding, 0);
        let words = code.as_chunks::<4>().0.iter().enumerate();
        let words = words.map(|(index, word)| (4 * index as u32, u32::from_le_bytes(*word))).collect();
        let (program, _) = Program::of(isa, &words);
        assert_eq!((program.bundles, program.undecoded), (lines, 0), "{:?}", program.lines);
    }
}
