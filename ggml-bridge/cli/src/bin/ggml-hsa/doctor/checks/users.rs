//! Other programs that have an NPU open: it holds only few contexts at a time.

use super::super::finding::Finding;
use super::super::machine::Machine;
use std::fs;
use std::path::Path;

/// The processes, of those that this user may look at, that have a node open.
pub fn others(machine: &Machine) -> Vec<Finding> {
    let nodes: Vec<_> = machine.survey().npus.into_iter().filter_map(|npu| npu.node).collect();
    if nodes.is_empty() {
        return Vec::new();
    }
    let mut users: Vec<u32> = Vec::new();
    for process in machine.names("/proc").iter().filter_map(|name| name.parse::<u32>().ok()) {
        let folder = format!("/proc/{process}/fd");
        let uses = |name: &String| {
            let target = fs::read_link(machine.file(format!("{folder}/{name}"))).unwrap_or_default();
            target.starts_with("/dev/accel") && nodes.contains(&machine.file(Path::new(&target)))
        };
        if process != std::process::id() && machine.names(&folder).iter().any(uses) {
            users.push(process);
        }
    }
    let list: Vec<String> = users.iter().map(ToString::to_string).collect();
    vec![match list.is_empty() {
        true => Finding::ok("users", "no other program that this user can see has the NPU open"),
        false => Finding::warning(
            "users",
            format!("other processes have the NPU open: {}; it holds only few contexts at a time", list.join(", ")),
            format!("if it cannot be opened, end them: `ps -p {}` shows which they are", list.join(",")),
        ),
    }]
}
