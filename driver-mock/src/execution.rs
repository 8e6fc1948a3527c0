//! Which kernels a simulated device is to get.

use aie_hal::{DeviceUri, DriverError};

/// The kernels that programs are to give a simulated device, by its URI's parameter `execute`.
///
/// With [`Reference`](Self::Reference) and [`Emulated`](Self::Emulated) the device executes both kinds, each in its way
/// ([`compiled`](crate::npu::compiled)). They are for those who have both kinds to choose from: reference artifacts are fast and
/// complete, machine code is what silicon would run. With [`Plan`](Self::Plan) it executes nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Execution {
    /// `execute=reference`: reference artifacts.
    #[default]
    Reference,
    /// `execute=emulated`: machine code, and reference artifacts only where there is none.
    Emulated,
    /// `execute=plan`: nothing is executed. For programs that plan their work on a device and do not submit it. Memory is address
    /// space that takes no pages before it is touched, without a limit of its own, and dispatches complete at once without an effect.
    Plan,
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
            Some("plan") => Ok(Self::Plan),
            Some(other) => {
                let reason = format!("`{other}` is not valid, expected `reference`, `emulated` or `plan`");
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
        assert_eq!(of("mock:aie2?execute=plan").unwrap(), Execution::Plan);
        assert!(of("mock?execute=").is_err());
    }
}
