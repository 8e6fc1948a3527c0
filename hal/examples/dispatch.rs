//! Runs one kernel on one device: `dispatch URI KERNEL.pdi KERNEL_insts.bin`.
//!
//! ```sh
//! cargo run -p aie-hal-examples --example dispatch -- mock:aie2p add.pdi add_insts.bin
//! cargo run -p aie-hal-examples --example dispatch -- xdna:0 add.pdi add_insts.bin
//! ```
//!
//! Everything that the kernel reads is filled with the bytes 0, 1, 2, ...; what it writes is printed. Kernels for a simulated
//! device (`mock`) are made with `ggml-hsa-gen-kernels --compiler reference`.
#![forbid(unsafe_code)]

use aie_driver_mock::MockDriver;
use aie_driver_rocr::Rocr;
use aie_driver_xdna::XdnaDriver;
use aie_hal::validation::wrap_driver;
use aie_hal::{
    ArchRegistry, Buffer, BufferParams, BufferRef, CommandList, Device, Driver, DriverRegistry, KernelArtifact,
    Submission, TimelinePoint,
};
use aie_ops::ReferenceExecutor;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [uri, pdi, instructions] = &arguments[..] else {
        eprintln!("usage: dispatch URI KERNEL.pdi KERNEL_insts.bin");
        return ExitCode::from(2);
    };
    match futures::executor::block_on(run(uri, Path::new(pdi), Path::new(instructions))) {
        Ok(outputs) => {
            for (argument, bytes) in outputs {
                println!("argument {argument}: {} bytes: {:02x?}", bytes.len(), &bytes[..bytes.len().min(16)]);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The drivers of this program. The validation layer in front of each turns mistakes of this program into errors.
fn drivers() -> DriverRegistry {
    let (arches, _) = ArchRegistry::from_environment();
    let xdna = XdnaDriver::new(arches.clone()).with_runtime(Rocr::default());
    let mock = MockDriver::new(Arc::new(ReferenceExecutor)).with_registry(arches);
    let mut registry = DriverRegistry::new();
    registry.register(wrap_driver(Arc::new(xdna) as Arc<dyn Driver>));
    registry.register(wrap_driver(Arc::new(mock)));
    registry
}

/// Opens the device, loads the kernel, dispatches it once, and reads what it wrote: argument and bytes.
async fn run(uri: &str, pdi: &Path, instructions: &Path) -> Result<Vec<(usize, Vec<u8>)>, Box<dyn Error>> {
    let device: Arc<dyn Device> = drivers().open(uri)?.swap_remove(0);
    let artifact = KernelArtifact::from_files(device.arch(), pdi, instructions)?;
    let kernel = device.load_executable(&artifact)?;

    // How large the arguments are, and which are written, follows from the kernel's two files.
    let extents = artifact.argument_extents()?;
    let mut buffers: Vec<Arc<dyn Buffer>> = Vec::new();
    for extent in &extents {
        let ends = [&extent.read, &extent.written].map(|extent| extent.as_ref().map_or(4, |extent| extent.range.end));
        let size = usize::try_from(ends[0].max(ends[1]))?;
        let buffer = device.allocate(&BufferParams::data(size))?;
        if extent.read.is_some() {
            let bytes: Vec<u8> = (0..size).map(|index| index as u8).collect();
            buffer.write(0, &bytes)?;
            // The device need not see what the host wrote before this.
            buffer.flush(0..size)?;
        }
        buffers.push(buffer);
    }

    // Recorded once, a command list can be submitted many times.
    let mut list = CommandList::builder();
    let arguments = buffers.iter().map(|buffer| BufferRef::direct(buffer, 0, buffer.size())).collect();
    let outputs = extents.iter().filter(|extent| extent.written.is_some()).count();
    list.dispatch_outputs(&kernel, arguments, outputs)?;
    let commands = Some(Arc::new(list.finish()));

    let queue = device.create_queue()?;
    let done = device.create_semaphore(0)?;
    let signals = vec![TimelinePoint { semaphore: Arc::clone(&done), value: 1 }];
    queue.submit(Submission { commands, signals, ..Submission::default() })?;
    // No thread is blocked while the device works. A failed dispatch fails the semaphore with its cause.
    done.wait(1).await?;

    let mut written = Vec::new();
    for (index, buffer) in buffers.iter().enumerate().filter(|(index, _)| extents[*index].written.is_some()) {
        let mut bytes = vec![0; buffer.size()];
        buffer.invalidate(0..bytes.len())?;
        buffer.read(0, &mut bytes)?;
        written.push((index, bytes));
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::artifact::reference_artifact;
    use aie_ops::node::{Node, OpParams};
    use aie_ops::table;
    use aie_ops::tensor::{DataType, Tensor};
    use std::fs;

    /// The files of a kernel that adds two vectors of four f32.
    fn files(folder: &Path) -> [std::path::PathBuf; 2] {
        let tensor = Tensor::contiguous(DataType::F32, [4, 1, 1, 1]);
        let node = Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2]);
        let arch = ArchRegistry::builtin().get("aie2p").unwrap();
        let artifact = reference_artifact(table::lookup("ADD").unwrap(), &node, &arch).unwrap();
        let files = [".pdi", "_insts.bin"].map(|ending| folder.join(format!("{}{ending}", artifact.name())));
        fs::write(&files[0], artifact.pdi()).unwrap();
        fs::write(&files[1], artifact.instructions()).unwrap();
        files
    }

    #[test]
    fn a_kernel_runs_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let [pdi, instructions] = files(folder.path());
        let outputs = futures::executor::block_on(run("mock:aie2p", &pdi, &instructions)).unwrap();
        let read: Vec<u8> = (0..16).collect();
        let (values, _) = read.as_chunks();
        let doubled: Vec<u8> =
            values.iter().flat_map(|value| (2.0 * f32::from_le_bytes(*value)).to_le_bytes()).collect();
        assert_eq!(outputs, [(2, doubled)]);
    }

    #[test]
    fn what_cannot_be_opened_is_an_error() {
        let missing = Path::new("/nonexistent/add.pdi");
        let error = futures::executor::block_on(run("mock:aie2p", missing, missing)).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/add.pdi cannot be read"), "{error}");
        assert!(futures::executor::block_on(run("nothing:0", missing, missing)).is_err());
    }
}
