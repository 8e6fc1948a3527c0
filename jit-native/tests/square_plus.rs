//! The kernel of docs/native-write.md, which uses nothing but the crate's public names.

#[allow(dead_code, reason = "its main is for people")]
#[path = "../examples/square_plus.rs"]
mod square_plus;

use aie_emulator::{Harness, design_of};
use aie_hal::{Arch, ArchRegistry};
use aie_jit_native::NativeCompiler;
use aie_jit_native::codegen::LoopForm;
use aie_jit_native::kit::{NativeError, isa_for};
use aie_jit_native::numerics::written_for;
use aie_ops::compiler::KernelCompiler;
use rstest::rstest;
use square_plus::{SQUARE_PLUS, SquarePlus, node};

fn arch(name: &str) -> Arch {
    (*ArchRegistry::builtin().get(name).unwrap()).clone()
}

fn compiler() -> NativeCompiler {
    NativeCompiler::default().with_families([&SQUARE_PLUS], "1")
}

/// One tile, one for each column, and more for some than for others; one array for all of them.
#[rstest]
fn it_is_right_on_the_emulated_array(
    #[values("aie2", "aie2p")] generation: &str,
    #[values(LoopForm::Hardware, LoopForm::Jnz)] loops: LoopForm,
) {
    let arch = loops.on(&arch(generation)).into_owned();
    let mut harness = None;
    for (tiles, c) in [(1, 0.5), (arch.array.columns, -3.0), (2 * arch.array.columns + 1, 1e-3)] {
        let kernel = compiler().build(&node(2048 * tiles, c), &arch).unwrap();
        let design = design_of(&arch, &kernel).unwrap();
        assert_eq!((&design.problems[..], &design.doubts[..]), (&[][..], &[][..]));
        let x: Vec<f32> = (0..2048 * tiles).map(|index| index as f32 / 1000.0 - 7.0).collect();
        let mut arguments = [x.iter().flat_map(|x| x.to_le_bytes()).collect(), vec![0xAAu8; 4 * x.len()]];
        let harness = harness.get_or_insert_with(|| Harness::load(&arch, kernel.pdi()).unwrap());
        let run = harness.run(&kernel, &mut arguments).unwrap();
        for (x, y) in x.iter().zip(arguments[1].as_chunks().0) {
            // Two units in the last place of the square, and the rounding of the sum.
            let (y, exact) = (f64::from(f32::from_le_bytes(*y)), f64::from(*x).powi(2) + f64::from(c));
            let bound = 2f64.powi(-22) * (f64::from(*x).powi(2) + f64::from(c).abs());
            assert!((y - exact).abs() <= bound, "{x}: {y} instead of {exact}");
        }
        assert!(run.timing.cycles > 0 && run.bundles > x.len() as u64 / 16 && run.operations > 0, "{run:?}");
        assert_eq!(run.operations, kernel.operation_count());
    }
}

#[test]
fn what_it_does_not_take_is_said_with_what_it_would() {
    let error = compiler().build(&node(100, 0.0), &arch("aie2")).unwrap_err();
    assert!(error.to_string().contains("SQUARE_PLUS (square-plus): possible: f32, whole tiles of 2048"), "{error}");
    let unknown = Arch { name: "aie9".into(), instruction_set: None, ..arch("aie2") };
    let error = compiler().build(&node(2048, 0.0), &unknown).unwrap_err();
    assert!(matches!(&error, NativeError::Generation { .. }), "{error}");
    assert!(error.to_string().contains("no program for aie9; possible: the instruction sets aie2, aie2p"), "{error}");
    // Without its registration the compiler has no such family.
    let error = NativeCompiler::default().build(&node(2048, 0.0), &arch("aie2")).unwrap_err();
    assert!(matches!(error, NativeError::NoFamily { .. }), "{error}");
}

/// Stores keep the kernels of two versions apart.
#[test]
fn another_version_is_another_compiler() {
    let [one, two] = ["1", "2"].map(|version| NativeCompiler::default().with_families([&SQUARE_PLUS], version));
    assert_ne!(one.identity(), two.identity());
    assert_ne!(one.sources(), two.sources());
    assert_ne!(one.sources(), NativeCompiler::default().sources());
}

#[rstest]
fn the_stages_of_the_compiler_are_shown(#[values("aie2", "aie2p")] generation: &str) {
    let isa = isa_for("square-plus", SQUARE_PLUS.instruction_sets, &arch(generation)).unwrap();
    let builder = || written_for(isa, &SquarePlus);
    let (program, stages) = builder().finish_with_stages(LoopForm::Hardware).unwrap();
    assert_eq!(program.code, builder().finish().unwrap().code, "looking changes nothing");
    assert_eq!(stages.bundles, program.listing());
    for (text, expected) in [
        (&stages.source, "(square plus)"),
        (&stages.schedule, "body of square plus, iterations overlap"),
        (&stages.registers, "crRnd"),
    ] {
        assert!(text.contains(expected), "no `{expected}` in\n{text}");
    }
    let shown = stages.to_string();
    let titles = ["== before scheduling", "== after scheduling", "== registers", "== bundles"];
    let places: Vec<_> = titles.iter().map(|title| shown.find(title)).collect();
    assert!(places.is_sorted() && places.iter().all(Option::is_some), "{places:?}");
}
