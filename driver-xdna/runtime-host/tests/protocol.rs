//! Client and server over a socket pair in one process, and what each does with a peer that keeps to no rules.

mod cpu_agent;

use aie_driver_xdna::agent::{Agent, AgentError};
use aie_driver_xdna::isolated::{
    HostedAgent, IsolatedAgent, PROTOCOL_VERSION, ServeError, StartError, TimeLimits, serve,
};
use aie_hal::MemoryPool;
use cpu_agent::{CpuAgent, bytes, copy_chain, every_call, pdi_ref};
use rstest::rstest;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

type Server = JoinHandle<Result<(), ServeError>>;

fn server_of(agents: &[Arc<CpuAgent>]) -> (UnixStream, Server) {
    let (client, server) = UnixStream::pair().unwrap();
    let agents: Vec<Arc<dyn HostedAgent>> = agents.iter().map(|a| Arc::clone(a) as _).collect();
    (client, std::thread::spawn(move || serve(server, || Ok(agents))))
}

fn connect(agents: &[Arc<CpuAgent>]) -> (Vec<Arc<IsolatedAgent>>, Server) {
    let (client, server) = server_of(agents);
    (IsolatedAgent::connect(client, TimeLimits::all(LIMIT)).unwrap(), server)
}

fn cpu() -> Arc<CpuAgent> {
    Arc::new(CpuAgent::new("none"))
}

fn frame(payload: &[u8]) -> Vec<u8> {
    [&u32::try_from(payload.len()).unwrap().to_le_bytes()[..], &[0; 4], payload].concat()
}

fn hello(version: u32) -> Vec<u8> {
    frame(&[&b"AIEHOST\0"[..], &version.to_le_bytes()].concat())
}

#[test]
fn every_call_works() {
    let (agents, server) = connect(&[cpu()]);
    every_call(&*agents[0]).unwrap();
    drop(agents);
    server.join().unwrap().unwrap();
}

#[test]
fn agents_of_one_helper_are_apart() {
    let (first, second) = (cpu(), cpu());
    let (agents, server) = connect(&[Arc::clone(&first), Arc::clone(&second)]);
    let memory = agents[1].allocate(MemoryPool::Data, 4096).unwrap();
    assert_eq!((first.open_things(), second.open_things()), ((0, 0), (1, 0)));
    // Not of this agent: logged, and nothing is freed.
    agents[0].free(memory);
    assert_eq!(second.open_things(), (1, 0));
    assert_eq!((agents[0].counts().allocations, agents[1].counts().allocations), (0, 1));
    drop(agents);
    server.join().unwrap().unwrap();
}

#[test]
fn a_thousand_allocations_are_a_thousand_memories_and_all_come_back() {
    let agent = cpu();
    let (agents, server) = connect(&[Arc::clone(&agent)]);
    let mut memories: Vec<_> =
        (1..=1000).map(|number| agents[0].allocate(MemoryPool::Data, number * 10).unwrap()).collect();
    for (number, memory) in memories.iter_mut().enumerate() {
        assert!(bytes(memory).iter().all(|&byte| byte == 0));
        bytes(memory).fill(u8::try_from(number % 251).unwrap());
    }
    for (number, memory) in memories.iter_mut().enumerate() {
        assert_eq!(memory.length, (number + 1) * 10);
        assert!(bytes(memory).iter().all(|&byte| usize::from(byte) == number % 251), "memory {number}");
    }
    assert_eq!(agent.open_things(), (1000, 0));
    for memory in memories {
        agents[0].free(memory);
    }
    assert_eq!(agent.open_things(), (0, 0));
    drop(agents);
    server.join().unwrap().unwrap();
}

#[test]
fn eight_threads_allocate_during_a_submit() {
    let mut slow = CpuAgent::new("none");
    slow.submit_time = Duration::from_secs(2);
    let (agents, server) = connect(&[Arc::new(slow)]);
    let agent = &agents[0];
    let pdi = agent.allocate(MemoryPool::DeviceHeap, 4096).unwrap();
    let context = agent.create_context(&[pdi_ref(&pdi)]).unwrap();
    let submitted = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let submit = threads.spawn(|| {
            let result = agent.submit(context, &copy_chain(&pdi, &pdi, &pdi));
            submitted.store(true, Ordering::SeqCst);
            result
        });
        let allocating: Vec<_> = (0..8_u8)
            .map(|thread| {
                threads.spawn(move || {
                    for _ in 0..25 {
                        let mut memory = agent.allocate(MemoryPool::Data, 5000).unwrap();
                        bytes(&mut memory).fill(thread);
                        assert!(bytes(&mut memory).iter().all(|&byte| byte == thread));
                        agent.free(memory);
                    }
                })
            })
            .collect();
        allocating.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!submitted.load(Ordering::SeqCst), "the allocations waited for the submit");
        submit.join().unwrap().unwrap();
    });
    assert_eq!(agent.counts().allocations, 1 + 8 * 25);
    drop(agents);
    server.join().unwrap().unwrap();
}

#[test]
fn what_a_client_leaves_is_freed() {
    let agent = cpu();
    let (agents, server) = connect(&[Arc::clone(&agent)]);
    let memories: Vec<_> = (0..5).map(|_| agents[0].allocate(MemoryPool::Data, 4096).unwrap()).collect();
    agents[0].create_context(&[pdi_ref(&memories[0])]).unwrap();
    assert_eq!(agent.open_things(), (5, 1));
    drop(agents);
    server.join().unwrap().unwrap();
    assert_eq!(agent.open_things(), (0, 0));
}

#[rstest]
#[case::refused("refuse@export", AgentError::Unsupported("this memory cannot be exported".to_owned()))]
#[case::too_short("short@export", AgentError::OutOfMemory(
    "data memory of the helper process: cannot map 4096 bytes at offset 4160 of shared memory: it has 0 bytes".to_owned()
))]
fn memory_that_cannot_be_shared_is_given_back(#[case] fault: &str, #[case] reason: AgentError) {
    let agent = Arc::new(CpuAgent::new(fault));
    let (agents, server) = connect(&[Arc::clone(&agent)]);
    assert_eq!(agents[0].allocate(MemoryPool::Data, 4096).unwrap_err(), reason);
    assert_eq!(agent.open_things(), (0, 0));
    drop(agents);
    server.join().unwrap().unwrap();
}

#[test]
fn an_agent_that_panics_ends_its_server_and_loses_its_client() {
    let (agents, server) = connect(&[Arc::new(CpuAgent::new("panic@export"))]);
    let error = agents[0].allocate(MemoryPool::Data, 4096).unwrap_err();
    assert!(matches!(&error, AgentError::Lost(cause) if cause.contains("during allocate")), "{error}");
    assert!(matches!(server.join().unwrap(), Err(ServeError::Panicked(message)) if message == "planned in export"));
}

#[test]
fn a_chain_that_is_too_long_for_a_message_is_refused_and_the_agent_lives() {
    let (agents, server) = connect(&[cpu()]);
    let pdi = agents[0].allocate(MemoryPool::DeviceHeap, 4096).unwrap();
    let context = agents[0].create_context(&[pdi_ref(&pdi)]).unwrap();
    let mut chain = copy_chain(&pdi, &pdi, &pdi);
    chain.arguments.resize(200_000, chain.arguments[0]);
    let error = agents[0].submit(context, &chain).unwrap_err();
    assert!(matches!(&error, AgentError::Unsupported(reason) if reason.contains("submit")), "{error}");
    every_call(&*agents[0]).unwrap();
    drop(agents);
    server.join().unwrap().unwrap();
}

#[test]
fn a_chain_with_arguments_that_do_not_exist_is_an_error() {
    let (agents, server) = connect(&[cpu()]);
    let pdi = agents[0].allocate(MemoryPool::DeviceHeap, 4096).unwrap();
    let context = agents[0].create_context(&[pdi_ref(&pdi)]).unwrap();
    let mut chain = copy_chain(&pdi, &pdi, &pdi);
    chain.packets[0].arguments = (1, usize::MAX);
    let error = agents[0].submit(context, &chain).unwrap_err();
    assert!(matches!(&error, AgentError::Unsupported(reason) if reason.contains("packet 0")), "{error}");
    drop(agents);
    server.join().unwrap().unwrap();
}

#[test]
fn a_server_of_another_version_is_refused_with_both_numbers() {
    let (client, mut server) = UnixStream::pair().unwrap();
    server.write_all(&hello(77)).unwrap();
    let error = IsolatedAgent::connect(client, TimeLimits::all(LIMIT)).unwrap_err();
    assert!(matches!(error, StartError::Version { theirs: 77, ours: PROTOCOL_VERSION }), "{error:?}");
    assert!(error.to_string().contains("version 77"), "{error}");
}

#[test]
fn a_client_of_another_version_is_refused_with_both_numbers() {
    let (mut client, server) = server_of(&[cpu()]);
    client.write_all(&hello(78)).unwrap();
    let error = server.join().unwrap().unwrap_err();
    assert!(matches!(error, ServeError::Version { theirs: 78, ours: PROTOCOL_VERSION }), "{error:?}");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("version 78"), "the client is told");
}

#[rstest]
#[case::noise(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff", "malformed frame", true)]
#[case::not_a_message(&frame(b"\xff\xff\xff"), "malformed frame", true)]
#[case::half_a_frame(&frame(b"\x01\x02\x03")[..9], "malformed frame", false)]
#[case::unknown_request(&frame(&[99, 0, 0, 0, 0, 2]), "answers request 99", true)]
#[case::memory_without_a_descriptor(&frame(&[1, 0, 0, 0, 0, 0, 1, 1, 1, 1]), "descriptor", true)]
#[case::done_without_memory(&frame(&[1, 0, 0, 0, 0, 2]), "answered allocate without memory", true)]
#[case::nothing(b"", "closed the connection", false)]
fn answers_against_the_protocol_lose_the_agent(#[case] answer: &[u8], #[case] reason: &str, #[case] stays: bool) {
    let (client, mut server) = UnixStream::pair().unwrap();
    let agents = [cpu()];
    let welcome = welcome_of(&agents);
    server.write_all(&welcome).unwrap();
    let agents = IsolatedAgent::connect(client, TimeLimits::all(LIMIT)).unwrap();
    let mut greeting = vec![0; hello(PROTOCOL_VERSION).len()];
    server.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting, hello(PROTOCOL_VERSION));
    let answer = answer.to_vec();
    let server = std::thread::spawn(move || {
        let mut request = [0; 64];
        assert!(server.read(&mut request).unwrap() > 8);
        server.write_all(&answer).unwrap();
        if !stays {
            server.shutdown(Shutdown::Write).unwrap();
        }
        // Until the client has closed its end.
        let _ = server.read_to_end(&mut Vec::new());
    });
    let error = agents[0].allocate(MemoryPool::Data, 4096).unwrap_err();
    assert!(matches!(&error, AgentError::Lost(cause) if cause.contains(reason)), "{error}");
    assert_eq!(agents[0].allocate(MemoryPool::Data, 4096).unwrap_err(), error);
    server.join().unwrap();
}

/// The first answer of a real server.
fn welcome_of(agents: &[Arc<CpuAgent>]) -> Vec<u8> {
    let (mut client, server) = server_of(agents);
    client.write_all(&hello(PROTOCOL_VERSION)).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut welcome = Vec::new();
    client.read_to_end(&mut welcome).unwrap();
    server.join().unwrap().unwrap();
    welcome
}

#[rstest]
#[case::no_greeting(vec![frame(b"GET / HTTP/1.1")], "greeting")]
#[case::huge(vec![vec![0xff; 8]], "announces")]
#[case::half(vec![hello(PROTOCOL_VERSION), frame(b"abc")[..9].to_vec()], "ended after 1 of its 3 bytes")]
#[case::not_a_request(vec![hello(PROTOCOL_VERSION), frame(b"\xff\xff\xff")], "not a message")]
#[case::unknown_call(vec![hello(PROTOCOL_VERSION), frame(&[1, 0, 9])], "not a message")]
#[case::unknown_agent(vec![hello(PROTOCOL_VERSION), frame(&[1, 3, 1, 1])], "free asks agent 3 of 1")]
#[case::bytes_behind(vec![hello(PROTOCOL_VERSION), frame(&[1, 0, 1, 1, 0])], "left behind")]
fn requests_against_the_protocol_end_the_server(#[case] frames: Vec<Vec<u8>>, #[case] reason: &str) {
    let (mut client, server) = server_of(&[cpu()]);
    for bytes in frames {
        client.write_all(&bytes).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    let error = server.join().unwrap().unwrap_err();
    assert!(matches!(error, ServeError::Protocol(_)), "{error:?}");
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn a_client_that_goes_without_a_word_is_no_error() {
    let (client, server) = server_of(&[cpu()]);
    drop(client);
    server.join().unwrap().unwrap();
}
