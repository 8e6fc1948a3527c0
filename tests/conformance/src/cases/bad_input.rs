//! What a rejection leaves behind: nothing was touched, and the device works on.
//!
//! Which submissions are rejected, and with which words, is the validation layer's, and tested there.

use crate::expect::{self, expect_match};
use crate::rig::{Context, Rig, at, contents, nothing, reached, record, signalling, whole};
use aie_hal::semaphore::MAX_VALUE;
use aie_hal::{BindingTable, BufferRef, SubmitError};

/// The device runs a list after what went before.
fn still_works(rig: &Rig) {
    let buffer = rig.zeroed(64);
    rig.run(&record(|list| list.fill(&[1], whole(&buffer))));
    expect::bytes("work after the mistake", &contents(&buffer), &[1; 64]);
}

/// A signal that would not increase its semaphore is rejected.
pub fn signals_that_do_not_increase_are_refused(context: &Context) {
    let rig = context.shared();
    let semaphore = rig.semaphore();
    semaphore.signal(5).expect("an increase");
    let list = nothing();
    for value in [0, 4, 5, u64::MAX] {
        let result = rig.queue.submit(signalling(&list, vec![at(&semaphore, value)]));
        let error = expect_match!(format!("a signal to {value}"), result, Err(e @ SubmitError::Semaphores(_)) => e);
        expect::mentions(&error, &["signal 0"]);
        expect::equal("value", semaphore.query(), Ok(5));
    }
    rig.queue.submit(signalling(&list, vec![at(&semaphore, MAX_VALUE)])).expect("an increase");
    reached(&at(&semaphore, MAX_VALUE));
}

/// A rejected submission counts nothing, runs nothing, and fails nothing.
pub fn refused_submissions_touch_nothing(context: &Context) {
    let rig = context.fresh();
    let buffer = rig.zeroed(64);
    let before = rig.device.counters();
    let bad = record(|list| list.fill(&[1], whole(&buffer))?.fill(&[2], whole(&buffer)));
    let missing = record(|list| list.fill(&[1], BufferRef::slot(0, 0, 64))?.barrier().fill(&[1], whole(&buffer)));
    for list in [&bad, &missing] {
        rig.rejected(list, BindingTable::default());
    }
    rig.queue.wait_idle(None).expect("an idle queue");
    expect::equal("counters", rig.device.counters(), before);
    expect::bytes("the buffer", &contents(&buffer), &[0; 64]);
    still_works(&rig);
}
