//! The boundary to ggml: its structures, its functions, and the functions it calls.
//!
//! ggml has no stable ABI for backends, so the structures are written down for each of the three layouts that exist
//! ([`layout`]), and the loaded one is recognised by its symbols. Enumerations are resolved by name ([`names`]).
//! `unsafe` is confined to this folder and [`crate::memory::host_memory`]; what ggml promises is stated at each block. Every function
//! that ggml calls runs under [`guard::guard`].

pub mod backend;
pub mod buffer;
pub mod device;
pub mod entry;
pub mod event;
pub mod graph;
pub mod guard;
mod layers;
pub mod layout;
pub mod names;
pub mod registry;
mod self_check;
pub mod symbols;
pub mod types;

use names::Names;
use std::sync::OnceLock;
use symbols::{GgmlError, Symbols};

/// The ggml in this process.
pub struct Ggml {
    /// Its functions.
    pub symbols: &'static Symbols,
    /// Its numbers.
    pub names: Names,
    /// Whether nodes to compute carry a flag.
    pub has_compute_flag: bool,
}

static GGML: OnceLock<Result<Ggml, GgmlError>> = OnceLock::new();

/// The ggml in this process, examined once.
///
/// # Errors
/// What is missing.
pub fn ggml() -> Result<&'static Ggml, &'static GgmlError> {
    let examine = || {
        let symbols = symbols::symbols().map_err(Clone::clone)?;
        let names = Names::new(|index| symbols.op_name(index))?;
        Ok(Ggml { symbols, names, has_compute_flag: symbols.layout.has_compute_flag(symbols.version) })
    };
    GGML.get_or_init(examine).as_ref()
}
