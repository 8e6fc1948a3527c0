//! EXEC_CMD with single commands.

use super::{Script, with_command, with_setup};
use crate::names::NOWHERE;
use crate::packets::CommandPacket;
use crate::probe::Probe;
use crate::setup::{Mapped, PATIENCE, Setup, list};
use amdxdna_sys::ert::opcode;
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::*;

pub(super) const SCRIPTS: &[Script] = &[
    with_command("command: empty", "the empty stream, several times", empty),
    with_command("command: fields", "EXEC_CMD with wrong fields", fields),
    with_setup("command: buffers", "BOs that a command can be in", buffers),
    with_command("command: arguments", "lists of argument BOs", arguments),
    with_setup("command: opcodes", "every opcode", opcodes),
    with_setup("command: headers", "headers whose counts and masks lie", headers),
    with_setup("command: sizes", "commands of many words", sizes),
    with_setup("command: instructions", "addresses and lengths of instructions that are none", instructions),
    with_command("command: many", "many submissions before the first wait", many),
    with_command("command: closed buffers", "command and arguments are closed before the wait", closed_buffers),
    with_setup("command: destroyed context", "the context goes away with commands under way", destroyed_context),
    with_command("command: two contexts", "each has its own sequence and timeline", two_contexts),
];

/// Runs each of these commands in a context of its own.
fn run_each(p: &mut Probe, setup: &Setup, commands: &[(&str, CommandPacket)]) {
    for (what, command) in commands {
        let Some(command) = p.command(*command) else { return };
        p.in_context(&[setup.pdi], |p, context| {
            p.note("next", *what);
            p.run(context, &command, &[]);
        });
    }
}

fn empty(p: &mut Probe, setup: Setup, command: Mapped) {
    for _ in 0..3 {
        p.run(setup.context, &command, &[]);
    }
    // What is in the state beforehand does not count.
    command.memory.set_word(0, command.memory.word(0) & !ert::STATE_MASK | ert::state::ERROR);
    p.run(setup.context, &command, &[]);
    p.destroy(setup.context);
}

fn fields(p: &mut Probe, setup: Setup, command: Mapped) {
    let argument = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let arguments = vec![argument; 4096];
    let right = amdxdna_drm_exec_cmd {
        hwctx: setup.context.handle,
        cmd_handles: command.handle.into(),
        cmd_count: 1,
        ..Default::default()
    };
    for mut wrong in [
        amdxdna_drm_exec_cmd { ext: 1, ..right },
        amdxdna_drm_exec_cmd { ext_flags: 1, ..right },
        amdxdna_drm_exec_cmd { type_: AMDXDNA_CMD_SUBMIT_DEPENDENCY, ..right },
        amdxdna_drm_exec_cmd { type_: AMDXDNA_CMD_SUBMIT_SIGNAL, ..right },
        amdxdna_drm_exec_cmd { type_: 3, ..right },
        amdxdna_drm_exec_cmd { type_: u32::MAX, ..right },
        amdxdna_drm_exec_cmd { cmd_count: 0, ..right },
        amdxdna_drm_exec_cmd { cmd_count: 2, ..right },
        amdxdna_drm_exec_cmd { hwctx: 0, ..right },
        amdxdna_drm_exec_cmd { hwctx: 99, ..right },
        amdxdna_drm_exec_cmd { args: NOWHERE, ..right },
        amdxdna_drm_exec_cmd { args: NOWHERE, arg_count: 1, ..right },
        amdxdna_drm_exec_cmd { args: 0, arg_count: 1, ..right },
        amdxdna_drm_exec_cmd { args: list(&arguments), arg_count: 4096, ..right },
        amdxdna_drm_exec_cmd { args: list(&arguments), arg_count: u32::MAX, ..right },
        amdxdna_drm_exec_cmd { cmd_handles: u64::from(command.handle) | 1 << 32, ..right },
    ] {
        if p.call(&mut wrong).is_ok() {
            let _ = p.wait(setup.context, wrong.seq, PATIENCE);
        }
    }
}

fn buffers(p: &mut Probe, setup: Setup) {
    let (part, _) = p.part(&setup.heap, &[0; 64]);
    let context = setup.context;
    for handle in [0, 99, part, setup.heap.handle] {
        p.submit(context, handle, &[]);
    }
    for (type_, bytes) in [(AMDXDNA_BO_SHMEM, PAGE), (AMDXDNA_BO_SHMEM, 16 * PAGE), (AMDXDNA_BO_CMD, 8 * PAGE)] {
        let Some(bo) = p.mapped_bo(type_, bytes) else { continue };
        setup.command().write(&bo.memory);
        p.run(context, &bo, &[]);
    }
}

fn arguments(p: &mut Probe, setup: Setup, command: Mapped) {
    let a = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let b = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let mapped = p.map_bo("the second", b, PAGE);
    for arguments in [
        vec![a],
        vec![a, b],
        vec![b, a, command.handle],
        vec![a, a],
        vec![0],
        vec![a, 99],
        vec![setup.pdi],
        vec![setup.heap.handle],
        vec![a, setup.heap.handle, setup.pdi],
    ] {
        p.run(setup.context, &command, &arguments);
    }
    drop(mapped);
    p.run(setup.context, &command, &[b]);
    let many: Vec<u32> = p.quietly(|p| (0..200).map(|_| p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64)).collect());
    p.with("arguments in all", many.len());
    p.run(setup.context, &command, &many);
}

fn opcodes(p: &mut Probe, setup: Setup) {
    let right = setup.command();
    let with = |name, opcode| (name, CommandPacket { opcode, ..right });
    let commands = [
        with("START_CU", opcode::START_CU),
        with("START_DPU", opcode::START_DPU),
        with("START_NPU", opcode::START_NPU),
        with("START_NPU_PREEMPT", opcode::START_NPU_PREEMPT),
        with("START_NPU_PREEMPT_ELF", opcode::START_NPU_PREEMPT_ELF),
        with("opcode 1", 1),
        with("opcode 2", 2),
        with("opcode 31", 31),
    ];
    run_each(p, &setup, &commands);
}

fn headers(p: &mut Probe, setup: Setup) {
    let right = setup.command();
    let commands = [
        ("no words", CommandPacket { count: 0, ..right }),
        ("the mask only", CommandPacket { count: 1, ..right }),
        ("one word", CommandPacket { count: 2, ..right }),
        ("an odd number", CommandPacket { count: 6, ..right }),
        ("more than the BO has", CommandPacket { count: 1024, ..right }),
        ("as many as the BO has", CommandPacket { count: 1023, ..right }),
        ("the most", CommandPacket { count: 0x7ff, ..right }),
        ("no unit", CommandPacket { mask: 0, ..right }),
        ("the second unit, which there is not", CommandPacket { mask: 2, ..right }),
        ("unit 31", CommandPacket { mask: 1 << 31, ..right }),
        ("two units", CommandPacket { mask: 3, ..right }),
        ("an extra mask", CommandPacket { extra_masks: 1, count: 8, ..right }),
        ("three extra masks", CommandPacket { extra_masks: 3, count: 10, ..right }),
        ("more masks than words", CommandPacket { extra_masks: 3, count: 4, ..right }),
    ];
    run_each(p, &setup, &commands);
}

fn sizes(p: &mut Probe, setup: Setup) {
    let right = setup.command();
    let with = |name, payload: u32| (name, CommandPacket { count: payload + 1, ..right });
    let commands = [
        with("14 words", 14),
        with("15 words", 15),
        with("17 words", 17),
        with("19 words", 19),
        with("20 words", 20),
        with("64 words", 64),
        // A slot has 52 bytes before them.
        with("1010 words", 1010),
        with("1011 words fill the chain buffer", 1011),
        with("1012 words", 1012),
    ];
    run_each(p, &setup, &commands);
}

fn instructions(p: &mut Probe, setup: Setup) {
    let right = setup.command();
    let commands = [
        ("no words", CommandPacket { words: 0, ..right }),
        ("one word", CommandPacket { words: 1, ..right }),
        ("more words than there are", CommandPacket { words: 1 << 20, ..right }),
        ("the most words", CommandPacket { words: u32::MAX, ..right }),
        ("address 0", CommandPacket { instructions: 0, ..right }),
        ("an address behind the heap", CommandPacket { instructions: 0x7000_0000, ..right }),
        ("an address that is no multiple of 4", CommandPacket { instructions: right.instructions + 2, ..right }),
        ("no transaction", CommandPacket { transaction: 0, ..right }),
        ("transaction 2", CommandPacket { transaction: 2, ..right }),
    ];
    run_each(p, &setup, &commands);
}

fn many(p: &mut Probe, setup: Setup, command: Mapped) {
    let mut last = None;
    let accepted = p.quietly(|p| {
        (0..64)
            .filter(|_| p.execute(setup.context, command.handle, &[]).inspect(|seq| last = Some(*seq)).is_ok())
            .count()
    });
    p.note("submissions", accepted);
    p.note("the last number", last);
    let _ = p.wait(setup.context, last.unwrap_or_default(), PATIENCE);
    p.state(&command.memory);
    for point in [0, 1, 63] {
        let _ = p.wait(setup.context, point, PATIENCE);
    }
}

fn closed_buffers(p: &mut Probe, setup: Setup, command: Mapped) {
    let argument = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let seq = p.execute(setup.context, command.handle, &[argument]);
    p.close(argument);
    p.close(command.handle);
    let _ = p.wait(setup.context, seq.unwrap_or_default(), PATIENCE);
    p.state(&command.memory);
    let _ = p.execute(setup.context, command.handle, &[]);
}

fn destroyed_context(p: &mut Probe, setup: Setup) {
    let commands: Vec<_> = (0..4).filter_map(|_| p.command(setup.command())).collect();
    let mut last = 0;
    for command in &commands {
        if let Ok(seq) = p.quietly(|p| p.execute(setup.context, command.handle, &[])) {
            last = seq;
        }
    }
    p.destroy(setup.context);
    let _ = p.wait(setup.context, last, PATIENCE);
    let _ = p.wait(setup.context, last + 1, std::time::Duration::from_millis(50));
}

fn two_contexts(p: &mut Probe, setup: Setup, command: Mapped) {
    let second = p.context(4);
    p.configure(second, &[setup.pdi]);
    p.run(setup.context, &command, &[]);
    p.run(setup.context, &command, &[]);
    p.run(second, &command, &[]);
    p.destroy(setup.context);
    p.run(second, &command, &[]);
}
