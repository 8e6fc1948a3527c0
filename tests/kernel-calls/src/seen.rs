//! Which requests and fields runs have exercised, kernel by kernel: the data of a page of the documentation.

use crate::record::Record;
use amdxdna_sys::layout::{self, Struct};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What each kernel has been seen to do, by the kernel's name.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Real kernels, on real devices or in a virtual machine.
    #[serde(default)]
    pub real: BTreeMap<String, Run>,
    /// Simulated kernels.
    #[serde(skip)]
    pub simulated: BTreeMap<String, Run>,
}

/// One run.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Requests by name.
    pub requests: BTreeMap<String, Outcomes>,
    /// Fields of structures by `STRUCTURE.FIELD`.
    pub fields: BTreeMap<String, Use>,
}

/// How the calls of one request ended.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Calls that succeeded.
    pub ok: usize,
    /// Calls that did not, by error.
    pub errors: BTreeMap<String, usize>,
}

/// What was seen of a field.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// A call that set it succeeded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
    /// A call that set it was rejected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// The kernel has filled it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filled: bool,
}

impl Use {
    fn words(self) -> String {
        let words = [(self.taken, "accepted"), (self.filled, "filled"), (self.refused && !self.taken, "rejected")];
        words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
    }
}

/// The structure of a request that serves no other.
fn own_structure(request: &str) -> Option<&'static Struct> {
    let end = request.to_ascii_lowercase();
    let names = [format!("amdxdna_drm_{end}"), format!("drm_{end}")];
    layout::structs().find(|structure| names.iter().any(|name| name == structure.name))
}

impl Run {
    /// What these records show.
    pub fn of(records: &[Record]) -> Self {
        let mut run = Self::default();
        for record in records {
            let is_request = layout::ioctls().any(|ioctl| ioctl.name == record.call);
            let is_ok = record.result == "ok";
            if is_request {
                let outcomes = run.requests.entry(record.call.clone()).or_default();
                match is_ok {
                    true => outcomes.ok += 1,
                    false => *outcomes.errors.entry(record.result.clone()).or_default() += 1,
                }
            }
            let named = record.structure.as_deref();
            let structure = named.or_else(|| own_structure(&record.call).map(|structure| structure.name));
            let Some(structure) = structure.and_then(|name| layout::structs().find(|found| found.name == name)) else {
                continue;
            };
            for field in structure.fields {
                let name = field.c_name();
                let (given, filled) = (record.input.contains_key(name), record.output.contains_key(name));
                if given || filled {
                    let seen = run.fields.entry(format!("{}.{name}", structure.name)).or_default();
                    seen.taken |= given && is_ok && is_request;
                    seen.refused |= given && !is_ok;
                    seen.filled |= filled && is_ok;
                }
            }
        }
        run
    }
}

impl Seen {
    /// The names of all kernels with their runs, real ones first.
    fn columns(&self) -> Vec<(String, &Run)> {
        let real = self.real.iter().map(|(name, run)| (format!("{name}, real"), run));
        let simulated = self.simulated.iter().map(|(name, run)| (format!("{name}, simulated"), run));
        real.chain(simulated).collect()
    }

    /// The page.
    pub fn page(&self) -> String {
        let columns = self.columns();
        let mut page = String::from(HEAD);
        if self.real.is_empty() {
            page.push_str("\nNo run on a real driver is recorded yet.\n");
        }
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let head = |page: &mut String, first: &str| {
            let _ = writeln!(page, "| {first} | {} |", names.join(" | "));
            let _ = writeln!(page, "|---|{}", "---|".repeat(names.len()));
        };
        page.push_str("\n## Requests\n\nHow many calls succeeded; the errors of the others.\n\n");
        head(&mut page, "request");
        for ioctl in layout::ioctls() {
            let cells = columns.iter().map(|(_, run)| run.requests.get(ioctl.name).map_or_else(String::new, outcomes));
            let _ = writeln!(page, "| {} | {} |", ioctl.name, cells.collect::<Vec<_>>().join(" | "));
        }
        page.push_str(FIELDS);
        head(&mut page, "field");
        for structure in layout::structs() {
            for field in structure.fields {
                let name = format!("{}.{}", structure.name, field.c_name());
                let cells =
                    columns.iter().map(|(_, run)| run.fields.get(&name).map_or_else(String::new, |seen| seen.words()));
                let _ = writeln!(page, "| `{name}` | {} |", cells.collect::<Vec<_>>().join(" | "));
            }
        }
        page
    }
}

const HEAD: &str = "# Coverage of the kernel's interface

`cargo xtask kernel-calls --write` generates this page from the answers of kernels to the scripts of `tests/kernel-calls`. Everything
that `amdxdna-sys` declares is here, whether it was exercised or not. A simulated kernel's column shows the simulation;
only a real driver's column is evidence. SET_STATE is for the super-user: only columns of real drivers have it.
";

const FIELDS: &str = "
## Fields

`accepted`: a call that set it succeeded. `rejected`: all calls that set it failed, as calls do that set padding or flags. `filled`: the
kernel has put something other than zero into it.

";

fn outcomes(outcomes: &Outcomes) -> String {
    let errors: BTreeSet<&str> = outcomes.errors.keys().map(String::as_str).collect();
    let errors = errors.into_iter().collect::<Vec<_>>().join(", ");
    let between = if errors.is_empty() { "" } else { "; " };
    format!("{}{between}{errors}", outcomes.ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let text = r#"{"script":"a","step":1,"call":"CREATE_BO","in":{"size":4096,"type":1},"result":"ok","out":{"handle":"bo1"}}
{"script":"a","step":2,"call":"CREATE_BO","in":{"size":4096,"flags":1},"result":"EINVAL"}
{"script":"a","step":3,"call":"PRIME_HANDLE_TO_FD","structure":"drm_prime_handle","in":{"handle":"bo1"},"result":"ok","out":{"fd":"fd1"}}
{"script":"a","step":4,"call":"look","structure":"amdxdna_drm_query_aie_version","in":{"what":"answer"},"result":"ok","out":{"major":2}}"#;
        Run::of(&crate::record::read(text).unwrap())
    }

    #[test]
    fn records_become_outcomes_and_uses() {
        let run = run();
        assert_eq!(run.requests["CREATE_BO"].ok, 1);
        assert_eq!(run.requests["CREATE_BO"].errors["EINVAL"], 1);
        let words = |field: &str| run.fields[field].words();
        assert_eq!(words("amdxdna_drm_create_bo.size"), "accepted");
        assert_eq!(words("amdxdna_drm_create_bo.flags"), "rejected");
        assert_eq!(words("amdxdna_drm_create_bo.handle"), "filled");
        assert_eq!(words("drm_prime_handle.fd"), "filled");
        assert_eq!(words("amdxdna_drm_query_aie_version.major"), "filled");
    }

    #[test]
    fn the_page_has_everything_that_is_declared() {
        let seen = Seen { simulated: [("7.2".to_owned(), run())].into(), ..Seen::default() };
        let page = seen.page();
        assert!(page.contains("| CREATE_BO | 1; EINVAL |"), "{page}");
        assert!(page.contains("| `amdxdna_drm_create_bo.size` | accepted |"));
        assert!(page.contains("| SYNCOBJ_EVENTFD |  |"));
        assert!(page.contains("No run on a real driver"));
    }

    #[test]
    fn only_what_real_kernels_did_is_kept() {
        let seen =
            Seen { real: [("7.2 npu4".to_owned(), run())].into(), simulated: [("7.2".to_owned(), run())].into() };
        assert!(!seen.page().contains("No run on a real driver"));
        let kept: Seen = serde_json::from_str(&serde_json::to_string(&seen).unwrap()).unwrap();
        assert_eq!((kept.real, kept.simulated.len()), (seen.real, 0));
        assert_eq!(serde_json::from_str::<Seen>("{}").unwrap(), Seen::default());
    }
}
