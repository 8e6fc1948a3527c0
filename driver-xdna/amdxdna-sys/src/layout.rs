//! What this crate believes of the kernel's headers, as tables: sizes, alignments, offsets, values, request codes.
//!
//! The tables are made by the macros that declare the items, from the Rust types themselves. A program can turn them into C and
//! have a compiler compare them with real headers.

pub use crate::declaration::{Constant, Field, Ioctl, Struct};

use crate::{accel, drm};

/// One header of the kernel, with what this crate declares of it.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// Its name for `#include`.
    pub name: &'static str,
    /// The first kernel version that has it; `None` where every kernel with an accel node has it.
    pub since: Option<&'static str>,
    /// Structures.
    pub structs: &'static [Struct],
    /// Macros and values of enumerations.
    pub constants: &'static [Constant],
    /// Requests: those with a structure of their own, then those that share one.
    ioctls: [&'static [Ioctl]; 2],
}

impl Header {
    /// Its requests.
    pub fn ioctls(&self) -> impl Iterator<Item = &'static Ioctl> + use<> {
        self.ioctls.into_iter().flatten()
    }
}

/// All headers, that of the DRM core first.
pub const HEADERS: &[Header] = &[
    Header {
        name: "drm/drm.h",
        since: None,
        structs: drm::STRUCTS,
        constants: drm::CONSTANTS,
        ioctls: [drm::IOCTLS, drm::SHARED_IOCTLS],
    },
    Header {
        name: "drm/amdxdna_accel.h",
        since: Some("6.14"),
        structs: accel::STRUCTS,
        constants: accel::CONSTANTS,
        ioctls: [accel::IOCTLS, &[]],
    },
];

/// All structures.
pub fn structs() -> impl Iterator<Item = &'static Struct> {
    HEADERS.iter().flat_map(|header| header.structs)
}

/// The structure with this name.
pub fn structure(name: &str) -> Option<&'static Struct> {
    structs().find(|found| found.name == name)
}

/// All constants.
pub fn constants() -> impl Iterator<Item = &'static Constant> {
    HEADERS.iter().flat_map(|header| header.constants)
}

/// All requests, those of the DRM core first.
pub fn ioctls() -> impl Iterator<Item = &'static Ioctl> {
    HEADERS.iter().flat_map(Header::ioctls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_fields_fill_their_structures() {
        let mut names = BTreeSet::new();
        for found in structs() {
            assert!(names.insert(found.name), "{}", found.name);
            let bytes: usize = found.fields.iter().map(|field| field.size).sum();
            assert_eq!(bytes, found.size, "{}", found.name);
        }
        assert!(constants().all(|constant| names.insert(constant.name)));
    }

    #[test]
    fn no_two_requests_have_one_number() {
        let numbers: BTreeSet<u32> = ioctls().map(|ioctl| ioctl.code.number()).collect();
        assert_eq!(numbers.len(), ioctls().count());
    }
}
