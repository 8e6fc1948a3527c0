//! What the command processor gets for a decoded token, by the streams that those of its kernels are joined to: nothing is executed. Which
//! kernels have an argument in common is not looked at, so that descriptors that repeat are counted.

use crate::model::{Model, Order};
use aie_hal::format::instructions::{ArgumentPlace, InstructionStream, JoinPart, join};
use aie_hal::{Arch, KernelArtifact};
use aie_jit_native::NativeCompiler;
use aie_jit_native::kit::NativeError;
use serde::Serialize;
use std::collections::HashSet;

/// Counts of a decoded token. The host decodes the row of the embedding (GET_ROWS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Operations of the joined instruction streams.
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
        for neighbours in token.chunk_by(|a, b| a.digest() == b.digest()) {
            let [operations, charged] = counts(neighbours);
            found.operations += operations;
            found.charged_operations += charged;
            found.dispatches += 1;
            pdis.insert(*neighbours[0].digest());
        }
        found.kernels = token.len() as u64;
        found.pdis = pdis.len() as u64;
        found.contexts = found.pdis.div_ceil(arch.limits.pdis_per_context as u64);
        Ok(found)
    }
}

/// Operations of the stream that those of neighbours become, also as they are charged; of all of them where that would be too long for one.
fn counts(neighbours: &[&KernelArtifact]) -> [u64; 2] {
    let mut next = 0;
    let places: Vec<Vec<ArgumentPlace>> = neighbours
        .iter()
        .map(|artifact| {
            let first = next;
            next += artifact.argument_count() as u16;
            (first..next).map(|argument| ArgumentPlace { argument, offset: 0 }).collect()
        })
        .collect();
    let parts = neighbours.iter().zip(&places).map(|(artifact, places)| {
        let stream = InstructionStream::parse(artifact.instructions()).ok()?;
        let (kept, is_replaceable) = (artifact.kept(), artifact.stream_maker().is_some());
        Some(JoinPart { stream, places, ahead: &[], kept, constant: &[], is_replaceable })
    });
    let parts: Option<Vec<JoinPart<'_>>> = parts.collect();
    let joined = parts.and_then(|parts| join(&parts).ok());
    let counted = joined.as_ref().and_then(|joined| InstructionStream::parse(&joined.bytes).ok());
    match counted {
        Some(stream) => [stream.operations().count() as u64, stream.charged_operations()],
        None => {
            let sum = |count: fn(&KernelArtifact) -> u64| neighbours.iter().map(|artifact| count(artifact)).sum();
            [sum(|artifact| artifact.operation_count() as u64), sum(KernelArtifact::charged_operations)]
        }
    }
}
