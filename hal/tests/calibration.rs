//! The costs of the arch files beside times that others measured on silicon.
//!
//! A time is what the emulated array takes for the same program, or nothing where only operations of a stream were counted, and
//! the operations at the cost of one. Submissions and changes of context have nothing else in them. The measured time has to be within the range of the published costs, and not further from what
//! is expected than a factor.

use aie_hal::ArchRegistry;
use aie_hal::arch::{CostModel, Estimate};
use rstest::rstest;

/// How far a measured time may be outside of the range: emulated cycles have no memory latency and no bank conflicts.
const MARGIN: f64 = 1.1;
/// How far from what is expected. Two machines of one generation differ by four in the cost of an operation, and nothing tells which of
/// them a third is like.
const FACTOR: f64 = 2.3;

// int8 products on a Strix Halo, times by their author (bong-water-water-bong/1bit-systems), emulated cycles at 1.8 GHz.
#[rstest]
#[case::v26_qkv("aie2p", 21_120, 394.0, 9_300.0)]
#[case::v26_o("aie2p", 10_400, 171.0, 4_400.0)]
#[case::v26_gate_up("aie2p", 31_680, 591.0, 13_700.0)]
#[case::v26_down("aie2p", 15_520, 244.0, 6_700.0)]
#[case::v27_qkv("aie2p", 4_000, 126.0, 1_590.0)]
#[case::v27_o("aie2p", 1_960, 50.0, 709.0)]
#[case::v27_gate_up("aie2p", 6_000, 189.0, 2_490.0)]
#[case::v27_down("aie2p", 2_920, 68.0, 1_070.0)]
// Bound by its cores: operations do not matter.
#[case::v23_scalar("aie2p", 0, 154_500.0, 154_000.0)]
// Streams on another Strix Halo, with firmware 1.1.2.65.
#[case::long_stream("aie2p", 1_746, 0.0, 150.0)]
#[case::lean_stream("aie2p", 480, 0.0, 49.0)]
// Writes appended to a stream on an 8700G (jdominick05/ignite-xdna), and the mean of all operations on Phoenix, 112 cycles at 1,028 MHz
// (FIM43-Redeye/xdna-emu), for a thousand.
#[case::appended_writes("aie2", 1_000, 0.0, 145.0)]
#[case::phoenix("aie2", 1_000, 0.0, 109.0)]
fn times_are_those_that_others_measured(
    #[case] arch: &str,
    #[case] operations: u64,
    #[case] emulated_us: f64,
    #[case] measured_us: f64,
) {
    check(arch, measured_us, |cost, end| emulated_us + (operations * end(cost.operation_ns)) as f64 / 1e3);
}

// Microseconds for each of so many dispatches in one chain, of programs that do next to nothing.
#[rstest]
#[case::alone_8700g("aie2", 1, 108.0)]
#[case::alone_vitis_ai("aie2", 1, 90.0)]
#[case::list_of_64_8700g("aie2", 64, 36.7)]
#[case::alone_strix_halo("aie2p", 1, 59.0)]
#[case::chain_of_32_strix_halo("aie2p", 32, 22.5)]
#[case::alone_rocr("aie2p", 1, 90.0)]
#[case::chain_of_32_rocr("aie2p", 32, 39.0)]
fn submissions_take_what_others_measured(#[case] arch: &str, #[case] commands: u64, #[case] measured_us: f64) {
    check(arch, measured_us, |cost, end| {
        let ns = end(cost.chain_ns) + (commands - 1) * end(cost.command_ns);
        ns as f64 / 1e3 / commands as f64
    });
}

// A change to a context whose PDI has so many descriptors; whole arrays of products were measured without their numbers.
#[rstest]
#[case::smallest("aie2p", 6, 89.0)]
#[case::largest("aie2p", 388, 2_348.0)]
#[case::programs_of_32_cores_strix_halo("aie2p", 360, 1_100.0)]
fn switches_take_what_others_measured(#[case] arch: &str, #[case] descriptors: u64, #[case] measured_us: f64) {
    check(arch, measured_us, |cost, end| end(cost.switch(descriptors)) as f64 / 1e3);
}

/// Most that an array's DMA can have is more than what any design was seen to take.
#[rstest]
#[case::whole_array_8700g("aie2", 1_300.0)]
#[case::products_on_eight_columns("aie2p", 2_400.0)]
fn whole_arrays_take_no_longer_than_all_descriptors(#[case] arch: &str, #[case] measured_us: f64) {
    let arch = ArchRegistry::builtin().get(arch).unwrap();
    let column =
        arch.shim.dma.bds + arch.array.mem_rows * arch.mem_tile.dma.bds + arch.array.core_rows * arch.core.dma.bds;
    let [none, all] = [0, arch.array.columns * column].map(|descriptors| arch.cost.switch(descriptors as u64));
    let possible = none.low..all.high;
    assert!(possible.contains(&((measured_us * 1e3) as u64)), "{measured_us} us, by the costs {possible:?} ns");
}

/// Microseconds by the costs at one of their ends, beside what was measured.
fn check(arch: &str, measured_us: f64, time: impl Fn(&CostModel, fn(Estimate) -> u64) -> f64) {
    let cost = &ArchRegistry::builtin().get(arch).unwrap().cost;
    let (fastest, slowest) = (time(cost, |value| value.low), time(cost, |value| value.high));
    assert!(
        measured_us > fastest / MARGIN && measured_us < slowest * MARGIN,
        "measured {measured_us} us, by the costs {fastest} to {slowest}"
    );
    let expected = time(cost, |value| value.expected);
    let ratio = expected / measured_us;
    assert!(ratio < FACTOR && ratio > 1.0 / FACTOR, "expected {expected} us, measured {measured_us}");
}
