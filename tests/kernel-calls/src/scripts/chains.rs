//! EXEC_CMD with chains.

use super::{Script, with_command, with_setup};
use crate::packets::{Chain, CommandPacket};
use crate::probe::Probe;
use crate::setup::{Mapped, Setup};
use amdxdna_sys::ert::{opcode, state};
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::*;

pub(super) const SCRIPTS: &[Script] = &[
    with_setup("chain: lengths", "chains of one and more commands", lengths),
    with_command("chain: limit", "as many commands as fit into the chain buffer, and more", limit),
    with_setup("chain: headers", "headers whose counts lie", headers),
    with_command("chain: handles", "handles that are no commands", handles),
    with_setup("chain: opcodes", "commands of several opcodes", opcodes),
    with_setup("chain: commands", "commands in a chain whose headers lie", commands),
    with_setup("chain: slots", "payloads of each length below 16 words", slots),
    with_setup("chain: again", "the same chain again, and commands that were used", again),
];

/// Submits a chain in a context of its own, and notes how chain and first command end.
fn run(p: &mut Probe, setup: &Setup, what: &str, chain: &Chain, first: Option<&Mapped>) {
    let Some(bo) = p.chain(chain) else { return };
    p.in_context(&[setup.pdi], |p, context| {
        p.note("next", what);
        p.run(context, &bo, &[]);
        if let Some(first) = first {
            p.state(&first.memory);
        }
    });
}

/// Makes this many commands that run the empty stream.
fn made(p: &mut Probe, setup: &Setup, count: usize) -> Vec<Mapped> {
    (0..count).filter_map(|_| p.command(setup.command())).collect()
}

fn numbers(commands: &[Mapped]) -> Vec<u32> {
    commands.iter().map(|command| command.handle).collect()
}

fn lengths(p: &mut Probe, setup: Setup) {
    let commands = made(p, &setup, 24);
    for count in [1, 2, 3, 24] {
        let handles = numbers(&commands[..count.min(commands.len())]);
        run(p, &setup, &format!("{count} commands"), &Chain::of(&handles), commands.first());
    }
    if let Some(last) = commands.last() {
        p.state(&last.memory);
    }
}

fn limit(p: &mut Probe, setup: Setup, command: Mapped) {
    // Each takes 52 + 24 bytes of 4096.
    for count in [40, 53, 54, 100] {
        let chain = Chain::of(&vec![command.handle; count]);
        run(p, &setup, &format!("{count} times the same command"), &chain, None);
    }
}

fn headers(p: &mut Probe, setup: Setup) {
    let commands = made(p, &setup, 2);
    let right = Chain::of(&numbers(&commands));
    let none = Chain::of(&[]);
    for (what, chain) in [
        ("no commands", none.clone()),
        ("no commands, with handles", Chain { commands: 0, ..right.clone() }),
        ("one command of two", Chain { commands: 1, ..right.clone() }),
        ("three commands of two", Chain { commands: 3, ..right.clone() }),
        ("very many commands", Chain { commands: u32::MAX, ..right.clone() }),
        ("a header without words", Chain { count: 0, ..right.clone() }),
        ("a header without handles", Chain { count: 6, ..right.clone() }),
        ("a header one word short", Chain { count: right.count - 1, ..right.clone() }),
        ("a header with more words", Chain { count: right.count + 8, ..right.clone() }),
        ("a header of the whole BO", Chain { count: 1023, ..right.clone() }),
        ("a header beyond the BO", Chain { count: 1024, ..right.clone() }),
        ("the most words", Chain { count: 0x7ff, ..right.clone() }),
    ] {
        run(p, &setup, what, &chain, commands.first());
    }
}

fn handles(p: &mut Probe, setup: Setup, command: Mapped) {
    let good = command.handle;
    let (part, _) = p.part(&setup.heap, &[0; 64]);
    let shared = p.mapped_bo(AMDXDNA_BO_SHMEM, PAGE);
    if let Some(shared) = &shared {
        setup.command().write(&shared.memory);
    }
    let shared = shared.as_ref().map_or(0, |bo| bo.handle);
    let Some(inner) = p.chain(&Chain::of(&[good])) else { return };
    for (what, handles) in [
        ("0", vec![0]),
        ("99", vec![99]),
        ("99 behind a good one", vec![good, 99]),
        ("a part of the heap", vec![part]),
        ("the heap", vec![setup.heap.handle]),
        ("shared memory", vec![shared]),
        ("the same twice", vec![good, good]),
        ("a chain", vec![inner.handle]),
    ] {
        run(p, &setup, what, &Chain::of(&handles), Some(&command));
    }
    let Some(own) = p.chain(&Chain::of(&[0])) else { return };
    Chain::of(&[own.handle]).write(&own.memory);
    p.note("next", "itself");
    p.run(setup.context, &own, &[]);
}

fn opcodes(p: &mut Probe, setup: Setup) {
    let right = setup.command();
    let opcodes = [opcode::START_DPU, opcode::START_NPU, opcode::START_NPU_PREEMPT, opcode::START_NPU_PREEMPT_ELF, 31];
    for other in opcodes {
        let (Some(first), Some(second)) = (p.command(right), p.command(CommandPacket { opcode: other, ..right }))
        else {
            return;
        };
        let (a, b) = (first.handle, second.handle);
        run(p, &setup, &format!("opcode {other}"), &Chain::of(&[b]), Some(&second));
        run(p, &setup, &format!("opcode {other} twice"), &Chain::of(&[b, b]), Some(&second));
        run(p, &setup, &format!("opcode {other} behind another"), &Chain::of(&[a, b]), Some(&first));
        run(p, &setup, &format!("opcode {other} before another"), &Chain::of(&[b, a]), Some(&second));
    }
}

fn commands(p: &mut Probe, setup: Setup) {
    let right = setup.command();
    for (what, wrong) in [
        ("no words", CommandPacket { count: 0, ..right }),
        ("the mask only", CommandPacket { count: 1, ..right }),
        ("more than the BO has", CommandPacket { count: 1024, ..right }),
        ("no unit", CommandPacket { mask: 0, ..right }),
        ("unit 31", CommandPacket { mask: 1 << 31, ..right }),
        ("no transaction", CommandPacket { transaction: 0, ..right }),
        ("address 0", CommandPacket { instructions: 0, ..right }),
        ("no instructions", CommandPacket { words: 0, ..right }),
    ] {
        let (Some(good), Some(wrong)) = (p.command(right), p.command(wrong)) else { return };
        let chain = Chain::of(&[good.handle, wrong.handle, good.handle]);
        run(p, &setup, what, &chain, Some(&good));
        p.state(&wrong.memory);
    }
}

fn slots(p: &mut Probe, setup: Setup) {
    for payload in 1..=16 {
        let Some(command) = p.command(CommandPacket { count: payload + 1, ..setup.command() }) else { return };
        run(p, &setup, &format!("{payload} words"), &Chain::of(&[command.handle]), Some(&command));
    }
}

fn again(p: &mut Probe, setup: Setup) {
    let commands = made(p, &setup, 2);
    let Some(chain) = p.chain(&Chain::of(&numbers(&commands))) else { return };
    for _ in 0..2 {
        p.run(setup.context, &chain, &[]);
    }
    chain.memory.set_word(0, chain.memory.word(0) & !ert::STATE_MASK | state::ERROR);
    chain.memory.set_word(ert::chain::ERROR_INDEX, 7);
    p.run(setup.context, &chain, &[]);
    for command in &commands {
        p.state(&command.memory);
    }
    let arguments: Vec<u32> = numbers(&commands);
    p.run(setup.context, &chain, &arguments);
}
