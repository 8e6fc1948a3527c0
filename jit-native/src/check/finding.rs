//! What the checker reports.

use aie_isa::DecodeError;
use std::fmt;

/// How sure the checker is that a finding is a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The program breaks a rule of the core, or cannot mean what it does.
    Error,
    /// A correct program may have it, or the checker could not follow the program further. No program made by this crate may.
    Warning,
    /// It costs time, or may be meant: a value of which nothing has use.
    Note,
}

/// What is wrong with a bundle.
///
/// Addresses are bytes of program memory; `other` and `writer` are addresses of bundles.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The program is longer than program memory.
    #[error("the program ends at {end:#x}; program memory has {limit} bytes")]
    ProgramSize {
        /// The first address behind it.
        end: u32,
        /// Size of program memory.
        limit: u32,
    },
    /// A path comes to bytes that are no bundle.
    #[error("a path comes here, and there is no bundle: {0}")]
    Decode(#[from] DecodeError),
    /// A path comes to an address where the program has no bytes.
    #[error("a path leaves the program: there is no code at {0:#x}")]
    NoCode(u32),
    /// A path comes to the middle of a bundle of another path.
    #[error("a path comes here, within the bundle at {other:#x}")]
    WithinBundle {
        /// That bundle.
        other: u32,
    },
    /// A branch goes to an address that is not a multiple of 16.
    #[error("the branch goes to {target:#x}, which is not a multiple of 16")]
    TargetAlignment {
        /// Where it goes.
        target: u32,
        /// Whether silicon is known to go wrong: AIE2P goes on at the beginning of the 16 bytes, where there are instructions.
        certain: bool,
    },
    /// One of the five bundles behind a branch is a branch.
    #[error("a branch in the delay slots of the branch at {other:#x}")]
    BranchInDelaySlots {
        /// The first branch.
        other: u32,
    },
    /// A branch through a register whose targets are neither stated nor constant: the paths behind it are not checked.
    #[error("the targets of this branch are not known; what it leads to is not checked")]
    UnknownTarget,
    /// `ret` where no call has been made.
    #[error("a return where nothing was called; what it leads to is not checked")]
    ReturnWithoutCall,
    /// The program has more paths than the checker follows.
    #[error("the program has more than {limit} {of}; the rest is not checked")]
    TooMany {
        /// What there is too much of.
        of: &'static str,
        /// How many are followed.
        limit: usize,
    },
    /// `ls` or `le` gets a value that is not in the instruction.
    #[error("{register} is not set by a constant; the loop is not followed")]
    LoopRegister {
        /// The register.
        register: &'static str,
    },
    /// The first bundle of a zero-overhead loop is not aligned.
    #[error("the zero-overhead loop begins at {start:#x}, which is not a multiple of 16")]
    LoopStart {
        /// Where it begins.
        start: u32,
    },
    /// The last bundle of a zero-overhead loop is not aligned or does not have 16 bytes.
    #[error(
        "the last bundle of a zero-overhead loop has {bytes} bytes at {address:#x}; it needs 16, at a multiple of 16"
    )]
    LoopEnd {
        /// Its address.
        address: u32,
        /// Its length.
        bytes: u32,
    },
    /// A store of part of a word at the end of a zero-overhead loop, which silicon loses when it jumps back.
    #[error(
        "a store of part of a word, {bundles} bundles before the last of a zero-overhead loop at {end:#x}, is lost"
    )]
    PartWordStoreAtLoopEnd {
        /// Bundles between it and the last.
        bundles: u8,
        /// The last bundle's address.
        end: u32,
    },
    /// No path reaches the bundle that `le` names, or it names none.
    #[error("le is {end:#x}, and no path comes to a bundle there")]
    LoopEndNotReached {
        /// The value of `le`.
        end: u32,
    },
    /// The last bundle of a zero-overhead loop is in the delay slots of a branch.
    #[error("the last bundle of a zero-overhead loop is in the delay slots of the branch at {other:#x}")]
    LoopEndInDelaySlots {
        /// The branch.
        other: u32,
    },
    /// `ls`, `le` or `lc` is set too short before the end of the loop.
    #[error("{register} is set {bundles} bundles before the last bundle of the loop at {end:#x}; {needed} are needed")]
    LoopSetLate {
        /// The register.
        register: &'static str,
        /// The distance along the shortest path.
        bundles: u32,
        /// The distance that is needed.
        needed: u32,
        /// The last bundle of the loop.
        end: u32,
    },
    /// A register is read that nothing has written.
    #[error("{register} is read, and {} has written it", if *always { "nothing" } else { "on some path nothing" })]
    Undefined {
        /// The register.
        register: &'static str,
        /// Whether that is so on all paths.
        always: bool,
    },
    /// A value arrives after a read, and no read gets it: its latency was not observed.
    #[error("{register} is read before the value written at {writer:#x} arrives, and no read gets that value")]
    NeverSeen {
        /// The register.
        register: &'static str,
        /// Who writes the value.
        writer: u32,
    },
    /// A read gets the newest value on one path, and on another it comes too early for it.
    #[error(
        "whether {register} is the value written at {writer:#x} depends on the path: on one of them it has not arrived"
    )]
    DependsOnPath {
        /// The register.
        register: &'static str,
        /// Who writes the value.
        writer: u32,
    },
    /// A read gets another value than the one that is recorded for it.
    #[error("{register} is {}, which is not what the author of the program records", value(*writer, *distance))]
    WrongValue {
        /// The register.
        register: &'static str,
        /// Who wrote the value that the read gets; None if nothing has.
        writer: Option<u32>,
        /// How many iterations earlier, if that is known.
        distance: Option<i16>,
    },
    /// Two values arrive in one register in the same cycle.
    #[error("{register} is written in the same cycle by the bundle at {other:#x}")]
    WrittenTwice {
        /// The register.
        register: &'static str,
        /// Who else writes it.
        other: u32,
    },
    /// Two instructions need one unit in the same cycle.
    #[error("the unit {unit} is in use in cycle {cycle} of this bundle, by the bundle at {other:#x}")]
    Unit {
        /// The unit.
        unit: &'static str,
        /// Cycle of the later instruction, 1 when it issues.
        cycle: u8,
        /// Who uses it too.
        other: u32,
        /// False if it is a port for registers that one of the two does not have.
        certain: bool,
    },
    /// A lock is used while an access that it may guard is in flight.
    #[error("the {access} at {other:#x} is still in flight when the lock is used")]
    LockTooEarly {
        /// Load or store.
        access: &'static str,
        /// Its bundle.
        other: u32,
    },
    /// An access follows a lock too closely.
    #[error("memory is accessed {bundles} bundles behind the acquire at {other:#x}; {needed} are needed")]
    AccessTooEarly {
        /// The distance.
        bundles: u32,
        /// The distance that is needed.
        needed: u32,
        /// The lock instruction.
        other: u32,
    },
    /// An access outside of the data memory that the program may use.
    #[error("{bytes} bytes at {address:#x} are not in the data memory of this program")]
    Address {
        /// The address as the core sees it.
        address: u32,
        /// The length.
        bytes: u32,
    },
    /// An access whose address is not a multiple of its length.
    #[error("{bytes} bytes at {address:#x} are not aligned")]
    Unaligned {
        /// The address as the core sees it.
        address: u32,
        /// The length.
        bytes: u32,
    },
    /// An element is extracted by a register that can be 0, from a vector that `vlda` has loaded: a core of npu1 hung on that for ever,
    /// and not on other indices or vectors (FIM43-Redeye/xdna-emu, 2026-03-24). Why is not known.
    #[error("element 0 of the vector loaded at {loaded:#x} is extracted by a register, which hung a core for ever")]
    ExtractFirst {
        /// The load.
        loaded: u32,
    },
    /// Two accesses of a bundle need one bank: the core waits a cycle.
    #[error("the accesses to {first:#x} and {second:#x} need the same bank of memory; the core waits for one of them")]
    Bank {
        /// One address.
        first: u32,
        /// The other.
        second: u32,
    },
}

fn value(writer: Option<u32>, distance: Option<i16>) -> String {
    match (writer, distance) {
        (None, _) => "not written by any instruction".into(),
        (Some(writer), None) => format!("the value written at {writer:#x}"),
        (Some(writer), Some(distance)) => format!("the value written at {writer:#x} {distance} iterations before"),
    }
}

impl Problem {
    /// Whether it is certain to be a mistake.
    pub fn severity(&self) -> Severity {
        match self {
            Self::UnknownTarget
            | Self::ReturnWithoutCall
            | Self::TooMany { .. }
            | Self::LoopRegister { .. }
            | Self::TargetAlignment { certain: false, .. }
            | Self::Undefined { .. }
            | Self::Unit { certain: false, .. }
            | Self::LockTooEarly { .. }
            | Self::AccessTooEarly { .. }
            | Self::Address { .. }
            | Self::ExtractFirst { .. } => Severity::Warning,
            Self::NeverSeen { .. } | Self::Bank { .. } => Severity::Note,
            _ => Severity::Error,
        }
    }

    /// A short name of the rule, for counts.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::ProgramSize { .. } => "program size",
            Self::Decode(_) => "decode",
            Self::NoCode(_) => "no code",
            Self::WithinBundle { .. } => "within a bundle",
            Self::TargetAlignment { .. } => "target alignment",
            Self::BranchInDelaySlots { .. } => "branch in delay slots",
            Self::UnknownTarget => "unknown target",
            Self::ReturnWithoutCall => "return without call",
            Self::TooMany { .. } => "too many paths",
            Self::LoopRegister { .. } => "loop register",
            Self::LoopStart { .. } => "loop start",
            Self::LoopEnd { .. } => "loop end",
            Self::PartWordStoreAtLoopEnd { .. } => "part word store at loop end",
            Self::LoopEndNotReached { .. } => "loop end not reached",
            Self::LoopEndInDelaySlots { .. } => "loop end in delay slots",
            Self::LoopSetLate { .. } => "loop set late",
            Self::Undefined { always: true, .. } => "undefined",
            Self::Undefined { .. } => "undefined on a path",
            Self::NeverSeen { .. } => "never seen",
            Self::DependsOnPath { .. } => "depends on path",
            Self::WrongValue { .. } => "wrong value",
            Self::WrittenTwice { .. } => "written twice",
            Self::Unit { certain: true, .. } => "unit",
            Self::Unit { .. } => "unit of other registers",
            Self::LockTooEarly { .. } => "lock too early",
            Self::AccessTooEarly { .. } => "access too early",
            Self::Address { .. } => "address",
            Self::Unaligned { .. } => "unaligned",
            Self::ExtractFirst { .. } => "extract first",
            Self::Bank { .. } => "bank",
        }
    }
}

/// A problem and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Address of the bundle.
    pub address: u32,
    /// The bundle as assembly text; empty if it cannot be decoded.
    pub bundle: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.problem.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        write!(f, "{severity}: {:#06x}: {}", self.address, self.problem)?;
        if self.bundle.is_empty() { Ok(()) } else { write!(f, "\n    {}", self.bundle) }
    }
}
