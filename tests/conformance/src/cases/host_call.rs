//! Functions on the host, in queue order.

use crate::expect::{self, expect_match};
use crate::kernels::{FAILURE, TestKernel};
use crate::rig::{Context, at, contents, host_view, part, pattern, reached, record, signalling, whole};
use aie_hal::host_function::from_fn;
use aie_hal::{DeviceError, HostFunctionError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Inputs arrive in order and with their lengths, and the output is written.
pub fn inputs_arrive_in_order(context: &Context) {
    let rig = context.shared();
    let (a, b, target) = (rig.buffer(&pattern(100, 1)), rig.buffer(&pattern(61, 2)), rig.zeroed(161));
    let concat = TestKernel::Concat.kernel();
    rig.run(&record(|list| list.host_call(&concat, vec![whole(&a), whole(&b)], whole(&target))));
    expect::bytes("target", &contents(&target), &[pattern(100, 1), pattern(61, 2)].concat());
}

/// A function without inputs writes its output.
pub fn functions_without_inputs(context: &Context) {
    let rig = context.shared();
    let target = rig.zeroed(100);
    let constant = TestKernel::Constant(9).kernel();
    rig.run(&record(|list| list.host_call(&constant, vec![], part(&target, 10, 50))));
    let mut expected = [0; 100];
    expected[10..60].fill(9);
    expect::bytes("target", &contents(&target), &expected);
}

/// Output bytes that the function does not write keep the value the device gave them.
pub fn unwritten_output_bytes_stay(context: &Context) {
    let rig = context.shared();
    let (source, target) = (rig.zeroed(1000), rig.zeroed(1000));
    let even = TestKernel::Even.kernel();
    rig.run(&record(|list| {
        list.fill(&[1], whole(&source))?.fill(&[2], whole(&target))?.barrier();
        list.host_call(&even, vec![whole(&source)], whole(&target))
    }));
    let expected: Vec<u8> = [1, 2].repeat(500);
    expect::bytes("target, host", &contents(&target), &expected);
    expect::bytes("target, device", &rig.device_view(&target), &expected);
}

/// An output that overlaps its inputs: the inputs are read as they were before.
pub fn output_may_overlap_inputs(context: &Context) {
    let rig = context.shared();
    let reverse = TestKernel::Reverse.kernel();
    for (source, target) in [(0, 0), (0, 100), (100, 0), (100, 101)] {
        let buffer = rig.buffer(&pattern(600, 1));
        rig.run(&record(|list| list.host_call(&reverse, vec![part(&buffer, source, 400)], part(&buffer, target, 400))));
        let before = pattern(600, 1);
        let mut expected = before.clone();
        let backwards: Vec<u8> = before[source..source + 400].iter().rev().copied().collect();
        expected[target..target + 400].copy_from_slice(&backwards);
        expect::bytes(&format!("from {source} to {target}"), &contents(&buffer), &expected);
    }
}

pub fn functions_run_once_per_submission(context: &Context) {
    let rig = context.shared();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let count = from_fn("count", 0, move |_, output| {
        output[0] = counter.fetch_add(1, Ordering::SeqCst) as u8 + 1;
        Ok(())
    });
    let target = rig.zeroed(4);
    let list = record(|list| list.host_call(&count, vec![], whole(&target)));
    expect::equal("calls after recording", calls.load(Ordering::SeqCst), 0);
    for round in 1..=5 {
        rig.run(&list);
        expect::equal("calls", calls.load(Ordering::SeqCst), round);
        expect::bytes("target", &contents(&target), &[round as u8, 0, 0, 0]);
    }
}

/// A function that fails fails the signals with its cause and name; what follows in the list does not run, later work does.
pub fn failing_functions_fail_the_submission(context: &Context) {
    let rig = context.fresh();
    let fail = from_fn("gather_rows", 0, |_, _| {
        Err(HostFunctionError::Data { kernel: "gather_rows".into(), reason: FAILURE.into() })
    });
    let (target, after) = (rig.zeroed(64), rig.zeroed(64));
    let list = record(|list| list.host_call(&fail, vec![], whole(&target))?.barrier().fill(&[1], whole(&after)));
    for _ in 0..3 {
        let cause = rig.run_to_failure(&list);
        expect_match!("cause", &*cause, DeviceError::Execution(_));
        expect::mentions(&cause, &["gather_rows", FAILURE]);
        expect::bytes("target of a later command", &contents(&after), &[0; 64]);
    }
    rig.run(&record(|list| list.fill(&[2], whole(&after))));
    expect::bytes("target of later work", &contents(&after), &[2; 64]);
}

/// A function that panics is a function that failed: no one waits forever, and later work runs.
pub fn panicking_functions_fail_the_submission(context: &Context) {
    let rig = context.fresh();
    let panicking = from_fn("careless", 0, |_, _| panic!("a panic inside a host function"));
    let target = rig.zeroed(64);
    let cause = rig.run_to_failure(&record(|list| list.host_call(&panicking, vec![], whole(&target))));
    expect_match!("cause", &*cause, DeviceError::Execution(_));
    expect::mentions(&cause, &["careless"]);
    rig.run(&record(|list| list.fill(&[2], whole(&target))));
    expect::bytes("target of later work", &contents(&target), &[2; 64]);
}

/// A function may use the device as any thread may: allocate, access memory, signal, even submit without waiting.
pub fn functions_may_use_the_device(context: &Context) {
    let rig = Arc::new(context.fresh());
    let (inner, later, target) = (Arc::downgrade(&rig), rig.semaphore(), rig.zeroed(64));
    let signal = Arc::clone(&later);
    let nested = from_fn("nested", 0, move |_, output| {
        let rig = inner.upgrade().expect("the device, while its work runs");
        let buffer = rig.buffer(&[8; 64]);
        output.copy_from_slice(&host_view(&buffer));
        let list = record(|list| list.fill(&[1], whole(&buffer)));
        rig.queue.submit(signalling(&list, vec![at(&signal, 1)])).expect("a valid submission");
        Ok(())
    });
    rig.run(&record(|list| list.host_call(&nested, vec![], whole(&target))));
    expect::bytes("target", &contents(&target), &[8; 64]);
    reached(&at(&later, 1));
}
