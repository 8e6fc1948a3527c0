//! What a row of the tables of broken machines says.

use super::super::finding::Level;
use super::rig::Rig;

/// A machine that is broken in one way.
pub struct Broken {
    pub name: &'static str,
    /// What is done to a machine in order.
    pub breaks: fn(&mut Rig),
    /// The check that finds it, how bad it is, and words of cause and fix.
    pub check: &'static str,
    pub level: Level,
    pub cause: &'static str,
    pub fix: &'static str,
    /// What the fix does to the machine.
    pub fixes: fn(&mut Rig),
}

/// A row of a table.
pub const fn row(
    name: &'static str,
    breaks: fn(&mut Rig),
    (check, level): (&'static str, Level),
    (cause, fix): (&'static str, &'static str),
    fixes: fn(&mut Rig),
) -> Broken {
    Broken { name, breaks, check, level, cause, fix, fixes }
}
