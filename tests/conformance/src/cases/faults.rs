//! Devices that fail: the plan is in the URI, the failure is where the contract says.

use crate::expect::{self, expect_match};
use crate::kernels::TestKernel;
use crate::rig::{
    Context, PATIENCE, Rig, at, contents, finished, host_view, pattern, record, signalling, store, whole,
};
use aie_hal::{BufferParams, CommandList, DeviceError, Failure, Submission, SubmitError};
use std::sync::Arc;

/// A device with a plan, and a list that adds 1 to a buffer of `pattern(64, 1)`.
fn planned(
    context: &Context,
    fault: &str,
) -> (Rig, Arc<CommandList>, Arc<dyn aie_hal::Buffer>, Arc<dyn aie_hal::Buffer>) {
    let rig = context.fresh_with(&[fault]);
    let (source, target) = (rig.buffer(&pattern(64, 1)), rig.zeroed(64));
    let add = rig.load(&TestKernel::Add8(1));
    let list = record(|list| list.dispatch(&add, vec![whole(&source), whole(&target)]));
    (rig, list, source, target)
}

fn result() -> Vec<u8> {
    pattern(64, 1).iter().map(|byte| byte.wrapping_add(1)).collect()
}

/// Loses the device with the first dispatch and returns the cause.
fn lose(rig: &Rig, list: &Arc<CommandList>) -> Failure {
    let cause = rig.run_to_failure(list);
    expect_match!("cause", &*cause, DeviceError::Lost(_));
    cause
}

pub fn a_loss_fails_the_submission(context: &Context) {
    let (rig, list, ..) = planned(context, "fault=lost@1");
    let cause = lose(&rig, &list);
    expect::holds("the loss has a reason", &cause, cause.to_string().len() > "device lost: ".len());
}

/// After a loss every call reports the first cause, forever.
pub fn a_loss_is_sticky(context: &Context) {
    let (rig, list, ..) = planned(context, "fault=lost@1");
    let cause = lose(&rig, &list);
    let lost = || Err((*cause).clone());
    for _ in 0..2 {
        let artifact = TestKernel::Add8(2).artifact(rig.device.arch());
        expect::equal("allocating", rig.device.allocate(&BufferParams::data(64)).map(drop), lost());
        expect::equal("loading", rig.device.load_executable(&artifact).map(drop), lost());
        expect::equal("creating a queue", rig.device.create_queue().map(drop), lost());
        expect::equal("creating a semaphore", rig.device.create_semaphore(0).map(drop), lost());
        expect::equal("waiting for idle", rig.queue.wait_idle(Some(PATIENCE)), lost());
        expect::equal("flushing the queue", rig.queue.flush(), lost());
        let submitted = rig.queue.submit(signalling(&list, vec![]));
        expect::equal("submitting", submitted, Err(SubmitError::Device((*cause).clone())));
    }
}

/// A loss fails what is pending, on all queues, so that no one waits forever.
pub fn a_loss_fails_pending_work(context: &Context) {
    let (rig, list, ..) = planned(context, "fault=lost@1");
    let other = rig.device.create_queue().expect("a queue");
    let (never, first, second) = (rig.semaphore(), rig.semaphore(), rig.semaphore());
    let waiting = |done| Submission { waits: vec![at(&never, 1)], signals: vec![at(done, 1)], ..Submission::default() };
    rig.queue.submit(waiting(&first)).expect("a valid submission");
    other.submit(waiting(&second)).expect("a valid submission");
    let cause = lose(&rig, &list);
    expect::equal("pending on the same queue", finished(&at(&first, 1)), Err(Arc::clone(&cause)));
    expect::equal("pending on another queue", finished(&at(&second, 1)), Err(cause));
}

pub fn a_lost_device_can_be_opened_again(context: &Context) {
    let (rig, list, ..) = planned(context, "fault=lost@1");
    lose(&rig, &list);
    drop((rig, list));
    let rig = context.fresh();
    let buffer = rig.zeroed(64);
    rig.run(&record(|list| list.fill(&[1], whole(&buffer))));
    expect::bytes("work on a device opened again", &contents(&buffer), &[1; 64]);
}

/// Memory of a lost device can still be read by the host.
pub fn memory_of_a_lost_device_is_readable(context: &Context) {
    let (rig, list, source, _) = planned(context, "fault=lost@1");
    lose(&rig, &list);
    expect::bytes("source", &host_view(&source), &pattern(64, 1));
}

/// A loss happens at the planned dispatch and not before.
pub fn faults_happen_when_planned(context: &Context) {
    let (rig, list, _, target) = planned(context, "fault=lost@4");
    for _ in 0..3 {
        store(&target, 0, &[0; 64]);
        rig.run(&list);
        expect::bytes("target before the fault", &contents(&target), &result());
    }
    lose(&rig, &list);
}

/// A dispatch that times out fails its submission; the device works on.
pub fn a_timeout_passes(context: &Context) {
    let (rig, list, _, target) = planned(context, "fault=timeout@2");
    rig.run(&list);
    let cause = rig.run_to_failure(&list);
    expect_match!("cause", &*cause, DeviceError::Timeout(_));
    expect::mentions(&cause, &["add8_1"]);
    store(&target, 0, &[0; 64]);
    rig.run(&list);
    expect::bytes("target after the timeout", &contents(&target), &result());
}

/// An allocation that fails is an error with numbers; the next one succeeds.
pub fn an_allocation_failure_passes(context: &Context) {
    let rig = context.fresh_with(&["fault=alloc@2"]);
    let allocate = || rig.device.allocate(&BufferParams::data(4096)).map(|b| b.size());
    expect::equal("first", allocate(), Ok(4096));
    expect_match!("second", allocate(), Err(DeviceError::OutOfMemory { requested: 4096, .. }));
    expect::equal("third", allocate(), Ok(4096));
}

/// A dispatch may complete and leave garbage: completion proves nothing, the bytes differ.
pub fn garbage_completes(context: &Context) {
    let (rig, list, source, target) = planned(context, "fault=garbage@1");
    rig.run(&list);
    let found = contents(&target);
    expect::holds("the output is wrong", &found, found != result());
    expect::bytes("source", &contents(&source), &pattern(64, 1));
    rig.run(&list);
    expect::bytes("output of the next dispatch", &contents(&target), &result());
}

/// A dispatch may complete and leave zeroes.
pub fn zeroes_complete(context: &Context) {
    let (rig, list, _, target) = planned(context, "fault=zero@1");
    store(&target, 0, &[9; 64]);
    rig.run(&list);
    expect::bytes("output", &contents(&target), &[0; 64]);
    rig.run(&list);
    expect::bytes("output of the next dispatch", &contents(&target), &result());
}

/// A stale cache line: one flush does nothing, and the device sees old data.
pub fn stale_lines_give_old_data(context: &Context) {
    let rig = context.fresh_with(&["fault=stale@2"]);
    let buffer = rig.buffer(&pattern(64, 1));
    store(&buffer, 0, &pattern(64, 2));
    expect::bytes("device view", &rig.device_view(&buffer), &pattern(64, 1));
    store(&buffer, 0, &pattern(64, 2));
    expect::bytes("device view after the next flush", &rig.device_view(&buffer), &pattern(64, 2));
}
