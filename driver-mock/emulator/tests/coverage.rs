//! Which instructions of the tables have no model, and why: the list that `docs/emulator.md` shows.

use aie_emulator::core::unmodelled;
use aie_isa::Isa;
use rstest::rstest;
use std::collections::BTreeMap;

/// How many rows of a table have no model, by the reason that the core reports when it meets one.
fn found(isa: &Isa) -> BTreeMap<&'static str, usize> {
    let mut reasons = BTreeMap::new();
    for reason in isa.instructions().iter().filter_map(unmodelled) {
        *reasons.entry(reason).or_default() += 1;
    }
    reasons
}

const ALIGN: &str = "what the first amount of vshift.align does is not public";
const CASCADE: &str = "only moves of 512 bits between the cascade and a register are modelled";
const EBS16: &str = "the format bfp16ebs16 is not described publicly";
const FIFO: &str = "load and store fifos are not described publicly";
const FIXED: &str = "the conversions from and to fixed point are not described publicly";
const GATHER: &str = "how the addresses of a gather are made is not described publicly";
const SPARSE: &str = "sparse and compressed operands are not described publicly";
const TILE: &str = "registers of the tile are not modelled as memory of the core";

#[rstest]
#[case("aie2", 607, &[(ALIGN, 1), (GATHER, 6), (SPARSE, 48), (TILE, 2)])]
#[case(
    "aie2p",
    880,
    &[(ALIGN, 1), (CASCADE, 66), (EBS16, 2), (FIFO, 58), (FIXED, 11), (GATHER, 6), (SPARSE, 36), (TILE, 12)]
)]
fn every_instruction_is_modelled_or_listed(
    #[case] arch: &str,
    #[case] rows: usize,
    #[case] listed: &[(&'static str, usize)],
) {
    let isa = Isa::for_arch(arch).unwrap();
    assert_eq!(isa.instructions().len(), rows);
    assert_eq!(found(isa), listed.iter().copied().collect());
}
