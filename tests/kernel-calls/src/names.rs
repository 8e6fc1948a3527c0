//! What stands in a record for numbers that differ from run to run: handles, addresses, times.

use amdxdna_sys::AMDXDNA_INVALID_ADDR;
use amdxdna_sys::limits::{DEV_MEM_BASE, DEV_MEM_SIZE, PAGE};
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;

/// An address in no process: what scripts give for a pointer that leads nowhere.
pub const NOWHERE: u64 = 0x10;
/// Numbers below are not taken for addresses.
const SMALL: u64 = 0x1_0000;
/// Device addresses up to here are the heap's: it can grow on npu4.
const HEAP_LIMIT: u64 = DEV_MEM_BASE + 8 * DEV_MEM_SIZE as u64;

/// Kinds of handles. Each kind has numbers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandleKind {
    Bo,
    Context,
    Syncobj,
    Descriptor,
}

impl HandleKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Bo => "bo",
            Self::Context => "context",
            Self::Syncobj => "syncobj",
            Self::Descriptor => "fd",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Handle(HandleKind),
    Pointer,
    MapOffset,
    HostAddress,
    DeviceAddress,
    Deadline,
    Time,
    Process,
}

fn kind(request: &str, field: &str) -> Kind {
    use Kind::*;
    match (request, field) {
        ("GET_BO_INFO", "vaddr") => HostAddress,
        ("CREATE_BO", "vaddr") => Pointer,
        (_, "map_offset") => MapOffset,
        (_, "xdna_addr") => DeviceAddress,
        ("CREATE_HWCTX" | "DESTROY_HWCTX" | "CONFIG_HWCTX", "handle") | (_, "hwctx") => Handle(HandleKind::Context),
        (_, "syncobj_handle" | "src_handle" | "dst_handle") => Handle(HandleKind::Syncobj),
        (request, "handle") if request.starts_with("SYNCOBJ") => Handle(HandleKind::Syncobj),
        (_, "handle" | "cu_bo" | "cmd_handles" | "umq_bo" | "log_buf_bo") => Handle(HandleKind::Bo),
        (_, "fd") => Handle(HandleKind::Descriptor),
        (_, "buffer" | "qos_p" | "param_val" | "args" | "handles" | "points" | "name" | "date" | "desc") => Pointer,
        (_, "timeout_nsec" | "deadline_nsec") => Deadline,
        (_, "ts_us") => Time,
        (_, "pid") => Process,
        _ => Number,
    }
}

pub type Handles = HashMap<(HandleKind, u64), String>;

/// The names that a script's run has given.
#[derive(Debug, Default)]
pub struct Names {
    /// Those of the file that is in use.
    pub handles: Handles,
    given: HashMap<HandleKind, usize>,
    /// Address and bytes of what is or was mapped, newest last.
    mapped: Vec<(u64, u64)>,
}

impl Names {
    pub fn mapped(&mut self, address: u64, bytes: usize) {
        self.mapped.push((address, bytes as u64));
    }

    /// The name of a handle; its number when no call has returned it.
    pub fn known(&self, space: HandleKind, handle: u64) -> Value {
        self.handles.get(&(space, handle)).map_or_else(|| number(handle), |name| Value::from(name.as_str()))
    }

    fn is_known(&self, space: HandleKind, handle: u64) -> bool {
        self.handles.contains_key(&(space, handle))
    }

    /// Gives a handle that was just returned the next name of its kind.
    fn new_handle(&mut self, space: HandleKind, handle: u64) -> Value {
        let given = self.given.entry(space).or_default();
        *given += 1;
        let name = format!("{}{given}", space.prefix());
        self.handles.insert((space, handle), name.clone());
        Value::from(name)
    }

    /// A field before the call.
    pub fn input(&self, request: &str, field: &str, value: u64, now: Duration) -> Value {
        match kind(request, field) {
            // How many files a process has open is its own matter.
            Kind::Handle(HandleKind::Descriptor)
                if (3..100).contains(&value) && !self.is_known(HandleKind::Descriptor, value) =>
            {
                "another file".into()
            }
            Kind::Handle(space) => self.known(space, value),
            Kind::Pointer if value == NOWHERE => "nowhere".into(),
            Kind::Pointer if value >= SMALL => "pointer".into(),
            Kind::Deadline if value == i64::MAX as u64 => "never".into(),
            Kind::Deadline if (value as i64) < now.as_nanos() as i64 => "past".into(),
            Kind::Deadline => "future".into(),
            _ => number(value),
        }
    }

    /// A field that the call has changed.
    pub fn output(&mut self, request: &str, field: &str, value: u64) -> Value {
        match kind(request, field) {
            Kind::Handle(_) if matches!(value, 0 | 0xffff_ffff | u64::MAX) => number(value),
            // A request that finds a handle which exists is worth seeing.
            Kind::Handle(space) if request.contains("FD_TO_HANDLE") && self.is_known(space, value) => {
                format!("again {}", self.handles[&(space, value)]).into()
            }
            Kind::Handle(space) => self.new_handle(space, value),
            Kind::MapOffset | Kind::HostAddress | Kind::DeviceAddress if value == AMDXDNA_INVALID_ADDR => "none".into(),
            Kind::MapOffset => aligned("offset", value),
            Kind::HostAddress => self.host(value),
            Kind::DeviceAddress if (DEV_MEM_BASE..HEAP_LIMIT).contains(&value) => {
                format!("heap+{:#x}", value - DEV_MEM_BASE).into()
            }
            Kind::DeviceAddress => self.host(value),
            Kind::Time if value != 0 => "a time".into(),
            Kind::Process if value == u64::from(std::process::id()) => "own".into(),
            _ => number(value),
        }
    }

    fn host(&self, value: u64) -> Value {
        let found = self.mapped.iter().rev().find(|(start, bytes)| (*start..start + bytes).contains(&value));
        match found {
            Some((start, _)) if *start == value => "where it is mapped".into(),
            Some((start, _)) => format!("mapped+{:#x}", value - start).into(),
            None => aligned("address", value),
        }
    }
}

/// A number of which only the alignment counts.
fn aligned(what: &str, value: u64) -> Value {
    match value {
        0 => number(0),
        _ if value.is_multiple_of(PAGE as u64) => what.into(),
        _ => format!("unaligned {what}").into(),
    }
}

/// A number; those that stand for "all bits" by that name.
pub fn number(value: u64) -> Value {
    match value {
        u64::MAX => "-1".into(),
        0xffff_ffff => "-1 (32 bits)".into(),
        _ => value.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_named_in_the_order_of_their_appearance() {
        let mut names = Names::default();
        assert_eq!(names.output("CREATE_BO", "handle", 17), "bo1");
        assert_eq!(names.output("CREATE_HWCTX", "handle", 17), "context1");
        assert_eq!(names.known(HandleKind::Bo, 17), "bo1");
        assert_eq!(names.input("EXEC_CMD", "cmd_handles", 17, Duration::ZERO), "bo1");
        assert_eq!(names.known(HandleKind::Bo, 18), 18);
        // A number that is given again is something new, unless it is looked up.
        assert_eq!(names.output("PRIME_FD_TO_HANDLE", "handle", 17), "again bo1");
        assert_eq!(names.output("CREATE_BO", "handle", 17), "bo2");
        assert_eq!(names.output("CREATE_BO", "handle", 0), 0);
    }

    #[test]
    fn addresses_are_named_by_what_they_are() {
        let mut names = Names::default();
        names.mapped(0x7f00_0000_0000, 8192);
        let mut shown = |field, value| names.output("GET_BO_INFO", field, value);
        assert_eq!(shown("vaddr", 0x7f00_0000_0000), "where it is mapped");
        assert_eq!(shown("xdna_addr", 0x7f00_0000_1000), "mapped+0x1000");
        assert_eq!(shown("xdna_addr", 0x400_8000), "heap+0x8000");
        assert_eq!(shown("xdna_addr", 0xffff_0000), "address");
        assert_eq!(shown("map_offset", u64::MAX), "none");
        assert_eq!(shown("map_offset", 0x1_0000_0010), "unaligned offset");
    }

    #[test]
    fn times_and_pointers_are_named_by_their_kind() {
        let names = Names::default();
        let shown = |field, value| names.input("SYNCOBJ_TIMELINE_WAIT", field, value, Duration::from_nanos(100));
        assert_eq!(shown("timeout_nsec", 99), "past");
        assert_eq!(shown("timeout_nsec", 101), "future");
        assert_eq!(shown("timeout_nsec", i64::MAX as u64), "never");
        assert_eq!(shown("points", NOWHERE), "nowhere");
        assert_eq!(shown("points", 0x7fff_0000_0000), "pointer");
        assert_eq!(shown("count_handles", 3), 3);
    }
}
