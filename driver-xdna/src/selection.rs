//! Which NPUs a URI means, and which a program may see at all.
//!
//! | URI | devices |
//! |---|---|
//! | `xdna` | the first usable NPU |
//! | `xdna:0` | the first NPU of the list |
//! | `xdna://pci-0000:c6:00.1` | the NPU at this PCI address, at every start the same |
//! | `xdna://0,1` | two logical devices; naming an NPU twice makes two logical devices on it |
//! | `xdna:*` | every usable NPU |
//!
//! [`AIE_HAL_VISIBLE_DEVICES`] hides NPUs from a program and orders the others, as `ROCR_VISIBLE_DEVICES` does for GPUs; the
//! ordinals of URIs count what is left. A device that is named and not usable is an error with its reasons, never replaced by
//! another one.

use crate::discovery::{FoundNpu, SCHEME};
use crate::route::{ROUTES, Route};
use crate::settings::AIE_HAL_VISIBLE_DEVICES;
use crate::settings::NO_HELPER;
use aie_hal::environment::parse_bytes;
use aie_hal::{DeviceListing, DeviceUri, DriverError};
use std::path::PathBuf;
use std::str::FromStr;

/// A parameter of `xdna` URIs: its name, and what it accepts, for messages.
#[derive(Debug, Clone, Copy)]
struct Param {
    name: &'static str,
    accepted: &'static str,
}

/// Whether the NPU is reached through the kernel driver alone, or through AMD's ROCR.
const RUNTIME: Param = Param { name: "runtime", accepted: ROUTES };
/// Opens that many logical devices on each NPU.
const DEVICES: Param = Param { name: "devices", accepted: "a number from 1 to 64" };
/// Opens that one of the logical devices on an NPU; 0 without it.
const LOGICAL: Param = Param { name: "logical", accepted: "a number below `devices`" };
/// Caps the data memory of each logical device.
const MEMORY: Param = Param {
    name: "memory",
    accepted: "a number of bytes of at least 4096, optionally with K, M or G (powers of 1024)",
};
/// Most dispatches in one doorbell; 1 is what a backend without chains does.
const CHAIN: Param = Param { name: "chain", accepted: "a number of at least 1" };
/// AMD's runtime library, ROCR: its file, or a folder that has it.
const LIBHSA: Param =
    Param { name: "libhsa", accepted: "a path, percent-encoded where it has `%`, `&`, `;`, a comma or white space" };

/// The parameters of `xdna` URIs.
const PARAMS: [Param; 6] = [RUNTIME, DEVICES, LOGICAL, MEMORY, CHAIN, LIBHSA];

/// What stands between the commas of a path.
const FORMS: &str = "an ordinal (`xdna:0`), an id (`xdna://pci-0000:c6:00.1`), or `xdna:*`";

/// Whether `uri` is one of this driver in form, on any machine: its parameters, and that its path is made of ordinals and ids. Which
/// NPUs there are is not looked at.
///
/// # Errors
/// As [`Params::of`]; [`DriverError::InvalidUri`] for a path of another form.
pub fn check(uri: &DeviceUri) -> Result<(), DriverError> {
    Params::of(uri)?;
    let reject = |reason: String| Err(DriverError::InvalidUri { uri: uri.to_string(), reason });
    for word in uri.path().split(',').filter(|_| !["", "*"].contains(&uri.path())) {
        // PCI addresses have colons.
        match word {
            "" => return reject(format!("a comma without an NPU on both sides; expected {FORMS} between commas")),
            "*" => return reject(format!("`*` stands alone: `{SCHEME}:*`")),
            _ if word.parse::<usize>().is_ok() || word.contains(':') => {}
            _ => return reject(format!("`{word}` is no name of an NPU; expected {FORMS}")),
        }
    }
    Ok(())
}

/// A parameter there was once.
const REMOVED: &str = "isolate";

/// A number of bytes, as [`MEMORY`] accepts.
#[derive(Debug, Clone, Copy)]
struct Bytes(usize);

impl FromStr for Bytes {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let bytes = parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
        bytes.filter(|bytes| *bytes >= 4096).map(Self).ok_or(())
    }
}

/// The parameters of one URI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params {
    /// How the NPU is reached; `None` leaves it to the program.
    pub route: Option<Route>,
    /// Logical devices on each NPU.
    pub devices: usize,
    /// One of them.
    pub logical: Option<usize>,
    /// Most bytes of data memory.
    pub memory: Option<usize>,
    /// Most dispatches in one doorbell.
    pub chain: Option<usize>,
    /// The runtime library: as the URI has it, and as a path.
    pub libhsa: Option<(String, PathBuf)>,
}

impl Params {
    /// Reads the parameters of `uri`.
    ///
    /// # Errors
    /// [`DriverError::InvalidParameter`] for one that is unknown or malformed.
    pub fn of(uri: &DeviceUri) -> Result<Self, DriverError> {
        if uri.param(REMOVED).is_some() {
            return Err(uri.invalid_param(REMOVED, format!("{NO_HELPER}; remove it from the URI")));
        }
        uri.check_params(&PARAMS.map(|param| param.name))?;
        let devices = uri.typed_param(DEVICES.name, DEVICES.accepted)?.unwrap_or(1);
        if !(1..=64).contains(&devices) {
            return Err(uri.invalid_param(DEVICES.name, format!("{devices} devices; expected {}", DEVICES.accepted)));
        }
        let logical = uri.typed_param(LOGICAL.name, LOGICAL.accepted)?;
        if logical.is_some_and(|number| number >= devices) {
            return Err(
                uri.invalid_param(LOGICAL.name, format!("there are {devices} logical devices; add `devices=N`"))
            );
        }
        let chain = uri.typed_param(CHAIN.name, CHAIN.accepted)?;
        if chain == Some(0) {
            return Err(uri.invalid_param(CHAIN.name, format!("0 dispatches; expected {}", CHAIN.accepted)));
        }
        let memory = uri.typed_param::<Bytes>(MEMORY.name, MEMORY.accepted)?.map(|bytes| bytes.0);
        let route: Option<Route> = uri.typed_param(RUNTIME.name, RUNTIME.accepted)?;
        let libhsa = uri.decoded_param(LIBHSA.name).transpose()?;
        if libhsa.as_ref().is_some_and(|path| path.is_empty()) {
            return Err(uri.invalid_param(LIBHSA.name, format!("it is empty; expected {}", LIBHSA.accepted)));
        }
        let libhsa = uri.param(LIBHSA.name).map(str::to_owned).zip(libhsa.map(PathBuf::from));
        // A named library is required.
        let route = match route {
            Some(Route::Direct) if libhsa.is_some() => {
                return Err(uri.invalid_param(
                    LIBHSA.name,
                    "`runtime=direct` loads no runtime library; remove it, or set `runtime=rocr`",
                ));
            }
            route => route.or(libhsa.is_some().then_some(Route::Rocr)),
        };
        Ok(Self { route, devices, logical, memory, chain, libhsa })
    }

    /// The URI that opens logical device `number` of `npu` with the same parameters.
    ///
    /// # Errors
    /// [`DriverError::InvalidUri`] when the PCI address cannot stand in a URI.
    pub fn uri_of(&self, npu: &FoundNpu, number: usize) -> Result<DeviceUri, DriverError> {
        let mut parameters = Vec::new();
        let mut add = |param: Param, value: Option<String>| {
            if let Some(value) = value {
                parameters.push(format!("{}={value}", param.name));
            }
        };
        add(RUNTIME, self.route.map(|route| route.to_string()));
        if self.devices > 1 {
            add(DEVICES, Some(self.devices.to_string()));
            add(LOGICAL, Some(number.to_string()));
        }
        add(MEMORY, self.memory.map(|bytes| bytes.to_string()));
        add(CHAIN, self.chain.map(|commands| commands.to_string()));
        add(LIBHSA, self.libhsa.as_ref().map(|(text, _)| text.clone()));
        let uri = npu.uri()?;
        if parameters.is_empty() { Ok(uri) } else { DeviceUri::parse(&format!("{uri}?{}", parameters.join("&"))) }
    }
}

/// The NPUs that a program can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// The NPUs, by ordinal.
    pub npus: Vec<FoundNpu>,
    /// Those that it cannot see, by the ordinal they would have without [`AIE_HAL_VISIBLE_DEVICES`].
    pub hidden: Vec<FoundNpu>,
}

/// Whether `word` names `npu`: its ordinal, its id, or the PCI address alone.
fn names(word: &str, npu: &FoundNpu) -> bool {
    word.parse() == Ok(npu.ordinal)
        || word.eq_ignore_ascii_case(&npu.id)
        || npu.id.strip_prefix("pci-").is_some_and(|address| word.eq_ignore_ascii_case(address))
}

fn list<'a>(npus: impl IntoIterator<Item = &'a FoundNpu>) -> String {
    let entries: Vec<String> = npus
        .into_iter()
        .map(|npu| {
            let name = format!("{} = {SCHEME}://{} ({})", npu.ordinal, npu.id, npu.name);
            npu.disabled().map_or(name.clone(), |reason| format!("{name}, disabled: {reason}"))
        })
        .collect();
    if entries.is_empty() { "none".to_owned() } else { entries.join("; ") }
}

impl Inventory {
    /// The NPUs of a survey that `visible`, the value of [`AIE_HAL_VISIBLE_DEVICES`], lets a program see, in its order.
    ///
    /// # Errors
    /// [`DriverError::InvalidParameter`] for an entry that names no NPU, or one that is named before.
    pub fn new(npus: Vec<FoundNpu>, visible: Option<&str>) -> Result<Self, DriverError> {
        let Some(value) = visible else { return Ok(Self { npus, hidden: Vec::new() }) };
        let reject = |reason: String| DriverError::InvalidParameter {
            uri: SCHEME.to_owned(),
            name: AIE_HAL_VISIBLE_DEVICES.name.to_owned(),
            reason: format!("{value:?}: {reason}"),
        };
        let mut shown: Vec<FoundNpu> = Vec::new();
        for word in value.split(',').map(str::trim).filter(|_| !value.trim().is_empty()) {
            let npu = npus.iter().find(|npu| names(word, npu)).ok_or_else(|| {
                reject(match npus.len() {
                    _ if word.is_empty() => "a comma without an NPU on both sides; remove it".to_owned(),
                    0 => format!("`{word}` names no NPU, and this machine has none; unset it"),
                    1 => format!("`{word}` names no NPU; this machine has one: {}", list(&npus)),
                    count => format!("`{word}` names no NPU; this machine has {count}: {}", list(&npus)),
                })
            })?;
            if shown.iter().any(|earlier| earlier.id == npu.id) {
                return Err(reject(format!("`{word}` names {} a second time; name it once", npu.id)));
            }
            shown.push(npu.clone());
        }
        let hidden = npus.into_iter().filter(|npu| shown.iter().all(|visible| visible.id != npu.id)).collect();
        for (ordinal, npu) in shown.iter_mut().enumerate() {
            npu.ordinal = ordinal;
        }
        Ok(Self { npus: shown, hidden })
    }

    /// One line for each NPU, also for those that are not usable.
    ///
    /// # Errors
    /// As [`FoundNpu::listing`].
    pub fn listings(&self) -> Result<Vec<DeviceListing>, DriverError> {
        self.npus.iter().map(FoundNpu::listing).collect()
    }

    /// The NPUs that the path of `uri` names: one for each logical device, in its order, at least one. Parameters are not
    /// looked at: see [`Params::of`].
    ///
    /// # Errors
    /// [`DriverError::NoSuchDevice`] when the path names something that is not there, [`DriverError::Unusable`] with the
    /// reasons when it is there but disabled.
    pub fn select(&self, uri: &DeviceUri) -> Result<Vec<&FoundNpu>, DriverError> {
        if self.npus.is_empty() {
            return Err(self.no_such(uri, self.nothing()));
        }
        match uri.path() {
            "" => self.usable(uri).map(|usable| usable[..1].to_vec()),
            "*" => self.usable(uri),
            path => path.split(',').map(|word| self.named(uri, word)).collect(),
        }
    }

    fn nothing(&self) -> String {
        match self.hidden.len() {
            0 => "this machine has no NPU that its kernel knows: no accel node and no PCI device of a known generation; an \
                  NPU may be switched off in the firmware setup (BIOS), and a container needs the host's /sys"
                .to_owned(),
            hidden => format!("{AIE_HAL_VISIBLE_DEVICES} hides all {hidden} NPUs; change or unset it"),
        }
    }

    fn usable(&self, uri: &DeviceUri) -> Result<Vec<&FoundNpu>, DriverError> {
        let usable: Vec<&FoundNpu> = self.npus.iter().filter(|npu| npu.usable()).collect();
        if usable.is_empty() {
            return Err(DriverError::Unusable {
                uri: uri.to_string(),
                reason: format!("no NPU is usable: {}", list(&self.npus)),
                remedy: None,
            });
        }
        Ok(usable)
    }

    fn named(&self, uri: &DeviceUri, word: &str) -> Result<&FoundNpu, DriverError> {
        if word == "*" {
            return Err(self.no_such(uri, format!("`*` stands alone: `{SCHEME}:*`")));
        }
        let npu = self.npus.iter().find(|npu| names(word, npu)).ok_or_else(|| {
            let hidden = match self.hidden.len() {
                0 => String::new(),
                hidden => format!("; {AIE_HAL_VISIBLE_DEVICES} hides {hidden}"),
            };
            match word {
                "" => self.no_such(uri, format!("a comma without an NPU on both sides, expected {FORMS}{hidden}")),
                _ => self.no_such(uri, format!("`{word}` names no NPU, expected {FORMS}{hidden}")),
            }
        })?;
        match npu.disabled() {
            None => Ok(npu),
            Some(reason) => Err(DriverError::Unusable {
                uri: uri.to_string(),
                reason: format!("NPU {} ({}) is disabled: {reason}", npu.id, npu.name),
                remedy: None,
            }),
        }
    }

    fn no_such(&self, uri: &DeviceUri, reason: String) -> DriverError {
        DriverError::NoSuchDevice { uri: uri.to_string(), reason, available: list(&self.npus) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::Obstacle;
    use rstest::rstest;

    fn npu(ordinal: usize, disabled: bool) -> FoundNpu {
        let address = format!("0000:c{ordinal}:00.1");
        FoundNpu {
            ordinal,
            id: format!("pci-{address}"),
            name: "XDNA 2 NPU".into(),
            arch: None,
            node: None,
            firmware: None,
            obstacles: if disabled { vec![Obstacle::NoAccelNode(address)] } else { vec![] },
        }
    }

    /// Four NPUs, of which the first and the third are disabled.
    fn four() -> Vec<FoundNpu> {
        vec![npu(0, true), npu(1, false), npu(2, true), npu(3, false)]
    }

    fn uri(text: &str) -> DeviceUri {
        DeviceUri::parse(text).unwrap()
    }

    fn select(inventory: &Inventory, text: &str) -> Result<Vec<String>, DriverError> {
        Ok(inventory.select(&uri(text))?.into_iter().map(|npu| npu.id.clone()).collect())
    }

    #[rstest]
    #[case("xdna", &["pci-0000:c1:00.1"])]
    #[case("xdna:1", &["pci-0000:c1:00.1"])]
    #[case("xdna://pci-0000:c3:00.1", &["pci-0000:c3:00.1"])]
    #[case("xdna://PCI-0000:C3:00.1", &["pci-0000:c3:00.1"])]
    #[case("xdna://0000:c3:00.1", &["pci-0000:c3:00.1"])]
    #[case("xdna://3,1", &["pci-0000:c3:00.1", "pci-0000:c1:00.1"])]
    #[case("xdna://1,1", &["pci-0000:c1:00.1", "pci-0000:c1:00.1"])]
    #[case("xdna://pci-0000:c3:00.1,1", &["pci-0000:c3:00.1", "pci-0000:c1:00.1"])]
    #[case("xdna:*", &["pci-0000:c1:00.1", "pci-0000:c3:00.1"])]
    #[case("xdna:*?devices=2", &["pci-0000:c1:00.1", "pci-0000:c3:00.1"])]
    fn uris_name_devices(#[case] text: &str, #[case] expected: &[&str]) {
        let inventory = Inventory::new(four(), None).unwrap();
        assert_eq!(select(&inventory, text).unwrap(), expected);
    }

    #[rstest]
    #[case("xdna", None)]
    #[case("xdna:*?devices=2", None)]
    #[case("xdna://3,pci-0000:c6:00.1,0000:c7:00.1", None)]
    #[case("xdna://0,", Some("a comma without an NPU on both sides"))]
    #[case("xdna:banana", Some("`banana` is no name of an NPU; expected an ordinal"))]
    #[case("xdna://1,*", Some("`*` stands alone"))]
    #[case("xdna:0?lanes=4", Some("unknown; `xdna` takes: runtime"))]
    #[case("xdna:0?;", Some("unknown; `xdna` takes: runtime"))]
    fn the_form_of_uris_is_checked_without_an_npu(#[case] text: &str, #[case] expected: Option<&str>) {
        match (check(&uri(text)).map_err(|cause| cause.to_string()), expected) {
            (Ok(()), None) => {}
            (Err(message), Some(part)) if message.contains(part) => {}
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[rstest]
    #[case("xdna:7", "`7` names no NPU, expected an ordinal")]
    #[case("xdna://1,", "a comma without an NPU on both sides, expected an ordinal")]
    #[case("xdna://,1", "a comma without an NPU on both sides, expected an ordinal")]
    #[case("xdna://pci-0000:99:00.0", "`pci-0000:99:00.0` names no NPU")]
    #[case("xdna:-1", "`-1` names no NPU")]
    #[case("xdna://1,*", "`*` stands alone")]
    fn what_is_not_there_lists_what_is(#[case] text: &str, #[case] expected: &str) {
        let error = Inventory::new(four(), None).unwrap().select(&uri(text)).unwrap_err();
        let DriverError::NoSuchDevice { uri: asked, reason, available } = error else { panic!("{error}") };
        assert_eq!(asked, text);
        assert!(reason.starts_with(expected), "{reason}");
        assert!(available.contains("1 = xdna://pci-0000:c1:00.1 (XDNA 2 NPU)"), "{available}");
        assert!(
            available.contains("0 = xdna://pci-0000:c0:00.1 (XDNA 2 NPU), disabled: amdxdna serves"),
            "{available}"
        );
    }

    #[rstest]
    #[case("xdna:0")]
    #[case("xdna://1,0")]
    #[case("xdna://pci-0000:c0:00.1")]
    fn a_disabled_npu_is_not_replaced_by_another(#[case] text: &str) {
        let error = Inventory::new(four(), None).unwrap().select(&uri(text)).unwrap_err();
        let DriverError::Unusable { uri: asked, reason, .. } = error else { panic!("{error}") };
        assert_eq!(asked, text);
        let expected = "NPU pci-0000:c0:00.1 (XDNA 2 NPU) is disabled: amdxdna serves PCI device 0000:c0:00.1";
        assert!(reason.starts_with(expected), "{reason}");
    }

    #[rstest]
    #[case("xdna")]
    #[case("xdna:*")]
    fn without_a_usable_npu_all_reasons_are_reported(#[case] text: &str) {
        let inventory = Inventory::new(vec![npu(0, true), npu(1, true)], None).unwrap();
        let error = inventory.select(&uri(text)).unwrap_err();
        let DriverError::Unusable { reason, .. } = error else { panic!("{error}") };
        assert!(reason.contains("0000:c0:00.1, but shows") && reason.contains("0000:c1:00.1, but shows"), "{reason}");
    }

    #[test]
    fn without_an_npu_the_error_says_what_was_looked_for() {
        let inventory = Inventory::new(vec![], None).unwrap();
        assert_eq!(inventory.listings().unwrap(), []);
        let text = inventory.select(&uri("xdna")).unwrap_err().to_string();
        assert!(text.starts_with("no device for `xdna`: this machine has no NPU that its kernel knows"), "{text}");
        assert!(text.ends_with("available: none"), "{text}");
    }

    #[rstest]
    #[case(None, &["pci-0000:c0:00.1", "pci-0000:c1:00.1", "pci-0000:c2:00.1", "pci-0000:c3:00.1"])]
    #[case(Some("3,1"), &["pci-0000:c3:00.1", "pci-0000:c1:00.1"])]
    #[case(Some(" pci-0000:C2:00.1 , 0"), &["pci-0000:c2:00.1", "pci-0000:c0:00.1"])]
    #[case(Some(""), &[])]
    #[case(Some(" "), &[])]
    fn visible_devices_filter_and_order(#[case] value: Option<&str>, #[case] expected: &[&str]) {
        let inventory = Inventory::new(four(), value).unwrap();
        let found: Vec<(usize, &str)> = inventory.npus.iter().map(|npu| (npu.ordinal, npu.id.as_str())).collect();
        assert_eq!(found, expected.iter().copied().enumerate().collect::<Vec<_>>());
        assert_eq!(inventory.listings().unwrap().len(), expected.len());
    }

    #[test]
    fn ordinals_count_the_visible_devices() {
        let inventory = Inventory::new(four(), Some("3,1")).unwrap();
        assert_eq!(select(&inventory, "xdna:0").unwrap(), ["pci-0000:c3:00.1"]);
        assert_eq!(select(&inventory, "xdna").unwrap(), ["pci-0000:c3:00.1"]);
        let text = inventory.select(&uri("xdna:2")).unwrap_err().to_string();
        assert!(text.contains("; AIE_HAL_VISIBLE_DEVICES hides 2"), "{text}");
        let text = inventory.select(&uri("xdna://pci-0000:c2:00.1")).unwrap_err().to_string();
        assert!(text.starts_with("no device for"), "{text}");
    }

    #[test]
    fn hiding_everything_is_reported() {
        let text = Inventory::new(four(), Some("")).unwrap().select(&uri("xdna")).unwrap_err().to_string();
        assert!(text.contains("AIE_HAL_VISIBLE_DEVICES hides all 4 NPUs; change or unset it"), "{text}");
    }

    #[rstest]
    #[case("4", "\"4\": `4` names no NPU; this machine has 4: 0 = xdna://pci-0000:c0:00.1")]
    #[case("1,,3", "\"1,,3\": a comma without an NPU on both sides")]
    #[case("1,pci-0000:c1:00.1", "\"1,pci-0000:c1:00.1\": `pci-0000:c1:00.1` names pci-0000:c1:00.1 a second time")]
    fn a_wrong_visible_entry_is_an_error(#[case] value: &str, #[case] expected: &str) {
        let error = Inventory::new(four(), Some(value)).unwrap_err();
        let DriverError::InvalidParameter { name, reason, .. } = error else { panic!("{error}") };
        assert_eq!(name, AIE_HAL_VISIBLE_DEVICES.name);
        assert!(reason.starts_with(expected), "{reason}");
    }

    #[rstest]
    #[case(0, "\"5\": `5` names no NPU, and this machine has none; unset it")]
    #[case(1, "\"5\": `5` names no NPU; this machine has one: 0 = xdna://pci-0000:c0:00.1")]
    fn fewer_npus_than_named_are_said(#[case] count: usize, #[case] expected: &str) {
        let npus = four().into_iter().take(count).collect();
        let error = Inventory::new(npus, Some("5")).unwrap_err();
        let DriverError::InvalidParameter { reason, .. } = error else { panic!("{error}") };
        assert!(reason.starts_with(expected), "{reason}");
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(Params::of(&uri("xdna:0")).unwrap(), Params { devices: 1, ..Params::default() });
        assert_eq!(
            Params::of(&uri("xdna:0?chain=8")).unwrap(),
            Params { chain: Some(8), devices: 1, ..Params::default() }
        );
        let rocr = Params { route: Some(Route::Rocr), devices: 1, ..Params::default() };
        assert_eq!(Params::of(&uri("xdna:0?runtime=rocr")).unwrap(), rocr);
        let message = |text: &str| Params::of(&uri(text)).unwrap_err().to_string();
        assert!(message("xdna?runtime=xrt").ends_with("`xrt` is not valid, expected `direct` or `rocr`"));
        assert!(message("xdna?devices").ends_with("`` is not valid, expected a number from 1 to 64"));
        assert!(
            message("xdna?chains=1")
                .ends_with("unknown; `xdna` takes: runtime, devices, logical, memory, chain, libhsa")
        );
        assert!(message("xdna?libhsa=").contains("it is empty; expected a path"));
        assert!(message("xdna?libhsa=/a%").contains("write `%25`"));
        assert!(message("xdna?runtime=direct&libhsa=/a").contains("`runtime=direct` loads no runtime library"));
        let params = Params::of(&uri("xdna:0?libhsa=/opt/my%20rocm")).unwrap();
        assert_eq!(params.libhsa.as_ref().unwrap().1, PathBuf::from("/opt/my rocm"));
        assert_eq!(params.route, Some(Route::Rocr));
        let opened = params.uri_of(&npu(0, false), 0).unwrap();
        assert_eq!(Params::of(&opened).unwrap(), params, "a device's own URI opens it the same way");
        let text = message("xdna?isolate=true");
        assert!(text.contains("always in this process") && text.contains("remove it"), "{text}");
    }
}
