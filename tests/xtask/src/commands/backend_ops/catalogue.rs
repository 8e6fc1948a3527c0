//! Every case of ggml's operation tests, and which of them the CPU backend supports.
//!
//! The program's support mode leaves out the cases that are whole graphs. So the list is taken in test mode, from a device
//! that has room for nothing: the simulated one with buffers of a single byte. It rejects every case, nothing runs, and each
//! printed line names the backends that rejected. A case that the CPU backend computes is rejected by our device alone.

use crate::ops_output::{Listing, Outcome};
use crate::ops_table::{Selection, Table};
use crate::session::{DEVICE_NAME, Session};
use crate::{process, workspace};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
const GENERATION: &str = "aie2p";

/// The cases by operation, in printed order and with repetitions.
#[derive(Debug)]
pub struct Catalogue {
    operations: BTreeMap<String, Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    parameters: String,
    on_cpu: bool,
}

/// What must pass of one operation.
#[derive(Debug)]
pub struct Wanted {
    pub parameters: Vec<String>,
    /// How many cases of the CPU backend an exclusion names.
    pub excluded: usize,
}

impl Catalogue {
    /// Lists the cases whose parameters match `filter`, or all.
    pub fn read(session: &Session, filter: Option<&str>) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("ggml-hsa-arch-").tempdir()?;
        let built_in = workspace::root().join(format!("hal/arch/{GENERATION}.toml"));
        let text = crate::files::read(&built_in)?;
        let mut arch: toml::Table = text.parse().with_context(|| format!("in {}", built_in.display()))?;
        arch.get_mut("limits")
            .and_then(toml::Value::as_table_mut)
            .with_context(|| format!("{} has no [limits]", built_in.display()))?
            .insert("max_buffer_bytes".to_owned(), 1.into());
        fs::write(directory.path().join(format!("{GENERATION}.toml")), toml::to_string(&arch)?)?;

        // The device whose limits were changed, also when the session's own is of another generation.
        let session = session.on_mock().with(&session.library, &format!("mock:{GENERATION}"));
        let mut command = session.on_device("test-backend-ops", None)?;
        command.env("AIE_HAL_ARCH_PATH", directory.path()).args(["test", "-b", DEVICE_NAME]);
        if let Some(filter) = filter {
            command.args(["-p", filter]);
        }
        let finished = process::run(&mut command, LIMIT)?;
        let catalogue = Self::of(&Listing::parse(&finished.stdout));
        if catalogue.operations.is_empty() {
            bail!(
                "test-backend-ops ({}) listed no case{}\n{}",
                finished.describe(),
                filter.map_or_else(String::new, |filter| format!(" for -p '{filter}'")),
                finished.last_lines(4)
            );
        }
        Ok(catalogue)
    }

    fn of(listing: &Listing) -> Self {
        let mut operations = BTreeMap::<String, Vec<Entry>>::new();
        for case in &listing.cases {
            // "not supported [HSA0, HSA0, CPU]": one name for each tensor and backend that rejected it.
            let on_cpu = case.outcome == Outcome::Passed || !case.detail.contains("CPU");
            let entry = Entry { parameters: case.parameters.clone(), on_cpu };
            operations.entry(case.operation.clone()).or_default().push(entry);
        }
        Self { operations }
    }

    /// How many cases of `operation` the CPU backend supports.
    pub fn supported(&self, operation: &str) -> usize {
        self.operations.get(operation).map_or(0, |cases| cases.iter().filter(|case| case.on_cpu).count())
    }

    /// The cases of `operation` that the CPU backend supports and `selection` keeps.
    pub fn wanted(&self, operation: &str, selection: &Selection) -> Result<Wanted> {
        let Some(cases) = self.operations.get(operation) else {
            bail!("test-backend-ops has no case for -o {operation}; names are exact, as in MUL_MAT");
        };
        let on_cpu = || cases.iter().filter(|case| case.on_cpu).map(|case| case.parameters.as_str());
        Ok(Wanted {
            parameters: on_cpu().filter(|case| selection.keeps(case)).map(str::to_owned).collect(),
            excluded: on_cpu().filter(|case| selection.excludes(case)).count(),
        })
    }

    /// A problem for each name that is in the program and not in the table.
    pub fn unknown(&self, table: &Table) -> Vec<String> {
        self.operations
            .keys()
            .filter(|name| !table.operations.contains_key(*name) && !table.unclaimed.contains_key(*name))
            .map(|name| {
                format!(
                    "{name}: {} cases of this ggml are not in the table; record them with `-o {name} --reference --update` and \
                     `-o {name} --update`, or name {name} under [unclaimed] with the reason",
                    self.supported(name)
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "  ADD(a=1): not supported [HSA0]\n  ADD(a=2): not supported [HSA0, HSA0, CPU]\n  \
        ADD(a=3): not supported [HSA0, HSA0]\n  NEW_FUSION(n=1): not supported [HSA0]\n  0/0 tests passed\n";
    const TABLE: &str = r#"
        ggml = "1"
        minimum = 1
        [operations.ADD]
        cpu = 2
        passing = 1
        [[exclusions]]
        operation = "ADD"
        parameters = "a=3"
        cases = 1
        reason = "needs more memory than there is"
    "#;

    #[test]
    fn a_case_rejected_by_our_device_alone_is_wanted() {
        let (catalogue, table) = (Catalogue::of(&Listing::parse(LISTED)), Table::parse(TABLE).unwrap());
        assert_eq!(catalogue.supported("ADD"), 2);
        let wanted =
            catalogue.wanted("ADD", &table.selection("ADD", crate::ops_table::Extent::Whole).unwrap()).unwrap();
        assert_eq!((wanted.parameters, wanted.excluded), (vec!["a=1".to_owned()], 1));
        assert!(catalogue.wanted("AD", &table.selection("AD", crate::ops_table::Extent::Whole).unwrap()).is_err());
    }

    #[test]
    fn a_name_the_table_does_not_know_is_a_problem() {
        let catalogue = Catalogue::of(&Listing::parse(LISTED));
        let mut table = Table::parse(TABLE).unwrap();
        let unknown = catalogue.unknown(&table);
        assert_eq!(unknown.len(), 1);
        assert!(unknown[0].starts_with("NEW_FUSION: 1 cases"), "{unknown:?}");
        table.unclaimed.insert("NEW_FUSION".to_owned(), "training only".to_owned());
        assert_eq!(catalogue.unknown(&table), Vec::<String>::new());
    }
}
