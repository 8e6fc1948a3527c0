//! The driver's agent for kernel dispatch packets, on the stand-in library.

mod rig;

use aie_conformance::kernels::{TestKernel, artifact};
use aie_driver_rocr::interface::PacketInterface;
use aie_driver_xdna::agent::{Agent, AgentError};
use aie_hal::MemoryPool;
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::pdi;
use rig::{BYTES, Loaded, Rig, report, session};
use rstest::rstest;
use std::time::{Duration, Instant};

#[test]
fn the_interface_is_detected_and_named() {
    let session = session(&[]).unwrap();
    assert_eq!(session.interface(), PacketInterface::KernelDispatch);
    let version = session.version().to_string();
    assert!(version.contains("1.16") && version.contains("stand-in"), "{version}");
}

#[test]
fn a_runtime_of_rocr_6_is_rejected() {
    let error = session(&["EXTENSION=1.7"]).unwrap_err();
    assert!(matches!(&error, AgentError::Unsupported(reason) if reason.contains("never processes")), "{error:?}");
}

#[test]
fn settings_that_mean_nothing_stop_the_runtime() {
    assert!(session(&["FAULTS=fire@1"]).is_err());
    assert!(session(&["AGENTS=aie9"]).is_err());
}

#[test]
fn long_chains_are_split_and_the_ring_wraps() {
    let rig = Rig::new(&[]);
    let kernel = rig.load(&TestKernel::Add8(1));
    let context = rig.context(&[kernel]).unwrap();
    let buffer = rig.place(MemoryPool::Data, &[3; BYTES]);
    // 64 slots: the fourth doorbell is in the second round.
    rig.run(context, &vec![kernel; 100], &buffer).unwrap();
    assert_eq!(rig.bytes(&buffer), [103; BYTES]);
    for _ in 0..50 {
        rig.run(context, &[kernel; 5], &buffer).unwrap();
    }
    assert_eq!(rig.bytes(&buffer), [(103 + 250 - 256) as u8; BYTES]);
    let report = rig.report();
    assert_eq!((&report["doorbells"], rig.agent.contexts_created()), (&(4 + 50).into(), 2));
    assert_eq!(report["contexts_created"], 2);
    assert_eq!((&report["packets"], &report["queue_errors"]), (&350.into(), &0.into()));
}

#[test]
fn a_context_keeps_32_pdis_and_is_made_anew_only_for_new_ones() {
    let rig = Rig::new(&[]);
    let kernels: Vec<Loaded> = (1..=32).map(|constant| rig.load(&TestKernel::Add8(constant))).collect();
    let context = rig.context(&kernels).unwrap();
    let buffer = rig.place(MemoryPool::Data, &[0; BYTES]);
    rig.run_of((context, &kernels), &kernels[..16], &buffer).unwrap();
    for _ in 0..6 {
        rig.run_of((context, &kernels), &kernels, &buffer).unwrap();
    }
    let sum: u32 = (1..=16).sum::<u32>() + 6 * (1..=32).sum::<u32>();
    assert_eq!(rig.bytes(&buffer), [sum as u8; BYTES]);
    assert_eq!(rig.agent.contexts_created(), 3);
    assert_eq!(rig.report()["contexts_created"], 3);
}

#[test]
fn the_33rd_pdi_of_a_queue_is_an_error_and_another_context_continues() {
    let rig = Rig::new(&[]);
    let kernels: Vec<Loaded> = (1..=33).map(|constant| rig.load(&TestKernel::Add8(constant))).collect();
    // One more than the planner of a driver would ask for.
    let context = rig.context(&kernels).unwrap();
    let buffer = rig.place(MemoryPool::Data, &[0; BYTES]);
    rig.run_of((context, &kernels), &kernels[..32], &buffer).unwrap();
    let before = rig.bytes(&buffer);
    let error = rig.run_of((context, &kernels), &kernels[32..], &buffer).unwrap_err();
    assert!(matches!(&error, AgentError::Failed { .. }), "{error:?}");
    assert!(error.to_string().contains("OUT_OF_RESOURCES"), "{error}");
    assert_eq!(rig.bytes(&buffer), before);
    rig.agent.destroy_context(context);
    let context = rig.context(&kernels[32..]).unwrap();
    rig.run(context, &kernels[32..], &buffer).unwrap();
    assert_eq!(rig.bytes(&buffer), [before[0].wrapping_add(33); BYTES]);
}

#[test]
fn a_pdi_that_its_context_does_not_hold_reaches_no_doorbell() {
    let rig = Rig::new(&[]);
    let kernels = [rig.load(&TestKernel::Add8(1)), rig.load(&TestKernel::Add8(2))];
    let context = rig.context(&kernels[..1]).unwrap();
    let buffer = rig.place(MemoryPool::Data, &[0; BYTES]);
    let error = rig.run(context, &kernels, &buffer).unwrap_err();
    assert!(matches!(error, AgentError::Failed { command: Some(1), .. }), "{error:?}");
    assert_eq!((&rig.report()["doorbells"], rig.bytes(&buffer)), (&0.into(), vec![0; BYTES]));
}

#[rstest]
#[case::negative_timeout("FAILURE=negative", "timeout@3", true, Some(2))]
#[case::negative_abort("FAILURE=negative", "abort@3", false, Some(2))]
#[case::negative_first("FAILURE=negative", "abort@1", false, Some(0))]
#[case::negative_second_doorbell("FAILURE=negative", "timeout@36", true, Some(35))]
#[case::withheld("FAILURE=withhold", "timeout@3", false, Some(2))]
#[case::withheld_first("FAILURE=withhold", "abort@1", false, None)]
#[case::withheld_second_doorbell("FAILURE=withhold", "abort@36", false, Some(35))]
fn failures_name_the_command_however_they_are_reported(
    #[case] style: &str,
    #[case] fault: &str,
    #[case] timeout: bool,
    #[case] expected: Option<usize>,
) {
    let rig = Rig::new(&[style, &format!("FAULTS={fault}")]);
    let (kernel, context, buffer) = rig.adder();
    let found = match rig.run(context, &vec![kernel; 40], &buffer).unwrap_err() {
        AgentError::Timeout { command, .. } if timeout => command,
        AgentError::Failed { command, .. } if !timeout => command,
        error => panic!("{error:?}"),
    };
    assert_eq!(found, expected);
    // Those before it have run, and none behind it.
    let run = fault.split('@').nth(1).unwrap().parse::<u8>().unwrap() - 1;
    assert_eq!(rig.bytes(&buffer), [run; BYTES]);
    // The context is spoilt, the agent is not.
    assert!(rig.run(context, &[kernel], &buffer).is_err());
    rig.agent.destroy_context(context);
    let context = rig.context(&[kernel]).unwrap();
    rig.run(context, &[kernel], &buffer).unwrap();
    assert_eq!(rig.bytes(&buffer), [run + 1; BYTES]);
}

#[test]
fn a_kernel_that_fails_is_not_a_timeout() {
    let rig = Rig::new(&[]);
    let kernels = [rig.load(&TestKernel::Add8(1)), rig.load(&TestKernel::Fail)];
    let context = rig.context(&kernels).unwrap();
    let buffer = rig.place(MemoryPool::Data, &[0; BYTES]);
    let error = rig.run_of((context, &kernels), &kernels, &buffer).unwrap_err();
    assert!(matches!(error, AgentError::Failed { command: Some(1), .. }), "{error:?}");
}

#[test]
fn compiled_code_never_signals() {
    let rig = Rig::new(&[]);
    let mut cdo = CdoBuilder::new();
    cdo.write(0x0023_2000, 1);
    let kernel = rig.load_artifact(&artifact("compiled", &rig.arch, pdi::write(&cdo).unwrap(), 2).unwrap());
    let context = rig.context(&[kernel]).unwrap();
    let buffer = rig.place(MemoryPool::Data, &[0; BYTES]);
    let started = Instant::now();
    let error = rig.run(context, &[kernel], &buffer).unwrap_err();
    assert!(matches!(error, AgentError::Timeout { command: Some(0), .. }), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(1), "no real time passes for the watchdog");
    assert!(rig.report()["virtual_ns"].as_u64().unwrap() > 2_000_000_000);
}

#[rstest]
#[case("AGENTS=aie2p", 16)]
#[case("AGENTS=aie2", 6)]
fn contexts_run_out_and_come_back(#[case] agents: &str, #[case] limit: usize) {
    let rig = Rig::new(&[agents]);
    let kernel = rig.load(&TestKernel::Add8(1));
    let contexts: Vec<_> = (0..limit).map(|_| rig.context(&[kernel]).unwrap()).collect();
    let error = rig.context(&[kernel]).unwrap_err();
    assert!(
        matches!(&error, AgentError::ContextsExhausted { reason, .. } if reason.contains(&limit.to_string())),
        "{error:?}"
    );
    rig.agent.destroy_context(contexts[1]);
    let context = rig.context(&[kernel]).unwrap();
    assert_ne!(context, contexts[1]);
    let buffer = rig.place(MemoryPool::Data, &[0; BYTES]);
    rig.run(context, &[kernel], &buffer).unwrap();
    rig.run(contexts[0], &[kernel], &buffer).unwrap();
    assert_eq!(rig.bytes(&buffer), [2; BYTES]);
    assert!(rig.run(contexts[1], &[kernel], &buffer).is_err());
}

#[test]
fn memory_runs_out_and_comes_back() {
    let rig = Rig::new(&["FAULTS=allocate@2"]);
    let none = |result| assert!(matches!(result, Err(AgentError::OutOfMemory(_))), "{result:?}");
    none(rig.agent.allocate(MemoryPool::Data, 64));
    none(rig.agent.allocate(MemoryPool::DeviceHeap, (64 << 20) + 1));
    let half = rig.agent.allocate(MemoryPool::DeviceHeap, 33 << 20).unwrap();
    none(rig.agent.allocate(MemoryPool::DeviceHeap, 33 << 20));
    rig.agent.free(half);
    let half = rig.agent.allocate(MemoryPool::DeviceHeap, 33 << 20).unwrap();
    rig.agent.free(half);
}

#[test]
fn a_doorbell_that_does_not_return_loses_the_agent() {
    let limit = Duration::from_millis(200);
    let rig = Rig::with_limit(&["FAULTS=hang@2"], limit);
    let (kernel, context, buffer) = rig.adder();
    rig.run(context, &[kernel], &buffer).unwrap();
    let started = Instant::now();
    let lost = rig.run(context, &[kernel], &buffer).unwrap_err();
    assert!(matches!(&lost, AgentError::Lost(cause) if cause.contains("has not returned")), "{lost:?}");
    // Everything else has the same cause, at once.
    assert_eq!(rig.run(context, &[kernel], &buffer), Err(lost.clone()));
    assert_eq!(rig.context(&[kernel]), Err(lost.clone()));
    assert_eq!(rig.agent.allocate(MemoryPool::Data, 1), Err(lost));
    rig.agent.free(buffer);
    rig.agent.destroy_context(context);
    drop(rig);
    assert!(started.elapsed() < 4 * limit + Duration::from_secs(1), "{:?}", started.elapsed());
}

#[test]
fn a_runtime_that_processes_nothing_is_noticed() {
    let rig = Rig::new(&["PROCESSING=never"]);
    let (kernel, context, buffer) = rig.adder();
    let started = Instant::now();
    let error = rig.run(context, &[kernel], &buffer).unwrap_err();
    assert!(matches!(&error, AgentError::Unsupported(reason) if reason.contains("never processes")), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn nothing_is_left_open() {
    let rig = Rig::new(&[]);
    let (kernel, context, buffer) = rig.adder();
    rig.run(context, &[kernel], &buffer).unwrap();
    rig.agent.free(buffer);
    let Rig { session, agent, .. } = rig;
    drop(agent);
    let open = report(&session)["open"].clone();
    // The kernel's two allocations were not released; everything the agent made for itself was.
    assert_eq!(open, serde_json::json!({"users": 1, "queues": 0, "signals": 0, "allocations": 2}));
}

#[test]
fn several_agents_work_at_once() {
    let session = std::sync::Arc::new(session(&["AGENTS=aie2p,aie2"]).unwrap());
    let names: Vec<String> = session.agents().unwrap().into_iter().map(|agent| agent.info.name).collect();
    assert_eq!(names, ["aie2p", "aie2"]);
    std::thread::scope(|scope| {
        for discovered in session.agents().unwrap() {
            let session = std::sync::Arc::clone(&session);
            scope.spawn(move || {
                let rig = Rig::of(session, discovered, Duration::from_secs(20));
                let (kernel, context, buffer) = rig.adder();
                for _ in 0..20 {
                    rig.run(context, &[kernel; 10], &buffer).unwrap();
                }
                assert_eq!(rig.bytes(&buffer), [200; BYTES]);
            });
        }
    });
}

#[test]
fn a_hundred_thousand_dispatches_on_one_context() {
    let rig = Rig::new(&[]);
    let kernels: Vec<Loaded> = (1..=32).map(|constant| rig.load(&TestKernel::Add8(constant))).collect();
    let context = rig.context(&kernels).unwrap();
    let buffer = rig.place(MemoryPool::Data, &[0; BYTES]);
    let rounds = 100_000 / kernels.len();
    for _ in 0..rounds {
        rig.run_of((context, &kernels), &kernels, &buffer).unwrap();
    }
    let sum = (1..=32).sum::<usize>() * rounds;
    assert_eq!(rig.bytes(&buffer), [sum as u8; BYTES]);
    let report = rig.report();
    assert_eq!((&report["packets"], &report["doorbells"]), (&(32 * rounds).into(), &rounds.into()));
    // One for the queue and one for its PDIs.
    assert_eq!((rig.agent.contexts_created(), &report["contexts_created"]), (2, &2.into()));
    assert_eq!((&report["open"]["queues"], &report["open"]["signals"]), (&1.into(), &32.into()));
}
