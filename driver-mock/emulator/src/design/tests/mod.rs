//! Designs made with the writers of `aie-hal` and the assembler of `aie-isa`, and what is read back of them.

mod damaged;
mod drawing;
mod in_flight;
mod kernel;
mod locks;
mod rings;
mod routing;
mod static_channels;

use super::*;
use aie_hal::ArchRegistry;
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::core_control::{self, PROGRAM_MEMORY};
use aie_hal::format::dma_channel::{Direction, DmaChannel, DmaTask};
use aie_hal::format::lock::Lock;
use aie_hal::format::register::{RegisterWrite, TileKind};
use aie_hal::format::stream_switch::{PacketSlot, Port, StreamSwitch};
use aie_hal::format::{pdi, shim_mux, tile_address};
use std::sync::Arc;

fn aie2() -> Arc<Arch> {
    ArchRegistry::builtin().get("aie2").unwrap()
}

fn kind(row: u8) -> TileKind {
    [TileKind::Shim, TileKind::Mem].get(usize::from(row)).copied().unwrap_or(TileKind::Core)
}

fn position(column: u8, row: u8) -> Position {
    Position { column, row, kind: kind(row) }
}

/// A PDI in the making.
#[derive(Default)]
struct Maker(CdoBuilder);

impl Maker {
    fn write(&mut self, (column, row): (u8, u8), write: RegisterWrite) -> &mut Self {
        let address = tile_address(column, row, write.offset).into();
        match write.mask {
            u32::MAX => self.0.write(address, write.value),
            mask => self.0.mask_write(address, mask, write.value),
        };
        self
    }

    fn block(&mut self, (column, row): (u8, u8), offset: u32, words: &[u32]) -> &mut Self {
        self.0.dma_write(tile_address(column, row, offset).into(), words);
        self
    }

    fn circuit(&mut self, tile: (u8, u8), slave: Port, master: Port) -> &mut Self {
        let writes = StreamSwitch(kind(tile.1)).circuit(slave, master).unwrap();
        writes.into_iter().fold(self, |maker, write| maker.write(tile, write))
    }

    fn packets(&mut self, tile: (u8, u8), slave: Port, number: u8, slot: PacketSlot, masters: &[Port]) -> &mut Self {
        let switch = StreamSwitch(kind(tile.1));
        self.write(tile, switch.packet_slave(slave).unwrap());
        self.write(tile, switch.slot(slave, number, slot).unwrap());
        for master in masters {
            self.write(tile, switch.packet_master(*master, slot.arbiter, 1 << slot.msel, true).unwrap());
        }
        self
    }

    fn connect(&mut self, column: u8, direction: Direction, channel: u8) -> &mut Self {
        self.write((column, 0), shim_mux::connect(direction, channel).unwrap())
    }

    fn lock(&mut self, tile: (u8, u8), id: u8, value: i8) -> &mut Self {
        self.write(tile, Lock::new(kind(tile.1), id).unwrap().set(value).unwrap())
    }

    fn start(&mut self, tile: (u8, u8), direction: Direction, channel: u8, task: DmaTask) -> &mut Self {
        self.write(tile, DmaChannel::new(kind(tile.1), direction, channel).unwrap().start(task).unwrap())
    }

    fn program(&mut self, tile: (u8, u8), text: &str) -> &mut Self {
        let mut code = Isa::aie2().assemble(text).unwrap();
        code.resize(code.len().next_multiple_of(4), 0);
        let words: Vec<u32> = code.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        self.block(tile, PROGRAM_MEMORY, &words).write(tile, core_control::reset(false));
        self.write(tile, core_control::enable(true))
    }

    fn read(&self, stream: Option<&[u8]>) -> Design {
        let file = pdi::write(&self.0).unwrap();
        Design::read(&aie2(), &Source::parse(&file, stream).unwrap()).unwrap()
    }
}
