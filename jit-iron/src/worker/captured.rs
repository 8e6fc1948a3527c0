//! What a compiler prints: kept, and shown while it comes.

use std::sync::Arc;

/// Hears what a compiler prints, as it comes: the kernel's name and the bytes, which may end anywhere. Called by the thread
/// that asked for the kernel.
pub(super) type Listener = dyn Fn(&str, &[u8]) + Send + Sync;

/// It printed more than it may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

/// The output of one compilation.
pub(super) struct Captured<'a> {
    bytes: Vec<u8>,
    limit: usize,
    kernel: &'a str,
    listener: Option<&'a Listener>,
}

impl<'a> Captured<'a> {
    /// Nothing yet, of at most `limit` bytes.
    pub fn new(limit: usize, kernel: &'a str, listener: Option<&'a Listener>) -> Self {
        Self { bytes: Vec::new(), limit, kernel, listener }
    }

    /// Adds what came, as far as it fits.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), TooMuch> {
        let fitting = &bytes[..bytes.len().min(self.limit - self.bytes.len())];
        self.bytes.extend_from_slice(fitting);
        if let Some(listener) = self.listener.filter(|_| !fitting.is_empty()) {
            listener(self.kernel, fitting);
        }
        if fitting.len() < bytes.len() { Err(TooMuch) } else { Ok(()) }
    }

    /// All of it.
    pub fn into_bytes(self) -> Arc<[u8]> {
        self.bytes.into()
    }

    /// The last line that says something, for messages.
    pub fn last_line(&self) -> Option<String> {
        let tail = &self.bytes[self.bytes.len().saturating_sub(4096)..];
        let text = String::from_utf8_lossy(tail);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().take(200).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn all_that_fits_is_kept_and_passed_on() {
        let heard = Mutex::new(Vec::new());
        let heard = Arc::new(heard);
        let sink = Arc::clone(&heard);
        let listener = move |kernel: &str, bytes: &[u8]| sink.lock().unwrap().push((kernel.to_owned(), bytes.to_vec()));
        let mut captured = Captured::new(5, "k", Some(&listener));
        assert_eq!(captured.add(b"abc"), Ok(()));
        assert_eq!(captured.add(b"de"), Ok(()));
        assert_eq!(captured.add(b""), Ok(()));
        assert_eq!(captured.add(b"f"), Err(TooMuch));
        let pieces = [("k".to_owned(), b"abc".to_vec()), ("k".to_owned(), b"de".to_vec())];
        assert_eq!(*heard.lock().unwrap(), pieces);
        assert_eq!(*captured.into_bytes(), *b"abcde");
    }

    #[test]
    fn the_last_line_that_says_something() {
        let mut captured = Captured::new(1 << 20, "k", None);
        assert_eq!(captured.last_line(), None);
        captured.add(b"one\n two \n\n").unwrap();
        assert_eq!(captured.last_line().unwrap(), "two");
        captured.add(&[b'x'; 100_000]).unwrap();
        assert_eq!(captured.last_line().unwrap().len(), 200);
    }
}
