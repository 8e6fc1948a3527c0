//! What a program of the set is made with: a configuration written by the project's own builders, memory, a host, and the
//! mutations that the set has to notice.

use aie_emulator::{Array, HostMemory, Outcome, Rules};
use aie_hal::format::bd::{CoreBd, MemTileBd, ShimBd};
use aie_hal::format::cdo::{Cdo, CdoBuilder};
use aie_hal::format::core_control;
use aie_hal::format::dma_channel::{Direction, DmaChannel, DmaTask};
use aie_hal::format::instructions::{ARRAY_OFFSET, Header, InstructionStream, InstructionWriter};
use aie_hal::format::lock::Lock;
use aie_hal::format::register::{RegisterWrite, TileKind};
use aie_hal::format::stream_switch::{PacketSlot, Port, StreamSwitch};
use aie_hal::format::{shim_mux, tile_address};
use aie_isa::Isa;

/// Columns and rows of the array: shims, mem tiles, two rows of cores.
const COLUMNS: u8 = 3;
const ROWS: u8 = 4;
/// Cycles after which a program does not end.
const MOST_CYCLES: u64 = 100_000;

/// What is wrong with the machine that a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Locks start one too high.
    Lock,
    /// The innermost step of every buffer descriptor is one word too long.
    Step,
}

/// The machine that a program runs on: an instruction set, and what is wrong with the array.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub isa: &'static Isa,
    pub fault: Option<Fault>,
    /// The seed of its order of events.
    pub seed: Option<u64>,
}

impl Machine {
    /// One with cores of an instruction set, as it should be.
    pub fn new(isa: &'static Isa) -> Self {
        Self { isa, fault: None, seed: None }
    }
}

/// Why a program has not shown what it should.
pub type Check = Result<(), String>;

/// Buffers of the host, far from each other.
#[derive(Default)]
pub struct Host(pub Vec<Vec<u8>>);

const APART: u64 = 1 << 32;

impl Host {
    fn place(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let buffer = self.0.get_mut(usize::try_from(address / APART).ok()?.checked_sub(1)?)?;
        let at = usize::try_from(address % APART).ok()?;
        buffer.get_mut(at..at + bytes)
    }

    /// The address of a buffer on the host.
    pub fn address(index: usize) -> u64 {
        (index as u64 + 1) * APART
    }

    /// The words of a buffer.
    pub fn words(&self, index: usize) -> Vec<u32> {
        self.0[index].as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }
}

impl HostMemory for Host {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.place(address, bytes.len()).map(|place| bytes.copy_from_slice(place)).is_some()
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        self.place(address, bytes.len()).map(|place| place.copy_from_slice(bytes)).is_some()
    }
}

/// A tile by column and row.
pub type At = (u8, u8);

fn kind((_, row): At) -> TileKind {
    match row {
        0 => TileKind::Shim,
        1 => TileKind::Mem,
        _ => TileKind::Core,
    }
}

/// An array under construction.
pub struct Rig {
    machine: Machine,
    pub array: Array,
    pub host: Host,
    cdo: CdoBuilder,
    enabled: Vec<At>,
    /// Texts that are no programs.
    unassembled: Vec<String>,
}

impl Rig {
    pub fn new(machine: Machine) -> Self {
        let mut rules = Rules::default();
        rules.interleaving = machine.seed;
        Self::under(machine, rules)
    }

    /// A rig whose array has other rules.
    pub fn under(machine: Machine, rules: Rules) -> Self {
        let array = Array::with_rules(machine.isa, COLUMNS, ROWS, rules);
        Self {
            machine,
            array,
            host: Host::default(),
            cdo: CdoBuilder::new(),
            enabled: Vec::new(),
            unassembled: Vec::new(),
        }
    }

    /// Adds a write to the configuration.
    pub fn write(&mut self, (column, row): At, write: RegisterWrite) {
        let address = tile_address(column, row, write.offset).into();
        match write.mask {
            u32::MAX => self.cdo.write(address, write.value),
            mask => self.cdo.mask_write(address, mask, write.value),
        };
    }

    /// Adds words of data memory or registers.
    pub fn words(&mut self, (column, row): At, offset: u32, words: &[u32]) {
        self.cdo.dma_write(tile_address(column, row, offset).into(), words);
    }

    /// Assembles a program for a core, which will be started.
    pub fn program(&mut self, at: At, text: &str) {
        let mut code = match self.machine.isa.assemble(text) {
            Ok(code) => code,
            Err(error) => return self.unassembled.push(error.to_string()),
        };
        code.resize(code.len().next_multiple_of(4), 0);
        let words: Vec<u32> = code.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        self.words(at, 0x2_0000, &words);
        self.enabled.push(at);
    }

    /// Sets a lock, as the configuration does before anything starts.
    pub fn lock(&mut self, at: At, id: u8, value: i8) {
        let value = if self.machine.fault == Some(Fault::Lock) { value + 1 } else { value };
        let write = Lock::new(kind(at), id).unwrap().set(value).unwrap();
        self.write(at, write);
    }

    fn step(&self, step: u32) -> u32 {
        if self.machine.fault == Some(Fault::Step) { step + 1 } else { step }
    }

    /// A buffer descriptor of a core tile.
    pub fn core_bd(&mut self, at: At, number: u8, bd: CoreBd) {
        let bd = CoreBd { d0_step: self.step(bd.d0_step), ..bd };
        self.words(at, CoreBd::register(number), &bd.encode().unwrap());
    }

    /// A buffer descriptor of a mem tile.
    pub fn mem_bd(&mut self, at: At, number: u8, bd: MemTileBd) {
        let bd = MemTileBd { d0_step: self.step(bd.d0_step), ..bd };
        self.words(at, MemTileBd::register(number), &bd.encode().unwrap());
    }

    /// A buffer descriptor of a shim tile for a buffer of the host.
    pub fn shim_bd(&mut self, at: At, number: u8, buffer: usize, bd: ShimBd) {
        let mut bd = ShimBd { d0_step: self.step(bd.d0_step), ..bd };
        bd.set_address(Host::address(buffer) + ARRAY_OFFSET + bd.address());
        self.words(at, ShimBd::register(number), &bd.encode().unwrap());
    }

    /// Starts a task.
    pub fn start(&mut self, at: At, direction: Direction, channel: u8, task: DmaTask) {
        let channel = DmaChannel::new(kind(at), direction, channel).unwrap();
        self.write(at, channel.start(task).unwrap());
    }

    /// Starts a descriptor once, without a token.
    pub fn start_once(&mut self, at: At, direction: Direction, channel: u8, descriptor: u8) {
        self.start(at, direction, channel, DmaTask { descriptor, repeat: 0, token: false });
    }

    /// Connects ports of a tile.
    pub fn circuit(&mut self, at: At, slave: Port, master: Port) {
        for write in StreamSwitch(kind(at)).circuit(slave, master).unwrap() {
            self.write(at, write);
        }
    }

    /// A slave port that takes packets by these slots.
    pub fn packet_slave(&mut self, at: At, slave: Port, slots: &[PacketSlot]) {
        let switch = StreamSwitch(kind(at));
        self.write(at, switch.packet_slave(slave).unwrap());
        for (number, slot) in slots.iter().enumerate() {
            self.write(at, switch.slot(slave, number as u8, *slot).unwrap());
        }
    }

    /// A master port that sends packets of an arbiter.
    pub fn packet_master(&mut self, at: At, master: Port, arbiter: u8, msels: u8, drop_header: bool) {
        self.write(at, StreamSwitch(kind(at)).packet_master(master, arbiter, msels, drop_header).unwrap());
    }

    /// Connects a shim's DMA with its switch.
    pub fn shim_dma(&mut self, column: u8, direction: Direction, channel: u8) {
        self.write((column, 0), shim_mux::connect(direction, channel).unwrap());
    }

    /// Adds a buffer of the host; gives its index.
    pub fn buffer(&mut self, words: &[u32]) -> usize {
        self.host.0.push(words.iter().flat_map(|word| word.to_le_bytes()).collect());
        self.host.0.len() - 1
    }

    /// Loads what has been configured so far and starts the cores.
    pub fn load(&mut self) -> Check {
        if let Some(problem) = self.unassembled.first() {
            return Err(problem.clone());
        }
        for at in std::mem::take(&mut self.enabled) {
            self.write(at, core_control::reset(true));
            self.write(at, core_control::reset(false));
            self.write(at, core_control::enable(true));
        }
        let cdo = std::mem::take(&mut self.cdo).finish().unwrap();
        self.array.load_cdo(&Cdo::parse(&cdo).unwrap(), &mut self.host).map_err(|error| error.to_string())
    }

    /// Loads the configuration and lets everything move until nothing does.
    pub fn run(&mut self) -> Check {
        self.load()?;
        self.array.set_cycle_limit(MOST_CYCLES);
        self.array.settle(&mut self.host).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// [`Rig::run`]; then nothing may wait.
    pub fn run_to_end(&mut self) -> Check {
        self.run()?;
        let report = self.array.report();
        if report.waiters.is_empty() { Ok(()) } else { Err(report.to_string()) }
    }

    /// Executes an instruction stream with all buffers as arguments.
    pub fn execute(&mut self, write: impl FnOnce(&mut InstructionWriter)) -> Result<Outcome, String> {
        let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: COLUMNS, mem_tile_rows: 1 });
        write(&mut writer);
        let bytes = writer.finish().unwrap();
        self.execute_bytes(&InstructionStream::for_firmware(&bytes).unwrap())
    }

    /// The same with a stream as firmware gets it.
    pub fn execute_bytes(&mut self, stream: &[u8]) -> Result<Outcome, String> {
        let arguments: Vec<u64> = (0..self.host.0.len()).map(Host::address).collect();
        let stream = InstructionStream::parse(stream).unwrap();
        self.array.execute(&stream, &arguments, &mut self.host).map_err(|error| error.to_string())
    }

    /// Words of data memory or registers.
    pub fn read(&mut self, (column, row): At, offset: u32, count: usize) -> Vec<u32> {
        (offset..).step_by(4).take(count).map(|offset| self.array.read(column, row, offset).unwrap()).collect()
    }

    /// Compares words of data memory with what they should be.
    pub fn expect(&mut self, at: At, offset: u32, expected: &[u32]) -> Check {
        let found = self.read(at, offset, expected.len());
        same(&format!("memory of {at:?} at {offset:#x}"), &found, expected)
    }

    /// Compares a buffer of the host with what it should be.
    pub fn expect_buffer(&mut self, index: usize, expected: &[u32]) -> Check {
        same(&format!("buffer {index}"), &self.host.words(index), expected)
    }
}

/// Where two lists of words first differ.
pub fn same(what: &str, found: &[u32], expected: &[u32]) -> Check {
    if found.len() != expected.len() {
        return Err(format!("{what}: {} words, expected {}", found.len(), expected.len()));
    }
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: word {at} is {:#x}, expected {:#x}", found[at], expected[at])),
    }
}

/// Bytes as words.
pub fn pack_bytes(bytes: impl IntoIterator<Item = u8>) -> Vec<u32> {
    let bytes: Vec<u8> = bytes.into_iter().collect();
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// 16-bit numbers as words.
pub fn pack_halves(halves: impl IntoIterator<Item = u16>) -> Vec<u32> {
    pack_bytes(halves.into_iter().flat_map(u16::to_le_bytes))
}
