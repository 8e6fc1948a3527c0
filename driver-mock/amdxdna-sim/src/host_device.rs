//! Nothing simulated: calls go to the host's own devices, and are recorded as those of the simulated ones are.
//!
//! With `AMDXDNA_SIM_DEVICES=host`, a program's stream of calls (`AMDXDNA_SIM_RECORD`) on a real kernel driver can be compared with
//! its stream on a simulated one. Planned faults of calls work as well: such a call does not reach the driver. The report has the
//! calls; what they have made is known to the driver only. `AMDXDNA_SIM_KERNEL` and `AMDXDNA_SIM_MACHINE` mean nothing here, and
//! are rejected.
//!
//! Of the simulated machine nothing is left but KFD, and that only where the host has none: ROCR does not start without it, and
//! kernels have it with AMD graphics only.

use crate::call_fields::{self, Seen};
use crate::journal::Journal;
use amdxdna_sys::RequestCode;
use nix::errno::Errno;
use parking_lot::Mutex;
use rangemap::RangeSet;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

const NODES: &[u8] = b"/dev/accel/";

/// What a process has of the host's devices.
#[derive(Debug, Default)]
pub struct Host {
    files: AtomicU64,
    mapped: Mutex<RangeSet<usize>>,
}

impl Host {
    /// Whether a path is that of a node.
    pub fn has(path: &CStr) -> bool {
        path.to_bytes().starts_with(NODES)
    }

    /// The number of a file that was just opened. They begin where those of a simulated device do.
    pub fn file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn mapped(&self, start: usize, length: usize) {
        self.mapped.lock().insert(start..start + length);
    }

    /// Whether anything of a node is mapped in a range.
    pub fn contains(&self, start: usize, length: usize) -> bool {
        length > 0 && self.mapped.lock().overlaps(&(start..start.saturating_add(length)))
    }

    /// Forgets what is mapped in a range.
    pub fn unmapped(&self, start: usize, length: usize) {
        if length > 0 {
            self.mapped.lock().remove(start..start.saturating_add(length));
        }
    }
}

/// Records an ioctl that `real` makes; `address` is that of the caller's structure.
pub fn ioctl(
    journal: &Journal,
    file: u64,
    request: u64,
    address: u64,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let code = RequestCode(request as u32);
    let Some(call) = call_fields::call(code).filter(|_| code.is_drm()) else {
        let result = real();
        journal.log(|| format!("ioctl {request:#x} of the accel node is not known: {result:?}"));
        return result;
    };
    let structure = || {
        let mut bytes: Vec<u8> = call_fields::peek(address, code.bytes().min(call.code.bytes()))?;
        bytes.resize(call.code.bytes(), 0);
        Some(bytes)
    };
    let before = structure();
    let result = journal.enter(call.name).and_then(|()| real());
    let seen: Option<Seen> = before.zip(structure());
    journal.leave(call.name, || call_fields::line(file, call.name, seen.as_ref(), &result), &result);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use amdxdna_sys::{Request, amdxdna_drm_create_bo, amdxdna_drm_get_bo_info};
    use std::sync::Arc;

    fn journal(record: &std::path::Path, faults: &str) -> Journal {
        let faults = crate::faults::parse(faults).unwrap();
        let record = Some(record.to_owned());
        Journal::new(Arc::new(Settings { faults, record, host: true, ..Settings::default() })).unwrap()
    }

    #[test]
    fn calls_are_recorded_as_those_of_the_simulated_device_are() {
        let path = std::env::temp_dir().join(format!("amdxdna-sim-host-{}", std::process::id()));
        let journal = journal(&path, "GET_BO_INFO@2=EIO");
        let host = Host::default();
        let file = host.file();
        let mut made = amdxdna_drm_create_bo { size: 4096, type_: 1, ..Default::default() };
        let place = &raw mut made;
        let address = place.expose_provenance() as u64;
        let code = u64::from(amdxdna_drm_create_bo::CODE.0);
        // What stands for the driver writes the handle.
        let driver = || {
            // SAFETY: the structure above, of which there is no reference.
            unsafe { (*place).handle = 7 };
            Ok(())
        };
        ioctl(&journal, file, code, address, driver).unwrap();
        let info = amdxdna_drm_get_bo_info { handle: 7, ..Default::default() };
        let (code, address) =
            (u64::from(amdxdna_drm_get_bo_info::CODE.0), (&raw const info).expose_provenance() as u64);
        assert_eq!(ioctl(&journal, file, code, address, || Err(Errno::ENOENT)), Err(Errno::ENOENT));
        // A planned fault does not reach the driver.
        let planned = ioctl(&journal, file, code, address, || unreachable!("the driver is not called"));
        assert_eq!(planned, Err(Errno::EIO));
        assert_eq!(ioctl(&journal, file, code, 16, || Err(Errno::EFAULT)), Err(Errno::EFAULT));
        assert_eq!(ioctl(&journal, file, 0x1234, 0, || Err(Errno::ENOTTY)), Err(Errno::ENOTTY));
        assert_eq!(journal.difference(), None);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "CREATE_BO file=1 type=1 size=4096 handle=7 = ok",
                "GET_BO_INFO file=1 handle=7 = ENOENT",
                "GET_BO_INFO file=1 handle=7 = EIO",
                "GET_BO_INFO file=1 = EFAULT",
            ]
        );
        assert_eq!(journal.report(Vec::new())["kernel"], "host");
    }

    #[test]
    fn mappings_are_known_by_their_ranges() {
        let host = Host::default();
        host.mapped(0x10000, 0x4000);
        assert!(host.contains(0x13fff, 1) && host.contains(0, 0x10001));
        assert!(!host.contains(0x14000, 0x1000) && !host.contains(0, 0x10000));
        host.unmapped(0x11000, 0x1000);
        assert!(host.contains(0x10000, 1) && !host.contains(0x11000, 0x1000) && host.contains(0x12000, 1));
        host.unmapped(0, usize::MAX);
        assert!(!host.contains(0, usize::MAX));
    }

    #[test]
    fn nodes_are_known_by_their_path() {
        assert!(Host::has(c"/dev/accel/accel0"));
        assert!(!Host::has(c"/dev/accelerator") && !Host::has(c"/dev/kfd"));
        assert_eq!(Host::default().file(), 1);
    }
}
