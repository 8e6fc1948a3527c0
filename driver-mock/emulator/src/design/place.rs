//! What lies at an offset of a tile: memory, locks, descriptors, and the names of the registers that configure nothing here.
//!
//! The names are those of AMD's register reference (AM025) in words. Registers that are equal in several modules, as those of
//! events and timers, are in one list with the modules' first offsets.

use aie_hal::Arch;
use aie_hal::format::bd::{CoreBd, MemTileBd, ShimBd};
use aie_hal::format::core_control::{ACCUMULATOR_CONTROL, CONTROL, PROGRAM_MEMORY};
use aie_hal::format::dma_channel::{Direction, DmaChannel};
use aie_hal::format::lock::Lock;
use aie_hal::format::register::TileKind;
use aie_hal::format::shim_mux;
use aie_hal::format::stream_switch::StreamSwitch;

/// What lies at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Data memory, by its byte.
    Memory(u32),
    /// Program memory, by the core's address.
    Program(u32),
    /// The value of a lock.
    Lock(u8),
    /// A word of a buffer descriptor.
    Descriptor { id: u8, word: u8 },
    /// The control register of a channel.
    Control(DmaChannel),
    /// The task queue of a channel.
    TaskQueue(DmaChannel),
    /// A register of the stream switch that routes.
    Switch,
    /// What connects a shim tile's DMA with its switch.
    Multiplexer,
    /// What starts and stops a core.
    CoreControl,
    /// Where a core's cascade goes.
    Cascade,
    /// Anything else.
    Other,
}

/// Offset between two descriptors.
const DESCRIPTOR_BYTES: u32 = 0x20;

/// First descriptor, number of them, words of each.
pub fn descriptors(kind: TileKind) -> (u32, u8, u8) {
    match kind {
        TileKind::Core => (CoreBd::register(0), 16, CoreBd::WORDS as u8),
        TileKind::Mem => (MemTileBd::register(0), 48, MemTileBd::WORDS as u8),
        TileKind::Shim => (ShimBd::register(0), 16, ShimBd::WORDS as u8),
    }
}

impl Place {
    /// What lies at `offset` of a tile.
    pub fn of(arch: &Arch, kind: TileKind, offset: u32) -> Self {
        let tile = match kind {
            TileKind::Core => &arch.core,
            TileKind::Mem => &arch.mem_tile,
            TileKind::Shim => &arch.shim,
        };
        if (offset as usize) < tile.data_bytes {
            return Self::Memory(offset);
        }
        let program = offset.checked_sub(PROGRAM_MEMORY).filter(|address| (*address as usize) < tile.program_bytes);
        if let Some(address) = program {
            return Self::Program(address);
        }
        if let Some(lock) = Lock::at(kind, offset) {
            return Self::Lock(lock.id());
        }
        let (first, count, words) = descriptors(kind);
        if let Some(distance) = offset.checked_sub(first) {
            let (id, word) = (distance / DESCRIPTOR_BYTES, distance % DESCRIPTOR_BYTES / 4);
            if id < count.into() && word < words.into() {
                return Self::Descriptor { id: id as u8, word: word as u8 };
            }
        }
        for channel in DmaChannel::all(kind) {
            if offset == channel.control() {
                return Self::Control(channel);
            }
            if offset == channel.task_queue() {
                return Self::TaskQueue(channel);
            }
        }
        let switch = StreamSwitch(kind);
        let (first, slots) = (switch.master_register(0), switch.slot_register(switch.slaves().count() as u32, 0));
        if (first..slots).contains(&offset) {
            return Self::Switch;
        }
        let directions = [Direction::StreamToMemory, Direction::MemoryToStream];
        match kind {
            TileKind::Core if offset == CONTROL => Self::CoreControl,
            TileKind::Core if offset == ACCUMULATOR_CONTROL => Self::Cascade,
            TileKind::Shim if directions.iter().any(|way| offset == shim_mux::register(*way)) => Self::Multiplexer,
            _ => Self::Other,
        }
    }
}

/// Registers of a module: offset from its start, how many, bytes from one to the next, name.
type Names = &'static [(u32, u32, u32, &'static str)];

/// Events, trace and timer: equal in every module that has them.
const EVENTS: Names = &[
    (0x000, 1, 4, "timer control"),
    (0x008, 1, 4, "event generate"),
    (0x010, 16, 4, "event broadcast"),
    (0x050, 3, 4, "event broadcast block south"),
    (0x060, 3, 4, "event broadcast block west"),
    (0x070, 3, 4, "event broadcast block north"),
    (0x080, 3, 4, "event broadcast block east"),
    (0x090, 15, 4, "event broadcast B block"),
    (0x0D0, 2, 4, "trace control"),
    (0x0D8, 1, 4, "trace status"),
    (0x0E0, 2, 4, "trace event"),
    (0x0F0, 2, 4, "timer trigger"),
    (0x0F8, 2, 4, "timer"),
    (0x100, 4, 4, "watchpoint"),
    (0x200, 6, 4, "event status"),
    (0x400, 1, 4, "combo event inputs"),
    (0x404, 1, 4, "combo event control"),
    (0x408, 1, 4, "edge detection event control"),
    (0x500, 9, 4, "event group enable"),
];

/// The stream switch behind its routes.
const SWITCH: Names = &[
    (0x800, 8, 4, "deterministic merge"),
    (0xF00, 2, 4, "event port selection"),
    (0xF10, 1, 4, "stream switch parity status"),
    (0xF20, 1, 4, "stream switch parity injection"),
    (0xF30, 1, 4, "control packet status"),
    (0xF34, 1, 4, "stream switch clock gate status"),
    (0xF38, 1, 4, "stream switch clock gate period"),
];

const CORE: Names = &[
    (0x1_1000, 3, 4, "memory performance control"),
    (0x1_1020, 2, 4, "memory performance counter"),
    (0x1_1080, 2, 4, "memory performance counter event value"),
    (0x1_6010, 1, 4, "data memory control"),
    (0x1_DF00, 2, 4, "S2MM status"),
    (0x1_DF10, 2, 4, "MM2S status"),
    (0x1_DF18, 2, 4, "S2MM write count"),
    (0x1_F100, 8, 4, "lock event selection"),
    (0x1_F120, 1, 4, "lock overflow"),
    (0x1_F128, 1, 4, "lock underflow"),
    (0x3_1500, 3, 4, "performance control"),
    (0x3_1520, 4, 4, "performance counter"),
    (0x3_1580, 4, 4, "performance counter event value"),
    (0x3_2004, 1, 4, "core status"),
    (0x3_2008, 1, 4, "enable events"),
    (0x3_200C, 1, 4, "reset event"),
    (0x3_2010, 3, 4, "debug control"),
    (0x3_201C, 1, 4, "debug status"),
    (0x3_2020, 4, 4, "PC event"),
    (0x3_2030, 1, 4, "error halt control"),
    (0x3_2034, 1, 4, "error halt event"),
    (0x3_2038, 1, 4, "core processor bus"),
    (0x3_2100, 1, 4, "ECC control"),
    (0x3_6070, 1, 4, "program memory control"),
    (0x4_0000, 0x1000, 4, "lock request"),
    (0x6_0000, 1, 4, "module clock control"),
    (0x6_0010, 1, 4, "module reset control"),
];

const MEM: Names = &[
    (0x9_1000, 3, 4, "performance control"),
    (0x9_1020, 4, 4, "performance counter"),
    (0x9_1080, 4, 4, "performance counter event value"),
    (0x9_6048, 1, 4, "memory control"),
    (0xA_0660, 6, 4, "S2MM status"),
    (0xA_0680, 6, 4, "MM2S status"),
    (0xA_06A0, 1, 4, "DMA event channel selection"),
    (0xA_06B0, 6, 4, "S2MM write count"),
    (0xA_06E0, 6, 4, "MM2S pad value"),
    (0xC_0400, 8, 4, "lock event selection"),
    (0xC_0420, 2, 4, "lock overflow"),
    (0xC_0428, 2, 4, "lock underflow"),
    (0xD_0000, 0x4000, 4, "lock request"),
    (0xF_FF00, 1, 4, "module clock control"),
    (0xF_FF10, 1, 4, "module reset control"),
];

/// Bit 0 is the clock of a column, in its shim tile.
pub(super) const COLUMN_CLOCK: u32 = 0xF_FF20;

const SHIM: Names = &[
    (0x1_4100, 6, 4, "lock event selection"),
    (0x1_4120, 1, 4, "lock overflow"),
    (0x1_4128, 1, 4, "lock underflow"),
    (0x1_5000, 5, 4, "second-level interrupts"),
    (0x1_D220, 2, 4, "S2MM status"),
    (0x1_D228, 2, 4, "MM2S status"),
    (0x1_D230, 2, 4, "S2MM write count"),
    (0x3_1000, 3, 4, "performance control"),
    (0x3_1020, 2, 4, "performance counter"),
    (0x3_1080, 2, 4, "performance counter event value"),
    (0x3_3000, 4, 4, "programmable logic interface"),
    (0x3_5000, 9, 4, "first-level interrupts A"),
    (0x3_5030, 9, 4, "first-level interrupts B"),
    (0x4_0000, 0x1000, 4, "lock request"),
    (0xF_FF00, 2, 4, "module clock control"),
    (0xF_FF10, 2, 4, "module reset control"),
    (COLUMN_CLOCK, 1, 4, "column clock control"),
    (0xF_FF28, 1, 4, "column reset control"),
];

/// The name of a register that [`Place`] does not know, with its number where there are several.
pub fn register_name(kind: TileKind, offset: u32) -> Option<String> {
    let (own, modules): (Names, &[(u32, Names, &str)]) = match kind {
        TileKind::Core => (CORE, &[(0x3_4000, EVENTS, ""), (0x1_4000, EVENTS, "memory "), (0x3_F000, SWITCH, "")]),
        TileKind::Mem => (MEM, &[(0x9_4000, EVENTS, ""), (0xB_0000, SWITCH, "")]),
        TileKind::Shim => (SHIM, &[(0x3_4000, EVENTS, ""), (0x3_F000, SWITCH, "")]),
    };
    [(0, own, "")].iter().chain(modules).find_map(|(base, names, prefix)| {
        let offset = offset.checked_sub(*base)?;
        names.iter().find_map(|(first, count, stride, name)| {
            let distance = offset.checked_sub(*first)?;
            let number = distance / stride;
            let named = distance % stride == 0 && number < *count;
            named.then(|| if *count == 1 { format!("{prefix}{name}") } else { format!("{prefix}{name} {number}") })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;
    use rstest::rstest;

    #[rstest]
    #[case(TileKind::Core, 0xFFFC, Place::Memory(0xFFFC))]
    #[case(TileKind::Core, 0x1_0000, Place::Other)]
    #[case(TileKind::Core, 0x2_3FFC, Place::Program(0x3FFC))]
    #[case(TileKind::Core, 0x1_F0F0, Place::Lock(15))]
    #[case(TileKind::Core, 0x1_D1F4, Place::Descriptor { id: 15, word: 5 })]
    #[case(TileKind::Core, 0x1_D1F8, Place::Other)]
    #[case(TileKind::Core, 0x3_2000, Place::CoreControl)]
    #[case(TileKind::Core, 0x3_F38C, Place::Switch)]
    #[case(TileKind::Mem, 0x7_FFFC, Place::Memory(0x7_FFFC))]
    #[case(TileKind::Mem, 0xA_05FC, Place::Descriptor { id: 47, word: 7 })]
    #[case(TileKind::Mem, 0xB_0310, Place::Switch)]
    #[case(TileKind::Shim, 0, Place::Other)]
    #[case(TileKind::Shim, 0x1_F004, Place::Multiplexer)]
    #[case(TileKind::Shim, 0x3_2000, Place::Other)]
    fn places(#[case] kind: TileKind, #[case] offset: u32, #[case] place: Place) {
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        assert_eq!(Place::of(&arch, kind, offset), place);
    }

    #[rstest]
    #[case(TileKind::Core, 0x3_2038, Some("core processor bus"))]
    #[case(TileKind::Core, 0x1_40E4, Some("memory trace event 1"))]
    #[case(TileKind::Mem, 0x9_4014, Some("event broadcast 1"))]
    #[case(TileKind::Shim, 0x1_5004, Some("second-level interrupts 1"))]
    #[case(TileKind::Shim, 0x1_0000, None)]
    fn names(#[case] kind: TileKind, #[case] offset: u32, #[case] name: Option<&str>) {
        assert_eq!(register_name(kind, offset).as_deref(), name);
    }
}
