//! What the page shows of the table of expectations, `tests/backend-ops/expected.toml`.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The table; `cargo xtask backend-ops` reads, checks and writes all of it.
#[derive(Debug, Deserialize)]
pub struct Expected {
    /// Version of Debian's libggml0 the counts were taken with.
    pub ggml: String,
    /// Per operation, as `test-backend-ops` names it.
    pub operations: BTreeMap<String, Counts>,
    /// Names of `test-backend-ops` of which our device claims no case, each with the reason.
    #[serde(default)]
    pub unclaimed: BTreeMap<String, String>,
    /// Cases our device need not pass.
    #[serde(default)]
    pub exclusions: Vec<Exclusion>,
}

/// Case counts of one operation.
#[derive(Debug, Deserialize)]
pub struct Counts {
    /// Cases the CPU backend passes, those excluded here counted in.
    pub cpu: usize,
    pub passing: usize,
}

/// Cases that are not run, and why.
#[derive(Debug, Deserialize)]
pub struct Exclusion {
    pub operation: String,
    pub parameters: String,
    pub cases: usize,
    pub reason: String,
}

impl Expected {
    pub fn read() -> Result<Self> {
        toml::from_str(include_str!("../../backend-ops/expected.toml")).context("tests/backend-ops/expected.toml")
    }
}
