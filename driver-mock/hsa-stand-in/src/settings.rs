//! What the library pretends to be.

use crate::faults::{self, FaultPlan};
use clap::{Parser, ValueEnum};

/// Every setting's name begins so.
pub const PREFIX: &str = "HSA_STAND_IN_";

/// How a failed packet is reported to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailureStyle {
    /// Its completion signal gets minus the state of the ERT command: what programs for this interface check for.
    Negative,
    /// Signals of packets that did not complete stay unchanged; only the queue's error callback reports them. ROCR's
    /// development branch does so since the middle of 2026.
    Withhold,
}

/// Whether packets are processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Processing {
    /// Storing to the doorbell returns when all packets are done.
    Synchronous,
    /// Storing to the doorbell does nothing, as in ROCR 6.x.
    Never,
}

/// The settings of one process.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, args_override_self = true)]
pub struct Settings {
    /// Generations of the agents, one entry for each.
    #[arg(long = "HSA_STAND_IN_AGENTS", value_delimiter = ',', default_value = "aie2p")]
    pub agents: Vec<String>,
    /// Version of AMD's extension interface that the library claims.
    #[arg(long = "HSA_STAND_IN_EXTENSION", value_parser = extension, default_value = "1.16")]
    pub extension: (u16, u16),
    /// Faults.
    #[arg(long = "HSA_STAND_IN_FAULTS", value_parser = faults::parse, default_value = "")]
    pub faults: FaultPlan,
    /// How failures are reported.
    #[arg(long = "HSA_STAND_IN_FAILURE", value_enum, default_value_t = FailureStyle::Negative)]
    pub failure: FailureStyle,
    /// Whether packets are processed.
    #[arg(long = "HSA_STAND_IN_PROCESSING", value_enum, default_value_t = Processing::Synchronous)]
    pub processing: Processing,
    /// Whether reasons are written to standard error: 1 or 0.
    #[arg(long = "HSA_STAND_IN_LOG", default_value_t = 0)]
    pub log: u8,
}

fn extension(text: &str) -> Result<(u16, u16), String> {
    let parsed = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.ok_or_else(|| "expected MAJOR.MINOR".to_owned())
}

impl Settings {
    /// Reads settings from pairs of name and value. Names without [`PREFIX`] are somebody else's and are left alone.
    ///
    /// # Errors
    /// What is wrong with the first name or value that means nothing, and what is possible.
    pub fn read(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, clap::Error> {
        let ours = pairs.into_iter().filter(|(name, _)| name.starts_with(PREFIX));
        Self::try_parse_from(ours.map(|(name, value)| format!("--{name}={}", value.replace(", ", ","))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, clap::Error> {
        Settings::read(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn what_is_not_set_has_a_default_and_foreign_names_are_left_alone() {
        let settings = read(&[("PATH", "/bin"), ("HSA_ENABLE_SDMA", "0")]).unwrap();
        assert_eq!((settings.agents, settings.extension), (vec!["aie2p".to_owned()], (1, 16)));
        assert_eq!((settings.faults, settings.log), (FaultPlan::default(), 0));
        assert_eq!((settings.failure, settings.processing), (FailureStyle::Negative, Processing::Synchronous));
    }

    #[test]
    fn every_setting_is_read() {
        let settings = read(&[
            ("HSA_STAND_IN_AGENTS", "aie2p, aie2"),
            ("HSA_STAND_IN_EXTENSION", "1.7"),
            ("HSA_STAND_IN_FAULTS", "timeout@2"),
            ("HSA_STAND_IN_FAILURE", "withhold"),
            ("HSA_STAND_IN_PROCESSING", "never"),
            ("HSA_STAND_IN_LOG", "1"),
        ])
        .unwrap();
        assert_eq!((settings.agents, settings.extension), (vec!["aie2p".into(), "aie2".into()], (1, 7)));
        assert_ne!(settings.faults, FaultPlan::default());
        assert_eq!((settings.failure, settings.processing), (FailureStyle::Withhold, Processing::Never));
        assert_eq!(settings.log, 1);
    }

    #[rstest]
    #[case("HSA_STAND_IN_EXTENSION", "1", "MAJOR.MINOR")]
    #[case("HSA_STAND_IN_FAILURE", "loud", "withhold")]
    #[case("HSA_STAND_IN_PROCESSING", "", "never")]
    #[case("HSA_STAND_IN_FAULTS", "fire@1", "allocate")]
    #[case("HSA_STAND_IN_AGENT", "aie2", "AGENTS")]
    fn mistakes_are_reported(#[case] name: &str, #[case] value: &str, #[case] expected: &str) {
        let error = read(&[(name, value)]).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(expected), "{error}");
    }
}
