//! What this crate believes of the kernel's headers, as tables: sizes, alignments, offsets, values, request codes.
//!
//! The tables are made by the macros that declare the items, from the Rust types themselves. A program can turn them into C and
//! have a compiler compare them with real headers.

use crate::{Direction, Request, RequestCode, accel, drm};

/// A structure.
#[derive(Debug, Clone, Copy)]
pub struct Struct {
    /// Its name in C and in this crate.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Bytes.
    pub align: usize,
    /// Its fields in order.
    pub fields: &'static [Field],
    /// The first kernel version whose header has it; `None` for what the driver's first header had.
    pub since: Option<&'static str>,
}

impl Struct {
    /// The structure with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        structs().find(|found| found.name == name)
    }
}

/// A field of a [`Struct`].
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in this crate: that of C, except that a Rust keyword has an underscore behind it.
    pub rust_name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

impl Field {
    /// Its name in C.
    pub fn c_name(&self) -> &'static str {
        self.rust_name.strip_suffix('_').unwrap_or(self.rust_name)
    }
}

/// A macro or a value of an enumeration.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// Its name in C and in this crate.
    pub name: &'static str,
    /// Its value; signed ones are not used.
    pub value: u64,
    /// As [`Struct::since`].
    pub since: Option<&'static str>,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Ioctl {
    /// Name of its macro in C: `DRM_IOCTL_AMDXDNA_CREATE_BO`.
    pub c_name: &'static str,
    /// Name without prefix, as in reports.
    pub name: &'static str,
    /// Its code.
    pub code: RequestCode,
    /// Name of its structure.
    pub structure: &'static str,
    /// As [`Struct::since`].
    pub since: Option<&'static str>,
}

/// A structure of the kernel's headers.
pub(crate) trait Declared {
    /// As [`Struct::name`].
    const STRUCTURE: &'static str;
    /// As [`Struct::since`].
    const SINCE: Option<&'static str>;
}

impl Ioctl {
    pub(crate) const fn of<T: Request + Declared>(c_name: &'static str) -> Self {
        Self { c_name, name: T::NAME, code: T::CODE, structure: T::STRUCTURE, since: T::SINCE }
    }

    /// A request of the DRM core, both ways, that shares its structure with another one.
    pub(crate) const fn shared<T: Declared>(c_name: &'static str, number: u32) -> Self {
        let (_, name) = c_name.split_at("DRM_IOCTL_".len());
        let code = RequestCode::new(Direction::ReadWrite, number, size_of::<T>());
        Self { c_name, name, code, structure: T::STRUCTURE, since: T::SINCE }
    }
}

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

/// All constants.
pub fn constants() -> impl Iterator<Item = &'static Constant> {
    HEADERS.iter().flat_map(|header| header.constants)
}

/// All requests, those of the DRM core first.
pub fn ioctls() -> impl Iterator<Item = &'static Ioctl> {
    HEADERS.iter().flat_map(Header::ioctls)
}

/// Bytes of a field: a function that selects it is enough.
pub(crate) const fn field_size<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
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
