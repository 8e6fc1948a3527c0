//! What the library pretends to be.

use crate::faults::FaultPlan;
use std::path::PathBuf;

/// Every setting's name begins so.
pub const PREFIX: &str = "HSA_STAND_IN_";

/// How a packet that failed is told to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureStyle {
    /// Its completion signal gets minus the state of the ERT command: what programs for this interface check for.
    Negative,
    /// Signals of packets that did not complete stay as they are; only the queue's error callback tells. ROCR's
    /// development branch does so since the middle of 2026.
    Withhold,
}

/// Whether packets are processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processing {
    /// Storing to the doorbell returns when all packets are done.
    Synchronous,
    /// Storing to the doorbell does nothing, as in ROCR 6.x.
    Never,
}

/// The settings of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Generations of the agents, one entry for each.
    pub agents: Vec<String>,
    /// Version of AMD's extension interface that the library claims.
    pub extension: (u16, u16),
    /// Where the report goes when the process exits.
    pub report: Option<PathBuf>,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// How failures are told.
    pub failure: FailureStyle,
    /// Whether packets are processed.
    pub processing: Processing,
    /// Whether reasons go to standard error.
    pub log: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            agents: vec!["aie2p".into()],
            extension: (1, 16),
            report: None,
            faults: FaultPlan::default(),
            failure: FailureStyle::Negative,
            processing: Processing::Synchronous,
            log: false,
        }
    }
}

impl Settings {
    /// Reads settings from pairs of name and value. Names without [`PREFIX`] are somebody else's and are left alone.
    ///
    /// # Errors
    /// A sentence on the first name or value that means nothing.
    pub fn read(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, String> {
        let mut settings = Self::default();
        for (name, value) in pairs {
            let Some(setting) = name.strip_prefix(PREFIX) else { continue };
            let wrong = |expected: &str| format!("{name}={value}: expected {expected}");
            match setting {
                "AGENTS" => {
                    settings.agents =
                        value.split(',').map(str::trim).filter(|a| !a.is_empty()).map(Into::into).collect();
                }
                "EXTENSION" => {
                    let parsed = value.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                    settings.extension = parsed.ok_or_else(|| wrong("MAJOR.MINOR"))?;
                }
                "REPORT" => settings.report = Some(PathBuf::from(&value)).filter(|path| !path.as_os_str().is_empty()),
                "FAULTS" => settings.faults = value.parse().map_err(|reason| format!("{name}={value}: {reason}"))?,
                "FAILURE" => {
                    settings.failure = match value.as_str() {
                        "negative" => FailureStyle::Negative,
                        "withhold" => FailureStyle::Withhold,
                        _ => return Err(wrong("`negative` or `withhold`")),
                    }
                }
                "PROCESSING" => {
                    settings.processing = match value.as_str() {
                        "synchronous" => Processing::Synchronous,
                        "never" => Processing::Never,
                        _ => return Err(wrong("`synchronous` or `never`")),
                    }
                }
                "LOG" => settings.log = !matches!(value.as_str(), "" | "0"),
                _ => {
                    return Err(format!(
                        "{name} is no setting; known: AGENTS, EXTENSION, REPORT, FAULTS, FAILURE, PROCESSING, LOG, each \
                         behind {PREFIX}"
                    ));
                }
            }
        }
        Ok(settings)
    }

    /// Reads the environment.
    ///
    /// # Errors
    /// As for [`Settings::read`].
    pub fn from_environment() -> Result<Self, String> {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Self::read(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn what_is_not_set_has_a_default_and_foreign_names_are_left_alone() {
        assert_eq!(read(&[("PATH", "/bin"), ("HSA_ENABLE_SDMA", "0")]), Ok(Settings::default()));
    }

    #[test]
    fn every_setting_is_read() {
        let settings = read(&[
            ("HSA_STAND_IN_AGENTS", "aie2p, aie2"),
            ("HSA_STAND_IN_EXTENSION", "1.7"),
            ("HSA_STAND_IN_REPORT", "/tmp/report"),
            ("HSA_STAND_IN_FAULTS", "timeout@2"),
            ("HSA_STAND_IN_FAILURE", "withhold"),
            ("HSA_STAND_IN_PROCESSING", "never"),
            ("HSA_STAND_IN_LOG", "1"),
        ])
        .unwrap();
        assert_eq!((settings.agents.len(), settings.extension), (2, (1, 7)));
        assert_eq!(settings.report.as_deref(), Some(std::path::Path::new("/tmp/report")));
        assert_ne!(settings.faults, FaultPlan::default());
        assert_eq!((settings.failure, settings.processing), (FailureStyle::Withhold, Processing::Never));
        assert!(settings.log);
    }

    #[rstest]
    #[case("HSA_STAND_IN_EXTENSION", "1", "MAJOR.MINOR")]
    #[case("HSA_STAND_IN_FAILURE", "loud", "`withhold`")]
    #[case("HSA_STAND_IN_PROCESSING", "", "`never`")]
    #[case("HSA_STAND_IN_FAULTS", "fire@1", "allocate")]
    #[case("HSA_STAND_IN_AGENT", "aie2", "AGENTS")]
    fn mistakes_are_told(#[case] name: &str, #[case] value: &str, #[case] expected: &str) {
        let error = read(&[(name, value)]).unwrap_err();
        assert!(error.contains(name) && error.contains(expected), "{error}");
    }
}
