//! The words of a START_CU command that runs an instruction stream: opcode, address of the instructions (two words), their number,
//! addresses of the arguments (two words each), and perhaps their sizes.

/// The opcode.
const TRANSACTION: u32 = 3;
/// Words in front of the arguments.
const FIXED_WORDS: usize = 5;
/// Words that an argument comes to: its address and a size.
pub const WORDS_PER_ARGUMENT: usize = 3;

/// Words are not a [`Transaction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// Another opcode.
    #[error("opcode {0} in the arguments, {TRANSACTION} runs instructions")]
    Opcode(u32),
    /// Too few.
    #[error("{0} words are not a transaction")]
    Length(usize),
}

/// A command, understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transaction<'a> {
    words: &'a [u32],
}

impl<'a> Transaction<'a> {
    /// Reads a command.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(words: &'a [u32]) -> Result<Self, TransactionError> {
        match words {
            [TRANSACTION, _, _, _, _, ..] => Ok(Self { words }),
            [opcode, _, _, _, _, ..] => Err(TransactionError::Opcode(*opcode)),
            _ => Err(TransactionError::Length(words.len())),
        }
    }

    /// Device address of the instructions. The firmware has 32-bit addresses; ROCR leaves the upper half of the user address where it
    /// was.
    pub fn instructions(&self) -> u64 {
        u64::from(self.words[2])
    }

    /// Number of instruction words.
    pub fn instruction_words(&self) -> usize {
        self.words[4] as usize
    }

    /// Address of the argument at `index`; `None` when it is missing.
    pub fn argument(&self, index: usize) -> Option<u64> {
        let at = FIXED_WORDS + 2 * index;
        let (low, high) = (self.words.get(at)?, self.words.get(at + 1)?);
        Some(u64::from(*high) << 32 | u64::from(*low))
    }

    /// The sizes of `lengths.len()` arguments, each of which reaches so far: those in the command, which follow all addresses, where it
    /// has them. The firmware does not look at them: a buffer descriptor says how far the array reads. ROCR 7.2.4 leaves the last two
    /// out when a packet does not count the opcode, and XRT has further addresses in their place; so they count only when all of
    /// them are possible.
    pub fn apply_sizes(&self, lengths: &mut [usize]) {
        let first = FIXED_WORDS + 2 * lengths.len();
        let size = |index: usize| self.words.get(first + index).map_or(0, |size| *size as usize);
        if lengths.iter().enumerate().any(|(index, length)| size(index) > *length) {
            return;
        }
        for (index, length) in lengths.iter_mut().enumerate() {
            if size(index) > 0 {
                *length = size(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_apart() {
        let words = [3, 0, 0x400_0000, 0x7f, 8, 0x1000, 1, 0x2000, 0, 64, 32];
        let transaction = Transaction::parse(&words).unwrap();
        assert_eq!((transaction.instructions(), transaction.instruction_words()), (0x400_0000, 8));
        assert_eq!((transaction.argument(0), transaction.argument(1)), (Some(0x1_0000_1000), Some(0x2000)));
        assert_eq!(transaction.argument(3), None);
        assert_eq!(Transaction::parse(&words[..4]), Err(TransactionError::Length(4)));
        assert_eq!(Transaction::parse(&[2, 0, 0, 0, 0]), Err(TransactionError::Opcode(2)));
    }

    #[test]
    fn sizes_count_when_all_are_possible() {
        let words = [3, 0, 0, 0, 8, 0x1000, 0, 0x2000, 0, 64, 32];
        let transaction = Transaction::parse(&words).unwrap();
        let mut lengths = [100, 100];
        transaction.apply_sizes(&mut lengths);
        assert_eq!(lengths, [64, 32]);
        let mut lengths = [100, 16];
        transaction.apply_sizes(&mut lengths);
        assert_eq!(lengths, [100, 16]);
    }
}
