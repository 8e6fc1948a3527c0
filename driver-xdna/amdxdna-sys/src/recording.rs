//! Calls as lines of text, without addresses: what a driver has asked of the kernel and was answered, to be repeated elsewhere.
//!
//! ```text
//! CREATE_BO size=4096 type=1 = ok handle=3
//! GET_INFO buffer_size=16 param=8 = ok major=1 minor=5 patch=5 build=391
//! CREATE_HWCTX max_opc=2048 num_tiles=16 = EINVAL
//! ```
//!
//! A line has the call's name, the fields that the caller gave, ` = `, `ok` or the name of the error, and the fields that the call has
//! changed. Fields of a structure have their names in C and are left out while they are zero; addresses and times are left out always.
//! `data` is memory beside the structure, in hexadecimal.
//!
//! Besides requests there are [`OPEN`], [`MMAP`], and [`WRITE`] and [`READ`], by which the driver notes what it has put into a BO before
//! a submission and found in it after.

use crate::layout::{self, Ioctl, Struct, ioctls};
use crate::{AMDXDNA_INVALID_ADDR, accel, amdxdna_drm_get_bo_info};
use std::fmt;
use std::str::FromStr;

/// The node was opened.
pub const OPEN: &str = "OPEN";
/// A BO was mapped; `handle` and `length`.
pub const MMAP: &str = "MMAP";
/// The driver has written `data` to the start of the BO `handle`.
pub const WRITE: &str = "WRITE";
/// The driver has found `data` at the start of the BO `handle`.
pub const READ: &str = "READ";
/// Name of the field for memory beside a structure.
pub const DATA: &str = "data";
/// Name of the field that says that a BO is made of the caller's memory.
pub const USER_MEMORY: &str = "user_memory";
/// Name of the field for the one object of a wait.
pub const TIMELINE: &str = "timeline";
/// Name of the field for the point of it.
pub const POINT: &str = "point";
/// Result of a call that succeeded.
pub const OK: &str = "ok";

/// Where the device sees a BO: `none`, `pointer` as the process does, or elsewhere.
const DEVICE_ADDRESS: &str = "device_address";
/// Addresses below this are in the device heap, whose place is the same in every process.
const HEAP_END: u64 = 1 << 32;

/// Fields that hold addresses of this process or times, offsets for mapping, which are as good as addresses, and what a wait found signaled
/// already, which is a matter of time.
const LEFT_OUT: [&str; 17] = [
    "args",
    "buffer",
    "date",
    "deadline_nsec",
    "desc",
    "first_signaled",
    "handles",
    "map_offset",
    "name",
    "param_val",
    "points",
    "qos_p",
    "timeout",
    "timeout_nsec",
    "vaddr",
    "xdna_addr",
    "ext",
];

/// Names and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(String, String)>);

impl Fields {
    /// A value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A value as a number; 0 when there is none.
    pub fn number(&self, name: &str) -> u64 {
        self.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// The value of [`DATA`]; empty when there is none.
    pub fn data(&self) -> Vec<u8> {
        let text = self.get(DATA).unwrap_or_default().as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        text.chunks(2).map_while(byte).collect()
    }

    /// Adds a value.
    pub fn push(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    /// Adds [`DATA`].
    pub fn push_data(&mut self, bytes: &[u8]) {
        self.push(DATA, hexadecimal(bytes));
    }

    /// The fields of a structure that are not zero, and not in `except`.
    fn of(structure: &Struct, bytes: &[u8], except: &[&str]) -> Self {
        let mut fields = Self::default();
        for field in structure.fields.iter().filter(|field| !except.contains(&field.c_name())) {
            let value = bytes.get(field.offset..field.offset + field.size).unwrap_or_default();
            if value.iter().all(|byte| *byte == 0) {
                continue;
            }
            match field.size {
                ..=8 => fields.push(field.c_name(), number(value)),
                _ => fields.push(field.c_name(), hexadecimal(value)),
            }
        }
        fields
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// A call with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// Name of the request, or one of this module.
    pub name: String,
    /// What the caller gave.
    pub given: Fields,
    /// [`OK`], or the error's name.
    pub result: String,
    /// What the call has changed.
    pub answered: Fields,
}

/// A text is not the line of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoCall(String);

impl fmt::Display for NoCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not the line of a call: NAME FIELD=VALUE ... = RESULT FIELD=VALUE ...", self.0)
    }
}

impl std::error::Error for NoCall {}

impl RecordedCall {
    /// A call that is no request.
    pub fn new(name: &str, given: Fields, result: &str) -> Self {
        Self { name: name.to_owned(), given, result: result.to_owned(), answered: Fields::default() }
    }

    /// The request `call` with its structure before and after it.
    pub fn of(call: &Ioctl, before: &[u8], after: &[u8], result: &str) -> Self {
        let mut recorded = Self::new(call.name, Fields::default(), result);
        let Some(structure) = layout::structure(call.structure) else { return recorded };
        recorded.given = Fields::of(structure, before, &LEFT_OUT);
        let is_same = |field: &crate::declaration::Field| {
            let place = field.offset..field.offset + field.size;
            before.get(place.clone()) == after.get(place)
        };
        let same = structure.fields.iter().filter(|field| is_same(field)).map(|field| field.c_name());
        recorded.answered = Fields::of(structure, after, &same.chain(LEFT_OUT).collect::<Vec<_>>());
        let field = |name: &str, bytes: &[u8]| {
            let field = structure.fields.iter().find(|field| field.rust_name == name)?;
            bytes.get(field.offset..field.offset + field.size).map(number)
        };
        match call.name {
            "CREATE_BO" if field("vaddr", before) != Some(0) => recorded.given.push(USER_MEMORY, 1),
            "GET_BO_INFO" if result == OK => {
                let info: amdxdna_drm_get_bo_info = bytemuck::pod_read_unaligned(after);
                recorded.answered.push(DEVICE_ADDRESS, place(&info));
            }
            _ => {}
        }
        recorded
    }

    /// The request of this name, and its structure as the caller gave it, without addresses. `None` for a call that is no request.
    pub fn request(&self) -> Option<(&'static Ioctl, Vec<u8>)> {
        let call = ioctls().find(|call| call.name == self.name)?;
        let mut bytes = vec![0; call.code.bytes()];
        let fields = layout::structure(call.structure)?.fields.iter();
        for field in fields.filter(|field| !LEFT_OUT.contains(&field.c_name())) {
            let value = self.given.number(field.c_name()).to_le_bytes();
            if field.size <= value.len() {
                bytes[field.offset..field.offset + field.size].copy_from_slice(&value[..field.size]);
            }
        }
        Some((call, bytes))
    }

    /// Adds what GET_INFO has answered: the fields of a structure, or what is in memory.
    pub fn inform(&mut self, bytes: &[u8]) {
        let structure = ANSWERS.iter().find(|(param, _)| u64::from(*param) == self.given.number("param"));
        match structure.and_then(|(_, name)| layout::structure(name)) {
            Some(structure) => self.answered.0.extend(Fields::of(structure, bytes, &[]).0),
            None => self.answered.push_data(bytes),
        }
    }
}

/// What GET_INFO answers with, by what it is asked.
const ANSWERS: [(u32, &str); 5] = [
    (accel::DRM_AMDXDNA_QUERY_AIE_METADATA, "amdxdna_drm_query_aie_metadata"),
    (accel::DRM_AMDXDNA_QUERY_AIE_VERSION, "amdxdna_drm_query_aie_version"),
    (accel::DRM_AMDXDNA_QUERY_FIRMWARE_VERSION, "amdxdna_drm_query_firmware_version"),
    (accel::DRM_AMDXDNA_GET_POWER_MODE, "amdxdna_drm_get_power_mode"),
    (accel::DRM_AMDXDNA_QUERY_RESOURCE_INFO, "amdxdna_drm_get_resource_info"),
];

/// Where the device sees a BO, as far as that is the same in every process.
fn place(info: &amdxdna_drm_get_bo_info) -> String {
    match info.xdna_addr {
        0 | AMDXDNA_INVALID_ADDR => "none".to_owned(),
        address if address == info.vaddr => "pointer".to_owned(),
        address if address < HEAP_END => format!("{address:#x}"),
        _ => "own".to_owned(),
    }
}

impl fmt::Display for RecordedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, given, result, answered } = self;
        write!(f, "{name}{given} = {result}{answered}")
    }
}

impl FromStr for RecordedCall {
    type Err = NoCall;

    fn from_str(text: &str) -> Result<Self, NoCall> {
        let wrong = || NoCall(text.to_owned());
        let words = |text: &str| {
            let mut words = text.split_whitespace();
            let first = words.next().ok_or_else(wrong)?.to_owned();
            let field = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            let fields: Option<Vec<_>> = words.map(field).collect();
            Ok((first, Fields(fields.ok_or_else(wrong)?)))
        };
        let (given, answered) = text.split_once(" = ").ok_or_else(wrong)?;
        let ((name, given), (result, answered)) = (words(given)?, words(answered)?);
        Ok(Self { name, given, result, answered })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, amdxdna_drm_create_bo, amdxdna_drm_get_info};
    use bytemuck::{Pod, bytes_of};

    fn of<T: Request + Pod>(before: &T, after: &T, result: &str) -> RecordedCall {
        let call = ioctls().find(|call| call.code == T::CODE).unwrap();
        RecordedCall::of(call, bytes_of(before), bytes_of(after), result)
    }

    #[test]
    fn a_line_has_what_was_given_and_what_changed_and_no_address() {
        let before = amdxdna_drm_create_bo { vaddr: 0x7f00_0000, size: 4096, type_: 1, ..Default::default() };
        let call = of(&before, &amdxdna_drm_create_bo { handle: 3, ..before }, OK);
        assert_eq!(call.to_string(), "CREATE_BO size=4096 type=1 user_memory=1 = ok handle=3");
        assert_eq!(call.to_string().parse(), Ok(call));
    }

    #[test]
    fn a_line_becomes_its_request_again() {
        let call: RecordedCall = "CREATE_BO size=4096 type=1 = ENOMEM".parse().unwrap();
        let (request, bytes) = call.request().unwrap();
        let expected = amdxdna_drm_create_bo { size: 4096, type_: 1, ..Default::default() };
        assert_eq!((request.name, bytes.as_slice()), ("CREATE_BO", bytes_of(&expected)));
        assert!(RecordedCall::new(OPEN, Fields::default(), OK).request().is_none());
    }

    #[test]
    fn what_the_kernel_tells_is_shown_by_field() {
        let info = amdxdna_drm_get_info { param: 8, buffer_size: 16, buffer: 0x7f00_0000 };
        let mut call = of(&info, &info, OK);
        call.inform(bytes_of(&crate::amdxdna_drm_query_firmware_version { major: 1, minor: 5, patch: 0, build: 391 }));
        assert_eq!(call.to_string(), "GET_INFO param=8 buffer_size=16 = ok major=1 minor=5 build=391");
        let info = amdxdna_drm_get_info { param: 999, ..info };
        let mut call = of(&info, &info, OK);
        call.inform(&[1, 0xab]);
        assert_eq!((call.answered.data(), call.answered.get(DATA)), (vec![1, 0xab], Some("01ab")));
    }

    #[test]
    fn addresses_of_the_device_are_of_a_kind() {
        let info = |vaddr, xdna_addr| amdxdna_drm_get_bo_info { vaddr, xdna_addr, handle: 1, ..Default::default() };
        let seen =
            |info| of(&amdxdna_drm_get_bo_info::default(), &info, OK).answered.get(DEVICE_ADDRESS).map(str::to_owned);
        assert_eq!(seen(info(u64::MAX, u64::MAX)).as_deref(), Some("none"));
        assert_eq!(seen(info(0x7f12_3456_0000, 0x7f12_3456_0000)).as_deref(), Some("pointer"));
        assert_eq!(seen(info(u64::MAX, 0x400_1000)).as_deref(), Some("0x4001000"));
        assert_eq!(seen(info(0x7f12_3456_0000, 1 << 33)).as_deref(), Some("own"));
    }

    #[test]
    fn what_is_no_line_is_quoted() {
        for text in ["", "CREATE_BO", "CREATE_BO size = ok", " = "] {
            let error = text.parse::<RecordedCall>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not")), "{error}");
        }
    }
}
