//! What the real driver of Linux 7.2 was seen to do, and older ones do not.

use super::ioctl::{Exported, address, make, make_with, query};
use super::rig::{Rig, context, create, device_with, heap_address, map_at, rig_of};
use crate::errno::Errno;
use crate::node::File;
use amdxdna_sys::ert::{self, opcode, state};
use amdxdna_sys::limits::*;
use amdxdna_sys::*;
use bytemuck::Zeroable;
use rstest::rstest;

const IOVA: &str = "addresses=iova";

fn newest() -> Rig {
    rig_of("7.2", IOVA, "")
}

#[rstest]
#[case(AMDXDNA_BO_SHMEM, 0, Err(Errno::ENOSPC))]
#[case(AMDXDNA_BO_CMD, usize::MAX, Err(Errno::ENOSPC))]
#[case(AMDXDNA_BO_SHMEM, usize::MAX - 4095, Err(Errno::EINVAL))]
#[case(AMDXDNA_BO_CMD, CMD_BO_BYTES + 1, Ok(()))]
#[case(AMDXDNA_BO_DEV, 0, Err(Errno::EINVAL))]
#[case(AMDXDNA_BO_DEV, (512 << 20) + 1, Err(Errno::EINVAL))]
#[case(AMDXDNA_BO_DEV, DEV_MEM_SIZE + 1, Err(Errno::EAGAIN))]
#[case(AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE / 2, Err(Errno::EINVAL))]
#[case(AMDXDNA_BO_DEV_HEAP, 8 * DEV_MEM_SIZE, Err(Errno::ENOSPC))]
fn sizes_are_left_to_the_drm_core(#[case] kind: u32, #[case] size: usize, #[case] expected: Result<(), Errno>) {
    assert_eq!(create(&newest().file, kind, size).map(drop), expected);
}

#[test]
fn a_full_heap_asks_for_another_one() {
    let rig = rig_of("7.2", "addresses=iova,heap=65536", "");
    let file = &rig.file;
    let parts: Vec<u32> = (0..2).map(|_| create(file, AMDXDNA_BO_DEV, PAGE).unwrap()).collect();
    assert_eq!(create(file, AMDXDNA_BO_DEV, PAGE), Err(Errno::EAGAIN));
    assert_eq!(context(file, 4), Err(Errno::EAGAIN));
    let second = create(file, AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE).unwrap();
    assert_eq!(rig.device_address(second), DEV_MEM_BASE + DEV_MEM_SIZE as u64);
    // What lies in the second one needs it mapped, too.
    file.gem_close(parts[1]).unwrap();
    assert_eq!(create(file, AMDXDNA_BO_DEV, DEV_MEM_SIZE), Err(Errno::EAGAIN));
    map_at(file, second, heap_address());
    assert_eq!(create(file, AMDXDNA_BO_DEV, DEV_MEM_SIZE), Err(Errno::EINVAL), "not one behind the other");
}

#[test]
fn commands_find_instructions_in_a_second_heap() {
    let rig = newest();
    let file = &rig.file;
    let context = context(file, 32).unwrap();
    let first = create(file, AMDXDNA_BO_DEV, DEV_MEM_SIZE / 2).unwrap();
    let second = create(file, AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE).unwrap();
    // The address behind the first heap, if that is free here; the jobs only need the memory.
    map_at(file, second, rig.heap + DEV_MEM_SIZE);
    let filler = create(file, AMDXDNA_BO_DEV, DEV_MEM_SIZE / 2 - 4 * DEV_BO_ALIGNMENT).unwrap();
    let pdi = rig.pdi("add 2");
    rig.configure(context, &[pdi]).unwrap();
    let instructions = rig.instructions();
    assert!(rig.device_address(instructions.0) >= DEV_MEM_BASE + DEV_MEM_SIZE as u64);
    let base = rig.device_address(rig.data) as usize;
    let command = rig.command_at(0, instructions, base, 0, 64, 4);
    rig.write(rig.data, &[1, 2, 3, 4]);
    assert_eq!(rig.run(context, rig.padded(command), &[rig.data]), state::COMPLETED);
    assert_eq!(rig.data(64, 4), [3, 4, 5, 6]);
    [first, filler].iter().for_each(|part| file.gem_close(*part).unwrap());
}

#[test]
fn npu1_has_one_heap_its_own_columns_and_no_health() {
    let settings = |name: &str| match name {
        "AMDXDNA_SIM_DEVICES" => Some("aie2".to_owned()),
        "AMDXDNA_SIM_KERNEL" => Some("7.2".to_owned()),
        _ => None,
    };
    let file = File::open(&super::rig::device_of(settings)).unwrap();
    let heap = create(&file, AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE).unwrap();
    assert_eq!(create(&file, AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE), Err(Errno::ENOSPC));
    // Its contexts lie side by side, behind the first column.
    map_at(&file, heap, heap_address());
    let contexts = [4, 8, 4].map(|tiles| context(&file, tiles).unwrap());
    let starts = || file.state.lock().contexts.values().map(|context| context.start).collect::<Vec<_>>();
    assert_eq!(starts(), [1, 2, 4]);
    file.destroy_hwctx(contexts[1]).unwrap();
    context(&file, 4).unwrap();
    assert_eq!(starts(), [1, 4, 2]);
    // What takes too long leaves no report.
    let bos = [AMDXDNA_BO_CMD; 2].map(|kind| file.bo(create(&file, kind, PAGE).unwrap()).unwrap());
    let words = [ert::header(opcode::CMD_CHAIN, 8), 1, 0, 7, 0, 0, 0, 3, 0];
    words.iter().enumerate().for_each(|(index, word)| bos[0].set_word(4 * index, *word));
    let submission = crate::node::chain::Submission {
        units: Vec::new(),
        heaps: Vec::new(),
        sequence: 0,
        chain: bos[0].clone(),
        arguments: Vec::new(),
        file: file.state.clone(),
        is_typed: false,
    };
    assert!(std::sync::Arc::ptr_eq(&submission.command(0).unwrap(), &bos[1]));
    crate::node::end::Written::new(file.device(), &submission).overdue(1);
    assert_eq!((bos[0].word(0).map(|word| word & 0xf), bos[0].word(12)), (Some(state::TIMEOUT), Some(0)));
    assert_eq!([4, 8].map(|offset| bos[1].word(offset)), [Some(u32::MAX); 2]);
}

#[test]
fn without_a_heap_a_part_asks_for_one() {
    let file = File::open(&device_with("7.2", IOVA, "")).unwrap();
    assert_eq!(create(&file, AMDXDNA_BO_DEV, PAGE), Err(Errno::EAGAIN));
    assert_eq!(context(&file, 4), Err(Errno::ENOENT));
}

#[test]
fn with_addresses_of_its_own_the_driver_forgets_no_mapping() {
    let rig = newest();
    let info = |handle| {
        let mut info = amdxdna_drm_get_bo_info { handle, ..Default::default() };
        rig.file.get_bo_info(&mut info).unwrap();
        info.vaddr
    };
    let second = map_at(&rig.file, rig.data, 0) as u64;
    assert_eq!(info(rig.data), second, "the last one");
    rig.device.mappings.remove(second as usize, 2 * PAGE);
    rig.device.mappings.remove(rig.address, 2 * PAGE);
    assert_eq!(info(rig.data), second, "and it stays");
    rig.device.mappings.remove(rig.heap, DEV_MEM_SIZE);
    assert!(create(&rig.file, AMDXDNA_BO_DEV, PAGE).is_ok());
    assert!(context(&rig.file, 4).is_ok());
}

#[test]
fn ranges_to_synchronise_are_cut() {
    let rig = newest();
    let (file, all) = (&rig.file, 2 * PAGE as u64);
    let part = rig.dev(&[0; 8]);
    let sync = |handle, offset, size| file.sync_bo(handle, SYNC_DIRECT_TO_DEVICE, offset, size);
    assert_eq!(sync(rig.data, 0, all + 1), Ok(()));
    assert_eq!(sync(rig.data, 0, u64::MAX), Ok(()));
    assert_eq!(sync(rig.data, all, 0), Err(Errno::EINVAL));
    assert_eq!(sync(rig.data, 1, u64::MAX), Err(Errno::EINVAL));
    assert_eq!(sync(part, u64::MAX, u64::MAX), Ok(()));
    assert_eq!(sync(99, 0, 1), Err(Errno::ENOENT));
    for handle in [rig.data, part] {
        let back = file.sync_bo(handle, SYNC_DIRECT_FROM_DEVICE, 0, 8);
        assert_eq!(back, Err(Errno::EINVAL), "no debug BO");
    }
}

#[test]
fn debug_bos_belong_to_one_context() {
    let rig = newest();
    let (one, two) = (context(&rig.file, 4).unwrap(), context(&rig.file, 4).unwrap());
    let part = rig.dev(&[0; 8]);
    let config = |context, handle, assign| rig.file.config_debug_bo(context, handle, assign);
    assert_eq!(config(9, part, true), Err(Errno::EINVAL));
    assert_eq!(config(one, rig.data, true), Err(Errno::EINVAL), "not in the heap");
    assert_eq!(config(one, part, false), Err(Errno::EINVAL));
    assert_eq!(config(one, part, true), Ok(()));
    assert_eq!(config(two, part, true), Err(Errno::EBUSY));
    assert_eq!(config(two, part, false), Err(Errno::EINVAL));
    assert_eq!(rig.file.sync_bo(part, SYNC_DIRECT_FROM_DEVICE, 0, 8), Ok(()));
    assert_eq!(config(one, part, false), Ok(()));
    // Each was a job of the context.
    let command = rig.command_bo(opcode::START_CU, &[0; 4]);
    assert_eq!(rig.file.exec_cmd(one, command, &[]), Ok(3));
}

#[test]
fn offsets_of_other_bos_are_forbidden() {
    let rig = newest();
    let offset = rig.file.bo(rig.data).unwrap().map_offset();
    let other = File::open(&rig.device).unwrap();
    let refused = |file: &File, offset| file.mappable(offset, PAGE, libc::MAP_SHARED).map(drop);
    assert_eq!(refused(&other, offset), Err(Errno::EACCES));
    rig.file.gem_close(rig.data).unwrap();
    assert_eq!(refused(&rig.file, offset), Err(Errno::EACCES), "the mapping keeps it");
    rig.device.mappings.remove(rig.address, 2 * PAGE);
    assert_eq!(refused(&rig.file, offset), Err(Errno::EINVAL));
    assert_eq!(refused(&rig.file, 0), Err(Errno::EOPNOTSUPP));
}

#[test]
fn a_descriptor_becomes_a_bo_of_its_own() {
    let rig = newest();
    let (file, descriptors) = (&rig.file, Exported::default());
    let mut prime = drm_prime_handle { handle: rig.data, flags: libc::O_CLOEXEC as u32, fd: -1 };
    make_with(file, &descriptors, "PRIME_HANDLE_TO_FD", &mut prime).unwrap();
    let fd = crate::memory::Descriptor::new(prime.fd);
    let import = |file: &File| {
        let mut back = drm_prime_handle { handle: 0, ..prime };
        make_with(file, &descriptors, "PRIME_FD_TO_HANDLE", &mut back).map(|()| back.handle)
    };
    assert_eq!(import(file), Ok(rig.data), "in its own file it is itself");
    let other = File::open(&rig.device).unwrap();
    let handle = import(&other).unwrap();
    assert_eq!(import(&other), Ok(handle));
    let imported = other.bo(handle).unwrap();
    assert_eq!((imported.user_address(), imported.length()), (None, 2 * PAGE));
    rig.write(rig.data, &[1, 2, 3, 4]);
    assert_eq!(imported.word(0), Some(0x0403_0201));
    assert_eq!(other.sync_bo(handle, SYNC_DIRECT_TO_DEVICE, 0, 4), Err(Errno::EOPNOTSUPP));
    drop(fd);
}

#[test]
fn headers_that_lie_reach_the_firmware_without_words() {
    let rig = newest();
    let (context, _) = rig.ready("add 1");
    let header = |opcode, count| {
        let command = rig.command_bo(opcode, &[1, 3, 0, 0, 0, 0]);
        rig.file.bo(command).unwrap().set_word(0, ert::header(opcode, count));
        command
    };
    for count in [0, 1, 1024] {
        assert_eq!(rig.run(context, header(opcode::START_CU, count), &[]), state::ERROR, "{count} words");
        assert_eq!(rig.run(context, header(opcode::START_NPU, count), &[]), state::NEW, "{count} words");
    }
    // Too short for what its opcode says.
    for opcode in [opcode::START_NPU_PREEMPT, opcode::START_NPU_PREEMPT_ELF] {
        assert_eq!(rig.run(context, header(opcode, 6), &[]), state::NEW);
    }
}

#[test]
fn padding_of_compute_units_is_checked() {
    let rig = newest();
    let context = context(&rig.file, 4).unwrap();
    let pdi = rig.pdi("add 1") as u8;
    let list = |head: u8, entry: u8| [1, 0, head, 0, 0, 0, 0, 0, pdi, 0, 0, 0, 0, entry, 0, 0];
    assert_eq!(rig.file.config_cu(context, &list(1, 0)), Err(Errno::EINVAL));
    assert_eq!(rig.file.config_cu(context, &list(0, 1)), Err(Errno::EINVAL));
    assert_eq!(rig.file.config_cu(context, &list(0, 0)), Ok(()));
}

#[test]
fn lists_of_contexts_are_cut_and_tell_what_room_is_left() {
    let rig = newest();
    let file = &rig.file;
    assert_eq!([context(file, 4), context(file, 4)], [Ok(1), Ok(2)]);
    let mut list = [amdxdna_drm_query_hwctx::zeroed(); 4];
    let bytes = size_of::<amdxdna_drm_query_hwctx>() as u32;
    let buffer = address(&mut list);
    let mut ask = |count: u32| {
        let buffer_size = count * bytes;
        let mut get = amdxdna_drm_get_info { param: DRM_AMDXDNA_QUERY_HW_CONTEXTS, buffer_size, buffer };
        make(file, "GET_INFO", &mut get).map(|()| get.buffer_size / bytes)
    };
    assert_eq!([4, 2, 1, 0].map(&mut ask), [Ok(2), Ok(0), Ok(0), Ok(0)]);
    assert_eq!(list.map(|entry| entry.num_col), [8, 8, 0, 0], "the whole array, in turns");
    let element_size = size_of::<amdxdna_drm_hwctx_entry>() as u32;
    let mut entries = [amdxdna_drm_hwctx_entry::zeroed(); 1];
    let array =
        amdxdna_drm_get_array { element_size, num_element: 1, buffer: address(&mut entries), ..Default::default() };
    assert_eq!(make(file, "GET_ARRAY", &mut { array }), Ok(()));
    assert_eq!((entries[0].context_id, entries[0].hwctx_id, entries[0].pasid), (1, 0, u32::MAX));
    assert_eq!(make(file, "GET_ARRAY", &mut amdxdna_drm_get_array { pad: 1, ..array }), Err(Errno::EINVAL));
}

#[test]
fn usage_is_that_of_a_process() {
    let rig = newest();
    let element_size = size_of::<amdxdna_drm_bo_usage>() as u32;
    let ask = |pid: i64, count: u32| {
        let mut usage = amdxdna_drm_bo_usage { pid, ..Default::default() };
        let buffer = address(&mut usage);
        let param = DRM_AMDXDNA_BO_USAGE;
        let mut array = amdxdna_drm_get_array { param, element_size, num_element: count, pad: 0, buffer };
        make(&rig.file, "GET_ARRAY", &mut array).map(|()| usage.total_usage)
    };
    let own = i64::from(std::process::id());
    assert_eq!(ask(own, 1), Ok((DEV_MEM_SIZE + 2 * PAGE) as u64));
    assert_eq!((ask(-1, 1), ask(0, 1), ask(own, 2)), (Ok(0), Err(Errno::EINVAL), Err(Errno::EINVAL)));
}

#[test]
fn columns_clocks_and_states_are_told() {
    let rig = newest();
    let file = &rig.file;
    let clocks: amdxdna_drm_query_clock_metadata = query(file, DRM_AMDXDNA_QUERY_CLOCK_METADATA).unwrap();
    assert_eq!((clocks.mp_npu_clock.freq_mhz, clocks.h_clock.freq_mhz), (396, 792), "it has nothing to do");
    let resources: amdxdna_drm_get_resource_info = query(file, DRM_AMDXDNA_QUERY_RESOURCE_INFO).unwrap();
    assert_eq!((resources.npu_tops_max, resources.npu_tops_curr), (58, 25));
    let active = || {
        let mut status = amdxdna_drm_query_aie_status::zeroed();
        let buffer_size = size_of_val(&status) as u32;
        let (param, buffer) = (DRM_AMDXDNA_QUERY_AIE_STATUS, address(&mut status));
        make(file, "GET_INFO", &mut amdxdna_drm_get_info { param, buffer_size, buffer }).map(|()| status.cols_filled)
    };
    assert_eq!(active(), Ok(0));
    context(file, 4).unwrap();
    assert_eq!(active(), Ok(0xff));
    for (set, get) in [
        (DRM_AMDXDNA_SET_FORCE_PREEMPT, DRM_AMDXDNA_GET_FORCE_PREEMPT_STATE),
        (DRM_AMDXDNA_SET_FRAME_BOUNDARY_PREEMPT, DRM_AMDXDNA_GET_FRAME_BOUNDARY_PREEMPT_STATE),
    ] {
        assert_eq!(file.can_set(set, true), Ok(()));
        assert_eq!(file.set(set, &[2, 0, 0, 0, 0, 0, 0, 0]), Err(Errno::EINVAL));
        assert_eq!(file.set(set, &[0, 0, 0, 0, 1, 0, 0, 0]), Err(Errno::EINVAL), "padding");
        assert_eq!(file.set(set, &[1, 0, 0, 0, 0, 0, 0, 0]), Ok(()));
        assert_eq!(query::<u8>(file, get), Ok(1));
    }
}

#[test]
fn the_kernel_does_not_look_into_memory_of_the_caller() {
    let rig = newest();
    let (context, _) = rig.ready("add 1");
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new page at an address the kernel chooses; it stays.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, anonymous, -1, 0) };
    let mut table = [1_u64 << 32, page.expose_provenance() as u64, PAGE as u64];
    let vaddr = address(&mut table);
    let mut bo = amdxdna_drm_create_bo { vaddr, size: 1, type_: AMDXDNA_BO_CMD, ..Default::default() };
    make(&rig.file, "CREATE_BO", &mut bo).unwrap();
    assert_eq!(rig.file.sync_bo(bo.handle, SYNC_DIRECT_TO_DEVICE, 0, 8), Err(Errno::EOPNOTSUPP));
    let sequence = rig.file.exec_cmd(context, bo.handle, &[]).unwrap();
    rig.ended(context, sequence);
    assert!(rig.messages().contains("cannot be read"), "{}", rig.messages());
    let found = rig.file.bo(bo.handle).unwrap();
    let wanted = crate::node::Wanted { address: 0, length: PAGE, prot: 1, flags: libc::MAP_SHARED, offset: 0 };
    assert_eq!(rig.device.mappings.map(found, &wanted), Err(Errno::EINVAL));
}

#[test]
fn what_only_a_display_has_is_forbidden() {
    let rig = newest();
    let request = u64::from(RequestCode::new(Direction::ReadWrite, 0x3f, 8).0);
    // SAFETY: nothing is read for this.
    let result = unsafe { crate::node::ioctl::ioctl(&rig.file, &Exported::default(), request, 0) };
    assert_eq!(result, Err(Errno::EACCES));
}
