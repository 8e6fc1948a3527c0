//! Which rows of the instruction tables have been seen to compute right values, as a table for the emulator's own tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// For each generation and row, what has executed it.
#[derive(Debug, Default)]
pub struct Evidence(BTreeMap<(String, &'static str), BTreeSet<&'static str>>);

impl Evidence {
    /// Something of a kind has executed rows of a generation, and was right.
    pub fn add(&mut self, arch: &str, kind: &'static str, rows: &BTreeSet<&'static str>) {
        for row in rows {
            self.0.entry((arch.to_owned(), *row)).or_default().insert(kind);
        }
    }

    /// A line for each row.
    pub fn to_table(&self) -> String {
        let mut table = String::from("generation\tkey\tevidence\n");
        for ((arch, row), kinds) in &self.0 {
            let kinds: Vec<_> = kinds.iter().copied().collect();
            writeln!(table, "{arch}\t{row}\t{}", kinds.join(" ")).expect("a String takes everything");
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_all_its_evidence() {
        let mut evidence = Evidence::default();
        evidence.add("aie2p", "program", &["B", "A"].into());
        evidence.add("aie2p", "case", &["B"].into());
        evidence.add("aie2", "program", &["B"].into());
        let table = "generation\tkey\tevidence\naie2\tB\tprogram\naie2p\tA\tprogram\naie2p\tB\tcase program\n";
        assert_eq!(evidence.to_table(), table);
    }
}
