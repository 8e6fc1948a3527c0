//! The macros every declaration goes through. Each makes the item and its entry in the tables of [`crate::layout`] from
//! one text, so that the tables cannot fall behind the types.

/// C enumerations: a newtype around `u32` each, with its named values.
macro_rules! c_enums {
    ($($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $constant:ident = $value:expr,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(transparent)]
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(pub u32);

            $($(#[$value_doc])* pub const $constant: $name = $name($value);)*

            impl $name {
                /// The name of the value in the C headers; `None` for a value they do not have. Of several names for one
                /// value it is the first.
                pub fn name(self) -> Option<&'static str> {
                    match self {
                        $(value if value == $constant => Some(stringify!($constant)),)*
                        _ => None,
                    }
                }
            }

            impl ::std::fmt::Debug for $name {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    ::std::fmt::Display::fmt(self, f)
                }
            }

            impl ::std::fmt::Display for $name {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    match self.name() {
                        Some(name) => f.write_str(name),
                        None => write!(f, concat!(stringify!($name), "({:#x})"), self.0),
                    }
                }
            }

            impl $crate::declaration::CType for $name {
                fn c_type() -> String {
                    stringify!($name).to_owned()
                }
            }
        )*

        pub(crate) const ENUMS: &[$crate::layout::Struct] = &[$($crate::layout::Struct {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: &[],
            since: None,
        },)*];

        pub(crate) const ENUM_CONSTANTS: &[$crate::layout::Constant] = &[$($($crate::layout::Constant {
            name: stringify!($constant),
            value: $value as u64,
            since: None,
        },)*)*];
    };
}

/// Constants that are used as plain numbers: bit masks, shifts, fields of packets.
///
/// `[since: REASON]` says why a constant is not in the headers of ROCR 7.2.
macro_rules! c_constants {
    ($($(#[$doc:meta])* $([since: $since:expr])? $constant:ident: $type:ty = $value:expr,)*) => {
        $($(#[$doc])* pub const $constant: $type = $value;)*

        pub(crate) const CONSTANTS: &[$crate::layout::Constant] = &[$($crate::layout::Constant {
            name: stringify!($constant),
            value: $value as u64,
            since: c_constants!(@since $($since)?),
        },)*];
    };
    (@since) => { None };
    (@since $since:expr) => { Some($since) };
}

/// C structures.
///
/// `[since: REASON]` says why a structure is not in the headers of ROCR 7.2.
macro_rules! c_structs {
    ($(
        $(#[$doc:meta])* $([since: $since:expr])?
        $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }
    )*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl $crate::declaration::CType for $name {
                fn c_type() -> String {
                    stringify!($name).to_owned()
                }
            }
        )*

        pub(crate) const STRUCTS: &[$crate::layout::Struct] = &[$($crate::layout::Struct {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: &[$($crate::layout::Field {
                rust_name: stringify!($field),
                offset: ::std::mem::offset_of!($name, $field),
                size: size_of::<$type>(),
            },)*],
            since: c_constants!(@since $($since)?),
        },)*];
    };
}

/// Opaque handles: a structure with one number. Comparing two handles of one kind shows whether they name one object.
macro_rules! c_handles {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
            pub struct $name {
                /// The runtime's number for the object; meaningless to anyone else.
                pub handle: u64,
            }

            impl $crate::declaration::CType for $name {
                fn c_type() -> String {
                    stringify!($name).to_owned()
                }
            }
        )*

        pub(crate) const HANDLES: &[$crate::layout::Struct] = &[$($crate::layout::Struct {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: &[$crate::layout::Field {
                rust_name: "handle",
                offset: ::std::mem::offset_of!($name, handle),
                size: size_of::<u64>(),
            }],
            since: None,
        },)*];
    };
}
