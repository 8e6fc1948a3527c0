//! What the executor notes for a timeline: submissions, host commands and waits on the track of the queue, chains with their
//! dispatches on that of the array.
//!
//! Chains of a device run one after the other, so a chain occupies the array from its start, or from the end of the one before it,
//! until its end is seen. What a single dispatch of a longer chain takes is not known: dispatches are drawn in their order,
//! with widths by the expected times of the generation's cost model, and say so.

use crate::arch::CostModel;
use crate::backend::{ChainView, DeviceBackend};
use crate::command_list::Command;
use crate::submission_queue::InFlight;
use crate::timeline;

fn track<B: DeviceBackend>(device: &B, part: &str) -> String {
    format!("{} {part}", device.state().name)
}

/// Submissions that have run since `begin`.
pub(super) fn submissions<'a, B: DeviceBackend>(
    device: &B,
    begin: Option<u64>,
    submissions: impl Iterator<Item = &'a InFlight>,
) {
    if begin.is_none() {
        return;
    }
    for submission in submissions {
        let count =
            |wanted: fn(&Command) -> bool| submission.commands().iter().filter(|command| wanted(command)).count();
        let dispatches = count(|command| matches!(command, Command::Dispatch { .. }));
        let host_calls = count(|command| matches!(command, Command::HostCall { .. }));
        let detail = || format!("{dispatches} dispatches, {host_calls} host calls");
        timeline::end(&track(device, "submissions"), "submission", begin, detail);
    }
}

/// What ran on the host since `begin`.
pub(super) fn host_command<B: DeviceBackend>(device: &B, begin: Option<u64>, command: &Command) {
    if begin.is_none() {
        return;
    }
    let name = match command {
        Command::HostCall { function, .. } => function.name(),
        Command::Fill { .. } => "fill",
        Command::Update { .. } => "update",
        Command::Copy { .. } => "copy",
        Command::Barrier | Command::Dispatch { .. } => return,
    };
    timeline::end(&track(device, "queue"), name, begin, || "host".to_owned());
}

/// A chain that has the array since `from` and was waited for since `waited`. Returns when its end was seen.
pub(super) fn chain<B: DeviceBackend>(view: &ChainView<'_, B>, from: u64, waited: u64) -> u64 {
    let (device, end) = (view.device, timeline::now());
    timeline::slice(&track(device, "queue"), "wait", waited, end, "for a chain");
    let array = track(device, "array");
    let cost = &device.state().arch.cost;
    let expected = |bytes: u64| {
        let moving = CostModel::transfer_ns(bytes, cost.ddr_bytes_per_second.expected);
        (u128::from(cost.command_ns.expected) + u128::from(moving)).max(1)
    };
    let dispatches: Vec<(&str, u128)> = view
        .dispatches()
        .flat_map(|dispatch| dispatch.kernels().map(|(name, bytes)| (name, expected(bytes))))
        .collect();
    let detail = match (dispatches.len(), view.dispatches().count()) {
        (all, apart) if all == apart => format!("{all} dispatches"),
        (all, apart) => format!("{all} dispatches, joined to {apart}"),
    };
    timeline::slice(&array, "chain", from, end, &detail);
    let (whole, all): (u128, u128) = (dispatches.iter().map(|(_, ns)| ns).sum(), u128::from(end.saturating_sub(from)));
    let at = |part: u128| from + u64::try_from(all * part / whole.max(1)).unwrap_or(0);
    let measured = if dispatches.len() == 1 { "measured" } else { "width by expected time" };
    let mut before = 0;
    for (name, ns) in &dispatches {
        timeline::slice(&array, name, at(before), at(before + ns), measured);
        before += ns;
    }
    end
}
