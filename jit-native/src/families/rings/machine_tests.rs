//! Streams run alike on all PDIs of the configuration.

use super::super::{ALONE, FAMILY, attention, vectors, with_types};
use crate::array::testing::{Device, bytes_of, words_of};
use crate::kit::{Case, Family, Material};
use aie_hal::{Arch, ArchRegistry, KernelArtifact};
use aie_ops::DataType;
use rstest::rstest;
use std::collections::BTreeSet;

/// Other types of weights than a default program has.
const OTHERS: [&str; 2] = ["q4_0", "q4_K"];

/// The smallest case that there is of an operation with a first source of this type.
fn smallest(family: &Family, op: &str, dtype: DataType, arch: &Arch) -> Case {
    let is_possible = |case: &Case| {
        let source = case.node.inputs().next().map(|source| source.dtype);
        case.node.op == op && source == Some(dtype)
    };
    let cases = (family.cases)(arch).into_iter().filter(is_possible);
    let elements = |case: &Case| case.node.arguments().map(|tensor| tensor.elements()).sum::<usize>();
    cases.min_by_key(elements).unwrap()
}

fn run(kernel: &KernelArtifact, Material { sources, before, expected, .. }: &Material, arch: &Arch) -> Vec<u8> {
    let stream = match kernel.stream_maker() {
        Some(maker) => maker.make(&maker.reads().iter().map(|at| &*sources[*at]).collect::<Vec<_>>()).unwrap(),
        None => kernel.instructions().to_vec(),
    };
    let words = |bytes: &Vec<u8>| {
        let mut bytes = bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        words_of(&bytes)
    };
    let mut buffers: Vec<Vec<u32>> = sources.iter().chain([before]).map(words).collect();
    Device::load_on(arch, kernel.pdi()).unwrap().dispatch(&stream, &mut buffers).unwrap();
    let mut found = bytes_of(&buffers[sources.len()]);
    found.truncate(expected.len());
    found
}

#[rstest]
#[case::products("aie2", &FAMILY, "MUL_MAT", DataType::Q4_0)]
#[case::products_k("aie2", &FAMILY, "MUL_MAT", DataType::Q4_K)]
#[case::vectors("aie2", &vectors::FAMILY, "ADD", DataType::F32)]
#[case::rows("aie2", &vectors::FAMILY, "SET_ROWS", DataType::F32)]
#[case::attention("aie2", &attention::FAMILY, "FLASH_ATTN_EXT", DataType::F32)]
#[case::products_of_aie2p("aie2p", &ALONE, "MUL_MAT", DataType::Q4_0)]
#[case::attention_of_aie2p("aie2p", &attention::FAMILY, "FLASH_ATTN_EXT", DataType::F32)]
#[case::vectors_of_aie2p("aie2p", &vectors::FAMILY, "ADD", DataType::F32)]
fn a_stream_gives_the_same_bytes_on_another_pdi(
    #[case] generation: &str,
    #[case] family: &Family,
    #[case] op: &str,
    #[case] dtype: DataType,
) {
    let arch = ArchRegistry::builtin().get(generation).unwrap();
    let case = smallest(family, op, dtype, &arch);
    let own = (family.build)(&case.node, &arch).unwrap();
    let types = OTHERS.map(String::from).into();
    let other = with_types(&own, &arch, &types).unwrap();
    assert_eq!(other.configuration().unwrap().has, types);
    assert_ne!(own.digest(), other.digest());
    assert_eq!(own.instructions(), other.instructions());
    let material = case.material(0).unwrap();
    let [found, on_other] = [&own, &other].map(|kernel| run(kernel, &material, &arch));
    case.judge(&found, &material.expected).unwrap();
    assert_eq!(found, on_other);
}

#[test]
fn kernels_say_what_they_need() {
    let arch = ArchRegistry::builtin().get("aie2").unwrap();
    let of = |family: &Family, op: &str, dtype| {
        let case = smallest(family, op, dtype, &arch);
        let kernel = (family.build)(&case.node, &arch).unwrap();
        let configuration = kernel.configuration().unwrap().clone();
        assert!(configuration.has.is_superset(&configuration.needs));
        let weights = case.node.inputs().next().unwrap().dtype.name().to_owned();
        (configuration, weights)
    };
    let (product, weights) = of(&FAMILY, "MUL_MAT", DataType::Q4_K);
    assert_eq!(product.needs, BTreeSet::from([weights]));
    for (family, op) in [(&vectors::FAMILY, "ADD"), (&attention::FAMILY, "FLASH_ATTN_EXT")] {
        let (vectors, _) = of(family, op, DataType::F32);
        assert_eq!((vectors.name, vectors.needs), (product.name.clone(), BTreeSet::new()));
    }
    let error = with_types(
        &(FAMILY.build)(&smallest(&FAMILY, "MUL_MAT", DataType::Q4_0, &arch).node, &arch).unwrap(),
        &arch,
        &["f64".into()].into(),
    );
    assert!(error.unwrap_err().to_string().contains("f64 is no type of weights of products"));
}
