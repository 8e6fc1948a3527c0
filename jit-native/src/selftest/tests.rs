//! The cases on the emulated array, and what they find.

use super::*;
use crate::array::testing::{Device, arch, bytes_of, words_of};
use crate::kernels::FAMILIES;
use aie_hal::artifact::Digest;
use rstest::rstest;
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// Words, the last one filled up.
fn words(bytes: &[u8]) -> Vec<u32> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    words_of(&bytes)
}

/// The families of a generation, with one device for each PDI, as contexts have it.
#[rstest]
#[case::aie2("aie2")]
#[case::aie2p("aie2p")]
fn every_operation_is_right_on_the_emulated_array(#[case] generation: &str) {
    let arch = arch(generation);
    for family in FAMILIES.iter().filter(|family| family.is_for(&arch)) {
        let (mut devices, mut covered) = (HashMap::<Digest, Device>::new(), BTreeSet::new());
        let (mut bundles, begun) = (0, Instant::now());
        let cases = cases(family, &arch);
        for case in &cases {
            let name = case.name();
            covered.insert(case.node.op.clone());
            let Material { sources, updated, before, expected } =
                case.material().unwrap_or_else(|e| panic!("{name}: {e}"));
            let artifact = (family.build)(&case.node, &arch).unwrap_or_else(|error| panic!("{name}: {error}"));
            let stream = match artifact.stream_maker() {
                Some(maker) => maker.make(&maker.reads().iter().map(|at| &*sources[*at]).collect::<Vec<_>>()).unwrap(),
                None => artifact.instructions().to_vec(),
            };
            let device =
                devices.entry(*artifact.digest()).or_insert_with(|| Device::load_on(&arch, artifact.pdi()).unwrap());
            let mut buffers: Vec<Vec<u32>> = sources.iter().chain([&before]).map(|bytes| words(bytes)).collect();
            let earlier = device.array.bundles();
            device.dispatch(&stream, &mut buffers).unwrap_or_else(|error| panic!("{name}: {error}"));
            bundles += device.array.bundles() - earlier;
            let found = bytes_of(&buffers[sources.len()]);
            case.judge(&found[..expected.len()], &expected).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(updated.is_some(), case.node.op == "SET_ROWS" || case.node.op == "CPY", "{name}");
            assert_ne!(before, expected, "{name} would be right if nothing ran");
        }
        let elapsed = begun.elapsed();
        println!("{}: {} cases, {} PDIs, {bundles} bundles, {elapsed:.1?}", family.name, cases.len(), devices.len());
        let all: BTreeSet<String> = family.operations.iter().map(ToString::to_string).collect();
        assert_eq!(covered, all, "operations of {} without a case", family.name);
    }
}

/// One element that is off by a tenth, one that is not a number, one byte.
#[test]
fn small_mistakes_are_found() {
    let arch = arch("aie2");
    for case in FAMILIES.iter().flat_map(|family| cases(family, &arch)) {
        let expected = case.material().unwrap().expected;
        case.judge(&expected, &expected).unwrap();
        let mut wrong = expected.clone();
        let middle = wrong.len() / 2 / 4 * 4;
        if case.exactness == Exactness::Bytes {
            wrong[middle] ^= 1;
        } else {
            wrong[middle..middle + 4].fill(0xFF);
        }
        assert!(case.judge(&wrong, &expected).is_err(), "{}", case.name());
        let nothing = vec![0; expected.len()];
        assert!(expected == nothing || case.judge(&nothing, &expected).is_err(), "{}", case.name());
    }
}
