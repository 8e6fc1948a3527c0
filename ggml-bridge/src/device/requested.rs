//! Which devices a run opens, and the messages about the choice.
//!
//! `libggml-hsa.so` and `ggml-hsa devices` ask the same functions, so that what the program prints is what the library does.
//! Nothing is opened here: see [`outcome`](crate::kernels::outcome).

use crate::config::Config;
use crate::config::log;
use crate::settings::{GGML_HSA, GGML_HSA_DEVICES};
use aie_driver_xdna::discovery::FoundNpu;
use aie_driver_xdna::selection::Inventory;
use aie_driver_xdna::settings::AIE_HAL_VISIBLE_DEVICES;
use aie_driver_xdna::{SCHEME, XdnaDriver};
use aie_hal::ArchRegistry;

/// Something to tell the user about the choice of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The NPU is not used at all: whatever the program does with its log.
    Notice(String),
    /// Something is not as it was requested.
    Error(String),
    /// Something the user did not ask for does not work.
    Warning(String),
    /// For those who ask.
    Info(String),
}

impl Message {
    /// Logs it.
    pub fn log(&self) {
        match self {
            Self::Notice(text) => log::notice(text),
            Self::Error(text) => log::error(text),
            Self::Warning(text) => log::warn(text),
            Self::Info(text) => log::tell(|| text.clone()),
        }
    }
}

/// Which devices are opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requested {
    /// Their URIs.
    pub uris: Vec<String>,
    /// Messages about the choice.
    pub messages: Vec<Message>,
}

/// The devices that `config` requests: those it lists, or else the real NPUs that can be used.
pub fn requested(config: &Config, arches: &ArchRegistry) -> Requested {
    if !config.enabled {
        let messages = vec![Message::Info(format!("{GGML_HSA} is off: there is no device"))];
        return Requested { uris: Vec::new(), messages };
    }
    match &config.devices {
        Some(uris) if uris.is_empty() => {
            let messages = vec![Message::Info(format!("{GGML_HSA_DEVICES} is set and empty: there is no device"))];
            Requested { uris: Vec::new(), messages }
        }
        Some(uris) => Requested { uris: uris.clone(), messages: Vec::new() },
        None => match XdnaDriver::new(arches.clone()).inventory(config.route) {
            Ok(inventory) => usable_npus(&inventory),
            Err(cause) => {
                let text = format!("{cause}; no NPU is used until it is corrected");
                Requested { uris: Vec::new(), messages: vec![Message::Error(text)] }
            }
        },
    }
}

/// What is used without a list: the NPUs without an obstacle. What keeps a user from having one is said.
fn usable_npus(inventory: &Inventory) -> Requested {
    let (usable, disabled): (Vec<&FoundNpu>, Vec<&FoundNpu>) = inventory.npus.iter().partition(|npu| npu.usable());
    let mut requested = Requested::default();
    for npu in &usable {
        match npu.uri() {
            Ok(uri) => requested.uris.push(uri.to_string()),
            Err(cause) => requested.messages.push(Message::Error(cause.to_string())),
        }
    }
    let none = requested.uris.is_empty();
    for npu in &disabled {
        let text = format!("{SCHEME}://{} ({}) is not used: {}", npu.id, npu.name, npu.disabled().unwrap_or_default());
        requested.messages.push(if none { Message::Notice(text) } else { Message::Warning(text) });
    }
    let hidden: Vec<&FoundNpu> = inventory.hidden.iter().filter(|npu| npu.usable()).collect();
    let names = || hidden.iter().map(|npu| format!("{SCHEME}://{}", npu.id)).collect::<Vec<_>>().join(", ");
    requested.messages.extend(match (none, hidden.is_empty()) {
        (true, false) => Some(Message::Notice(format!(
            "{AIE_HAL_VISIBLE_DEVICES} hides {}, so no NPU is used; change or unset it",
            names()
        ))),
        (false, false) => Some(Message::Info(format!("{AIE_HAL_VISIBLE_DEVICES} hides {}", names()))),
        (true, true) if disabled.is_empty() => Some(Message::Info(
            "this machine has no NPU that its kernel knows, so there is no device; `ggml-hsa doctor` says more, and \
             GGML_HSA_DEVICES=mock gives a simulated one"
                .to_owned(),
        )),
        _ => None,
    });
    requested
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_driver_xdna::discovery::Obstacle;
    use aie_hal::Environment;

    fn npu(ordinal: usize, disabled: bool) -> FoundNpu {
        let address = format!("0000:c{ordinal}:00.1");
        FoundNpu {
            ordinal,
            id: format!("pci-{address}"),
            name: "XDNA 2 NPU".into(),
            arch: None,
            node: None,
            firmware: None,
            obstacles: if disabled { vec![Obstacle::ModuleNotLoaded(address)] } else { vec![] },
        }
    }

    fn of(npus: Vec<FoundNpu>, hidden: Vec<FoundNpu>) -> Requested {
        usable_npus(&Inventory { npus, hidden })
    }

    #[test]
    fn without_an_npu_one_line_says_so_to_those_who_ask() {
        let Requested { uris, messages } = of(vec![], vec![]);
        assert_eq!(uris, [""; 0]);
        assert!(matches!(&messages[..], [Message::Info(text)] if text.contains("no NPU")), "{messages:?}");
    }

    #[test]
    fn a_disabled_npu_says_why_without_being_asked() {
        let alone = of(vec![npu(0, true)], vec![]).messages;
        assert!(matches!(&alone[..], [Message::Notice(text)] if text.contains("modprobe amdxdna")), "{alone:?}");
        let Requested { uris, messages } = of(vec![npu(0, true), npu(1, false)], vec![]);
        assert_eq!(uris, ["xdna://pci-0000:c1:00.1"]);
        assert!(matches!(&messages[..], [Message::Warning(text)] if text.contains("pci-0000:c0:00.1")), "{messages:?}");
    }

    #[test]
    fn hiding_the_usable_npu_says_so() {
        for seen in [vec![], vec![npu(0, true)]] {
            let messages = of(seen, vec![npu(1, false)]).messages;
            let last = messages.last().unwrap();
            let expected =
                "AIE_HAL_VISIBLE_DEVICES hides xdna://pci-0000:c1:00.1, so no NPU is used; change or unset it";
            assert_eq!(*last, Message::Notice(expected.into()));
        }
        let messages = of(vec![npu(0, false)], vec![npu(1, false)]).messages;
        assert!(matches!(&messages[..], [Message::Info(_)]), "{messages:?}");
        // What is hidden and does not work anyway is no loss.
        assert_eq!(of(vec![npu(0, false)], vec![npu(1, true)]).messages, []);
    }

    #[test]
    fn settings_that_leave_nothing_say_so() {
        for (pair, expected) in [(("GGML_HSA", "off"), "GGML_HSA is off"), (("GGML_HSA_DEVICES", ""), "set and empty")]
        {
            let (config, _) = Config::read(&Environment::from_pairs([pair]));
            let Requested { uris, messages } = requested(&config, &ArchRegistry::builtin());
            assert_eq!(uris, [""; 0]);
            assert!(matches!(&messages[..], [Message::Info(text)] if text.contains(expected)), "{messages:?}");
        }
    }
}
