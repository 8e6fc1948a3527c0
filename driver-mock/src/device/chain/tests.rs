mod joined;

use crate::MockDriver;
use crate::npu::WATCHDOG_NS;
use aie_conformance::Rig;
use aie_conformance::kernels::{self, TestExecutor, TestKernel};
use aie_conformance::rig::{contents, part, record, store, whole};
use aie_hal::format::reference;
use aie_hal::host_function::from_fn;
use aie_hal::{
    BindingTable, DeviceUri, Driver, HostFunction, HostFunctionError, KernelArtifact, KernelExecutor, StreamMaker,
};
use rstest::rstest;
use std::sync::{Arc, Mutex};

/// Executes the artifacts of the conformance suite, and panics in those called `panics`.
#[derive(Debug)]
struct Executor;

impl KernelExecutor for Executor {
    fn prepare(&self, artifact: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError> {
        match artifact.name() {
            "panics" => Ok(from_fn("panics", 1, |_, _| panic!("as planned"))),
            _ => TestExecutor.prepare(artifact),
        }
    }
}

fn rig(uri: &str) -> Rig {
    Rig::new(MockDriver::new(Arc::new(Executor)).open(&DeviceUri::parse(uri).unwrap()).unwrap().remove(0))
}

#[test]
fn chains_end_at_the_limits_and_share_a_doorbell() {
    let rig = rig("mock");
    let (buffer, kernel) = (rig.zeroed(4), rig.load(&TestKernel::Add8(1)));
    rig.run(&record(|list| {
        for _ in 1..100 {
            list.dispatch(&kernel, vec![whole(&buffer), whole(&buffer)])?.barrier();
        }
        list.dispatch(&kernel, vec![whole(&buffer), whole(&buffer)])
    }));
    assert_eq!(contents(&buffer), [100; 4]);
    let counters = rig.device.counters();
    // 40 commands with two arguments fill the chain buffer.
    assert_eq!((counters.chains, counters.doorbells, counters.dispatches), (3, 1, 100));
    let cost = rig.device.arch().cost.clone();
    let traffic = [40_u64, 40, 20].map(|n| (n * 8 * 1_000_000_000).div_ceil(cost.ddr_bytes_per_second.expected));
    let expected = cost.context_create_ns
        + 3 * cost.chain_ns.expected
        + 97 * cost.command_ns.expected
        + traffic.iter().sum::<u64>();
    assert_eq!(counters.virtual_ns, expected);
}

/// Between dispatches, the host commands each end what shares a doorbell.
#[test]
fn host_commands_end_a_doorbell() {
    let rig = rig("mock?coherent=false");
    let (buffer, kernel) = (rig.zeroed(4), rig.load(&TestKernel::Add8(1)));
    rig.run(&record(|list| {
        list.dispatch(&kernel, vec![whole(&buffer), whole(&buffer)])?.barrier();
        list.fill(&[7], part(&buffer, 0, 2))?.barrier();
        list.dispatch(&kernel, vec![whole(&buffer), whole(&buffer)])
    }));
    assert_eq!(contents(&buffer), [8, 8, 2, 2]);
    assert_eq!((rig.device.counters().chains, rig.device.counters().doorbells), (2, 2));
}

#[rstest]
#[case("mock", [1, 2, 3, 1])]
#[case("mock?order=reverse", [1, 1, 3, 1])]
fn unordered_commands_run_backwards_when_asked(#[case] uri: &str, #[case] expected: [u8; 4]) {
    let rig = rig(uri);
    let buffer = rig.zeroed(4);
    rig.run(&record(|list| {
        list.fill(&[1], part(&buffer, 0, 4))?;
        list.fill(&[2], part(&buffer, 1, 2))?.barrier();
        list.fill(&[3], part(&buffer, 2, 1))
    }));
    assert_eq!(contents(&buffer), expected);
}

#[rstest]
#[case::timeout(
    "?fault=timeout@1",
    "add8 1",
    "timeout: dispatch of `k` (command 0) never signalled: the fault plan says so"
)]
#[case::lost("?fault=lost@1", "add8 1", "device lost: at the dispatch of `k` (command 0), as its fault plan says")]
#[case::compiled(
    "",
    "compiled",
    "timeout: dispatch of `k` (command 0) never signalled: cannot execute: `k`: no kernel is called `compiled`"
)]
#[case::fails("", "fail", "execution failed: dispatch of `k` (command 0): data of `fail`: this kernel always fails")]
#[case::panics("", "panics", "execution failed: dispatch of `panics` (command 0): it panicked: as planned")]
fn failures_name_the_dispatch(#[case] parameters: &str, #[case] description: &str, #[case] expected: &str) {
    let rig = rig(&format!("mock{parameters}"));
    let buffer = rig.zeroed(1);
    let pdi = reference::wrap(description.as_bytes()).unwrap();
    let name = if description == "panics" { "panics" } else { "k" };
    let artifact = kernels::artifact(name, rig.device.arch(), pdi, 2).unwrap();
    let kernel = rig.device.load_executable(&artifact).unwrap();
    let before = rig.device.counters().virtual_ns;
    let failure = rig.run_to_failure(&record(|list| list.dispatch(&kernel, vec![whole(&buffer), whole(&buffer)])));
    assert_eq!(failure.to_string(), expected);
    let waited = rig.device.counters().virtual_ns - before > WATCHDOG_NS;
    assert_eq!(waited, expected.starts_with("timeout"));
    assert_eq!(contents(&buffer), [0]);
    assert_eq!(rig.device.create_queue().is_err(), expected.starts_with("device lost"));
}

/// Notes what it is shown, and gives the kernel's own stream; none for a first byte of 255.
#[derive(Debug)]
struct Witness {
    stream: Vec<u8>,
    shown: Mutex<Vec<Vec<u8>>>,
}

impl StreamMaker for Witness {
    fn reads(&self) -> &[usize] {
        &[0]
    }

    fn make(&self, arguments: &[&[u8]]) -> Result<Vec<u8>, HostFunctionError> {
        if arguments[0][0] == 255 {
            return Err(HostFunctionError::Data { kernel: "rows".into(), reason: "row 255 of 9".into() });
        }
        self.shown.lock().unwrap().push(arguments[0].to_vec());
        Ok(self.stream.clone())
    }
}

fn witnessed(rig: &Rig) -> (Arc<Witness>, Arc<dyn aie_hal::Executable>) {
    let artifact = TestKernel::Add8(1).artifact(rig.device.arch());
    let witness = Arc::new(Witness { stream: artifact.instructions().to_vec(), shown: Mutex::default() });
    let kernel = rig.device.load_executable(&artifact.with_stream_maker(witness.clone())).unwrap();
    (witness, kernel)
}

/// What the host has written is there: the dispatch is one of its chain, each time for the data at hand.
#[rstest]
fn a_stream_for_what_the_host_has_written_ends_no_chain(#[values("mock", "mock?coherent=false")] uri: &str) {
    let rig = rig(uri);
    let (witness, kernel) = witnessed(&rig);
    let (other, add, target) = (rig.zeroed(2), rig.load(&TestKernel::Add8(1)), rig.zeroed(2));
    let rows = rig.buffer(&[4, 2]);
    let list = record(|list| {
        list.dispatch(&add, vec![whole(&other), whole(&other)])?.barrier();
        list.dispatch(&kernel, vec![whole(&rows), whole(&target)])?.barrier();
        list.dispatch(&add, vec![whole(&other), whole(&other)])
    });
    rig.run(&list);
    assert_eq!(rig.device.counters().chains, 1);
    store(&rows, 0, &[7, 8]);
    rig.run_with(&list, BindingTable::default());
    assert_eq!(*witness.shown.lock().unwrap(), [[4, 2], [7, 8]]);
    assert_eq!((contents(&target), contents(&other)), (vec![8, 9], vec![4, 4]));
    assert_eq!(rig.device.counters().chains, 2);
}

/// What a dispatch before it writes has to be there first.
#[rstest]
fn a_stream_for_what_a_dispatch_writes_waits_for_it(#[values("mock", "mock?coherent=false")] uri: &str) {
    let rig = rig(uri);
    let (witness, kernel) = witnessed(&rig);
    let (rows, add, target) = (rig.buffer(&[4, 2]), rig.load(&TestKernel::Add8(1)), rig.zeroed(2));
    rig.run(&record(|list| {
        list.dispatch(&add, vec![whole(&rows), whole(&rows)])?.barrier();
        list.dispatch(&kernel, vec![whole(&rows), whole(&target)])
    }));
    assert_eq!(*witness.shown.lock().unwrap(), [[5, 3]]);
    assert_eq!((contents(&target), rig.device.counters().chains), (vec![6, 4], 2));
}

#[test]
fn a_stream_that_cannot_be_made_fails_the_submission() {
    let rig = rig("mock");
    let (_, kernel) = witnessed(&rig);
    let (rows, target) = (rig.buffer(&[255]), rig.zeroed(1));
    let failure = rig.run_to_failure(&record(|list| list.dispatch(&kernel, vec![whole(&rows), whole(&target)])));
    let expected = "execution failed: stream of `add8_1` (command 0): data of `rows`: row 255 of 9";
    assert_eq!((failure.to_string().as_str(), contents(&target)), (expected, vec![0]));
}
