//! What became of every kernel.

use crate::configuration::{Place, Problem};
use serde::Serialize;

const VERSION: u32 = 1;

/// What became of one kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It was generated.
    Made,
    /// It was up to date.
    Kept,
    /// It could not be generated; the report has the cause.
    Failed,
    /// It was not requested (`--arch`), or cannot be generated (statistics); the report has the cause.
    Skipped,
    /// It would be generated (`--dry-run`).
    #[default]
    Planned,
}

/// One kernel's part of the report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct KernelReport {
    /// Name of the files.
    pub name: String,
    /// Name that the backend looks for.
    pub kernel: String,
    /// Further names, which are links to the files.
    pub links: Vec<String>,
    /// Generation.
    pub arch: String,
    /// Operation, ggml's description.
    pub operation: String,
    /// Who requested it.
    pub place: Place,
    /// What became of it.
    pub status: Status,
    /// The compiler that made it; empty when there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub compiler: String,
    /// How long that took.
    pub milliseconds: u64,
    /// Bytes of PDI and instructions; 0 when there is no kernel.
    pub bytes: usize,
    /// Why it failed, was skipped, or was rebuilt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What the compiler printed before it failed; the end of it, when it is much.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// All kernels of a run. Its JSON form is what `--json` prints.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    version: u32,
    /// Names of the compilers that were asked.
    pub compiler: String,
    /// The toolchains of those that made kernels; empty in a dry run, which has none.
    pub toolchain: String,
    /// Where the kernels are.
    pub output_dir: String,
    /// Whether the run was interrupted.
    pub interrupted: bool,
    /// Duration of the run.
    pub milliseconds: u64,
    /// Kernels that exist now, as requested.
    pub generated: usize,
    /// Kernels that were requested.
    pub total: usize,
    /// Packs that were written (`--embed`).
    pub packs: Vec<String>,
    /// Code objects that were written (`--format hsaco`).
    pub hsacos: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<Problem>,
    /// One entry per kernel.
    pub kernels: Vec<KernelReport>,
}

impl Report {
    /// The report of a run whose kernels became `kernels`.
    pub fn new(kernels: Vec<KernelReport>, notes: Vec<Problem>) -> Self {
        let count = |wanted: &[Status]| kernels.iter().filter(|kernel| wanted.contains(&kernel.status)).count();
        Self {
            version: VERSION,
            generated: count(&[Status::Made, Status::Kept]),
            total: kernels.len() - count(&[Status::Skipped]),
            notes,
            kernels,
            ..Self::default()
        }
    }

    /// Kernels with this status.
    pub fn with(&self, status: Status) -> impl Iterator<Item = &KernelReport> {
        self.kernels.iter().filter(move |kernel| kernel.status == status)
    }

    /// The last line, in the words of the C++ tool.
    pub fn summary(&self) -> String {
        format!("Generated {}/{} kernel(s) successfully", self.generated, self.total)
    }

    /// The kernels that took longest, the slowest first.
    pub fn slowest(&self, count: usize) -> Vec<&KernelReport> {
        let mut made: Vec<&KernelReport> = self.with(Status::Made).collect();
        made.sort_by_key(|kernel| std::cmp::Reverse(kernel.milliseconds));
        made.truncate(count);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(status: Status, milliseconds: u64) -> KernelReport {
        KernelReport { place: Place::file("c.json"), status, milliseconds, ..KernelReport::default() }
    }

    #[test]
    fn skipped_kernels_do_not_count_and_the_slowest_come_first() {
        let statuses = [Status::Made, Status::Skipped, Status::Kept, Status::Made, Status::Failed, Status::Made];
        let kernels = statuses.into_iter().zip(1..).map(|(status, time)| kernel(status, time)).collect();
        let report = Report::new(kernels, Vec::new());
        assert_eq!(report.summary(), "Generated 4/5 kernel(s) successfully");
        assert_eq!(report.slowest(2).iter().map(|kernel| kernel.milliseconds).collect::<Vec<_>>(), [6, 4]);
    }

    #[test]
    fn json_has_statuses_as_words() {
        let json = serde_json::to_value(Report::new(vec![kernel(Status::Kept, 1)], Vec::new())).unwrap();
        assert_eq!((&json["version"], &json["kernels"][0]["status"]), (&1.into(), &"kept".into()));
        assert_eq!(json["kernels"][0]["place"]["file"], "c.json");
        assert!(json["kernels"][0].get("cause").is_none());
    }
}
