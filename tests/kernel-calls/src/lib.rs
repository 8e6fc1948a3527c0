//! Asks an amdxdna kernel driver what it answers, call by call, and compares the answers of two.
//!
//! - [`scripts`]: the requests: short lists of calls, each on an open file of its own.
//! - `probe`: makes the calls and writes a [`record::Record`] of each, without what differs from run to run (`names`).
//! - [`run`]: plays the scripts, each in a process of its own with a time limit.
//! - [`compare`]: the differences between two runs, less the [`known`] ones, which have reasons.
//! - [`answers`]: what simulated kernels answer, checked in.
//! - [`seen`]: which requests and fields runs have exercised.
//! - [`judge`]: all of this for the runs of several kernels.
//!
//! Nothing here needs a compiled kernel: what runs is the empty instruction stream that opening a device runs too.
#![deny(unsafe_code)]

pub mod answers;
pub mod compare;
pub mod judge;
pub mod known;
mod names;
mod packets;
mod probe;
pub mod record;
pub mod run;
pub mod scripts;
pub mod seen;
mod setup;
mod sys;
pub mod table;
