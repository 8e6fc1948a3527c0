mod apart;

use crate::agent::AgentError;
use crate::cpu_agent::Call;
use crate::cpu_agent::rig::*;
use aie_hal::host_function::{HostFunctionError, from_fn};
use aie_hal::{
    Buffer, BufferParams, Device, DeviceError, Executable, MemoryPool, Semaphore, Submission, TimelinePoint,
};
use rstest::rstest;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Commands of the chains so far.
fn chains(rig: &Rig) -> Vec<usize> {
    rig.agent.submitted().iter().map(|submitted| submitted.commands).collect()
}

/// Submits a work for each of `works`, as one batch, each with a semaphore of its own, and waits for them.
fn batch(rig: &Rig, works: &[&[&Arc<dyn Executable>]], journal: &Arc<dyn Buffer>) -> Vec<Result<(), DeviceError>> {
    let queue = rig.queue();
    let held = hold(rig, &queue);
    let semaphores: Vec<_> = works.iter().map(|_| rig.semaphore()).collect();
    for (work, semaphore) in works.iter().zip(&semaphores) {
        submit(&queue, writes(work, journal), semaphore, 1);
    }
    drop(held);
    semaphores.iter().map(|semaphore| outcome(semaphore, 1)).collect()
}

/// Kernels that are all in one context, and an empty journal.
fn placed(rig: &Rig, count: u8) -> (Vec<Arc<dyn Executable>>, Arc<dyn Buffer>) {
    let journal = rig.buffer(JOURNAL);
    let kernels: Vec<_> = (0..count).map(|number| rig.writer(number)).collect();
    run(rig, writes(&kernels.iter().collect::<Vec<_>>(), &journal)).unwrap();
    journal.write(0, &[0; JOURNAL]).unwrap();
    (kernels, journal)
}

fn failed(command: Option<usize>) -> AgentError {
    AgentError::Failed { command, reason: "as planned".into() }
}

fn timeout(command: Option<usize>) -> AgentError {
    AgentError::Timeout { command, reason: "as planned".into() }
}

#[test]
fn works_of_a_batch_share_a_chain() {
    let rig = Rig::new();
    let journal = rig.buffer(JOURNAL);
    let kernels: Vec<_> = (0..10).map(|number| rig.writer(number)).collect();
    let lists: Vec<Vec<_>> = kernels.iter().map(|kernel| vec![kernel, kernel, kernel]).collect();
    let works: Vec<&[_]> = lists.iter().map(Vec::as_slice).collect();
    assert!(batch(&rig, &works, &journal).iter().all(Result::is_ok));
    let expected: Vec<u8> = (0..10).flat_map(|number| [number; 3]).collect();
    assert_eq!(entries(&journal), expected);
    // One chain, although none of the PDIs had a place before: they are placed together.
    assert_eq!(chains(&rig), [30]);
    let counters = rig.device.counters();
    assert_eq!((counters.submissions, counters.dispatches), (11, 30));
    assert_eq!((counters.doorbells, counters.contexts_created), (1, 1));
}

#[rstest]
#[case::by_number(Some(8), 20, 1, &[8, 8, 4])]
#[case::exactly(Some(5), 10, 1, &[5, 5])]
#[case::one_by_one(Some(1), 3, 1, &[1, 1, 1])]
// A command with one argument has 84 bytes, one with two has 100.
#[case::by_bytes(None, 100, 1, &[48, 48, 4])]
#[case::by_bytes_of_two(None, 100, 2, &[40, 40, 20])]
#[case::above_the_limit(Some(1000), 100, 1, &[48, 48, 4])]
fn chains_end_at_the_limits(
    #[case] chain: Option<usize>,
    #[case] dispatches: usize,
    #[case] arguments: usize,
    #[case] expected: &[usize],
) {
    let rig = Rig::with(|_| {}, |_| {}, chain);
    let counter = rig.buffer(64);
    let other = rig.buffer(64);
    let count = rig.kernel("count", arguments, |_, output| output[0] += 1);
    let bindings = match arguments {
        1 => vec![whole(&counter)],
        _ => vec![whole(&other), whole(&counter)],
    };
    let commands = list(|builder| {
        for _ in 0..dispatches {
            builder.dispatch(&count, bindings.clone()).unwrap().barrier();
        }
    });
    run(&rig, commands).unwrap();
    assert_eq!(chains(&rig), expected);
    assert_eq!(bytes(&counter)[0] as usize, dispatches);
}

/// A kernel driver ends a job after 2 s, and an NPU at its lowest clock beside another program takes nine times as long as expected.
#[test]
fn chains_are_short_enough_for_a_slow_npu() {
    // 41 ms each.
    let rig = Rig::with_bandwidth(100_000);
    let counter = rig.buffer(4096);
    let count = rig.kernel("count", 1, |_, output| output[0] += 1);
    let commands = list(|builder| {
        for _ in 0..10 {
            builder.dispatch(&count, vec![whole(&counter)]).unwrap().barrier();
        }
    });
    run(&rig, commands).unwrap();
    assert_eq!(chains(&rig), [2; 5]);
    assert_eq!(bytes(&counter)[0], 10);

    // 300 ms.
    let large = rig.buffer(30_000);
    let commands = list(|builder| {
        builder.dispatch(&count, vec![whole(&large)]).unwrap();
    });
    let error = run(&rig, commands).unwrap_err().to_string();
    assert!(error.contains("takes 0.3 s on an idle NPU") && error.contains("-ub"), "{error}");
    assert_eq!(chains(&rig).len(), 5);
}

/// Twelve times as long as expected, which is more than is reckoned with before anything was measured: no chain takes 2 s all the same.
#[test]
fn chains_become_shorter_when_an_npu_is_slower_still() {
    // 10 ms each.
    let rig = Rig::with_bandwidth(409_600);
    let counter = rig.buffer(4096);
    let slow = rig.kernel("slow", 1, |_, output| {
        std::thread::sleep(Duration::from_millis(120));
        output[0] += 1;
    });
    let dispatches = |count: usize| {
        list(|builder| {
            for _ in 0..count {
                builder.dispatch(&slow, vec![whole(&counter)]).unwrap().barrier();
            }
        })
    };
    // The first chain is measured before the next ones are packed.
    run(&rig, dispatches(11)).unwrap();
    run(&rig, dispatches(24)).unwrap();
    // Eight at twelve times as long; fewer where the machine that runs this test was held up.
    let chains = chains(&rig);
    let (first, others) = chains.split_first().unwrap();
    assert!(*first == 11 && others.iter().all(|chain| *chain <= 8), "{chains:?}");
    assert_eq!((chains.iter().sum::<usize>(), bytes(&counter)[0]), (35, 35));
}

/// Works behind a failure run again and once, those before it have run.
#[rstest]
#[case::failed(failed(Some(5)), false)]
#[case::timeout(timeout(Some(5)), true)]
fn only_the_work_with_the_culprit_fails(#[case] error: AgentError, #[case] timed_out: bool) {
    let rig = Rig::new();
    let (kernels, journal) = placed(&rig, 10);
    let works: Vec<[_; 2]> = kernels.chunks(2).map(|pair| [&pair[0], &pair[1]]).collect();
    let works: Vec<&[_]> = works.iter().map(<[_; 2]>::as_slice).collect();
    rig.agent.fail(Call::Submit, 1, error, 5);
    let outcomes = batch(&rig, &works, &journal);
    for (index, outcome) in outcomes.iter().enumerate() {
        match (index, outcome) {
            (2, Err(DeviceError::Timeout(text))) if timed_out => assert!(text.contains("`write 5`"), "{text}"),
            (2, Err(DeviceError::Execution(text))) if !timed_out => assert!(text.contains("`write 5`"), "{text}"),
            (2, other) => panic!("{other:?}"),
            (_, other) => assert_eq!(*other, Ok(()), "work {index}"),
        }
    }
    // Command 5 did not run, and nothing ran twice.
    assert_eq!(entries(&journal), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
    // The context that failed is gone.
    let submitted = rig.agent.submitted();
    // The works that run again have their PDIs placed together.
    assert_eq!(chains(&rig)[1..], [10, 4]);
    assert!(submitted[2..].iter().all(|good| good.context != submitted[1].context));
    assert_eq!(rig.agent.contexts().len(), 1);
}

/// Works of two dispatches in chains of three, so that chains end inside works. A failure without a culprit fails every work
/// that may have started, also one that began in an earlier chain; what was never sent runs.
#[rstest]
#[case::without_culprit(1, failed(None), 2, &[0, 1], &[0, 0, 2, 2, 3, 3, 4, 4])]
#[case::without_culprit_none_ran(1, timeout(None), 0, &[0, 1], &[2, 2, 3, 3, 4, 4])]
#[case::second_chain(2, failed(None), 1, &[1, 2], &[0, 0, 1, 1, 3, 3, 4, 4])]
#[case::culprit_began_earlier(2, failed(Some(0)), 0, &[1], &[0, 0, 1, 2, 2, 3, 3, 4, 4])]
#[case::culprit_at_the_end(1, failed(Some(2)), 2, &[1], &[0, 0, 2, 2, 3, 3, 4, 4])]
#[case::culprit_outside_the_chain(1, failed(Some(99)), 3, &[0, 1], &[0, 0, 1, 2, 2, 3, 3, 4, 4])]
#[case::no_memory(1, AgentError::OutOfMemory("as planned".into()), 0, &[0, 1], &[2, 2, 3, 3, 4, 4])]
fn every_work_that_may_have_started_fails(
    #[case] submit: u64,
    #[case] error: AgentError,
    #[case] ran: usize,
    #[case] fail: &[usize],
    #[case] expected: &[u8],
) {
    let rig = Rig::with(|_| {}, |_| {}, Some(3));
    let (kernels, journal) = placed(&rig, 5);
    let works: Vec<[_; 2]> = kernels.iter().map(|kernel| [kernel, kernel]).collect();
    let works: Vec<&[_]> = works.iter().map(<[_; 2]>::as_slice).collect();
    rig.agent.fail(Call::Submit, submit, error, ran);
    let outcomes = batch(&rig, &works, &journal);
    let failures: Vec<_> = (0..5).filter(|index| outcomes[*index].is_err()).collect();
    assert_eq!(failures, fail, "{outcomes:?}");
    assert_eq!(entries(&journal), expected);
}

#[test]
fn a_work_that_waits_for_a_failed_one_does_not_run() {
    let rig = Rig::new();
    let (kernels, journal) = placed(&rig, 3);
    let queue = rig.queue();
    let semaphores: Vec<_> = (0..3).map(|_| rig.semaphore()).collect();
    rig.agent.fail(Call::Submit, 1, failed(Some(0)), 0);
    let held = hold(&rig, &queue);
    let point = |index: usize| TimelinePoint { semaphore: Arc::clone(&semaphores[index]), value: 1 };
    for (index, kernel) in kernels.iter().enumerate() {
        // The second waits for the first; the third for nothing.
        let waits = if index == 1 { vec![point(0)] } else { Vec::new() };
        let commands = Some(writes(&[kernel], &journal));
        queue.submit(Submission { waits, commands, signals: vec![point(index)], ..Submission::default() }).unwrap();
    }
    drop(held);
    let outcomes: Vec<_> = semaphores.iter().map(|semaphore| outcome(semaphore, 1)).collect();
    assert!(outcomes[0].is_err());
    assert_eq!(outcomes[1], outcomes[0]);
    assert_eq!(outcomes[2], Ok(()));
    assert_eq!(chains(&rig), [3, 3, 1]);
    assert_eq!(entries(&journal), [2]);
}

#[test]
fn dependent_works_share_a_chain() {
    let rig = Rig::new();
    let journal = rig.buffer(JOURNAL);
    let kernel = rig.writer(7);
    run(&rig, writes(&[&kernel], &journal)).unwrap();
    let queue = rig.queue();
    let semaphore = rig.semaphore();
    let held = hold(&rig, &queue);
    for value in 1..=20 {
        let point = |value| TimelinePoint { semaphore: Arc::clone(&semaphore), value };
        let waits = vec![point(value - 1)];
        let commands = Some(writes(&[&kernel], &journal));
        queue.submit(Submission { waits, commands, signals: vec![point(value)], ..Submission::default() }).unwrap();
    }
    drop(held);
    outcome(&semaphore, 20).unwrap();
    assert_eq!(chains(&rig), [1, 20]);
    assert_eq!(entries(&journal), [7; 21]);
}

#[test]
fn semaphores_are_signalled_in_order() {
    let rig = Rig::with(|_| {}, |_| {}, Some(3));
    let journal = rig.buffer(JOURNAL);
    let kernel = rig.writer(1);
    let queue = rig.queue();
    let (order, signalled) = channel();
    let held = hold(&rig, &queue);
    let semaphores: Vec<_> = (0..20_usize).map(|_| rig.semaphore()).collect();
    for (index, semaphore) in semaphores.iter().enumerate() {
        let order = order.clone();
        semaphore.subscribe(1, Box::new(move || order.send(index).unwrap()));
        submit(&queue, writes(&[&kernel], &journal), semaphore, 1);
    }
    drop((held, order));
    let order: Vec<_> = signalled.iter().collect();
    assert_eq!(order, (0..20).collect::<Vec<_>>());
}

/// A host call may wait for the signal of a work before its own, so that work has to be finished by then.
#[test]
fn a_host_call_ends_a_batch() {
    let rig = Rig::new();
    let (journal, seen) = (rig.buffer(JOURNAL), rig.buffer(JOURNAL));
    let (first, second) = (rig.writer(1), rig.writer(2));
    run(&rig, writes(&[&first, &second], &journal)).unwrap();
    let queue = rig.queue();
    let semaphores: Vec<_> = (0..3).map(|_| rig.semaphore()).collect();
    let before = Arc::clone(&semaphores[0]);
    let look = from_fn("test", 1, move |inputs, output| {
        before.wait_blocking(1, Some(LONG)).map_err(|cause| HostFunctionError::NotExecutable(cause.to_string()))?;
        output.copy_from_slice(inputs[0]);
        Ok(())
    });
    let held = hold(&rig, &queue);
    submit(&queue, writes(&[&first], &journal), &semaphores[0], 1);
    let middle = list(|builder| {
        builder.host_call(&look, vec![whole(&journal)], whole(&seen)).unwrap();
    });
    submit(&queue, middle, &semaphores[1], 1);
    submit(&queue, writes(&[&second], &journal), &semaphores[2], 1);
    drop(held);
    semaphores.iter().for_each(|semaphore| outcome(semaphore, 1).unwrap());
    assert_eq!(chains(&rig), [2, 1, 1]);
    assert_eq!(entries(&seen), [1, 2, 1]);
    assert_eq!(entries(&journal), [1, 2, 1, 2]);
}

#[test]
fn a_host_call_inside_a_work_sees_what_came_before_and_may_use_the_device() {
    let rig = Rig::new();
    let (data, copy) = (rig.buffer(64), rig.buffer(64));
    let add = rig.adder(5);
    let second = Arc::new(rig.second_device());
    let device = Arc::clone(&second);
    let look = from_fn("test", 1, move |inputs, output| {
        // The execution lock is open meanwhile.
        let params = BufferParams { size: 40 << 20, alignment: 64, pool: MemoryPool::DeviceHeap };
        let buffers = [device.allocate(&params), device.allocate(&params)];
        assert!(buffers[0].is_ok() && matches!(buffers[1], Err(DeviceError::OutOfMemory { .. })));
        output.copy_from_slice(inputs[0]);
        Ok(())
    });
    let commands = list(|builder| {
        let (data, copy) = (whole(&data), whole(&copy));
        builder.dispatch(&add, vec![data.clone(), data.clone()]).unwrap().barrier();
        builder.host_call(&look, vec![data.clone()], copy).unwrap().barrier();
        builder.dispatch(&add, vec![data.clone(), data]).unwrap();
    });
    run(&rig, commands).unwrap();
    assert_eq!((bytes(&data), bytes(&copy)), (vec![10; 64], vec![5; 64]));
    drop((second, look));
}

/// Four kernels in two contexts, alternating.
fn alternating(barriers: bool) -> (Vec<usize>, Vec<Vec<u8>>, u64) {
    let rig = Rig::with(|limits| limits.pdis_per_context = 2, |_| {}, None);
    let source = rig.buffer(64);
    let kernels: Vec<_> = (1..=4).map(|number| rig.adder(number)).collect();
    let outputs: Vec<_> = (0..12).map(|_| rig.buffer(64)).collect();
    let commands = list(|builder| {
        for (index, output) in outputs.iter().enumerate() {
            // 0, 2, 1, 3: each of another context than the one before.
            let kernel = &kernels[[0, 2, 1, 3][index % 4]];
            builder.dispatch(kernel, vec![whole(&source), whole(output)]).unwrap();
            if barriers {
                builder.barrier();
            }
        }
    });
    // The first two into one context, the others into another.
    for pair in kernels.chunks(2) {
        let (a, b) = (rig.buffer(64), rig.buffer(64));
        let place = list(|builder| {
            builder.dispatch(&pair[0], vec![whole(&source), whole(&a)]).unwrap();
            builder.dispatch(&pair[1], vec![whole(&source), whole(&b)]).unwrap();
        });
        run(&rig, place).unwrap();
    }
    assert_eq!(chains(&rig), [2, 2]);
    let before = rig.device.counters().context_switches;
    run(&rig, commands).unwrap();
    let switches = rig.device.counters().context_switches - before;
    (chains(&rig)[2..].to_vec(), outputs.iter().map(bytes).collect(), switches)
}

#[test]
fn dispatches_of_one_context_are_put_together_between_barriers() {
    let (ordered, results, switches) = alternating(true);
    // The list starts in the other context than the one that ran last.
    assert_eq!((ordered, switches), (vec![1; 12], 12));
    let expected: Vec<_> = (0..12).map(|index| vec![[1, 3, 2, 4][index % 4]; 64]).collect();
    assert_eq!(results, expected);
    let (gathered, results, switches) = alternating(false);
    // The context that ran last continues.
    assert_eq!((gathered, switches), (vec![6, 6], 1));
    assert_eq!(results, expected);
}

/// A work that cannot run, between two that can. What was gathered of it before the bad command has run.
#[rstest]
#[case::buffer_of_another_device("a buffer of another device")]
#[case::kernel_of_another_device("was loaded on another device")]
#[case::host_call("it panicked: as planned")]
fn a_work_that_cannot_run_fails_alone(#[case] reason: &str) {
    let rig = Rig::new();
    let second = rig.second_device();
    let journal = rig.buffer(JOURNAL);
    let foreign = second.allocate(&BufferParams::data(JOURNAL)).unwrap();
    let (one, two) = (rig.writer(1), rig.writer(2));
    let add = rig.adder(1);
    let elsewhere = second.load_executable(one.artifact()).unwrap();
    run(&rig, writes(&[&one, &two], &journal)).unwrap();
    let panics = from_fn("test", 0, |_, _| panic!("as planned"));
    let bad = list(|builder| {
        builder.dispatch(&one, vec![whole(&journal)]).unwrap().barrier();
        match reason {
            // Its first argument is in order.
            "a buffer of another device" => builder.dispatch(&add, vec![whole(&journal), whole(&foreign)]).unwrap(),
            "was loaded on another device" => builder.dispatch(&elsewhere, vec![whole(&journal)]).unwrap(),
            _ => builder.host_call(&panics, vec![], whole(&journal)).unwrap(),
        };
        builder.barrier().dispatch(&two, vec![whole(&journal)]).unwrap();
    });
    let queue = rig.queue();
    let semaphores: Vec<Arc<dyn Semaphore>> = (0..3).map(|_| rig.semaphore()).collect();
    let held = hold(&rig, &queue);
    for (semaphore, commands) in semaphores.iter().zip([writes(&[&one], &journal), bad, writes(&[&two], &journal)]) {
        submit(&queue, commands, semaphore, 1);
    }
    drop(held);
    let outcomes: Vec<_> = semaphores.iter().map(|semaphore| outcome(semaphore, 1)).collect();
    assert_eq!((&outcomes[0], &outcomes[2]), (&Ok(()), &Ok(())));
    let error = outcomes[1].as_ref().unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
    // A kernel of another device is noticed before anything of its list runs.
    let partly: &[u8] = if reason.contains("loaded") { &[] } else { &[1] };
    assert_eq!(entries(&journal), [&[1, 2, 1], partly, &[2]].concat());
    drop((elsewhere, foreign, second));
}
