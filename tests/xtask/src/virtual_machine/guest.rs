//! A machine that was booted.

use super::command_line::{Files, Share};
use super::control::{Control, Message};
use super::initramfs::{RESULTS_TAG, ROOT_TAG};
use super::logs::{BootFailure, Logs};
use super::machine::{Host, Machine};
use super::server::Process;
use super::{command_line, initramfs, script, server};
use crate::ordinary_user::LOCKABLE_BYTES;
use crate::process::Finished;
use crate::simulation::quoted;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time for a boot on a busy machine.
pub const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// How much later than the guest the host gives up on a command.
const GRACE: Duration = Duration::from_secs(30);
const POWER_OFF_LIMIT: Duration = Duration::from_secs(60);
/// How often output and processes are looked at.
const TICK: Duration = Duration::from_millis(50);
/// By how much the guest's clock may be ahead of ours.
const CLOCKS: Duration = Duration::from_millis(500);
const SIGKILL: i32 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Output,
    Error,
}

/// A machine that was booted, ready for commands. Dropping it ends the machine at once, and so does the end of the thread that
/// booted it.
#[derive(Debug)]
pub struct Guest {
    // QEMU goes before the server it uses.
    qemu: Process,
    server: Process,
    control: Control,
    logs: Logs,
    next: u32,
    /// How long the boot took.
    pub times: Times,
    _sockets: TempDir,
}

/// How long a boot took.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Times {
    /// Until the guest was ready, by its own clock.
    pub guest_seconds: f64,
    /// The same by the host's clock, with starting the device server and QEMU.
    pub boot_seconds: f64,
}

impl Guest {
    /// Boots a machine; the guest is ready when this returns. Whether its driver has taken the NPU, [`Guest::npu`] says.
    ///
    /// Errors with a [`BootFailure`] if it does not come up within `limit`.
    pub fn boot(host: &Host, machine: &Machine, limit: Duration) -> Result<Self> {
        machine.check()?;
        host.parts.kernel(&machine.kernel)?;
        let started = Instant::now();
        let logs = Logs::create(&machine.name())?;
        // A socket's path has to be short.
        let sockets = tempfile::Builder::new().prefix("aie-vm-").tempdir()?;
        let shares = shares(host, &logs)?;
        let initramfs = initramfs::make(&host.parts, machine, &shares, &logs.dir)?;
        let (device, control) = (sockets.path().join("npu.sock"), sockets.path().join("control.sock"));
        let mut serve = server::command(&host.server, &device, machine, &logs);
        logs.record(&mut serve, "server")?;
        serve.stdin(Stdio::null());
        let server = server::start(serve, &device).map_err(|error| BootFailure::new(format!("{error:#}"), &logs))?;
        let listener = Control::listen(&control)?;
        let files = Files {
            image: &host.parts.image(&machine.kernel),
            initramfs: &initramfs,
            console: &logs.console(),
            device: &device,
            control: &control,
        };
        let mut command = host.parts.qemu();
        command.args(command_line::qemu(machine, &files, &shares));
        logs.record(&mut command, "qemu")?;
        if machine.terminal {
            command.stdin(Stdio::inherit()).stdout(Stdio::inherit());
        } else {
            command.stdin(Stdio::null());
        }
        let mut qemu = Process::start(&mut command, "QEMU")?;
        let control = loop {
            if let Some(control) = Control::accept(&listener)? {
                break control;
            }
            if let Some(status) = qemu.ended()? {
                bail!(BootFailure::new(format!("QEMU did not start the machine ({status})"), &logs));
            }
            if started.elapsed() > limit {
                bail!(BootFailure::new("QEMU did not connect to the control port", &logs));
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let times = Times { guest_seconds: 0.0, boot_seconds: 0.0 };
        let mut guest = Self { qemu, server, control, logs, next: 1, times, _sockets: sockets };
        let hundredths = guest.wait_until_ready(started, limit)?;
        // A boot that fails leaves it for inspection.
        fs::remove_file(&initramfs)?;
        guest.times = Times { guest_seconds: hundredths as f64 / 100.0, boot_seconds: started.elapsed().as_secs_f64() };
        Ok(guest)
    }

    fn wait_until_ready(&mut self, started: Instant, limit: Duration) -> Result<u64> {
        let mut stage = "starting the kernel".to_owned();
        loop {
            match self.control.messages.recv_timeout(TICK) {
                Ok(Message::Ready(hundredths)) => return Ok(hundredths),
                Ok(Message::Stage(next)) => stage = next,
                Ok(Message::Failed(reason)) => bail!(self.failure(format!("the guest gave up: {reason}"))),
                Ok(Message::Ended { .. }) => {}
                Err(RecvTimeoutError::Timeout) => self.check_alive(&format!("while {stage}"))?,
                Err(RecvTimeoutError::Disconnected) => bail!(self.went_down(&format!("while {stage}"))),
            }
            if started.elapsed() > limit {
                bail!(self.failure(format!("it was not up after {} s, while {stage}", limit.as_secs())));
            }
        }
    }

    /// The folder with the logs of this boot.
    pub fn logs(&self) -> &Path {
        &self.logs.dir
    }

    /// A folder that both sides can write to, at the same path.
    pub fn shared_folder(&self) -> PathBuf {
        self.logs.share()
    }

    /// Runs a command in the guest to its end, at most for `limit`, with nothing on standard input.
    ///
    /// The command's words, settings and working directory count; paths in them are the guest's, in which the checkout, the
    /// testbed and [`Guest::shared_folder`] are where the host has them. An exit code above 128 is taken for a signal, as
    /// shells write it. A program that fails is no error; an error is a [`BootFailure`]: the machine went down or hangs.
    pub fn run(&mut self, command: &Command, limit: Duration) -> Result<Finished> {
        self.run_watched(command, limit, |_, _| ())
    }

    /// The same as an ordinary user, whom the distribution's rules let use NPUs, and who may lock 8 MiB of memory.
    pub fn run_as_user(&mut self, command: &Command, limit: Duration) -> Result<Finished> {
        let user = "grep -q '^owner:' /etc/passwd || echo 'owner:x:1000:1000::/tmp:/bin/sh' >>/etc/passwd";
        let script = quoted(&script::of(command));
        let text = format!(
            "{user}\nchmod 666 /dev/accel/accel*\nchmod 1777 /tmp\nulimit -l {} || exit 126\n\
             exec su -s /bin/sh owner -c {script}\n",
            LOCKABLE_BYTES / 1024
        );
        self.execute(&text, limit, |_, _| ())
    }

    /// The same as [`Guest::run`]; `on_output` sees what the program prints as it arrives.
    pub fn run_watched(
        &mut self,
        command: &Command,
        limit: Duration,
        on_output: impl FnMut(Stream, &[u8]),
    ) -> Result<Finished> {
        self.execute(&script::of(command), limit, on_output)
    }

    /// Runs a script for the guest's shell (busybox). What it starts in the background and leaves behind continues.
    pub fn script(&mut self, text: &str, limit: Duration) -> Result<Finished> {
        self.execute(text, limit, |_, _| ())
    }

    fn execute(&mut self, script: &str, limit: Duration, mut on_output: impl FnMut(Stream, &[u8])) -> Result<Finished> {
        let number = self.next;
        self.next += 1;
        let file = |ending: &str| self.logs.share().join(format!("{number}.{ending}"));
        fs::write(file("sh"), script)?;
        let mut outputs = [Stream::Output, Stream::Error]
            .map(|stream| Follower::new(file(if stream == Stream::Output { "out" } else { "err" }), stream));
        let started = Instant::now();
        let seconds = limit.as_secs().max(1);
        self.send(&format!("run {number} {seconds}"))?;
        let code = loop {
            let message = self.control.messages.recv_timeout(TICK);
            for output in &mut outputs {
                output.follow(&mut on_output)?;
            }
            match message {
                Ok(Message::Ended { number: ended, code }) if ended == number => break code,
                Ok(Message::Failed(reason)) => bail!(self.failure(format!("the guest gave up: {reason}"))),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => self.check_alive("while it ran a program")?,
                Err(RecvTimeoutError::Disconnected) => bail!(self.went_down("while it ran a program")),
            }
            if started.elapsed() > limit + GRACE {
                bail!(self.failure(format!(
                    "a program had {} s and the guest did not stop it {} s later: it hangs",
                    limit.as_secs(),
                    GRACE.as_secs()
                )));
            }
        };
        let elapsed = started.elapsed();
        let [stdout, stderr] = outputs.map(Follower::into_text);
        Ok(Finished {
            status: status(code),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            elapsed,
            timed_out: code == 128 + SIGKILL && elapsed + CLOCKS >= Duration::from_secs(seconds),
            // The guest does not say.
            peak_resident: 0,
        })
    }

    /// Gives the caller's terminal a prompt in the guest, until its shell ends. The machine has to be one with a terminal.
    pub fn shell(&mut self, rows: u16, columns: u16, terminal: &str, limit: Option<Duration>) -> Result<i32> {
        self.send(&format!("shell {rows} {columns} {terminal}"))?;
        let started = Instant::now();
        loop {
            match self.control.messages.recv_timeout(TICK) {
                Ok(Message::Ended { number: 0, code }) => return Ok(code),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => self.check_alive("while its shell was used")?,
                Err(RecvTimeoutError::Disconnected) => bail!(self.went_down("while its shell was used")),
            }
            if let Some(limit) = limit.filter(|limit| started.elapsed() > *limit) {
                bail!(self.failure(format!("its shell was still used after {} s: the time limit", limit.as_secs())));
            }
        }
    }

    /// The NPU, as the driver shows it. Errors with what the driver said if there is none.
    pub fn npu(&mut self) -> Result<FoundNpu> {
        let finished = self.script(FoundNpu::SCRIPT, GRACE)?;
        if !finished.success() {
            let said = self.script("dmesg | grep -i -e xdna -e 00:05.0 -e iommu -e dmar | tail -n 20", GRACE)?;
            bail!(
                "the guest's kernel has no NPU: its driver did not bind to the PCI device. The kernel's messages about it:\n{}\n\
                 complete logs: {}",
                said.stdout.trim_end(),
                self.logs.dir.display()
            );
        }
        FoundNpu::parse(&finished.stdout)
    }

    /// Powers the machine off and waits for its end; returns the folder with its logs. Errors if it does not end, or the device
    /// server ends badly.
    pub fn power_off(mut self) -> Result<PathBuf> {
        self.send("off")?;
        if let Err(error) = self.qemu.wait(POWER_OFF_LIMIT) {
            bail!(self.failure(format!("after the request to power off: {error:#}")));
        }
        let status = self.server.wait(GRACE).map_err(|error| self.failure(format!("it is off, but {error:#}")))?;
        if !status.success() {
            bail!(self.failure(format!("it is off, but its device server ended with {status}")));
        }
        Ok(self.logs.dir.to_path_buf())
    }

    fn send(&mut self, line: &str) -> Result<()> {
        self.control.say(line).map_err(|error| self.failure(format!("{error:#}")).into())
    }

    /// Errors if QEMU or the device server have ended.
    fn check_alive(&mut self, when: &str) -> Result<()> {
        match (self.qemu.ended()?, self.server.ended()?) {
            (None, None) => Ok(()),
            (None, Some(status)) => bail!(self.failure(format!("the device server ended {when} ({status})"))),
            (Some(_), _) => bail!(self.went_down(when)),
        }
    }

    /// The failure of a machine whose QEMU has ended, or is about to.
    fn went_down(&mut self, when: &str) -> BootFailure {
        let end = self.qemu.wait(Duration::from_secs(5));
        let end = end.map_or_else(|error| format!("{error:#}"), |status| format!("QEMU: {status}"));
        self.failure(format!("it went down {when} ({end})"))
    }

    fn failure(&self, reason: impl Into<String>) -> BootFailure {
        BootFailure::new(reason, &self.logs)
    }
}

/// What the guest sees of the host: its root, the checkout with what was built, and a folder for results.
fn shares(host: &Host, logs: &Logs) -> Result<Vec<Share>> {
    let share = |tag: &str, folder: PathBuf, writable| Share { tag: tag.to_owned(), folder, writable };
    let mut shares = vec![share(ROOT_TAG, host.testbed.root(), false)];
    for (index, folder) in host.shares()?.into_iter().enumerate() {
        shares.push(share(&format!("host{index}"), folder, false));
    }
    // After the checkout, in which it is.
    shares.push(share(RESULTS_TAG, logs.share(), true));
    Ok(shares)
}

/// An exit code of the guest's shell as the end of a program.
fn status(code: i32) -> ExitStatus {
    // The kernel's form: a signal, or an exit code one byte further up.
    ExitStatus::from_raw(if (129..=128 + 64).contains(&code) { code - 128 } else { (code & 0xff) << 8 })
}

/// Reads a file that grows.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    stream: Stream,
    file: Option<File>,
    text: Vec<u8>,
}

impl Follower {
    /// The file need not be there yet.
    pub fn new(path: PathBuf, stream: Stream) -> Self {
        Self { path, stream, file: None, text: Vec::new() }
    }

    /// Takes what was added since the last time; a file that is not there yet has nothing.
    pub fn follow(&mut self, on_output: &mut impl FnMut(Stream, &[u8])) -> Result<()> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let before = self.text.len();
        file.read_to_end(&mut self.text).with_context(|| format!("cannot read {}", self.path.display()))?;
        if self.text.len() > before {
            on_output(self.stream, &self.text[before..]);
        }
        Ok(())
    }

    pub fn into_text(self) -> Vec<u8> {
        self.text
    }
}

/// The NPU as the guest's kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundNpu {
    pub name: String,
    /// PCI vendor, device and revision.
    pub pci: String,
    pub firmware: String,
    pub kernel: String,
}

impl FoundNpu {
    /// Prints the driver's files as lines `NAME=VALUE`, in the guest; exit code 1 if there is no NPU.
    pub const SCRIPT: &str = "cd /sys/class/accel/accel0/device || exit 1\n\
                              for name in vendor device revision vbnv fw_version; do echo \"$name=$(cat $name)\"; done\n\
                              echo \"kernel=$(uname -r)\"\n";

    pub fn parse(text: &str) -> Result<Self> {
        let values: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
        let value = |name: &str| {
            let value = values.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
            value.with_context(|| format!("the guest's kernel shows an NPU without {name}: {text:?}"))
        };
        let number = |name: &str| value(name).map(|value| value.trim_start_matches("0x"));
        Ok(Self {
            name: value("vbnv")?.to_owned(),
            pci: format!("{}:{} revision {}", number("vendor")?, number("device")?, number("revision")?),
            firmware: value("fw_version")?.to_owned(),
            kernel: value("kernel")?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn codes_above_128_are_signals() {
        assert_eq!(status(3).code(), Some(3));
        assert_eq!((status(139).code(), status(139).signal()), (None, Some(11)));
        assert_eq!(status(255).code(), Some(255));
        assert!(status(0).success());
    }

    #[test]
    fn a_growing_file_is_read_piece_by_piece() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.out");
        let mut follower = Follower::new(path.clone(), Stream::Output);
        let mut seen = Vec::new();
        for text in ["", "a", "ab", "ab"] {
            if !text.is_empty() {
                fs::write(&path, text).unwrap();
            }
            follower.follow(&mut |_, bytes| seen.push(String::from_utf8_lossy(bytes).into_owned())).unwrap();
        }
        assert_eq!(seen, ["a", "b"]);
        assert_eq!(follower.text, b"ab");
    }

    #[test]
    fn an_npu_is_read_from_the_driver_s_files() {
        let text = "vendor=0x1022\ndevice=0x17f0\nrevision=0x10\nvbnv=NPU Strix\nfw_version=1.2.3.4\nkernel=7.2.13\n";
        let npu = FoundNpu::parse(text).unwrap();
        assert_eq!((npu.name.as_str(), npu.pci.as_str()), ("NPU Strix", "1022:17f0 revision 10"));
        let error = FoundNpu::parse("vendor=0x1022\nvbnv=\n").unwrap_err().to_string();
        assert!(error.contains("without vbnv"), "{error}");
    }
}
