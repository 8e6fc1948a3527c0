//! Registers for variables, by the cycles in which their contents are needed.
//!
//! A register is in use from the cycle after a write lands to the last cycle in which the value is read: an instruction in
//! flight does not use its target yet. Time is cut into slots, one for each cycle of each block; for each leaf of a variable the
//! slots in which it is in use are found by going backwards through the blocks, and two variables can share a register if no
//! leaf of it is in use by both in any slot.

use super::block::End;
use super::error::CoreError;
use super::register::{Class, Reg, Variable, part_of};
use super::schedule::Scheduled;
use super::timing::{Context, Leaf};
use aie_isa::Register;
use std::collections::HashSet;

/// A set of slots.
#[derive(Clone, Debug, Default)]
struct Slots(Vec<u64>);

impl Slots {
    fn insert(&mut self, slot: usize) {
        if slot / 64 >= self.0.len() {
            self.0.resize(slot / 64 + 1, 0);
        }
        self.0[slot / 64] |= 1 << (slot % 64);
    }

    fn contains(&self, slot: usize) -> bool {
        self.0.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn all(&self) -> impl Iterator<Item = usize> + '_ {
        let bits = self.0.iter().enumerate();
        bits.flat_map(|(index, word)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 64 + bit))
    }
}

/// A read or write of a leaf in a slot of a block. Slots of a block are numbered from 1.
#[derive(Clone, Copy, Debug)]
struct Event {
    leaf: Leaf,
    block: usize,
    slot: usize,
    write: bool,
    /// The block from which it has come on its way, if it was issued before this one: it is not on other ways here.
    via: Option<usize>,
}

/// The blocks with their places in time and what follows them.
struct Time {
    /// The first slot of each block is behind this.
    begin: Vec<usize>,
    length: Vec<usize>,
    successors: Vec<Vec<usize>>,
}

impl Time {
    fn new(blocks: &[Scheduled], labels: &[usize]) -> Self {
        let mut begin = Vec::new();
        let mut next = 0;
        for block in blocks {
            begin.push(next);
            next += block.bundles.len();
        }
        let successors = blocks.iter().enumerate().map(|(index, block)| {
            let mut all = match &block.end {
                End::Fall => vec![index + 1],
                End::Jump { target, .. } => target.iter().map(|label| labels[*label]).collect(),
                End::Branch { target, .. } => vec![index + 1, labels[*target]],
                End::Loop => vec![index, index + 1],
            };
            all.retain(|next| *next < blocks.len());
            all
        });
        let successors = successors.collect();
        Self { begin, length: blocks.iter().map(|block| block.bundles.len()).collect(), successors }
    }

    /// Calls `found` for the slots that a time of a block means: in the blocks after it, if it is beyond its end. Each comes with the
    /// block before that one.
    fn places(&self, block: usize, time: usize, found: &mut impl FnMut(usize, usize, Option<usize>)) {
        self.places_via((block, None), time, 0, found);
    }

    fn places_via(
        &self,
        (block, via): (usize, Option<usize>),
        time: usize,
        depth: usize,
        found: &mut impl FnMut(usize, usize, Option<usize>),
    ) {
        if time <= self.length[block] {
            found(block, time, via);
        } else if depth < 64 {
            for next in &self.successors[block] {
                // An empty block that follows itself does not exist: loops have bundles.
                self.places_via((*next, Some(block)), time - self.length[block], depth + 1, found);
            }
        }
    }
}

/// The slots in which each leaf is in use.
fn needs(context: &Context<'_>, blocks: &[Scheduled], time: &Time) -> Result<Vec<Slots>, CoreError> {
    let mut events: Vec<Event> = Vec::new();
    let mut slots = vec![Slots::default(); context.leaves()];
    // Leaf, block, cycle of issue, cycle in which it lands.
    let mut writes: Vec<(usize, usize, usize, usize)> = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        for (cycle, row) in
            block.bundles.iter().enumerate().flat_map(|(cycle, rows)| rows.iter().map(move |row| (cycle, row)))
        {
            let timing = context.timing(row).ok_or_else(|| {
                CoreError::Schedule(format!("`{}` has no register for an operand", row.instruction.mnemonic))
            })?;
            for access in &timing.accesses {
                if access.leaf >= context.registers_from {
                    continue;
                }
                // A read over a bypass may be of what lands in the same cycle.
                let late = usize::from(!access.write && access.bypass.is_some());
                let at = cycle + usize::from(access.cycle) + late;
                let (leaf, write) = (access.leaf, access.write);
                time.places(index, at, &mut |block, slot, via| events.push(Event { leaf, block, slot, write, via }));
                if write {
                    writes.push((leaf as usize, index, cycle, at));
                }
            }
        }
    }
    // What nothing writes needs no register of its own where all have been cleared.
    let written: HashSet<Leaf> = events.iter().filter(|event| event.write).map(|event| event.leaf).collect();
    let shared = context.variables.iter().zip(&context.first_leaf).filter(|(variable, _)| variable.shares_parts);
    let shared: HashSet<Leaf> = shared.flat_map(|(v, first)| *first..*first + Leaf::from(v.leaves)).collect();
    events.retain(|event| written.contains(&event.leaf) || !shared.contains(&event.leaf));
    events.sort_by_key(|event| (event.leaf, event.block, event.slot, event.write, event.via));
    events.dedup_by_key(|event| (event.leaf, event.block, event.slot, event.write, event.via));
    for group in events.chunk_by(|a, b| a.leaf == b.leaf) {
        let leaf = group[0].leaf as usize;
        flow(group, time, &mut slots[leaf]);
    }
    // A write can land in several places: in the next iteration of a loop, or behind it. Where the value is unused it lands all
    // the same, and nothing else may be there then, or be read there until it has.
    writes.retain(|(leaf, index, _, at)| {
        let mut unread = false;
        time.places(*index, at + 1, &mut |block, slot, _| unread |= !slots[*leaf].contains(time.begin[block] + slot));
        unread
    });
    for (leaf, index, cycle, at) in writes {
        for time_slot in cycle + 1..=at + 1 {
            time.places(index, time_slot, &mut |block, slot, _| slots[leaf].insert(time.begin[block] + slot));
        }
    }
    Ok(slots)
}

/// Adds the slots in which a leaf is in use.
fn flow(events: &[Event], time: &Time, slots: &mut Slots) {
    let count = time.length.len();
    let mut by_block: Vec<&[Event]> = vec![&[]; count];
    for group in events.chunk_by(|a, b| a.block == b.block) {
        by_block[group[0].block] = group;
    }
    // Whether it is in use behind the last slot of a block.
    let mut exit = vec![false; count];
    let first = |block: usize, from: usize, exit: bool| {
        // In a slot, reads come before writes: they see what was there.
        let here = by_block[block].iter().find(|event| event.via.is_none_or(|via| via == from));
        here.map_or(exit, |event| !event.write)
    };
    loop {
        let mut changed = false;
        for block in (0..count).rev() {
            let now = time.successors[block].iter().any(|next| first(*next, block, exit[*next]));
            changed |= now != exit[block];
            exit[block] = now;
        }
        if !changed {
            break;
        }
    }
    for (block, events) in by_block.iter().enumerate() {
        let mut live = exit[block];
        if events.is_empty() {
            if live {
                (1..=time.length[block]).for_each(|slot| slots.insert(time.begin[block] + slot));
            }
            continue;
        }
        let mut rest = events.iter().rev().peekable();
        for slot in (1..=time.length[block]).rev() {
            let (mut read, mut write) = (false, false);
            while let Some(event) = rest.next_if(|event| event.slot == slot) {
                if event.write { write = true } else { read = true }
            }
            live = read || live && !write;
            if live {
                slots.insert(time.begin[block] + slot);
            }
        }
    }
}

/// The registers of variables; None for one that no instruction has.
#[derive(Clone, Debug)]
pub(super) struct Assignment(Vec<Option<Register>>);

impl Assignment {
    /// The register of a variable's part.
    pub fn register(&self, context: &Context<'_>, reg: Reg) -> Option<Register> {
        part_of(context.isa, self.0[reg.variable as usize]?, reg.first, reg.leaves)
    }

    /// Variables that have a register, by their numbers.
    pub fn all(&self) -> impl Iterator<Item = (usize, Register)> + '_ {
        self.0.iter().enumerate().filter_map(|(variable, register)| Some((variable, (*register)?)))
    }
}

/// Which variable could not be placed, and the block where it is crowded.
#[derive(Debug)]
pub(super) struct Crowded {
    pub error: CoreError,
    /// The variable that has no register, then those that are in the way.
    pub variables: Vec<u32>,
    /// The origins of the blocks, and the pipelined loops they are parts of.
    pub places: Vec<(usize, Option<usize>)>,
}

/// So many variables without registers are looked for at once.
const MOST_CROWDED: usize = 24;

/// Gives all variables registers, or says which have none.
pub(super) fn allocate(
    context: &Context<'_>,
    blocks: &[Scheduled],
    labels: &[usize],
) -> Result<Result<Assignment, Vec<Crowded>>, CoreError> {
    let time = Time::new(blocks, labels);
    let needs = needs(context, blocks, &time)?;
    let leaves = |variable: usize| {
        let first = context.first_leaf[variable] as usize;
        first..first + usize::from(context.variables[variable].leaves)
    };
    let mut order: Vec<(usize, usize, std::cmp::Reverse<u8>, std::cmp::Reverse<u32>)> = Vec::new();
    let mut result = vec![None; context.variables.len()];
    for (index, variable) in context.variables.iter().enumerate() {
        if variable.class == Class::Special {
            result[index] = variable.candidates.first().copied();
            continue;
        }
        if leaves(index).all(|leaf| needs[leaf].is_empty()) {
            continue;
        }
        let size: u32 = leaves(index).map(|leaf| needs[leaf].count()).sum();
        order.push((index, variable.candidates.len(), std::cmp::Reverse(variable.leaves), std::cmp::Reverse(size)));
    }
    // Those with little choice first, then large ones, then those that live long.
    order.sort_by_key(|(index, candidates, leaves, size)| (*candidates, *leaves, *size, *index));
    let mut used: Vec<Slots> = vec![Slots::default(); context.isa.registers().len()];
    let mut all_crowded = Vec::new();
    for (index, ..) in order {
        let variable = &context.variables[index];
        let place = |register: &Register| {
            let physical = &context.isa.register(*register).leaves;
            leaves(index).zip(physical).all(|(leaf, register)| !needs[leaf].meets(&used[register.index()]))
        };
        let Some(register) = variable.candidates.iter().find(|register| place(register)) else {
            let slots = leaves(index).fold(Slots::default(), |mut all, leaf| {
                all.add(&needs[leaf]);
                all
            });
            let (error, variables, crowds) = crowded(context, index, &slots, &needs, &result, &time);
            let places = crowds.into_iter().map(|block| (blocks[block].origin, blocks[block].pipelined));
            all_crowded.push(Crowded { error, variables, places: places.collect() });
            if all_crowded.len() == MOST_CROWDED {
                break;
            }
            continue;
        };
        for (leaf, register) in leaves(index).zip(&context.isa.register(*register).leaves) {
            used[register.index()].add(&needs[leaf]);
        }
        result[index] = Some(*register);
    }
    Ok(if all_crowded.is_empty() { Ok(Assignment(result)) } else { Err(all_crowded) })
}

/// The error for a variable that has no register left: where most are in use, and by what.
fn crowded(
    context: &Context<'_>,
    index: usize,
    slots: &Slots,
    needs: &[Slots],
    result: &[Option<Register>],
    time: &Time,
) -> (CoreError, Vec<u32>, Vec<usize>) {
    let variable: &Variable = &context.variables[index];
    let physical: HashSet<Register> = variable
        .candidates
        .iter()
        .flat_map(|register| context.isa.register(*register).leaves.iter().copied())
        .collect();
    let rivals: Vec<usize> = (0..context.variables.len())
        .filter(|other| {
            let leaves = result[*other].map(|register| &context.isa.register(register).leaves);
            leaves.is_some_and(|leaves| leaves.iter().any(|leaf| physical.contains(leaf)))
        })
        .collect();
    let of = |other: usize| {
        let first = context.first_leaf[other] as usize;
        first..first + usize::from(context.variables[other].leaves)
    };
    let at = |slot: usize| {
        let has = |leaf: usize| needs[leaf].contains(slot);
        rivals.iter().copied().filter(|other| of(*other).any(has)).collect::<Vec<_>>()
    };
    let worst = slots.all().max_by_key(|slot| at(*slot).len());
    let there = worst.map(at).unwrap_or_default();
    let mut blocks: Vec<usize> = slots
        .all()
        .filter(|slot| at(*slot).len() == there.len())
        .map(|slot| time.begin.iter().rposition(|begin| *begin < slot).unwrap_or(0))
        .collect();
    blocks.dedup();
    let names: Vec<&str> = there.iter().map(|other| context.variables[*other].name.as_str()).collect();
    let error = CoreError::Registers {
        class: variable.class.name(),
        variable: variable.name.clone(),
        available: variable.candidates.len(),
        pressure: there.len(),
        values: names.join(", "),
    };
    let variables = [index].into_iter().chain(there).map(|variable| variable as u32).collect();
    (error, variables, blocks)
}
