//! Configurations, instruction streams and descriptors for the array.

use super::random::Random;
use super::{Batch, COLUMNS, HOST_AT, ROWS};
use aie_emulator::{ArrayError, Outcome};
use aie_hal::format::bd::{CoreBd, MemTileBd, ShimBd};
use aie_hal::format::cdo::{Cdo, CdoBuilder, CdoCommand};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{ARRAY_OFFSET, Header, Instruction, InstructionStream, InstructionWriter};
use aie_hal::format::pdi::Pdi;
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::{MasterSource, StreamSwitch};
use aie_hal::format::tile_address;

impl Batch<'_> {
    fn tile(&mut self) -> (u8, u8) {
        let (column, row) = (self.random.below(COLUMNS.into()) as u8, self.random.below(ROWS.into()) as u8);
        if self.random.one_in(50) { (column + 100, row + 20) } else { (column, row) }
    }

    /// The address of a register that does something, or any.
    fn address(&mut self) -> u64 {
        let (column, row) = self.tile();
        let random = &mut self.random;
        let near = |random: &mut Random, first: u32, count: usize| first + 4 * random.below(count) as u32;
        let offset = match random.below(12) {
            0 => near(random, 0x3_f000, 0x110),
            1 => near(random, 0xb_0000, 0x110),
            2 => near(random, if row == 1 { 0xa_0600 } else { 0x1_de00 }, 40),
            3 => near(random, 0x1_d200, 16),
            4 => near(random, if row == 1 { 0xa_0000 } else { 0x1_d000 }, 128),
            5 => near(random, 0x1_f000, 64),
            6 => near(random, 0xc_0000, 256),
            7 => near(random, 0x3_2000, 4),
            8 => near(random, 0x2_0000, 64),
            9 => {
                random.pick(&[0xf_ff20, 0xf_ff28, 0x3_6070, 0x1_6010, 0x9_6048, 0x3_4008, 0x3_4200, 0x6_0000, 0x3_6060])
            }
            _ => random.next() as u32 & 0xf_ffff,
        };
        let address = u64::from(tile_address(column, row, offset));
        if random.one_in(200) { random.next() } else { address }
    }

    /// A CDO of random writes, sometimes with a bit changed, as it is or in a PDI.
    pub fn configuration(&mut self) -> String {
        self.array.reset();
        let mut cdo = CdoBuilder::new();
        for _ in 0..self.random.below(60) {
            let (address, value) = (self.address(), self.random.word());
            match self.random.below(6) {
                0 => cdo.mask_write(address, self.random.word(), value),
                1 => {
                    let words: Vec<u32> = (0..self.random.below(20)).map(|_| self.random.word()).collect();
                    cdo.dma_write(address, &words)
                }
                2 if self.random.one_in(4) => {
                    cdo.push(&CdoCommand::MaskPoll { address, mask: self.random.word(), expected: value, timeout: 0 })
                }
                _ => cdo.write(address, value),
            };
        }
        self.start_core(&mut cdo);
        if self.random.one_in(3) {
            let mut bytes = aie_hal::format::pdi::write(&cdo).unwrap();
            self.damage(&mut bytes);
            let Ok(pdi) = Pdi::parse(&bytes) else { return "PDI: rejected".into() };
            return self.load(&pdi.cdo());
        }
        let mut bytes = cdo.finish().unwrap();
        self.damage(&mut bytes);
        match Cdo::parse(&bytes) {
            Ok(cdo) => self.load(&cdo),
            Err(_) => "CDO: rejected".into(),
        }
    }

    fn start_core(&mut self, cdo: &mut CdoBuilder) {
        let mut code = self.pointers.to_vec();
        code.extend(self.code());
        let words: Vec<u32> = code.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let row = 2 + self.random.below(2) as u8;
        cdo.dma_write(tile_address(0, row, 0x2_0000).into(), &words);
        cdo.write(tile_address(0, row, 0x3_2000).into(), 1);
    }

    fn damage(&mut self, bytes: &mut [u8]) {
        if self.random.one_in(4) {
            let bit = self.random.below(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn load(&mut self, cdo: &Cdo<'_>) -> String {
        match self.array.load_cdo(cdo, &mut self.host) {
            Ok(()) => self.settle("CDO"),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                "CDO: error".into()
            }
        }
    }

    fn settle(&mut self, what: &str) -> String {
        let settled = self.array.settle(&mut self.host);
        assert!(!self.array.report().to_string().is_empty());
        match settled {
            Ok(_) => format!("{what}: settled"),
            Err(ArrayError::Timeout { .. }) => format!("{what}: timeout"),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                format!("{what}: error while it ran")
            }
        }
    }

    /// A stream of random operations, sometimes with a bit changed.
    pub fn stream(&mut self) -> String {
        if self.random.one_in(4) {
            self.array.reset();
        }
        let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: COLUMNS, mem_tile_rows: 1 });
        for _ in 0..self.random.below(30) {
            let (address, value, mask) = (self.address(), self.random.word(), self.random.word());
            let (column, row) = self.tile();
            let direction = if self.random.one_in(2) { Direction::StreamToMemory } else { Direction::MemoryToStream };
            match self.random.below(12) {
                0..4 => writer.push(&Instruction::Write { address, value }),
                4 => writer.push(&Instruction::MaskWrite { address, value, mask }),
                5 | 6 => {
                    let words: Vec<u32> = (0..self.random.below(12)).map(|_| self.random.word()).collect();
                    writer.block_write(address as u32, &words)
                }
                7 => writer.push(&Instruction::AddressPatch {
                    register: address,
                    argument: self.random.below(3) as u16,
                    offset: self.random.next() >> self.random.below(64),
                }),
                8 if self.random.one_in(2) => {
                    writer.push(&Instruction::MaskPoll { address, value: value & mask, mask })
                }
                9 => writer.push(&Instruction::Sync {
                    direction,
                    column,
                    row,
                    columns: 1,
                    rows: 1,
                    channel: value as u8,
                }),
                10 if self.random.one_in(4) => {
                    let address = HOST_AT + u64::from(self.random.word() & 0xffff);
                    writer.push(&Instruction::LoadPdi { id: 0, size: self.random.word() & 0xfff, address })
                }
                _ => writer.custom(0x82 + self.random.below(4) as u8, &[value]),
            };
        }
        let mut bytes = writer.finish().unwrap();
        self.damage(&mut bytes);
        let Ok(stream) = InstructionStream::parse(&bytes) else { return "stream: rejected".into() };
        match self.array.execute(&stream, &[HOST_AT, HOST_AT + 0x8000], &mut self.host) {
            Ok(Outcome::Completed) => "stream: completed".into(),
            Ok(Outcome::Deadlock { report, .. }) => {
                assert!(!report.to_string().is_empty());
                "stream: deadlock".into()
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                "stream: error".into()
            }
        }
    }

    /// Random descriptors that are mostly possible, started on all channels, with circuits between them.
    pub fn descriptors(&mut self) -> String {
        self.array.reset();
        let mut cdo = CdoBuilder::new();
        for column in 0..COLUMNS {
            for row in 0..3 {
                let (first, count) = if row == 1 { (MemTileBd::register(0), 48) } else { (CoreBd::register(0), 16) };
                let mut numbers = [Vec::new(), Vec::new()];
                for _ in 0..4 + self.random.below(10) {
                    let number = self.random.below(count) as u32;
                    numbers[number as usize / (count / 2)].push(number);
                    let mut words: [u32; 8] = std::array::from_fn(|_| self.random.word());
                    match row {
                        // Small, inside, without locks, more often than not.
                        0 if !self.random.one_in(20) => {
                            let mut bd =
                                ShimBd { valid: true, acquire: self.random.one_in(6), ..ShimBd::decode(&words) };
                            (bd.length, bd.iteration_step) = (1 + bd.length % 64, 1);
                            (bd.next, bd.use_next) = (number, bd.use_next & self.random.one_in(4));
                            bd.release_value &= 1;
                            bd.set_address(ARRAY_OFFSET + HOST_AT + u64::from(self.random.word() & 0xfff));
                            (bd.d0_step, bd.d1_step, bd.d2_step) = (1 + bd.d0_step % 8, 1 + bd.d1_step % 64, 1);
                            words = bd.encode().unwrap();
                        }
                        1 if !self.random.one_in(20) => {
                            let mut bd =
                                MemTileBd { valid: true, acquire: self.random.one_in(6), ..MemTileBd::decode(&words) };
                            (bd.length, bd.iteration_step) = (1 + bd.length % 64, 1);
                            (bd.next, bd.release_value) = (number, bd.release_value & 1);
                            bd.use_next &= self.random.one_in(4);
                            (bd.acquire_lock, bd.release_lock) = (64 + bd.acquire_lock % 64, 64 + bd.release_lock % 64);
                            bd.address = MemTileBd::OWN_MEMORY + (bd.address & 0xfff);
                            (bd.d0_step, bd.d1_step, bd.d2_step) = (1 + bd.d0_step % 8, 1 + bd.d1_step % 64, 1);
                            words = bd.encode().unwrap();
                        }
                        2 if !self.random.one_in(20) => {
                            let six = std::array::from_fn(|word| words[word]);
                            let mut bd = CoreBd { valid: true, acquire: self.random.one_in(6), ..CoreBd::decode(&six) };
                            (bd.length, bd.iteration_step) = (1 + bd.length % 64, 1);
                            (bd.next, bd.use_next) = (number, bd.use_next & self.random.one_in(4));
                            (bd.address, bd.release_value) = (bd.address & 0xfff, bd.release_value & 1);
                            (bd.d0_step, bd.d1_step, bd.d2_step) = (1 + bd.d0_step % 8, 1 + bd.d1_step % 64, 1);
                            words[..6].copy_from_slice(&bd.encode().unwrap());
                        }
                        _ => {}
                    }
                    let offset = first + 0x20 * number;
                    cdo.dma_write(tile_address(column, row, offset).into(), &words);
                }
                let switch = if row == 1 { 0xb_0000 } else { 0x3_f000 };
                for master in 0..24 {
                    if self.random.one_in(2) {
                        let value = if self.random.one_in(4) {
                            0xc000_0000 | self.random.word() & 0xff
                        } else {
                            0x8000_0000 | self.random.below(25) as u32
                        };
                        // Where there is no wire nothing else would be tried.
                        if !has_wire(row, master, value) && !self.random.one_in(4096) {
                            continue;
                        }
                        cdo.write(tile_address(column, row, switch + 4 * master).into(), value);
                    }
                }
                for slave in 0..25 {
                    let packets = u32::from(self.random.one_in(4)) << 30;
                    cdo.write(tile_address(column, row, switch + 0x100 + 4 * slave).into(), 1 << 31 | packets);
                    if packets != 0 {
                        // Most take every packet.
                        let mask = if self.random.one_in(8) { 0x1f1f_0037 } else { 0x1f00_0037 };
                        let slot = self.random.word() & mask | 1 << 8;
                        cdo.write(tile_address(column, row, switch + 0x200 + 16 * slave).into(), slot);
                    }
                }
                let (queue, channels) = match row {
                    0 => ([0x1_d204, 0x1_d214], 2),
                    1 => ([0xa_0604, 0xa_0634], 6),
                    _ => ([0x1_de04, 0x1_de14], 2),
                };
                for first in queue {
                    for channel in 0..channels {
                        if self.random.one_in(6) {
                            let control = self.random.word() & 0x3_000c;
                            cdo.write(tile_address(column, row, first - 4 + 8 * channel).into(), control);
                        }
                        // Odd channels of a mem tile take descriptors of the upper half.
                        let numbers = if row == 1 { &numbers[channel as usize % 2] } else { &numbers.concat() };
                        if numbers.is_empty() || self.random.one_in(2) {
                            continue;
                        }
                        let task = self.random.pick(numbers) | self.random.word() & 0x8003_0000;
                        cdo.write(tile_address(column, row, first + 8 * channel).into(), task);
                    }
                }
            }
            cdo.write(tile_address(column, 0, 0x1_f000).into(), 0x4400);
            cdo.write(tile_address(column, 0, 0x1_f004).into(), 0x50);
        }
        let bytes = cdo.finish().unwrap();
        let loaded = self.load(&Cdo::parse(&bytes).unwrap());
        loaded.replace("CDO", "descriptors")
    }
}

/// Whether a circuit that a master's register asks for is possible; true for anything else.
fn has_wire(row: u8, master: u32, value: u32) -> bool {
    let switch = StreamSwitch([TileKind::Shim, TileKind::Mem, TileKind::Core][usize::from(row.min(2))]);
    let Some(MasterSource::Circuit(slave)) = MasterSource::decode(value) else { return true };
    let ports = switch.slave(slave).zip(switch.master(master));
    ports.is_none_or(|(slave, master)| switch.has_wire(slave, master))
}
