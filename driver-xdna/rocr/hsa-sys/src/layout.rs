//! What this crate believes of the C headers, as tables: sizes, alignments, offsets, values and function types.
//!
//! The tables are made by the macros that declare the items, from the Rust types themselves. A program can turn them
//! into C and have a compiler compare them with the real headers, which is what `cargo xtask hsa-headers` does.

use crate::{agent, api, memory, packet, queue, signal, status};

/// A structure, a handle, or (without fields) an enumeration.
#[derive(Debug, Clone, Copy)]
pub struct Struct {
    /// Its name in C and in this crate.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Bytes.
    pub align: usize,
    /// Its fields in order of declaration.
    pub fields: &'static [Field],
    /// Why the headers of ROCR 7.2 do not have it; `None` if they do.
    pub later: Option<&'static str>,
}

/// A field of a [`Struct`].
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in this crate: that of C, except that a Rust keyword has an underscore behind it.
    pub rust_name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Bytes; 0 for a flexible array at the end.
    pub size: usize,
}

impl Field {
    /// Its name in C.
    pub fn c_name(&self) -> &'static str {
        self.rust_name.strip_suffix('_').unwrap_or(self.rust_name)
    }
}

/// A field of a few bits inside a word that this crate declares as one number.
#[derive(Debug, Clone, Copy)]
pub struct BitField {
    /// The structure.
    pub structure: &'static str,
    /// The field's name in C.
    pub name: &'static str,
    /// Bytes from the start of the structure to its word of 32 bits.
    pub offset: usize,
    /// The word with all bits of the field set and no other.
    pub mask: u32,
}

/// A place in a structure that this crate knows and does not declare.
#[derive(Debug, Clone, Copy)]
pub struct Offset {
    /// The structure's name in C.
    pub structure: &'static str,
    /// The field's name in C.
    pub field: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
}

/// A constant of an enumeration or a macro.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// Its name in C and in this crate.
    pub name: &'static str,
    /// Its value. All are non-negative and fit 32 bits.
    pub value: u32,
    /// Why the headers of ROCR 7.2 do not have it; `None` if they do.
    pub later: Option<&'static str>,
}

/// A function of the table.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    /// Its symbol.
    pub name: &'static str,
    /// Writes its type in C without a name, as in `int (char *)`.
    pub c_type: fn() -> String,
}

/// All structures, handles and enumerations.
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

/// All constants.
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

/// Types with a spelling in C.
pub trait CType {
    /// The spelling, usable where C wants the name of a type.
    fn c_type() -> String;
}

macro_rules! c_scalars {
    ($($type:ty => $name:literal,)*) => {
        $(impl CType for $type {
            fn c_type() -> String {
                $name.to_owned()
            }
        })*
    };
}

c_scalars! {
    () => "void",
    bool => "_Bool",
    // `char` is one or the other, depending on the architecture; no function here takes other bytes.
    i8 => "char",
    i32 => "int",
    i64 => "int64_t",
    u8 => "char",
    u32 => "uint32_t",
    u64 => "uint64_t",
    usize => "size_t",
    std::ffi::c_void => "void",
}

impl<T: CType> CType for *const T {
    fn c_type() -> String {
        // Behind the type, so that it also reads right for a pointer to a pointer.
        format!("{} const *", T::c_type())
    }
}

impl<T: CType> CType for *mut T {
    fn c_type() -> String {
        format!("{} *", T::c_type())
    }
}

macro_rules! c_callbacks {
    ($($argument:ident),*) => {
        impl<R: CType, $($argument: CType),*> CType for Option<unsafe extern "C" fn($($argument),*) -> R> {
            fn c_type() -> String {
                format!("__typeof__({} (*)({}))", R::c_type(), [$($argument::c_type()),*].join(", "))
            }
        }
    };
}

c_callbacks!(A, B);
c_callbacks!(A, B, C);

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
