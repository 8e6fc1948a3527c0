//! Declaring variables.

use std::fmt;

/// A variable of the environment. It prints as its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Possible values; Markdown. Those of a switch start with "a switch", those of a size with "a size".
    pub values: &'static str,
    /// The name it had before, which still works.
    pub older: Option<&'static str>,
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// The name of a removed setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// The name.
    pub name: &'static str,
    /// What to know instead; it completes "NAME has no effect any more: ...".
    pub instead: &'static str,
}

/// The settings of one crate.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The prefix that only this project's names have.
    pub prefix: &'static str,
    /// The variables.
    pub variables: &'static [Variable],
    /// Removed variables.
    pub removed: &'static [Removed],
}

/// Declares the environment variables of a crate: a constant [`Variable`] for each, and of all [`Settings`] called `SETTINGS`.
///
/// The documentation of a variable is its meaning on the page `docs/environment.md`, which has the sections given here; the
/// package that declares it is the one that reads it, where `read by` does not say otherwise. Defaults are for the page only:
/// code that reads a variable has its own.
///
/// ```
/// aie_hal::settings! {
///     prefix "TOOL";
///
///     section "Files" {
///         /// Where results are written.
///         TOOL_OUTPUT: "a file" => "standard output", older "TOOL_OUT";
///         /// Whether there are messages.
///         TOOL_LOG: "a switch" => "off", read by ["tool", "tool-gui"];
///     }
/// }
/// let environment = aie_hal::Environment::from_pairs([("TOOL_OUT", "a.json"), ("TOOL_LGO", "on")]);
/// assert_eq!(environment.text(&TOOL_OUTPUT).as_deref(), Some("a.json"));
/// assert_eq!(environment.misnamed(&[SETTINGS])[0].to_string(), "TOOL_LGO is not a setting; did you mean TOOL_LOG?");
/// ```
#[macro_export]
macro_rules! settings {
    (
        prefix $prefix:literal;
        $(section $section:literal { $(
            $(#[doc = $meaning:literal])+
            $name:ident: $values:literal => $default:literal $(, read by [$($reader:literal),+])? $(, older $older:literal)?;
        )+ })+
        $(removed { $($gone:literal => $instead:expr;)+ })?
    ) => {
        $($(
            $(#[doc = $meaning])+
            pub const $name: $crate::environment::Variable = $crate::environment::Variable {
                name: stringify!($name),
                values: $values,
                older: [$(Some($older),)? None][0],
            };
        )+)+

        /// All settings of this crate.
        pub const SETTINGS: $crate::environment::Settings = $crate::environment::Settings {
            prefix: $prefix,
            variables: &[$($($name),+),+],
            removed: &[$($($crate::environment::Removed { name: $gone, instead: $instead }),+)?],
        };
    };
}
