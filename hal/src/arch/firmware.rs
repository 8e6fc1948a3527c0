//! Versions of NPU firmware, as the kernel driver shows them.

use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// A text is not a firmware version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a firmware version; expected four numbers, for example \"1.5.5.391\"")]
pub struct FirmwareVersionError(String);

/// A firmware version: four numbers, compared from the left. The amdxdna kernel driver shows it in sysfs as `fw_version`.
///
/// It is not the version of the firmware's mailbox protocol (5.7 or 6.12, say), which the kernel driver checks when it takes
/// the device and does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FirmwareVersion(pub [u32; 4]);

impl Display for FirmwareVersion {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch, build] = self.0;
        write!(f, "{major}.{minor}.{patch}.{build}")
    }
}

impl FromStr for FirmwareVersion {
    type Err = FirmwareVersionError;

    fn from_str(text: &str) -> Result<Self, FirmwareVersionError> {
        let expected = || FirmwareVersionError(text.to_owned());
        let numbers: Vec<u32> =
            text.split('.').map(|part| part.parse().map_err(|_| expected())).collect::<Result<_, _>>()?;
        numbers.try_into().map(Self).map_err(|_| expected())
    }
}

impl TryFrom<String> for FirmwareVersion {
    type Error = FirmwareVersionError;

    fn try_from(text: String) -> Result<Self, FirmwareVersionError> {
        text.parse()
    }
}

impl From<FirmwareVersion> for String {
    fn from(version: FirmwareVersion) -> Self {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("1.5.2.380", "1.5.5.391")]
    #[case("1.0.0.63", "1.0.0.166")]
    #[case("1.9.0.0", "1.10.0.0")]
    #[case("1.1.2.64", "255.0.8.53")]
    fn versions_compare_by_number(#[case] older: FirmwareVersion, #[case] newer: FirmwareVersion) {
        assert!(older < newer);
        assert_eq!(older.to_string().parse(), Ok(older));
    }

    #[rstest]
    #[case("")]
    #[case("1.5")]
    #[case("1.5.5.391.0")]
    #[case("1.5.5.x")]
    #[case("1.5.5.-1")]
    #[case("1.5.5.391\n")]
    #[case("1.5.5.4294967296")]
    fn other_texts_are_rejected(#[case] text: &str) {
        let reason = text.parse::<FirmwareVersion>().unwrap_err().to_string();
        assert!(reason.contains("expected four numbers"), "{reason}");
    }
}
