//! The environment variable of this crate.

crate::settings! {
    prefix "AIE_HAL";

    section "Devices" {
        /// Where arch files of further generations are. A file wins over a built-in generation of its name.
        AIE_HAL_ARCH_PATH: "directories of `*.toml`, separated by colons" => "none";
    }
}
