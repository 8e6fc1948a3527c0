use crate::MockDriver;
use aie_conformance::Rig;
use aie_conformance::kernels::TestExecutor;
use aie_conformance::rig::{part, record};
use aie_hal::buffer::HostMemory;
use aie_hal::{DeviceUri, Driver};
use rstest::rstest;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

fn driver() -> MockDriver {
    MockDriver::new(Arc::new(TestExecutor))
}

#[test]
fn listed_uris_open_and_name_the_device_again() {
    let driver = driver();
    let listed = driver.enumerate().unwrap();
    assert_eq!(listed[0].uri.to_string(), "mock:aie2p");
    for listing in listed {
        let device = driver.open(&listing.uri).unwrap().remove(0);
        assert_eq!(device.info().uri, listing.uri);
        assert_eq!((Some(&device.info().arch), &device.info().name), (listing.arch.as_ref(), &listing.name));
    }
    let uri = DeviceUri::parse("mock?devices=2&coherent=false").unwrap();
    let devices = driver.open(&uri).unwrap();
    let uris: Vec<_> = devices.iter().map(|d| d.info().uri.to_string()).collect();
    assert_eq!(uris, ["mock:aie2p/0?devices=2&coherent=false", "mock:aie2p/1?devices=2&coherent=false"]);
    let again = driver.open(&devices[1].info().uri).unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].info(), devices[1].info());
}

#[test]
fn unknown_generations_are_named_with_the_known_ones() {
    let error = driver().open(&DeviceUri::parse("mock:aie9").unwrap()).map(drop).unwrap_err().to_string();
    assert!(error.contains("no arch file for `aie9`") && error.contains("mock:aie2, mock:aie2p"), "{error}");
    let error = driver().open(&DeviceUri::parse("xdna").unwrap()).map(drop).unwrap_err().to_string();
    assert!(error.contains("no driver for scheme `xdna`"), "{error}");
}

/// Host memory of somebody else, of which a part is lent.
struct Lent(Arc<Vec<AtomicU8>>, std::ops::Range<usize>);

impl HostMemory for Lent {
    fn bytes(&self) -> &[AtomicU8] {
        &self.0[self.1.clone()]
    }
}

#[rstest]
fn imports_work_in_place_and_agree_with_each_other(#[values("mock", "mock?coherent=false")] uri: &str) {
    let rig = Rig::new(driver().open(&DeviceUri::parse(uri).unwrap()).unwrap().remove(0));
    let memory: Arc<Vec<AtomicU8>> = Arc::new((0..16).map(AtomicU8::new).collect());
    let import = |range| rig.device.import(Arc::new(Lent(Arc::clone(&memory), range)));
    let whole = import(0..16).unwrap();
    let imported = import(4..8).unwrap();
    // Until the first flush the device sees what was there at the import.
    rig.run(&record(0, |list| {
        list.fill(&[90], part(&imported, 0, 2))?.barrier();
        list.copy(part(&whole, 4, 4), part(&whole, 0, 4))
    }));
    whole.invalidate(0..16).unwrap();
    let seen: Vec<u8> = memory.iter().take(8).map(|b| b.load(Ordering::Relaxed)).collect();
    assert_eq!(seen, [90, 90, 6, 7, 90, 90, 6, 7]);
    assert_eq!(rig.device.counters().allocated_bytes, 0);
    assert!(imported.map(0..5).is_err());
    drop((whole, imported));
    let first = import(0..8).unwrap();
    let overlapping = import(4..12);
    assert_eq!(overlapping.is_err(), uri.contains("coherent=false"));
    if let Err(error) = overlapping {
        assert!(error.to_string().contains("import the whole range once"), "{error}");
    }
    drop(first);
    assert!(import(4..12).is_ok());
    assert!(import(3..3).is_err());
}
