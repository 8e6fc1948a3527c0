//! The node without any preloading: each limit, each error code, and what commands come to.

mod ioctl;
mod jobs;
mod kernels;
mod newest;
mod rig;
mod syncobj;

use crate::errno::Errno;
use crate::node::File;
use amdxdna_sys::ert::{opcode, state};
use amdxdna_sys::limits::*;
use amdxdna_sys::{
    AMDXDNA_BO_CMD, AMDXDNA_BO_DEV, AMDXDNA_BO_DEV_HEAP, AMDXDNA_BO_SHMEM, AMDXDNA_INVALID_ADDR, amdxdna_drm_create_bo,
    amdxdna_drm_get_bo_info,
};
use bytemuck::Zeroable;
use rig::{Rig, context, create, device, heap_address, map_at, rig, rig_of, rig_with};
use rstest::rstest;

#[test]
fn bos_have_the_lowest_free_handles_of_their_file() {
    let Rig { device, file, .. } = &rig();
    let handles: Vec<u32> = (0..4).map(|_| create(file, AMDXDNA_BO_SHMEM, 1).unwrap()).collect();
    assert_eq!(handles, [3, 4, 5, 6]);
    file.gem_close(6).unwrap();
    file.gem_close(4).unwrap();
    file.gem_close(3).unwrap();
    assert_eq!(file.gem_close(4), Err(Errno::EINVAL));
    let again: Vec<u32> = (0..4).map(|_| create(file, AMDXDNA_BO_CMD, 64).unwrap()).collect();
    assert_eq!(again, [3, 4, 6, 7]);
    assert_eq!(create(&File::open(device).unwrap(), AMDXDNA_BO_SHMEM, 1), Ok(1));
}

#[rstest]
#[case::empty(AMDXDNA_BO_SHMEM, 0, Errno::EINVAL)]
#[case::unknown(5, 4096, Errno::EINVAL)]
#[case::huge(AMDXDNA_BO_SHMEM, 1 << 39, Errno::ENOMEM)]
#[case::more_than_offsets(AMDXDNA_BO_SHMEM, 1 << 60, Errno::ENOSPC)]
#[case::negative(AMDXDNA_BO_SHMEM, usize::MAX - 4095, Errno::EINVAL)]
#[case::rounded_to_nothing(AMDXDNA_BO_SHMEM, usize::MAX, Errno::EINVAL)]
#[case::long_command(AMDXDNA_BO_CMD, CMD_BO_BYTES + 1, Errno::EINVAL)]
#[case::short_command(AMDXDNA_BO_CMD, 3, Errno::EINVAL)]
#[case::half_heap(AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE / 2, Errno::EINVAL)]
#[case::second_heap(AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE, Errno::EBUSY)]
#[case::larger_than_the_heap(AMDXDNA_BO_DEV, DEV_MEM_SIZE + 1, Errno::EINVAL)]
fn bos_that_cannot_be(#[case] kind: u32, #[case] size: usize, #[case] expected: Errno) {
    assert_eq!(create(&rig_of("6.18", "", "").file, kind, size), Err(expected));
}

#[test]
fn flags_and_user_addresses_are_refused() {
    let Rig { file, .. } = &rig();
    for arguments in [
        amdxdna_drm_create_bo { flags: 1, ..amdxdna_drm_create_bo::zeroed() },
        amdxdna_drm_create_bo { vaddr: 4096, ..amdxdna_drm_create_bo::zeroed() },
    ] {
        let mut arguments = amdxdna_drm_create_bo { type_: AMDXDNA_BO_SHMEM, size: 4096, ..arguments };
        assert_eq!(file.create_bo(&mut arguments), Err(Errno::EINVAL));
    }
}

#[test]
fn parts_of_the_heap_need_a_heap_that_is_mapped() {
    let device = device("", "");
    let file = File::open(&device).unwrap();
    assert_eq!(create(&file, AMDXDNA_BO_DEV, PAGE), Err(Errno::EINVAL));
    let heap = create(&file, AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE).unwrap();
    assert_eq!(create(&file, AMDXDNA_BO_DEV, PAGE), Err(Errno::EINVAL));
    let address = map_at(&file, heap, heap_address());
    let part = create(&file, AMDXDNA_BO_DEV, 100).unwrap();
    let mut info = amdxdna_drm_get_bo_info { handle: part, ..amdxdna_drm_get_bo_info::zeroed() };
    file.get_bo_info(&mut info).unwrap();
    assert_eq!((info.vaddr, info.xdna_addr), (address as u64, DEV_MEM_BASE));
    assert_eq!(info.map_offset, AMDXDNA_INVALID_ADDR);
    // The heap outlives its handle while it has parts, and there is never a second one.
    file.gem_close(heap).unwrap();
    assert!(file.bo(part).unwrap().memory().is_some());
    assert_eq!(create(&file, AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE), Err(Errno::EBUSY));
}

#[test]
fn a_small_heap_is_full_early_and_takes_back() {
    let rig = rig_with("heap=131072", "");
    let parts: Vec<u32> = (0..4).map(|_| create(&rig.file, AMDXDNA_BO_DEV, 1).unwrap()).collect();
    assert_eq!(create(&rig.file, AMDXDNA_BO_DEV, 1), Err(Errno::ENOSPC));
    assert_eq!(context(&rig.file, 4), Err(Errno::ENOSPC), "the kernel's chain buffers need room too");
    parts.iter().for_each(|part| rig.file.gem_close(*part).unwrap());
    assert!(context(&rig.file, 4).is_ok());
    assert_eq!(create(&rig.file, AMDXDNA_BO_DEV, 1), Err(Errno::ENOSPC));
}

#[test]
fn bos_are_mapped_by_their_offset() {
    let Rig { device, file, data, .. } = &rig();
    let bo = file.bo(*data).unwrap();
    let offset = bo.map_offset();
    assert!(file.mappable(offset, 2 * PAGE, libc::MAP_SHARED).is_ok());
    assert!(file.mappable(offset, PAGE, libc::MAP_SHARED | libc::MAP_FIXED).is_ok());
    let refused = |offset, length, flags| file.mappable(offset, length, flags).map(drop);
    assert_eq!(refused(offset, 2 * PAGE + 1, libc::MAP_SHARED), Err(Errno::EINVAL));
    assert_eq!(refused(offset + PAGE as u64, PAGE, libc::MAP_SHARED), Err(Errno::EINVAL));
    assert_eq!(refused(offset, PAGE, libc::MAP_PRIVATE), Err(Errno::EINVAL));
    assert_eq!(refused(AMDXDNA_INVALID_ADDR, PAGE, libc::MAP_SHARED), Err(Errno::EINVAL));
    let other = File::open(device).unwrap();
    assert_eq!(other.mappable(offset, PAGE, libc::MAP_SHARED).map(drop), Err(Errno::EACCES));
    file.gem_close(*data).unwrap();
    assert_eq!(refused(offset, PAGE, libc::MAP_SHARED), Err(Errno::EACCES), "its mapping keeps it");
}

#[test]
fn a_mapping_keeps_its_bo() {
    let Rig { device, file, data, address, .. } = &rig();
    let before = device.journal.counts.bos.now();
    file.gem_close(*data).unwrap();
    assert_eq!(device.journal.counts.bos.now(), before);
    assert!(device.mappings.remove(*address, 2 * PAGE));
    assert_eq!(device.journal.counts.bos.now(), before - 1);
}

#[test]
fn infos_and_syncs_are_checked() {
    let Rig { file, data, address, .. } = &rig();
    let mut info = amdxdna_drm_get_bo_info { handle: *data, ..amdxdna_drm_get_bo_info::zeroed() };
    file.get_bo_info(&mut info).unwrap();
    assert_eq!((info.vaddr, info.xdna_addr), (*address as u64, *address as u64));
    assert_eq!(file.get_bo_info(&mut amdxdna_drm_get_bo_info { handle: 99, ..info }), Err(Errno::ENOENT));
    assert_eq!(file.get_bo_info(&mut amdxdna_drm_get_bo_info { ext: 1, ..info }), Err(Errno::EINVAL));
    let new = create(file, AMDXDNA_BO_SHMEM, 1).unwrap();
    let mut info = amdxdna_drm_get_bo_info { handle: new, ..amdxdna_drm_get_bo_info::zeroed() };
    file.get_bo_info(&mut info).unwrap();
    assert_eq!((info.vaddr, info.xdna_addr), (AMDXDNA_INVALID_ADDR, AMDXDNA_INVALID_ADDR));
    assert_eq!(file.sync_bo(*data, 0, 0, 2 * PAGE as u64), Ok(()));
    assert_eq!(file.sync_bo(*data, 0, 1, 2 * PAGE as u64), Err(Errno::EINVAL));
    assert_eq!(file.sync_bo(*data, 0, u64::MAX, 2), Err(Errno::EINVAL));
    assert_eq!(file.sync_bo(99, 0, 0, 0), Err(Errno::ENOENT));
}

#[test]
fn contexts_need_a_heap_at_a_multiple_of_its_size() {
    let device = device("", "");
    let file = File::open(&device).unwrap();
    assert_eq!(context(&file, 0), Err(Errno::EINVAL));
    assert_eq!(context(&file, 4), Err(Errno::ENOENT));
    let heap = create(&file, AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE).unwrap();
    assert_eq!(context(&file, 4), Err(Errno::EINVAL));
    map_at(&file, heap, heap_address() + PAGE);
    assert_eq!(context(&file, 4), Err(Errno::EINVAL));
}

#[test]
fn contexts_have_cyclic_handles_and_a_limit_over_all_files() {
    let Rig { device, file, .. } = &rig_with("contexts=3", "");
    assert_eq!(context(file, 3), Err(Errno::EINVAL), "less than a column");
    assert_eq!(context(file, 36), Err(Errno::ENOSPC), "nine columns");
    for handle in 1..=255 {
        assert_eq!(context(file, 28), Ok(handle));
        file.destroy_hwctx(handle).unwrap();
    }
    let handles: Vec<_> = (0..3).map(|_| context(file, 4).unwrap()).collect();
    assert_eq!(handles, [1, 2, 3]);
    assert_eq!(context(file, 4), Err(Errno::ENOENT));
    assert_eq!(file.destroy_hwctx(9), Err(Errno::EINVAL));
    let other = File::open(device).unwrap();
    let heap = create(&other, AMDXDNA_BO_DEV_HEAP, DEV_MEM_SIZE).unwrap();
    map_at(&other, heap, heap_address());
    assert_eq!(context(&other, 4), Err(Errno::ENOENT));
    file.destroy_hwctx(2).unwrap();
    assert_eq!(context(&other, 4), Ok(1));
    drop(other);
    assert_eq!(context(file, 4), Ok(4));
    assert_eq!(device.journal.counts.contexts.now(), 3);
}

#[test]
fn compute_units_are_configured_once() {
    let rig = rig_of("6.18", "", "");
    let (pdi, one) = (rig.pdi("add 1"), context(&rig.file, 4).unwrap());
    assert_eq!(rig.configure(one, &[]), Err(Errno::EINVAL));
    assert_eq!(rig.configure(one, &[pdi; 33]), Err(Errno::EINVAL));
    assert_eq!(rig.configure(one, &[rig.data]), Err(Errno::EINVAL), "a PDI has to be in the heap");
    assert_eq!(rig.configure(one, &[77]), Err(Errno::EINVAL));
    assert_eq!(rig.configure(9, &[pdi]), Err(Errno::EINVAL));
    assert_eq!(rig.file.config_cu(one, &[2, 0, 0, 0, 0, 0, 0, 0]), Err(Errno::EINVAL), "no room for two");
    assert_eq!(rig.configure(one, &[pdi; 32]), Ok(()));
    assert_eq!(rig.configure(one, &[pdi]), Err(Errno::EINVAL));
}

#[test]
fn chains_run_in_order_and_count() {
    let rig = rig();
    let (context, instructions) = rig.ready("add 3");
    rig.write(rig.data, &[1, 2, 3, 4]);
    let commands = [rig.command(0, instructions, 0, 64, 4), rig.command(0, instructions, 64, 128, 4)];
    let chain = rig.chain(&commands);
    assert_eq!(rig.file.exec_cmd(context, chain, &[rig.data]), Ok(0));
    assert_eq!(rig.file.wait_cmd(context, 0, 50), Ok(()));
    assert_eq!(rig.data(128, 4), [7, 8, 9, 10]);
    assert_eq!((rig.state(chain), rig.state(commands[0])), (state::COMPLETED, state::NEW));
    assert_eq!(rig.file.exec_cmd(context, commands[0], &[rig.data]), Ok(1));
    rig.ended(context, 1);
    assert_eq!(rig.state(commands[0]), state::COMPLETED);
    let counts = rig.device.npu.counts();
    assert_eq!((counts.chains, counts.commands, counts.context_switches), (2, 3, 0));
    assert!(!rig.messages().contains("command"), "{}", rig.messages());
}

#[test]
fn submissions_are_checked() {
    let rig = rig_of("6.18", "wait=cmd", "");
    let (ready, instructions) = rig.ready("add 3");
    let command = rig.command(0, instructions, 0, 64, 4);
    let exec = |context, command, arguments: &[u32]| rig.file.exec_cmd(context, command, arguments);
    assert_eq!(exec(ready, rig.data, &[]), Err(Errno::EINVAL), "no command BO");
    assert_eq!(exec(ready, 99, &[]), Err(Errno::EINVAL));
    assert_eq!(exec(ready, command, &[99]), Err(Errno::ENOENT));
    assert_eq!(exec(9, command, &[]), Err(Errno::EINVAL));
    let bare = context(&rig.file, 4).unwrap();
    assert_eq!(exec(bare, command, &[rig.data]), Err(Errno::EINVAL), "not configured");
    assert_eq!(exec(ready, command, &[rig.data, rig.data]), Err(Errno::EALREADY));
    assert_eq!(rig.file.wait_cmd(ready, 0, 50), Err(Errno::EINVAL), "nothing was submitted");
    assert_eq!(exec(ready, command, &[rig.data]), Ok(0));
    assert_eq!(rig.file.wait_cmd(ready, 1, 50), Err(Errno::EINVAL));
    assert_eq!(rig.file.wait_cmd(9, 0, 50), Err(Errno::EINVAL));
}

/// Commands of two arguments take 52 + 4 * 11 bytes.
#[rstest]
#[case(42, state::COMPLETED)]
#[case(43, state::NEW)]
fn a_chain_buffer_holds_42_commands_of_two_arguments(#[case] count: usize, #[case] state: u32) {
    let rig = rig();
    let (context, instructions) = rig.ready("add 0");
    let command = rig.command(0, instructions, 0, 64, 4);
    let chain = rig.chain(&vec![command; count]);
    assert_eq!(rig.file.exec_cmd(context, chain, &[rig.data]), Ok(0));
    assert_eq!(rig.file.wait_cmd(context, 0, 0), Ok(()));
    assert_eq!(rig.state(chain), state);
    assert_eq!(rig.messages().contains("chain buffer of 4096"), state == state::NEW, "{}", rig.messages());
}

#[test]
fn malformed_submissions_are_dropped() {
    let rig = rig_of("6.18", "wait=cmd", "");
    let (context, instructions) = rig.ready("add 0");
    let good = rig.command(0, instructions, 0, 64, 4);
    let no_unit = rig.command_bo(opcode::START_CU, &[0, 3, 0, 0, 0, 0]);
    let cases = [
        (rig.chain(&[]), "a chain of 0 commands"),
        (rig.chain(&[good; 65]), "a chain of 65 commands"),
        (rig.chain(&[rig.data]), "is no command BO"),
        (rig.chain(&[no_unit]), "no compute unit"),
        (rig.command_bo(opcode::CMD_CHAIN, &[1, 0, 0]), "do not fit into the chain's payload"),
        (rig.command_bo(23, &[1; 8]), "opcode 23 is none that the driver"),
    ];
    for (sequence, (chain, expected)) in cases.into_iter().enumerate() {
        assert_eq!(rig.file.exec_cmd(context, chain, &[rig.data]), Ok(sequence as u64));
        assert_eq!(rig.file.wait_cmd(context, sequence as u64, 50), Ok(()));
        assert_eq!(rig.state(chain), state::NEW);
        assert!(rig.messages().contains(expected), "{expected}: {}", rig.messages());
    }
    assert_eq!(rig.device.npu.counts().chains, 0);
}

#[test]
fn a_failing_command_is_named_by_its_chain() {
    let rig = rig();
    let context = context(&rig.file, 32).unwrap();
    let pdis = [rig.pdi("add 1"), rig.pdi("fail")];
    rig.configure(context, &pdis).unwrap();
    let instructions = rig.instructions();
    let unit = |unit| rig.command(unit, instructions, 0, 64, 4);
    for (bad, expected) in [(unit(1), "always"), (unit(2), "compute unit 2 of a context with 2")] {
        let chain = rig.chain(&[unit(0), bad, unit(0)]);
        assert_eq!(rig.run(context, chain, &[rig.data]), state::ERROR);
        assert_eq!(rig.file.bo(chain).unwrap().word(12), Some(1));
        assert!(rig.messages().contains(expected), "{}", rig.messages());
    }
}

#[test]
fn what_cannot_be_executed_never_signals() {
    let rig = rig();
    let (context, instructions) = rig.ready("compiled code");
    let command = rig.command(0, instructions, 0, 64, 4);
    let chain = rig.chain(&[command]);
    rig.file.exec_cmd(context, chain, &[rig.data]).unwrap();
    assert_eq!(rig.file.wait_cmd(context, 0, 50), Err(Errno::ETIME));
    assert_eq!(rig.state(chain), state::NEW);
    let start = rig.device.npu.elapsed_ns();
    assert_eq!(rig.file.wait_cmd(context, 0, 50), Err(Errno::ETIME));
    assert_eq!(rig.device.npu.elapsed_ns(), start + 50_000_000);
    assert_eq!(rig.file.wait_cmd(context, 0, 0), Ok(()));
    // The rest of the two seconds, less what has passed on the clock, and a context is set up again.
    let restart = rig.device.arch.cost.context_create_ns;
    let passed = rig.device.npu.elapsed_ns() - start - restart;
    assert!((1_000_000_000..1_950_000_000).contains(&passed), "{passed} ns");
    assert_eq!((rig.state(chain), rig.state(command)), (state::TIMEOUT, state::TIMEOUT));
    assert!(rig.messages().contains("no description that is known"), "{}", rig.messages());
    // The context works again. The health report has taken the place of the command.
    let chain = rig.chain(&[rig.command(0, instructions, 0, 64, 4)]);
    rig.file.exec_cmd(context, chain, &[rig.data]).unwrap();
    assert_eq!(rig.file.destroy_hwctx(context), Ok(()), "the watchdog ends what still runs");
    assert_eq!(rig.state(chain), state::TIMEOUT);
}

#[test]
fn arguments_have_to_be_in_named_and_mapped_bos() {
    let rig = rig();
    let (context, instructions) = rig.ready("add 1");
    let run = |command: u32, arguments: &[u32]| rig.run(context, command, arguments);
    assert_eq!(run(rig.command(0, instructions, 0, 64, 4), &[]), state::TIMEOUT);
    assert!(rig.messages().contains("belongs to no BO of the submission"), "{}", rig.messages());
    // Sizes that cannot be are none: the argument reaches to the end of its BO, which is not what this kernel takes.
    assert_eq!(run(rig.command(0, instructions, 0, 2 * PAGE - 2, 4), &[rig.data]), state::ERROR);
    assert!(rig.messages().contains("lengths differ"), "{}", rig.messages());
    let outside = rig.command(0, (rig.data, instructions.1), 0, 64, 4);
    assert_eq!(run(outside, &[rig.data]), state::TIMEOUT);
    assert!(rig.messages().contains("are not in a device heap"), "{}", rig.messages());
    assert_eq!(run(rig.command(0, instructions, 0, 64, 4), &[rig.data]), state::COMPLETED);
    let gone = rig.command(0, instructions, 0, 64, 4);
    rig.device.mappings.remove(rig.address, 2 * PAGE);
    assert_eq!(run(gone, &[rig.data]), state::TIMEOUT);
    assert!(rig.messages().contains("no BO is mapped at"), "{}", rig.messages());
}

#[test]
fn parts_of_the_heap_can_be_arguments() {
    let rig = rig();
    let (context, instructions) = rig.ready("add 1");
    let part = rig.dev(&[5; 8]);
    let command = rig.command(0, instructions, 0, 64, 4);
    let address = rig.heap as u64 + rig.device_address(part) - DEV_MEM_BASE;
    let bo = rig.file.bo(command).unwrap();
    bo.set_word(28, address as u32);
    bo.set_word(32, (address >> 32) as u32);
    assert_eq!(rig.run(context, command, &[rig.data, part]), state::COMPLETED);
    assert_eq!(rig.data(64, 4), [6; 4]);
    assert_eq!(rig.run(context, command, &[rig.data]), state::TIMEOUT, "the part is not named");
}

#[rstest]
#[case("timeout@1", state::TIMEOUT)]
#[case("abort@1", state::ABORT)]
#[case("garbage@1", state::COMPLETED)]
#[case("lost@1", state::ABORT)]
fn planned_faults_hit_commands(#[case] plan: &str, #[case] state: u32) {
    let rig = rig_with("", plan);
    let (context, instructions) = rig.ready("add 1");
    let command = rig.command(0, instructions, 0, 64, 8);
    rig.file.exec_cmd(context, command, &[rig.data]).unwrap();
    rig.file.wait_cmd(context, 0, 0).unwrap();
    assert_eq!(rig.state(command), state);
    assert_ne!(rig.data(64, 8), [1; 8], "the result is not the right one");
    assert_eq!(rig.device.is_lost(), plan.starts_with("lost"));
}

#[test]
fn a_wait_that_is_shorter_than_the_work_is_too_short() {
    let rig = rig();
    let (context, instructions) = rig.ready("add 1");
    let command = rig.command(0, instructions, 0, 64, 8);
    let chain = rig.chain(&[command; 35]);
    // 50 us, and 34 times 30 us more, for each of four jobs: above four milliseconds, which waiting passes at once.
    for _ in 0..4 {
        rig.file.exec_cmd(context, chain, &[rig.data]).unwrap();
    }
    let waits = (0..1000).take_while(|_| rig.file.wait_cmd(context, 3, 1) == Err(Errno::ETIME)).count();
    assert!((1..1000).contains(&waits), "{waits} waits of a millisecond were too short");
    rig.file.exec_cmd(context, chain, &[rig.data]).unwrap();
    assert_eq!(rig.file.wait_cmd(context, 4, 2000), Ok(()));
}

#[test]
fn closing_a_file_releases_everything() {
    let rig = rig();
    let (context, instructions) = rig.ready("add 1");
    let command = rig.command(0, instructions, 0, 64, 8);
    rig.file.exec_cmd(context, command, &[rig.data]).unwrap();
    let Rig { device, file, heap, address, .. } = rig;
    device.mappings.remove(heap, DEV_MEM_SIZE);
    device.mappings.remove(address, 2 * PAGE);
    drop(file);
    let counts = &device.journal.counts;
    let left =
        [&counts.bos, &counts.bo_bytes, &counts.mappings, &counts.contexts, &counts.files].map(|level| level.now());
    assert_eq!(left, [0; 5]);
}

#[test]
fn threads_share_a_file() {
    let rig = rig();
    let (pdi, instructions) = (rig.pdi("add 1"), rig.instructions());
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let rig = &rig;
            scope.spawn(move || {
                for round in 0..100_u64 {
                    let context = context(&rig.file, 4).unwrap();
                    rig.configure(context, &[pdi]).unwrap();
                    let at = 512 * thread;
                    rig.write_at(at, &[round as u8; 4]);
                    let command = rig.command(0, instructions, at, at + 64, 4);
                    let chain = rig.chain(&[command]);
                    assert_eq!(rig.file.exec_cmd(context, chain, &[rig.data]), Ok(0));
                    assert_eq!(rig.file.wait_cmd(context, 0, 50), Ok(()));
                    assert_eq!(rig.data(at + 64, 4), [round as u8 + 1; 4]);
                    [command, chain].iter().for_each(|bo| rig.file.gem_close(*bo).unwrap());
                    rig.file.destroy_hwctx(context).unwrap();
                }
            });
        }
    });
    assert_eq!(rig.device.npu.counts().chains, 400);
    assert_eq!(rig.device.journal.counts.contexts.now(), 0);
}
