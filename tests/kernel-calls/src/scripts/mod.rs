//! What is asked of the kernel driver.
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

/// A list of calls.
#[derive(Debug, Clone, Copy)]
pub struct Script {
    /// Its name.
    pub name: &'static str,
    /// What it looks at.
    pub about: &'static str,
    /// Makes the calls.
    pub run: fn(&mut Probe),
    /// Whether a kernel that is known breaks at it.
    pub breaks: bool,
}

const fn script(name: &'static str, about: &'static str, run: fn(&mut Probe)) -> Script {
    Script { name, about, run, breaks: false }
}

/// A script that is only played when that is asked for.
const fn breaking(name: &'static str, about: &'static str, run: fn(&mut Probe)) -> Script {
    Script { breaks: true, ..script(name, about, run) }
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
