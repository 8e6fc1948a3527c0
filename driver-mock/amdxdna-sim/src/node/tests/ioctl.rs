//! The layer that reads and writes the caller's memory.

use super::rig::{Rig, create, rig, rig_with};
use crate::journal::Level;
use crate::memory::Memory;
use crate::node::ioctl::ioctl;
use crate::node::{Descriptors, File};
use crate::user_access::UserMemory;
use amdxdna_sys::*;
use bytemuck::{Pod, Zeroable, bytes_of};
use nix::errno::Errno;
use rstest::rstest;

fn request(number: u32, bytes: usize) -> u64 {
    u64::from(RequestCode::new(Direction::ReadWrite, number, bytes).0)
}

pub(super) fn address<T: ?Sized>(value: &mut T) -> u64 {
    std::ptr::from_mut(value).cast::<u8>().expose_provenance() as u64
}

pub(super) fn make_with<T: Pod>(
    file: &File,
    descriptors: &Descriptors,
    name: &str,
    value: &mut T,
) -> Result<(), Errno> {
    let number = layout::ioctls().find(|call| call.name == name).unwrap().code.number();
    // SAFETY: the address of `value`, with its size; addresses in it are those of live objects of the test.
    let user = unsafe { UserMemory::of_caller() };
    ioctl(file, descriptors, user, request(number, size_of::<T>()), address(value))
}

pub(super) fn make<T: Pod>(file: &File, name: &str, value: &mut T) -> Result<(), Errno> {
    make_with(file, &Descriptors::default(), name, value)
}

pub(super) fn query<T: Pod>(file: &File, param: u32) -> Result<T, Errno> {
    let mut answer = T::zeroed();
    let buffer = address(&mut answer);
    make(file, "GET_INFO", &mut amdxdna_drm_get_info { param, buffer_size: size_of::<T>() as u32, buffer })
        .map(|()| answer)
}

#[test]
fn no_more_is_written_back_than_was_given() {
    let Rig { file, .. } = &rig();
    // An older structure: GEM_CLOSE without its padding.
    let handle = create(file, AMDXDNA_BO_SHMEM, 1).unwrap();
    let mut bytes = [handle, 0xffff_ffff];
    // SAFETY: the address of eight bytes, of which four are given.
    let user = unsafe { UserMemory::of_caller() };
    ioctl(file, &Descriptors::default(), user, request(0x09, 4), address(&mut bytes)).unwrap();
    assert!(file.bo(handle).is_none());
    assert_eq!(bytes[1], 0xffff_ffff);
}

#[test]
fn a_planned_bo_of_the_callers_memory_has_other_pages() {
    let rig = rig_with("", "pages@2");
    let own = Memory::create(limits::PAGE).unwrap();
    let pages = own.map(0, limits::PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, 0).unwrap();
    own.set_word(8, 7);
    let word = || {
        let head = amdxdna_drm_va_tbl { dmabuf_fd: -1, num_entries: 1 };
        let entry = amdxdna_drm_va_entry { vaddr: pages as u64, len: limits::PAGE as u64 };
        let mut table = [bytes_of(&head), bytes_of(&entry)].concat();
        let vaddr = address(&mut table[..]);
        let mut made = amdxdna_drm_create_bo { vaddr, size: entry.len, type_: AMDXDNA_BO_SHMEM, ..Zeroable::zeroed() };
        make(&rig.file, "CREATE_BO", &mut made).unwrap();
        rig.file.bo(made.handle).unwrap().word(8)
    };
    assert_eq!([word(), word(), word()], [Some(7), Some(0), Some(7)]);
    assert_eq!(own.word(8), Some(7));
}

#[test]
fn the_firmware_can_have_another_version_and_short_answers_are_cut() {
    let rig = rig_with("firmware=1.2.3.4", "");
    let firmware: amdxdna_drm_query_firmware_version = query(&rig.file, DRM_AMDXDNA_QUERY_FIRMWARE_VERSION).unwrap();
    assert_eq!(firmware, amdxdna_drm_query_firmware_version { major: 1, minor: 2, patch: 3, build: 4 });
    assert_eq!(query::<u32>(&rig.file, DRM_AMDXDNA_QUERY_AIE_VERSION), Ok(2));
    assert_eq!(query::<u64>(&rig.file, DRM_AMDXDNA_QUERY_TELEMETRY), Err(Errno::EOPNOTSUPP));
}

#[test]
fn a_bo_of_another_process_is_imported_by_its_memory() {
    let rig = rig();
    let mut prime = drm_prime_handle { handle: rig.data, flags: libc::O_CLOEXEC as u32, fd: -1 };
    make(&rig.file, "PRIME_HANDLE_TO_FD", &mut prime).unwrap();
    let _fd = crate::memory::Descriptor::new(prime.fd);
    // A process that does not know the BO makes one of the same memory.
    let other = File::open(&rig.device).unwrap();
    make(&other, "PRIME_FD_TO_HANDLE", &mut prime).unwrap();
    rig.write(rig.data, &[1, 2, 3, 4]);
    assert_eq!(other.bo(prime.handle).unwrap().word(0), Some(0x0403_0201));
    let plain = crate::memory::placeholder().unwrap();
    let mut wrong = drm_prime_handle { fd: plain.number(), ..prime };
    assert_eq!(make(&other, "PRIME_FD_TO_HANDLE", &mut wrong), Err(Errno::EINVAL), "memory, and no BO");
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

#[rstest]
#[case("CREATE_BO@3=ENOMEM,SYNCOBJ_CREATE@1=EMFILE", Errno::ENOMEM)]
#[case("CREATE_BO@*=EIO,SYNCOBJ_CREATE@*=EMFILE", Errno::EIO)]
fn a_planned_failure_has_no_effect(#[case] plan: &str, #[case] expected: Errno) {
    let Rig { device, file, .. } = &rig_with("", plan);
    let before = device.journal.level(Level::Bos);
    let mut results = Vec::new();
    for _ in 0..3 {
        let mut arguments =
            amdxdna_drm_create_bo { type_: AMDXDNA_BO_SHMEM, size: 1, ..amdxdna_drm_create_bo::zeroed() };
        results.push(make(file, "CREATE_BO", &mut arguments).map(|()| arguments.handle));
    }
    assert_eq!(results[2], Err(expected));
    let made = results.iter().filter(|result| result.is_ok()).count() as i64;
    assert_eq!(device.journal.level(Level::Bos), before + made);
    assert_eq!(device.journal.report(Vec::new())["calls"]["CREATE_BO"]["count"], 3);
    assert_eq!(make(file, "SYNCOBJ_CREATE", &mut drm_syncobj_create::zeroed()), Err(Errno::EMFILE));
    assert_eq!(device.journal.level(Level::Syncobjs), 0);
}

#[test]
fn a_lost_device_rejects_everything() {
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
