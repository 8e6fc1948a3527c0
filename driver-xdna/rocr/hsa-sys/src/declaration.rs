//! What the tables say of one declaration, beside structures and constants, which `amdxdna-sys` describes in the same words: fields of
//! bits, a function and its type in C.

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

/// A function of the table.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    /// Its symbol.
    pub name: &'static str,
    /// Writes its type in C without a name, as in `int (char *)`.
    pub c_type: fn() -> String,
}

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
