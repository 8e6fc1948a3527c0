//! Registers that are read while a result is on its way to them: legal, and the old value is read.
//!
//! Compiled loops do it all the time, because a register is free until the result arrives. In a program whose author did not count
//! the cycles it is the first thing to look for. So it is recorded only when somebody asks for it.

use super::lower::{Addressing, Input, MicroOperation, Offset};
use super::registers::{Place, Span};
use aie_isa::Bypass;
use std::collections::BTreeMap;
use std::fmt;

/// A register that was read before a result had arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EarlyRead {
    /// The address of the bundle that reads.
    pub reader: u32,
    /// The register, or the part of it that the result is for.
    pub register: &'static str,
    /// The address of the bundle whose result is on its way.
    pub writer: u32,
    /// By how many cycles it was too early, at least.
    pub cycles: u64,
    /// How often.
    pub count: u64,
}

impl fmt::Display for EarlyRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reader, register, writer, cycles, count } = self;
        let (plural, times) = (if *cycles == 1 { "" } else { "s" }, if *count == 1 { "once" } else { "times" });
        write!(f, "{reader:#x} reads {register} {cycles} cycle{plural} before the result of {writer:#x} is there, ")?;
        if *count == 1 { write!(f, "{times}") } else { write!(f, "{count} {times}") }
    }
}

/// A result on its way.
#[derive(Debug)]
struct Pending {
    span: Span,
    pc: u32,
    lands: u64,
    bypass: Option<Bypass>,
}

/// By reader, writer and register port: the fewest cycles between them, and how often.
type Found = BTreeMap<(u32, u32, Span), (u64, u64)>;

/// What has been recorded.
#[derive(Debug, Default)]
pub struct EarlyReads {
    pending: Vec<Pending>,
    found: Found,
}

impl EarlyReads {
    /// A bundle issues in a cycle. What instructions of one bundle write is no concern of the others.
    pub fn issue<'a>(&mut self, pc: u32, cycle: u64, operations: impl Iterator<Item = &'a MicroOperation> + Clone) {
        self.pending.retain(|pending| pending.lands > cycle);
        for operation in operations.clone() {
            for source in &operation.sources {
                if let Input::Register(place) = &source.input {
                    self.read(pc, place, cycle + u64::from(source.stage), source.bypass);
                }
            }
            if let Some(address) = &operation.address {
                self.read(pc, &address.pointer, cycle + 1, None);
                match &address.addressing {
                    Addressing::Indexed(Offset::Register(place)) | Addressing::PostModify(Offset::Register(place)) => {
                        self.read(pc, place, cycle + 1, None);
                    }
                    Addressing::Dimensions { dimensions, step } => {
                        let parts = dimensions.iter().flat_map(|part| [&part.jump, &part.size, &part.count]);
                        parts.chain([step]).for_each(|place| self.read(pc, place, cycle + 1, None));
                    }
                    Addressing::Indexed(Offset::Immediate(_)) | Addressing::PostModify(Offset::Immediate(_)) => {}
                }
            }
        }
        for target in operations.flat_map(|operation| &operation.targets) {
            let (lands, bypass) = (cycle + u64::from(target.stage), target.bypass);
            self.pending.extend(target.place.spans().map(|span| Pending { span: *span, pc, lands, bypass }));
        }
    }

    fn read(&mut self, reader: u32, place: &Place, time: u64, bypass: Option<Bypass>) {
        for pending in &self.pending {
            // A read sees what landed before it; over a bypass that both have, also what lands at its time.
            let seen_from = pending.lands + u64::from(bypass.is_none() || bypass != pending.bypass);
            if time < seen_from && place.spans().any(|span| span.overlaps(pending.span)) {
                let found = self.found.entry((reader, pending.pc, pending.span)).or_insert((u64::MAX, 0));
                *found = (found.0.min(seen_from - time), found.1 + 1);
            }
        }
    }

    /// What has been recorded, by reader and writer; `name` gives the name of a part of the register file.
    pub fn found(&self, name: impl Fn(Span) -> &'static str) -> Vec<EarlyRead> {
        let of = |(key, count): (&(u32, u32, Span), &(u64, u64))| EarlyRead {
            reader: key.0,
            writer: key.1,
            register: name(key.2),
            cycles: count.0,
            count: count.1,
        };
        self.found.iter().map(of).collect()
    }

    /// Nothing is on its way any more: the core has been reset.
    pub fn reset(&mut self) {
        self.pending.clear();
    }
}
