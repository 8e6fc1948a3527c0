//! Programs that the project makes itself: every group of instructions and every way of moving data, with expected values
//! from plain arithmetic. Each runs on the cores of both generations where its instructions exist.
//!
//! The same programs show that the tests are sharp: [`mutations`] runs them on machines with something wrong.

mod addressing;
mod control;
mod dma;
mod locks;
mod multiply;
mod mutations;
mod operations;
mod packets;
mod reports;
mod rig;
mod scalar;
mod streams;
mod strict;
mod timing;
mod vector;

use aie_isa::Isa;
use rig::{Check, Machine};
use rstest::rstest;

/// A program of the set.
struct Program {
    name: &'static str,
    run: fn(Machine) -> Check,
    archs: &'static [&'static str],
}

const BOTH: &[&str] = &["aie2", "aie2p"];

macro_rules! programs {
    ($($archs:ident $group:ident: $($name:ident)*;)*) => {
        &[$($(Program { name: concat!(stringify!($group), "::", stringify!($name)), run: $group::$name, archs: $archs },)*)*]
    };
}

const PROGRAMS: &[Program] = programs! {
    BOTH scalar: arithmetic bits selection branches counted_branch hardware_loops events done;
    BOTH addressing: sizes part_words post_modify two_dimensions three_dimensions stack_and_pointers vectors;
    BOTH control: restart stop_and_go_on column_clock column_reset zeroed_memory events_by_number;
    BOTH locks: to_the_north to_the_east from_the_south exact_values_and_requests;
    BOTH dma: transposition four_dimensions padding iterations iteration_register neighbours_of_mem_tiles split_and_join
        shim_dimensions finish_on_tlast out_of_order back_pressure;
    BOTH operations: address_patches late_arguments merged_tokens loaded_configurations operations_without_effect;
    BOTH packets: two_senders two_receivers control_packets;
    BOTH streams: words_between_cores one_to_two cascade_south cascade_east;
    BOTH vector: lanes comparison permutations scalars widen_and_narrow;
    BOTH multiply: lanes matrices floats float_conversion;
    BOTH timing: load pipelined_loads product bypass delayed_move accumulation accumulator;
};

/// What is wrong with the programs of a generation, those aside that say that they depend on the order of events.
fn problems(arch: &str, seed: Option<u64>) -> Vec<String> {
    let machine = Machine { seed, ..Machine::new(Isa::for_arch(arch).unwrap()) };
    let programs = PROGRAMS.iter().filter(|program| program.archs.contains(&arch));
    let programs = programs.filter(|program| seed.is_none() || program.name != "packets::two_senders");
    programs.filter_map(|program| Some(format!("{}: {}", program.name, (program.run)(machine).err()?))).collect()
}

#[rstest]
fn programs_give_what_they_should(#[values("aie2", "aie2p")] arch: &str) {
    assert_eq!(problems(arch, None), [""; 0]);
}

#[rstest]
fn programs_give_the_same_in_other_orders(#[values("aie2", "aie2p")] arch: &str) {
    for seed in 0..16 {
        assert_eq!(problems(arch, Some(seed)), [""; 0], "seed {seed}");
    }
}

/// Whose packet comes first is up to the arbiter, and that packets are whole is not.
#[test]
fn a_program_that_depends_on_the_order_is_found() {
    let runs = (0..16).map(|seed| packets::two_senders(Machine { seed: Some(seed), ..Machine::new(Isa::aie2()) }));
    let (same, others): (Vec<Check>, Vec<Check>) = runs.partition(Result::is_ok);
    assert!(!others.is_empty(), "{} seeds, all in turn", same.len());
    let of_the_order = |found: &Check| found.as_ref().is_err_and(|problem| problem.starts_with("senders in turn"));
    assert!(others.iter().all(of_the_order), "{others:?}");
}
