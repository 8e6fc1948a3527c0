//! Why there is no kernel.

use aie_hal::artifact::ArtifactError;
use thiserror::Error;

/// Why a node has no native kernel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NativeError {
    /// No family has the operation.
    #[error("{op}: no native family has this operation")]
    NoFamily {
        /// ggml's description.
        op: String,
    },
    /// The family does not take this node: type, shape, strides or parameter.
    #[error("{op} ({family}): {reason}")]
    Unsupported {
        /// The family.
        family: &'static str,
        /// ggml's description.
        op: String,
        /// What it does not take, with numbers, and what it would.
        reason: String,
    },
    /// The family has no program for this generation.
    #[error("{family}: no program for {arch}")]
    Generation {
        /// The family.
        family: &'static str,
        /// Name of the arch file.
        arch: String,
    },
    /// Something that should always work did not: the program, the array or the artifact was rejected by the layer that makes it.
    #[error("{family}: {reason}")]
    Failed {
        /// The family.
        family: &'static str,
        /// What that layer says.
        reason: String,
    },
    /// PDI and stream do not make an artifact.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}
