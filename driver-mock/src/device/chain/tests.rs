use crate::MockDriver;
use crate::npu::WATCHDOG_NS;
use aie_conformance::Rig;
use aie_conformance::kernels::{self, TestExecutor, TestKernel};
use aie_conformance::rig::{contents, part, record, whole};
use aie_hal::format::reference;
use aie_hal::host_function::from_fn;
use aie_hal::{DeviceUri, Driver, HostFunction, HostFunctionError, KernelArtifact, KernelExecutor};
use rstest::rstest;
use std::sync::Arc;

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
    let traffic = [40_u64, 40, 20].map(|n| (n * 8 * 1_000_000_000).div_ceil(cost.ddr_bytes_per_second));
    let expected = cost.context_create_ns + 3 * cost.chain_ns + 97 * cost.command_ns + traffic.iter().sum::<u64>();
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
