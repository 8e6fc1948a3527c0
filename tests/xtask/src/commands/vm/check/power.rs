//! The driver comes and goes: runtime suspend, another hand that takes the driver from the NPU, the module unloaded.

use super::{Checks, failed_by_itself};
use crate::virtual_machine::{CARVEOUT, Guest, Iommu, Machine, NPU_ADDRESS, module_parameters, script};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// The driver suspends an NPU that does nothing for this long (`amdxdna_pm.c`).
const IDLE: Duration = Duration::from_secs(5);
/// Linux 7.2.13: `drm_managed_release` has run `amdxdna_carveout_fini` when the last mapping of a BO goes, and `amdxdna_cbuf_release`
/// takes a lock of what was freed. The process never ends, and the module cannot be unloaded any more.
const KERNEL_BUG: &str =
    "with buffers from memory set aside, the kernel driver uses freed memory when such a program ends";
const DRIVER: &str = "/sys/bus/pci/drivers/amdxdna";

impl Checks {
    /// An NPU that does nothing is suspended, and wakes up for the next program.
    pub(super) fn suspend(&mut self, guest: &mut Guest) -> Result<String> {
        let status = format!("/sys/bus/pci/devices/{NPU_ADDRESS}/power/runtime_status");
        let seconds = 3 * IDLE.as_secs();
        let wait = format!(
            "for i in $(seq {seconds}); do [ \"$(cat {status})\" = suspended ] && exit 0; sleep 1; done; cat {status}; exit 1"
        );
        let finished = guest.script(&wait, LIMIT)?;
        ensure!(finished.success(), "after {seconds} s it is not suspended but {}", finished.stdout.trim());
        self.works(guest).context("after it was suspended")?;
        Ok("suspended when idle, 2,000 dispatches after it woke up".into())
    }

    /// The driver is taken from the NPU while a program uses it: the program ends with an error, and after the driver is back the next
    /// one works.
    pub(super) fn unbind(&mut self, guest: &mut Guest, machine: &Machine) -> Result<String> {
        if machine.iommu == Iommu::Passthrough {
            return Ok(format!("not tried: {KERNEL_BUG}"));
        }
        let load = script::of(&self.load(&["queues", "--seconds", "60"]));
        let text = format!(
            "({load}) >/tmp/load.out 2>/tmp/load.err & load=$!\nsleep 2\n\
             echo {NPU_ADDRESS} >{DRIVER}/unbind || exit 99\nwait $load; code=$?\ncat /tmp/load.err >&2\nexit $code\n"
        );
        let finished = guest.script(&text, LIMIT)?;
        let words = failed_by_itself(&finished)?.trim().replace('\n', " ");
        shell(guest, &format!("echo {NPU_ADDRESS} >{DRIVER}/bind"))?;
        self.works(guest).context("after the driver came back")?;
        Ok(format!("the program ended with an error ({}); the next one works", shortened(&words)))
    }

    /// The module cannot be unloaded while a program has the node open; afterwards it can, and comes back.
    pub(super) fn unload(&mut self, guest: &mut Guest, machine: &Machine) -> Result<String> {
        let held = guest.script("exec 9<>/dev/accel/accel0 || exit 99; rmmod amdxdna; exit $?", LIMIT)?;
        ensure!(held.status.code() == Some(1), "with its node open: {}\n{}", held.describe(), held.last_lines(4));
        shell(guest, "rmmod amdxdna && [ ! -e /dev/accel/accel0 ]")?;
        let gone = guest.run(&self.load(&["dispatches", "--dispatches", "2000"]), LIMIT)?;
        let words = failed_by_itself(&gone)?.trim().replace('\n', " ");
        let mut load = format!("insmod /run/modules/amdxdna.ko {}", module_parameters(machine));
        if machine.iommu == Iommu::Passthrough {
            load += &format!(" && echo {CARVEOUT} >/sys/kernel/debug/accel/{NPU_ADDRESS}/carveout");
        }
        shell(guest, &load)?;
        self.works(guest).context("after the module was loaded again")?;
        Ok(format!("without it: {}", shortened(&words)))
    }
}

/// Runs a script that has to go well.
fn shell(guest: &mut Guest, text: &str) -> Result<()> {
    guest.script(text, LIMIT)?.ensure(&format!("`{text}`"))
}

/// Words enough to recognise a message by.
fn shortened(text: &str) -> String {
    const MOST: usize = 120;
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST).chain("...".chars()).collect() }
}
