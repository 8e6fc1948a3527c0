//! Several devices of one driver, and what must not cross between them.

use crate::expect;
use crate::kernels::TestKernel;
use crate::rig::{Context, Rig, contents, pattern, record, whole};
use aie_hal::DeviceUri;

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
        let list = record(|list| list.dispatch(&add, vec![whole(&buffer), whole(&buffer)]));
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
    a.run(&record(|list| list.update(&pattern(4096, 1), whole(&source))));
    let target = b.buffer(&contents(&source));
    expect::bytes("view of the second device", &b.device_view(&target), &pattern(4096, 1));
}

/// Closing one device leaves the other alone.
pub fn devices_close_independently(context: &Context) {
    let [a, b] = two(context);
    drop(a);
    let buffer = b.zeroed(64);
    b.run(&record(|list| list.fill(&[1], whole(&buffer))));
    expect::bytes("buffer", &contents(&buffer), &[1; 64]);
}
