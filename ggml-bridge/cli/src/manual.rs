//! Man pages and shell completions of the programs, made from their command lines.

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use std::fs;
use std::io;
use std::path::Path;

/// Writes the man pages of a program and of its commands to `man1` in `folder`, and its completions to one folder per shell.
///
/// # Errors
/// What cannot be written.
pub fn write(program: &mut Command, folder: &Path) -> io::Result<()> {
    let pages = folder.join("man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(program.clone(), &pages)?;
    let name = program.get_name().to_owned();
    for shell in Shell::value_variants().iter().filter(|shell| is_for_linux(**shell)) {
        let completions = folder.join(shell.to_string());
        fs::create_dir_all(&completions)?;
        clap_complete::generate_to(*shell, program, &name, &completions)?;
    }
    Ok(())
}

fn is_for_linux(shell: Shell) -> bool {
    matches!(shell, Shell::Bash | Shell::Zsh | Shell::Fish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completion() {
        let folder = tempfile::tempdir().unwrap();
        let command = Command::new("tool").about("does it").subcommand(Command::new("part").about("does a part"));
        write(&mut command.clone(), folder.path()).unwrap();
        for (file, words) in [
            ("man1/tool.1", "does it"),
            ("man1/tool-part.1", "does a part"),
            ("bash/tool.bash", "part"),
            ("zsh/_tool", "part"),
            ("fish/tool.fish", "part"),
        ] {
            let text = fs::read_to_string(folder.path().join(file)).unwrap();
            assert!(text.contains(words), "{file}: {text}");
        }
    }
}
