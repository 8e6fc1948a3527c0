//! The standard sequence that moves one operand through a shim DMA.

use super::{Instruction, InstructionWriter};
use crate::format::bd::ShimBd;
use crate::format::dma_channel::{Direction, DmaChannel, DmaTask};
use crate::format::register::{RegisterError, RegisterWrite, TileKind};
use crate::format::tile_address;

/// One run of a shim DMA channel over an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Column, counted from the partition's first.
    pub column: u8,
    /// Direction of the channel.
    pub direction: Direction,
    /// Channel, 0 or 1.
    pub channel: u8,
    /// Index of the buffer descriptor to use, 0 to 15.
    pub descriptor: u8,
    /// What to move. Its address is overwritten when the stream runs.
    pub shape: ShimBd,
    /// Position of the argument in the dispatch's list of addresses.
    pub argument: u16,
    /// Bytes from the start of the argument.
    pub offset: u64,
    /// How often the descriptor runs again after its first run.
    pub repeat: u8,
    /// Whether a completion token is issued at the end, for [`InstructionWriter::wait`].
    pub token: bool,
}

impl InstructionWriter {
    /// Adds the operations that start `transfer`.
    ///
    /// # Errors
    /// When a field of the buffer descriptor does not fit, or there is no such channel; nothing is added then.
    pub fn transfer(&mut self, transfer: &Transfer) -> Result<&mut Self, RegisterError> {
        self.start(transfer, transfer.token)
    }

    /// [`InstructionWriter::transfer`] on a channel whose tokens have a packet id already, from the configuration
    /// ([`DmaChannel::token_controller`]).
    ///
    /// # Errors
    /// As [`InstructionWriter::transfer`].
    pub fn transfer_without_controller(&mut self, transfer: &Transfer) -> Result<&mut Self, RegisterError> {
        self.start(transfer, false)
    }

    fn start(&mut self, transfer: &Transfer, controller: bool) -> Result<&mut Self, RegisterError> {
        let words = transfer.shape.encode()?;
        let channel = DmaChannel::new(TileKind::Shim, transfer.direction, transfer.channel)?;
        let at = |offset| tile_address(transfer.column, 0, offset);
        let register = at(ShimBd::register(transfer.descriptor));
        self.block_write(register, &words);
        self.push(&Instruction::AddressPatch {
            register: (register + 4).into(),
            argument: transfer.argument,
            offset: transfer.offset,
        });
        if controller {
            let RegisterWrite { offset, mask, value } = channel.token_controller();
            self.push(&Instruction::MaskWrite { address: at(offset).into(), value, mask });
        }
        let Transfer { descriptor, repeat, token, .. } = *transfer;
        self.push(&Instruction::Write {
            address: at(channel.task_queue()).into(),
            value: DmaTask { descriptor, repeat, token }.encode(),
        });
        Ok(self)
    }

    /// Adds the wait for the completion token of `transfer`.
    pub fn wait(&mut self, transfer: &Transfer) -> &mut Self {
        self.push(&Instruction::Sync {
            direction: transfer.direction,
            column: transfer.column,
            row: 0,
            columns: 1,
            rows: 1,
            channel: transfer.channel,
        })
    }
}
