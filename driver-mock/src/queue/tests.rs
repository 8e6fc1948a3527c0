use crate::rig::{Add, LONG, Rig};
use aie_hal::command_list::{BufferRef, CommandList};
use aie_hal::queue::{Submission, TimelinePoint};
use aie_hal::{Buffer, DeviceError, HostFunction, HostFunctionError, Queue, Semaphore, SubmitError, WaitError};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

fn point(semaphore: &Arc<dyn Semaphore>, value: u64) -> TimelinePoint {
    TimelinePoint { semaphore: Arc::clone(semaphore), value }
}

/// A host call that writes down its number.
#[derive(Debug)]
struct Note(u8, Arc<Mutex<Vec<u8>>>);

impl HostFunction for Note {
    fn name(&self) -> &str {
        "note"
    }

    fn input_count(&self) -> usize {
        0
    }

    fn run(&self, _: &[&[u8]], _: &mut [u8]) -> Result<(), HostFunctionError> {
        self.1.lock().unwrap().push(self.0);
        Ok(())
    }
}

/// A host call that says that it runs and then waits to be let go.
#[derive(Debug)]
struct Gate(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>);

impl HostFunction for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    fn input_count(&self) -> usize {
        0
    }

    fn run(&self, _: &[&[u8]], _: &mut [u8]) -> Result<(), HostFunctionError> {
        self.0.send(()).unwrap();
        self.1.lock().unwrap().recv().unwrap();
        Ok(())
    }
}

fn call(buffer: &Arc<dyn Buffer>, function: impl HostFunction + 'static) -> Option<Arc<CommandList>> {
    let mut list = CommandList::builder();
    let function: Arc<dyn HostFunction> = Arc::new(function);
    list.host_call(&function, vec![], BufferRef::direct(buffer, 0, 1)).unwrap();
    Some(Arc::new(list.finish()))
}

#[test]
fn a_waiting_submission_does_not_hold_up_later_ones() {
    let rig = Rig::new("mock");
    let (buffer, notes) = (rig.buffer(&[0]), Arc::default());
    let (start, done) = (rig.device.create_semaphore(0).unwrap(), rig.device.create_semaphore(0).unwrap());
    let submit = |number, waits, signals| {
        let commands = call(&buffer, Note(number, Arc::clone(&notes)));
        rig.queue.submit(Submission { waits, commands, signals, ..Submission::default() }).unwrap();
    };
    submit(1, vec![point(&start, 1)], vec![point(&done, 3)]);
    submit(2, vec![], vec![point(&done, 1)]);
    submit(3, vec![point(&done, 1)], vec![point(&done, 2)]);
    done.wait_blocking(2, LONG).unwrap();
    let error = rig.queue.wait_idle(Some(Duration::from_millis(5))).unwrap_err();
    assert!(matches!(&error, DeviceError::Timeout(text) if text.contains("1 submissions are pending")), "{error}");
    start.signal(1).unwrap();
    rig.queue.wait_idle(LONG).unwrap();
    assert_eq!(done.query(), Ok(3));
    assert_eq!(*notes.lock().unwrap(), [2, 3, 1]);
}

#[test]
fn a_failed_wait_fails_at_once_with_the_same_cause() {
    let rig = Rig::new("mock");
    let [never, failing, done] = [(); 3].map(|()| rig.device.create_semaphore(0).unwrap());
    let waits = vec![point(&never, 1), point(&failing, 1)];
    rig.queue.submit(Submission { waits, signals: vec![point(&done, 1)], ..Submission::default() }).unwrap();
    let cause = Arc::new(DeviceError::Execution("first".into()));
    failing.fail(Arc::clone(&cause));
    assert_eq!(done.wait_blocking(1, LONG), Err(WaitError::Failed(cause)));
    rig.queue.wait_idle(LONG).unwrap();
}

#[test]
fn losing_the_device_wakes_submissions_that_wait() {
    let rig = Rig::new("mock?fault=lost@1");
    let [never, done] = [(); 2].map(|()| rig.device.create_semaphore(0).unwrap());
    let second = rig.device.create_queue().unwrap();
    let (waits, signals) = (vec![point(&never, 1)], vec![point(&done, 1)]);
    second.submit(Submission { waits, signals, ..Submission::default() }).unwrap();
    let lost = rig.repeat(&[rig.kernel(1, 1)], &rig.buffer(&[0])).unwrap_err();
    assert_eq!(done.wait_blocking(1, LONG), Err(WaitError::Failed(Arc::new(lost.clone()))));
    assert_eq!(second.wait_idle(LONG), Err(lost.clone()));
    assert_eq!(second.submit(Submission::default()), Err(SubmitError::Device(lost)));
}

#[test]
fn dropping_a_queue_waits_for_what_runs_and_fails_the_rest() {
    let rig = Rig::new("mock");
    let buffer = rig.buffer(&[0]);
    let queue = rig.device.create_queue().unwrap();
    let (running, runs) = mpsc::channel();
    let (let_go, gate) = mpsc::channel();
    let [never, first, second] = [(); 3].map(|()| rig.device.create_semaphore(0).unwrap());
    let commands = call(&buffer, Gate(running, Mutex::new(gate)));
    queue.submit(Submission { commands, signals: vec![point(&first, 1)], ..Submission::default() }).unwrap();
    let (waits, signals) = (vec![point(&never, 1)], vec![point(&second, 1)]);
    queue.submit(Submission { waits, signals, ..Submission::default() }).unwrap();
    runs.recv().unwrap();
    let dropping = std::thread::spawn(move || drop(queue));
    assert_eq!(first.query(), Ok(0));
    let_go.send(()).unwrap();
    dropping.join().unwrap();
    assert_eq!(first.query(), Ok(1));
    assert!(second.query().unwrap_err().to_string().contains("dropped before this submission started"));
    // A semaphore that outlives the queue can still be signalled.
    never.signal(1).unwrap();
}

#[test]
fn a_signal_that_does_not_increase_fails_its_semaphore() {
    let rig = Rig::new("mock");
    let semaphore = rig.device.create_semaphore(5).unwrap();
    rig.queue.submit(Submission { signals: vec![point(&semaphore, 5)], ..Submission::default() }).unwrap();
    rig.queue.wait_idle(LONG).unwrap();
    assert!(semaphore.query().unwrap_err().to_string().contains("semaphore is at 5"));
}

#[test]
fn queues_work_hand_in_hand() {
    let rig = Rig::new("mock");
    let other = rig.device.create_queue().unwrap();
    let buffer = rig.buffer(&[0]);
    let semaphore = rig.device.create_semaphore(0).unwrap();
    let function: Arc<dyn HostFunction> = Arc::new(Add { constant: 1, inputs: 1 });
    let mut list = CommandList::builder();
    let whole = BufferRef::direct(&buffer, 0, 1);
    list.host_call(&function, vec![whole.clone()], whole).unwrap();
    let commands = Some(Arc::new(list.finish()));
    for step in 0..200 {
        let queue: &Arc<dyn Queue> = if step % 2 == 0 { &rig.queue } else { &other };
        let waits = vec![point(&semaphore, step)];
        let signals = vec![point(&semaphore, step + 1)];
        queue.submit(Submission { waits, commands: commands.clone(), signals, ..Submission::default() }).unwrap();
    }
    semaphore.wait_blocking(200, LONG).unwrap();
    assert_eq!(rig.bytes(&buffer), [200]);
    futures::executor::block_on(other.idle()).unwrap();
    assert_eq!(rig.device.counters().submissions, 200);
}

#[test]
fn a_short_binding_table_is_refused() {
    let rig = Rig::new("mock");
    let mut list = CommandList::builder();
    list.fill(&[0], BufferRef::slot(1, 0, 4)).unwrap();
    let commands = Some(Arc::new(list.finish()));
    let refused = rig.queue.submit(Submission { commands, ..Submission::default() }).unwrap_err();
    assert_eq!(refused.to_string(), "binding table: the command list has 2 slots, 0 are bound");
}
