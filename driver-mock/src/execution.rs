//! Which kernels a simulated device is to get.

use aie_hal::{DeviceUri, DriverError};

/// The kernels that programs are to give a simulated device, by its URI's parameter `execute`.
///
/// The device executes both kinds whatever it says, each in its way ([`compiled`](crate::npu::compiled)). It is for those who have
/// both kinds to choose from: reference artifacts are fast and complete, machine code is what silicon would run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Execution {
    /// `execute=reference`: reference artifacts.
    #[default]
    Reference,
    /// `execute=emulated`: machine code, and reference artifacts only where there is none.
    Emulated,
}

impl Execution {
    /// What `uri` says.
    ///
    /// # Errors
    /// [`DriverError::InvalidParameter`] for another value.
    pub fn of(uri: &DeviceUri) -> Result<Self, DriverError> {
        match uri.param("execute") {
            None | Some("reference") => Ok(Self::Reference),
            Some("emulated") => Ok(Self::Emulated),
            Some(other) => {
                let reason = format!("`{other}` is not valid, expected `reference` or `emulated`");
                Err(uri.invalid_param("execute", reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_kernels_are_the_default() {
        let of = |uri: &str| Execution::of(&DeviceUri::parse(uri).unwrap());
        assert_eq!(of("mock").unwrap(), Execution::Reference);
        assert_eq!(of("mock:aie2?execute=reference").unwrap(), Execution::Reference);
        assert_eq!(of("mock:aie2?execute=emulated").unwrap(), Execution::Emulated);
        assert!(of("mock?execute=").is_err());
    }
}
