//! Rules about branches and zero-overhead loops.

use super::code::{DELAY_SLOTS, LOOP_REGISTERS, Placed, Target};
use super::finding::Problem;
use super::paths::{LOOP_DISTANCE, Paths};
use super::program::PROGRAM_BYTES;

/// What branch and loop targets are multiples of, in compiled programs.
const ALIGNMENT: u32 = 16;

/// Applies the rules.
pub fn check(paths: &mut Paths<'_>) {
    let mut problems = Vec::new();
    for (id, placed) in paths.code.bundles.iter().enumerate() {
        let id = id as u32;
        if let Some(branch) = placed.branch {
            let stated = paths.resolved.get(&placed.address);
            match branch.target {
                Target::Address(target) if target % ALIGNMENT != 0 => {
                    let certain =
                        paths.code.isa().set().errata().unaligned_targets && follows_instructions(paths, target);
                    problems.push((id, Problem::TargetAlignment { target, certain }));
                }
                Target::Register(_) if stated.is_none_or(|targets| targets.is_empty()) => {
                    problems.push((id, Problem::UnknownTarget));
                }
                _ => {}
            }
            let mut next = placed.address + placed.bytes;
            for _ in 0..DELAY_SLOTS {
                let Some(slot) = paths.code.known(next) else { break };
                let in_slot = &paths.code.bundles[slot as usize];
                if in_slot.branch.is_some() {
                    problems.push((slot, Problem::BranchInDelaySlots { other: placed.address }));
                }
                next += in_slot.bytes;
            }
        }
        for (set, register) in placed.sets[..2].iter().zip(LOOP_REGISTERS) {
            match set {
                Some(None) => problems.push((id, Problem::LoopRegister { register })),
                Some(Some(start)) if register == "ls" && start % ALIGNMENT != 0 => {
                    problems.push((id, Problem::LoopStart { start: *start }));
                }
                Some(Some(end)) if register == "le" => match paths.code.known(*end) {
                    None => problems.push((id, Problem::LoopEndNotReached { end: *end })),
                    Some(last) => {
                        let last = &paths.code.bundles[last as usize];
                        if last.bytes != 16 || end % ALIGNMENT != 0 {
                            problems.push((id, Problem::LoopEnd { address: *end, bytes: last.bytes }));
                        }
                    }
                },
                _ => {}
            }
        }
    }
    for (bundle, ages) in paths.loop_ends() {
        let end = paths.code.bundles[bundle as usize].address;
        for (age, register) in ages.into_iter().zip(LOOP_REGISTERS) {
            if age < LOOP_DISTANCE {
                let (bundles, needed) = (age.into(), LOOP_DISTANCE.into());
                problems.push((bundle, Problem::LoopSetLate { register, bundles, needed, end }));
            }
        }
        let before = |placed: &&Placed| placed.address + placed.bytes == end;
        let last_two = [Some(&paths.code.bundles[bundle as usize]), paths.code.bundles.iter().find(before)];
        for (bundles, placed) in (0..).zip(last_two) {
            if placed.is_some_and(|placed| placed.stores_part) {
                problems.push((bundle, Problem::PartWordStoreAtLoopEnd { bundles, end }));
            }
        }
        if let Some(other) = branch_before(paths, end) {
            problems.push((bundle, Problem::LoopEndInDelaySlots { other }));
        }
    }
    for (bundle, problem) in problems {
        paths.report(bundle, problem);
    }
    let ends = paths.code.program.pieces.iter().map(|(start, bytes)| start.saturating_add(bytes.len() as u32));
    if let Some(end) = ends.max().filter(|end| *end > PROGRAM_BYTES) {
        paths.report_at(0, String::new(), Problem::ProgramSize { end, limit: PROGRAM_BYTES });
    }
}

/// Whether the 16 bytes that contain an address have anything but whole bundles without instructions in front of it.
fn follows_instructions(paths: &Paths<'_>, address: u32) -> bool {
    let mut at = address & !(ALIGNMENT - 1);
    while at < address {
        let decoded = paths.code.program.bytes_at(at).and_then(|bytes| paths.code.isa().decode(bytes).ok());
        match decoded {
            Some(bundle) if bundle.slots.iter().all(|slot| slot.instruction.is_nop()) => {
                at += bundle.format.bytes() as u32;
            }
            _ => return true,
        }
    }
    at != address
}

/// A branch whose delay slots contain the bundle at an address.
fn branch_before(paths: &Paths<'_>, address: u32) -> Option<u32> {
    let branches = paths.code.bundles.iter().filter(|placed| placed.branch.is_some() && placed.address < address);
    branches.map(|placed| placed.address).find(|branch| {
        let mut next = *branch;
        for _ in 0..=DELAY_SLOTS {
            if next == address {
                return true;
            }
            let Some(id) = paths.code.known(next) else { return false };
            next += paths.code.bundles[id as usize].bytes;
        }
        false
    })
}
