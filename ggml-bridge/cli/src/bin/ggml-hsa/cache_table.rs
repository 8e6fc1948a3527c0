//! The content of a cache as a table for people.

use aie_jit_iron::inventory::{Inventory, Item, State};
use ggml_hsa_cli::output;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A row per entry, and the sums below it.
pub fn table(inventory: &Inventory, root: &Path) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let rows = inventory.items.iter().map(|item| {
        [
            item.kernel.clone(),
            item.arch.clone(),
            item.compiler.clone(),
            item.bytes.to_string(),
            if item.made == 0 { String::new() } else { age(now.saturating_sub(item.made)) },
            if is_kernel(item) { item.milliseconds.to_string() } else { String::new() },
            state(&item.state),
        ]
    });
    let table = output::table(&["kernel", "for", "compiler", "bytes", "age", "ms", "state"], &[3, 4, 5], rows);
    let count = |wanted: fn(&State) -> bool| inventory.items.iter().filter(|item| wanted(&item.state)).count();
    format!(
        "{table}\n{}: {} good, {} stale, {} damaged, {} failed, {} bytes",
        root.display(),
        count(|state| *state == State::Good),
        count(|state| matches!(state, State::Stale { .. })),
        count(|state| matches!(state, State::Damaged { .. })),
        count(|state| matches!(state, State::Failed { .. })),
        inventory.bytes()
    )
}

fn is_kernel(item: &Item) -> bool {
    matches!(item.state, State::Good | State::Stale { .. } | State::Damaged { .. })
}

fn state(state: &State) -> String {
    match state {
        State::Good => "good".into(),
        State::Stale { reason } => format!("stale: {reason}"),
        State::Damaged { reason } => format!("damaged: {reason}"),
        State::Failed { cause } => format!("failed: {cause}"),
        State::Unfinished => "unfinished".into(),
        State::Aside => "moved away as damaged".into(),
    }
}

/// Seconds in the largest unit that gives at least 1.
fn age(seconds: u64) -> String {
    let units = [(24 * 3600, "d"), (3600, "h"), (60, "min")];
    let found = units.iter().find(|(length, _)| seconds >= *length);
    found.map_or_else(|| format!("{seconds} s"), |(length, unit)| format!("{} {unit}", seconds / length))
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_have_one_unit() {
        assert_eq!([0, 59, 60, 7199, 7200, 86_400 * 3].map(age), ["0 s", "59 s", "1 min", "1 h", "2 h", "3 d"]);
    }
}
