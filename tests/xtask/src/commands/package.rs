//! `cargo xtask package`: what users download, a Debian package and an archive that may be unpacked anywhere.
//!
//! Both have the library, the programs with their man pages and completions, the designs of kernels, examples, documents and
//! licences. dpkg-deb, tar and gzip write them. Every date is that of the last commit, every owner root, names are sorted, and
//! no path of the machine is built in: the same sources give the same bytes.

mod binaries;
mod check;
mod contents;
mod crates;
mod licences;
mod pack;
mod reproduce;

use crate::output::Report;
use crate::session::Options;
use crate::workspace;
use anyhow::Result;
use binaries::Binaries;
use clap::{Args, Subcommand};
use pack::Packed;
use std::path::PathBuf;

/// Make the Debian package and the archive for users, and try them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask package                    both into target/package
  cargo xtask package check              installs and uses them in a clean Debian root; a stage of `test`
  cargo xtask package reproduce          builds two clones in different folders; the packages must be the same

The date in them is the last commit's, or SOURCE_DATE_EPOCH.
Exit code 1 if something failed.")]
pub struct PackageArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Folder for the files
    #[arg(long, value_name = "DIR", default_value_os_t = default_output())]
    output: PathBuf,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Pack the release build of the other commands twice, and install and use it in a clean Debian root
    Check,
    /// Build and pack two clones of the last commit in different folders, and compare the bytes
    Reproduce,
}

fn default_output() -> PathBuf {
    workspace::target().join("package")
}

pub fn run(args: &PackageArgs, options: &Options) -> Result<()> {
    match args.what {
        Some(What::Check) => return check::run(options),
        Some(What::Reproduce) => return reproduce::run(options),
        None => {}
    }
    let packed = Packed::make(&Binaries::for_users(options.offline)?, &args.output)?;
    let mut report = Report::default();
    for (name, file) in [("package", &packed.deb), ("archive", &packed.archive)] {
        report.line(format!("{}  {:.1} MB", file.display(), pack::megabytes(file)?));
        report.field(name, file)?;
    }
    report.finish("package", options)
}
