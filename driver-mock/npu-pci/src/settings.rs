//! What a device is like.

use crate::faults::FaultPlan;
use crate::model::{Model, Protocol};
use aie_hal::arch::Arch;
use std::sync::Arc;

/// The settings of a device, fixed for its life.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which NPU.
    pub model: &'static Model,
    /// Its generation; its limits are those that the firmware enforces.
    pub arch: Arc<Arch>,
    /// Protocol of the mailbox. What a kernel driver uses of it depends on it.
    pub protocol: Protocol,
    /// Version of the firmware.
    pub firmware: [u32; 4],
    /// Faults.
    pub faults: FaultPlan,
}

/// A text is not a protocol version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a protocol version; expected MAJOR.MINOR, such as 6.18")]
pub struct ProtocolError(String);

impl Settings {
    /// A device in order.
    pub fn new(model: &'static Model, arch: Arc<Arch>) -> Self {
        Self { model, arch, protocol: model.protocol, firmware: model.firmware, faults: FaultPlan::default() }
    }

    /// The same with so many contexts at one time.
    pub fn with_contexts(mut self, contexts: usize) -> Self {
        let mut arch = (*self.arch).clone();
        arch.limits.contexts = contexts;
        self.arch = Arc::new(arch);
        self
    }

    /// Reads a protocol, `MAJOR.MINOR`.
    ///
    /// # Errors
    /// What it has to look like.
    pub fn parse_protocol(text: &str) -> Result<Protocol, ProtocolError> {
        let parts = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        parts.ok_or_else(|| ProtocolError(text.to_owned()))
    }

    /// Whether the firmware takes CHAIN_EXEC_NPU.
    pub fn has_npu_commands(&self) -> bool {
        self.protocol >= self.model.npu_commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;

    #[test]
    fn protocols_are_read_and_compared() {
        assert_eq!(Settings::parse_protocol("6.15"), Ok((6, 15)));
        assert!(Settings::parse_protocol("6").unwrap_err().to_string().contains("MAJOR.MINOR"));
        let settings = |name, protocol| {
            let model = Model::by_name(name).unwrap();
            let arch = ArchRegistry::builtin().get(model.arch).unwrap();
            Settings { protocol, ..Settings::new(model, arch) }.has_npu_commands()
        };
        assert_eq!([(6, 12), (6, 15), (7, 0)].map(|protocol| settings("npu4", protocol)), [false, true, true]);
        assert_eq!([(5, 7), (5, 8)].map(|protocol| settings("npu1", protocol)), [false, true]);
    }
}
