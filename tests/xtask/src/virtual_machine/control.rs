//! What host and guest say to each other through the control port: lines of words.
//!
//! The host sends `run NUMBER SECONDS`, `shell ROWS COLUMNS TERM` and `off`. The guest's answers are below. That the port
//! closes means to the guest that the host is gone, and it powers off.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// What it does now, on its way up.
    Stage(String),
    /// It is up and waits for commands; so long it took, in hundredths of a second of its own clock.
    Ready(u64),
    /// A command ended with this exit code.
    Ended {
        number: u32,
        /// Its exit code, as a shell has it.
        code: i32,
    },
    Failed(String),
}

impl Message {
    /// Reads a line; `None` if it is none of ours.
    pub fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.trim().split_once(' ')?;
        let rest = rest.trim();
        match word {
            "stage" => Some(Self::Stage(rest.to_owned())),
            "failed" => Some(Self::Failed(rest.to_owned())),
            "ready" => {
                let (seconds, hundredths) = rest.split_once('.')?;
                Some(Self::Ready(seconds.parse::<u64>().ok()?.checked_mul(100)? + hundredths.parse::<u64>().ok()?))
            }
            "ended" => {
                let (number, code) = rest.split_once(' ')?;
                Some(Self::Ended { number: number.parse().ok()?, code: code.parse().ok()? })
            }
            _ => None,
        }
    }
}

/// Our end of the control port.
#[derive(Debug)]
pub struct Control {
    stream: UnixStream,
    /// What the guest says, in order; disconnected when QEMU has ended.
    pub messages: Receiver<Message>,
}

impl Control {
    /// Listens where QEMU will connect.
    pub fn listen(socket: &Path) -> Result<UnixListener> {
        let listener = UnixListener::bind(socket).with_context(|| format!("cannot listen on {}", socket.display()))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// The port if QEMU has connected.
    pub fn accept(listener: &UnixListener) -> Result<Option<Self>> {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                let (sender, messages) = mpsc::channel();
                let reader = BufReader::new(stream.try_clone()?);
                // Ends when QEMU does.
                std::thread::spawn(move || {
                    for line in reader.lines().map_while(Result::ok) {
                        let Some(message) = Message::parse(&line) else { continue };
                        if sender.send(message).is_err() {
                            break;
                        }
                    }
                });
                Ok(Some(Self { stream, messages }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("QEMU cannot connect to the control port"),
        }
    }

    pub fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.stream, "{line}").context("cannot send commands to the guest: QEMU has closed the control port")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_s_lines_are_read() {
        assert_eq!(Message::parse("ready 4.07\n"), Some(Message::Ready(407)));
        assert_eq!(Message::parse("ended 3 139"), Some(Message::Ended { number: 3, code: 139 }));
        assert_eq!(Message::parse("stage loads amdxdna"), Some(Message::Stage("loads amdxdna".into())));
        assert_eq!(Message::parse("failed cannot mount root"), Some(Message::Failed("cannot mount root".into())));
    }

    #[test]
    fn other_lines_are_none() {
        for line in ["", "ready", "ready soon", "ended x 0", "ended 3", "what is this"] {
            assert_eq!(Message::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_port_passes_lines_both_ways() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = Control::listen(&socket).unwrap();
        assert!(Control::accept(&listener).unwrap().is_none());
        let mut guest = UnixStream::connect(&socket).unwrap();
        let mut control = Control::accept(&listener).unwrap().unwrap();
        control.say("run 1 60").unwrap();
        let mut line = String::new();
        BufReader::new(guest.try_clone().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "run 1 60\n");
        writeln!(guest, "noise\nready 1.00").unwrap();
        assert_eq!(control.messages.recv().unwrap(), Message::Ready(100));
    }
}
