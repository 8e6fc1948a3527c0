//! What this crate believes of the C headers, as tables: sizes, alignments, offsets, values and function types.
//!
//! The tables are made by the macros that declare the items, from the Rust types themselves. A program can turn them
//! into C and have a compiler compare them with the real headers, which is what `cargo xtask hsa-headers` does.

pub use crate::declaration::{BitField, CType, Function, Offset};
pub use amdxdna_sys::layout::{Constant, Field, Struct};

use crate::{agent, api, memory, packet, queue, signal, status};

/// All structures, handles and enumerations. Those with a `since` are not in the headers of ROCR 7.2, and it says where they are from.
pub const STRUCTS: &[&[Struct]] = &[
    status::ENUMS,
    agent::ENUMS,
    agent::HANDLES,
    signal::ENUMS,
    signal::HANDLES,
    queue::STRUCTS,
    memory::ENUMS,
    memory::HANDLES,
    packet::ENUMS,
    packet::STRUCTS,
];

/// All constants, with `since` as [`STRUCTS`] have it.
pub const CONSTANTS: &[&[Constant]] = &[
    status::ENUM_CONSTANTS,
    agent::ENUM_CONSTANTS,
    signal::ENUM_CONSTANTS,
    queue::CONSTANTS,
    memory::ENUM_CONSTANTS,
    memory::CONSTANTS,
    packet::ENUM_CONSTANTS,
    packet::CONSTANTS,
];

/// All fields inside words.
pub const BIT_FIELDS: &[BitField] = packet::BIT_FIELDS;

/// All places in structures that are not declared. They are in `hsa/amd_hsa_queue.h`.
pub const OFFSETS: &[Offset] = queue::OFFSETS;

/// All functions.
pub const FUNCTIONS: &[Function] = api::FUNCTIONS;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_name_is_declared_twice() {
        let mut names = BTreeSet::new();
        let structs = STRUCTS.iter().copied().flatten().map(|entry| entry.name);
        let constants = CONSTANTS.iter().copied().flatten().map(|entry| entry.name);
        for name in structs.chain(constants).chain(FUNCTIONS.iter().map(|entry| entry.name)) {
            assert!(names.insert(name), "{name}");
        }
    }

    #[test]
    fn types_are_spelt_as_c_reads_them() {
        type Callback = Option<unsafe extern "C" fn(crate::hsa_agent_t, *mut std::ffi::c_void) -> crate::hsa_status_t>;
        assert_eq!(Callback::c_type(), "__typeof__(hsa_status_t (*)(hsa_agent_t, void *))");
        assert_eq!(<*mut *const i8>::c_type(), "char const * *");
        let function = FUNCTIONS.iter().find(|function| function.name == "hsa_signal_store_relaxed").unwrap();
        assert_eq!((function.c_type)(), "void (hsa_signal_t, int64_t)");
        let function = FUNCTIONS.iter().find(|function| function.name == "hsa_init").unwrap();
        assert_eq!((function.c_type)(), "hsa_status_t (void)");
    }

    #[test]
    fn keywords_lose_their_underscore() {
        let queue = STRUCTS.iter().copied().flatten().find(|entry| entry.name == "hsa_queue_t").unwrap();
        assert_eq!(queue.fields[0].c_name(), "type");
    }
}
