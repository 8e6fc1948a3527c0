//! Makes the calls of a script and writes a record of each.

use crate::names::{HandleKind, Handles, Names, number};
use crate::record::Record;
use crate::sys::{self, Errno, Map, Mapping};
use amdxdna_sys::layout::{self, Struct};
use amdxdna_sys::{Request, RequestCode};
use bytemuck::{Pod, bytes_of, bytes_of_mut};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

type Fields = serde_json::Map<String, Value>;

/// A second open file of the node, with the names of its handles.
#[derive(Debug)]
pub struct Other {
    file: Option<File>,
    handles: Handles,
}

/// An open node, and what the script on it has done so far.
#[derive(Debug)]
pub struct Probe {
    node: PathBuf,
    file: Option<File>,
    script: String,
    step: usize,
    /// Calls that only prepare are not recorded while this is not 0.
    quiet: usize,
    /// The first call of a preparation that failed.
    failed: Option<String>,
    /// What goes into the next record beside the structure's fields.
    extra: Fields,
    /// A field of the next answer that is not recorded.
    chance: Option<&'static str>,
    /// What differs from run to run.
    pub names: Names,
}

impl Probe {
    pub fn new(node: &Path, script: &str) -> Self {
        let mut probe = Self {
            node: node.to_owned(),
            file: None,
            script: script.to_owned(),
            step: 0,
            quiet: 0,
            failed: None,
            extra: Fields::new(),
            chance: None,
            names: Names::default(),
        };
        probe.open(true);
        probe
    }

    /// Opens the node (once more) for reading, and writing if wanted. The file before goes away with everything in it.
    pub fn open(&mut self, writable: bool) {
        self.file = None;
        self.names.handles.retain(|(space, _), _| *space == HandleKind::Descriptor);
        self.file = self.open_node(writable);
    }

    /// Opens the node beside the file that is open.
    pub fn another(&mut self) -> Option<Other> {
        let file = self.open_node(true)?;
        Some(Other { file: Some(file), handles: Handles::new() })
    }

    fn open_node(&mut self, writable: bool) -> Option<File> {
        let result = OpenOptions::new().read(true).write(writable).open(&self.node);
        let result = result.map_err(|error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or_default()));
        self.extra.insert("write".into(), writable.into());
        self.record("open", None, Fields::new(), &result, Fields::new());
        result.ok()
    }

    /// Makes `work`'s calls on another open file.
    pub fn on<R>(&mut self, other: &mut Other, work: impl FnOnce(&mut Self) -> R) -> R {
        self.swap(other);
        let result = work(self);
        self.swap(other);
        result
    }

    fn swap(&mut self, other: &mut Other) {
        std::mem::swap(&mut self.file, &mut other.file);
        std::mem::swap(&mut self.names.handles, &mut other.handles);
    }

    pub fn close_file(&mut self) {
        self.file = None;
        self.names.handles.retain(|(space, _), _| *space == HandleKind::Descriptor);
        let closed: Result<(), Errno> = Ok(());
        self.record("close", None, Fields::new(), &closed, Fields::new());
    }

    /// Makes calls that are not recorded; one record says whether all of them succeeded.
    pub fn prepare<R>(&mut self, what: &str, work: impl FnOnce(&mut Self) -> R) -> R {
        self.failed = None;
        let result = self.quietly(work);
        if self.quiet == 0 {
            let failed = self.failed.take();
            let input = std::iter::once(("what".to_owned(), what.into())).collect();
            self.print("prepare", None, failed.unwrap_or_else(|| "ok".into()), input, Fields::new());
        }
        result
    }

    pub fn quietly<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        self.quiet += 1;
        let result = work(self);
        self.quiet -= 1;
        result
    }

    /// Records something that is not a call.
    pub fn note(&mut self, what: &str, value: impl Into<Value>) {
        self.look(what, None, std::iter::once(("value".to_owned(), value.into())).collect());
    }

    fn look(&mut self, what: &str, structure: Option<&str>, output: Fields) {
        let input = std::iter::once(("what".to_owned(), what.into())).collect();
        self.print("look", structure, "ok".into(), input, output);
    }

    /// Records the fields of a structure that the kernel has filled.
    pub fn show<T: Pod>(&mut self, what: &str, value: &T) {
        let Some(structure) = structure_of::<T>() else { return };
        let zeros = vec![0; size_of::<T>()];
        let output = self.changed(structure.name, structure, &zeros, bytes_of(value));
        self.look(what, Some(structure.name), output);
    }

    /// Adds something to the next record.
    pub fn with(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        self.extra.insert(name.into(), value.into());
        self
    }

    /// Leaves a field out of the next record, because it differs from run to run on the same kernel.
    pub fn by_chance(&mut self, field: &'static str) -> &mut Self {
        self.chance = Some(field);
        self
    }

    /// Adds a list of handles to the next record.
    pub fn with_handles(&mut self, name: &str, space: HandleKind, handles: &[u32]) -> &mut Self {
        let names: Vec<Value> =
            handles.iter().take(8).map(|handle| self.names.known(space, (*handle).into())).collect();
        self.with(name, names)
    }

    pub fn call<T: Request>(&mut self, value: &mut T) -> Result<(), Errno> {
        self.named(T::NAME, value)
    }

    /// Makes requests whose errors nothing follows from.
    pub fn call_each<T: Request>(&mut self, values: impl IntoIterator<Item = T>) {
        for mut value in values {
            let _ = self.call(&mut value);
        }
    }

    /// Makes the request with this name; some structures serve several.
    pub fn named<T: Pod>(&mut self, name: &str, value: &mut T) -> Result<(), Errno> {
        let request = layout::ioctls().find(|ioctl| ioctl.name == name);
        let code = request.unwrap_or_else(|| panic!("{name} is no request of amdxdna-sys")).code;
        let before = bytes_of(value).to_vec();
        let structure = structure_of::<T>();
        let input = structure.map(|structure| self.given(name, structure, &before)).unwrap_or_default();
        let result = self.file().and_then(|file| sys::ioctl(file, code.0, bytes_of_mut(value)));
        let output = structure.map(|found| self.changed(name, found, &before, bytes_of(value))).unwrap_or_default();
        self.record(name, structure.filter(|found| !is_own(name, found)).map(|s| s.name), input, &result, output);
        result
    }

    /// Makes a request with any code and any address.
    pub fn raw(&mut self, what: &str, code: RequestCode, address: u64) {
        let result = self.file().and_then(|file| sys::ioctl_at(file, code.0, address));
        self.with("what", what);
        self.record("ioctl", None, Fields::new(), &result, Fields::new());
    }

    /// Maps something of the node.
    pub fn map(&mut self, what: &str, how: Map) -> Option<Mapping> {
        let result = self.file().and_then(|file| Mapping::of(file, how));
        self.with("what", what).with("bytes", how.bytes);
        if how.flags != libc::MAP_SHARED {
            self.with("private", true);
        }
        if how.protection != libc::PROT_READ | libc::PROT_WRITE {
            self.with("protection", how.protection);
        }
        self.record("mmap", None, Fields::new(), &result, Fields::new());
        let mapping = result.ok()?;
        self.names.mapped(mapping.number(), mapping.bytes());
        Some(mapping)
    }

    /// Makes the calls in a forked process, which has the same open file.
    pub fn in_fork(&mut self, work: impl FnOnce(&mut Self)) {
        let ended = sys::in_child(|| {
            self.script.push_str(" (child)");
            self.step = 0;
            work(self);
        });
        self.note("the child ended", ended);
    }

    fn file(&self) -> Result<&File, Errno> {
        self.file.as_ref().ok_or(Errno::EBADF)
    }

    fn record<T>(
        &mut self,
        call: &str,
        structure: Option<&str>,
        mut input: Fields,
        result: &Result<T, Errno>,
        mut output: Fields,
    ) {
        input.append(&mut self.extra);
        if let Some(field) = self.chance.take() {
            output.remove(field);
        }
        let result = result.as_ref().map_or_else(|errno| sys::name(*errno), |_| "ok".into());
        if self.quiet > 0 {
            if result != "ok" && self.failed.is_none() {
                self.failed = Some(format!("{call}: {result}"));
            }
            return;
        }
        self.print(call, structure, result, input, output);
    }

    fn print(&mut self, call: &str, structure: Option<&str>, result: String, input: Fields, output: Fields) {
        if self.quiet > 0 {
            return;
        }
        self.step += 1;
        let (script, structure) = (self.script.clone(), structure.map(str::to_owned));
        let record = Record { script, step: self.step, call: call.into(), structure, input, result, output };
        let mut line = serde_json::to_string(&record).expect("records are plain");
        line.push('\n');
        let mut out = io::stdout().lock();
        // Each line must be out before the next call, which may be the last that this process makes.
        let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        if written.is_err() {
            // The reader is gone.
            std::process::exit(1);
        }
    }

    fn given(&self, request: &str, structure: &Struct, bytes: &[u8]) -> Fields {
        let now = sys::now();
        let fields = structure.fields.iter().filter_map(|field| {
            let bytes = &bytes[field.offset..field.offset + field.size];
            let value =
                integer(bytes).map_or_else(|| text(bytes), |n| self.names.input(request, field.c_name(), n, now));
            bytes.iter().any(|byte| *byte != 0).then(|| (field.c_name().to_owned(), value))
        });
        fields.collect()
    }

    fn changed(&mut self, request: &str, structure: &Struct, before: &[u8], after: &[u8]) -> Fields {
        let mut fields = Fields::new();
        for field in structure.fields {
            let range = field.offset..field.offset + field.size;
            if before[range.clone()] == after[range.clone()] {
                continue;
            }
            let bytes = &after[range];
            let value = integer(bytes);
            let value = value.map_or_else(|| text(bytes), |n| self.names.output(request, field.c_name(), n));
            fields.insert(field.c_name().to_owned(), value);
        }
        fields
    }
}

/// Whether a structure belongs to one request only, whose name says which it is.
fn is_own(request: &str, structure: &Struct) -> bool {
    structure.name.ends_with(&request.to_ascii_lowercase())
}

fn structure_of<T>() -> Option<&'static Struct> {
    let name = std::any::type_name::<T>().rsplit("::").next()?;
    layout::structs().find(|structure| structure.name == name)
}

fn integer(bytes: &[u8]) -> Option<u64> {
    Some(match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        _ => u64::from_le_bytes(bytes.try_into().ok()?),
    })
}

/// Text, or numbers of two bytes: what the kernel's arrays hold.
fn text(bytes: &[u8]) -> Value {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    if end > 0 && bytes[..end].iter().all(|byte| (b' '..=b'~').contains(byte)) && bytes[end..].iter().all(|b| *b == 0) {
        return String::from_utf8_lossy(&bytes[..end]).into();
    }
    let pairs = bytes.chunks(2).map(|pair| number(pair.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))));
    pairs.collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use amdxdna_sys::{amdxdna_drm_create_bo, drm_prime_handle};

    #[test]
    fn structures_are_found_by_their_type() {
        assert_eq!(structure_of::<amdxdna_drm_create_bo>().unwrap().fields.len(), 5);
        assert!(structure_of::<u32>().is_none());
        assert!(is_own("CREATE_BO", structure_of::<amdxdna_drm_create_bo>().unwrap()));
        assert!(!is_own("PRIME_FD_TO_HANDLE", structure_of::<drm_prime_handle>().unwrap()));
    }

    #[test]
    fn arrays_are_text_or_numbers() {
        assert_eq!(text(b"H Clock\0\0\0"), "H Clock");
        assert_eq!(text(&[1, 0, 2, 1]), serde_json::json!([1, 258]));
        assert_eq!(integer(&[1, 2]), Some(0x201));
        assert_eq!(integer(&[0; 3]), None);
    }
}
