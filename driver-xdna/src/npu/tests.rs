//! Contexts, the heap that they hold, and loss.

use super::*;
use crate::agent::ContextId;
use crate::cpu_agent::Call;
use crate::cpu_agent::rig::*;
use crate::pool::HEAP_GRANULE;
use aie_hal::error::Remedy;
use aie_hal::{Buffer, Device, Executable};
use rstest::rstest;

/// Runs each kernel once on a journal, in a submission of its own.
fn run_each(rig: &Rig, kernels: &[&Arc<dyn Executable>], journal: &Arc<dyn Buffer>) {
    kernels.iter().for_each(|kernel| run(rig, writes(&[kernel], journal)).unwrap());
}

fn context_of_last_chain(rig: &Rig) -> ContextId {
    rig.agent.submitted().last().unwrap().context
}

fn heap(size: usize) -> BufferParams {
    BufferParams { size, alignment: 64, pool: MemoryPool::DeviceHeap }
}

#[rstest]
#[case::failed(AgentError::Failed { command: Some(0), reason: "as planned".into() })]
#[case::timeout(AgentError::Timeout { command: None, reason: "as planned".into() })]
fn a_context_that_failed_is_made_anew(#[case] error: AgentError) {
    let rig = Rig::new();
    let journal = rig.buffer(JOURNAL);
    let kernel = rig.writer(1);
    run_each(&rig, &[&kernel], &journal);
    let first = context_of_last_chain(&rig);
    rig.agent.fail(Call::Submit, 1, error, 0);
    let failure = run(&rig, writes(&[&kernel], &journal)).unwrap_err().to_string();
    for part in ["`write 1`", "command 0", "chain of 1", "as planned"] {
        assert!(failure.contains(part), "{part}: {failure}");
    }
    assert_eq!(rig.agent.contexts(), [0; 0]);
    run_each(&rig, &[&kernel], &journal);
    assert_ne!(context_of_last_chain(&rig), first);
    assert_eq!(entries(&journal), [1, 1]);
    assert_eq!(rig.npu.array.lost(), None);
}

#[test]
fn without_any_context_work_fails_until_there_is_one() {
    let rig = Rig::new();
    let journal = rig.buffer(JOURNAL);
    let kernel = rig.writer(1);
    rig.agent.leave_contexts(0);
    let error = run(&rig, writes(&[&kernel], &journal)).unwrap_err();
    let expected = "a hardware context for the kernels: others hold the rest";
    assert_eq!(error, DeviceError::Execution(expected.into()));
    rig.agent.leave_contexts(1);
    run_each(&rig, &[&kernel], &journal);
    assert_eq!(entries(&journal), [1]);
}

/// What `create_context` says, once; the next use succeeds, unless the device is lost.
#[rstest]
#[case::exhausted(AgentError::ContextsExhausted { reason: "as planned".into(), remedy: None })]
#[case::no_memory(AgentError::OutOfMemory("as planned".into()))]
#[case::failed(AgentError::Failed { command: None, reason: "as planned".into() })]
fn a_context_that_cannot_be_made_fails_the_work_at_most(#[case] error: AgentError) {
    let rig = Rig::with(|limits| limits.pdis_per_context = 1, |_| {}, None);
    let journal = rig.buffer(JOURNAL);
    let (one, two) = (rig.writer(1), rig.writer(2));
    run_each(&rig, &[&one], &journal);
    rig.agent.fail(Call::CreateContext, 1, error.clone(), 0);
    let outcome = run(&rig, writes(&[&two], &journal));
    match error {
        // The context of the other kernel goes, and then there is room.
        AgentError::ContextsExhausted { .. } | AgentError::OutOfMemory(_) => assert_eq!(outcome, Ok(())),
        _ => assert!(matches!(outcome, Err(DeviceError::Execution(text)) if text.contains("as planned"))),
    }
    run_each(&rig, &[&one, &two], &journal);
    assert!(entries(&journal).ends_with(&[1, 2]));
}

#[test]
fn equal_pdis_share_an_upload_and_a_place() {
    let rig = Rig::new();
    let data = rig.buffer(64);
    let one = rig.kernel("count", 1, |_, output| output[0] += 1);
    let uploads = rig.agent.calls(Call::AllocateHeap);
    // The same PDI with other instructions, and the same kernel once more.
    let two = rig.device.load_executable(&artifact("count", 2)).unwrap();
    let again = rig.device.load_executable(&artifact("count", 1)).unwrap();
    assert_eq!(rig.agent.calls(Call::AllocateHeap), uploads, "instructions share a slab, and the PDI is there");
    let commands = list(|builder| {
        builder.dispatch(&one, vec![whole(&data)]).unwrap().barrier();
        builder.dispatch(&two, vec![whole(&data), whole(&data)]).unwrap().barrier();
        builder.dispatch(&again, vec![whole(&data)]).unwrap();
    });
    run(&rig, commands).unwrap();
    assert_eq!((bytes(&data)[0], rig.agent.contexts()), (3, vec![1]));
}

#[test]
fn a_pdi_stays_in_memory_until_its_context_goes() {
    let rig = Rig::new();
    let journal = rig.buffer(JOURNAL);
    let kernel = rig.writer(1);
    run_each(&rig, &[&kernel], &journal);
    drop(kernel);
    // The instructions are gone, the PDI is not: the agent would refuse to free it.
    assert_eq!(rig.agent.allocations(MemoryPool::DeviceHeap), 1);
    // Loaded again, it is the same to the planner, and still runs.
    let kernel = rig.writer(1);
    run_each(&rig, &[&kernel], &journal);
    assert_eq!((entries(&journal), rig.agent.contexts_created()), (vec![1, 1], 1));
    drop(kernel);
    rig.npu.array.clear(LONG);
    assert_eq!(rig.agent.allocations(MemoryPool::DeviceHeap), 0);
}

#[test]
fn unloaded_pdis_give_the_heap_back_while_a_context_holds_them() {
    let rig = Rig::with(|limits| limits.contexts = 2, |info| info.heap_bytes = 4 << 20, None);
    let journal = rig.buffer(JOURNAL);
    let places = rig.npu.pool.heap_capacity / HEAP_GRANULE;
    // Each loop needs more than half of the heap: PDIs and a slab of instructions.
    for round in 0..6_u8 {
        let first = round * 31;
        let kernels: Vec<_> = (first..first + 31).map(|number| rig.writer(number)).collect();
        let rest = rig.device.allocate(&heap((places / 3) * HEAP_GRANULE)).unwrap();
        run(&rig, writes(&kernels.iter().collect::<Vec<_>>(), &journal)).unwrap();
        assert_eq!(entries(&journal), (first..first + 31).collect::<Vec<_>>());
        journal.write(0, &[0; JOURNAL]).unwrap();
        drop((kernels, rest));
    }
}

#[test]
fn a_context_whose_pdis_were_loaded_again_stays_when_the_heap_is_full() {
    let rig = Rig::new();
    let journal = rig.buffer(JOURNAL);
    run_each(&rig, &[&rig.writer(1)], &journal);
    let kernel = rig.writer(1);
    run_each(&rig, &[&kernel], &journal);
    let error = rig.device.allocate(&heap(rig.npu.pool.heap_capacity)).unwrap_err();
    assert!(matches!(error, DeviceError::OutOfMemory { .. }), "{error}");
    assert_eq!(rig.agent.contexts(), [1]);
}

#[rstest]
#[case(AgentError::OutOfMemory("x".into()), DeviceError::Execution("a thing: x".into()))]
#[case(
    AgentError::ContextsExhausted { reason: "x".into(), remedy: None },
    DeviceError::Execution("a thing: x".into())
)]
#[case(AgentError::Failed { command: None, reason: "x".into() }, DeviceError::Execution("a thing: x".into()))]
#[case(
    AgentError::Timeout { command: Some(1), reason: "x".into() },
    DeviceError::Timeout("a thing never signalled: x".into())
)]
#[case(AgentError::Unsupported("x".into()), DeviceError::Unsupported("a thing: x".into()))]
#[case(
    AgentError::Unusable { reason: "x".into(), remedy: Remedy::Iommu },
    DeviceError::Unsupported("a thing: x".into())
)]
#[case(AgentError::Lost("x".into()), DeviceError::Lost("x".into()))]
fn errors_of_the_agent_become_errors_of_the_device(#[case] cause: AgentError, #[case] expected: DeviceError) {
    let rig = Rig::new();
    let lost = matches!(cause, AgentError::Lost(_));
    assert_eq!(rig.npu.error("a thing", cause), expected);
    assert_eq!(rig.npu.array.lost().is_some(), lost);
}

/// A runtime that is lost while a kernel is loaded is lost for everybody.
#[test]
fn loading_notices_a_loss() {
    let rig = Rig::new();
    let kernel = artifact("count", 1);
    rig.agent.fail(Call::AllocateHeap, 1, AgentError::Lost("the process ended".into()), 0);
    let lost = DeviceError::Lost("the process ended".into());
    assert_eq!(rig.device.load_executable(&kernel).unwrap_err(), lost);
    assert_eq!(rig.npu.array.lost(), Some(lost));
}
