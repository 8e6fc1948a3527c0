//! PDIs and instruction streams, executed write by write.
//!
//! What the readers of `hal` accept is executed or rejected here by name. Operations that only concern the command
//! processor itself (a point for preemption, a time stamp, a read whose result goes to a log) do nothing to the array.

use super::error::ArrayError;
use super::host::HostMemory;
use super::interleaving::Interleaving;
use super::report::{Report, Waiter, What, Who};
use super::rules::LeftTokens;
use super::tiles::Array;
use aie_hal::format::FormatError;
use aie_hal::format::Words;
use aie_hal::format::cdo::{Cdo, CdoCommand};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{ARRAY_OFFSET, Instruction, InstructionStream, TRANSLATED_ARGUMENTS};
use aie_hal::format::pdi::Pdi;
use aie_hal::format::tile_location;

/// Operations that `hal` hands over undecoded: reading registers into a log, a time stamp, waiting for tokens of any channels.
const READ_REGISTERS: u8 = 0x82;
const RECORD_TIMER: u8 = 0x83;
const MERGE_SYNC: u8 = 0x84;
/// The longest PDI that an instruction stream may load: device heaps have 64 MiB.
const LONGEST_PDI: u32 = 64 << 20;

/// A PDI or stream that cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The array cannot continue.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// A command or operation without a model.
    #[error("{0} is not modelled")]
    Unmodelled(String),
    /// An argument that the caller has not given.
    #[error("the stream uses argument {argument}, and there are {given}")]
    Argument {
        /// Its index.
        argument: u16,
        /// How many there are.
        given: usize,
    },
    /// A PDI that an instruction stream loads is not readable.
    #[error("the PDI of {size} bytes at {address:#x}: {problem}")]
    Pdi {
        /// Its device address.
        address: u64,
        /// Its length.
        size: u32,
        /// What is wrong: no memory, or no PDI.
        problem: String,
    },
    /// A poll of a configuration that never sees its value.
    #[error("a poll that does not end: {0}")]
    Poll(Report),
    /// The address of a register outside of any array.
    #[error("{0:#x} is no register address")]
    Address(u64),
}

/// How an instruction stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All operations have been executed.
    Completed,
    /// An operation waits for something that will never happen.
    Deadlock {
        /// Index of the operation.
        operation: usize,
        /// Who waits for what: the operation first, then what it waits for, then the others.
        report: Report,
    },
}

fn location(address: u64) -> Result<(u8, u8, u32), LoadError> {
    u32::try_from(address).map(tile_location).map_err(|_| LoadError::Address(address))
}

impl Array {
    /// Configures the array as a PDI says.
    pub fn load(&mut self, pdi: &Pdi<'_>, host: &mut impl HostMemory) -> Result<(), LoadError> {
        self.loaded_from = None;
        self.load_cdo(&pdi.cdo(), host)
    }

    /// Executes the commands of a CDO.
    pub fn load_cdo(&mut self, cdo: &Cdo<'_>, host: &mut impl HostMemory) -> Result<(), LoadError> {
        for command in cdo.commands() {
            match command {
                CdoCommand::End | CdoCommand::Nop { .. } | CdoCommand::Delay { .. } => {}
                CdoCommand::Write { address, value } => self.write_at(address, value, u32::MAX)?,
                CdoCommand::MaskWrite { address, mask, value } => self.write_at(address, value, mask)?,
                CdoCommand::DmaWrite { address, data } => {
                    for (index, value) in data.iter().enumerate() {
                        self.write_at(address.saturating_add(4 * index as u64), value, u32::MAX)?;
                    }
                }
                CdoCommand::MaskPoll { address, mask, expected, .. } => {
                    if let Some(waiter) = self.poll(address, expected, mask, 0, host)? {
                        return Err(LoadError::Poll(self.report_of(waiter)));
                    }
                }
                other => return Err(LoadError::Unmodelled(format!("{other:?}"))),
            }
        }
        Ok(())
    }

    fn write_at(&mut self, address: u64, value: u32, mask: u32) -> Result<(), LoadError> {
        let (column, row, offset) = location(address)?;
        Ok(self.write(column, row, offset, value, mask)?)
    }

    /// Executes an instruction stream with the addresses of its arguments on the host. The stream is one
    /// [for firmware](InstructionStream::for_firmware). [`Array::timing`] says what it took.
    ///
    /// # Errors
    /// What cannot be executed; [`ArrayError::TokensLeft`] when it is at its end and has not waited for all tokens that it asked for.
    pub fn execute(
        &mut self,
        stream: &InstructionStream<'_>,
        arguments: &[u64],
        host: &mut impl HostMemory,
    ) -> Result<Outcome, LoadError> {
        let start = self.start_timing();
        let outcome = self.execute_operations(stream, arguments, host);
        self.end_timing(&start);
        outcome
    }

    fn execute_operations(
        &mut self,
        stream: &InstructionStream<'_>,
        arguments: &[u64],
        host: &mut impl HostMemory,
    ) -> Result<Outcome, LoadError> {
        for (number, operation) in stream.operations().enumerate() {
            let (rounds, mut cycles) = (self.interleaving.as_mut().map_or(0, Interleaving::rounds), 0);
            for _ in 0..rounds {
                self.round_within(&mut cycles, host)?;
            }
            self.now += self.rules.operation_cycles * operation.charge();
            let waiter = match operation {
                Instruction::Write { address, value } => {
                    self.write_at(address, value, u32::MAX)?;
                    None
                }
                Instruction::MaskWrite { address, value, mask } => {
                    self.write_at(address, value, mask)?;
                    None
                }
                Instruction::BlockWrite { address, data } => {
                    for (index, value) in data.iter().enumerate() {
                        self.write_at(u64::from(address) + 4 * index as u64, value, u32::MAX)?;
                    }
                    None
                }
                Instruction::AddressPatch { register, argument, offset } => {
                    let given = arguments.len();
                    let base = arguments.get(usize::from(argument)).ok_or(LoadError::Argument { argument, given })?;
                    // As firmware does it, which leaves the offset of late arguments to the stream.
                    let is_translated = argument < TRANSLATED_ARGUMENTS || stream.is_for_firmware();
                    let array_offset = if is_translated { ARRAY_OFFSET } else { 0 };
                    let address = base.wrapping_add(offset).wrapping_add(array_offset);
                    self.write_at(register, address as u32 & !3, u32::MAX)?;
                    self.write_at(register.saturating_add(4), (address >> 32) as u32, 0xffff)?;
                    None
                }
                Instruction::Sync { direction, column, row, columns, rows, channel } => {
                    let columns = column..column.saturating_add(columns);
                    let rows = row..row.saturating_add(rows);
                    let tiles = columns.flat_map(|column| rows.clone().map(move |row| (column, row)));
                    self.wait_for_tokens(tiles, direction, channel, number, host)?
                }
                Instruction::MaskPoll { address, value, mask } | Instruction::MaskPollBusy { address, value, mask } => {
                    self.poll(address, value, mask, number, host)?
                }
                Instruction::LoadPdi { size, address, .. } => {
                    self.load_from(address, size, host)?;
                    None
                }
                Instruction::Custom { opcode: MERGE_SYNC, payload } => self.merge_tokens(payload, number, host)?,
                Instruction::Noop
                | Instruction::Preempt { .. }
                | Instruction::Custom { opcode: READ_REGISTERS | RECORD_TIMER, .. } => None,
                other => return Err(LoadError::Unmodelled(format!("{other:?}"))),
            };
            if let Some(waiter) = waiter {
                return Ok(Outcome::Deadlock { operation: number, report: self.report_of(waiter) });
            }
        }
        self.check_tokens()?;
        Ok(Outcome::Completed)
    }

    /// Whether a token is left, or will come.
    fn check_tokens(&self) -> Result<(), ArrayError> {
        if self.rules.left_tokens == LeftTokens::Keep {
            return Ok(());
        }
        for tile in &self.tiles {
            for direction in [Direction::StreamToMemory, Direction::MemoryToStream] {
                for (number, channel) in tile.channels[direction as usize].iter().enumerate() {
                    let tokens = channel.tokens + channel.tasks().filter(|task| task.token).count() as u32;
                    if tokens > 0 {
                        let (column, row) = (tile.column, tile.row);
                        return Err(ArrayError::TokensLeft { column, row, direction, channel: number, tokens });
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a token of a channel in each of the tiles. Gives who waits when one does not come.
    fn wait_for_tokens(
        &mut self,
        tiles: impl Iterator<Item = (u8, u8)>,
        direction: Direction,
        channel: u8,
        operation: usize,
        host: &mut impl HostMemory,
    ) -> Result<Option<Waiter>, LoadError> {
        let mut cycles = 0;
        for (column, row) in tiles {
            while !self.take_token(column, row, direction, channel)? {
                if !self.round_within(&mut cycles, host)? {
                    let (who, what) = (Who::Operation { operation }, What::Token { direction, channel });
                    return Ok(Some(Waiter { column, row, who, what }));
                }
            }
        }
        Ok(None)
    }

    /// Takes a number of tokens of any shim channels of the first columns.
    fn merge_tokens(
        &mut self,
        payload: Words<'_>,
        operation: usize,
        host: &mut impl HostMemory,
    ) -> Result<Option<Waiter>, LoadError> {
        let [tokens, columns, ..] = payload.get(0).unwrap_or(0).to_le_bytes();
        let mut cycles = 0;
        let directions = [Direction::StreamToMemory, Direction::MemoryToStream];
        let channels = directions.into_iter().flat_map(|direction| [(direction, 0), (direction, 1)]);
        for _ in 0..tokens {
            'token: loop {
                for column in 0..columns {
                    for (direction, channel) in channels.clone() {
                        if self.take_token(column, 0, direction, channel)? {
                            break 'token;
                        }
                    }
                }
                if !self.round_within(&mut cycles, host)? {
                    let what = What::Token { direction: Direction::StreamToMemory, channel: 0 };
                    return Ok(Some(Waiter { column: 0, row: 0, who: Who::Operation { operation }, what }));
                }
            }
        }
        Ok(None)
    }

    /// Reads a register, with the effects of reading, until it has a value. Gives who waits when it never has.
    fn poll(
        &mut self,
        address: u64,
        wanted: u32,
        mask: u32,
        operation: usize,
        host: &mut impl HostMemory,
    ) -> Result<Option<Waiter>, LoadError> {
        let (column, row, offset) = location(address)?;
        let mut cycles = 0;
        while self.access(column, row, offset)? & mask != wanted {
            if !self.round_within(&mut cycles, host)? {
                let what = What::Register { offset, wanted, mask };
                return Ok(Some(Waiter { column, row, who: Who::Operation { operation }, what }));
            }
        }
        Ok(None)
    }

    /// Replaces the configuration by a PDI in the host's memory; one of no bytes only resets the array. Nothing happens when the last one
    /// was loaded from the same address, whatever is there now (mlir-aie pull request 3622, seen on XDNA 2).
    fn load_from(&mut self, address: u64, size: u32, host: &mut impl HostMemory) -> Result<(), LoadError> {
        if self.loaded_from == Some(address) {
            return Ok(());
        }
        self.reset();
        self.loaded_from = Some(address);
        if size == 0 {
            return Ok(());
        }
        let error = |problem: String| LoadError::Pdi { address, size, problem };
        if size > LONGEST_PDI {
            return Err(error("longer than a device heap".into()));
        }
        let mut bytes = vec![0; size as usize];
        if !host.read(address, &mut bytes) {
            return Err(error("there is no memory".into()));
        }
        let pdi = Pdi::parse(&bytes).map_err(|problem: FormatError| error(problem.to_string()))?;
        self.load_cdo(&pdi.cdo(), host)
    }
}
