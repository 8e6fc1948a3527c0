//! The node without any preloading: each limit, each error code, and what commands come to.

mod ioctl;
mod jobs;
mod kernels;
mod newest;
mod rig;
mod syncobj;

use crate::journal::Level;
use crate::node::File;
use aie_hal::format::instructions::{Header, Instruction, InstructionStream, InstructionWriter};
use amdxdna_sys::ert::{opcode, state};
use amdxdna_sys::limits::*;
use amdxdna_sys::{AMDXDNA_BO_CMD, AMDXDNA_BO_DEV, AMDXDNA_BO_SHMEM};
use nix::errno::Errno;
use rig::{Rig, context, create, device, rig, rig_of, rig_with};
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

#[test]
fn more_than_the_machine_has_is_rejected_and_so_is_a_context_of_no_tiles() {
    let file = File::open(&device("", "")).unwrap();
    assert_eq!(create(&file, AMDXDNA_BO_SHMEM, 1 << 39), Err(Errno::ENOMEM));
    assert_eq!(context(&file, 0), Err(Errno::EINVAL), "before the heap is missed");
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
fn contexts_have_cyclic_handles_and_a_limit_that_can_be_lowered() {
    let Rig { device, file, .. } = &rig_with("contexts=3", "");
    for handle in 1..=255 {
        assert_eq!(context(file, 28), Ok(handle));
        file.destroy_hwctx(handle).unwrap();
    }
    let handles: Vec<_> = (0..3).map(|_| context(file, 4).unwrap()).collect();
    assert_eq!(handles, [1, 2, 3]);
    assert_eq!(context(file, 4), Err(Errno::ENOENT));
    assert_eq!(device.journal.level(Level::Contexts), 3);
}

#[test]
fn chains_run_in_order_and_count() {
    let rig = rig();
    let (context, instructions) = rig.ready("add 3");
    rig.write(rig.data, &[1, 2, 3, 4]);
    let commands = [rig.command(0, instructions, 0, 64, 4), rig.command(0, instructions, 64, 128, 4)];
    let chain = rig.chain(&commands);
    assert_eq!(rig.file.exec_cmd(context, chain, &[rig.data]), Ok(0));
    assert_eq!(rig.file.wait_cmd(context, 0, 0), Ok(()));
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
fn malformed_submissions_are_dropped() {
    let rig = rig_of("6.18", "wait=cmd", "");
    let (context, instructions) = rig.ready("add 0");
    let good = rig.command(0, instructions, 0, 64, 4);
    let no_unit = rig.command_bo(opcode::START_CU, &[0, 3, 0, 0, 0, 0]);
    let cases = [
        (rig.chain(&[]), "a chain of 0 commands"),
        (rig.chain(&[good; 65]), "a chain of 65 commands"),
        (rig.chain(&[rig.data]), "is not a command BO"),
        (rig.chain(&[no_unit]), "no compute unit"),
        (rig.command_bo(opcode::CMD_CHAIN, &[1, 0, 0]), "do not fit into the chain's payload"),
        (rig.command_bo(23, &[1; 8]), "opcode 23 is not one that the driver"),
        // Commands of two arguments take 52 + 4 * 11 bytes.
        (rig.chain(&[good; 43]), "does not fit into the chain buffer of 4096 bytes"),
    ];
    for (sequence, (chain, expected)) in cases.into_iter().enumerate() {
        assert_eq!(rig.file.exec_cmd(context, chain, &[rig.data]), Ok(sequence as u64));
        assert_eq!(rig.file.wait_cmd(context, sequence as u64, 0), Ok(()));
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

/// On an NPU such a stream moves nothing of its sixth argument. Here it never signals, with the reason.
#[test]
fn late_arguments_need_the_arrays_offset() {
    let relative = {
        let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 1, mem_tile_rows: 1 });
        for argument in [0, 1, 5] {
            writer.push(&Instruction::AddressPatch { register: 0x1_d004, argument, offset: 0 });
        }
        writer.finish().unwrap()
    };
    let bound = InstructionStream::for_firmware(&relative).unwrap();
    for (stream, misses) in [(&relative[..], true), (&bound[..], false)] {
        let rig = rig();
        let (context, _) = rig.ready("add 1");
        let instructions = (rig.dev(stream), stream.len() as u32 / 4);
        let command = rig.command(0, instructions, 0, 64, 8);
        rig.file.exec_cmd(context, command, &[rig.data]).unwrap();
        _ = rig.file.wait_cmd(context, 0, 0);
        assert_eq!(rig.messages().contains("without the array's offset 0x80000000"), misses, "{}", rig.messages());
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
    let outside = rig.command(0, instructions, 0, 64, 4);
    // Below the heap. The low half of an address of this process may be one of the heap's.
    rig.file.bo(outside).unwrap().set_word(16, PAGE as u32);
    assert_eq!(run(outside, &[rig.data]), state::TIMEOUT);
    assert!(rig.messages().contains("are not in a device heap"), "{}", rig.messages());
    let within = rig.command(0, instructions, 0, 64, 4);
    let bo = rig.file.bo(within).unwrap();
    bo.set_word(16, rig.device_address(instructions.0) as u32 + 64);
    assert_eq!(run(within, &[rig.data]), state::TIMEOUT);
    assert!(rig.messages().contains("which is no multiple of 16384"), "{}", rig.messages());
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
#[case("untouched@1", state::COMPLETED)]
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
    let submit = || rig.file.exec_cmd(context, chain, &[rig.data]).unwrap();
    // 50 us, and 34 times 30 us more, for each of four jobs: above four milliseconds, which waiting passes at once. On a machine under
    // load they can have passed before the first wait.
    let mut attempts = (0..50).map(|_| {
        let last = (0..4).map(|_| submit()).max().unwrap();
        (0..1000).take_while(|_| rig.file.wait_cmd(context, last, 1) == Err(Errno::ETIME)).count()
    });
    let waits = attempts.find(|waits| *waits > 0);
    assert!(waits.is_some_and(|waits| waits < 1000), "{waits:?} waits of a millisecond were too short");
    assert_eq!(rig.file.wait_cmd(context, submit(), 2000), Ok(()));
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
    assert!(device.journal.levels(|now, _| now).values().all(|now| *now == 0));
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
                    assert_eq!(rig.file.wait_cmd(context, 0, 0), Ok(()));
                    assert_eq!(rig.data(at + 64, 4), [round as u8 + 1; 4]);
                    [command, chain].iter().for_each(|bo| rig.file.gem_close(*bo).unwrap());
                    rig.file.destroy_hwctx(context).unwrap();
                }
            });
        }
    });
    assert_eq!(rig.device.npu.counts().chains, 400);
    assert_eq!(rig.device.journal.level(Level::Contexts), 0);
}
