use crate::npu::WATCHDOG_NS;
use crate::rig::{Add, Rig};
use aie_hal::command_list::{Binding, BindingTable, BufferRef, CommandList};
use aie_hal::{DeviceError, HostFunction};
use rstest::rstest;
use std::sync::Arc;

fn list(record: impl FnOnce(&mut aie_hal::CommandListBuilder)) -> Arc<CommandList> {
    let mut builder = CommandList::builder();
    record(&mut builder);
    Arc::new(builder.finish())
}

fn one_slot(rig: &Rig) -> BindingTable {
    let buffer = rig.buffer(&[0; 64]);
    BindingTable { bindings: vec![Binding { length: buffer.size(), buffer, offset: 0 }] }
}

#[rstest]
#[case("mock")]
#[case("mock:aie2?coherent=false")]
#[case("mock?order=reverse")]
#[case("mock?order=reverse&coherent=false")]
fn every_command_does_its_work(#[case] uri: &str) {
    let rig = Rig::new(uri);
    let (a, b, out) = (rig.buffer(&[1; 8]), rig.buffer(&[2; 8]), rig.buffer(&[9; 8]));
    let kernel = rig.kernel(3, 2);
    let host: Arc<dyn HostFunction> = Arc::new(Add { constant: 10, inputs: 1 });
    let list = list(|list| {
        let at = |buffer, offset, length| BufferRef::direct(buffer, offset, length);
        list.fill(&[1, 2], at(&a, 0, 4)).unwrap();
        list.update(&[7, 8], at(&b, 6, 2)).unwrap().barrier();
        // a = 1 2 1 2 1 1 1 1, b = 2 2 2 2 2 2 7 8
        list.dispatch(&kernel, vec![at(&a, 0, 8), at(&b, 0, 8), at(&out, 0, 8)]).unwrap().barrier();
        // out = 6 7 6 7 6 6 11 12
        list.host_call(&host, vec![at(&out, 0, 4)], at(&out, 4, 4)).unwrap().barrier();
        // out = 6 7 6 7 16 17 16 17
        list.dispatch(&kernel, vec![at(&out, 4, 4), at(&out, 4, 4), at(&out, 2, 4)]).unwrap().barrier();
        // out = 6 7 35 37 35 37 16 17
        list.copy(at(&out, 2, 2), BufferRef::slot(0, 1, 2)).unwrap();
    });
    let bindings = one_slot(&rig);
    let target = Arc::clone(&bindings.bindings[0].buffer);
    rig.run(&list, bindings).unwrap();
    assert_eq!(rig.bytes(&out), [6, 7, 35, 37, 35, 37, 16, 17]);
    assert_eq!(rig.bytes(&target)[..4], [0, 35, 37, 0]);
    let counters = rig.device.counters();
    assert_eq!((counters.submissions, counters.dispatches, counters.host_calls), (1, 2, 1));
    assert_eq!((counters.chains, counters.doorbells, counters.contexts_created), (2, 2, 1));
    assert_eq!(counters.bytes_copied, 4 + 2 + 2);
}

#[test]
fn host_calls_keep_what_they_do_not_write() {
    #[derive(Debug)]
    struct First;
    impl HostFunction for First {
        fn name(&self) -> &str {
            "first"
        }
        fn input_count(&self) -> usize {
            0
        }
        fn run(&self, _: &[&[u8]], output: &mut [u8]) -> Result<(), aie_hal::HostFunctionError> {
            output[0] = 9;
            Ok(())
        }
    }
    let rig = Rig::new("mock?coherent=false");
    let buffer = rig.buffer(&[1; 4]);
    let function: Arc<dyn HostFunction> = Arc::new(First);
    let list = list(|list| {
        list.fill(&[5], BufferRef::direct(&buffer, 0, 4)).unwrap().barrier();
        list.host_call(&function, vec![], BufferRef::direct(&buffer, 0, 4)).unwrap();
    });
    rig.run(&list, one_slot(&rig)).unwrap();
    assert_eq!(rig.bytes(&buffer), [9, 5, 5, 5]);
}

#[test]
fn chains_end_at_the_limits_and_share_a_doorbell() {
    let rig = Rig::new("mock");
    let buffer = rig.buffer(&[0; 4]);
    let kernel = rig.kernel(1, 1);
    rig.repeat(&vec![kernel; 100], &buffer).unwrap();
    assert_eq!(rig.bytes(&buffer), [100; 4]);
    let counters = rig.device.counters();
    // 40 commands with two arguments fill the chain buffer.
    assert_eq!((counters.chains, counters.doorbells, counters.dispatches), (3, 1, 100));
    let cost = rig.device.arch().cost.clone();
    let traffic = [40_u64, 40, 20].map(|n| (n * 8 * 1_000_000_000).div_ceil(cost.ddr_bytes_per_second));
    let expected = cost.context_create_ns + 3 * cost.chain_ns + 97 * cost.command_ns + traffic.iter().sum::<u64>();
    assert_eq!(counters.virtual_ns, expected);
}

#[test]
fn any_number_of_pdis_runs() {
    let rig = Rig::new("mock");
    let buffer = rig.buffer(&[0; 1]);
    let kernels: Vec<_> = (0..33).map(|_| 1).enumerate().map(|(i, one)| rig.kernel(one + 256 * i as u32, 1)).collect();
    rig.repeat(&kernels[..32], &buffer).unwrap();
    assert_eq!(rig.device.counters().contexts_created, 1);
    rig.repeat(&kernels, &buffer).unwrap();
    let counters = rig.device.counters();
    assert_eq!((counters.contexts_created, counters.context_switches), (2, 1));
    assert_eq!(rig.bytes(&buffer), [65]);
    // A repetition creates nothing; it switches there and back.
    rig.repeat(&kernels, &buffer).unwrap();
    let again = rig.device.counters();
    assert_eq!((again.contexts_created, again.context_switches), (2, 3));
}

#[test]
fn more_pdis_than_all_contexts_hold_run() {
    let rig = Rig::new("mock:aie2");
    let (contexts, pdis) = (rig.device.limits().contexts, rig.device.limits().pdis_per_context);
    let buffer = rig.buffer(&[0; 1]);
    let count = contexts * pdis + 5;
    let kernels: Vec<_> = (0..count).map(|i| rig.kernel(1 + 256 * i as u32, 1)).collect();
    for round in 1..=2_usize {
        rig.repeat(&kernels, &buffer).unwrap();
        assert_eq!(rig.bytes(&buffer), [(count * round) as u8]);
    }
}

#[test]
fn unordered_commands_run_backwards_when_asked() {
    let record = |rig: &Rig| {
        let buffer = rig.buffer(&[0; 4]);
        let list = list(|list| {
            list.fill(&[1], BufferRef::direct(&buffer, 0, 4)).unwrap();
            list.fill(&[2], BufferRef::direct(&buffer, 1, 2)).unwrap().barrier();
            list.fill(&[3], BufferRef::direct(&buffer, 2, 1)).unwrap();
        });
        rig.run(&list, one_slot(rig)).unwrap();
        rig.bytes(&buffer)
    };
    assert_eq!(record(&Rig::new("mock")), [1, 2, 3, 1]);
    assert_eq!(record(&Rig::new("mock?order=reverse")), [1, 1, 3, 1]);
}

#[test]
fn a_timeout_ends_the_submission_and_not_the_device() {
    let rig = Rig::new("mock?fault=timeout@2");
    let buffer = rig.buffer(&[0; 1]);
    let kernel = rig.kernel(1, 1);
    let before = rig.device.counters().virtual_ns;
    let error = rig.repeat(&vec![Arc::clone(&kernel); 3], &buffer).unwrap_err();
    let expected = "timeout: dispatch of `add` (command 2) never signalled: the fault plan says so";
    assert_eq!(error.to_string(), expected);
    assert_eq!(rig.bytes(&buffer), [1]);
    assert!(rig.device.counters().virtual_ns - before > WATCHDOG_NS);
    rig.repeat(&[kernel], &buffer).unwrap();
    assert_eq!(rig.bytes(&buffer), [2]);
}

#[test]
fn a_lost_device_stays_lost_with_its_first_cause() {
    let rig = Rig::new("mock?fault=lost@1");
    let buffer = rig.buffer(&[0; 1]);
    let kernel = rig.kernel(1, 1);
    let first = rig.repeat(&[Arc::clone(&kernel)], &buffer).unwrap_err();
    assert!(matches!(&first, DeviceError::Lost(cause) if cause.contains("dispatch of `add` (command 0)")), "{first}");
    assert_eq!(rig.repeat(&[kernel], &buffer).unwrap_err(), first);
    assert_eq!(rig.device.create_queue().map(drop).unwrap_err(), first);
    assert_eq!(rig.device.create_semaphore(0).map(drop).unwrap_err(), first);
    assert_eq!(rig.queue.flush().unwrap_err(), first);
    assert_eq!(rig.queue.wait_idle(None).unwrap_err(), first);
    assert_eq!(futures::executor::block_on(rig.queue.idle()).unwrap_err(), first);
}

#[test]
fn garbage_and_zeroes_complete() {
    let rig = Rig::new("mock?fault=garbage@1+zero@2");
    let (source, target) = (rig.buffer(&[1; 32]), rig.buffer(&[7; 32]));
    let kernel = rig.kernel(1, 1);
    let run = || {
        let list = list(|list| {
            let whole = |buffer| BufferRef::direct(buffer, 0, 32);
            list.dispatch(&kernel, vec![whole(&source), whole(&target)]).unwrap();
        });
        rig.run(&list, one_slot(&rig)).unwrap();
        rig.bytes(&target)
    };
    let garbage = run();
    assert!(garbage.iter().filter(|b| **b == 2).count() < 8, "{garbage:?}");
    assert_eq!(run(), [0; 32]);
    assert_eq!(run(), [2; 32]);
}

#[test]
fn what_cannot_be_executed_times_out_with_the_reason() {
    let rig = Rig::new("mock");
    let artifact = crate::rig::artifact(rig.device.arch(), "compiled", 1);
    let kernel = rig.device.load_executable(&artifact).unwrap();
    let error = rig.repeat(&[kernel], &rig.buffer(&[0; 1])).unwrap_err();
    let expected = "timeout: dispatch of `add` (command 0) never signalled: cannot execute: compiled AIE code";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn failing_and_panicking_kernels_fail_their_submission_only() {
    let rig = Rig::new("mock");
    let buffer = rig.buffer(&[0; 1]);
    let error = rig.repeat(&[rig.kernel(255, 1)], &buffer).unwrap_err();
    let expected = "execution failed: dispatch of `add` (command 0): data of `add`: 255 is refused";
    assert_eq!(error.to_string(), expected);
    let error = rig.repeat(&[rig.kernel(254, 1)], &buffer).unwrap_err();
    let expected = "execution failed: dispatch of `add` (command 0): it panicked: 254 panics";
    assert_eq!(error.to_string(), expected);
    rig.repeat(&[rig.kernel(1, 1)], &buffer).unwrap();
    assert_eq!(rig.bytes(&buffer), [1]);
}

#[test]
fn foreign_objects_and_bad_slots_are_errors() {
    let (rig, other) = (Rig::new("mock"), Rig::new("mock"));
    let foreign = other.buffer(&[0; 4]);
    let fill = list(|list| {
        list.fill(&[1], BufferRef::direct(&foreign, 0, 4)).unwrap();
    });
    let error = rig.run(&fill, one_slot(&rig)).unwrap_err().to_string();
    assert!(error.contains("command 0: a buffer of another device"), "{error}");
    let error = rig.repeat(&[other.kernel(1, 1)], &rig.buffer(&[0; 1])).unwrap_err().to_string();
    assert!(error.contains("loaded on another device"), "{error}");
    let fill = list(|list| {
        list.fill(&[1], BufferRef::slot(0, 60, 8)).unwrap();
    });
    let error = rig.run(&fill, one_slot(&rig)).unwrap_err().to_string();
    assert!(error.contains("range 60+8 leaves the 64 bytes it refers to"), "{error}");
}
