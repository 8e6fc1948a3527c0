//! `cargo xtask testbed`: makes the testbed, or says what the one that is there holds.

use crate::model;
use crate::output;
use crate::session::Options;
use crate::testbed::Testbed;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Create target/testbed: stock ggml and llama.cpp from Debian sid, and a small model.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask testbed            create it, or list its contents
  cargo xtask testbed --force    rebuild it with today's packages
  cargo xtask testbed --json     versions for a script

Needs apt-get, dpkg and Python 3 with pip; no root. Nothing outside the folder changes.")]
pub struct TestbedArgs {
    /// Rebuild it even if it is complete
    #[arg(long)]
    force: bool,
    /// Debian mirror to use; by default that of AIE_TESTBED_MIRROR, else the one of this machine's apt configuration
    #[arg(long, value_name = "URI")]
    mirror: Option<String>,
    /// Leave out the model
    #[arg(long)]
    no_model: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    dir: PathBuf,
    suite: &'a str,
    architecture: &'a str,
    model: Option<PathBuf>,
    packages: &'a std::collections::BTreeMap<String, String>,
}

pub fn run(args: &TestbedArgs, options: &Options) -> Result<()> {
    let testbed = Testbed::prepare(&options.testbed, options.offline, args.force, args.mirror.as_deref())?;
    let model = if args.no_model { None } else { Some(model::locate(None, &testbed, options.offline)?) };
    let stamp = &testbed.stamp;
    if options.json {
        return output::json(&Report {
            dir: testbed.dir.to_path_buf(),
            suite: &stamp.suite,
            architecture: &stamp.architecture,
            model,
            packages: &stamp.packages,
        });
    }
    let mut table = output::table(&["package", "version"]);
    for (name, version) in &stamp.packages {
        table.add_row([name, version]);
    }
    crate::say!("{table}");
    crate::say!("testbed: {} (Debian {}, {})", testbed.dir.display(), stamp.suite, stamp.architecture);
    if let Some(model) = model {
        crate::say!("model:   {}", model.display());
    }
    Ok(())
}
