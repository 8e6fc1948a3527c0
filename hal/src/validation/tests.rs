//! The layer on a device that only records what reaches it.

use super::doubles::{self, Log};
use super::*;
use crate::artifact::example;
use crate::buffer::{Buffer, BufferParams, HostMemory, MemoryPool};
use crate::command_list::{Binding, BindingTable, BufferRef, Command, CommandList, RangeOf};
use crate::error::SubmitError;
use crate::executable::Executable;
use crate::host_function::from_fn;
use crate::mock::{MockBuffer, MockDevice, MockDriver, MockExecutable};
use crate::queue::{Queue, Submission, TimelinePoint};
use crate::semaphore::{MAX_VALUE, TimelineSemaphore};
use rstest::rstest;
use std::any::Any;
use std::ops::Range;
use std::sync::atomic::AtomicU8;

fn memory(size: usize) -> Arc<dyn HostMemory> {
    Arc::new((0..size).map(|_| AtomicU8::new(0)).collect::<Vec<_>>())
}

/// A wrapped device with its queue, the double behind it, and what reached that.
struct Setup {
    fake: Arc<MockDevice>,
    log: Arc<Log>,
    device: Arc<dyn Device>,
    queue: Arc<dyn Queue>,
}

impl Setup {
    fn new() -> Self {
        let (fake, log) = doubles::device("fake:0");
        let device = wrap_device(Arc::clone(&fake) as Arc<dyn Device>);
        let queue = device.create_queue().unwrap();
        Self { fake, log, device, queue }
    }

    fn buffer(&self, size: usize) -> Arc<dyn Buffer> {
        self.device.allocate(&BufferParams::data(size)).unwrap()
    }

    fn kernel(&self) -> Arc<dyn Executable> {
        self.device.load_executable(&example("aie2p", "add_f32", 0..2)).unwrap()
    }

    fn submit(&self, list: &Arc<CommandList>, bindings: Vec<Binding>) -> Result<(), SubmitError> {
        let commands = Some(Arc::clone(list));
        self.queue.submit(Submission { commands, bindings: BindingTable { bindings }, ..Submission::default() })
    }

    fn submitted(&self) -> usize {
        self.log.submissions.lock().len()
    }

    /// Submits and returns the error's message, after checking that nothing reached the driver.
    fn rejected(&self, list: &Arc<CommandList>, bindings: Vec<Binding>) -> String {
        let before = self.submitted();
        let message = self.submit(list, bindings).unwrap_err().to_string();
        assert_eq!(self.submitted(), before);
        message
    }
}

fn bind(buffer: &Arc<dyn Buffer>, offset: usize, length: usize) -> Binding {
    Binding { buffer: Arc::clone(buffer), offset, length }
}

fn record(
    slots: usize,
    record: impl FnOnce(&mut crate::CommandListBuilder) -> Result<(), crate::command_list::RecordError>,
) -> Arc<CommandList> {
    let mut builder = CommandList::builder();
    record(&mut builder).unwrap();
    let list = builder.finish();
    assert_eq!(list.slots(), slots);
    Arc::new(list)
}

#[rstest]
#[case::no_size(0, 64, "allocation of 0 bytes of data memory")]
#[case::no_alignment(8, 0, "alignment 0 of an allocation of 8 bytes of data memory is not a power of two")]
#[case::odd_alignment(8, 48, "alignment 48")]
#[case::large_alignment(8, 8192, "alignment of a buffer in bytes: 8192 requested, the limit of fake:0 is 4096")]
#[case::odd_large_alignment(8, usize::MAX, "alignment 18446744073709551615")]
#[case::large(usize::MAX, 64, "size of a buffer in bytes: 18446744073709551615 requested, the limit of fake:0 is")]
fn allocations_are_checked(#[case] size: usize, #[case] alignment: usize, #[case] message: &str) {
    let setup = Setup::new();
    let params = BufferParams { size, alignment, pool: MemoryPool::Data };
    let error = setup.device.allocate(&params).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

#[test]
fn limits_themselves_are_allowed() {
    let setup = Setup::new();
    for alignment in [1, 4096] {
        let params = BufferParams { size: 1, alignment, pool: MemoryPool::Data };
        setup.device.allocate(&params).unwrap();
    }
    setup.device.load_executable(&example("aie2p", "add_f32", 0..16)).unwrap();
    setup.device.create_semaphore(MAX_VALUE).unwrap();
}

#[test]
fn imports_semaphores_and_kernels_are_checked() {
    let setup = Setup::new();
    let error = setup.device.import(memory(0)).unwrap_err();
    assert!(matches!(error, DeviceError::InvalidArgument(_)));
    let error = setup.device.create_semaphore(u64::MAX).unwrap_err();
    assert!(matches!(error, DeviceError::InvalidArgument(_)));
    let error = setup.device.load_executable(&example("aie2", "add_f32", 0..2)).unwrap_err().to_string();
    assert_eq!(
        error,
        "kernel `add_f32` cannot be loaded: it is for generation aie2, fake:0 is aie2p; build it for aie2p"
    );
    let error = setup.device.load_executable(&example("aie2p", "add_f32", 0..17)).unwrap_err();
    assert!(matches!(error, DeviceError::LimitExceeded { requested: 17, limit: 16, .. }), "{error}");
}

#[test]
fn host_ranges_are_checked() {
    let setup = Setup::new();
    let buffer = setup.buffer(16);
    let backwards = Range { start: 9, end: 8 };
    for range in [0..17, 16..17, backwards, usize::MAX..usize::MAX] {
        for result in
            [buffer.map(range.clone()).map(drop), buffer.flush(range.clone()), buffer.invalidate(range.clone())]
        {
            assert!(matches!(result, Err(DeviceError::InvalidArgument(_))), "{range:?}");
        }
    }
    for (offset, length) in [(16, 1), (0, 17), (17, 0), (usize::MAX, 2)] {
        assert!(buffer.read(offset, &mut vec![0; length]).is_err());
        assert!(buffer.write(offset, &vec![0; length]).is_err());
    }
    assert_eq!(buffer.map(4..16).unwrap().len(), 12);
    assert!(buffer.map(16..16).unwrap().is_empty());
    buffer.write(15, &[1]).unwrap();
    assert_eq!(
        buffer.map(0..17).unwrap_err().to_string(),
        "invalid argument: range 0..17 is not inside the buffer of 16 bytes; ranges are relative to the buffer's start"
    );
}

#[test]
fn the_driver_receives_its_own_objects() {
    let setup = Setup::new();
    let (buffer, kernel) = (setup.buffer(64), setup.kernel());
    let function = from_fn("sum", 1, |_, _| Ok(()));
    let list = record(1, |l| {
        l.fill(&[0; 4], BufferRef::direct(&buffer, 0, 8))?.barrier();
        l.update(&[1, 2], BufferRef::direct(&buffer, 0, 2))?.barrier();
        l.copy(BufferRef::direct(&buffer, 0, 4), BufferRef::slot(0, 0, 4))?.barrier();
        l.dispatch(&kernel, vec![BufferRef::direct(&buffer, 0, 4), BufferRef::slot(0, 0, 4)])?.barrier();
        l.host_call(&function, vec![BufferRef::direct(&buffer, 0, 4)], BufferRef::slot(0, 0, 4))?;
        Ok(())
    });
    let (wait, signal) = (setup.device.create_semaphore(3).unwrap(), setup.device.create_semaphore(3).unwrap());
    let submission = Submission {
        waits: vec![TimelinePoint { semaphore: wait, value: 3 }],
        commands: Some(Arc::clone(&list)),
        bindings: BindingTable { bindings: vec![bind(&setup.buffer(8), 4, 4)] },
        signals: vec![TimelinePoint { semaphore: Arc::clone(&signal), value: 4 }],
    };
    setup.queue.submit(submission.clone()).unwrap();
    setup.queue.submit(submission).unwrap();
    let seen = setup.log.submissions.lock();
    let lists: Vec<&Arc<CommandList>> = seen.iter().map(|s| s.commands.as_ref().unwrap()).collect();
    assert!(Arc::ptr_eq(lists[0], lists[1]), "the driver sees the same list again");
    assert_eq!(lists[0].commands().len(), list.commands().len());
    for command in lists[0].commands() {
        for (reference, _) in command.references() {
            if let RangeOf::Buffer(buffer) = &reference.of {
                assert!((&**buffer as &dyn Any).is::<MockBuffer>());
            }
        }
        if let Command::Dispatch { executable, .. } = command {
            assert!((&**executable as &dyn Any).is::<MockExecutable>());
        }
    }
    assert!((&*seen[0].bindings.bindings[0].buffer as &dyn Any).is::<MockBuffer>());
    assert!((&*seen[0].signals[0].semaphore as &dyn Any).is::<TimelineSemaphore>());
    seen[0].signals[0].semaphore.signal(4).unwrap();
    signal.wait_blocking(4, None).unwrap();
}

#[test]
fn empty_submissions_and_duplicate_waits_are_fine() {
    let setup = Setup::new();
    setup.queue.submit(Submission::default()).unwrap();
    let point = TimelinePoint { semaphore: setup.device.create_semaphore(0).unwrap(), value: 1 };
    setup.queue.submit(Submission { waits: vec![point.clone(), point], ..Submission::default() }).unwrap();
    setup.submit(&record(0, |_| Ok(())), vec![]).unwrap();
    assert_eq!(setup.submitted(), 3);
}

#[rstest]
#[case::not_above(&[5], "signal 0 would set the semaphore to 5, it is at 5 already; signal at least 6")]
#[case::twice(&[6, 7], "signals 0 and 1 are of the same semaphore")]
#[case::too_large(&[u64::MAX], "signal 0 asks for value")]
fn signals_are_checked(#[case] values: &[u64], #[case] message: &str) {
    let setup = Setup::new();
    let semaphore = setup.device.create_semaphore(5).unwrap();
    let signals = values.iter().map(|&value| TimelinePoint { semaphore: Arc::clone(&semaphore), value }).collect();
    let error = setup.queue.submit(Submission { signals, ..Submission::default() }).unwrap_err();
    let SubmitError::Semaphores(error) = error else { panic!("{error}") };
    assert!(error.starts_with(message), "{error}");
    assert_eq!(setup.submitted(), 0);
}

#[test]
fn waits_that_no_value_ends_are_rejected() {
    let setup = Setup::new();
    let waits = vec![TimelinePoint { semaphore: setup.device.create_semaphore(0).unwrap(), value: u64::MAX }];
    let error = setup.queue.submit(Submission { waits, ..Submission::default() }).unwrap_err().to_string();
    assert!(error.contains("wait 0 asks for value"), "{error}");
}

#[test]
fn signals_of_a_failed_semaphore_are_left_to_the_semaphore() {
    let setup = Setup::new();
    let semaphore = setup.device.create_semaphore(5).unwrap();
    semaphore.fail(Arc::new(DeviceError::Timeout("late".into())));
    let signals = vec![TimelinePoint { semaphore, value: 6 }];
    setup.queue.submit(Submission { signals, ..Submission::default() }).unwrap();
}

#[test]
fn objects_of_other_devices_are_rejected() {
    let (setup, other) = (Setup::new(), Setup::new());
    let list = record(0, |l| l.fill(&[0], BufferRef::direct(&other.buffer(8), 0, 8)).map(drop));
    assert!(setup.rejected(&list, vec![]).starts_with("command list: it holds objects of fake:0"));
    other.submit(&list, vec![]).unwrap();

    let mixed = record(0, |l| {
        let (mine, foreign) = (BufferRef::direct(&setup.buffer(8), 0, 8), BufferRef::direct(&other.buffer(8), 0, 8));
        l.copy(mine, foreign).map(drop)
    });
    assert!(setup.rejected(&mixed, vec![]).contains("argument 1 of command 0 (copy) belongs to"));

    let list =
        record(2, |l| l.dispatch(&other.kernel(), vec![BufferRef::slot(0, 0, 4), BufferRef::slot(1, 0, 4)]).map(drop));
    let bindings = vec![bind(&setup.buffer(4), 0, 4), bind(&setup.buffer(4), 0, 4)];
    assert!(setup.rejected(&list, bindings).contains("holds objects of"));

    let list = record(1, |l| l.fill(&[0], BufferRef::slot(0, 0, 4)).map(drop));
    assert!(setup.rejected(&list, vec![bind(&other.buffer(4), 0, 4)]).contains("slot 0 was not made by fake:0"));
    other.submit(&list, vec![bind(&other.buffer(4), 0, 4)]).unwrap();
    setup.submit(&list, vec![bind(&setup.buffer(4), 0, 4)]).unwrap();

    let bare: Arc<dyn Buffer> = setup.fake.allocate(&BufferParams::data(4)).unwrap();
    let list = record(0, |l| l.fill(&[0], BufferRef::direct(&bare, 0, 4)).map(drop));
    assert!(setup.rejected(&list, vec![]).contains("without the validation layer"));

    for semaphore in [other.device.create_semaphore(0).unwrap(), Arc::new(TimelineSemaphore::new(0))] {
        let points = vec![TimelinePoint { semaphore, value: 1 }];
        let wait = Submission { waits: points.clone(), ..Submission::default() };
        for (what, submission) in [("wait", wait), ("signal", Submission { signals: points, ..Submission::default() })]
        {
            let error = setup.queue.submit(submission).unwrap_err().to_string();
            assert!(
                error.contains(&format!("the semaphore of {what} 0 was not made by fake:0; wait for it on the host"))
            );
        }
    }
}

#[test]
fn bindings_are_counted_and_ranges_resolved() {
    let setup = Setup::new();
    let buffer = setup.buffer(16);
    let list = record(1, |l| l.fill(&[0; 4], BufferRef::slot(0, 4, 8)).map(drop));
    assert!(setup.rejected(&list, vec![]).contains("0 bindings given, the command list has 1 slots"));
    let two = vec![bind(&buffer, 0, 16), bind(&buffer, 0, 16)];
    assert!(setup.rejected(&list, two).contains("2 bindings given"));
    assert!(setup.rejected(&list, vec![bind(&buffer, 8, 12)]).contains("range 8+12 in slot 0 is not inside"));
    assert!(setup.rejected(&list, vec![bind(&buffer, usize::MAX, 12)]).contains("is not inside"));
    let message = setup.rejected(&list, vec![bind(&buffer, 0, 8)]);
    assert!(message.contains("command 0 (fill) uses slot 0 up to byte 12, the binding has 8 bytes"), "{message}");
    assert!(setup.rejected(&list, vec![bind(&buffer, 2, 12)]).contains("pattern of 4 bytes"));
    setup.submit(&list, vec![bind(&buffer, 4, 12)]).unwrap();
    let bindings = BindingTable { bindings: vec![bind(&buffer, 0, 4)] };
    let error = setup.queue.submit(Submission { bindings, ..Submission::default() }).unwrap_err();
    assert!(matches!(error, SubmitError::Binding(_)), "{error}");
}

#[test]
fn dispatch_bindings_lie_on_words() {
    let setup = Setup::new();
    let (buffer, kernel) = (setup.buffer(64), setup.kernel());
    let dispatch = |source: BufferRef, slots| {
        let target = BufferRef::direct(&buffer, 32, 4);
        record(slots, |l| l.dispatch(&kernel, vec![source, target]).map(drop))
    };
    let message = setup.rejected(&dispatch(BufferRef::direct(&buffer, 2, 4), 0), vec![]);
    assert!(
        message.contains("argument 0 of command 0 (dispatch of `add_f32`) is at device address 0x1002"),
        "{message}"
    );
    let message = setup.rejected(&dispatch(BufferRef::slot(0, 6, 4), 1), vec![bind(&buffer, 0, 16)]);
    assert!(message.contains("uses slot 0 from byte 6"), "{message}");
    let list = dispatch(BufferRef::slot(0, 4, 4), 1);
    let message = setup.rejected(&list, vec![bind(&buffer, 1, 16)]);
    assert!(message.contains("the binding in slot 0 is at device address 0x1001"), "{message}");
    setup.submit(&list, vec![bind(&buffer, 4, 16)]).unwrap();
}

#[test]
fn commands_that_share_written_bytes_need_a_barrier() {
    let setup = Setup::new();
    let buffer = setup.buffer(64);
    let list = |barrier: bool, second: Range<usize>| {
        record(0, |l| {
            l.fill(&[0], BufferRef::direct(&buffer, 0, 8))?;
            if barrier {
                l.barrier();
            }
            let source = BufferRef::direct(&buffer, second.start, second.len());
            l.copy(source, BufferRef::direct(&buffer, 32, second.len())).map(drop)
        })
    };
    assert_eq!(
        setup.rejected(&list(false, 7..15), vec![]),
        "command list: command 1 (copy) reads device addresses 0x1007..0x1008, which command 0 (fill) writes, and no barrier is \
         between them; record a barrier after command 0"
    );
    setup.submit(&list(true, 7..15), vec![]).unwrap();
    setup.submit(&list(false, 8..16), vec![]).unwrap();

    let (kernel, part) = (setup.kernel(), |start, length| BufferRef::direct(&buffer, start, length));
    let needs = |list: Arc<CommandList>, verbs: [&str; 2]| {
        let message = setup.rejected(&list, vec![]);
        assert!(message.contains(verbs[0]) && message.contains(verbs[1]), "{message}");
    };
    let twice = record(0, |l| l.fill(&[1], part(0, 8))?.fill(&[2], part(7, 1)).map(drop));
    needs(twice, ["command 1 (fill) writes", "command 0 (fill) writes"]);
    let source = record(0, |l| l.copy(part(0, 8), part(8, 8))?.fill(&[1], part(0, 1)).map(drop));
    needs(source, ["command 1 (fill) writes", "command 0 (copy) reads"]);
    let [a, b, c] = [0, 16, 32].map(|start| part(start, 16));
    let kernels = record(0, |l| l.dispatch(&kernel, vec![a, b.clone()])?.dispatch(&kernel, vec![b, c]).map(drop));
    needs(kernels, ["command 1 (dispatch of `add_f32`) reads", "command 0 (dispatch of `add_f32`) writes"]);
    let behind_a_barrier = record(0, |l| {
        l.fill(&[1], part(48, 8))?.barrier().fill(&[1], part(0, 8))?;
        l.fill(&[2], part(8, 8))?.copy(part(7, 2), part(32, 2)).map(drop)
    });
    needs(behind_a_barrier, ["command 4 (copy) reads", "no barrier is between them"]);
    let one_slot =
        record(1, |l| l.fill(&[1], BufferRef::slot(0, 0, 8))?.fill(&[2], BufferRef::slot(0, 7, 8)).map(drop));
    assert!(setup.rejected(&one_slot, vec![bind(&buffer, 0, 16)]).contains("slot 0 bytes 0x7..0x8"));
}

#[test]
fn slots_that_alias_are_found_when_bound() {
    let setup = Setup::new();
    let (one, two) = (setup.buffer(64), setup.buffer(64));
    let list = record(3, |l| {
        l.fill(&[0], BufferRef::slot(0, 0, 8))?;
        l.copy(BufferRef::slot(1, 0, 8), BufferRef::slot(2, 0, 8)).map(drop)
    });
    let bindings = |a: usize, b: usize| vec![bind(&one, 0, 8), bind(&one, a, 8), bind(&two, b, 8)];
    setup.submit(&list, bindings(8, 0)).unwrap();
    let message = setup.rejected(&list, bindings(4, 0));
    assert!(message.contains("command 1 (copy) reads device addresses 0x1004..0x1008"), "{message}");
    let same = vec![bind(&one, 0, 8), bind(&two, 0, 8), bind(&two, 4, 8)];
    assert!(setup.rejected(&list, same).contains("source and target of command 1 (copy) overlap as bound"));

    let direct = record(1, |l| {
        l.fill(&[0], BufferRef::direct(&one, 0, 8))?;
        l.fill(&[0], BufferRef::slot(0, 0, 8)).map(drop)
    });
    setup.submit(&direct, vec![bind(&one, 8, 8)]).unwrap();
    assert!(setup.rejected(&direct, vec![bind(&one, 7, 8)]).contains("writes device addresses 0x1007..0x1008"));
}

#[test]
fn aliasing_across_a_barrier_or_between_reads_is_fine() {
    let setup = Setup::new();
    let (one, two) = (setup.buffer(64), setup.buffer(64));
    let list = record(2, |l| {
        l.fill(&[0], BufferRef::slot(0, 0, 8))?.barrier();
        l.copy(BufferRef::slot(1, 0, 8), BufferRef::direct(&two, 0, 8)).map(drop)
    });
    setup.submit(&list, vec![bind(&one, 0, 8), bind(&one, 0, 8)]).unwrap();
    let reads = record(2, |l| {
        l.copy(BufferRef::slot(0, 0, 8), BufferRef::direct(&two, 0, 8))?;
        l.copy(BufferRef::slot(1, 0, 8), BufferRef::direct(&two, 8, 8)).map(drop)
    });
    setup.submit(&reads, vec![bind(&one, 0, 8), bind(&one, 0, 8)]).unwrap();
    let kernel = setup.kernel();
    let in_place =
        record(1, |l| l.dispatch(&kernel, vec![BufferRef::slot(0, 0, 8), BufferRef::slot(0, 0, 8)]).map(drop));
    setup.submit(&in_place, vec![bind(&one, 0, 8)]).unwrap();
}

#[test]
fn memory_imported_twice_is_recognised_by_its_address() {
    let setup = Setup::new();
    let (one, two) = (setup.device.import(memory(16)).unwrap(), setup.device.import(memory(16)).unwrap());
    let list = record(0, |l| {
        l.fill(&[0], BufferRef::direct(&one, 0, 8))?;
        l.fill(&[0], BufferRef::direct(&two, 4, 8)).map(drop)
    });
    assert!(setup.rejected(&list, vec![]).contains("0x1000004..0x1000008"));
}

#[test]
fn the_first_loss_is_reported_for_ever() {
    let setup = Setup::new();
    *setup.log.loss.lock() = Some("first".into());
    let lost = DeviceError::Lost("first".into());
    assert_eq!(setup.queue.submit(Submission::default()).unwrap_err(), SubmitError::Device(lost.clone()));
    *setup.log.loss.lock() = Some("second".into());
    assert_eq!(setup.queue.wait_idle(None).unwrap_err(), lost);
    assert_eq!(futures::executor::block_on(setup.queue.idle()).unwrap_err(), lost);
    *setup.log.loss.lock() = None;
    assert_eq!(setup.device.allocate(&BufferParams::data(4)).unwrap_err(), lost);
    assert_eq!(setup.device.create_semaphore(0).unwrap_err(), lost);
    assert_eq!(setup.device.create_queue().unwrap_err(), lost);
    assert_eq!(setup.queue.flush().unwrap_err(), lost);
    assert_eq!(setup.queue.submit(Submission::default()).unwrap_err(), SubmitError::Device(lost));
}

#[test]
fn a_wrapped_driver_opens_wrapped_devices() {
    let mut driver = MockDriver::new();
    driver.expect_scheme().return_const("fake");
    driver.expect_open().returning(|uri| Ok(vec![doubles::device(&uri.to_string()).0]));
    let driver = wrap_driver(Arc::new(driver));
    assert_eq!(driver.scheme(), "fake");
    let device = driver.open(&DeviceUri::parse("fake:7").unwrap()).unwrap().remove(0);
    assert_eq!(device.info().uri.path(), "7");
    assert!(device.allocate(&BufferParams::data(0)).is_err());
    let error = driver.open(&DeviceUri::parse("mock").unwrap()).unwrap_err();
    assert!(matches!(error, DriverError::UnknownScheme { .. }));
    let message = error.to_string();
    assert!(message.contains("mock") && message.contains("fake"), "{message}");
}
