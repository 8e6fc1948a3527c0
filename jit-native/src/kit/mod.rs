//! The kit of kernel authors: what families share.
//!
//! A [`Family`] makes kernels of the nodes of some operations. It names [`Case`]s, small nodes that it has to get right on an NPU
//! before its kernels are used there, and says with a [`NativeError`] why it does not take a node.

mod case;
pub(crate) mod cost;
mod error;
mod family;

pub use case::{Case, Exactness, Input, Material};
pub use error::{ConfigureError, NativeError};
#[cfg(test)]
pub(crate) use family::spread;
pub use family::{Family, build, families_of, isa_for};
