//! What programs are made for.

use aie_hal::Arch;
use aie_isa::Isa;

/// The instruction set of a generation's cores. None if its arch file names none, or one without tables: no program can be made.
#[must_use]
pub fn isa_of(arch: &Arch) -> Option<&'static Isa> {
    arch.instruction_set.as_deref().and_then(Isa::for_arch)
}
