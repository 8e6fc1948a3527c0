//! Progress while a graph waits for kernels, on a terminal: a first run may compile for minutes.
//!
//! It appears when something has been waited for noticeably long, so that a run whose kernels are cached shows nothing, and is wiped
//! before the program goes on.

use parking_lot::{Condvar, Mutex};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// When it appears, and how often it is renewed.
const INTERVAL: Duration = Duration::from_millis(500);

/// The waiting of a graph.
struct Waiting {
    since: Instant,
    /// When the kernel that is waited for now was asked for.
    asked: Instant,
    compiled: usize,
    /// What is being looked for or compiled.
    operation: String,
    shown: bool,
}

struct State {
    terminal: Mutex<Box<dyn Write + Send>>,
    /// `None` while no graph waits.
    waiting: Mutex<Option<Waiting>>,
    ended: Condvar,
}

/// Shows what a device's graphs wait for. Thread-safe.
pub struct Progress {
    /// `None` where no one looks.
    state: Option<Arc<State>>,
}

impl Progress {
    /// On standard error, if that is a terminal.
    pub fn on_standard_error() -> Self {
        Self { state: io::stderr().is_terminal().then(|| State::on(io::stderr())) }
    }

    /// A graph gets its kernels now.
    pub fn begin(&self) {
        let Some(state) = &self.state else { return };
        let since = Instant::now();
        *state.waiting.lock() =
            Some(Waiting { since, asked: since, compiled: 0, operation: String::new(), shown: false });
        let state = Arc::clone(state);
        // Without a thread there is no progress to see, and the rest goes on.
        drop(thread::Builder::new().name("ggml-hsa-progress".into()).spawn(move || state.show(since)));
    }

    /// It waits for a kernel of `operation`.
    pub fn wait_for(&self, operation: &str) {
        let Some(state) = &self.state else { return };
        if let Some(waiting) = &mut *state.waiting.lock() {
            operation.clone_into(&mut waiting.operation);
            waiting.asked = Instant::now();
        }
    }

    /// A kernel was compiled.
    pub fn compiled(&self) {
        let Some(state) = &self.state else { return };
        if let Some(waiting) = &mut *state.waiting.lock() {
            waiting.compiled += 1;
        }
    }

    /// The graph has its kernels. Nothing is written any more after this.
    pub fn end(&self) {
        let Some(state) = &self.state else { return };
        if let Some(Waiting { shown: true, .. }) = state.waiting.lock().take() {
            state.line("");
        }
        state.ended.notify_all();
    }
}

impl State {
    fn on(terminal: impl Write + Send + 'static) -> Arc<Self> {
        Arc::new(Self { terminal: Mutex::new(Box::new(terminal)), waiting: Mutex::default(), ended: Condvar::new() })
    }

    /// Shows the waiting that began at `since` until it ends. It stays locked while a line is written.
    fn show(&self, since: Instant) {
        let mut waiting = self.waiting.lock();
        while let Some(now) = waiting.as_mut().filter(|now| now.since == since) {
            let past = since.elapsed();
            // Many kernels from the cache take their time too, and are no reason to say anything.
            if past >= INTERVAL && (now.compiled > 0 || now.asked.elapsed() >= INTERVAL) {
                now.shown = true;
                let kernels = if now.compiled == 1 { "kernel" } else { "kernels" };
                let (compiled, operation) = (now.compiled, &now.operation);
                self.line(&format!("ggml-hsa: {compiled} {kernels} compiled, {} s; now {operation}", past.as_secs()));
            }
            self.ended.wait_for(&mut waiting, INTERVAL);
        }
    }

    /// Replaces the line. There is no one to tell when the terminal is gone.
    fn line(&self, text: &str) {
        let mut terminal = self.terminal.lock();
        drop(write!(terminal, "\r\x1b[K{text}").and_then(|()| terminal.flush()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal that keeps what is written.
    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Screen {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().clone()).unwrap()
        }
    }

    fn progress() -> (Progress, Screen) {
        let screen = Screen::default();
        (Progress { state: Some(State::on(screen.clone())) }, screen)
    }

    #[test]
    fn a_long_waiting_is_shown_and_wiped() {
        let (progress, screen) = progress();
        progress.begin();
        progress.wait_for("ADD");
        progress.compiled();
        progress.wait_for("MUL_MAT");
        let deadline = Instant::now() + Duration::from_secs(60);
        while screen.text().is_empty() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        progress.end();
        let text = screen.text();
        assert!(text.starts_with("\r\x1b[Kggml-hsa: 1 kernel compiled, 0 s; now MUL_MAT"), "{text:?}");
        assert!(text.ends_with("\r\x1b[K"), "{text:?}");
        thread::sleep(2 * INTERVAL);
        assert_eq!(screen.text(), text, "written after the end");
    }

    #[test]
    fn a_short_waiting_shows_nothing() {
        let (progress, screen) = progress();
        for _ in 0..2 {
            progress.begin();
            progress.wait_for("ADD");
            progress.compiled();
            progress.end();
        }
        // Outside of a graph, as when a run is planned only.
        progress.wait_for("ADD");
        progress.compiled();
        thread::sleep(3 * INTERVAL);
        assert_eq!(screen.text(), "");
    }

    #[test]
    fn kernels_of_the_cache_show_nothing() {
        let (progress, screen) = progress();
        progress.begin();
        let deadline = Instant::now() + 3 * INTERVAL;
        while Instant::now() < deadline {
            progress.wait_for("ADD");
            thread::sleep(INTERVAL / 100);
        }
        progress.end();
        assert_eq!(screen.text(), "");
    }

    #[test]
    fn without_a_terminal_nothing_is_shown() {
        let progress = Progress { state: None };
        progress.begin();
        progress.wait_for("ADD");
        progress.compiled();
        progress.end();
    }
}
