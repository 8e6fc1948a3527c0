//! `cargo xtask hsa-headers`: what `hsa-sys` declares, against the headers of the real runtime, by the program of `tests/headers`.

use crate::output::{self, Report};
use crate::session::Options;
use crate::settings::CC;
use crate::testbed::Testbed;
use crate::{build, process};
use anyhow::Result;
use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const PACKAGE: &str = "aie-headers";
const LIMIT: Duration = Duration::from_secs(600);

/// Compare the declarations of hsa-sys with the headers of AMD's HSA runtime.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask hsa-headers
  cargo xtask hsa-headers --include /opt/rocm/include

Exit code 1 if anything differs or is missing.")]
pub struct HsaHeadersArgs {
    /// Folder with hsa/hsa.h; by default that of the testbed
    #[arg(long, value_name = "DIR")]
    include: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Printed {
    compared: BTreeMap<String, usize>,
    later: BTreeMap<String, String>,
    problems: Vec<String>,
}

pub fn run(args: &HsaHeadersArgs, options: &Options) -> Result<()> {
    let include = match &args.include {
        Some(path) => crate::files::absolute(path)?,
        None => Testbed::ensure(&options.testbed, options.offline)?.headers()?,
    };
    let Printed { compared, later, problems } = printed(["hsa".as_ref(), include.as_os_str()], options)?;
    let mut report = Report::with(problems);
    let mut table = output::table(&["compared", "#count"]);
    for (kind, count) in &compared {
        table.add_row([kind, &count.to_string()]);
    }
    report.line(table);
    for (name, reason) in &later {
        report.line(format!("not in these headers: {name} ({reason})"));
    }
    let (total, differences) = (compared.values().sum::<usize>(), report.problems.len());
    report.summary(format!("{total} comparisons with {}, {differences} differences", include.display()));
    report.field("include", include)?;
    report.field("compared", compared)?;
    report.field("later", later)?;
    report.finish("hsa-headers", options)
}

/// What the program reports, with these arguments and the C compiler of the tests.
pub fn printed<T: DeserializeOwned, A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
    options: &Options,
) -> Result<T> {
    let mut command = Command::new(build::development_program(PACKAGE, options.offline)?);
    command.arg("--compiler").arg(CC.or("cc")).args(arguments);
    process::run(&mut command, LIMIT)?.json(PACKAGE)
}
