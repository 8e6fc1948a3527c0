//! The layer that reads and writes the caller's memory.

use super::rig::{Rig, context, create, rig, rig_with};
use crate::errno::Errno;
use crate::kfd::KFD_TYPE;
use crate::node::ioctl::{Descriptors, ioctl};
use crate::node::{Bo, File, SyncFile, Syncobj};
use amdxdna_sys::*;
use bytemuck::{Pod, Zeroable, bytes_of};
use parking_lot::Mutex;
use rstest::rstest;
use std::sync::Arc;

/// The descriptors of the process under test.
#[derive(Default)]
pub(super) struct Exported(
    Mutex<Vec<(i32, Arc<Bo>)>>,
    Mutex<Vec<(i32, Arc<Syncobj>)>>,
    Mutex<Vec<(i32, Arc<SyncFile>)>>,
);

impl Descriptors for Exported {
    fn exported(&self, fd: i32, bo: Arc<Bo>) {
        self.0.lock().push((fd, bo));
    }

    fn bo(&self, fd: i32) -> Option<Arc<Bo>> {
        self.0.lock().iter().find(|(found, _)| *found == fd).map(|(_, bo)| bo.clone())
    }

    fn exported_syncobj(&self, fd: i32, syncobj: Arc<Syncobj>) {
        self.1.lock().push((fd, syncobj));
    }

    fn syncobj(&self, fd: i32) -> Option<Arc<Syncobj>> {
        self.1.lock().iter().find(|(found, _)| *found == fd).map(|(_, object)| object.clone())
    }

    fn exported_fence(&self, fd: i32, fence: Arc<SyncFile>) {
        self.2.lock().push((fd, fence));
    }

    fn fence(&self, fd: i32) -> Option<Arc<SyncFile>> {
        self.2.lock().iter().find(|(found, _)| *found == fd).map(|(_, fence)| fence.clone())
    }
}

fn request(number: u32, bytes: usize) -> u64 {
    u64::from(RequestCode::new(Direction::ReadWrite, number, bytes).0)
}

pub(super) fn address<T: ?Sized>(value: &mut T) -> u64 {
    std::ptr::from_mut(value).cast::<u8>().expose_provenance() as u64
}

pub(super) fn make_with<T: Pod>(file: &File, descriptors: &Exported, name: &str, value: &mut T) -> Result<(), Errno> {
    let number = layout::ioctls().find(|call| call.name == name).unwrap().code.number();
    // SAFETY: the address of `value`, with its size; addresses in it are those of live objects of the test.
    unsafe { ioctl(file, descriptors, request(number, size_of::<T>()), address(value)) }
}

pub(super) fn make<T: Pod>(file: &File, name: &str, value: &mut T) -> Result<(), Errno> {
    make_with(file, &Exported::default(), name, value)
}

pub(super) fn query<T: Pod>(file: &File, param: u32) -> Result<T, Errno> {
    let mut answer = T::zeroed();
    let buffer = address(&mut answer);
    make(file, "GET_INFO", &mut amdxdna_drm_get_info { param, buffer_size: size_of::<T>() as u32, buffer })
        .map(|()| answer)
}

#[test]
fn numbers_decide_and_short_structures_are_filled_up() {
    let Rig { file, .. } = &rig();
    let none = Exported::default();
    // SAFETY: nothing is read for these.
    let refused = |request| unsafe { ioctl(file, &none, request, 0) };
    assert_eq!(refused(request(0x7f, 8)), Err(Errno::EINVAL));
    assert_eq!(refused(u64::from(KFD_TYPE) << 8), Err(Errno::ENOTTY));
    assert_eq!(refused(request(0x43, 32)), Err(Errno::EFAULT));
    // An older structure: GEM_CLOSE without its padding.
    let handle = create(file, AMDXDNA_BO_SHMEM, 1).unwrap();
    let mut bytes = [handle, 0xffff_ffff];
    // SAFETY: the address of eight bytes, of which four are given.
    unsafe { ioctl(file, &none, request(0x09, 4), address(&mut bytes)) }.unwrap();
    assert!(file.bo(handle).is_none());
    assert_eq!(bytes[1], 0xffff_ffff, "no more is written back than was given");
}

#[test]
fn queries_are_answered() {
    let rig = rig_with("firmware=1.2.3.4", "");
    let file = &rig.file;
    let metadata: amdxdna_drm_query_aie_metadata = query(file, DRM_AMDXDNA_QUERY_AIE_METADATA).unwrap();
    assert_eq!((metadata.cols, metadata.rows), (8, 6));
    let rows = |tile: amdxdna_drm_query_aie_tile_metadata| (tile.row_start, tile.row_count);
    assert_eq!([rows(metadata.shim), rows(metadata.mem), rows(metadata.core)], [(0, 1), (1, 1), (2, 4)]);
    let firmware: amdxdna_drm_query_firmware_version = query(file, DRM_AMDXDNA_QUERY_FIRMWARE_VERSION).unwrap();
    assert_eq!(firmware, amdxdna_drm_query_firmware_version { major: 1, minor: 2, patch: 3, build: 4 });
    let clocks: amdxdna_drm_query_clock_metadata = query(file, DRM_AMDXDNA_QUERY_CLOCK_METADATA).unwrap();
    assert_eq!((clocks.h_clock.freq_mhz, &clocks.h_clock.name[..8]), (1800, &b"H Clock\0"[..]));
    // As much as the caller has room for.
    assert_eq!(query::<u32>(file, DRM_AMDXDNA_QUERY_AIE_VERSION), Ok(2));
    for unknown in [DRM_AMDXDNA_QUERY_AIE_STATUS, DRM_AMDXDNA_QUERY_TELEMETRY, 6, 99] {
        assert_eq!(query::<u64>(file, unknown), Err(Errno::EOPNOTSUPP));
    }
}

#[test]
fn contexts_are_listed() {
    let Rig { file, .. } = &rig();
    context(file, 4).unwrap();
    context(file, 32).unwrap();
    let mut list = [amdxdna_drm_query_hwctx::zeroed(); 2];
    let buffer = address(&mut list);
    let mut short = amdxdna_drm_get_info { param: DRM_AMDXDNA_QUERY_HW_CONTEXTS, buffer_size: 64, buffer };
    assert_eq!(make(file, "GET_INFO", &mut short), Err(Errno::EINVAL));
    assert_eq!(short.buffer_size, 128, "what is needed");
    make(file, "GET_INFO", &mut short).unwrap();
    assert_eq!(list.map(|entry| (entry.context_id, entry.num_col)), [(1, 1), (2, 8)]);
    let mut entries = [amdxdna_drm_hwctx_entry::zeroed(); 2];
    let element_size = size_of::<amdxdna_drm_hwctx_entry>() as u32;
    let all = amdxdna_drm_get_array { param: 0, element_size, num_element: 1, pad: 0, buffer: address(&mut entries) };
    let mut array = all;
    assert_eq!(make(file, "GET_ARRAY", &mut array), Err(Errno::ENOSPC));
    assert_eq!(array.num_element, 2);
    make(file, "GET_ARRAY", &mut array).unwrap();
    assert_eq!(entries.map(|entry| entry.context_id), [1, 2]);
    assert_eq!(make(file, "GET_ARRAY", &mut amdxdna_drm_get_array { num_element: 0, ..all }), Err(Errno::EINVAL));
    assert_eq!(make(file, "GET_ARRAY", &mut amdxdna_drm_get_array { param: 99, ..all }), Err(Errno::EOPNOTSUPP));
}

#[test]
fn contexts_are_made_and_configured_through_addresses() {
    let rig = rig();
    let file = &rig.file;
    let mut qos = [0_u32; 6];
    let mut make_context = amdxdna_drm_create_hwctx { num_tiles: 32, qos_p: 0, ..amdxdna_drm_create_hwctx::zeroed() };
    assert_eq!(make(file, "CREATE_HWCTX", &mut make_context), Err(Errno::EFAULT));
    make_context.qos_p = address(&mut qos);
    make(file, "CREATE_HWCTX", &mut make_context).unwrap();
    let handle = make_context.handle;
    let header = amdxdna_hwctx_param_config_cu { num_cus: 1, pad: [0; 3] };
    let unit = amdxdna_cu_config { cu_bo: rig.pdi("add 1"), cu_func: 0, pad: [0; 3] };
    let mut list = [bytes_of(&header), bytes_of(&unit)].concat();
    let param_val = address(&mut list[..]);
    let config = amdxdna_drm_config_hwctx { handle, param_type: 0, param_val, param_val_size: 16, pad: 0 };
    let with = |change: fn(&mut amdxdna_drm_config_hwctx)| {
        let mut config = config;
        change(&mut config);
        make(file, "CONFIG_HWCTX", &mut config)
    };
    assert_eq!(with(|c| c.param_val_size = 4097), Err(Errno::E2BIG));
    assert_eq!(with(|c| c.param_val = 0), Err(Errno::EFAULT));
    assert_eq!(with(|c| c.param_type = 1), Err(Errno::EOPNOTSUPP));
    assert_eq!(with(|c| c.param_type = 9), Err(Errno::EINVAL));
    assert_eq!(with(|_| ()), Ok(()));
    let exec = amdxdna_drm_exec_cmd { hwctx: handle, cmd_count: 1, cmd_handles: 1, ..amdxdna_drm_exec_cmd::zeroed() };
    let refused = |change: fn(&mut amdxdna_drm_exec_cmd)| {
        let mut exec = exec;
        change(&mut exec);
        make(file, "EXEC_CMD", &mut exec)
    };
    assert_eq!(refused(|e| e.ext = 1), Err(Errno::EINVAL));
    assert_eq!(refused(|e| e.cmd_count = 2), Err(Errno::EINVAL));
    assert_eq!(refused(|e| e.cmd_handles = 0), Err(Errno::EINVAL));
    assert_eq!(refused(|e| e.arg_count = 4096), Err(Errno::EINVAL));
    assert_eq!(refused(|e| e.arg_count = 1), Err(Errno::EFAULT));
    assert_eq!(refused(|e| e.type_ = 1), Err(Errno::EINVAL));
    assert_eq!(refused(|e| e.type_ = 3), Err(Errno::EINVAL));
}

#[test]
fn exported_bos_come_back_as_themselves() {
    let rig = rig();
    let (file, descriptors) = (&rig.file, Exported::default());
    let mut prime = drm_prime_handle { handle: rig.data, flags: libc::O_CLOEXEC as u32, fd: -1 };
    make_with(file, &descriptors, "PRIME_HANDLE_TO_FD", &mut prime).unwrap();
    let fd = crate::memory::Descriptor::new(prime.fd);
    let mut back = drm_prime_handle { handle: 0, ..prime };
    make_with(file, &descriptors, "PRIME_FD_TO_HANDLE", &mut back).unwrap();
    assert_eq!(back.handle, rig.data);
    // A process that does not know the BO makes one of the same memory.
    let other = File::open(&rig.device).unwrap();
    make(&other, "PRIME_FD_TO_HANDLE", &mut back).unwrap();
    rig.write(rig.data, &[1, 2, 3, 4]);
    assert_eq!(other.bo(back.handle).unwrap().word(0), Some(0x0403_0201));
    drop(fd);
    for (handle, flags, expected) in [(99, 0, Errno::ENOENT), (rig.data, 1 << 20, Errno::EINVAL)] {
        let mut prime = drm_prime_handle { handle, flags, fd: -1 };
        assert_eq!(make(file, "PRIME_HANDLE_TO_FD", &mut prime), Err(expected));
    }
    let command = create(file, AMDXDNA_BO_CMD, 64).unwrap();
    let mut prime = drm_prime_handle { handle: command, flags: 0, fd: -1 };
    assert_eq!(make(file, "PRIME_HANDLE_TO_FD", &mut prime), Err(Errno::EOPNOTSUPP));
}

#[test]
fn power_modes_are_roots() {
    let Rig { file, .. } = &rig();
    let high = [3, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(file.can_set(DRM_AMDXDNA_SET_POWER_MODE, false), Err(Errno::EACCES));
    assert_eq!(file.can_set(DRM_AMDXDNA_SET_POWER_MODE, true), Ok(()));
    assert_eq!(file.can_set(7, true), Err(Errno::EOPNOTSUPP));
    assert_eq!(file.can_set(DRM_AMDXDNA_SET_FORCE_PREEMPT, true), Err(Errno::EOPNOTSUPP));
    assert_eq!(file.set(DRM_AMDXDNA_SET_POWER_MODE, &[5]), Err(Errno::EINVAL));
    assert_eq!(file.set(DRM_AMDXDNA_SET_POWER_MODE, &high), Ok(()));
    let mode: amdxdna_drm_get_power_mode = query(file, DRM_AMDXDNA_GET_POWER_MODE).unwrap();
    assert_eq!(mode.power_mode, 3);
}

#[test]
fn the_driver_says_who_it_is() {
    let Rig { file, .. } = &rig();
    let mut name = [0_u8; 7];
    let buffer = address(&mut name);
    let mut version = drm_version { name: buffer, name_len: 7, ..drm_version::zeroed() };
    make(file, "VERSION", &mut version).unwrap();
    assert_eq!((&name, version.name_len), (b"amdxdna", 20));
}

#[rstest]
#[case("CREATE_BO@3=ENOMEM", Errno::ENOMEM)]
#[case("CREATE_BO@*=EIO", Errno::EIO)]
fn a_planned_failure_has_no_effect(#[case] plan: &str, #[case] expected: Errno) {
    let Rig { device, file, .. } = &rig_with("", plan);
    let before = device.journal.counts.bos.now();
    let mut results = Vec::new();
    for _ in 0..3 {
        let mut arguments =
            amdxdna_drm_create_bo { type_: AMDXDNA_BO_SHMEM, size: 1, ..amdxdna_drm_create_bo::zeroed() };
        results.push(make(file, "CREATE_BO", &mut arguments).map(|()| arguments.handle));
    }
    assert_eq!(results[2], Err(expected));
    let made = results.iter().filter(|result| result.is_ok()).count() as i64;
    assert_eq!(device.journal.counts.bos.now(), before + made);
    assert_eq!(device.journal.report(&[])["calls"]["CREATE_BO"]["count"], 3);
}

#[test]
fn a_lost_device_refuses_everything() {
    let rig = rig_with("", "lost@2");
    let (context, instructions) = rig.ready("add 1");
    let command = rig.command(0, instructions, 0, 64, 4);
    rig.file.exec_cmd(context, command, &[rig.data]).unwrap();
    let mut wait = amdxdna_drm_wait_cmd { hwctx: context, timeout: 0, seq: 0 };
    assert_eq!(make(&rig.file, "WAIT_CMD", &mut wait), Ok(()));
    rig.run(context, command, &[rig.data]);
    assert_eq!(make(&rig.file, "WAIT_CMD", &mut wait), Err(Errno::ENODEV));
    let mut close = drm_gem_close { handle: rig.data, pad: 0 };
    assert_eq!(make(&rig.file, "GEM_CLOSE", &mut close), Err(Errno::ENODEV));
}
