//! What a register can hold at a point of a program, with everything that is on its way to or from it.
//!
//! Nothing interlocks: which value a read gets depends on which bundles came before it, for as many cycles as the longest
//! latency. A register's *history* is one possibility: the value that it holds, the writes that have not arrived, the reads
//! that have not happened. Paths that meet have several; a set of them is kept for each register, and paths are never mixed
//! within one.

use super::hash::FastMap;
use aie_isa::Bypass;

/// Which write a value comes from, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// Nothing has written the register.
    Nothing,
    /// A reset has.
    Reset,
    /// A port of the program, and the iteration of the innermost recorded loop that the write belongs to, relative to the
    /// current one.
    Port(u32, i8),
}

/// A write on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Write {
    /// Cycles until it arrives.
    pub left: u8,
    pub bypass: Option<Network>,
    pub source: Source,
}

/// A read that has not happened yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Read {
    /// Cycles until it happens.
    pub left: u8,
    pub bypass: Option<Network>,
    pub port: u32,
    pub iteration: i8,
    /// The youngest write that was on its way when the instruction issued and arrives too late for it.
    pub missed: Option<Source>,
}

/// A forwarding network, as something with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Network {
    Move,
    Vector,
}

impl From<Bypass> for Network {
    fn from(bypass: Bypass) -> Self {
        match bypass {
            Bypass::Move => Self::Move,
            Bypass::Vector => Self::Vector,
        }
    }
}

/// One possibility.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct History {
    pub holds: Source,
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
}

/// What a read got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sighting {
    pub port: u32,
    /// The register without parts that was read.
    pub leaf: u16,
    pub source: Source,
    /// The iteration of the read, relative to the one that `source` counts from.
    pub iteration: i8,
    pub missed: Option<Source>,
}

impl History {
    /// Adds what a bundle does. Gives the writes that arrive when one of `writes` does.
    pub fn issue(&mut self, writes: &[Write], reads: &[Read], collisions: &mut Vec<(Source, Source)>) {
        for read in reads {
            // A write that shares the bypass is seen in the cycle it arrives in.
            let late = |write: &&Write| {
                write.left > read.left
                    || write.left == read.left && (write.bypass.is_none() || write.bypass != read.bypass)
            };
            let missed = self.writes.iter().filter(late).max_by_key(|write| write.left).map(|write| write.source);
            self.reads.push(Read { missed, ..*read });
        }
        for write in writes {
            let same = self.writes.iter().filter(|other| other.left == write.left);
            collisions.extend(same.map(|other| (other.source, write.source)));
            self.writes.push(*write);
        }
    }

    /// Lets one cycle pass.
    pub fn advance(&mut self, leaf: u16, sightings: &mut Vec<Sighting>) {
        for read in self.reads.iter().filter(|read| read.left == 1) {
            let forwarded = |write: &&Write| write.left == 1 && read.bypass.is_some() && write.bypass == read.bypass;
            let source = self.writes.iter().rev().find(forwarded).map_or(self.holds, |write| write.source);
            sightings.push(Sighting { port: read.port, leaf, source, iteration: read.iteration, missed: read.missed });
        }
        if let Some(arrived) = self.writes.iter().rev().find(|write| write.left == 1) {
            self.holds = arrived.source;
        }
        self.reads.retain_mut(|read| {
            read.left -= 1;
            read.left > 0
        });
        self.writes.retain_mut(|write| {
            write.left -= 1;
            write.left > 0
        });
        // The order of what happens later in one cycle is that of issue; nothing else depends on the order.
        self.writes.sort_by_key(|write| write.left);
        self.reads.sort();
    }

    fn quiet(&self) -> bool {
        self.writes.is_empty() && self.reads.is_empty()
    }
}

/// Number of a set of histories.
pub type SetId = u32;

/// All sets of histories that occur, each once.
#[derive(Debug, Default)]
pub struct Histories {
    sets: Vec<Vec<History>>,
    /// Whether a set changes without anything new.
    busy: Vec<bool>,
    ids: FastMap<Vec<History>, SetId>,
    unions: FastMap<(SetId, SetId), SetId>,
}

impl Histories {
    /// The set of these histories.
    pub fn set(&mut self, mut histories: Vec<History>) -> SetId {
        histories.sort();
        histories.dedup();
        if let Some(id) = self.ids.get(&histories) {
            return *id;
        }
        let id = self.sets.len() as SetId;
        self.busy.push(histories.iter().any(|history| !history.quiet()));
        self.sets.push(histories.clone());
        self.ids.insert(histories, id);
        id
    }

    /// A register that holds this, with nothing on its way.
    pub fn quiet(&mut self, holds: Source) -> SetId {
        self.set(vec![History { holds, writes: Vec::new(), reads: Vec::new() }])
    }

    /// The histories of a set.
    pub fn get(&self, set: SetId) -> &[History] {
        &self.sets[set as usize]
    }

    /// Whether something is on its way in a history of the set.
    pub fn busy(&self, set: SetId) -> bool {
        self.busy[set as usize]
    }

    /// All histories of both sets.
    pub fn union(&mut self, a: SetId, b: SetId) -> SetId {
        if a == b {
            return a;
        }
        if let Some(id) = self.unions.get(&(a, b)) {
            return *id;
        }
        let both = [self.get(a), self.get(b)].concat();
        let id = self.set(both);
        self.unions.insert((a, b), id);
        id
    }
}
