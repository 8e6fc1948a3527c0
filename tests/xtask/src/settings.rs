//! The environment variables of the project's commands.
//!
//! They are declared as those of the product are with `aie_hal::settings!`, so that `cargo xtask gen environment` lists them; this
//! program links nothing of the product.

use std::env;
use std::ffi::OsString;
use std::fmt;

/// A variable of the environment.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    pub name: &'static str,
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl Variable {
    /// Its value, which may be empty.
    pub fn get(self) -> Option<OsString> {
        env::var_os(self.name)
    }

    /// Its value, or that of a variable that is not set.
    pub fn or(self, default: &str) -> OsString {
        self.get().unwrap_or_else(|| default.into())
    }
}

macro_rules! settings {
    ($(section $section:literal { $(
        $(#[doc = $meaning:literal])+
        $name:ident: $values:literal => $default:literal $(, read by [$($reader:literal),+])?;
    )+ })+) => {
        $($($(#[doc = $meaning])+ pub const $name: Variable = Variable { name: stringify!($name) };)+)+
    };
}

settings! {
    section "Of the project's commands" {
        /// Where the stock programs, models and libraries of the tests are.
        AIE_TESTBED: "a directory" => "`target/testbed`";
        /// The Debian archive that the tests' packages come from, also that of an earlier day.
        AIE_TESTBED_MIRROR: "an address" => "the machine's own";
        /// The C compiler of the tests.
        CC: "a program" => "`cc`";
        /// The C++ compiler of the tests.
        CXX: "a program" => "`c++`";
        /// The cargo that builds what is tested; cargo itself sets it.
        CARGO: "a program" => "`cargo`";
        /// Set, to whatever value: no colours in tables.
        NO_COLOR: "any" => "colours on a terminal", read by ["xtask", "aie-ggml-cli"];
    }
}
