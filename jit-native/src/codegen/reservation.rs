//! Which slots and units are taken in which cycle, of a straight sequence or of a loop that repeats after some cycles.

use super::timing::RowTiming;
use aie_isa::{Isa, Slot};

/// For each set of slots (a bit each): the sizes in bits of formats that have them.
#[derive(Clone, Debug)]
pub(super) struct Formats(Vec<Vec<u32>>);

impl Formats {
    pub fn new(isa: &Isa) -> Self {
        let sets = 0..1u32 << Slot::ALL.len();
        let sizes = sets.map(|set| {
            let has = |slot: &Slot| set & bit(*slot) != 0;
            let holds = |format: &&aie_isa::Format| Slot::ALL.iter().filter(|s| has(s)).all(|slot| format.has(*slot));
            let mut sizes: Vec<u32> = isa.all_formats().filter(holds).map(|format| format.bits).collect();
            sizes.dedup();
            sizes
        });
        Self(sizes.collect())
    }

    /// The sizes of bundles that can hold these slots, in bits, short ones first.
    pub fn sizes(&self, slots: u32) -> &[u32] {
        &self.0[slots as usize]
    }
}

pub(super) fn bit(slot: Slot) -> u32 {
    1 << slot as u32
}

#[derive(Clone, Debug, Default)]
struct Cycle {
    slots: u32,
    /// Units in use, each with how it is held.
    units: Vec<(u16, bool)>,
}

/// What is taken.
#[derive(Clone, Debug)]
pub(super) struct Reservation<'a> {
    formats: &'a Formats,
    cycles: Vec<Cycle>,
    /// The cycles repeat after this many.
    interval: Option<usize>,
}

impl<'a> Reservation<'a> {
    pub fn straight(formats: &'a Formats) -> Self {
        Self { formats, cycles: Vec::new(), interval: None }
    }

    pub fn repeating(formats: &'a Formats, interval: usize) -> Self {
        Self { formats, cycles: vec![Cycle::default(); interval], interval: Some(interval) }
    }

    fn place(&self, cycle: usize) -> usize {
        self.interval.map_or(cycle, |interval| cycle % interval)
    }

    /// Whether a row can be issued in a cycle.
    pub fn free(&self, row: &RowTiming, cycle: usize) -> bool {
        let slots = self.cycles.get(self.place(cycle)).map_or(0, |found| found.slots);
        if slots & bit(row.slot) != 0 || self.formats.sizes(slots | bit(row.slot)).is_empty() {
            return false;
        }
        let mut own: Vec<(usize, u16, bool)> = Vec::new();
        for unit in &row.units {
            for stage in unit.first..=unit.last {
                let at = self.place(cycle + usize::from(stage));
                let clash = |(other, weak): &(u16, bool)| *other == unit.unit && !(*weak && unit.weak);
                if self.cycles.get(at).is_some_and(|found| found.units.iter().any(clash)) {
                    return false;
                }
                // In a short loop it can meet itself.
                if self.interval.is_some() {
                    if own.iter().any(|(place, other, weak)| *place == at && clash(&(*other, *weak))) {
                        return false;
                    }
                    own.push((at, unit.unit, unit.weak));
                }
            }
        }
        true
    }

    pub fn take(&mut self, row: &RowTiming, cycle: usize) {
        let at = self.at(cycle);
        self.cycles[at].slots |= bit(row.slot);
        for unit in &row.units {
            for stage in unit.first..=unit.last {
                let at = self.at(cycle + usize::from(stage));
                self.cycles[at].units.push((unit.unit, unit.weak));
            }
        }
    }

    pub fn release(&mut self, row: &RowTiming, cycle: usize) {
        let at = self.at(cycle);
        self.cycles[at].slots &= !bit(row.slot);
        for unit in &row.units {
            for stage in unit.first..=unit.last {
                let at = self.at(cycle + usize::from(stage));
                let units = &mut self.cycles[at].units;
                if let Some(index) = units.iter().position(|found| *found == (unit.unit, unit.weak)) {
                    units.swap_remove(index);
                }
            }
        }
    }

    fn at(&mut self, cycle: usize) -> usize {
        let at = self.place(cycle);
        if at >= self.cycles.len() {
            self.cycles.resize_with(at + 1, Cycle::default);
        }
        at
    }
}
