//! A server program of others on loopback, started for a check and ended with it.

use crate::process;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(30);

/// The server; ended when dropped.
pub struct Server {
    name: String,
    child: Child,
    log: PathBuf,
    pub port: u16,
}

/// A port that is free now; most servers cannot choose one on their own.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

impl Server {
    /// Starts `command`, which listens on `port`, with its output in a file in `dir`.
    pub fn start(name: &str, mut command: Command, port: u16, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let mut server = Self { name: name.to_owned(), child, log, port };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            self.check_alive()?;
            if started.elapsed() > START_LIMIT {
                let (name, limit) = (&self.name, START_LIMIT.as_secs());
                bail!("{name} did not listen within {limit} s; its output:\n{}", self.said());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Errors with its output if it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended by itself ({status}); its output:\n{}", self.name, self.said());
        }
        Ok(())
    }

    /// What it has printed so far.
    pub fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        process::meaningful(&String::from_utf8_lossy(&text)).collect::<Vec<_>>().join("\n")
    }

    /// Ends it as Ctrl-C does, so that what is written at exit is written.
    pub fn interrupt(mut self) -> Result<ExitStatus> {
        let mut kill = Command::new("kill");
        process::run_helper(kill.args(["-s", "INT", &self.child.id().to_string()]), END_LIMIT)?;
        let started = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(status),
                None if started.elapsed() > END_LIMIT => {
                    bail!(
                        "{} did not end within {} s after SIGINT; its output:\n{}",
                        self.name,
                        END_LIMIT.as_secs(),
                        self.said()
                    )
                }
                None => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_at_once_is_reported_with_its_output() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no model; exit 3"]);
        let error = Server::start("server", command, free_port().unwrap(), dir.path()).err().unwrap().to_string();
        assert!(error.contains("exit status: 3") && error.contains("no model"), "{error}");
    }
}
