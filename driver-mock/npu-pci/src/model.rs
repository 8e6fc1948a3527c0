//! The NPUs that can be: PCI ids, BARs, registers, what their firmware says of itself.
//!
//! Addresses are those of the kernel driver (`npu1_regs.c`, `npu4_regs.c`, `npu5_regs.c`, `npu6_regs.c` of Linux 7.2), which
//! subtracts the base of a BAR from the addresses that hardware and firmware use. The sizes of the BARs are ours.

use aie_hal::arch::Arch;

/// Bytes of the BARs 0 to 5; 0: there is none. BAR 1 has the table of interrupts.
pub type BarSizes = [u32; 6];

/// A register: BAR and offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// Number of the BAR.
    pub bar: usize,
    /// Bytes from its start.
    pub offset: u32,
}

const fn at(bar: usize, offset: u32) -> Register {
    Register { bar, offset }
}

/// A part of a BAR that has an address of its own in messages.
#[derive(Debug, Clone, Copy)]
pub struct Aperture {
    /// Number of the BAR.
    pub bar: usize,
    /// What the firmware calls the BAR's first byte.
    pub base: u32,
    /// Bytes from the BAR's start to what is used.
    pub offset: u32,
}

impl Aperture {
    /// The address of a byte that the kernel driver takes.
    pub fn address(&self, offset: u32) -> u32 {
        self.base + self.offset + offset
    }
}

/// The security processor: loads and starts the firmware.
#[derive(Debug)]
pub struct PspRegisters {
    /// The command, and afterwards the status, whose bit 31 says that it is ready.
    pub command: Register,
    /// First argument, and afterwards the answer: 0 is good.
    pub argument_0: Register,
    /// Rings when something other than 0 is written.
    pub doorbell: Register,
    /// Bit 0: the firmware is suspended.
    pub wait_mode: Register,
}

/// The power management.
#[derive(Debug)]
pub struct SmuRegisters {
    /// The command.
    pub command: Register,
    /// Its argument, and afterwards what it gives.
    pub argument: Register,
    /// Rings when something other than 0 is written.
    pub doorbell: Register,
    /// 1 is good.
    pub response: Register,
}

/// Where things are.
#[derive(Debug)]
pub struct Layout {
    /// BARs.
    pub bars: BarSizes,
    /// Head and tail registers of the mailbox.
    pub mailbox: Aperture,
    /// Rings of the mailbox.
    pub sram: Aperture,
    /// Where the address of the mailbox's description appears when the firmware is up.
    pub alive: Register,
    /// Where that description is, in the SRAM.
    pub description: u32,
    /// Security processor.
    pub psp: PspRegisters,
    /// Power management.
    pub smu: SmuRegisters,
}

static NPU1: Layout = Layout {
    bars: [0x10_0000, 0x2000, 0x4_0000, 0, 0x1000, 0],
    mailbox: Aperture { bar: 4, base: 0x30c_0000, offset: 0 },
    sram: Aperture { bar: 2, base: 0x308_0000, offset: 0 },
    alive: at(2, 0x3_f000),
    description: 0x3_e000,
    psp: PspRegisters {
        command: at(0, 0x1_00a0),
        argument_0: at(0, 0x1_00a4),
        doorbell: at(0, 0x1_0090),
        wait_mode: at(0, 0x1_0034),
    },
    smu: SmuRegisters {
        command: at(0, 0x1_00ac),
        argument: at(0, 0x1_00b4),
        doorbell: at(0, 0x1_0094),
        response: at(0, 0x1_00b0),
    },
};

static NPU4: Layout = Layout {
    bars: [0x10_0000, 0x2000, 0x4_0000, 0, 0x1000, 0x2000],
    // The kernel driver counts the mailbox registers from the start of BAR 0.
    mailbox: Aperture { bar: 0, base: 0x300_0000, offset: 0x2_0000 },
    sram: Aperture { bar: 2, base: 0x360_0000, offset: 0 },
    alive: at(2, 0x1_e000),
    description: 0x3_e000,
    psp: PspRegisters {
        command: at(4, 0xaec),
        argument_0: at(0, 0x1_0078),
        doorbell: at(4, 0xa24),
        wait_mode: at(0, 0x1_003c),
    },
    smu: SmuRegisters { command: at(5, 0x900), argument: at(5, 0x9f0), doorbell: at(5, 0), response: at(5, 0x9f4) },
};

/// Protocol of the mailbox, major and minor.
pub type Protocol = (u32, u32);

/// One NPU.
#[derive(Debug)]
pub struct Model {
    /// The kernel driver's name for it: `npu4`.
    pub name: &'static str,
    /// What it is in.
    pub title: &'static str,
    /// PCI device id; the vendor is AMD.
    pub device_id: u16,
    /// PCI revision.
    pub revision: u8,
    /// The generation of its array, by the name of its arch file.
    pub arch: &'static str,
    /// Where things are.
    pub layout: &'static Layout,
    /// Columns before the first that contexts can have.
    pub first_column: u16,
    /// Version of the array: a plausible one, for no public source has it.
    pub array_version: [u16; 2],
    /// Protocol from which on the firmware takes CHAIN_EXEC_NPU, as the kernel driver's tables have it (`npu1_regs.c`, `npu4_regs.c`).
    pub npu_commands: Protocol,
    /// Protocol of the mailbox unless another is requested: the newest that its kernel driver knows.
    pub protocol: Protocol,
    /// Version of the firmware: of those AMD ships with Linux.
    pub firmware: [u32; 4],
    /// What GET_DEV_REVISION says (`enum aie2_dev_revision`).
    pub device_revision: u32,
}

const STRIX: Model = Model {
    name: "npu4",
    title: "Strix",
    device_id: 0x17f0,
    revision: 0x10,
    arch: "aie2p",
    layout: &NPU4,
    first_column: 0,
    array_version: [2, 1],
    npu_commands: (6, 15),
    protocol: (7, 0),
    firmware: [1, 1, 2, 65],
    device_revision: 1,
};

/// All of them.
pub static MODELS: [Model; 4] = [
    Model {
        name: "npu1",
        title: "Phoenix, Hawk Point",
        device_id: 0x1502,
        revision: 0,
        arch: "aie2",
        layout: &NPU1,
        first_column: 1,
        array_version: [2, 0],
        npu_commands: (5, 8),
        protocol: (5, 8),
        firmware: [1, 5, 5, 391],
        device_revision: 0,
    },
    STRIX,
    Model { name: "npu5", title: "Strix Halo", revision: 0x11, device_revision: 5, ..STRIX },
    Model { name: "npu6", title: "Krackan", revision: 0x20, device_revision: 3, ..STRIX },
];

impl Model {
    /// The model with a name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.name == name)
    }

    /// Columns of the array, those included that no context gets.
    pub fn columns(&self, arch: &Arch) -> u16 {
        self.first_column + arch.array.columns as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;

    #[test]
    fn models_have_an_arch_and_its_pci_ids() {
        let registry = ArchRegistry::builtin();
        for model in &MODELS {
            assert_eq!(Model::by_name(model.name).unwrap().revision, model.revision);
            let arch = registry.get(model.arch).unwrap();
            let known = registry.by_pci(model.device_id, model.revision).is_some_and(|found| found.name == arch.name);
            assert!(known, "{}", model.name);
        }
        assert!(Model::by_name("npu2").is_none());
    }

    #[test]
    fn registers_are_inside_their_bars() {
        for layout in [&NPU1, &NPU4] {
            let (psp, smu) = (&layout.psp, &layout.smu);
            let registers = [psp.command, psp.argument_0, psp.doorbell, psp.wait_mode, smu.command, smu.argument];
            for register in registers.into_iter().chain([smu.doorbell, smu.response, layout.alive]) {
                assert!(register.offset + 4 <= layout.bars[register.bar], "{register:?}");
            }
        }
    }
}
