//! Why there is no kernel.

use crate::array::ArrayError;
use crate::codegen::CoreError;
use aie_hal::artifact::ArtifactError;
use aie_ops::Node;
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
    /// The family has no program for the instruction set of this generation.
    #[error("{family}: no program for {arch}; possible: the instruction sets {possible}")]
    Generation {
        /// The family.
        family: &'static str,
        /// Name of the arch file.
        arch: String,
        /// The instruction sets that it has programs for.
        possible: String,
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

/// Why the array of a family could not be configured.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigureError {
    /// The program of its cores cannot be made.
    #[error("the core's program: {0}")]
    Core(#[from] CoreError),
    /// The array does not take it.
    #[error("the array: {0}")]
    Array(#[from] ArrayError),
}

impl NativeError {
    /// That a family does not take a node: `reason` says what, with numbers, and what it would take.
    pub fn unsupported(family: &'static str, node: &Node, reason: impl Into<String>) -> Self {
        Self::Unsupported { family, op: node.op.clone(), reason: reason.into() }
    }

    /// That a layer below a family did not work.
    pub fn failed(family: &'static str, reason: impl ToString) -> Self {
        Self::Failed { family, reason: reason.to_string() }
    }
}
