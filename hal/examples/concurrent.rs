//! Many dispatches on several devices from one thread, which awaits them: `concurrent [URI]...`.
//!
//! ```sh
//! cargo run -p aie-hal-examples --example concurrent -- mock:aie2 mock:aie2p
//! ```
//!
//! Each device adds pairs of vectors; results are taken in the order in which they are ready. The kernel describes itself, so the devices
//! have to be simulated. The example also shows how a wait ends early: one is given up as soon as another has ended, and one has a time
//! limit. Neither ends the work it waited for.
#![forbid(unsafe_code)]

use aie_driver_mock::MockDriver;
use aie_hal::validation::wrap_driver;
use aie_hal::{
    Buffer, BufferParams, BufferRef, CommandList, Device, DriverRegistry, Queue, Submission, TimelinePoint, WaitError,
    block_on,
};
use aie_ops::artifact::reference_artifact;
use aie_ops::{DataType, Node, OpParams, ReferenceExecutor, Tensor, table};
use futures::StreamExt as _;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Dispatches on each device.
const DISPATCHES: usize = 16;
/// Elements of a vector.
const ELEMENTS: usize = 1024;
/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut uris: Vec<String> = std::env::args().skip(1).collect();
    if uris.is_empty() {
        uris = ["mock:aie2", "mock:aie2p"].map(str::to_owned).into();
    }
    match run(&uris) {
        Ok(sums) => {
            println!("{} dispatches on {} devices, the sums are right", sums.len(), uris.len());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One dispatch: where its result will be, and when.
struct Sum {
    number: usize,
    result: Arc<dyn Buffer>,
    done: TimelinePoint,
}

impl Sum {
    /// Submits the sum of two vectors of `number`, to start when all of `waits` are reached. Nothing blocks here.
    fn submit(
        device: &Arc<dyn Device>,
        queue: &Arc<dyn Queue>,
        number: usize,
        waits: Vec<TimelinePoint>,
    ) -> Result<Self, Box<dyn Error>> {
        let op = table::lookup("ADD").ok_or("no such operation")?;
        let tensor = Tensor::contiguous(DataType::F32, [ELEMENTS, 1, 1, 1]);
        let node = Node::new(op.name(), OpParams::default(), tensor, vec![Some(tensor); 2]);
        let kernel = device.load_executable(&reference_artifact(op, &node, device.arch())?)?;

        let bytes: Vec<u8> = [(number as f32).to_le_bytes(); ELEMENTS].concat();
        let [source, result] = [&bytes, &vec![0; bytes.len()]].map(|content| {
            let buffer = device.allocate(&BufferParams::data(content.len()))?;
            buffer.write(0, content)?;
            buffer.flush(0..content.len())?;
            Ok::<_, aie_hal::DeviceError>(buffer)
        });
        let (source, result) = (source?, result?);
        let mut list = CommandList::builder();
        list.dispatch(
            &kernel,
            [&source, &source, &result].map(|buffer| BufferRef::direct(buffer, 0, buffer.size())).to_vec(),
        )?;

        let done = TimelinePoint { semaphore: device.create_semaphore(0)?, value: 1 };
        let (commands, signals) = (Some(Arc::new(list.finish())), vec![done.clone()]);
        queue.submit(Submission { waits, commands, signals, ..Submission::default() })?;
        Ok(Self { number, result, done })
    }

    /// Its number and the first element of its result, when it is there.
    async fn first(&self) -> Result<(usize, f32), Box<dyn Error>> {
        self.done.semaphore.wait(self.done.value).await?;
        let mut bytes = [0; 4];
        self.result.invalidate(0..4)?;
        self.result.read(0, &mut bytes)?;
        Ok((self.number, f32::from_le_bytes(bytes)))
    }
}

/// Adds on all devices at once; returns number and sum of each dispatch, in the order in which they ended.
fn run(uris: &[String]) -> Result<Vec<(usize, f32)>, Box<dyn Error>> {
    let mut drivers = DriverRegistry::new();
    drivers.register(wrap_driver(Arc::new(MockDriver::new(Arc::new(ReferenceExecutor)))));
    let mut devices: Vec<(Arc<dyn Device>, Arc<dyn Queue>)> = Vec::new();
    for uri in uris {
        for device in drivers.open(uri)? {
            let queue = device.create_queue()?;
            devices.push((device, queue));
        }
    }

    let mut sums = Vec::new();
    for number in 0..DISPATCHES * devices.len() {
        let (device, queue) = &devices[number % devices.len()];
        sums.push(Sum::submit(device, queue, number, Vec::new())?);
    }
    // All are awaited together. The time limit is that of the whole: what is not done then is not cancelled.
    let collect = async {
        let mut ends: FuturesUnordered<_> = sums.iter().map(Sum::first).collect();
        let mut found = Vec::new();
        while let Some(end) = ends.next().await {
            let (number, sum) = end?;
            if sum != 2.0 * number as f32 {
                return Err(format!("dispatch {number} gave {sum}").into());
            }
            found.push((number, sum));
        }
        Ok::<_, Box<dyn Error>>(found)
    };
    let found = block_on(collect, Some(LIMIT)).ok_or(format!("not all was done in {LIMIT:?}"))??;
    block_on(give_up(&devices[0]), Some(LIMIT)).ok_or("giving up took too long")??;
    Ok(found)
}

/// Waits that end early: one because another ended first, one because its time was up. The work goes on.
async fn give_up((device, queue): &(Arc<dyn Device>, Arc<dyn Queue>)) -> Result<(), Box<dyn Error>> {
    // It cannot start before the gate is opened.
    let gate = device.create_semaphore(0)?;
    let held = Sum::submit(device, queue, 1, vec![TimelinePoint { semaphore: Arc::clone(&gate), value: 1 }])?;
    let free = Sum::submit(device, queue, 2, Vec::new())?;
    match select(Box::pin(held.first()), Box::pin(free.first())).await {
        // The other wait is dropped here, and with it what it had registered at the semaphore.
        Either::Right((end, _)) => drop(end?),
        Either::Left(_) => return Err("work ended before what it waits for".into()),
    }
    let soon = Duration::from_millis(10);
    match held.done.semaphore.wait_blocking(held.done.value, Some(soon)) {
        Err(WaitError::Timeout { .. }) => {}
        other => return Err(format!("expected that {soon:?} pass, found: {other:?}").into()),
    }
    gate.signal(1)?;
    match held.first().await? {
        (1, 2.0) => Ok(()),
        (_, sum) => Err(format!("the dispatch that was given up gave {sum}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_generations_add_at_the_same_time() {
        let mut found = run(&["mock:aie2".into(), "mock:aie2p?devices=2".into()]).unwrap();
        found.sort_by_key(|(number, _)| *number);
        let expected: Vec<(usize, f32)> = (0..3 * DISPATCHES).map(|number| (number, 2.0 * number as f32)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_cannot_be_opened_is_an_error() {
        let error = run(&["mock:aie9".into()]).unwrap_err().to_string();
        assert!(error.contains("aie9"), "{error}");
    }
}
