use super::*;
use crate::command_list::{BufferRef, CommandList};
use crate::queue::TimelinePoint;
use crate::semaphore::{Failure, Semaphore, TimelineSemaphore, WaitError};
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Longest wait of a test; reached only by a defect.
const LONG: Option<Duration> = Some(Duration::from_secs(30));

/// What the backend of the tests makes of a work, by its name.
type Script = Box<dyn Fn(&str) -> Outcome + Send + Sync>;

enum Outcome {
    Succeed,
    /// Fails, and leaves the rest of the batch.
    Fail,
    Panic,
    /// Drops the work.
    Drop,
    /// Leaves this work and the rest.
    Leave,
    /// Finishes the submissions of the batch from the back.
    Backwards,
    LoseDevice,
}

/// Writes down its batches. A work named `gate` says that it runs and waits to be released.
struct Recorder {
    batch_limit: usize,
    script: Script,
    batches: Mutex<Vec<Vec<String>>>,
    running: Mutex<Sender<()>>,
    gate: Mutex<Receiver<()>>,
    lost: OnceLock<DeviceError>,
    queues: Mutex<Vec<QueueHandle>>,
    submissions: AtomicUsize,
}

fn named(name: &str) -> Arc<CommandList> {
    let list = CommandList::builder().finish();
    list.derived(|| name.to_owned()).unwrap();
    Arc::new(list)
}

fn name(work: &InFlight) -> String {
    work.list().map_or_else(|| "barrier".into(), |list| list.derived(String::new).unwrap().clone())
}

fn failure(name: &str) -> DeviceError {
    DeviceError::Execution(format!("{name} fails"))
}

impl QueueDevice for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }

    fn lost(&self) -> Option<DeviceError> {
        self.lost.get().cloned()
    }

    fn count_submission(&self) {
        self.submissions.fetch_add(1, Ordering::Relaxed);
    }
}

impl QueueBackend for Recorder {
    /// Batches since the last panic.
    type Scratch = usize;

    fn batch_limit(&self) -> usize {
        self.batch_limit
    }

    fn run(&self, _: &mut usize, batch: &mut VecDeque<InFlight>) {
        self.batches.lock().push(batch.iter().map(name).collect());
        while let Some(front) = batch.front() {
            let name = name(front);
            if name == "gate" {
                self.running.lock().send(()).unwrap();
                self.gate.lock().recv().unwrap();
            }
            let mut take = || batch.pop_front().unwrap();
            match (self.script)(&name) {
                Outcome::Succeed => take().finish(Ok(())),
                Outcome::Fail => return take().finish(Err(failure(&name))),
                Outcome::Panic => {
                    let _taken = take();
                    panic!("{name} panics");
                }
                Outcome::Drop => drop(take()),
                Outcome::Leave => return,
                Outcome::Backwards => batch.drain(..).rev().for_each(|work| work.finish(Ok(()))),
                Outcome::LoseDevice => {
                    let lost = self.lost.get_or_init(|| DeviceError::Lost("as scripted".into())).clone();
                    let queues = self.queues.lock().clone();
                    queues.iter().for_each(QueueHandle::wake);
                    return take().finish(Err(lost));
                }
            }
        }
    }
}

struct Rig {
    backend: Arc<Recorder>,
    queue: SubmissionQueue,
    runs: Receiver<()>,
    release: Sender<()>,
}

impl Rig {
    fn new(batch_limit: usize, script: impl Fn(&str) -> Outcome + Send + Sync + 'static) -> Self {
        let ((running, runs), (release, gate)) = (channel(), channel());
        let backend = Arc::new(Recorder {
            batch_limit,
            script: Box::new(script),
            batches: Mutex::default(),
            running: Mutex::new(running),
            gate: Mutex::new(gate),
            lost: OnceLock::new(),
            queues: Mutex::default(),
            submissions: AtomicUsize::new(0),
        });
        let queue = SubmissionQueue::new(&backend).unwrap();
        backend.queues.lock().push(queue.handle());
        Self { backend, queue, runs, release }
    }

    fn submit(&self, name: &str, waits: &[TimelinePoint], signals: &[TimelinePoint]) {
        let (waits, signals) = (waits.to_vec(), signals.to_vec());
        self.queue.submit(Submission { waits, signals, commands: Some(named(name)), ..Submission::default() }).unwrap();
    }

    /// Keeps the backend busy until [`Rig::open`].
    fn close(&self) {
        self.submit("gate", &[], &[]);
        self.runs.recv().unwrap();
    }

    fn open(&self) {
        self.release.send(()).unwrap();
    }

    /// The batches behind the gate.
    fn batches(&self) -> Vec<Vec<String>> {
        self.queue.wait_idle(LONG).unwrap();
        self.backend.batches.lock()[1..].to_vec()
    }
}

fn semaphore() -> Arc<dyn Semaphore> {
    Arc::new(TimelineSemaphore::new(0))
}

fn point(semaphore: &Arc<dyn Semaphore>, value: u64) -> TimelinePoint {
    TimelinePoint { semaphore: Arc::clone(semaphore), value }
}

fn cause(semaphore: &Arc<dyn Semaphore>) -> Failure {
    match semaphore.wait_blocking(u64::MAX - 1, LONG) {
        Err(WaitError::Failed(cause)) => cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_has_what_is_ready_in_order_of_submission() {
    let rig = Rig::new(3, |_| Outcome::Succeed);
    let [start, done] = [semaphore(), semaphore()];
    rig.close();
    rig.submit("a", &[], &[point(&done, 1)]);
    rig.submit("waits", &[point(&start, 1)], &[point(&done, 5)]);
    rig.submit("b", &[], &[point(&done, 2)]);
    rig.queue.submit(Submission { signals: vec![point(&done, 3)], ..Submission::default() }).unwrap();
    rig.submit("c", &[], &[point(&done, 4)]);
    rig.open();
    done.wait_blocking(4, LONG).unwrap();
    start.signal(1).unwrap();
    assert_eq!(rig.batches(), [&["a", "b", "barrier"][..], &["c"], &["waits"]]);
    assert_eq!(done.query(), Ok(5));
    assert_eq!(rig.backend.submissions.load(Ordering::Relaxed), 6);
}

#[test]
fn dependent_submissions_become_one_batch() {
    let rig = Rig::new(8, |_| Outcome::Succeed);
    let [timeline, never] = [semaphore(), semaphore()];
    rig.close();
    // The first wait is for more than the earlier signal promises.
    rig.submit("too much", &[point(&timeline, 4)], &[]);
    rig.submit("a", &[], &[point(&timeline, 1)]);
    rig.submit("b", &[point(&timeline, 1)], &[point(&timeline, 2)]);
    rig.submit("other semaphore", &[point(&timeline, 2), point(&never, 1)], &[]);
    rig.submit("c", &[point(&timeline, 2)], &[point(&timeline, 4)]);
    rig.open();
    timeline.wait_blocking(4, LONG).unwrap();
    never.signal(1).unwrap();
    let batches = rig.batches();
    assert_eq!(batches[0], ["a", "b", "c"]);
    assert_eq!(batches[1..].concat().len(), 2, "{batches:?}");
}

#[test]
fn without_batches_dependent_submissions_run_one_by_one() {
    let rig = Rig::new(1, |_| Outcome::Succeed);
    let timeline = semaphore();
    rig.close();
    rig.submit("a", &[], &[point(&timeline, 1)]);
    rig.submit("b", &[point(&timeline, 1)], &[]);
    rig.open();
    assert_eq!(rig.batches(), [["a"], ["b"]]);
}

#[test]
fn a_failure_in_a_batch_reaches_what_depends_on_it_and_nothing_else() {
    let rig = Rig::new(8, |name| if name == "fails" { Outcome::Fail } else { Outcome::Succeed });
    let [before, failing, after, independent] = [(); 4].map(|()| semaphore());
    rig.close();
    rig.submit("before", &[], &[point(&before, 1)]);
    rig.submit("fails", &[], &[point(&failing, 1)]);
    rig.submit("after", &[point(&failing, 1)], &[point(&after, 1)]);
    rig.submit("after that", &[point(&after, 1)], &[point(&after, 2)]);
    rig.submit("independent", &[point(&before, 1)], &[point(&independent, 1)]);
    rig.open();
    let batches = rig.batches();
    assert_eq!(batches, [&["before", "fails", "after", "after that", "independent"][..], &["independent"]]);
    assert_eq!((before.query(), independent.query()), (Ok(1), Ok(1)));
    assert_eq!(*cause(&failing), failure("fails"));
    assert!(Arc::ptr_eq(&cause(&failing), &cause(&after)));
    assert_eq!(rig.backend.submissions.load(Ordering::Relaxed), 6);
}

#[test]
fn a_chained_work_fails_when_what_it_waits_for_failed_although_it_ran() {
    let rig = Rig::new(8, |_| Outcome::Succeed);
    let [broken, done] = [semaphore(), semaphore()];
    rig.close();
    rig.submit("gate", &[], &[point(&broken, 1)]);
    rig.submit("b", &[point(&broken, 1)], &[point(&done, 1)]);
    rig.open();
    rig.runs.recv().unwrap();
    // Both are with the backend.
    let of_somebody: Failure = Arc::new(failure("somebody"));
    broken.fail(Arc::clone(&of_somebody));
    rig.open();
    assert!(Arc::ptr_eq(&cause(&done), &of_somebody));
    assert_eq!(rig.batches(), [["gate", "b"]]);
}

#[test]
fn works_that_are_left_keep_their_waits() {
    let left = AtomicUsize::new(0);
    let script = move |name: &str| match name {
        "b" if left.fetch_add(1, Ordering::Relaxed) == 0 => Outcome::Leave,
        _ => Outcome::Succeed,
    };
    let rig = Rig::new(8, script);
    let timeline = semaphore();
    rig.close();
    rig.submit("a", &[], &[point(&timeline, 1)]);
    rig.submit("b", &[point(&timeline, 1)], &[point(&timeline, 2)]);
    rig.submit("c", &[point(&timeline, 2)], &[point(&timeline, 3)]);
    rig.open();
    timeline.wait_blocking(3, LONG).unwrap();
    assert_eq!(rig.batches(), [&["a", "b", "c"][..], &["b", "c"]]);
}

#[test]
fn an_engine_that_runs_nothing_fails_the_first() {
    let rig = Rig::new(8, |name| if name == "left" { Outcome::Leave } else { Outcome::Succeed });
    let [left, done] = [semaphore(), semaphore()];
    rig.close();
    rig.submit("left", &[], &[point(&left, 1)]);
    rig.submit("a", &[], &[point(&done, 1)]);
    rig.open();
    assert_eq!(rig.batches(), [&["left", "a"][..], &["a"]]);
    assert!(cause(&left).to_string().contains("recorder did not run the submission"));
    assert_eq!(done.query(), Ok(1));
}

#[test]
fn works_finished_before_what_they_wait_for_fail() {
    let rig = Rig::new(8, |name| if name == "gate" { Outcome::Succeed } else { Outcome::Backwards });
    let [timeline, done] = [semaphore(), semaphore()];
    rig.close();
    rig.submit("a", &[], &[point(&timeline, 1)]);
    rig.submit("b", &[point(&timeline, 1)], &[point(&done, 1)]);
    rig.open();
    assert!(cause(&done).to_string().contains("finished before the submission it waits for"));
    rig.queue.wait_idle(LONG).unwrap();
    assert_eq!(timeline.query(), Ok(1));
}

#[test]
fn a_panicking_engine_fails_its_batch_and_continues() {
    let rig = Rig::new(8, |name| if name == "a" { Outcome::Panic } else { Outcome::Succeed });
    let [first, second, third] = [(); 3].map(|()| semaphore());
    rig.close();
    rig.submit("a", &[], &[point(&first, 1)]);
    rig.submit("b", &[], &[point(&second, 1)]);
    rig.open();
    rig.queue.wait_idle(LONG).unwrap();
    assert!(cause(&first).to_string().contains("recorder panicked while it ran"), "{}", cause(&first));
    assert!(cause(&second).to_string().contains("recorder panicked: a panics"), "{}", cause(&second));
    rig.submit("c", &[], &[point(&third, 1)]);
    third.wait_blocking(1, LONG).unwrap();
}

#[test]
fn dropped_works_fail() {
    let rig = Rig::new(1, |_| Outcome::Drop);
    let done = semaphore();
    rig.submit("a", &[], &[point(&done, 1)]);
    assert!(cause(&done).to_string().contains("recorder dropped it without an outcome"));
}

#[test]
fn a_signal_that_does_not_increase_fails_its_semaphore() {
    let rig = Rig::new(1, |_| Outcome::Succeed);
    let semaphore = semaphore();
    semaphore.signal(5).unwrap();
    rig.submit("a", &[], &[point(&semaphore, 5)]);
    assert!(cause(&semaphore).to_string().contains("semaphore is at 5"));
}

#[test]
fn a_short_binding_table_is_rejected() {
    let rig = Rig::new(1, |_| Outcome::Succeed);
    let mut list = CommandList::builder();
    list.fill(&[0], BufferRef::slot(1, 0, 4)).unwrap();
    let commands = Some(Arc::new(list.finish()));
    let error = rig.queue.submit(Submission { commands, ..Submission::default() }).unwrap_err();
    assert_eq!(error.to_string(), "binding table: the command list has 2 slots, 0 are bound");
}

#[test]
fn a_panicking_listener_keeps_no_one_waiting() {
    let rig = Rig::new(1, |_| Outcome::Succeed);
    let [first, second] = [semaphore(), semaphore()];
    first.subscribe(1, Box::new(|| panic!("a listener panics")));
    rig.submit("a", &[], &[point(&first, 1), point(&second, 1)]);
    second.wait_blocking(1, LONG).unwrap();
    rig.queue.wait_idle(LONG).unwrap();
}

#[test]
fn a_work_holds_nothing_when_it_signals() {
    let rig = Rig::new(1, |_| Outcome::Succeed);
    let done = semaphore();
    let list = named("a");
    let held = Arc::downgrade(&list);
    let (sender, found) = channel();
    done.subscribe(1, Box::new(move || sender.send(held.strong_count()).unwrap()));
    rig.close();
    let signals = vec![point(&done, 1)];
    rig.queue.submit(Submission { commands: Some(list), signals, ..Submission::default() }).unwrap();
    rig.open();
    assert_eq!(found.recv().unwrap(), 0);
}

#[test]
fn failed_waits_fail_in_order_and_leave_no_listeners() {
    let rig = Rig::new(8, |_| Outcome::Succeed);
    let [never, failing, order] = [(); 3].map(|()| semaphore());
    let failed: Failure = Arc::new(failure("somebody"));
    let listeners = || Arc::weak_count(&rig.queue.core);
    let before = listeners();
    rig.close();
    rig.submit("a", &[], &[point(&order, 1)]);
    rig.submit("b", &[point(&never, 1), point(&failing, 1)], &[point(&order, 2)]);
    rig.submit("c", &[], &[point(&order, 3)]);
    assert_eq!(listeners(), before + 2);
    failing.fail(Arc::clone(&failed));
    rig.open();
    assert_eq!(rig.batches(), [["a"], ["c"]]);
    assert!(Arc::ptr_eq(&cause(&order), &failed));
    assert_eq!(order.poll(1), Ok(true));
    assert!(order.poll(2).is_err());
    assert_eq!(listeners(), before);
}

#[test]
fn a_lost_device_fails_everything_of_all_queues() {
    let rig = Rig::new(8, |name| if name == "loses" { Outcome::LoseDevice } else { Outcome::Succeed });
    let other = SubmissionQueue::new(&rig.backend).unwrap();
    rig.backend.queues.lock().push(other.handle());
    let [never, first, second, third] = [(); 4].map(|()| semaphore());
    let (waits, signals) = (vec![point(&never, 1)], vec![point(&first, 1)]);
    other.submit(Submission { waits, signals, ..Submission::default() }).unwrap();
    rig.close();
    rig.submit("loses", &[], &[point(&second, 1)]);
    rig.submit("a", &[], &[point(&third, 1)]);
    rig.open();
    let lost = DeviceError::Lost("as scripted".into());
    for semaphore in [&first, &second, &third] {
        assert_eq!(*cause(semaphore), lost);
    }
    assert_eq!(rig.queue.wait_idle(LONG), Err(lost.clone()));
    assert_eq!(futures::executor::block_on(other.idle()), Err(lost.clone()));
    assert_eq!(rig.queue.flush(), Err(lost.clone()));
    assert_eq!(rig.queue.submit(Submission::default()), Err(SubmitError::Device(lost)));
}

#[test]
fn dropping_ends_what_runs_and_fails_the_rest() {
    let Rig { backend, queue, runs, release } = Rig::new(8, |_| Outcome::Succeed);
    let [never, first, second] = [(); 3].map(|()| semaphore());
    let submit = |name, waits, signals| {
        queue.submit(Submission { waits, signals, commands: Some(named(name)), ..Submission::default() }).unwrap();
    };
    submit("gate", vec![], vec![point(&first, 1)]);
    submit("waits", vec![point(&never, 1)], vec![point(&second, 1)]);
    runs.recv().unwrap();
    let (handle, failed) = (queue.handle(), cause);
    let dropping = std::thread::spawn(move || drop(queue));
    assert_eq!(first.query(), Ok(0));
    release.send(()).unwrap();
    dropping.join().unwrap();
    assert_eq!(first.query(), Ok(1));
    assert!(failed(&second).to_string().contains("dropped before this submission started"));
    assert!(!handle.is_alive());
    handle.wake();
    never.signal(1).unwrap();
    assert_eq!(backend.submissions.load(Ordering::Relaxed), 2);
}

#[test]
fn idle_ends_when_what_was_submitted_before_has_ended() {
    let rig = Rig::new(8, |_| Outcome::Succeed);
    let never = semaphore();
    rig.close();
    let error = rig.queue.wait_idle(Some(Duration::from_millis(1))).unwrap_err();
    assert!(error.to_string().contains("1 submissions are pending"), "{error}");
    rig.submit("waits", &[point(&never, 1)], &[]);
    let idle = rig.queue.idle();
    rig.open();
    let (sender, done) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.send(futures::executor::block_on(idle)).unwrap());
        assert!(done.recv_timeout(Duration::from_millis(5)).is_err());
        never.signal(1).unwrap();
        assert_eq!(done.recv().unwrap(), Ok(()));
    });
    assert_eq!(futures::executor::block_on(rig.queue.idle()), Ok(()));
}

/// Many submissions of two threads, each waiting for a point that the other queue signals.
#[test]
fn queues_work_hand_in_hand() {
    let rig = Rig::new(4, |_| Outcome::Succeed);
    let other = SubmissionQueue::new(&rig.backend).unwrap();
    let timeline = semaphore();
    let last = 500;
    std::thread::scope(|scope| {
        for (queue, parity) in [(&rig.queue, 0), (&other, 1)] {
            let timeline = &timeline;
            scope.spawn(move || {
                for step in (0..last).filter(|step| step % 2 == parity) {
                    let (waits, signals) = (vec![point(timeline, step)], vec![point(timeline, step + 1)]);
                    queue.submit(Submission { waits, signals, ..Submission::default() }).unwrap();
                }
            });
        }
    });
    timeline.wait_blocking(last, LONG).unwrap();
}
