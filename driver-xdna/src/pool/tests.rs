use super::*;
use crate::cpu_agent::rig::Checked;
use crate::cpu_agent::{Call, CpuAgent};
use rstest::rstest;
use std::collections::BTreeMap;

/// Contexts of the NPU in these tests.
const CONTEXTS: usize = 2;

/// The agent is the first of a test's values, so the last that goes: it looks at what the others leave.
fn pool() -> (Checked, Arc<Pool>) {
    pool_with(|_| {})
}

fn pool_with(change: impl FnOnce(&mut crate::agent::AgentInfo)) -> (Checked, Arc<Pool>) {
    let agent = Checked(CpuAgent::new(change));
    let pool = Pool::new(Arc::<CpuAgent>::clone(&agent), CONTEXTS);
    (agent, pool)
}

fn params(size: usize, alignment: usize, pool: MemoryPool) -> BufferParams {
    BufferParams { size, alignment, pool }
}

fn content(block: &Block) -> Vec<u8> {
    let mut bytes = vec![0; block.region.length()];
    block.region.span(0, bytes.len()).unwrap().read(&mut bytes);
    bytes
}

fn fill(block: &Block, byte: u8) {
    let length = block.region.length();
    block.region.writable(0, length).unwrap().write(&vec![byte; length]);
}

/// No byte belongs to two blocks, here and for the device.
fn assert_apart(blocks: &[Block]) {
    let mut host = BTreeMap::new();
    let mut device = BTreeMap::new();
    for block in blocks {
        host.insert(block.region.address(), block.region.length());
        device.insert(block.device_address as usize, block.region.length());
    }
    for ranges in [host, device] {
        assert_eq!(ranges.len(), blocks.len());
        let pairs = ranges.iter().zip(ranges.iter().skip(1));
        pairs.for_each(|((start, length), (next, _))| assert!(start + length <= *next, "{start:#x}+{length}"));
    }
}

#[test]
fn thousands_of_small_buffers_are_few_allocations() {
    let (agent, pool) = pool();
    let blocks: Vec<_> = (0..5000).map(|i| pool.allocate(&BufferParams::data(1 + i % 700)).unwrap()).collect();
    assert_apart(&blocks);
    // Together they are less than one slab.
    assert_eq!(agent.calls(Call::AllocateData), 1);
}

#[test]
fn instruction_streams_share_allocations_and_begin_where_firmware_takes_them() {
    let (agent, pool) = pool();
    let blocks: Vec<_> = (0..1000).map(|i| pool.instructions(64 + 4 * (i % 200)).unwrap()).collect();
    assert_apart(&blocks);
    assert_eq!(agent.calls(Call::AllocateHeap), 1000 / (INSTRUCTION_SLAB_BYTES / STREAM_UNIT) as u64);
    assert!(blocks.iter().all(|block| (block.device_address as usize).is_multiple_of(STREAM_UNIT)));
}

/// A runtime that looks instructions up by the address of their buffer gets a buffer for each, and so do long ones.
#[rstest]
#[case::of_a_later_runtime(true, 64)]
#[case::long(false, STREAM_UNIT + 1)]
fn some_instruction_streams_have_a_buffer_of_their_own(#[case] streams_apart: bool, #[case] bytes: usize) {
    let (agent, pool) = pool_with(|info| info.streams_apart = streams_apart);
    let blocks: Vec<_> = (0..10).map(|_| pool.instructions(bytes).unwrap()).collect();
    assert_eq!(agent.calls(Call::AllocateHeap), 10);
    assert!(blocks.iter().all(|block| (block.device_address as usize).is_multiple_of(HEAP_GRANULE)));
}

#[rstest]
fn both_addresses_are_aligned(
    #[values(1, 64, 128, 1024, 4096)] alignment: usize,
    #[values(1, 100, 5000, LARGE, LARGE + 1)] size: usize,
    #[values(MemoryPool::Data, MemoryPool::DeviceHeap)] kind: MemoryPool,
) {
    let (_agent, pool) = pool();
    let blocks: Vec<_> = (0..5).map(|_| pool.allocate(&params(size, alignment, kind)).unwrap()).collect();
    for block in &blocks {
        assert_eq!(block.region.length(), size);
        assert_eq!((block.region.address() % alignment, block.device_address as usize % alignment), (0, 0));
    }
    assert_apart(&blocks);
}

#[rstest]
fn memory_that_had_another_user_holds_zeros(
    #[values(1, 64, 5000, LARGE + 3)] size: usize,
    #[values(MemoryPool::Data, MemoryPool::DeviceHeap)] kind: MemoryPool,
) {
    let (_agent, pool) = pool();
    // Something stays, so that a shared slab stays too.
    let _other = pool.allocate(&params(64, 64, kind)).unwrap();
    for alignment in [64, 4096, 64] {
        let block = pool.allocate(&params(size, alignment, kind)).unwrap();
        assert_eq!(content(&block), vec![0; size]);
        fill(&block, 0xff);
    }
}

#[test]
fn instruction_memory_holds_zeros() {
    let (_agent, pool) = pool();
    let _other = pool.instructions(64).unwrap();
    for _ in 0..3 {
        let block = pool.instructions(1000).unwrap();
        assert_eq!(content(&block), [0; 1000]);
        fill(&block, 0xff);
    }
}

#[test]
fn one_empty_slab_of_data_is_kept_and_none_of_the_heap() {
    let (agent, pool) = pool();
    let small = LARGE - UNIT;
    let blocks: Vec<_> = (0..20).map(|_| pool.allocate(&BufferParams::data(small)).unwrap()).collect();
    let streams: Vec<_> = (0..20).map(|_| pool.instructions(STREAM_UNIT).unwrap()).collect();
    assert_eq!((agent.allocations(MemoryPool::Data), agent.allocations(MemoryPool::DeviceHeap)), (5, 5));
    drop((blocks, streams));
    assert_eq!((agent.allocations(MemoryPool::Data), agent.allocations(MemoryPool::DeviceHeap)), (1, 0));
    // The cached one serves the next.
    let _next = pool.allocate(&BufferParams::data(small)).unwrap();
    assert_eq!(agent.calls(Call::AllocateData), 5);
    pool.close();
    assert_eq!(agent.allocations(MemoryPool::Data), 1);
}

#[test]
fn large_buffers_are_given_back_at_once() {
    let (agent, pool) = pool();
    let block = pool.allocate(&BufferParams::data(LARGE)).unwrap();
    assert_eq!(agent.allocations(MemoryPool::Data), 1);
    drop(block);
    assert_eq!(agent.allocations(MemoryPool::Data), 0);
}

#[test]
fn a_block_outlives_its_pool() {
    let (_agent, pool) = pool();
    let blocks = [
        pool.allocate(&BufferParams::data(10)).unwrap(),
        pool.allocate(&BufferParams::data(LARGE)).unwrap(),
        pool.instructions(64).unwrap(),
        pool.allocate(&params(64, 64, MemoryPool::DeviceHeap)).unwrap(),
    ];
    drop(pool);
    blocks.iter().for_each(|block| fill(block, 1));
}

#[test]
fn the_heap_is_handed_out_but_for_the_part_of_contexts_and_runtime() {
    let (agent, pool) = pool();
    let capacity = pool.heap_capacity;
    assert_eq!(capacity, (64 << 20) - CONTEXTS * CONTEXT_BYTES - RUNTIME_BYTES);
    let one = params(1, 64, MemoryPool::DeviceHeap);
    let mut blocks: Vec<_> = (0..capacity / HEAP_GRANULE).map(|_| pool.allocate(&one).unwrap()).collect();
    let full = pool.allocate(&one).unwrap_err();
    assert_eq!(full, DeviceError::OutOfMemory { pool: "device heap", requested: 1, available: 0, capacity });
    assert!(pool.instructions(64).is_err());
    // The reserve is there: so many contexts fit into what the runtime has left.
    assert_eq!(agent.calls(Call::AllocateHeap), blocks.len() as u64);
    blocks.pop();
    let two = params(HEAP_GRANULE + 1, 64, MemoryPool::DeviceHeap);
    let available = HEAP_GRANULE;
    let requested = HEAP_GRANULE + 1;
    let full = pool.allocate(&two).unwrap_err();
    assert_eq!(full, DeviceError::OutOfMemory { pool: "device heap", requested, available, capacity });
    blocks.push(pool.allocate(&one).unwrap());
}

#[test]
fn what_the_runtime_rejects_is_not_counted() {
    let (agent, pool) = pool();
    let capacity = pool.heap_capacity;
    for nth in 0..3 {
        agent.fail(Call::AllocateHeap, 1, AgentError::OutOfMemory(format!("rejection {nth}")), 0);
        let all = params(capacity, 64, MemoryPool::DeviceHeap);
        assert!(
            matches!(pool.allocate(&all), Err(DeviceError::OutOfMemory { available, .. }) if available == capacity)
        );
        agent.fail(Call::AllocateHeap, 1, AgentError::OutOfMemory(format!("rejection {nth}")), 0);
        assert!(pool.instructions(64).is_err());
    }
    let block = pool.allocate(&params(capacity, 64, MemoryPool::DeviceHeap)).unwrap();
    drop(block);
    for _ in 0..3 {
        // A slab of instructions is counted as long as it exists.
        let stream = pool.instructions(64).unwrap();
        assert!(pool.allocate(&params(capacity, 64, MemoryPool::DeviceHeap)).is_err());
        drop(stream);
    }
    drop(pool.allocate(&params(capacity, 64, MemoryPool::DeviceHeap)).unwrap());
}

#[rstest]
#[case::small(100)]
#[case::large(LARGE)]
fn rejected_data_memory_says_what_was_asked(#[case] size: usize) {
    let (agent, pool) = pool_with(|info| info.data_bytes = 8 << 20);
    agent.fail(Call::AllocateData, 1, AgentError::OutOfMemory("as planned".into()), 0);
    let error = pool.allocate(&BufferParams::data(size)).unwrap_err();
    let expected = DeviceError::OutOfMemory { pool: "data", requested: size, available: 0, capacity: 8 << 20 };
    assert_eq!(error, expected);
    // Nothing remains of it.
    drop(pool.allocate(&BufferParams::data(size)).unwrap());
    let error = pool.allocate(&BufferParams::data(9 << 20)).unwrap_err();
    assert!(error.to_string().contains("9437184 bytes of data memory requested"), "{error}");
}

#[rstest]
#[case::data(Call::AllocateData, MemoryPool::Data)]
#[case::heap(Call::AllocateHeap, MemoryPool::DeviceHeap)]
fn a_lost_runtime_is_a_lost_device(#[case] call: Call, #[case] kind: MemoryPool) {
    let (agent, pool) = pool();
    agent.fail(call, 1, AgentError::Lost("the process ended".into()), 0);
    let error = pool.allocate(&params(64, 64, kind)).unwrap_err();
    assert_eq!(error, DeviceError::Lost("the process ended".into()));
}

/// Eight threads allocate, fill, check and free in a fixed but mixed order.
#[test]
fn pieces_of_many_threads_stay_apart() {
    let (agent, pool) = pool();
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let pool = &pool;
            scope.spawn(move || {
                let mut random = thread * 7919 + 1;
                let mut kept: Vec<(Block, u8)> = Vec::new();
                for round in 0..400_usize {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let size = 1 + (random >> 33) % 3000;
                    let block = match (random >> 20) % 8 {
                        0 => pool.instructions(size).unwrap(),
                        1 => pool.allocate(&params(size, 4096, MemoryPool::Data)).unwrap(),
                        _ => pool.allocate(&BufferParams::data(size)).unwrap(),
                    };
                    assert!(content(&block).iter().all(|byte| *byte == 0), "zeros in round {round} of thread {thread}");
                    let mark = (1 + thread * 31 + round % 31) as u8;
                    fill(&block, mark);
                    kept.push((block, mark));
                    if kept.len() > 20 {
                        let (block, mark) = kept.swap_remove((random >> 40) % kept.len());
                        assert!(content(&block).iter().all(|byte| *byte == mark), "own bytes of thread {thread}");
                    }
                }
                kept.iter().for_each(|(block, mark)| assert!(content(block).iter().all(|byte| byte == mark)));
            });
        }
    });
    assert_eq!(pool.state.lock().heap_used, 0);
    assert!(agent.allocations(MemoryPool::Data) <= 1);
}
