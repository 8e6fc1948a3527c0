//! What the real driver of Linux 7.2 was seen to do, and older ones do not.

use super::ioctl::{address, make, query};
use super::rig::{Rig, context, create, heap_address, map_at, rig_of};
use crate::memory::Memory;
use crate::node::{File, Kind};
use amdxdna_sys::ert::{self, opcode, state};
use amdxdna_sys::limits::*;
use amdxdna_sys::*;
use bytemuck::Zeroable;
use nix::errno::Errno;

const IOVA: &str = "addresses=iova";

fn newest() -> Rig {
    rig_of("7.2", IOVA, "")
}

#[test]
fn all_heaps_have_512_mib() {
    let file = newest().file;
    assert_eq!(create(&file, AMDXDNA_BO_DEV, (512 << 20) + 1), Err(Errno::EINVAL));
    assert_eq!(create(&file, AMDXDNA_BO_DEV_HEAP, 8 * DEV_MEM_SIZE), Err(Errno::ENOSPC));
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
    let file = File::open(&super::rig::device_of(&[("DEVICES", "aie2"), ("KERNEL", "7.2")])).unwrap();
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
        handles: file.handles.clone(),
        is_typed: false,
    };
    assert!(std::sync::Arc::ptr_eq(&submission.command(0).unwrap(), &bos[1]));
    crate::node::completion::CompletionWriter::new(file.device(), &submission).overdue(1);
    assert_eq!((bos[0].word(0).map(|word| word & 0xf), bos[0].word(12)), (Some(state::TIMEOUT), Some(0)));
    assert_eq!([4, 8].map(|offset| bos[1].word(offset)), [Some(u32::MAX); 2]);
}

#[test]
fn debug_bos_belong_to_one_context() {
    let rig = newest();
    let (one, two) = (context(&rig.file, 4).unwrap(), context(&rig.file, 4).unwrap());
    let part = rig.dev(&[0; 8]);
    let config = |context, assign| rig.file.config_debug_bo(context, part, assign);
    assert_eq!([config(9, true), config(one, true)], [Err(Errno::EINVAL), Ok(())]);
    assert_eq!([config(two, true), config(two, false)], [Err(Errno::EBUSY), Err(Errno::EINVAL)]);
    assert_eq!(rig.file.sync_bo(part, SYNC_DIRECT_FROM_DEVICE, 0, 8), Ok(()));
    assert_eq!(config(one, false), Ok(()));
    // Each was a job of the context.
    let command = rig.command_bo(opcode::START_CU, &[0; 4]);
    assert_eq!(rig.file.exec_cmd(one, command, &[]), Ok(3));
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
fn the_kernel_does_not_look_into_memory_of_the_caller() {
    let rig = newest();
    let (context, _) = rig.ready("add 1");
    let bo = rig.file.bo_of(Kind::User { visible: false }, Memory::create(PAGE).unwrap());
    let command = rig.file.handles.lock().insert(bo);
    rig.ended(context, rig.file.exec_cmd(context, command, &[]).unwrap());
    assert!(rig.messages().contains("the command BO cannot be read"), "{}", rig.messages());
}

#[test]
fn columns_and_states_are_reported() {
    let rig = newest();
    let file = &rig.file;
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
