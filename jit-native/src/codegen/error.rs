//! Why a program cannot be made.

/// A program that cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// No row of the tables is called that.
    #[error("{isa} has no instruction `{name}`")]
    Instruction {
        /// The instruction set.
        isa: &'static str,
        /// Mnemonic or key.
        name: String,
    },
    /// No row takes these operands.
    #[error("`{name}` does not take the operands {operands}; it has the forms: {forms}")]
    Operands {
        /// Mnemonic or key.
        name: String,
        /// What was given.
        operands: String,
        /// What is possible.
        forms: String,
    },
    /// A class that the generation does not have, or a part that a register does not have.
    #[error("{isa} has no {what}")]
    Register {
        /// The instruction set.
        isa: &'static str,
        /// What was asked for.
        what: String,
    },
    /// More variables at once than registers.
    #[error(
        "out of registers: {class} `{variable}` has none of {available} left; at this place {pressure} are in use by {values}"
    )]
    Registers {
        /// The class.
        class: &'static str,
        /// The variable that is left over.
        variable: String,
        /// How many registers it could have.
        available: usize,
        /// How many of them are taken where it lives.
        pressure: usize,
        /// By whom.
        values: String,
    },
    /// The program does not fit.
    #[error("the program has {bytes} bytes, the core's program memory {limit}")]
    ProgramSize {
        /// Its size.
        bytes: usize,
        /// What fits.
        limit: usize,
    },
    /// The constants do not fit.
    #[error("constants take {bytes} bytes, the area for them has {limit}")]
    DataSize {
        /// Their size.
        bytes: usize,
        /// What fits.
        limit: usize,
    },
    /// A number that an instruction or a loop cannot have.
    #[error("{what} cannot be {value}: {low} to {high} are possible")]
    Range {
        /// Of what.
        what: String,
        /// The number.
        value: i64,
        /// Smallest.
        low: i64,
        /// Largest.
        high: i64,
    },
    /// A variable is read on a way on which it has not been written.
    #[error("{class} `{variable}` is read before it is written")]
    Unwritten {
        /// The class.
        class: &'static str,
        /// The variable.
        variable: String,
    },
    /// The instructions have no schedule.
    #[error("no schedule: {0}")]
    Schedule(String),
    /// The finished program breaks rules of the core: a mistake of this crate.
    #[error("the checker rejects the program, {count} findings; the first: {first}")]
    Rejected {
        /// How many findings there are.
        count: usize,
        /// The first.
        first: String,
    },
    /// A bundle cannot be written.
    #[error(transparent)]
    Encode(#[from] aie_isa::EncodeError),
}
