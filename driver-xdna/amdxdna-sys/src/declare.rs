//! The macros every declaration goes through. Each makes the item and its entry in the tables of [`crate::layout`] from one text, so
//! that the tables cannot fall behind the types.

/// Structures of the kernel's headers, with the request they are the argument of; the macro of its code in C begins with a prefix.
/// `[since "VERSION"]`: the first kernel whose header has it, when that is not the one that brought the driver. The derive of `Pod`
/// rejects hidden padding.
macro_rules! structures {
    ($prefix:literal: $($(#[$doc:meta])* $([since $since:literal])? $name:ident
       $(= $direction:ident $number:expr, $text:literal)? { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[allow(missing_docs, reason = "the fields are described in the kernel's header")]
            #[repr(C)]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, ::bytemuck::Zeroable, ::bytemuck::Pod)]
            pub struct $name { $(pub $field: $type),* }

            impl Default for $name {
                fn default() -> Self {
                    ::bytemuck::Zeroable::zeroed()
                }
            }

            impl $crate::declaration::Declared for $name {
                const STRUCTURE: &'static str = stringify!($name);
                const SINCE: Option<&'static str> = structures!(@since $($since)?);
            }

            $(impl $crate::request::Request for $name {
                const NAME: &'static str = $text;
                const NUMBER: u32 = $number;
                const DIRECTION: $crate::request::Direction = $crate::request::Direction::$direction;
            })?
        )*

        pub(crate) const STRUCTS: &[$crate::declaration::Struct] = &[$($crate::declaration::Struct {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: &[$($crate::declaration::Field {
                rust_name: stringify!($field),
                offset: ::std::mem::offset_of!($name, $field),
                size: $crate::declaration::field_size(|value: &$name| &value.$field),
            }),*],
            since: structures!(@since $($since)?),
        }),*];

        pub(crate) const IOCTLS: &[$crate::declaration::Ioctl] = &[$($(
            $crate::declaration::Ioctl::of::<$name>(concat!($prefix, $text)),
        )?)*];
    };
    (@since) => { None };
    (@since $since:literal) => { Some($since) };
}

/// Numbers of the kernel's headers: macros and values of enumerations.
macro_rules! constants {
    ($($(#[$doc:meta])* $([since $since:literal])? $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: $type = $value;)*

        pub(crate) const CONSTANTS: &[$crate::declaration::Constant] = &[$($crate::declaration::Constant {
            name: stringify!($name),
            value: $value as u64,
            since: structures!(@since $($since)?),
        }),*];
    };
}
