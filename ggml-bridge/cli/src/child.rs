//! A program between whose user and itself this process stands: signals go to it, and its end becomes ours.

use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process, setrlimit, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

/// Those that a terminal sends to everyone in its foreground, so to the program too.
const OF_TERMINALS: [i32; 3] = [SIGINT, SIGQUIT, SIGWINCH];
const OTHERS: [i32; 4] = [SIGHUP, SIGTERM, SIGUSR1, SIGUSR2];

/// A running program.
pub struct Child {
    process: std::process::Child,
    pid: Pid,
    guard: Option<Guard>,
    signals: Handle,
    passing: JoinHandle<()>,
}

/// Whether signals that are passed on to a program do to this process what they do without one.
fn is_default() -> &'static Arc<AtomicBool> {
    static IS_DEFAULT: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    IS_DEFAULT.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in OF_TERMINALS.iter().chain(&OTHERS) {
            // One that cannot be had is not passed on either.
            let _ = register_conditional_default(*signal, Arc::clone(&flag));
        }
        flag
    })
}

impl Child {
    /// Starts it. From before that on, until its end, this process is not ended by the signals that it passes on. One program at a time.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(mut command: Command) -> io::Result<Self> {
        is_default().store(false, Ordering::SeqCst);
        let mut signals = Signals::new(OF_TERMINALS.iter().chain(&OTHERS))?;
        let process = command.spawn()?;
        let pid = Pid::from_child(&process);
        let handle = signals.handle();
        let passing = thread::spawn(move || signals.forever().for_each(|signal| pass(signal, pid)));
        Ok(Self { process, pid, guard: None, signals: handle, passing })
    }

    /// Has it killed when this process ends before it, even if this process is killed; where there is a shell.
    pub fn end_with_this_process(&mut self) {
        self.guard = Guard::of(self.pid).ok();
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        Ok(waitid(WaitId::Pid(self.pid), options)?.is_some())
    }

    /// Ends it, whatever it does.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn kill(self) -> io::Result<ExitStatus> {
        // If it has ended, its end is being waited for.
        let _ = kill_process(self.pid, Signal::KILL);
        self.wait()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        // It stays what its number stands for until no more signals are sent to it.
        while let Err(cause) = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            if cause != rustix::io::Errno::INTR {
                return Err(cause.into());
            }
        }
        self.signals.close();
        drop(self.passing.join());
        is_default().store(true, Ordering::SeqCst);
        // As long as its end is not asked for, no other process has its number.
        drop(self.guard.take());
        self.process.wait()
    }
}

/// A shell that kills a process when this one has ended without a word: a process that is killed ends nothing itself.
struct Guard(std::process::Child);

impl Guard {
    fn of(pid: Pid) -> io::Result<Self> {
        // The end of its input is this process's end, and a line means that there is nothing to kill.
        let watch = "trap '' HUP INT QUIT TERM; read -r _ || kill -KILL \"$0\"";
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", watch, &pid.to_string()]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An error means that it is gone already.
        drop(self.0.stdin.take().map(|mut input| input.write_all(b"\n")));
        drop(self.0.wait());
    }
}

fn pass(signal: i32, pid: Pid) {
    if OF_TERMINALS.contains(&signal) && in_foreground() {
        return;
    }
    // If the program has ended, its end is being waited for.
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether this process and its child are in the foreground of a terminal.
fn in_foreground() -> bool {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may have any character. Behind it: state, parent, group, session, terminal, its foreground group.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(2);
    let group = fields.next();
    group.is_some() && group == fields.nth(2)
}

/// Ends this process as another has ended: by the same signal, or with the code that is returned.
pub fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // What it left in memory is not there to be seen in this one.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        drop(emulate_default_handler(signal));
        // As shells say it, should the signal not end this process.
        return ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX));
    }
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
