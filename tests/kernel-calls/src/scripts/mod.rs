//! Requests to the kernel driver.
//!
//! A script makes the same calls whatever the answers are, so that the records of two kernels can be laid side by side. What it
//! could not prepare is zero in what follows.

mod bos;
mod chains;
mod commands;
mod contexts;
mod files;
mod heap;
mod mappings;
mod queries;
mod sharing;
mod states;
mod syncobjs;
mod user_memory;
mod waits;

use crate::probe::Probe;
use crate::setup::{Mapped, Setup};

/// A list of calls.
#[derive(Debug, Clone, Copy)]
pub struct Script {
    /// Its name.
    pub name: &'static str,
    /// What it looks at.
    pub about: &'static str,
    calls: Calls,
}

/// The calls of a script, and what has to be prepared for them; without it they are not made.
#[derive(Debug, Clone, Copy)]
enum Calls {
    Plain(fn(&mut Probe)),
    /// Heap, kernel and context.
    WithSetup(fn(&mut Probe, Setup)),
    /// The same, and a command that runs the empty stream.
    WithCommand(fn(&mut Probe, Setup, Mapped)),
}

impl Script {
    /// Makes the calls.
    pub fn run(&self, p: &mut Probe) {
        match self.calls {
            Calls::Plain(calls) => calls(p),
            Calls::WithSetup(calls) => {
                if let Some(setup) = p.setup() {
                    calls(p, setup);
                }
            }
            Calls::WithCommand(calls) => {
                let setup = p.setup();
                let command = setup.as_ref().and_then(|setup| p.command(setup.command()));
                if let (Some(setup), Some(command)) = (setup, command) {
                    calls(p, setup, command);
                }
            }
        }
    }
}

const fn script(name: &'static str, about: &'static str, calls: fn(&mut Probe)) -> Script {
    Script { name, about, calls: Calls::Plain(calls) }
}

const fn with_setup(name: &'static str, about: &'static str, calls: fn(&mut Probe, Setup)) -> Script {
    Script { name, about, calls: Calls::WithSetup(calls) }
}

const fn with_command(name: &'static str, about: &'static str, calls: fn(&mut Probe, Setup, Mapped)) -> Script {
    Script { name, about, calls: Calls::WithCommand(calls) }
}

/// All scripts.
pub fn all() -> impl Iterator<Item = &'static Script> {
    let files = [files::SCRIPTS, bos::SCRIPTS, user_memory::SCRIPTS, mappings::SCRIPTS, heap::SCRIPTS];
    let contexts = [contexts::SCRIPTS, commands::SCRIPTS, chains::SCRIPTS];
    let rest = [waits::SCRIPTS, syncobjs::SCRIPTS, sharing::SCRIPTS, queries::SCRIPTS, states::SCRIPTS];
    files.into_iter().chain(contexts).chain(rest).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let mut names = BTreeSet::new();
        assert!(all().all(|script| names.insert(script.name)));
    }
}
