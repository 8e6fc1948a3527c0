use super::*;
use crate::agent::AgentError;
use crate::cpu_agent::Call;
use crate::cpu_agent::rig::*;
use aie_hal::device::MemoryReport;
use aie_hal::{Device, Submission, TimelinePoint};
use rstest::rstest;
use std::sync::Barrier;
use std::sync::atomic::AtomicU8;

#[test]
fn data_memory_is_accounted_in_granules() {
    let rig = Rig::with(|_| {}, |info| info.data_bytes = 16 << 20, None);
    let total = 16 << 20;
    assert_eq!(rig.device.memory(), MemoryReport { total, free: total });
    let (one, two) = (rig.buffer(1), rig.buffer(4097));
    let heap = BufferParams { size: 100, alignment: 64, pool: MemoryPool::DeviceHeap };
    let heap = rig.device.allocate(&heap).unwrap();
    assert_eq!(rig.device.memory().free, total - 3 * 4096);
    let counters = rig.device.counters();
    let counted = (counters.allocations, counters.allocated_bytes, counters.peak_bytes);
    assert_eq!(counted, (3, 3 * 4096 + 100, 3 * 4096 + 100));
    let error = rig.device.allocate(&BufferParams::data(total as usize)).unwrap_err();
    let available = total as usize - 3 * 4096;
    let (requested, capacity) = (total as usize, total as usize);
    assert_eq!(error, DeviceError::OutOfMemory { pool: "data", requested, available, capacity });
    drop((one, two, heap));
    let counters = rig.device.counters();
    assert_eq!((counters.allocated_bytes, counters.peak_bytes), (0, 3 * 4096 + 100));
    assert_eq!(rig.device.memory().free, total);
}

#[test]
fn maintenance_inside_a_buffer_is_counted_by_the_byte() {
    let rig = Rig::new();
    let buffer = rig.buffer(100);
    buffer.flush(10..30).unwrap();
    buffer.invalidate(0..100).unwrap();
    buffer.flush(100..100).unwrap();
    let outside = DeviceError::InvalidArgument("range 0..101 leaves the buffer of 100 bytes".into());
    assert_eq!(buffer.flush(0..101), Err(outside));
    let counters = rig.device.counters();
    assert_eq!((counters.bytes_flushed, counters.bytes_invalidated), (20, 100));
}

#[test]
fn what_the_runtime_rejects_is_given_back_to_the_account() {
    let rig = Rig::new();
    let before = rig.device.memory();
    for size in [100, 8 << 20] {
        rig.agent.fail(Call::AllocateData, 1, AgentError::OutOfMemory("as planned".into()), 0);
        assert!(matches!(rig.device.allocate(&BufferParams::data(size)), Err(DeviceError::OutOfMemory { .. })));
        assert_eq!(rig.device.memory(), before);
    }
    assert_eq!(rig.device.counters().allocations, 0);
}

#[test]
fn memory_of_others_is_rejected_with_what_to_do() {
    let rig = Rig::new();
    let memory = Arc::new(vec![AtomicU8::new(0), AtomicU8::new(0)]);
    let error = rig.device.import(memory).unwrap_err().to_string();
    assert!(error.contains("import of 2 bytes") && error.contains("copy them into a buffer of xdna:0"), "{error}");
}

/// Every logical device on a lost NPU says why it was lost, the first cause, and asks nothing of the agent any more.
#[test]
fn a_lost_device_says_why() {
    let rig = Rig::new();
    let (journal, kernel, queue, never) = (rig.buffer(JOURNAL), rig.writer(1), rig.queue(), rig.semaphore());
    let waiting = rig.semaphore();
    let waits = vec![TimelinePoint { semaphore: never, value: 1 }];
    let signals = vec![TimelinePoint { semaphore: Arc::clone(&waiting), value: 1 }];
    queue
        .submit(Submission { waits, commands: Some(writes(&[&kernel], &journal)), signals, ..Submission::default() })
        .unwrap();
    rig.agent.fail(Call::Submit, 1, AgentError::Lost("first".into()), 0);
    let lost = DeviceError::Lost("first".into());
    assert_eq!(run(&rig, writes(&[&kernel], &journal)), Err(lost.clone()));
    assert_eq!(outcome(&waiting, 1), Err(lost.clone()), "a work on another queue, waiting for what never comes");
    assert_eq!(rig.npu.array.lose("second".into()), lost);
    let heap = BufferParams { size: 1, alignment: 64, pool: MemoryPool::DeviceHeap };
    assert_eq!(rig.device.allocate(&heap).unwrap_err(), lost);
    assert_eq!(rig.device.import(Arc::new(Vec::new())).unwrap_err(), lost);
    assert_eq!(rig.second_device().allocate(&BufferParams::data(1)).unwrap_err(), lost);
    assert_eq!(futures::executor::block_on(queue.idle()), Err(lost));
    // What was there can still be looked at.
    assert_eq!(entries(&journal), []);
    assert_eq!((rig.agent.calls(Call::Submit), rig.agent.calls(Call::AllocateData)), (1, 1));
}

/// Memory that the runtime loses itself over is a loss of the device too.
#[rstest]
#[case(Call::AllocateData, MemoryPool::Data)]
#[case(Call::AllocateHeap, MemoryPool::DeviceHeap)]
fn allocating_notices_a_loss(#[case] call: Call, #[case] pool: MemoryPool) {
    let rig = Rig::new();
    rig.agent.fail(call, 1, AgentError::Lost("as planned".into()), 0);
    let lost = DeviceError::Lost("as planned".into());
    assert_eq!(rig.device.allocate(&BufferParams { size: 1, alignment: 64, pool }).unwrap_err(), lost);
    assert_eq!(rig.npu.array.lost(), Some(lost));
    assert_eq!(rig.device.memory().free, rig.device.memory().total);
}

/// Eight threads work on queues of two logical devices, with kernels of more contexts than there are, until the device is
/// lost in the middle. Every work before has its result, every later one the first cause.
#[test]
fn a_loss_among_eight_threads_reaches_all_of_them() {
    let limits = |limits: &mut Limits| (limits.contexts, limits.pdis_per_context) = (2, 2);
    let rig = Rig::with(limits, |_| {}, None);
    rig.agent.fail(Call::Submit, 200, AgentError::Lost("first".into()), 0);
    rig.agent.fail(Call::Submit, 201, AgentError::Lost("second".into()), 0);
    let lost = DeviceError::Lost("first".into());
    let second = rig.second_device();
    // All start together.
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8_u8)
            .map(|thread| {
                let (rig, second, start) = (&rig, &second, &start);
                scope.spawn(move || {
                    let device = if thread % 2 == 0 { &rig.device } else { second };
                    let teacher = rig.adder(thread);
                    let add = device.load_executable(teacher.artifact()).unwrap();
                    let data = device.allocate(&BufferParams::data(64)).unwrap();
                    let queue = device.create_queue().unwrap();
                    let semaphore = device.create_semaphore(0).unwrap();
                    start.wait();
                    let mut done = 0_u64;
                    loop {
                        let commands = list(|builder| {
                            builder.dispatch(&add, vec![whole(&data), whole(&data)]).unwrap();
                        });
                        let signals = vec![TimelinePoint { semaphore: Arc::clone(&semaphore), value: done + 1 }];
                        let commands = Some(commands);
                        let submission = Submission { commands, signals, ..Submission::default() };
                        if let Err(cause) = queue.submit(submission) {
                            break (done, cause.to_string());
                        }
                        // Memory comes and goes meanwhile.
                        let other = device.allocate(&BufferParams::data(1000));
                        if let Err(cause) = outcome(&semaphore, done + 1) {
                            break (done, cause.to_string());
                        }
                        done += 1;
                        assert_eq!(bytes(&data), [thread.wrapping_mul(done as u8); 64]);
                        drop(other);
                    }
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        // The chain that met the loss is the only one of the 200 that is not a result.
        assert_eq!(results.iter().map(|(done, _)| done).sum::<u64>(), 199);
        assert!(results.iter().all(|(_, cause)| *cause == lost.to_string()), "{results:?}");
    });
    assert_eq!(rig.npu.array.lost(), Some(lost.clone()));
    // The next chain would be lost for another cause; none was sent.
    assert_eq!(rig.agent.calls(Call::Submit), 200);
    rig.agent.forget_faults();
    drop(second);
}
