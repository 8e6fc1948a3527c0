//! Replays the fuzz corpus, so that every run of the tests covers what fuzzing has reached.

use crate::{artifact, format};
use std::path::Path;

#[path = "../../fuzz/properties.rs"]
mod properties;

/// Calls `check` with every file of a target's corpus and returns how many there were.
fn replay(target: &str, check: impl Fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut count = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        // Shown when a check fails.
        println!("{}", path.display());
        check(&std::fs::read(path).unwrap());
        count += 1;
    }
    count
}

#[rstest::rstest]
#[case::pdi("pdi", properties::pdi)]
#[case::cdo("cdo", properties::cdo)]
#[case::instructions("instructions", properties::instructions)]
#[case::artifact("artifact", properties::artifact)]
fn the_corpus_holds(#[case] target: &str, #[case] check: fn(&[u8])) {
    let count = replay(target, check);
    assert!(count >= 8, "the corpus of {target} has only {count} files");
}

/// The seeds are in the corpus as the writers make them: a change of a format shows here.
#[rstest::rstest]
fn the_corpus_has_the_seeds(#[values("pdi", "cdo", "instructions", "artifact")] target: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    for (name, bytes) in properties::seeds(target) {
        let path = folder.join(name);
        let found = std::fs::read(&path).unwrap_or_default();
        assert!(
            found == bytes,
            "{} differs from what the writers make; see hal/fuzz/README.md for how to renew the seeds",
            path.display()
        );
    }
}
