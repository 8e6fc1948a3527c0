//! What a generation gets is decided by its instruction set, whatever its name.

use aie_hal::{Arch, ArchRegistry};
use aie_jit_native::families::{self, FAMILIES};
use aie_jit_native::kit::NativeError;
use rstest::rstest;

fn arch(name: &str) -> Arch {
    (*ArchRegistry::builtin().get(name).unwrap()).clone()
}

#[rstest]
fn a_generation_of_another_name_has_the_programs_of_its_instruction_set(#[values("aie2", "aie2p")] known: &str) {
    let known = arch(known);
    let other = Arch { name: "aie9".into(), ..known.clone() };
    for family in FAMILIES.iter().filter(|family| family.is_for(&known)) {
        assert!(family.is_for(&other), "{}", family.name);
        let node = family.cases_on(&other).swap_remove(0).node;
        let [of_known, of_other] = [&known, &other].map(|arch| (family.build)(&node, arch).unwrap());
        assert_eq!((of_known.pdi(), of_known.instructions()), (of_other.pdi(), of_other.instructions()));
        assert_eq!(of_other.arch(), "aie9");
    }
}

/// Neither aie2's programs nor aie2p's. What only moves words needs none.
#[rstest]
fn without_a_known_instruction_set_there_is_no_program(
    #[values("aie2", "aie2p")] known: &str,
    #[values(None, Some("aie9"))] instruction_set: Option<&str>,
) {
    let known = arch(known);
    let unknown = Arch { name: "aie9".into(), instruction_set: instruction_set.map(Into::into), ..known.clone() };
    for family in FAMILIES {
        assert!(!family.is_for(&unknown) && family.cases_on(&unknown).is_empty(), "{}", family.name);
        let computes = |case: &aie_jit_native::kit::Case| family.name != "copies" || case.node.op == "CPY";
        let node = (family.cases)(&known).into_iter().find(computes).unwrap().node;
        let error = (family.build)(&node, &unknown).unwrap_err();
        assert!(matches!(&error, NativeError::Generation { .. }), "{}: {error}", family.name);
        assert!(error.to_string().contains("no program for aie9; possible: the instruction sets aie2"), "{error}");
    }
    assert!(families::has_products(&known) && !families::has_products(&unknown));
}
