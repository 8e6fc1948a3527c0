//! What the command processor gets for a decoded token, by the files of its kernels: nothing is executed.

use crate::model::{Model, Order};
use aie_hal::{Arch, KernelArtifact};
use aie_jit_native::NativeCompiler;
use aie_jit_native::kit::NativeError;
use serde::Serialize;
use std::collections::HashSet;

/// Counts of a decoded token. The host decodes the row of the embedding (GET_ROWS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Operations of the instruction streams.
    pub operations: u64,
    /// The same with a block write once for every eight words, by which their time is reckoned.
    pub charged_operations: u64,
    /// Kernels, each a dispatch if nothing is joined.
    pub kernels: u64,
    /// Dispatches that neighbours with one PDI are joined to.
    pub dispatches: u64,
    /// Configurations of the array.
    pub pdis: u64,
    /// Hardware contexts that hold these.
    pub contexts: u64,
}

impl Counted {
    /// Counts those of a token with so many keys in front of it.
    ///
    /// # Errors
    /// When there is no kernel for a node.
    pub fn of(model: &Model, keys: usize, compiler: &NativeCompiler, arch: &Arch) -> Result<Self, NativeError> {
        let (mut found, mut pdis, mut artifacts) = (Self::default(), HashSet::new(), Vec::new());
        for kernel in model.kernels(keys) {
            artifacts.push(compiler.build(&(kernel.node)(kernel.size, 1), arch)?);
        }
        let token: Vec<&KernelArtifact> =
            Order::token(model.layers as usize).into_iter().map(|kernel| &artifacts[kernel]).collect();
        for artifact in &token {
            found.operations += artifact.operation_count() as u64;
            found.charged_operations += artifact.charged_operations();
            pdis.insert(*artifact.digest());
        }
        found.kernels = token.len() as u64;
        found.dispatches = token.chunk_by(|a, b| a.digest() == b.digest()).count() as u64;
        found.pdis = pdis.len() as u64;
        found.contexts = found.pdis.div_ceil(arch.limits.pdis_per_context as u64);
        Ok(found)
    }
}
