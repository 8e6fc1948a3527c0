//! Checks programs of cores, independently of what made them.
//!
//! A core interlocks nothing: a value arrives some cycles after its instruction has issued, and a read that comes earlier gets
//! the old value without notice. Units, delay slots and zero-overhead loops have rules that hardware does not enforce either.
//! This module decodes a finished program and follows all paths through it: branches with their delay slots, zero-overhead loops,
//! calls with their returns, branches through registers whose targets are stated or constant. At each point it keeps, for
//! every register, which writes its value can come from and what is still in flight; so it knows for every read which writes it
//! gets, on every path.
//!
//! What it reports as an error breaks a rule on some path; no compiled program of others has any. A warning is something that
//! such programs have as well, or a place from which it could not go on; programs made by this crate have neither.
//! `docs/native.md` lists what is shown and what is not.
//!
//! ```
//! use aie_isa::Isa;
//! use aie_jit_native::check::{Program, check};
//!
//! // The sum needs the loaded word seven cycles after the load, and comes after two.
//! let code = Isa::aie2().assemble("movxm p0, #0x70000\nlda r1, [p0, #0]\nnop\nadd r2, r1, r1\nst r2, [p0, #4]\ndone").unwrap();
//! let report = check(&Program::new(Isa::aie2(), &code));
//! assert!(report.findings.iter().any(|finding| finding.to_string().contains("r1 is read before the value written at 0x6 arrives")));
//! ```

mod code;
mod control;
mod dataflow;
mod finding;
mod hash;
mod history;
pub mod intent;
mod memory;
mod paths;
mod program;
mod registers;
mod stack;

pub use finding::{Finding, Problem, Severity};
pub use intent::Intent;
pub use program::{PROGRAM_BYTES, Program};
pub use stack::Stack;

use code::Code;
use paths::Paths;

/// What was found in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// By address.
    pub findings: Vec<Finding>,
    /// Bundles that some path comes to.
    pub bundles: usize,
    /// Bytes of those bundles; the rest of the program has not been checked.
    pub bytes: usize,
    /// Reads of registers whose values were followed.
    pub reads: usize,
    /// Its stack; None if it has none.
    pub stack: Option<Stack>,
}

impl Report {
    /// Findings that are mistakes, whoever made the program.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.problem.severity() == Severity::Error)
    }

    /// Findings that no program made by this crate may have: errors and warnings.
    pub fn rejections(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.problem.severity() != Severity::Note)
    }
}

/// Checks a program.
pub fn check(program: &Program<'_>) -> Report {
    run(program, None)
}

/// Checks a program, and that it has the dataflow that its author records.
pub fn check_with(program: &Program<'_>, intent: &Intent) -> Report {
    run(program, Some(intent))
}

fn run<'p>(program: &'p Program<'p>, intent: Option<&'p Intent>) -> Report {
    let mut paths = Paths::of(Code::new(program), intent);
    while memory::resolve_branches(&mut paths) {}
    control::check(&mut paths);
    registers::check(&mut paths);
    memory::check(&mut paths);
    units(&mut paths);
    if let Some(intent) = intent {
        dataflow::check(&mut paths, intent);
    }
    let bytes = paths.code.bundles.iter().map(|placed| placed.bytes as usize).sum();
    let reads = paths.sightings.iter().map(|sighting| sighting.port).collect::<std::collections::HashSet<_>>().len();
    let stack = stack::of(&paths);
    Report { bundles: paths.code.bundles.len(), bytes, reads, stack, findings: paths.into_findings() }
}

fn units(paths: &mut Paths<'_>) {
    let isa = paths.code.isa();
    for clash in std::mem::take(&mut paths.clashes) {
        let other = paths.code.bundles[clash.other as usize].address;
        let unit = isa.units()[usize::from(clash.unit)].name;
        paths.report(clash.bundle, Problem::Unit { unit, cycle: clash.cycle, other, certain: clash.certain });
    }
}
