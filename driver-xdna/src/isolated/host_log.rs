//! What the helper writes: passed on to this process's standard error, with its end kept for messages. A pipe rather than
//! the standard error itself, because a runtime says in its last words why it aborts, and llama.cpp should say it too.

use super::quiet_thread;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{PipeReader, Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// How much of the end is kept, in bytes.
const KEPT: usize = 4096;
/// How many lines of it a message quotes.
const QUOTED_LINES: usize = 3;
/// How long the end of the output is waited for after the end of the process.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// The output of one helper.
#[derive(Debug)]
pub(super) struct HostLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    tail: VecDeque<u8>,
    ended: bool,
}

impl HostLog {
    /// Follows `output` in a thread that lives until every writer is gone.
    pub fn follow(mut output: PipeReader) -> std::io::Result<Self> {
        let log = Self(Arc::new(Shared { state: Mutex::default(), ended: Condvar::new() }));
        let shared = Arc::clone(&log.0);
        quiet_thread::spawn("aie-host-log", move || {
            let mut bytes = [0; 1024];
            loop {
                match output.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(count) => shared.take(&bytes[..count]),
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            shared.state.lock().ended = true;
            shared.ended.notify_all();
        })?;
        Ok(log)
    }

    /// The log of a process that nobody listens to.
    pub fn silent() -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State { ended: true, ..State::default() }), ended: Condvar::new() }))
    }

    /// Waits until all that was written has arrived, for a short time: a stray process may hold the other end.
    pub fn drain(&self) {
        self.0.ended.wait_while_for(&mut self.0.state.lock(), |state| !state.ended, DRAIN_LIMIT);
    }

    /// The last lines, joined to one; none when it said nothing.
    pub fn last_words(&self) -> Option<String> {
        let text = {
            let state = self.0.state.lock();
            String::from_utf8_lossy(&state.tail.iter().copied().collect::<Vec<_>>()).into_owned()
        };
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let quoted = lines[lines.len().saturating_sub(QUOTED_LINES)..].join(" | ");
        (!quoted.is_empty()).then_some(quoted)
    }
}

impl Shared {
    fn take(&self, bytes: &[u8]) {
        // Nowhere to report a closed standard error to.
        let _ = std::io::stderr().write_all(bytes);
        let mut state = self.state.lock();
        state.tail.extend(bytes);
        let excess = state.tail.len().saturating_sub(KEPT);
        state.tail.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(text: &[u8]) -> HostLog {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let log = HostLog::follow(reader).unwrap();
        writer.write_all(text).unwrap();
        drop(writer);
        log.drain();
        log
    }

    #[test]
    fn the_last_lines_are_quoted() {
        assert_eq!(log_of(b"one\ntwo\n\nthree\n  four").last_words().as_deref(), Some("two | three | four"));
        assert_eq!(log_of(b" \n\n").last_words(), None);
        assert_eq!(HostLog::silent().last_words(), None);
    }

    #[test]
    fn a_flood_is_forgotten_but_for_its_end() {
        let flood: Vec<u8> = (0..2000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let log = log_of(&flood);
        assert!(log.0.state.lock().tail.len() <= KEPT);
        assert_eq!(log.last_words().as_deref(), Some("line 1997 | line 1998 | line 1999"));
    }
}
