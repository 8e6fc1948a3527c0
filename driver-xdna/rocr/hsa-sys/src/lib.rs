//! The part of AMD's HSA runtime (ROCR, `libhsa-runtime64.so`) that a driver for AIE agents needs: types, constants and
//! a table of functions that is filled when the library is loaded.
//!
//! Names are those of the C headers `hsa.h` and `hsa_ext_amd.h` of ROCR 7.2, so that AMD's documentation applies
//! unchanged. Nothing links to the library: a program with this crate starts on machines without ROCR, and
//! [`HsaApi::load`] takes a library the caller has found and opened.
//!
//! C enumerations are newtypes around `u32`, not Rust enums: a newer runtime may answer with a value this crate has no
//! name for, and that must be a number without a name, not undefined behaviour.
//!
//! ```
//! use hsa_sys::{HSA_STATUS_ERROR_INVALID_AGENT, hsa_status_t};
//!
//! assert_eq!(HSA_STATUS_ERROR_INVALID_AGENT.to_string(), "HSA_STATUS_ERROR_INVALID_AGENT");
//! assert_eq!(hsa_status_t(0x7777).to_string(), "hsa_status_t(0x7777)");
//! assert_eq!(hsa_status_t(0x7777).name(), None);
//! ```
//!
//! Every declaration is also an entry of a table in [`layout`], made by the same macro. `cargo xtask hsa-headers`
//! compares the tables with the real headers.
//!
//! Source of the facts unless an item says otherwise: the headers of ROCR 7.2.4, AMD extension interface 1.15.

#![allow(non_camel_case_types, non_snake_case)] // the names of the C headers

#[macro_use]
mod declare;

mod agent;
mod api;
mod declaration;
pub mod layout;
mod memory;
mod packet;
mod queue;
mod signal;
mod status;

pub use agent::*;
pub use api::{HsaApi, MissingSymbols};
pub use memory::*;
pub use packet::*;
pub use queue::*;
pub use signal::*;
pub use status::*;
