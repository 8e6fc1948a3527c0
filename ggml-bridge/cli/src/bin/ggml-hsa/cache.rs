//! `ggml-hsa cache`: lists, verifies, prunes and clears the cache of compiled kernels.

use crate::Ended;
use crate::cache_table::table;
use crate::surroundings::arches;
use aie_hal::environment::parse_bytes;
use aie_hal::{ArchRegistry, Environment};
use aie_jit_iron::clear::{Cleared, Limits, clear, prune};
use aie_jit_iron::inventory::{Care, Inventory, State};
use aie_jit_iron::{CachePath, KernelCache};
use aie_jit_native::NativeCompiler;
use aie_ops::compiler::{KernelCompiler, ReferenceCompiler};
use clap::{Args, Subcommand};
use ggml_hsa::config::Config;
use ggml_hsa_cli::output::{complain, counted, say, show};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const SECONDS_PER_DAY: u64 = 24 * 3600;

/// List, verify, prune or clear the cache of compiled kernels
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa cache list
  ggml-hsa cache verify && echo ok
  ggml-hsa cache prune --older-than 90
  ggml-hsa cache clear --dir /var/tmp/kernels

Only files that the kernel store wrote are ever removed; anything else in the directory is listed and left in place. Nothing is written
into a directory that is no cache: one with content and without the file CACHEDIR.TAG is rejected.")]
pub struct CacheArguments {
    #[command(subcommand)]
    action: Action,
    /// The cache [default: as libggml-hsa.so finds it, by GGML_HSA_KERNEL_CACHE_DIR, XDG_CACHE_HOME and HOME]
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List kernels, failures and leftovers, by their manifests and sizes
    List,
    /// List the same with every byte checked; exit code 1 if anything is damaged
    Verify,
    /// Remove what is stale, damaged or left behind
    Prune {
        /// Also remove kernels and failures that are older than this many days
        #[arg(long, value_name = "DAYS")]
        older_than: Option<u64>,
        /// Also remove the oldest kernels, until the others fit into this size (suffixes K, M, G, T)
        #[arg(long, value_name = "SIZE", value_parser = size)]
        max_size: Option<u64>,
    },
    /// Remove everything the kernel store wrote
    Clear,
}

fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| format!("`{text}` is not a size; possible: bytes, or a number with K, M, G or T"))
}

/// Runs the command.
pub fn run(arguments: &CacheArguments) -> Ended {
    let path = arguments.dir.clone().unwrap_or_else(|| CachePath::of(Environment::process()).path().to_owned());
    let arches = arches();
    match &arguments.action {
        Action::Clear => Ok(cleared(arguments, &clear(&path)?)),
        Action::List => inventory(arguments, &path, &arches, Care::Quick),
        Action::Verify => inventory(arguments, &path, &arches, Care::Whole),
        Action::Prune { older_than, max_size } => {
            let age = older_than.map(|days| Duration::from_secs(days.saturating_mul(SECONDS_PER_DAY)));
            let limits = Limits { age, bytes: *max_size };
            let Some(cache) = KernelCache::existing(&path)? else { return Ok(nothing(arguments, &path)) };
            Ok(cleared(arguments, &prune(&cache, &compilers(), &arches, &limits)?))
        }
    }
}

/// The compilers whose present state is known without starting anything: kernels of others are not checked.
pub fn compilers() -> [Arc<dyn KernelCompiler>; 2] {
    let (config, _) = Config::read(Environment::process());
    let native = NativeCompiler::default().with_products(config.native_products);
    [Arc::new(native), Arc::new(ReferenceCompiler)]
}

fn inventory(arguments: &CacheArguments, path: &Path, arches: &ArchRegistry, care: Care) -> Ended {
    let Some(cache) = KernelCache::existing(path)? else { return Ok(nothing(arguments, path)) };
    let inventory = Inventory::take(&cache, &compilers(), arches, care)?;
    show(arguments.json, &inventory, |inventory| {
        say(&table(inventory, path));
        for path in &inventory.foreign {
            say(&format!("not written by the kernel store: {}", path.display()));
        }
    });
    let damaged = inventory.items.iter().any(|item| matches!(item.state, State::Damaged { .. }));
    Ok(if damaged && care == Care::Whole { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn cleared(arguments: &CacheArguments, done: &Cleared) -> ExitCode {
    show(arguments.json, done, |done| {
        say(&format!("removed {}, {}", counted(done.items, "entry"), counted(done.bytes, "byte")));
        for path in &done.kept {
            say(&format!("left in place, not written by the kernel store: {}", path.display()));
        }
    });
    done.failed.iter().for_each(complain);
    if done.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn nothing(arguments: &CacheArguments, path: &Path) -> ExitCode {
    show(arguments.json, &Inventory::default(), |_| {
        let what = if path.exists() { "is empty" } else { "does not exist" };
        say(&format!("no cache: {} {what}", path.display()));
    });
    ExitCode::SUCCESS
}
