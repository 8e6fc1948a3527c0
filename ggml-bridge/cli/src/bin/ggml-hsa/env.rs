//! `ggml-hsa env`: prints the variables with which programs of llama.cpp load the library.

use crate::Ended;
use crate::surroundings::Choice;
use clap::{Args, ValueEnum};
use ggml_hsa_cli::output::{say, show};
use serde_json::{Map, Value};
use std::process::ExitCode;

/// Print the variables with which stock programs of llama.cpp use the NPU, for a shell or as JSON
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  eval \"$(ggml-hsa env)\"                          bash, zsh and other POSIX shells
  ggml-hsa env --shell fish | source              fish
  eval \"$(ggml-hsa env --device mock:aie2p)\"      a simulated NPU
  ggml-hsa env --json                             an object of names and values
  ggml-hsa env --shell plain > npu.env            for `docker run --env-file`, systemd's EnvironmentFile=

GGML_BACKEND_PATH is read by every program that calls ggml_backend_load_all(), as those of llama.cpp do when they are built with
GGML_BACKEND_DL. It names one file: a second backend of this kind cannot be loaded beside it. A program that loads backends
itself is given that file: ggml_backend_load(path).

Exit code: 0; 2 when the library is not found or the command line cannot be used.")]
pub struct EnvArguments {
    #[command(flatten)]
    choice: Choice,
    /// The shell that is to read it
    #[arg(long, value_enum, default_value_t = Shell::Sh, conflicts_with = "json")]
    shell: Shell,
    /// Print a JSON object of names and values
    #[arg(long)]
    json: bool,
}

/// How assignments are written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    /// bash, zsh, dash and other POSIX shells
    #[value(aliases = ["bash", "zsh", "dash"])]
    Sh,
    Fish,
    /// csh and tcsh
    #[value(alias = "tcsh")]
    Csh,
    /// NAME=VALUE, without quotes
    Plain,
}

impl Shell {
    /// The line that sets `name` for programs that the shell starts.
    fn assignment(self, name: &str, value: &str) -> String {
        match self {
            Self::Sh => format!("export {name}='{}'", value.replace('\'', r"'\''")),
            Self::Fish => format!("set -gx {name} '{}'", value.replace('\\', r"\\").replace('\'', r"\'")),
            // `!` is history's even in quotes.
            Self::Csh => format!("setenv {name} '{}'", value.replace('\'', r"'\''").replace('!', r"\!")),
            Self::Plain => format!("{name}={value}"),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &EnvArguments) -> Ended {
    let mut texts = Vec::new();
    for (name, value) in arguments.choice.variables()? {
        let text = value.into_string().ok().filter(|text| !text.contains('\n')).ok_or_else(|| {
            format!("the path for {name} is no text of one line; use `ggml-hsa run`, or move the library")
        })?;
        texts.push((name, text));
    }
    let object: Map<_, _> = texts.iter().map(|(name, text)| ((*name).to_owned(), Value::from(&**text))).collect();
    show(arguments.json, &object, |_| {
        texts.iter().for_each(|(name, text)| say(&arguments.shell.assignment(name, text)));
    });
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::Shell;
    use rstest::rstest;

    #[rstest]
    #[case(Shell::Sh, r"export A='it'\''s\n'")]
    #[case(Shell::Fish, r"set -gx A 'it\'s\\n'")]
    #[case(Shell::Csh, r"setenv A 'it'\''s\n'")]
    #[case(Shell::Plain, r"A=it's\n")]
    fn quotes_are_the_shells(#[case] shell: Shell, #[case] expected: &str) {
        assert_eq!(shell.assignment("A", r"it's\n"), expected);
    }
}
