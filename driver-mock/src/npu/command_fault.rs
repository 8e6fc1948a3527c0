//! What can go wrong with a command as planned, and how a plan says so.

use std::ops::RangeInclusive;

/// What goes wrong with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFault {
    /// It never signals.
    Timeout,
    /// The firmware gives up.
    Abort,
    /// It completes with garbage.
    Garbage,
    /// The device is lost.
    Lost,
    /// The firmware answers with this status.
    Status(u32),
}

const NAMED: [(&str, CommandFault); 4] = [
    ("timeout", CommandFault::Timeout),
    ("abort", CommandFault::Abort),
    ("garbage", CommandFault::Garbage),
    ("lost", CommandFault::Lost),
];

impl CommandFault {
    /// The fault that a plan names: `timeout`, `abort`, `garbage`, `lost`, `status=S`; `None` when it is another word.
    ///
    /// # Errors
    /// What is wrong with the status.
    pub fn parse(name: &str) -> Result<Option<Self>, String> {
        let Some(status) = name.strip_prefix("status=") else {
            return Ok(NAMED.iter().find(|(known, _)| *known == name).map(|(_, fault)| *fault));
        };
        let status = number(status).filter(|status| *status != 0);
        status.map(|status| Some(Self::Status(status))).ok_or_else(|| "the status is not a number above 0".into())
    }
}

/// A number of 32 bits, decimal or with `0x`.
pub fn number(text: &str) -> Option<u32> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hexadecimal| u32::from_str_radix(hexadecimal, 16).ok())
}

/// Occurrences, counted from 1: `N`, `N-M` or `*`.
pub fn occurrences(text: &str) -> Option<RangeInclusive<u64>> {
    if text == "*" {
        return Some(1..=u64::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first >= 1 && last >= first).then_some(first..=last)
}
