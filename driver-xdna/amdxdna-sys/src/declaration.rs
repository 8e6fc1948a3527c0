//! What the tables say of one declaration: a structure, a constant, a request.

use crate::request::{Direction, Request, RequestCode};

/// A structure; without fields an enumeration.
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
    /// The first kernel version whose header has it; `None` for what the first header had.
    pub since: Option<&'static str>,
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

/// Bytes of a field: a function that selects it is enough.
pub(crate) const fn field_size<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}
