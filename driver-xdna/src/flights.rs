//! Chains under way: started, and not yet looked at.
//!
//! A kernel driver queues several chains of a context, so the host need not wait for one before it goes on. What it does meanwhile
//! may touch memory only as far as no chain under way does: [`Flights::last_conflict`] tells.

use crate::agent::{ContextId, Ticket};
use std::collections::VecDeque;
use std::ops::Range;

/// Where a packet of a chain comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Index of the work in its batch.
    pub(crate) work: usize,
    /// Index of the command in the work.
    pub(crate) command: usize,
}

/// What the packets of a chain are and touch. Device addresses.
#[derive(Debug, Default)]
pub(crate) struct Cargo {
    pub(crate) origins: Vec<Origin>,
    pub(crate) reads: Vec<Range<u64>>,
    pub(crate) writes: Vec<Range<u64>>,
}

impl Cargo {
    /// Forgets the packets and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.origins.clear();
        self.reads.clear();
        self.writes.clear();
    }

    /// Whether a host that reads and writes these ranges has to wait for the chain.
    fn conflicts(&self, reads: &[Range<u64>], writes: &[Range<u64>]) -> bool {
        overlap(&self.writes, reads) || overlap(&self.writes, writes) || overlap(&self.reads, writes)
    }
}

fn overlap(of: &[Range<u64>], with: &[Range<u64>]) -> bool {
    of.iter().any(|a| with.iter().any(|b| a.start < b.end && b.start < a.end))
}

/// A chain under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) ticket: Ticket,
    pub(crate) cargo: Cargo,
}

/// All of them, oldest first. They are of one context.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    list: VecDeque<Flight>,
    spare: Vec<Cargo>,
}

impl Flights {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Their context.
    pub(crate) fn context(&self) -> Option<ContextId> {
        self.list.front().map(|flight| flight.ticket.context)
    }

    /// Adds one; what `cargo` held goes with it, and it is empty afterwards.
    pub(crate) fn push(&mut self, ticket: Ticket, cargo: &mut Cargo) {
        let empty = self.spare.pop().unwrap_or_default();
        self.list.push_back(Flight { ticket, cargo: std::mem::replace(cargo, empty) });
    }

    /// Takes the oldest.
    pub(crate) fn pop(&mut self) -> Option<Flight> {
        self.list.pop_front()
    }

    /// Keeps the memory of a chain that has ended.
    pub(crate) fn recycle(&mut self, mut cargo: Cargo) {
        cargo.clear();
        self.spare.push(cargo);
    }

    /// How many of the oldest have to end before the host may read and write these ranges.
    pub(crate) fn last_conflict(&self, reads: &[Range<u64>], writes: &[Range<u64>]) -> usize {
        self.list.iter().rposition(|flight| flight.cargo.conflicts(reads, writes)).map_or(0, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn flights(ranges: &[(Range<u64>, Range<u64>)]) -> Flights {
        let mut flights = Flights::default();
        for (number, (reads, writes)) in ranges.iter().enumerate() {
            let mut cargo = Cargo {
                origins: Vec::new(),
                reads: Vec::from_iter([reads.clone()]),
                writes: Vec::from_iter([writes.clone()]),
            };
            flights.push(Ticket { context: ContextId(1), number: number as u64 }, &mut cargo);
            assert!(cargo.reads.is_empty() && cargo.writes.is_empty());
        }
        flights
    }

    #[rstest]
    #[case::reads_what_chains_only_read(Some(0..10), None, 0)]
    #[case::reads_what_the_first_writes(Some(15..16), None, 1)]
    #[case::reads_what_the_second_writes(Some(35..36), None, 2)]
    #[case::writes_what_one_reads_and_writes(None, Some(9..12), 1)]
    #[case::writes_what_the_second_writes(None, Some(39..50), 2)]
    #[case::touches_what_lies_beside(Some(50..60), Some(40..50), 0)]
    fn the_host_waits_for_what_it_depends_on(
        #[case] reads: Option<Range<u64>>,
        #[case] writes: Option<Range<u64>>,
        #[case] expected: usize,
    ) {
        let flights = flights(&[(0..10, 10..20), (20..30, 30..40)]);
        assert_eq!(flights.last_conflict(reads.as_slice(), writes.as_slice()), expected);
    }

    #[test]
    fn chains_end_in_their_order() {
        let mut flights = flights(&[(0..1, 1..2), (2..3, 3..4)]);
        assert_eq!((flights.len(), flights.context()), (2, Some(ContextId(1))));
        let first = flights.pop().unwrap();
        assert_eq!(first.ticket.number, 0);
        flights.recycle(first.cargo);
        assert_eq!(flights.pop().map(|flight| flight.ticket.number), Some(1));
        assert!(flights.pop().is_none() && flights.context().is_none());
    }
}
