use crate::MockDriver;
use aie_conformance::Rig;
use aie_conformance::kernels::{TestExecutor, TestKernel};
use aie_conformance::rig::{part, record};
use aie_hal::buffer::{BufferParams, HostMemory, MemoryPool, Span};
use aie_hal::{Buffer, DeviceUri, Driver, Executable};
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
    fn span(&self) -> Span<'_> {
        Span::shared(&self.0[self.1.clone()])
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
    rig.run(&record(|list| {
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

#[rstest]
fn a_planned_import_leads_to_zeroes(#[values("mock?fault=import@2", "mock?coherent=false&fault=import@2")] uri: &str) {
    let rig = Rig::new(driver().open(&DeviceUri::parse(uri).unwrap()).unwrap().remove(0));
    let memory: Arc<Vec<AtomicU8>> = Arc::new((1..9).map(AtomicU8::new).collect());
    let import = || rig.device.import(Arc::new(Lent(Arc::clone(&memory), 0..8))).unwrap();
    let seen = |imported: &Arc<dyn Buffer>| {
        let target = rig.device.allocate(&BufferParams::data(8)).unwrap();
        imported.flush(0..8).unwrap();
        rig.run(&record(|list| list.copy(part(imported, 0, 8), part(&target, 0, 8))));
        target.invalidate(0..8).unwrap();
        let mut bytes = [9; 8];
        target.read(0, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(
        [import(), import(), import()].each_ref().map(seen),
        [[1, 2, 3, 4, 5, 6, 7, 8], [0; 8], [1, 2, 3, 4, 5, 6, 7, 8]]
    );
    assert_eq!(memory[0].load(Ordering::Relaxed), 1);
}

#[test]
fn a_device_for_plans_runs_no_kernel_and_has_room_for_any_model() {
    let rig = Rig::new(driver().open(&DeviceUri::parse("mock?execute=plan").unwrap()).unwrap().remove(0));
    let (source, target) = (rig.buffer(&[1; 8]), rig.zeroed(8));
    let add = rig.load(&TestKernel::Add8(3));
    rig.run(&record(|list| list.dispatch(&add, vec![part(&source, 0, 8), part(&target, 0, 8)])));
    let mut bytes = [9; 8];
    target.read(0, &mut bytes).unwrap();
    assert_eq!((bytes, rig.device.counters().dispatches), ([0; 8], 1));
    let large = rig.device.allocate(&BufferParams::data(1 << 40)).unwrap();
    assert!(large.size() == 1 << 40 && rig.device.memory().free > 1 << 43);
}

/// Data memory is charged in granules, the heap by the byte.
#[rstest]
#[case(MemoryPool::Data, 8192, (1 << 20) + 1, "1048577 bytes of data memory requested, 1048576 of 1048576 bytes are free")]
#[case(
    MemoryPool::DeviceHeap,
    5000,
    65537,
    "65537 bytes of device heap memory requested, 65536 of 65536 bytes are free"
)]
fn memory_is_accounted_and_its_end_is_named(
    #[case] pool: MemoryPool,
    #[case] charged: u64,
    #[case] most: usize,
    #[case] message: &str,
) {
    let device = driver().open(&DeviceUri::parse("mock?memory=1M&heap=64K").unwrap()).unwrap().remove(0);
    let allocate = |size| device.allocate(&BufferParams { size, alignment: 64, pool });
    let account = || (device.counters().allocated_bytes, device.counters().peak_bytes, device.memory().free);
    let buffer = allocate(5000).unwrap();
    let data = if pool == MemoryPool::Data { charged } else { 0 };
    assert_eq!((account(), device.counters().allocations), ((charged, charged, (1 << 20) - data), 1));
    drop(buffer);
    assert_eq!(account(), (0, charged, 1 << 20));
    assert_eq!(allocate(most).unwrap_err().to_string(), format!("out of memory: {message}"));
    assert_eq!(device.counters().allocations, 1);
}

/// Each distinct kernel takes two pages of the heap; equal ones share them.
#[test]
fn kernels_fill_the_heap() {
    let rig = Rig::new(driver().open(&DeviceUri::parse("mock?heap=20K").unwrap()).unwrap().remove(0));
    let load = |k| rig.device.load_executable(&TestKernel::Add8(k).artifact(rig.device.arch()));
    let loaded = [1, 1, 2].map(|k| load(k).unwrap());
    let error = load(3).unwrap_err().to_string();
    assert!(error.contains("bytes of device heap memory"), "{error}");
    drop(loaded);
    assert!(load(3).is_ok());
}

/// Without foresight the second list needs a context made anew; what does not fit into one takes none of its own.
#[rstest]
#[case::not_expected(1, false, 2)]
#[case::expected(1, true, 1)]
#[case::as_many_as_fit(31, true, 1)]
#[case::one_too_many(32, true, 2)]
fn expected_kernels_are_in_the_context_of_those_before(
    #[case] later: u32,
    #[case] is_expected: bool,
    #[case] contexts: u64,
) {
    let rig = Rig::new(driver().open(&DeviceUri::parse("mock").unwrap()).unwrap().remove(0));
    assert_eq!(rig.device.limits().pdis_per_context, 32);
    let kernels: Vec<_> = (0..=later).map(|id| rig.load(&TestKernel::Copy(id))).collect();
    let buffer = rig.zeroed(64);
    let dispatches = |kernels: &[Arc<dyn Executable>], expected: &[Arc<dyn Executable>]| {
        record(|list| {
            for kernel in kernels {
                list.dispatch(kernel, vec![part(&buffer, 0, 64), part(&buffer, 0, 64)])?.barrier();
            }
            for kernel in expected {
                list.expect(kernel);
            }
            Ok(list)
        })
    };
    let (first, others) = kernels.split_at(1);
    rig.run(&dispatches(first, if is_expected { others } else { &[] }));
    assert_eq!(rig.device.counters().contexts_created, 1);
    rig.run(&dispatches(others, &[]));
    rig.run(&dispatches(first, &[]));
    assert_eq!(rig.device.counters().contexts_created, contexts);
}

/// A prompt and tokens of it: command lists that share kernels, of which each fits into a context, and both together do not.
#[test]
fn lists_that_share_kernels_run_in_one_context_each() {
    let rig = Rig::new(driver().open(&DeviceUri::parse("mock").unwrap()).unwrap().remove(0));
    let kernels: Vec<_> = (0..44).map(|id| rig.load(&TestKernel::Copy(id))).collect();
    let buffer = rig.zeroed(64);
    let list = |kernels: &[Arc<dyn Executable>]| {
        record(|list| {
            for kernel in kernels {
                list.dispatch(kernel, vec![part(&buffer, 0, 64), part(&buffer, 0, 64)])?.barrier();
            }
            Ok(list)
        })
    };
    let (prompt, token) = (list(&kernels[..24]), list(&kernels[20..]));
    for turn in 0..3 {
        rig.run(&prompt);
        let before = rig.device.counters().context_switches;
        for _ in 0..5 {
            rig.run(&token);
        }
        let counters = rig.device.counters();
        assert_eq!((counters.contexts_created, counters.context_switches), (2, before + 1), "turn {turn}");
    }
}
