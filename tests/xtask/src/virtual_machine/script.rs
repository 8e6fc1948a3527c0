//! A command of the host as a script for the guest's shell.

use crate::simulation::quoted;
use std::ffi::OsStr;
use std::process::Command;

/// The script that runs a command in place of the shell, with the settings it was given.
///
/// What the caller's environment holds is not passed on, since the guest is another machine.
pub fn of(command: &Command) -> String {
    let quoted = |word: &OsStr| quoted(&word.to_string_lossy());
    let mut text = String::new();
    if let Some(folder) = command.get_current_dir() {
        text += &format!("cd {} || exit 126\n", quoted(folder.as_os_str()));
    }
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            text += &format!("export {}={}\n", name.to_string_lossy(), quoted(value));
        }
    }
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    text + "exec " + &words.map(quoted).collect::<Vec<_>>().join(" ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_does_what_the_command_does() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo \"$X $1 $(pwd)\"; exit 3", "sh", "it's"]).env("X", "$HOME").current_dir("/usr");
        command.env_remove("LD_PRELOAD");
        let output = Command::new("sh").args(["-c", &of(&command)]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "$HOME it's /usr\n");
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let mut command = Command::new("true");
        command.current_dir("/nowhere");
        assert_eq!(Command::new("sh").args(["-c", &of(&command)]).output().unwrap().status.code(), Some(126));
    }
}
