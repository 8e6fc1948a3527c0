//! Programs with the limits of an ordinary user: 8 MiB of locked memory, and no capability to lock more.
//!
//! The tests run as whoever starts them, which in containers is root. What root may lock has no limit, so that what ordinary users
//! meet first would never be seen.

use crate::process::{is_superuser, prefixed};
use std::ffi::OsString;
use std::process::Command;

/// What systemd and PAM give users by default.
pub const LOCKABLE_BYTES: u64 = 8 << 20;

/// The same command for an ordinary user. Needs util-linux, which every Debian-like system has.
pub fn command(command: &Command) -> Command {
    let mut line: Vec<OsString> = Vec::new();
    // Others have no capability to give up.
    if is_superuser() {
        line.extend(["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"].map(OsString::from));
    }
    line.extend(["prlimit".into(), format!("--memlock={LOCKABLE_BYTES}:{LOCKABLE_BYTES}").into()]);
    prefixed(line, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_user_can_lock_little() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -l; grep CapEff /proc/self/status; echo $WORD"]).env("WORD", "kept");
        let output = command(&shell).output().expect("setpriv and prlimit of util-linux are installed");
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[2]), ("8192", "kept"), "{text}");
        let set = lines[1].split_whitespace().nth(1).and_then(|set| u64::from_str_radix(set, 16).ok());
        assert_eq!(set.map(|set| set >> 14 & 1), Some(0), "{text}");
    }
}
