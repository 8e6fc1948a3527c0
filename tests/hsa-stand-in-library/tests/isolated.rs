//! An agent with kernel dispatch packets, served to a client that reaches its memory through descriptors only.

#[allow(dead_code, reason = "a part of what the tests share")]
mod rig;

use aie_conformance::kernels::TestKernel;
use aie_driver_xdna::agent::{Agent, Allocation, Argument, Chain, Packet, PdiRef};
use aie_driver_xdna::isolated::{HostedAgent, IsolatedAgent, TimeLimits, serve};
use aie_driver_xdna::kernel_dispatch::KernelDispatchAgent;
use aie_hal::{ArchRegistry, MemoryPool};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const BYTES: usize = 256;

/// Memory of the client with these bytes.
fn place(agent: &IsolatedAgent, pool: MemoryPool, bytes: &[u8]) -> Allocation {
    let memory = agent.allocate(pool, bytes.len()).unwrap();
    // SAFETY: the allocation has this length and is used by nobody else yet.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.host.as_ptr(), bytes.len()) };
    memory
}

#[test]
fn memory_of_both_pools_is_shared() {
    let (client, server) = UnixStream::pair().unwrap();
    let serving = std::thread::spawn(move || {
        serve(server, || {
            let session = Arc::new(rig::session(&[]).map_err(|cause| cause.to_string())?);
            let discovered = session.agents().map_err(|cause| cause.to_string())?.remove(0);
            let agent = KernelDispatchAgent::open(session, discovered, LIMIT).map_err(|cause| cause.to_string())?;
            Ok(vec![Arc::new(agent) as Arc<dyn HostedAgent>])
        })
    });
    let agent = IsolatedAgent::connect(client, TimeLimits::all(LIMIT)).unwrap().remove(0);
    let kernel = TestKernel::Add8(1).artifact(&ArchRegistry::builtin().get(&agent.info().name).unwrap());
    let pdi = place(&agent, MemoryPool::DeviceHeap, kernel.pdi());
    let instructions = place(&agent, MemoryPool::DeviceHeap, kernel.instructions());
    let data = place(&agent, MemoryPool::Data, &[41; BYTES]);
    let pdi_ref = PdiRef { address: pdi.device_address, bytes: kernel.pdi().len() };
    let packet = Packet {
        pdi_index: 0,
        pdi: pdi_ref,
        instructions: instructions.device_address,
        instruction_bytes: kernel.instructions().len(),
        arguments: (0, 2),
    };
    let argument = Argument { address: data.device_address, bytes: BYTES as u32 };
    let context = agent.create_context(&[pdi_ref]).unwrap();
    agent.submit(context, &Chain { packets: vec![packet], arguments: vec![argument; 2] }).unwrap();
    // SAFETY: the allocation has this length, and no command is in flight.
    let result = unsafe { std::slice::from_raw_parts(data.host.as_ptr(), BYTES) };
    assert_eq!(result, [42; BYTES]);
    agent.destroy_context(context);
    for memory in [pdi, instructions, data] {
        agent.free(memory);
    }
    drop(agent);
    serving.join().unwrap().unwrap();
}
