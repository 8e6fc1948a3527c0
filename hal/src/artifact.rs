//! A compiled kernel: PDI, instruction stream and what is known of them.
use std::sync::Arc;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// A kernel's parts are malformed or do not fit each other.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum ArtifactError {}

/// SHA-256.
pub type Digest = [u8; 32];

/// A compiled kernel. Cheap to clone, immutable, thread-safe.
#[derive(Debug, Clone)]
pub struct KernelArtifact {
    name: Arc<str>,
    arch: Arc<str>,
    pdi: Arc<[u8]>,
    instructions: Arc<[u8]>,
    argument_count: usize,
    digest: Digest,
}

impl KernelArtifact {
    /// Kernel name.
    pub fn name(&self) -> &str { &self.name }
    /// Generation it is for.
    pub fn arch(&self) -> &str { &self.arch }
    /// PDI bytes.
    pub fn pdi(&self) -> &[u8] { &self.pdi }
    /// Instruction stream bytes.
    pub fn instructions(&self) -> &[u8] { &self.instructions }
    /// Arguments: sources, then the output.
    pub fn argument_count(&self) -> usize { self.argument_count }
    /// SHA-256 of the PDI; contexts count distinct PDIs by it.
    pub fn digest(&self) -> &Digest { &self.digest }
}
#[allow(dead_code)]
fn digest(bytes: &[u8]) -> Digest { Sha256::digest(bytes).into() }
