//! The same dispatches through the HAL and its driver for real NPUs.

use crate::rounds::{Measured, Rounds};
use crate::{BYTES, expected, kernel};
use aie_driver_rocr::Rocr;
use aie_driver_xdna::XdnaDriver;
use aie_hal::{
    ArchRegistry, BindingTable, Buffer, BufferParams, BufferRef, CommandList, DeviceUri, Driver, Submission,
    TimelinePoint,
};
use anyhow::{Context, Result, bail};
use std::sync::Arc;

/// Runs all rounds: one submission each, and a wait for its end.
pub fn run(uri: &str, rounds: &Rounds) -> Result<Measured> {
    let driver = XdnaDriver::new(ArchRegistry::builtin()).with_runtime(Rocr::default());
    let device = driver.open(&DeviceUri::parse(uri)?)?.into_iter().next().context("the URI names no device")?;
    let queue = device.create_queue()?;
    let executable = device.load_executable(&kernel(device.arch()))?;
    let buffers: [Arc<dyn Buffer>; 2] =
        [device.allocate(&BufferParams::data(BYTES))?, device.allocate(&BufferParams::data(BYTES))?];
    for buffer in &buffers {
        buffer.write(0, &[0; BYTES])?;
    }
    let whole = |index: usize| BufferRef::direct(&buffers[index % 2], 0, BYTES);
    // An odd number of dispatches ends in the other buffer: two lists in turn.
    let lists: Vec<Arc<CommandList>> = (0..2)
        .map(|first| {
            let mut list = CommandList::builder();
            for index in first..first + rounds.chain {
                list.dispatch(&executable, vec![whole(index), whole(index + 1)])?;
                list.barrier();
            }
            Ok(Arc::new(list.finish()))
        })
        .collect::<Result<_>>()?;
    let done = device.create_semaphore(0)?;
    let mut round = 0;
    let measured = rounds.run(|| {
        let commands = Some(Arc::clone(&lists[(round as usize * rounds.chain) % 2]));
        round += 1;
        let signals = vec![TimelinePoint { semaphore: Arc::clone(&done), value: round }];
        queue.submit(Submission { commands, bindings: BindingTable::default(), signals, ..Submission::default() })?;
        done.wait_blocking(round, None)?;
        Ok(())
    })?;
    let dispatches = rounds.dispatches();
    let mut result = [0; BYTES];
    buffers[0].read(0, &mut result)?;
    match result.iter().position(|byte| *byte != expected(dispatches)) {
        None => Ok(measured),
        Some(index) => bail!("byte {index} of the result is {}, expected {}", result[index], expected(dispatches)),
    }
}
