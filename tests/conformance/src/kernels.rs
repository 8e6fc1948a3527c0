//! Small kernels whose results are easy to tell apart, as artifacts, host functions and an executor.
//!
//! An artifact of this crate is a valid PDI that carries the kernel's description (`add8 3`) in NOP payloads, and an
//! instruction stream with the right number of arguments. A simulated device runs it through [`TestExecutor`]. Two different
//! descriptions are two different PDIs, so a case can have as many distinct PDIs as it wants.

use aie_hal::artifact::ArtifactError;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{InstructionWriter, Transfer};
use aie_hal::format::pdi::Pdi;
use aie_hal::format::reference;
use aie_hal::{Arch, HostFunction, HostFunctionError, KernelArtifact, KernelExecutor, host_function};
use std::fmt::{Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

/// A kernel of the suite. Each reads its sources from the first byte on; source and output lengths are equal unless said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestKernel {
    /// `add8 K`: every byte plus K, wrapping.
    Add8(u8),
    /// `copy ID`: the source; ID only makes the PDI a different one.
    Copy(u32),
    /// `constant K`: no source, every byte K.
    Constant(u8),
    /// `reverse`: the source's bytes backwards.
    Reverse,
    /// `concat`: the bytes of two sources one after the other.
    Concat,
    /// `mix N`: the sum over N sources of (index + 1) times the byte, wrapping.
    Mix(usize),
    /// `even`: the source's even bytes; the odd bytes of the output are not written.
    Even,
    /// `pause MS`: waits, then copies the source.
    Pause(u64),
    /// `fail`: writes nothing and fails.
    Fail,
}

/// Text of the failure that [`TestKernel::Fail`] reports.
pub const FAILURE: &str = "this kernel always fails";

impl Display for TestKernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Add8(k) => write!(f, "add8 {k}"),
            Self::Copy(id) => write!(f, "copy {id}"),
            Self::Constant(k) => write!(f, "constant {k}"),
            Self::Reverse => f.write_str("reverse"),
            Self::Concat => f.write_str("concat"),
            Self::Mix(n) => write!(f, "mix {n}"),
            Self::Even => f.write_str("even"),
            Self::Pause(ms) => write!(f, "pause {ms}"),
            Self::Fail => f.write_str("fail"),
        }
    }
}

impl TestKernel {
    /// Reads a description; `None` when it is not one of this crate.
    pub fn parse(description: &str) -> Option<Self> {
        let (name, parameter) = description.split_once(' ').unwrap_or((description, ""));
        Some(match name {
            "add8" => Self::Add8(parameter.parse().ok()?),
            "copy" => Self::Copy(parameter.parse().ok()?),
            "constant" => Self::Constant(parameter.parse().ok()?),
            "reverse" => Self::Reverse,
            "concat" => Self::Concat,
            "mix" => Self::Mix(parameter.parse().ok()?),
            "even" => Self::Even,
            "pause" => Self::Pause(parameter.parse().ok()?),
            "fail" => Self::Fail,
            _ => return None,
        })
    }

    /// Sources the kernel reads.
    pub fn sources(&self) -> usize {
        match self {
            Self::Constant(_) => 0,
            Self::Concat => 2,
            Self::Mix(n) => *n,
            _ => 1,
        }
    }

    /// The kernel as a host function or as what a simulated device runs.
    pub fn kernel(&self) -> Arc<dyn HostFunction> {
        let kernel = self.clone();
        host_function::from_fn(self.to_string(), self.sources(), move |inputs, output| kernel.compute(inputs, output))
    }

    /// The kernel's artifact for `arch`.
    pub fn artifact(&self, arch: &Arch) -> KernelArtifact {
        let name = self.to_string().replace(' ', "_");
        let pdi = reference::wrap(self.to_string().as_bytes()).expect("a short description fits a PDI");
        artifact(&name, arch, pdi, self.sources() + 1).expect("the writers write what the readers read")
    }

    fn compute(&self, inputs: &[&[u8]], output: &mut [u8]) -> Result<(), HostFunctionError> {
        let total: usize = inputs.iter().map(|input| input.len()).sum();
        let fits = match self {
            Self::Concat => total == output.len(),
            _ => inputs.iter().all(|input| input.len() == output.len()),
        };
        if inputs.len() != self.sources() || !fits {
            let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
            let reason = format!("sources of {lengths:?} bytes do not fit an output of {} bytes", output.len());
            return Err(HostFunctionError::Arguments { kernel: self.to_string(), reason });
        }
        match self {
            Self::Add8(k) => output.iter_mut().zip(inputs[0]).for_each(|(o, i)| *o = i.wrapping_add(*k)),
            Self::Copy(_) => output.copy_from_slice(inputs[0]),
            Self::Constant(k) => output.fill(*k),
            Self::Reverse => output.iter_mut().zip(inputs[0].iter().rev()).for_each(|(o, i)| *o = *i),
            Self::Concat => {
                let (first, second) = output.split_at_mut(inputs[0].len());
                first.copy_from_slice(inputs[0]);
                second.copy_from_slice(inputs[1]);
            }
            Self::Mix(_) => {
                output.fill(0);
                for (input, factor) in inputs.iter().zip(1u8..) {
                    let add = |(o, i): (&mut u8, &u8)| *o = o.wrapping_add(i.wrapping_mul(factor));
                    output.iter_mut().zip(*input).for_each(add);
                }
            }
            Self::Even => output.iter_mut().zip(inputs[0]).step_by(2).for_each(|(o, i)| *o = *i),
            Self::Pause(ms) => {
                std::thread::sleep(Duration::from_millis(*ms));
                output.copy_from_slice(inputs[0]);
            }
            Self::Fail => return Err(HostFunctionError::Data { kernel: self.to_string(), reason: FAILURE.into() }),
        }
        Ok(())
    }
}

/// Runs the artifacts of this crate on a simulated device.
#[derive(Debug, Clone, Copy, Default)]
pub struct TestExecutor;

impl KernelExecutor for TestExecutor {
    fn prepare(&self, artifact: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError> {
        let reject = |reason: String| HostFunctionError::NotExecutable(format!("`{}`: {reason}", artifact.name()));
        let pdi = Pdi::parse(artifact.pdi()).map_err(|e| reject(e.to_string()))?;
        let description = reference::extract(&pdi.cdo()).map_err(|e| reject(e.to_string()))?;
        let description = description.ok_or_else(|| reject("its PDI carries no description".into()))?;
        let text = std::str::from_utf8(&description).map_err(|e| reject(e.to_string()))?;
        let kernel = TestKernel::parse(text).ok_or_else(|| reject(format!("no kernel is called `{text}`")))?;
        Ok(kernel.kernel())
    }
}

/// An artifact of any PDI with `arguments` arguments: each source goes through a shim DMA channel into the array, and the
/// output out of it with a completion token.
///
/// # Errors
/// When the PDI is not valid.
pub fn artifact(name: &str, arch: &Arch, pdi: Vec<u8>, arguments: usize) -> Result<KernelArtifact, ArtifactError> {
    KernelArtifact::new(name, arch.name.as_str(), arch.dev_gen, pdi, instructions(arch, arguments))
}

/// The instruction stream of [`artifact`].
pub fn instructions(arch: &Arch, arguments: usize) -> Vec<u8> {
    let mut writer = InstructionWriter::new(arch.stream_header(arch.array.columns));
    for index in 0..arguments {
        let output = index + 1 == arguments;
        let direction = if output { Direction::StreamToMemory } else { Direction::MemoryToStream };
        let transfer = Transfer {
            column: (index / 4 % arch.array.columns) as u8,
            direction,
            channel: (index % 2) as u8,
            descriptor: (index % arch.shim.dma.bds) as u8,
            shape: ShimBd::linear(64, 2),
            argument: index as u16,
            offset: 0,
            repeat: 0,
            token: output,
        };
        writer.transfer(&transfer).expect("a linear transfer fits a buffer descriptor");
        if output {
            writer.wait(&transfer);
        }
    }
    writer.finish().expect("a short stream")
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;

    fn all() -> Vec<TestKernel> {
        use TestKernel::*;
        vec![Add8(3), Copy(99), Constant(1), Reverse, Concat, Mix(4), Even, Pause(0), Fail]
    }

    #[test]
    fn artifacts_run_as_the_kernel_they_describe() {
        let registry = ArchRegistry::builtin();
        for name in registry.names() {
            let arch = registry.get(name).expect("a listed generation");
            for kernel in all() {
                let artifact = kernel.artifact(&arch);
                assert_eq!(artifact.argument_count(), kernel.sources() + 1, "{kernel}");
                assert!(artifact.has_completion_token(), "{kernel}");
                let prepared = TestExecutor.prepare(&artifact).expect("a kernel of the suite");
                assert_eq!((prepared.name(), prepared.input_count()), (&*kernel.to_string(), kernel.sources()));
                assert_eq!(TestKernel::parse(prepared.name()), Some(kernel));
            }
        }
    }

    #[test]
    fn different_kernels_are_different_pdis() {
        let registry = ArchRegistry::builtin();
        let arch = registry.get("aie2p").expect("a generation that is built in");
        let digests: std::collections::HashSet<_> =
            (0..1000).map(|id| *TestKernel::Copy(id).artifact(&arch).digest()).collect();
        assert_eq!(digests.len(), 1000);
    }

    #[test]
    fn lengths_that_do_not_fit_are_errors() {
        for kernel in all() {
            let sources = vec![&[0u8; 8][..]; kernel.sources()];
            let fits = kernel.sources() == 0;
            let found = kernel.kernel().run(&sources, &mut [0; 9]);
            assert_eq!(matches!(found, Err(HostFunctionError::Arguments { .. })), !fits, "{kernel}: {found:?}");
        }
    }
}
