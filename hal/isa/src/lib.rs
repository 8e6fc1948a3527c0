//! The instruction sets of AI Engine cores.
//!
//! Everything that is known of a generation's instructions is data: formats of bundles, fixed bits and operands of
//! instructions, numbers of registers, cycles of operands, units. The files are under `data`, one folder for each generation;
//! they are checked when the crate is built. From them this crate decodes, encodes, lists and assembles programs, and says when
//! operands are read and written. What instructions compute is not here but in the emulator.
//!
//! ```
//! use aie_isa::Isa;
//!
//! let isa = Isa::for_arch("aie2").unwrap();
//! let code = isa.assemble("add r0, r1, r2; mova r3, #7\nlabel: jnz r0, #label").unwrap();
//! let bundle = isa.decode(&code).unwrap();
//! assert_eq!(isa.text(&bundle), "mova r3, #7; add r0, r1, r2");
//! ```
//!
//! Nothing is allocated for each decoded instruction. All types are immutable and can be shared between threads.
#![forbid(unsafe_code)]

mod assemble;
mod bank;
mod decode;
mod encode;
mod listing;
mod model;
mod operand_timing;

pub use assemble::AssembleError;
pub use bank::{BANK_BYTES, share_bank};
pub use decode::{Bundle, DecodeError, Decoded, Value, Values};
pub use encode::EncodeError;
pub use listing::Listing;
pub use model::*;
pub use operand_timing::{RegisterPort, Timed};

use std::sync::LazyLock;

static AIE2_ISA: LazyLock<Isa> = LazyLock::new(|| checked(&AIE2));
static AIE2P_ISA: LazyLock<Isa> = LazyLock::new(|| checked(&AIE2P));

fn checked(tables: &Tables) -> Isa {
    Isa::load(tables).unwrap_or_else(|error| unreachable!("the build script has checked the tables: {error}"))
}

impl Isa {
    /// The instruction set of XDNA (npu1).
    pub fn aie2() -> &'static Self {
        &AIE2_ISA
    }

    /// The instruction set of XDNA2 (npu4 and its relatives).
    pub fn aie2p() -> &'static Self {
        &AIE2P_ISA
    }

    /// The instruction set of a name: `instruction_set` in `hal`'s arch files. None if there are no tables for it.
    pub fn for_arch(name: &str) -> Option<&'static Self> {
        let set = InstructionSet::ALL.into_iter().find(|set| set.name() == name)?;
        Some(Self::of(set))
    }

    /// An instruction set.
    pub fn of(set: InstructionSet) -> &'static Self {
        match set {
            InstructionSet::Aie2 => Self::aie2(),
            InstructionSet::Aie2p => Self::aie2p(),
        }
    }
}
