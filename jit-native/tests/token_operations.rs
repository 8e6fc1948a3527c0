//! Operations of a decoded token do not rise: they take most of the time of small models.

#[path = "../examples/predict/count.rs"]
#[allow(dead_code, reason = "the example that shares it has more")]
mod count;
#[path = "../examples/predict/model.rs"]
#[allow(dead_code, reason = "the example that shares it has prompts, too")]
mod model;

use aie_hal::ArchRegistry;
use aie_jit_native::{NativeCompiler, Products};
use count::Counted;
use std::fmt::Write as _;

/// Tokens in front of the decoded one.
const KEYS: usize = 1024;
const FILE: &str = "jit-native/tests/data/token-operations.tsv";
const KEPT: &str = include_str!("data/token-operations.tsv");

/// What is counted of each model, a line each, below a line of names.
#[test]
fn operations_of_a_decoded_token_are_those_that_are_kept() {
    let mut found = String::from("model\toperations\tcharged operations\tkernels\tdispatches\tPDIs\tcontexts\n");
    let kept = [("aie2", Products::Product), ("aie2", Products::Rings), ("aie2p", Products::Rings)];
    for (model, (generation, products)) in model::ALL.iter().flat_map(|model| kept.map(|kept| (model, kept))) {
        let compiler = NativeCompiler::default().with_products(products);
        let arch = ArchRegistry::builtin().get(generation).unwrap();
        let counted = Counted::of(model, KEYS, &compiler, &arch);
        let Counted { operations, charged_operations, kernels, dispatches, pdis, contexts } =
            counted.unwrap_or_else(|error| panic!("{}: {error}", model.name));
        let family = match (generation, products) {
            ("aie2p", _) => ", rings, aie2p",
            (_, Products::Rings) => ", rings",
            _ => "",
        };
        let _ = writeln!(
            found,
            "{}{family}\t{operations}\t{charged_operations}\t{kernels}\t{dispatches}\t{pdis}\t{contexts}",
            model.name
        );
    }
    assert!(
        found == KEPT,
        "a decoded token has other counts than {FILE}. If none of them has risen, write this there, and the new figures into \
         docs/native-prediction.md; one that has risen costs time on every NPU (145 to 400 ns an operation):\n{found}\ninstead of\n{KEPT}"
    );
}
