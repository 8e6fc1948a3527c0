//! Instruction streams, and operations with a right header.
#![no_main]

use aie_hal::{artifact, format};

#[path = "../properties.rs"]
#[allow(dead_code, reason = "each target uses its own property")]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::instructions(bytes));
