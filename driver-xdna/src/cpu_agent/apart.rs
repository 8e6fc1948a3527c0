//! A device that has memory of its own, and runs behind the caller.
//!
//! It sees what the host wrote only when that was written back, and the host sees what it wrote only after an invalidate, both by whole
//! lines. Lines that the host has written, and not written back before a chain runs, are evicted behind it, over the results. Chains run when they are
//! waited for, and not before: what the host does too early, or forgets, gives wrong bytes.

use super::CpuAgent;
use crate::agent::{Agent, AgentError, AgentInfo, Allocation, Caches, Chain, ContextId, PdiRef};
use aie_device_memory::Span;
use aie_hal::MemoryPool;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// What the device's memory holds before anything was written back.
const UNKNOWN: u8 = 0xa7;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Chains that can be under way.
const AHEAD: usize = 4;

#[derive(Debug)]
pub(crate) struct ApartAgent {
    inner: Arc<CpuAgent>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the address of its first byte in this process.
    views: BTreeMap<usize, View>,
    pending: VecDeque<(ContextId, u64, Chain)>,
    ended: HashMap<u64, Result<(), AgentError>>,
    next: u64,
    /// The most chains that were under way at one time.
    most: usize,
}

/// Data memory beside that of the host.
#[derive(Debug)]
struct View {
    /// What the device sees.
    device: Vec<u8>,
    /// What the host's memory held when its lines were clean last: whatever differs from it has been written since.
    clean: Vec<u8>,
}

impl View {
    /// Writes the host's dirty lines, of those of `range`, over what the device has left.
    fn evict(&mut self, host: &[u8], range: Range<usize>) {
        let (device, clean) = (&mut self.device[range.clone()], &mut self.clean[range.clone()]);
        let lines = device.chunks_mut(LINE).zip(clean.chunks_mut(LINE)).zip(host[range].chunks(LINE));
        for ((device, clean), host) in lines.filter(|((_, clean), host)| clean != host) {
            device.copy_from_slice(host);
            clean.copy_from_slice(host);
        }
    }
}

impl ApartAgent {
    pub(crate) fn new(inner: Arc<CpuAgent>) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::default() })
    }

    /// The most chains that were under way at one time.
    pub(crate) fn most_ahead(&self) -> usize {
        self.state.lock().most
    }

    /// Runs the oldest chain on the device's view.
    fn run_oldest(&self, state: &mut State) {
        let Some((context, number, chain)) = state.pending.pop_front() else { return };
        let mut host = Vec::new();
        for (address, view) in &mut state.views {
            host.push(self.inner.exchange(*address, &view.device));
        }
        let result = self.inner.start(context, &chain).map(drop);
        for ((address, view), host) in state.views.iter_mut().zip(host) {
            view.device = self.inner.exchange(*address, &host);
            view.evict(&host, 0..host.len());
        }
        state.ended.insert(number, result);
    }
}

impl ApartAgent {
    /// Does something with the lines of a span in the host's memory.
    fn lines(&self, span: Span<'_>, work: impl FnOnce(&mut View, &mut [u8], Range<usize>)) {
        let mut state = self.state.lock();
        let (first, view) = state.views.range_mut(..=span.address()).next_back().expect("data memory of this agent");
        let start = span.address() - first;
        let end = (start + span.length()).next_multiple_of(LINE).min(view.device.len());
        let mut host = self.inner.exchange(*first, &view.device);
        work(view, &mut host, start - start % LINE..end);
        self.inner.exchange(*first, &host);
    }
}

impl Caches for ApartAgent {
    fn write_back(&self, span: Span<'_>) {
        self.lines(span, |view, host, lines| view.evict(host, lines));
    }

    fn invalidate(&self, span: Span<'_>) {
        self.lines(span, |view, host, lines| {
            view.evict(host, lines.clone());
            host[lines.clone()].copy_from_slice(&view.device[lines.clone()]);
            view.clean[lines.clone()].copy_from_slice(&view.device[lines]);
        });
    }
}

impl Agent for ApartAgent {
    fn info(&self) -> &AgentInfo {
        self.inner.info()
    }

    fn contexts_created(&self) -> u64 {
        self.inner.contexts_created()
    }

    fn allocate(&self, pool: MemoryPool, bytes: usize) -> Result<Allocation, AgentError> {
        let allocation = self.inner.allocate(pool, bytes)?;
        if pool == MemoryPool::Data {
            let view = View { device: vec![UNKNOWN; bytes], clean: vec![UNKNOWN; bytes] };
            self.state.lock().views.insert(allocation.host.addr().get(), view);
        }
        Ok(allocation)
    }

    fn free(&self, allocation: Allocation) {
        self.state.lock().views.remove(&allocation.host.addr().get());
        self.inner.free(allocation);
    }

    fn create_context(&self, pdis: &[PdiRef]) -> Result<ContextId, AgentError> {
        self.inner.create_context(pdis)
    }

    fn destroy_context(&self, context: ContextId) {
        let mut state = self.state.lock();
        while state.pending.iter().any(|(of, ..)| *of == context) {
            self.run_oldest(&mut state);
        }
        self.inner.destroy_context(context);
    }

    fn chains_ahead(&self) -> usize {
        AHEAD
    }

    fn start(&self, context: ContextId, chain: &Chain) -> Result<u64, AgentError> {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.pending.push_back((context, number, chain.clone()));
        state.most = state.most.max(state.pending.len());
        assert!(state.pending.len() <= AHEAD, "more chains than this device queues");
        Ok(number)
    }

    fn finish(&self, _: ContextId, number: u64) -> Result<(), AgentError> {
        let mut state = self.state.lock();
        while !state.ended.contains_key(&number) {
            self.run_oldest(&mut state);
        }
        state.ended.remove(&number).expect("it was just there")
    }

    fn caches(&self) -> Option<&dyn Caches> {
        Some(self)
    }
}
