use super::*;
use aie_hal::ArchRegistry;

fn npu() -> SimulatedNpu {
    let arch = ArchRegistry::builtin().get("aie2p").unwrap();
    let heap = arch.limits.device_heap_bytes;
    SimulatedNpu::new(arch, heap)
}

const DESCRIPTORS: u64 = 100;

fn pdis(count: usize) -> Vec<ContextPdi> {
    let pdi = |i: usize| ContextPdi { digest: Digest::of(&i.to_le_bytes()), descriptors: DESCRIPTORS };
    (0..count).map(pdi).collect()
}

fn configured(npu: &SimulatedNpu, count: usize) -> ContextId {
    let context = npu.create_context(npu.arch().array.columns).unwrap();
    npu.configure_context(context, &pdis(count)).unwrap();
    context
}

const COMMAND: ChainCommand = ChainCommand { pdi: 0, arguments: 1, bytes: 0, busy_ns: 0, operations: 0 };

#[test]
fn forty_commands_with_two_arguments_fill_a_chain() {
    assert_eq!(chain_command_bytes(2), 100);
    let npu = npu();
    let context = configured(&npu, 1);
    let two = ChainCommand { arguments: 2, ..COMMAND };
    assert_eq!(npu.submit_chain(context, &vec![two; 40]), Ok(()));
    let rejection = npu.submit_chain(context, &vec![two; 41]).unwrap_err();
    assert_eq!(rejection.to_string(), "bytes of a chain's command buffer: 4100 requested, the limit is 4096");
    assert_eq!(npu.counts().chains, 1);
    assert_eq!(npu.counts().commands, 40);
}

#[test]
fn a_chain_takes_as_many_commands_as_the_firmware() {
    let mut arch = (*ArchRegistry::builtin().get("aie2p").unwrap()).clone();
    // With the real buffer the bytes run out first; a larger one shows the other limit.
    arch.limits.chain_buffer_bytes = 1 << 20;
    let npu = SimulatedNpu::new(Arc::new(arch), 1 << 20);
    let context = configured(&npu, 1);
    assert_eq!(npu.submit_chain(context, &[COMMAND; 64]), Ok(()));
    let rejection = npu.submit_chain(context, &[COMMAND; 65]).unwrap_err();
    assert_eq!(rejection.to_string(), "commands per chain: 65 requested, the limit is 64");
}

#[test]
fn a_context_holds_32_distinct_pdis() {
    let npu = npu();
    let mut repeated = pdis(32);
    repeated.extend(pdis(32));
    let context = npu.create_context(8).unwrap();
    assert_eq!(npu.configure_context(context, &repeated), Ok(()));
    assert_eq!(npu.configure_context(context, &pdis(1)), Err(Rejection::AlreadyConfigured(0)));
    let second = npu.create_context(8).unwrap();
    let rejection = npu.configure_context(second, &pdis(33)).unwrap_err();
    assert_eq!(rejection.to_string(), "PDIs per context: 33 requested, the limit is 32");
}

#[test]
fn contexts_and_columns_are_limited() {
    let npu = npu();
    let contexts: Vec<_> = (0..16).map(|_| npu.create_context(8).unwrap()).collect();
    let rejection = npu.create_context(8).unwrap_err();
    assert_eq!(rejection.to_string(), "contexts: 17 requested, the limit is 16");
    npu.destroy_context(contexts[3]).unwrap();
    assert_eq!(npu.destroy_context(contexts[3]), Err(Rejection::UnknownContext(3)));
    assert!(npu.create_context(8).is_ok());
    npu.destroy_context(contexts[0]).unwrap();
    assert_eq!(npu.create_context(9).unwrap_err().to_string(), "columns: 9 requested, the limit is 8");
    assert!(npu.create_context(0).is_err());
}

#[test]
fn chains_need_a_context_that_holds_their_pdis() {
    let npu = npu();
    let context = configured(&npu, 2);
    assert_eq!(npu.submit_chain(context, &[]), Err(Rejection::EmptyChain));
    let rejection = npu.submit_chain(context, &[ChainCommand { pdi: 2, ..COMMAND }]).unwrap_err();
    assert_eq!(rejection.to_string(), "context 0 has 2 PDIs, a command names number 2");
    let bare = npu.create_context(1).unwrap();
    assert!(matches!(npu.submit_chain(bare, &[COMMAND]), Err(Rejection::UnknownPdi { configured: 0, .. })));
    npu.destroy_context(context).unwrap();
    assert_eq!(npu.submit_chain(context, &[COMMAND]), Err(Rejection::UnknownContext(0)));
    let wide = ChainCommand { arguments: 17, ..COMMAND };
    let context = configured(&npu, 1);
    assert_eq!(
        npu.submit_chain(context, &[wide]).unwrap_err().to_string(),
        "kernel arguments: 17 requested, the limit is 16"
    );
}

#[test]
fn the_heap_rejects_alignments_and_what_it_has_not_in_one_piece() {
    let npu = npu();
    let address = npu.heap_allocate(npu.limits().device_heap_bytes, 4096).unwrap();
    assert_eq!(address % 4096, 0);
    assert!(matches!(npu.heap_allocate(1, 1), Err(Rejection::OutOfHeap { requested: 1, available: 0, .. })));
    npu.heap_free(address);
    assert_eq!((npu.state.lock().heap.used(), npu.limits.device_heap_bytes), (0, 64 << 20));
    assert_eq!(npu.heap_allocate(1, 8192), Err(Rejection::Alignment { requested: 8192, limit: 4096 }));
    assert_eq!(npu.heap_allocate(1, 3), Err(Rejection::Alignment { requested: 3, limit: 4096 }));
    let small = SimulatedNpu::new(npu.arch().clone(), 8192);
    assert_eq!([(1, 1), (16, 4096)].map(|(n, at)| small.heap_allocate(n, at)), [Ok(HEAP_BASE), Ok(HEAP_BASE + 4096)]);
    let error = small.heap_allocate(5000, 1).unwrap_err().to_string();
    assert_eq!(error, "device heap: 5000 bytes requested, 8175 of 8192 are free");
}

#[test]
fn charges_creation_switches_chains_and_bytes() {
    let npu = npu();
    let cost = npu.arch().cost.clone();
    let (a, b) = (configured(&npu, 1), configured(&npu, 1));
    let mut expected = 2 * cost.context_create_ns;
    assert_eq!(npu.elapsed_ns(), expected);
    // The first context that runs has nothing to switch from.
    npu.submit_chain(a, &[COMMAND]).unwrap();
    expected += cost.chain_ns.expected;
    assert_eq!(npu.elapsed_ns(), expected);
    npu.submit_chain(b, &[ChainCommand { bytes: cost.ddr_bytes_per_second.expected, ..COMMAND }; 3]).unwrap();
    expected +=
        cost.switch(DESCRIPTORS).expected + cost.chain_ns.expected + 2 * cost.command_ns.expected + 3_000_000_000;
    assert_eq!(npu.elapsed_ns(), expected);
    npu.submit_chain(b, &[COMMAND]).unwrap();
    expected += cost.chain_ns.expected;
    npu.charge_watchdog();
    assert_eq!(npu.elapsed_ns(), expected + WATCHDOG_NS);
    let counts = npu.counts();
    assert_eq!((counts.contexts_created, counts.context_switches, counts.chains, counts.commands), (2, 1, 3, 5));
}

/// Firmware loads the PDI of a command whenever it is not the one before; that is no switch of contexts.
#[test]
fn pdis_of_one_context_are_loaded_by_turns() {
    let npu = npu();
    let cost = npu.arch().cost.clone();
    let context = configured(&npu, 2);
    let before = npu.elapsed_ns();
    let chain = [0, 0, 1, 0].map(|pdi| ChainCommand { pdi, ..COMMAND });
    npu.submit_chain(context, &chain).unwrap();
    let loads = 2 * cost.switch(DESCRIPTORS).expected;
    assert_eq!(npu.elapsed_ns() - before, loads + cost.chain_ns.expected + 3 * cost.command_ns.expected);
    assert_eq!(npu.counts().context_switches, 0);
}
