//! The client's end of the socket: requests in flight, the thread that takes the answers, and the one cause of its end.

use super::frame::{FrameError, receive_frame, send_frame};
use super::limits::TimeLimits;
use super::process::{HostProcess, describe_exit, is_abort};
use super::wire::{
    Answer, Call, Counts, Info, PROTOCOL_VERSION, Request, Response, decode, encode, encode_hello, split_hello,
};
use super::{MAX_IN_FLIGHT, StartError, quiet_thread};
use crate::agent::{AgentError, AgentInfo};
use aie_hal::environment::table::AIE_HAL_TIME_LIMIT_MS;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How long a helper that closed the connection, or was killed, may take to end. Longer than a core dump usually takes.
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// An answer that was not a failure.
#[derive(Debug)]
pub(super) struct Answered {
    pub answer: Answer,
    pub descriptor: Option<OwnedFd>,
}

/// What the reader hands to the thread that asked.
#[derive(Debug)]
struct Arrival {
    response: Response,
    descriptor: Option<OwnedFd>,
}

/// The first answer: the other side's version and what follows it.
type Welcome = (u32, Vec<u8>);

/// One helper and the requests in flight to it. Closed when the last reference goes.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    limits: TimeLimits,
    next_id: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    stream: UnixStream,
    /// None when the other side is not a process of ours.
    process: Option<HostProcess>,
    /// The frame being written; its lock keeps frames whole.
    frame: Mutex<Vec<u8>>,
    state: Mutex<State>,
    /// Signalled when the reader has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The first cause of the end.
    lost: Option<String>,
    pending: HashMap<u64, Pending>,
    welcome: Option<SyncSender<Welcome>>,
    /// The helper was told to end.
    closing: bool,
    ended: bool,
}

#[derive(Debug)]
struct Pending {
    name: &'static str,
    sender: SyncSender<Arrival>,
}

impl Connection {
    /// Greets the other side and takes the list of its agents.
    pub fn open(
        stream: UnixStream,
        process: Option<HostProcess>,
        limits: TimeLimits,
    ) -> Result<(Self, Vec<AgentInfo>), StartError> {
        let (sender, welcome) = sync_channel(1);
        let state = State { welcome: Some(sender), ..State::default() };
        let shared = Arc::new(Shared {
            stream,
            process,
            frame: Mutex::default(),
            state: Mutex::new(state),
            ended: Condvar::new(),
        });
        let reader = Arc::clone(&shared);
        let spawned = quiet_thread::spawn("aie-host-reader", move || reader.read());
        if let Err(error) = spawned {
            // No reader will reap it.
            if let Some(process) = &shared.process {
                process.kill();
                process.reap();
            }
            return Err(StartError::Lost(format!("cannot start the thread that reads the helper's answers: {error}")));
        }
        // From here on, dropping it closes it.
        let connection = Self { shared, limits, next_id: AtomicU64::new(1) };
        let agents = connection.greet(&welcome)?;
        Ok((connection, agents))
    }

    fn greet(&self, welcome: &Receiver<Welcome>) -> Result<Vec<AgentInfo>, StartError> {
        let limit = self.limits.call;
        let deadline = Instant::now() + limit;
        let sent = {
            let mut frame = self.shared.frame.lock();
            encode_hello(PROTOCOL_VERSION, &mut frame);
            send_frame(self.shared.stream.as_fd(), &mut frame, None, Some(deadline))
        };
        let arrived = match sent {
            Err(FrameError::Deadline) => Err(RecvTimeoutError::Timeout),
            // Whatever else went wrong: the reader finds out why.
            _ => welcome.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        };
        let (version, rest) = match arrived {
            Ok(welcome) => welcome,
            Err(RecvTimeoutError::Timeout) => {
                return Err(StartError::Lost(self.give_up("opening the runtime", limit)));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(StartError::Lost(self.cause())),
        };
        if version != PROTOCOL_VERSION {
            let error = StartError::Version { theirs: version, ours: PROTOCOL_VERSION };
            // It would not understand a farewell either.
            self.shared.lose(error.to_string());
            return Err(error);
        }
        let malformed = |error: FrameError| {
            self.shared.lose(format!("{} was killed: its first answer is a {error}", self.shared.name()));
            StartError::Lost(self.cause())
        };
        match decode::<Result<Vec<Info>, String>>(&rest).map_err(malformed)? {
            Ok(agents) => agents.into_iter().map(|info| AgentInfo::try_from(info).map_err(malformed)).collect(),
            Err(reason) => Err(StartError::Refused(reason)),
        }
    }

    /// Sends a request and waits for its answer, no longer than its limit. `counts` gets the totals that come with it.
    pub fn call(&self, agent: u32, call: Call, counts: impl FnOnce(Counts)) -> Result<Answered, AgentError> {
        let name = call.name();
        let limit = if matches!(call, Call::Submit { .. }) { self.limits.submit } else { self.limits.call };
        let deadline = Instant::now() + limit;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = sync_channel(1);
        {
            let mut state = self.shared.state.lock();
            if let Some(cause) = &state.lost {
                return Err(AgentError::Lost(cause.clone()));
            }
            if state.pending.len() >= MAX_IN_FLIGHT {
                return Err(AgentError::OutOfMemory(format!(
                    "{name}: {MAX_IN_FLIGHT} calls to the helper process are in flight, which is the most; call from fewer \
                     threads"
                )));
            }
            state.pending.insert(id, Pending { name, sender });
        }
        match self.send(&Request { id, agent, call }, deadline) {
            Ok(()) | Err(FrameError::Closed | FrameError::Io(_)) => {}
            Err(FrameError::Deadline) => return Err(AgentError::Lost(self.give_up(name, limit))),
            Err(FrameError::Malformed(reason)) => {
                self.shared.state.lock().pending.remove(&id);
                return Err(AgentError::Unsupported(format!("{name} does not fit into a message: {reason}")));
            }
        }
        let arrival = match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(arrival) => arrival,
            Err(RecvTimeoutError::Timeout) => return Err(AgentError::Lost(self.give_up(name, limit))),
            Err(RecvTimeoutError::Disconnected) => return Err(AgentError::Lost(self.cause())),
        };
        counts(arrival.response.counts);
        let answer = arrival.response.result.map_err(AgentError::from)?;
        Ok(Answered { answer, descriptor: arrival.descriptor })
    }

    fn send(&self, request: &Request, deadline: Instant) -> Result<(), FrameError> {
        // Another sender holds the lock no longer than to its own deadline, and its failure ends the connection.
        let mut frame = self.shared.frame.try_lock_until(deadline).ok_or(FrameError::Deadline)?;
        encode(request, &mut frame)?;
        send_frame(self.shared.stream.as_fd(), &mut frame, None, Some(deadline))
    }

    /// The other side answered against the protocol.
    pub fn breach(&self, name: &str, what: &str) -> AgentError {
        self.shared.lose(format!("{} answered {name} {what} and was killed", self.shared.name()));
        self.shared.wait_ended(EXIT_WAIT);
        AgentError::Lost(self.cause())
    }

    /// A limit has passed: kills the helper and says so.
    fn give_up(&self, name: &str, limit: Duration) -> String {
        let words = self.shared.last_words();
        self.shared.lose(format!(
            "{} did not answer {name} within {limit:?} and was killed{words}; {AIE_HAL_TIME_LIMIT_MS} sets the limit",
            self.shared.name()
        ));
        self.shared.wait_ended(EXIT_WAIT);
        self.cause()
    }

    /// Why it ended.
    fn cause(&self) -> String {
        self.shared.state.lock().lost.clone().unwrap_or_else(|| format!("{} is gone", self.shared.name()))
    }

    /// The helper's process id; none when the other side is no process of ours.
    pub fn process_id(&self) -> Option<u32> {
        self.shared.process.as_ref().map(HostProcess::id)
    }

    /// Whether and why it ended.
    pub fn lost(&self) -> Option<String> {
        self.shared.state.lock().lost.clone()
    }

    /// Tells the helper to end and waits for it, and kills it when that takes longer than its limit. Once; later it does
    /// nothing.
    pub fn close(&self) {
        let deadline = Instant::now() + self.limits.close;
        let bye = Request { id: 0, agent: 0, call: Call::Bye };
        if self.lost().is_none() && self.send(&bye, deadline).is_ok() {
            {
                let mut state = self.shared.state.lock();
                state.lost = Some(format!("{} was told to end", self.shared.name()));
                state.closing = true;
            }
            let _ = self.shared.stream.shutdown(Shutdown::Write);
            if self.shared.wait_ended(deadline.saturating_duration_since(Instant::now())) {
                return;
            }
            tracing::warn!("{} did not end within {:?} and is killed", self.shared.name(), self.limits.close);
        }
        self.shared.lose(format!("{} was closed", self.shared.name()));
        self.shared.wait_ended(EXIT_WAIT);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn name(&self) -> String {
        self.process.as_ref().map_or_else(|| "the other side".to_owned(), HostProcess::name)
    }

    fn last_words(&self) -> String {
        let words = self.process.as_ref().and_then(HostProcess::last_words);
        words.map(|words| format!("; its last message: {words:?}")).unwrap_or_default()
    }

    /// Ends the connection: kills the helper, keeps the first cause, and fails everything in flight.
    fn lose(&self, cause: String) {
        {
            let mut state = self.state.lock();
            state.lost.get_or_insert(cause);
            state.pending.clear();
            state.welcome = None;
        }
        if let Some(process) = &self.process {
            process.kill();
        }
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Waits until the reader has ended, and with it the helper. False when that takes longer than `limit`.
    fn wait_ended(&self, limit: Duration) -> bool {
        let mut state = self.state.lock();
        !self.ended.wait_while_for(&mut state, |state| !state.ended, limit).timed_out()
    }

    /// The reader: hands out answers until the connection ends, then reaps the helper and says what happened.
    fn read(&self) {
        let mut payload = Vec::new();
        let end = loop {
            let delivered = receive_frame(self.stream.as_fd(), &mut payload)
                .and_then(|descriptor| self.deliver(&payload, descriptor));
            if let Err(end) = delivered {
                break end;
            }
        };
        let malformed = matches!(end, FrameError::Malformed(_));
        if malformed && let Some(process) = &self.process {
            process.kill();
        }
        // The other side is to know, also one that is no process to be killed.
        let _ = self.stream.shutdown(Shutdown::Both);
        let gone = self.process.as_ref().map(end_process);
        let name = self.name();
        let words = self.last_words();
        {
            let mut state = self.state.lock();
            let during = state.during();
            let cause = match gone {
                _ if malformed => format!("{name} broke the protocol{during} and was killed: {end}{words}"),
                Some(Gone::Killed) => format!("{name} closed the connection{during}, went on and was killed{words}"),
                Some(Gone::Ended(status)) => {
                    let hint =
                        if is_abort(status) { "; a runtime built with asserts does so on kernel errors" } else { "" };
                    format!("{name} {}{during}{hint}{words}", describe_exit(status))
                }
                Some(Gone::Stuck) => format!("{name} left{during} and does not end, although it was killed{words}"),
                None => format!("{name} is gone{during}: {end}"),
            };
            if state.closing && gone.is_some_and(|gone| !gone.is_clean()) {
                // No call is left that could return it.
                let _ = writeln!(std::io::stderr(), "{cause}, after it was told to end");
            }
            state.lost.get_or_insert(cause);
            state.pending.clear();
            state.welcome = None;
            state.ended = true;
        }
        self.ended.notify_all();
        if let (Some(Gone::Stuck), Some(process)) = (gone, &self.process) {
            // Stuck in the kernel. Nobody waits for it any more, but it is to be reaped when it comes back.
            process.wait(None);
            process.reap();
        }
    }

    fn deliver(&self, payload: &[u8], descriptor: Option<OwnedFd>) -> Result<(), FrameError> {
        let welcome = self.state.lock().welcome.take();
        if let Some(sender) = welcome {
            let (version, rest) = split_hello(payload)?;
            if descriptor.is_some() {
                return Err(FrameError::Malformed("its first answer came with a descriptor".to_owned()));
            }
            // Nobody waits any more: the limit has passed.
            let _ = sender.send((version, rest.to_vec()));
            return Ok(());
        }
        let response: Response = decode(payload)?;
        if descriptor.is_some() != matches!(response.result, Ok(Answer::Allocated { .. })) {
            return Err(FrameError::Malformed("memory comes with a descriptor, and nothing else does".to_owned()));
        }
        let mut state = self.state.lock();
        match state.pending.remove(&response.id) {
            Some(pending) => {
                let _ = pending.sender.send(Arrival { response, descriptor });
                Ok(())
            }
            // What was given up is answered too late, and its end is known.
            None if state.lost.is_some() => Ok(()),
            None => Err(FrameError::Malformed(format!("it answers request {}, which is not in flight", response.id))),
        }
    }
}

/// How a helper whose connection ended came to its end.
#[derive(Clone, Copy)]
enum Gone {
    Ended(Option<ExitStatus>),
    Killed,
    /// In the kernel, where a signal does not reach it.
    Stuck,
}

/// Gives the helper time to end, kills it, and reaps it, in a bounded time.
fn end_process(process: &HostProcess) -> Gone {
    if process.wait(Some(EXIT_WAIT)) {
        return Gone::Ended(process.reap());
    }
    process.kill();
    if process.wait(Some(EXIT_WAIT)) {
        process.reap();
        return Gone::Killed;
    }
    Gone::Stuck
}

impl Gone {
    /// Whether it ended by itself and without complaint.
    fn is_clean(self) -> bool {
        matches!(self, Self::Ended(Some(status)) if status.success())
    }
}

impl State {
    /// What was in flight, for messages.
    fn during(&self) -> String {
        let mut names: Vec<&str> = self.pending.values().map(|pending| pending.name).collect();
        if self.welcome.is_some() {
            names.push("opening the runtime");
        }
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            " while no call was in flight".to_owned()
        } else {
            format!(" during {}", names.join(", "))
        }
    }
}
