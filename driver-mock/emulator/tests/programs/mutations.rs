//! Machines with something wrong: each is noticed by at least one program of the set, on both generations.
//!
//! Latencies are changed in the tables, so that the emulator runs as it is with other numbers. Locks and steps are changed in
//! what the programs write, which looks to them like an array that is off by one.

use super::rig::{Fault, Machine};
use super::{PROGRAMS, Program};
use aie_isa::{AIE2, AIE2P, Isa, Timing};

/// Everything acts in the cycle of its issue; what is loaded is there one cycle later.
fn shortest(timing: &mut Timing) {
    let first = if timing.memory_read.is_some() { 2 } else { 1 };
    for port in &mut timing.ports {
        port.cycle = if port.direction == aie_isa::Direction::Write && port.cycle > 1 { first } else { 1 };
    }
    timing.memory_read = timing.memory_read.map(|_| 2);
    timing.memory_write = timing.memory_write.map(|_| 2);
}

/// Results that take more than one cycle take one more.
fn longer(timing: &mut Timing) {
    for port in timing.ports.iter_mut().filter(|port| port.direction == aie_isa::Direction::Write && port.cycle > 1) {
        port.cycle += 1;
    }
}

/// Nothing is forwarded.
fn without_bypass(timing: &mut Timing) {
    timing.ports.iter_mut().for_each(|port| port.bypass = None);
}

/// Nothing is wrong.
fn nothing(_: &mut Timing) {}

/// A mutation: its name, what it does to timings, and what else is wrong.
type Mutation = (&'static str, fn(&mut Timing), Option<Fault>);

const MUTATIONS: [Mutation; 5] = [
    ("all latencies 1", shortest, None),
    ("multi-cycle latencies one longer", longer, None),
    ("no bypass", without_bypass, None),
    ("locks one too high", nothing, Some(Fault::Lock)),
    ("steps one too long", nothing, Some(Fault::Step)),
];

/// An instruction set with other timings, forever: machines refer to it.
fn changed(arch: &str, change: fn(&mut Timing)) -> &'static Isa {
    let tables = if arch == "aie2" { &AIE2 } else { &AIE2P };
    Box::leak(Box::new(Isa::load(tables).unwrap().with_timings(change)))
}

fn every_mutation_is_noticed(arch: &'static str) {
    let machines =
        MUTATIONS.map(|(name, change, fault)| (name, Machine { fault, ..Machine::new(changed(arch, change)) }));
    let programs: Vec<&Program> = PROGRAMS.iter().filter(|program| program.archs.contains(&arch)).collect();
    let noticed = machines.map(|(name, machine)| {
        let who: Vec<bool> = programs.iter().map(|program| (program.run)(machine).is_err()).collect();
        (name, who)
    });
    println!("{arch}: x where a program notices");
    for (index, (name, _)) in noticed.iter().enumerate() {
        println!("  {}: {name}", index + 1);
    }
    for (at, program) in programs.iter().enumerate() {
        let marks: String = noticed.iter().map(|(_, who)| if who[at] { " x" } else { " ." }).collect();
        println!("{marks}  {}", program.name);
    }
    for (name, who) in &noticed {
        assert!(who.contains(&true), "no program of {arch} notices: {name}");
    }
}

#[test]
fn programs_of_aie2_notice_every_mutation() {
    every_mutation_is_noticed("aie2");
}

#[test]
fn programs_of_aie2p_notice_every_mutation() {
    every_mutation_is_noticed("aie2p");
}
