//! What firmware can do wrong, each in a machine of its own: our side gives an error with its cause, nothing hangs, and the next
//! program works where the kernel driver recovers.

use super::{Checks, STRESS, failed_by_itself};
use crate::virtual_machine::{Guest, Machine, script};
use anyhow::{Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A machine with a fault, and what has to come of it.
struct Fault {
    what: &'static str,
    options: &'static [&'static str],
    /// What the error says; `None` when the load has to go well.
    error: Option<&'static str>,
    kernel: Option<&'static str>,
    /// Whether the next program works.
    recovers: bool,
    in_ci: bool,
}

const FAULTS: [Fault; 5] = [
    Fault {
        what: "a command with an error status",
        options: &["--faults", "status=0x1000006@30"],
        error: Some("the kernel driver ended the chain as `error`"),
        kernel: None,
        recovers: true,
        in_ci: false,
    },
    Fault {
        what: "a command that never ends",
        options: &["--faults", "timeout@30"],
        error: Some("the kernel driver ended the chain as `timeout`"),
        kernel: Some("aie2_tdr_detect"),
        recovers: true,
        in_ci: true,
    },
    Fault {
        what: "an asynchronous error",
        options: &["--faults", "async@30"],
        error: None,
        kernel: Some("event ID 59"),
        recovers: true,
        in_ci: false,
    },
    Fault {
        what: "firmware that stops",
        options: &["--faults", "lost@30"],
        error: Some("the kernel driver ended the chain as"),
        kernel: Some("Create hwctx failed"),
        recovers: false,
        in_ci: false,
    },
    Fault {
        what: "no context left",
        options: &["--faults", "CREATE_CONTEXT@2-99=0x2000003"],
        error: Some("firmware makes no context any more"),
        kernel: Some("create context failed"),
        recovers: false,
        in_ci: false,
    },
];

impl Checks {
    pub(super) fn faults(&mut self, machine: &Machine) -> Result<()> {
        let is_ci = self.is_ci;
        for fault in FAULTS.iter().filter(|fault| fault.in_ci || !is_ci) {
            let mut machine = machine.clone();
            machine.device_options.extend(fault.options.iter().map(|word| (*word).to_owned()));
            let mut guest = self.boot(&machine)?;
            self.part(&machine, fault.what, |checks| checks.fault(&mut guest, fault))?;
            guest.power_off()?;
        }
        if !self.is_ci {
            let mut machine = machine.clone();
            machine.device_options.extend(["--contexts", "1"].map(str::to_owned));
            let mut guest = self.boot(&machine)?;
            self.part(&machine, "all contexts held by another process", |checks| checks.held(&mut guest))?;
            guest.power_off()?;
        }
        Ok(())
    }

    fn fault(&mut self, guest: &mut Guest, fault: &Fault) -> Result<String> {
        let load = self.load(&["dispatches", "--dispatches", "2000"]);
        let finished = guest.run(&load, LIMIT)?;
        let mut seen = match fault.error {
            Some(expected) => {
                let words = failed_by_itself(&finished)?;
                ensure!(words.contains(expected), "its output lacks \"{expected}\":\n{words}");
                expected.to_owned()
            }
            None => {
                finished.ensure(STRESS)?;
                "2,000 dispatches".to_owned()
            }
        };
        if let Some(expected) = fault.kernel {
            let said = guest.script("dmesg", LIMIT)?.stdout;
            ensure!(said.contains(expected), "the kernel's log lacks \"{expected}\"");
            seen += &format!("; kernel: {expected}");
        }
        let next = guest.run(&load, LIMIT)?;
        if fault.recovers {
            next.ensure(STRESS)?;
            seen += "; the next program works";
        } else {
            failed_by_itself(&next)?;
            seen += "; the next program ends with an error";
        }
        Ok(seen)
    }

    /// One process holds the only context; another gets an error that says so, and works when the first has ended.
    fn held(&mut self, guest: &mut Guest) -> Result<String> {
        let holder = script::of(&self.load(&["queues", "--seconds", "12"]));
        let other = script::of(&self.load(&["dispatches", "--dispatches", "2000"]));
        let text = format!(
            "({holder}) >/tmp/holder 2>&1 & holder=$!\nsleep 3\n({other})\ncode=$?\nwait $holder\nexit $code\n"
        );
        let finished = guest.script(&text, LIMIT)?;
        let words = failed_by_itself(&finished)?;
        let expected = "another program holds the NPU";
        ensure!(words.contains(expected), "its output lacks \"{expected}\":\n{words}");
        self.works(guest)?;
        Ok(format!("{expected}; it works when that has ended"))
    }
}
