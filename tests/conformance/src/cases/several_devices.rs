//! Several devices of one driver, and what must not cross between them.

use crate::expect::{self, expect_match};
use crate::kernels::TestKernel;
use crate::rig::{Context, Rig, at, contents, nothing, pattern, record, signalling, table, whole};
use aie_hal::{BindingTable, BufferRef, DeviceUri, SubmitError};

fn two(context: &Context) -> [Rig; 2] {
    let devices = context.open(&["devices=2"]);
    expect::equal("devices opened", devices.len(), 2);
    let mut rigs = devices.into_iter().map(Rig::new);
    [(); 2].map(|()| rigs.next().expect("two devices"))
}

/// One URI opens two devices whose own URIs differ and open each of them alone.
pub fn devices_have_uris_of_their_own(context: &Context) {
    let rigs = two(context);
    let uris = rigs.each_ref().map(|rig| rig.device.info().uri.to_string());
    expect::holds("the URIs differ", &uris, uris[0] != uris[1]);
    for (uri, rig) in uris.iter().zip(&rigs) {
        let parsed = DeviceUri::parse(uri).expect("a device's own URI");
        let devices = context.driver().open(&parsed).unwrap_or_else(|e| panic!("expected `{uri}` to open: {e}"));
        expect::equal("devices opened", devices.len(), 1);
        expect::equal("info", devices[0].info(), rig.device.info());
    }
}

/// Two devices work at the same time, and count their own work only.
pub fn devices_work_side_by_side(context: &Context) {
    let rigs = two(context);
    for (rig, seed) in rigs.iter().zip([1, 2]) {
        let add = rig.load(&TestKernel::Add8(seed));
        let buffer = rig.zeroed(256);
        let list = record(0, |list| list.dispatch(&add, vec![whole(&buffer), whole(&buffer)]));
        for _ in 0..seed {
            rig.run(&list);
        }
        expect::bytes("buffer", &contents(&buffer), &[seed * seed; 256]);
        expect::equal("dispatches", rig.device.counters().dispatches, u64::from(seed));
    }
}

/// Data goes from device to device through the host.
pub fn data_crosses_through_the_host(context: &Context) {
    let [a, b] = two(context);
    let source = a.zeroed(4096);
    a.run(&record(0, |list| list.update(&pattern(4096, 1), whole(&source))));
    let target = b.buffer(&contents(&source));
    expect::bytes("view of the second device", &b.device_view(&target), &pattern(4096, 1));
}

/// A buffer of another device is refused, direct or bound, and keeps its bytes.
pub fn foreign_buffers_are_refused(context: &Context) {
    let [a, b] = two(context);
    let (own, foreign) = (a.zeroed(64), b.buffer(&pattern(64, 1)));
    let mixed = record(0, |list| list.copy(whole(&own), whole(&foreign)));
    a.refused(&mixed, BindingTable::default());
    let all = record(0, |list| list.fill(&[1], whole(&foreign)));
    a.refused(&all, BindingTable::default());
    let bound = record(1, |list| list.fill(&[1], BufferRef::slot(0, 0, 64)));
    expect_match!("bound", a.refused(&bound, table(&[&foreign])), SubmitError::Binding(_));
    expect::bytes("the foreign buffer", &contents(&foreign), &pattern(64, 1));
    b.run_with(&bound, table(&[&foreign]));
    expect::bytes("the same list on its own device", &contents(&foreign), &[1; 64]);
}

/// An executable of another device is refused.
pub fn foreign_executables_are_refused(context: &Context) {
    let [a, b] = two(context);
    let (own, foreign) = (a.zeroed(64), b.load(&TestKernel::Add8(1)));
    let list = record(0, |list| list.dispatch(&foreign, vec![whole(&own), whole(&own)]));
    a.refused(&list, BindingTable::default());
    expect::bytes("the buffer", &contents(&own), &[0; 64]);
}

/// A semaphore of another device is refused as a wait and as a signal, with a way out.
pub fn foreign_semaphores_are_refused(context: &Context) {
    let [a, b] = two(context);
    let foreign = b.semaphore();
    let list = nothing();
    let mut wait = signalling(&list, vec![]);
    wait.waits = vec![at(&foreign, 1)];
    for submission in [wait, signalling(&list, vec![at(&foreign, 1)])] {
        let error = expect_match!("submitting", a.queue.submit(submission), Err(e @ SubmitError::Semaphores(_)) => e);
        expect::mentions(&error, &["host"]);
    }
    expect::equal("the foreign semaphore", foreign.query(), Ok(0));
}

/// Closing one device leaves the other alone.
pub fn devices_close_independently(context: &Context) {
    let [a, b] = two(context);
    drop(a);
    let buffer = b.zeroed(64);
    b.run(&record(0, |list| list.fill(&[1], whole(&buffer))));
    expect::bytes("buffer", &contents(&buffer), &[1; 64]);
}
