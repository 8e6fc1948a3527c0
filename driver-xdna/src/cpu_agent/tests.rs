//! The agent of the tests rejects what it says it does, or the tests built on it would prove nothing.

use super::rig::artifact;
use super::*;

/// An agent with one PDI in a context, its instructions, and data, and the chain that runs it.
struct Setup {
    agent: Arc<CpuAgent>,
    memory: Vec<Allocation>,
    context: ContextId,
    chain: Chain,
}

fn put(agent: &CpuAgent, bytes: &[u8]) -> Allocation {
    let allocation = agent.allocate(MemoryPool::DeviceHeap, bytes.len()).unwrap();
    let (_, place) = agent.state.lock().place(allocation.device_address, bytes.len()).unwrap();
    place.write(bytes);
    allocation
}

fn setup() -> Setup {
    let agent = CpuAgent::new(|_| {});
    let artifact = artifact("increment", 1);
    agent.teach(artifact.digest(), Arc::new(|_, output| output[0] += 1));
    let pdi = put(&agent, artifact.pdi());
    let instructions = put(&agent, artifact.instructions());
    let data = agent.allocate(MemoryPool::Data, 64).unwrap();
    let reference = PdiRef { address: pdi.device_address, bytes: artifact.pdi().len() };
    let context = agent.create_context(&[reference]).unwrap();
    let packet = Packet {
        pdi_index: 0,
        pdi: reference,
        instructions: instructions.device_address,
        instruction_bytes: artifact.instructions().len(),
        arguments: (0, 1),
    };
    let arguments = std::iter::once(data.device_address..data.device_address + 64).collect();
    Setup { agent, memory: vec![pdi, instructions, data], context, chain: Chain { packets: vec![packet], arguments } }
}

fn first_byte(setup: &Setup) -> u8 {
    setup.agent.state.lock().place(setup.memory[2].device_address, 1).unwrap().1.read()[0]
}

#[test]
fn a_chain_runs_and_everything_can_be_given_back() {
    let Setup { agent, memory, context, chain } = setup();
    agent.start(context, &chain).unwrap();
    agent.destroy_context(context);
    memory.into_iter().for_each(|allocation| agent.free(allocation));
    agent.assert_clean();
}

/// Changes a chain that runs into an invalid one.
#[rstest::rstest]
#[case::empty(|chain: &mut Chain| chain.clear(), "a chain of 0")]
#[case::too_long(|chain: &mut Chain| repeat(chain, 65), "a chain of 65")]
#[case::too_many_bytes(|chain: &mut Chain| repeat(chain, 49), "a chain of 49 commands with 4116 bytes")]
#[case::index(|chain: &mut Chain| chain.packets[0].pdi_index = 1, "outside the context's list")]
#[case::pdi(|chain: &mut Chain| chain.packets[0].pdi.address += 1, "PDI")]
#[case::instructions(|chain: &mut Chain| chain.packets[0].instructions -= 1 << 30, "instructions")]
#[case::argument_out_of_bounds(|chain: &mut Chain| chain.arguments[0].end += 1, "is not allocated")]
#[case::argument_too_many(|chain: &mut Chain| chain.arguments.push(chain.arguments[0].clone()), "2 arguments for packets with 1")]
fn what_must_never_be_submitted_is_rejected(#[case] change: fn(&mut Chain), #[case] reason: &str) {
    let mut setup = setup();
    change(&mut setup.chain);
    let error = setup.agent.start(setup.context, &setup.chain).unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
    assert_eq!(setup.agent.rejected(), [error]);
    assert_eq!(first_byte(&setup), 0);
}

fn repeat(chain: &mut Chain, count: usize) {
    chain.packets = (0..count).map(|index| Packet { arguments: (index, 1), ..chain.packets[0] }).collect();
    chain.arguments = vec![chain.arguments[0].clone(); count];
}

#[test]
fn unknown_contexts_and_memory_that_is_in_use_are_rejected() {
    let Setup { agent, mut memory, context, chain } = setup();
    assert!(agent.start(ContextId(99), &chain).is_err());
    agent.destroy_context(ContextId(99));
    let pdi = memory.remove(0);
    let again = Allocation { ..pdi };
    agent.free(pdi);
    agent.free(again);
    assert!(agent.start(context, &chain).is_err());
    let pdis: Vec<_> = (0..33).map(|_| chain.packets[0].pdi).collect();
    assert!(agent.create_context(&pdis).is_err());
    assert!(agent.create_context(&pdis[..1]).is_err());
    let reasons = [
        "ContextId(99) does not exist",
        "ContextId(99) is destroyed and does not exist",
        "the memory of a PDI is freed while a context holds it",
        "the memory of a PDI is freed while a context holds it",
        "memory is freed twice, or was never allocated",
        "a PDI that is not allocated",
        "a context with 33 PDIs",
        "a context with a PDI that is not allocated",
    ];
    assert_eq!(agent.rejected(), reasons);
}

#[test]
fn a_call_from_two_threads_at_once_is_noticed() {
    let setup = setup();
    let _occupied = setup.agent.occupy("a call");
    setup.agent.start(setup.context, &setup.chain).unwrap();
    assert_eq!(setup.agent.rejected(), ["submit while another thread is in a call of its kind"]);
}

#[test]
fn a_planned_failure_comes_once_and_after_what_has_run() {
    let mut setup = setup();
    repeat(&mut setup.chain, 3);
    let error = AgentError::Timeout { command: Some(2), reason: "as planned".into() };
    setup.agent.fail(Call::Submit, 2, error.clone(), 2);
    let results: Vec<_> = (0..3).map(|_| setup.agent.start(setup.context, &setup.chain)).collect();
    assert_eq!(results, [Ok(0), Err(error), Ok(0)]);
    assert_eq!(first_byte(&setup), 3 + 2 + 3);
}

#[test]
#[should_panic(expected = "left open")]
fn what_is_left_open_is_noticed() {
    setup().agent.assert_clean();
}

#[test]
#[should_panic(expected = "written after it was freed")]
fn a_late_write_is_noticed() {
    let agent = CpuAgent::new(|_| {});
    let data = agent.allocate(MemoryPool::Data, 64).unwrap();
    let (_, place) = agent.state.lock().place(data.device_address, 64).unwrap();
    agent.free(data);
    place.write(&[1]);
    agent.assert_clean();
}
