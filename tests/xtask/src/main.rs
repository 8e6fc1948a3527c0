//! `cargo xtask`: the project's own commands, from the demonstration to everything CI checks.
//!
//! One file per command under `commands`; what they share has a file of its own: the testbed with the stock programs,
//! the session that plugs our library into them, and the readers of what they print. A command ends with exit code 0
//! only if everything it checks was seen to hold, with 1 if not, and with 2 if it was called wrongly.

mod apt;
mod build;
mod commands;
mod difference;
mod files;
mod generated_page;
mod generation;
mod library;
mod model;
mod ops_output;
mod ops_table;
mod ordinary_user;
mod output;
mod per_token;
#[cfg(test)]
mod pins;
mod process;
mod python;
mod schedule;
mod server;
mod session;
mod settings;
mod simulation;
mod small_disk;
mod stats;
mod steps;
mod testbed;
mod tools;
mod virtual_machine;
mod workspace;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use session::Options;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Commands of the aie-hal workspace",
    version,
    after_help = "Each check is a NAME of `cargo xtask test`, which `cargo xtask test --list` lists, and takes options of its own as a \
                  command: `cargo xtask kld --help`."
)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Test(commands::test::TestArgs),
    Demo(commands::demo::DemoArgs),
    Bench(commands::bench::BenchArgs),
    Gen(commands::generate::GenArgs),
    Predict(commands::predict::PredictArgs),
    Testbed(commands::testbed::TestbedArgs),
    Vm(commands::vm::VmArgs),
    #[command(flatten)]
    Check(Check),
}

/// The checks, which `test` runs by their names.
#[derive(Debug, Subcommand)]
enum Check {
    Abi(commands::abi::AbiArgs),
    Archs(commands::archs::ArchsArgs),
    BackendOps(commands::backend_ops::BackendOpsArgs),
    BadInput(commands::bad_input::BadInputArgs),
    BlockFormats(commands::block_formats::BlockFormatsArgs),
    Clients(commands::clients::ClientsArgs),
    Cmake(commands::cmake::CmakeArgs),
    Conformance(commands::conformance::ConformanceArgs),
    Doctor(commands::doctor::DoctorArgs),
    Explain(commands::explain::ExplainArgs),
    Faults(commands::faults::FaultsArgs),
    Formats(commands::formats::FormatsArgs),
    HsaHeaders(commands::hsa_headers::HsaHeadersArgs),
    Iron(commands::iron::IronArgs),
    KernelCalls(commands::kernel_calls::KernelCallsArgs),
    KernelHeaders(commands::kernel_headers::KernelHeadersArgs),
    Kld(commands::kld::KldArgs),
    Lint(commands::lint::LintArgs),
    Models(commands::models::ModelsArgs),
    Package(commands::package::PackageArgs),
    RealPrograms(commands::real_programs::RealProgramsArgs),
    Rpc(commands::rpc::RpcArgs),
    Selftest(commands::selftest::SelftestArgs),
    Splits(commands::splits::SplitsArgs),
    Store(commands::store::StoreArgs),
    Stress(commands::stress::StressArgs),
    Xrt(commands::xrt::XrtArgs),
}

fn main() -> ExitCode {
    let Cli { options, command } = parse();
    let done = |result: Result<()>| result.map(|()| ExitCode::SUCCESS);
    let result = match &command {
        Command::Test(args) => commands::test::run(args, &options),
        Command::Demo(args) => done(commands::demo::run(args, &options)),
        Command::Bench(args) => done(commands::bench::run(args, &options)),
        Command::Gen(args) => done(commands::generate::run(args, &options)),
        Command::Predict(args) => done(commands::predict::run(args, &options)),
        Command::Testbed(args) => done(commands::testbed::run(args, &options)),
        Command::Vm(args) => commands::vm::run(args, &options),
        Command::Check(check) => done(check.run(&options)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Help names the verbs; the checks are listed by `test --list`.
fn parse() -> Cli {
    const VERBS: [&str; 8] = ["test", "demo", "bench", "gen", "package", "predict", "testbed", "vm"];
    let hidden = |command: clap::Command| !VERBS.contains(&command.get_name());
    let command = Cli::command().mut_subcommands(|command| command.clone().hide(hidden(command)));
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

impl Check {
    fn run(&self, options: &Options) -> Result<()> {
        match self {
            Self::Abi(args) => commands::abi::run(args, options),
            Self::Archs(args) => commands::archs::run(args, options),
            Self::BackendOps(args) => commands::backend_ops::run(args, options),
            Self::BadInput(args) => commands::bad_input::run(args, options),
            Self::BlockFormats(args) => commands::block_formats::run(args, options),
            Self::Clients(args) => commands::clients::run(args, options),
            Self::Cmake(args) => commands::cmake::run(args, options),
            Self::Conformance(args) => commands::conformance::run(args, options),
            Self::Doctor(args) => commands::doctor::run(args, options),
            Self::Explain(args) => commands::explain::run(args, options),
            Self::Faults(args) => commands::faults::run(args, options),
            Self::Formats(args) => commands::formats::run(args, options),
            Self::HsaHeaders(args) => commands::hsa_headers::run(args, options),
            Self::Iron(args) => commands::iron::run(args, options),
            Self::KernelCalls(args) => commands::kernel_calls::run(args, options),
            Self::KernelHeaders(args) => commands::kernel_headers::run(args, options),
            Self::Kld(args) => commands::kld::run(args, options),
            Self::Lint(args) => commands::lint::run(args, options),
            Self::Models(args) => commands::models::run(args, options),
            Self::Package(args) => commands::package::run(args, options),
            Self::RealPrograms(args) => commands::real_programs::run(args, options),
            Self::Rpc(args) => commands::rpc::run(args, options),
            Self::Selftest(args) => commands::selftest::run(args, options),
            Self::Splits(args) => commands::splits::run(args, options),
            Self::Store(args) => commands::store::run(args, options),
            Self::Stress(args) => commands::stress::run(args, options),
            Self::Xrt(args) => commands::xrt::run(args, options),
        }
    }
}
