//! Repeats recorded calls on a simulated device and compares the answers, in this process and without any preloading.
//!
//! What a program has recorded on a machine ([`amdxdna_sys::recording`]) becomes a test of the simulation: the device is set up like that
//! machine's, each call is made again, and each answer that differs is one that the simulated kernel gives and the real one does not.
//! Handles are those of the record: kernel and simulation both give the lowest that is free.

use crate::journal::Journal;
use crate::kernel::KernelVersion;
use crate::node::{Descriptors, Device, File, MapRequest, Mappings, ioctl};
use crate::settings::Settings;
use crate::user_access::UserMemory;
use aie_hal::KernelExecutor;
use amdxdna_sys::limits::{DEV_MEM_SIZE, PAGE};
use amdxdna_sys::recording::{DATA, MMAP, OK, OPEN, POINT, READ, RecordedCall, TIMELINE, USER_MEMORY, WRITE};
use amdxdna_sys::{amdxdna_drm_va_entry, amdxdna_drm_va_tbl, amdxdna_qos_info, layout};
use bytemuck::bytes_of;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// A call whose answer differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its place in the record, from 1 on.
    pub call: usize,
    /// The line of the record.
    pub recorded: String,
    /// The line as it is now.
    pub simulated: String,
}

/// Why nothing was compared, or not all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The record's machine cannot be simulated.
    #[error("this machine cannot be simulated: {0}")]
    Machine(String),
    /// A call cannot be repeated.
    #[error("call {call}, `{line}`, cannot be repeated: {reason}")]
    Call {
        /// Its place in the record, from 1 on.
        call: usize,
        /// Its line.
        line: String,
        /// Why.
        reason: String,
    },
}

/// The machine of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Name of the NPU's generation.
    pub arch: String,
    /// Its PCI device id and revision.
    pub pci: (u16, u8),
    /// Its firmware's version, `A.B.C.D`, when the record has it.
    pub firmware: Option<String>,
}

impl Recorded {
    /// The variables by which a process gets such a machine from [`preload!`](crate::preload): what the calls say of kernel and
    /// addresses, and what is known beside them.
    pub fn variables(&self, calls: &[RecordedCall]) -> BTreeMap<&'static str, String> {
        let kernel = kernel_of(calls);
        let (device, revision) = self.pci;
        let mut machine = vec![format!("pci={device:04x}:{revision:02x}")];
        machine.extend(self.firmware.iter().map(|version| format!("firmware={version}")));
        let has_own = |call: &RecordedCall| call.answered.get("device_address") == Some("own");
        if kernel.profile().iova && calls.iter().any(has_own) {
            machine.push("addresses=iova".to_owned());
        }
        BTreeMap::from([
            ("AMDXDNA_SIM_DEVICES", self.arch.clone()),
            ("AMDXDNA_SIM_KERNEL", kernel.name().to_owned()),
            ("AMDXDNA_SIM_MACHINE", machine.join(",")),
        ])
    }

    /// Repeats `calls`; what the simulated kernel answers otherwise. It ends where opening fails, here or there.
    ///
    /// # Errors
    /// What cannot be simulated, or a line that no driver of this project has recorded.
    pub fn replay(
        &self,
        calls: &[RecordedCall],
        executor: Arc<dyn KernelExecutor>,
    ) -> Result<Vec<Difference>, ReplayError> {
        let wrong = |cause: &dyn std::fmt::Display| ReplayError::Machine(cause.to_string());
        let variables = self.variables(calls);
        let settings = Settings::read(|name| variables.get(name).cloned()).map_err(|cause| wrong(&cause))?;
        let settings = Arc::new(settings);
        let journal = Arc::new(Journal::new(settings.clone()).map_err(|cause| wrong(&cause))?);
        let mappings = Mappings::new(journal.clone());
        let device = settings.devices.first().ok_or_else(|| wrong(&"it has no NPU"))?;
        let device = Device::new(device, &settings, executor, journal, mappings.clone());
        let mut player = Player { device, mappings, file: None, mapped: Vec::new() };
        let mut differences = Vec::new();
        for (index, recorded) in calls.iter().enumerate() {
            let failed = |reason: &str| ReplayError::Call {
                call: index + 1,
                line: recorded.to_string(),
                reason: reason.to_owned(),
            };
            let simulated = player.repeat(recorded).map_err(failed)?;
            if simulated != *recorded {
                let (recorded, simulated) = (recorded.to_string(), simulated.to_string());
                differences.push(Difference { call: index + 1, recorded, simulated });
            }
            if player.file.is_none() {
                break;
            }
        }
        Ok(differences)
    }
}

/// The simulated kernel that is most like the one of a record: its driver says its version.
fn kernel_of(calls: &[RecordedCall]) -> KernelVersion {
    let said = calls.iter().find(|call| call.name == "VERSION" && call.result == OK);
    let version = said.map(|call| (call.answered.number("version_major"), call.answered.number("version_minor")));
    let Some(version) = version else { return KernelVersion::default() };
    let of = |kernel: &KernelVersion| {
        let (major, minor) = kernel.profile().version;
        (major as u64, minor as u64)
    };
    let not_newer = KernelVersion::ALL.into_iter().filter(|kernel| of(kernel) <= version);
    not_newer.max_by_key(of).unwrap_or_default()
}

/// Makes calls on a device.
struct Player {
    device: Arc<Device>,
    mappings: Arc<Mappings>,
    file: Option<Arc<File>>,
    /// Pages to unmap at the end.
    mapped: Vec<Pages>,
}

/// Pages of this process, unmapped when dropped.
struct Pages {
    start: usize,
    length: usize,
}

impl Pages {
    /// Pages without memory, or those at the start of `file`, for reading.
    fn map(length: usize, file: Option<&std::fs::File>) -> Result<Self, Errno> {
        let (flags, prot) = match file {
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, libc::PROT_NONE),
            Some(_) => (libc::MAP_SHARED, libc::PROT_READ),
        };
        let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: the kernel chooses free addresses.
        match unsafe { libc::mmap(std::ptr::null_mut(), length, prot, flags, descriptor, 0) } {
            libc::MAP_FAILED => Err(Errno::last()),
            found => Ok(Self { start: found.expose_provenance(), length }),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped for this object; BOs that the player mapped over them are released before.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.start), self.length) };
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.file = None;
        for pages in &self.mapped {
            self.mappings.remove(pages.start, pages.length);
        }
    }
}

const NOT_OPEN: &str = "the node is not open";

fn name_of<T>(result: &Result<T, Errno>) -> String {
    result.as_ref().map_or_else(|errno| format!("{errno:?}"), |_| OK.to_owned())
}

impl Player {
    /// Makes a call; the line of what happened.
    fn repeat(&mut self, recorded: &RecordedCall) -> Result<RecordedCall, &'static str> {
        let mut now = RecordedCall::new(&recorded.name, recorded.given.clone(), OK);
        if recorded.name == OPEN {
            let opened = File::open(&self.device);
            now.result = name_of(&opened);
            self.file = opened.ok().filter(|_| recorded.result == OK);
            return Ok(now);
        }
        let file = self.file.clone().ok_or(NOT_OPEN)?;
        let given = &recorded.given;
        let bo = || file.bo(given.number("handle") as u32).ok_or("there is no such BO");
        match recorded.name.as_str() {
            MMAP => {
                now.result =
                    name_of(&self.map(&file, given.number("handle") as u32, given.number("length") as usize)?)
            }
            WRITE | READ => {
                let data = given.data();
                let length = if recorded.name == READ { given.number("length") as usize } else { data.len() };
                let bo = bo()?;
                let (memory, start) = bo.memory().ok_or("the BO has no memory")?;
                let span = memory.span(start, length).filter(|_| length <= bo.length());
                let span = span.ok_or("the BO is not as long")?;
                match recorded.name == WRITE {
                    true => span.writable().ok_or("the BO may only be read")?.write(&data),
                    false => now.answered.push_data(&memory.copy(start, length).unwrap_or_default()),
                }
            }
            _ => return self.request(&file, recorded),
        }
        Ok(now)
    }

    /// Maps a BO: a heap at a multiple of its size.
    fn map(&mut self, file: &File, handle: u32, length: usize) -> Result<Result<usize, Errno>, &'static str> {
        let bo = file.bo(handle).ok_or("there is no such BO")?;
        let room = if length == DEV_MEM_SIZE { 2 * length } else { length };
        let pages = Pages::map(room, None).map_err(|_| "there are no addresses for it")?;
        let address = if length == DEV_MEM_SIZE { pages.start.next_multiple_of(length) } else { pages.start };
        self.mapped.push(pages);
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        let bo = file.mappable(bo.map_offset(), length, flags);
        Ok(bo.and_then(|bo| self.mappings.map(bo, &MapRequest { address, length, prot, flags, offset: 0 })))
    }

    /// Makes a request, with memory for what it names by addresses.
    fn request(&mut self, file: &File, recorded: &RecordedCall) -> Result<RecordedCall, &'static str> {
        let (call, mut bytes) = recorded.request().ok_or("no request has this name")?;
        let before = bytes.clone();
        let structure = layout::structure(call.structure).ok_or("its structure is not known")?;
        let mut point_at = |name: &str, address: u64| {
            let field = structure.fields.iter().find(|field| field.rust_name == name).ok_or("a field is missing")?;
            bytes[field.offset..field.offset + field.size].copy_from_slice(&address.to_le_bytes()[..field.size]);
            Ok::<(), &'static str>(())
        };
        let given = &recorded.given;
        let mut data = given.data();
        let mut answer = vec![0_u8; (given.number("buffer_size") as usize).min(PAGE)];
        let qos = amdxdna_qos_info::default();
        let (timeline, point) = ([given.number(TIMELINE) as u32], [given.number(POINT)]);
        let pages = match given.get(USER_MEMORY) {
            Some(_) => Some(user_page().map_err(|_| "there is no file to map")?),
            None => None,
        };
        let table = pages.as_ref().map(user_table);
        let address = |bytes: *const u8| bytes.expose_provenance() as u64;
        match call.name {
            "CREATE_BO" => point_at("vaddr", table.as_ref().map_or(0, |table| address(table.as_ptr())))?,
            "CREATE_HWCTX" => point_at("qos_p", address(bytes_of(&qos).as_ptr()))?,
            "CONFIG_HWCTX" => point_at("param_val", address(data.as_ptr()))?,
            "EXEC_CMD" => point_at("args", address(data.as_ptr()))?,
            "GET_INFO" => point_at("buffer", address(answer.as_mut_ptr()))?,
            "SYNCOBJ_TIMELINE_WAIT" => {
                point_at("handles", address(bytes_of(&timeline).as_ptr()))?;
                point_at("points", address(bytes_of(&point).as_ptr()))?;
                point_at("timeout_nsec", i64::MAX as u64)?;
            }
            // In milliseconds; how long the recorded one was to wait is not in the record.
            "WAIT_CMD" => point_at("timeout", 10_000)?,
            "VERSION" | "GET_BO_INFO" | "GEM_CLOSE" | "DESTROY_HWCTX" | "SYNCOBJ_DESTROY" => {}
            _ => return Err("only requests that opening an NPU makes are repeated"),
        }
        // What lists of a length in the structure are read from has to be as long.
        let needed = match call.name {
            "EXEC_CMD" if given.number("type") != 0 => return Err("only submissions of commands are repeated"),
            "CONFIG_HWCTX" => given.number("param_val_size"),
            "EXEC_CMD" => 4 * given.number("arg_count"),
            "SYNCOBJ_TIMELINE_WAIT" if given.number("count_handles") > 1 => return Err("it waits for several objects"),
            _ => 0,
        };
        if needed > data.len() as u64 {
            return Err("the record does not have what it points to");
        }
        data.truncate(needed as usize);
        if call.name == "GET_INFO" && answer.len() as u64 != given.number("buffer_size") {
            return Err("its answer is longer than a page");
        }
        // SAFETY: every address in the structure is that of an object above, as long as the fields beside it say.
        let user = unsafe { UserMemory::of_caller() };
        let place = bytes.as_mut_ptr().expose_provenance() as u64;
        let result = ioctl::ioctl(file, &Descriptors::default(), user, u64::from(call.code.0), place);
        let mut now = RecordedCall::of(call, &before, &bytes, &name_of(&result));
        for (name, value) in &given.0 {
            if [DATA, TIMELINE, POINT, USER_MEMORY].contains(&name.as_str()) {
                now.given.push(name, value);
            }
        }
        if call.name == "GET_INFO" && result.is_ok() {
            now.inform(&answer);
        }
        // Pages that became a BO stay as long as the file.
        self.mapped.extend(pages);
        Ok(now)
    }
}

/// A page of a file that is mapped for reading, as models are.
fn user_page() -> Result<Pages, Errno> {
    let file = std::fs::File::open("/proc/self/exe").map_err(|_| Errno::ENOENT)?;
    Pages::map(PAGE, Some(&file))
}

/// The table that names it.
fn user_table(pages: &Pages) -> Vec<u8> {
    let head = amdxdna_drm_va_tbl { dmabuf_fd: -1, num_entries: 1 };
    let entry = amdxdna_drm_va_entry { vaddr: pages.start as u64, len: pages.length as u64 };
    [bytes_of(&head), bytes_of(&entry)].concat()
}

#[cfg(test)]
mod tests;
