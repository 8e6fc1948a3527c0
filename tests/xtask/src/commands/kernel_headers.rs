//! `cargo xtask kernel-headers`: what `amdxdna-sys` declares, against the headers of several kernel versions, by the program of
//! `tests/headers`.

use super::hsa_headers::printed;
use crate::output::{self, Report};
use crate::session::Options;
use crate::testbed::{KernelHeaders, Testbed};
use anyhow::{Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

/// The header of the driver itself.
const DRIVER: &str = "drm/amdxdna_accel.h";

/// Compare the declarations of amdxdna-sys with the headers of several kernel versions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask kernel-headers
  cargo xtask kernel-headers --include /usr/include --kernel 6.17

By default the headers are those of the testbed: linux-libc-dev of Debian's stable, sid and experimental.
Exit code 1 if anything differs or is missing.")]
pub struct KernelHeadersArgs {
    /// Folder with drm/drm.h, in place of the testbed's
    #[arg(long, value_name = "DIR", requires = "kernel")]
    include: Option<PathBuf>,
    /// Kernel version of that folder
    #[arg(long, value_name = "VERSION", requires = "include")]
    kernel: Option<String>,
}

#[derive(Deserialize)]
struct Printed {
    kernels: Vec<Compared>,
    left_out: BTreeMap<String, String>,
    newest: String,
}

#[derive(Serialize, Deserialize)]
struct Compared {
    kernel: String,
    #[serde(default)]
    package: String,
    compared: BTreeMap<String, usize>,
    /// What it does not have yet, by the version that brought it.
    later: BTreeMap<String, Vec<String>>,
    /// Structures that are longer than the crate knows them.
    grown: Vec<String>,
    /// Names that no kernel up to the newest known one has.
    newer: Vec<String>,
    problems: Vec<String>,
}

pub fn run(args: &KernelHeadersArgs, options: &Options) -> Result<()> {
    let headers = match (&args.include, &args.kernel) {
        (Some(include), Some(kernel)) => vec![KernelHeaders {
            suite: "given".to_owned(),
            version: kernel.clone(),
            include: crate::files::absolute(include)?,
        }],
        _ => {
            let headers = Testbed::ensure(&options.testbed, options.offline)?.kernel_headers()?;
            ensure!(
                headers.iter().any(|headers| headers.include.join(DRIVER).exists()),
                "none of the testbed's kernel headers has {DRIVER}; rebuild it with `cargo xtask testbed --force`"
            );
            headers
        }
    };
    let given = headers.iter().map(|headers| {
        let mut word = OsString::from(format!("{}=", headers.kernel()));
        word.push(&headers.include);
        word
    });
    let arguments = std::iter::once(OsString::from("kernel")).chain(given);
    let Printed { mut kernels, left_out, newest } = printed(arguments, options)?;
    for (kernel, headers) in kernels.iter_mut().zip(&headers) {
        kernel.package = format!("linux-libc-dev {} ({})", headers.version, headers.suite);
    }
    let mut report = Report::default();
    let kinds: BTreeSet<&String> = kernels.iter().flat_map(|kernel| kernel.compared.keys()).collect();
    let titles: Vec<String> = kinds.iter().map(|kind| format!("#{kind}")).collect();
    let columns: Vec<&str> = ["kernel headers"].into_iter().chain(titles.iter().map(String::as_str)).collect();
    let mut table = output::table(&columns);
    for kernel in &kernels {
        let counts = kinds.iter().map(|kind| kernel.compared.get(*kind).map_or(0, |count| *count).to_string());
        table.add_row(std::iter::once(kernel.package.clone()).chain(counts));
    }
    report.line(table);
    for Compared { kernel, later, grown, newer, problems, .. } in &kernels {
        if !grown.is_empty() {
            report.line(format!("Linux {kernel} has longer structures: {}", grown.join(", ")));
        }
        if !newer.is_empty() {
            report.line(format!("Linux {kernel} has what Linux {newest} does not: {}", newer.join(", ")));
        }
        for (since, names) in later {
            report.line(format!("Linux {kernel} does not have yet, as they came with {since}: {}", names.join(", ")));
        }
        report.problems.extend(problems.iter().map(|problem| format!("Linux {kernel}: {problem}")));
    }
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in &left_out {
        reasons.entry(reason).or_default().push(name);
    }
    for (reason, names) in reasons {
        report.line(format!("not declared, as {reason}: {}", names.join(", ")));
    }
    let total: usize = kernels.iter().flat_map(|kernel| kernel.compared.values()).sum();
    let (versions, differences) = (kernels.len(), report.problems.len());
    report.summary(format!("{total} comparisons with {versions} kernel versions, {differences} differences"));
    report.field("kernels", kernels)?;
    report.field("left_out", left_out)?;
    report.finish("kernel-headers", options)
}
