//! Rules about values: what reads get, on all paths.

use super::code::uses_stack;
use super::finding::Problem;
use super::history::Source;
use super::paths::Paths;
use std::collections::{BTreeMap, HashSet};

/// Applies the rules.
pub fn check(paths: &mut Paths<'_>) {
    let mut problems = undefined(paths);
    problems.extend(latencies(paths));
    problems.extend(collisions(paths));
    for (bundle, problem) in problems {
        paths.report(bundle, problem);
    }
}

/// Reads of registers that nothing has written.
///
/// Functions save registers of their callers, so what is stored on the stack does not count. Nor does a part of a register
/// that nothing ever writes, if other parts are written: instructions read whole vectors for lanes of one half.
fn undefined(paths: &Paths<'_>) -> Vec<(u32, Problem)> {
    // By read, by register without parts: whether it is ever undefined, and whether it is ever defined.
    let mut ports: BTreeMap<u32, BTreeMap<u16, (bool, bool)>> = BTreeMap::new();
    for sighting in &paths.sightings {
        let (never, ever) = ports.entry(sighting.port).or_default().entry(sighting.leaf).or_default();
        *never |= sighting.source == Source::Nothing;
        *ever |= sighting.source != Source::Nothing;
    }
    let mut problems = Vec::new();
    for (port, leaves) in ports {
        let port = &paths.code.ports[port as usize];
        let always = leaves.values().all(|(_, ever)| !ever);
        let on_a_path = leaves.values().any(|both| *both == (true, true));
        if (always || on_a_path) && !uses_stack(paths.code.instruction(port)) {
            let register = paths.code.isa().register(port.register).name;
            problems.push((port.bundle, Problem::Undefined { register, always }));
        }
    }
    problems
}

/// Values whose latency nothing has observed, or only some paths.
fn latencies(paths: &Paths<'_>) -> Vec<(u32, Problem)> {
    let ports = &paths.code.ports;
    let writer = |source: Source| match source {
        Source::Port(port, _) => Some(port),
        Source::Nothing | Source::Reset => None,
    };
    // What some read gets; and what some read gets while nothing younger is on its way.
    let (mut seen, mut settled) = (HashSet::new(), HashSet::new());
    for sighting in &paths.sightings {
        if let Some(port) = writer(sighting.source) {
            seen.insert(port);
            if sighting.missed.is_none() {
                settled.insert((sighting.port, sighting.leaf, port));
            }
        }
    }
    let mut problems = Vec::new();
    for sighting in &paths.sightings {
        let Some(missed) = sighting.missed.and_then(writer) else { continue };
        let (reader, missed_port) = (&ports[sighting.port as usize], &ports[missed as usize]);
        let register = paths.leaf_name(sighting.leaf);
        let writer = paths.code.bundles[missed_port.bundle as usize].address;
        if !seen.contains(&missed) {
            // Registers of callers are restored whether or not they have use for them, calls write their return address even
            // if nothing returns, and an instruction may have been chosen for another of its results.
            let instruction = paths.code.instruction(missed_port);
            let wanted = |port: u32| seen.contains(&port) && ports[port as usize].slot == missed_port.slot;
            let restores = uses_stack(instruction) || instruction.instruction.flags.branch;
            if restores || paths.code.bundles[missed_port.bundle as usize].ports.clone().any(wanted) {
                continue;
            }
            problems.push((reader.bundle, Problem::NeverSeen { register, writer }));
        } else if settled.contains(&(sighting.port, sighting.leaf, missed)) {
            problems.push((reader.bundle, Problem::DependsOnPath { register, writer }));
        }
    }
    problems
}

/// Writes that arrive together. Flags that only accumulate can be written by several instructions at once.
fn collisions(paths: &Paths<'_>) -> Vec<(u32, Problem)> {
    let mut problems = Vec::new();
    for (leaf, first, second) in &paths.collisions {
        let (Source::Port(first, _), Source::Port(second, _)) = (first, second) else { continue };
        let register = paths.leaf_name(*leaf);
        if register.starts_with("sr") {
            continue;
        }
        let [first, second] = [first, second].map(|port| paths.code.ports[*port as usize].bundle);
        let other = paths.code.bundles[first as usize].address;
        problems.push((second, Problem::WrittenTwice { register, other }));
    }
    problems
}
