//! The helper's end of the socket: requests go to the agents, memory goes back as descriptors.
//!
//! Each agent has two threads, because memory calls may come while a submit runs: one for allocate and free, one for
//! contexts and submits, which come one after the other anyway. The thread that called [`serve`] reads, so that the end of
//! the client is seen while a call runs.

use super::export::HostedAgent;
use super::frame::{FrameError, receive_frame, send_frame};
use super::wire::{
    Answer, Call, Fault, Info, PROTOCOL_VERSION, Request, Response, decode, encode, encode_welcome, pdis, read_chain,
    split_hello,
};
use super::{MAX_IN_FLIGHT, ServeError};
use crate::agent::{AgentError, Allocation, Chain, ContextId};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Serves the agents that `open` gives to the client at the other end of `stream`, until the client is done or gone. Then
/// frees what the client left, after the calls that still run. Does not return while one of them hangs: a helper process
/// guards against that by [`super::host_main`].
///
/// # Errors
/// A client of another version, agents that could not be opened, frames against the protocol, a panic of an agent. The
/// client is told where that is possible. What the client left is freed after errors too, but for a panic: an agent that
/// panicked is not called again.
pub fn serve(
    stream: UnixStream,
    open: impl FnOnce() -> Result<Vec<Arc<dyn HostedAgent>>, String>,
) -> Result<(), ServeError> {
    let replies = Arc::new(Replies { stream, frame: Mutex::default() });
    let Some(served) = greet(&replies, open)? else {
        return Ok(());
    };
    let (mut workers, mut queues) = (Vec::new(), Vec::new());
    for (index, agent) in served.iter().enumerate() {
        let mut start = |role: &str| {
            let (sender, requests) = sync_channel(MAX_IN_FLIGHT);
            let (agent, replies) = (Arc::clone(agent), Arc::clone(&replies));
            let thread = std::thread::Builder::new().name(format!("agent-{index}-{role}"));
            let worker = thread.spawn(move || work(&agent, &replies, &requests)).map_err(ServeError::Thread)?;
            workers.push(worker);
            Ok(sender)
        };
        match (start("memory"), start("submit")) {
            (Ok(memory), Ok(submit)) => queues.push(AgentQueues { memory, submit }),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        }
    }
    let result = read(&replies, &queues);
    if result.is_err() {
        // The client is to know before calls that still run have ended.
        let _ = replies.stream.shutdown(Shutdown::Both);
    }
    // The workers end when their queues are gone and empty.
    drop(queues);
    let panics = workers.into_iter().filter_map(|worker| worker.join().err());
    let panicked = panics.map(|panic| panic_message(&*panic)).reduce(|first, _| first);
    if let Some(message) = panicked {
        return Err(ServeError::Panicked(message));
    }
    for agent in &served {
        agent.free_everything();
    }
    result
}

/// Answers the client's greeting. None when it went before saying anything.
fn greet(
    replies: &Replies,
    open: impl FnOnce() -> Result<Vec<Arc<dyn HostedAgent>>, String>,
) -> Result<Option<Vec<Arc<Served>>>, ServeError> {
    let mut payload = Vec::new();
    match receive_frame(replies.stream.as_fd(), &mut payload) {
        Ok(_) => {}
        Err(FrameError::Closed) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let (version, _) = split_hello(&payload)?;
    if version != PROTOCOL_VERSION {
        let error = ServeError::Version { theirs: version, ours: PROTOCOL_VERSION };
        replies.welcome(&Err(error.to_string()))?;
        return Err(error);
    }
    match open() {
        Ok(agents) => {
            replies.welcome(&Ok(agents.iter().map(|agent| Info::from(agent.info())).collect()))?;
            Ok(Some(agents.into_iter().map(|agent| Arc::new(Served::new(agent))).collect()))
        }
        Err(reason) => {
            replies.welcome(&Err(reason.clone()))?;
            Err(ServeError::Open(reason))
        }
    }
}

/// Hands requests to the threads of their agents until the client is done.
fn read(replies: &Replies, queues: &[AgentQueues]) -> Result<(), ServeError> {
    let mut payload = Vec::new();
    loop {
        match receive_frame(replies.stream.as_fd(), &mut payload) {
            Ok(None) => {}
            Ok(Some(_)) => return Err(ServeError::Protocol("a request came with a descriptor".to_owned())),
            Err(FrameError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let request: Request = decode(&payload)?;
        if request.call == Call::Bye {
            return Ok(());
        }
        let agent = usize::try_from(request.agent).ok().and_then(|agent| queues.get(agent));
        let Some(agent) = agent else {
            return Err(ServeError::Protocol(format!(
                "{} asks agent {} of {}",
                request.call.name(),
                request.agent,
                queues.len()
            )));
        };
        let queue = match request.call {
            Call::Allocate { .. } | Call::Free { .. } => &agent.memory,
            _ => &agent.submit,
        };
        match queue.try_send(request) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(ServeError::Protocol(format!("more than {MAX_IN_FLIGHT} requests are in flight")));
            }
            // Its thread panicked, and says so when it is joined.
            Err(TrySendError::Disconnected(_)) => return Ok(()),
        }
    }
}

struct AgentQueues {
    memory: SyncSender<Request>,
    submit: SyncSender<Request>,
}

/// The writing half of the stream.
struct Replies {
    stream: UnixStream,
    frame: Mutex<Vec<u8>>,
}

impl Replies {
    fn welcome(&self, agents: &Result<Vec<Info>, String>) -> Result<(), FrameError> {
        let mut frame = self.frame.lock();
        encode_welcome(agents, &mut frame)?;
        self.send(&mut frame, None)
    }

    fn answer(&self, response: &Response, descriptor: Option<BorrowedFd<'_>>) -> Result<(), FrameError> {
        let mut frame = self.frame.lock();
        encode(response, &mut frame)?;
        self.send(&mut frame, descriptor)
    }

    fn send(&self, frame: &mut [u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), FrameError> {
        match send_frame(self.stream.as_fd(), frame, descriptor, None) {
            // The reader meets the end of a client too, and ends the whole.
            Err(FrameError::Closed) => Ok(()),
            other => other,
        }
    }
}

/// Ends the connection when an agent panics: nobody else would answer its requests.
struct PanicGuard<'a>(&'a Replies);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.stream.shutdown(Shutdown::Both);
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

fn work(agent: &Served, replies: &Replies, requests: &Receiver<Request>) {
    let _guard = PanicGuard(replies);
    let mut chain = Chain::default();
    for request in requests {
        let outcome = agent.execute(request.call, &mut chain);
        let (result, descriptor) = match outcome {
            Ok((answer, descriptor)) => (Ok(answer), descriptor),
            Err(error) => (Err(Fault::from(error)), None),
        };
        let response = Response { id: request.id, counts: agent.agent.counts().into(), result };
        if let Err(error) = replies.answer(&response, descriptor.as_ref().map(AsFd::as_fd)) {
            tracing::error!(%error, "an answer was not sent");
            let _ = replies.stream.shutdown(Shutdown::Both);
        }
    }
}

/// An agent and what its client has of it.
struct Served {
    agent: Arc<dyn HostedAgent>,
    allocations: Mutex<HashMap<u64, Allocation>>,
    contexts: Mutex<BTreeSet<u64>>,
    next_allocation: AtomicU64,
}

impl Served {
    fn new(agent: Arc<dyn HostedAgent>) -> Self {
        Self { agent, allocations: Mutex::default(), contexts: Mutex::default(), next_allocation: AtomicU64::new(1) }
    }

    fn execute(&self, call: Call, chain: &mut Chain) -> Result<(Answer, Option<OwnedFd>), AgentError> {
        let malformed = |error: FrameError| AgentError::Unsupported(error.to_string());
        let answer = match call {
            Call::Allocate { pool, bytes } => {
                let length = usize::try_from(bytes)
                    .map_err(|_| AgentError::OutOfMemory(format!("{bytes} bytes do not fit into the address space")))?;
                let allocation = self.agent.allocate(pool.into(), length)?;
                return match self.agent.export(&allocation) {
                    Ok((descriptor, offset)) => {
                        let id = self.next_allocation.fetch_add(1, Ordering::Relaxed);
                        let device_address = allocation.device_address;
                        let length = allocation.length as u64;
                        self.allocations.lock().insert(id, allocation);
                        Ok((Answer::Allocated { allocation: id, length, device_address, offset }, Some(descriptor)))
                    }
                    Err(error) => {
                        self.agent.free(allocation);
                        Err(error)
                    }
                };
            }
            Call::Free { allocation } => {
                let freed = self.allocations.lock().remove(&allocation);
                let unknown = || AgentError::Unsupported(format!("there is no allocation {allocation} to free"));
                self.agent.free(freed.ok_or_else(unknown)?);
                Answer::Done
            }
            Call::CreateContext { pdis: wanted } => {
                let context = self.agent.create_context(&pdis(&wanted).map_err(malformed)?)?;
                self.contexts.lock().insert(context.0);
                Answer::Context(context.0)
            }
            Call::DestroyContext { context } => {
                if !self.contexts.lock().remove(&context) {
                    return Err(AgentError::Unsupported(format!("there is no context {context} to destroy")));
                }
                self.agent.destroy_context(ContextId(context));
                Answer::Done
            }
            Call::Submit { context, packets, arguments } => {
                if !self.contexts.lock().contains(&context) {
                    return Err(AgentError::Unsupported(format!("there is no context {context} to submit to")));
                }
                read_chain(&packets, &arguments, chain).map_err(malformed)?;
                self.agent.submit(ContextId(context), chain)?;
                Answer::Done
            }
            // The reader ends at it and hands it to nobody.
            Call::Bye => Answer::Done,
        };
        Ok((answer, None))
    }

    /// Contexts first: they hold PDIs that are allocations.
    fn free_everything(&self) {
        for context in std::mem::take(&mut *self.contexts.lock()) {
            self.agent.destroy_context(ContextId(context));
        }
        for (_, allocation) in std::mem::take(&mut *self.allocations.lock()) {
            self.agent.free(allocation);
        }
    }
}
