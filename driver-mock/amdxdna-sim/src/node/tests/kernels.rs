//! What differs from kernel to kernel.

use super::ioctl::{address, make};
use super::rig::{device_with, rig_of};
use crate::node::File;
use amdxdna_sys::ert::{opcode, state};
use amdxdna_sys::*;
use bytemuck::Zeroable;
use nix::errno::Errno;
use rstest::rstest;

/// Words of a chain and of its first command behind the header that an error overwrites.
const ERROR_INDEX: usize = 12;

#[rstest]
#[case("wait=cmd", true, false)]
#[case("wait=syncobj", false, true)]
#[case("wait=none", false, false)]
fn a_machine_can_have_other_ways_to_wait(#[case] machine: &str, #[case] by_cmd: bool, #[case] by_object: bool) {
    let rig = rig_of("legacy", machine, "");
    let mut qos = [0_u32; 6];
    let mut made = amdxdna_drm_create_hwctx { num_tiles: 4, qos_p: address(&mut qos), ..Default::default() };
    make(&rig.file, "CREATE_HWCTX", &mut made).unwrap();
    assert_eq!(made.syncobj_handle != 0, by_object);
    let mut capability = drm_get_cap { capability: DRM_CAP_SYNCOBJ_TIMELINE, value: 9 };
    make(&rig.file, "GET_CAP", &mut capability).unwrap();
    assert_eq!(capability.value, u64::from(by_object));
    let created = make(&rig.file, "SYNCOBJ_CREATE", &mut drm_syncobj_create::zeroed());
    assert_eq!(created, if by_object { Ok(()) } else { Err(Errno::EOPNOTSUPP) });
    let (context, instructions) = rig.ready("add 1");
    rig.run(context, rig.command(0, instructions, 0, 64, 4), &[rig.data]);
    let mut wait = amdxdna_drm_wait_cmd { hwctx: context, timeout: 0, seq: 0 };
    let waited = make(&rig.file, "WAIT_CMD", &mut wait);
    assert_eq!(waited, if by_cmd { Ok(()) } else { Err(Errno::EINVAL) });
}

/// An access error of the array, whose status ends in the bits of COMPLETED, and an instruction error.
#[rstest]
#[case("legacy", [state::ERROR, state::ERROR])]
#[case("6.14", [state::COMPLETED, state::ABORT])]
#[case("6.18", [state::COMPLETED, state::ABORT])]
#[case("7.2", [state::ERROR, state::ERROR])]
fn older_kernels_keep_four_bits_of_a_chains_status(#[case] kernel: &str, #[case] states: [u32; 2]) {
    let rig = rig_of(kernel, "", "status=0x1000004@2,status=0x1000006@4,status=0x1000004@5");
    let (context, instructions) = rig.ready("add 1");
    for expected in states {
        let commands = [0, 64].map(|at| rig.command(0, instructions, at, at + 128, 8));
        // An even number of words.
        let chain = rig.chain(&commands.map(|command| rig.padded(command)));
        rig.file.bo(chain).unwrap().set_word(ERROR_INDEX, u32::MAX);
        assert_eq!(rig.run(context, chain, &[rig.data]), expected);
        assert_eq!(rig.file.bo(chain).unwrap().word(ERROR_INDEX), Some(1), "the error index is always written");
        let first = rig.file.bo(rig.chained(chain, 0)).unwrap().word(4).unwrap();
        assert_eq!(first == u32::MAX, kernel == "7.2", "the newest kernel overwrites the first command");
    }
    let single = rig.padded(rig.command(0, instructions, 0, 64, 4));
    assert_eq!(rig.run(context, single, &[rig.data]), state::ERROR);
}

#[rstest]
#[case("legacy", 2, state::TIMEOUT, [state::NEW, state::TIMEOUT], Some(1))]
#[case("6.14", 60, state::ABORT, [state::NEW, state::NEW], None)]
#[case("6.18", 60, state::ABORT, [state::NEW, state::NEW], None)]
#[case("7.2", 2, state::TIMEOUT, [state::NEW, state::NEW], Some(1))]
fn a_job_that_takes_too_long_ends_as_the_kernel_ends_it(
    #[case] kernel: &str,
    #[case] seconds: u64,
    #[case] ended: u32,
    #[case] commands_ended: [u32; 2],
    #[case] index: Option<u32>,
) {
    let rig = rig_of(kernel, "", "timeout@2");
    let (context, instructions) = rig.ready("add 1");
    let commands = [0, 64].map(|at| rig.padded(rig.command(0, instructions, at, at + 128, 8)));
    let chain = rig.chain(&commands);
    rig.file.bo(chain).unwrap().set_word(ERROR_INDEX, u32::MAX);
    let start = rig.device.npu.elapsed_ns();
    assert_eq!(rig.run(context, chain, &[rig.data]), ended);
    assert_eq!(commands.map(|command| rig.state(command)), commands_ended);
    assert_eq!(rig.file.bo(chain).unwrap().word(ERROR_INDEX), Some(index.unwrap_or(u32::MAX)));
    let passed = (rig.device.npu.elapsed_ns() - start) / 1_000_000_000;
    assert!((seconds - 1..=seconds).contains(&passed), "{passed} s");
    // The context works again.
    let again = rig.padded(rig.command(0, instructions, 0, 64, 4));
    assert_eq!(rig.run(context, again, &[rig.data]), state::COMPLETED);
}

#[test]
fn odd_slots_are_rejected_by_newer_firmware_of_npu4() {
    let rig = rig_of("6.18", "", "");
    let (context, instructions) = rig.ready("add 1");
    let chain = rig.chain(&[rig.command(0, instructions, 0, 64, 4)]);
    assert_eq!(rig.run(context, chain, &[rig.data]), state::ABORT);
    assert!(rig.messages().contains("an even number"), "{}", rig.messages());
}

#[rstest]
#[case("legacy", "iommu=off", Some(Errno::ENODEV))]
#[case("6.18", "iommu=off", Some(Errno::ENODEV))]
#[case("6.14", "iommu=passthrough", Some(Errno::EOPNOTSUPP))]
#[case("7.2", "iommu=passthrough", Some(Errno::EINVAL))]
#[case("7.2", "iommu=passthrough,addresses=iova", None)]
fn without_shared_addresses_the_node_does_not_open(
    #[case] kernel: &str,
    #[case] machine: &str,
    #[case] expected: Option<Errno>,
) {
    let device = device_with(kernel, machine, "");
    assert_eq!(File::open(&device).err(), expected);
}

#[test]
fn device_addresses_can_be_other_than_pointers() {
    let rig = rig_of("7.2", "addresses=iova", "");
    let mut info = amdxdna_drm_get_bo_info { handle: rig.data, ..Default::default() };
    rig.file.get_bo_info(&mut info).unwrap();
    assert_eq!(info.vaddr, rig.address as u64);
    assert_ne!(info.xdna_addr, info.vaddr);
    let (context, instructions) = rig.ready("add 1");
    rig.write(rig.data, &[1; 8]);
    let by_pointer = rig.padded(rig.command(0, instructions, 0, 64, 8));
    assert_eq!(rig.run(context, by_pointer, &[rig.data]), state::TIMEOUT, "the device does not know pointers");
    let by_address = rig.padded(rig.command_at(0, instructions, info.xdna_addr as usize, 0, 64, 8));
    assert_eq!(rig.run(context, by_address, &[rig.data]), state::COMPLETED);
    assert_eq!(rig.data(64, 8), [2; 8]);
}

#[rstest]
#[case("6.14", opcode::START_NPU, state::ERROR)]
#[case("6.14", opcode::START_NPU_PREEMPT, state::NEW)]
#[case("7.2", opcode::START_NPU_PREEMPT, state::ERROR)]
#[case("7.2", opcode::START_NPU_PREEMPT_ELF, state::ERROR)]
#[case("7.2", 23, state::NEW)]
fn commands_of_elf_files_end_as_far_as_the_kernel_takes_them(
    #[case] kernel: &str,
    #[case] opcode: u32,
    #[case] expected: u32,
) {
    let rig = rig_of(kernel, "", "");
    let (context, _) = rig.ready("add 1");
    // The mask, ten words that some opcodes have to have, and two arguments.
    let command = rig.command_bo(opcode, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rig.run(context, command, &[rig.data]), expected);
}

#[test]
fn sensors_are_reported_as_far_as_there_is_room() {
    let rig = rig_of("7.2", "", "");
    let mut sensors = [amdxdna_drm_query_sensor::zeroed(); 16];
    let buffer_size = size_of_val(&sensors) as u32;
    let buffer = address(&mut sensors);
    let mut get = amdxdna_drm_get_info { param: DRM_AMDXDNA_QUERY_SENSORS, buffer_size, buffer };
    assert_eq!(make(&rig.file, "GET_INFO", &mut get), Ok(()));
    assert_eq!(get.buffer_size as usize, 9 * size_of::<amdxdna_drm_query_sensor>());
    assert_eq!(&sensors[0].label[..11], b"Total Power");
    assert_eq!(&sensors[8].label[..20], b"Column 7 Utilization");
    // No room for a sensor is no error.
    let mut short = amdxdna_drm_get_info { param: DRM_AMDXDNA_QUERY_SENSORS, buffer_size: 100, buffer };
    assert_eq!((make(&rig.file, "GET_INFO", &mut short), short.buffer_size), (Ok(()), 0));
}
