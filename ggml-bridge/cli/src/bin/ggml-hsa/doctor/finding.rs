//! What a check found.

use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it has to be.
    Ok,
    /// Good to know; nothing depends on it.
    Note,
    /// Works, or may work, with a reservation.
    Warning,
    /// Keeps llama.cpp from using the NPU.
    Error,
}

/// A line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub text: String,
    /// How to fix it: a command to paste where there is one.
    pub fix: Option<String>,
}

impl Finding {
    /// As it has to be.
    pub fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), fix: None }
    }

    /// Good to know.
    pub fn note(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Note, text: text.into(), fix: None }
    }

    /// Works with a reservation.
    pub fn warning(check: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, level: Level::Warning, text: text.into(), fix: Some(fix.into()) }
    }

    /// Keeps llama.cpp from using the NPU.
    pub fn error(check: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, level: Level::Error, text: text.into(), fix: Some(fix.into()) }
    }
}
