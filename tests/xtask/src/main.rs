//! `cargo xtask`: the project's own commands, from the demonstration to everything CI checks.
//!
//! One file per command under `commands`; what they share has a file of its own: the testbed with the stock programs,
//! the session that plugs our library into them, and the readers of what they print. A command ends with exit code 0
//! only if everything it checks was seen to hold, with 1 if not, and with 2 if it was called wrongly.

mod apt;
mod build;
mod c_headers;
mod commands;
mod generated_page;
mod generation;
mod judges;
mod library;
mod model;
mod ops_output;
mod ops_table;
mod output;
mod per_token;
mod process;
mod python;
mod schedule;
mod session;
mod settings;
mod simulation;
mod stats;
mod testbed;
mod tools;
mod virtual_machine;
mod workspace;

use clap::{Parser, Subcommand};
use session::Options;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Commands of the aie-hal workspace", version)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(commands::demo::DemoArgs),
    Testbed(commands::testbed::TestbedArgs),
    Conformance(commands::conformance::ConformanceArgs),
    BackendOps(commands::backend_ops::BackendOpsArgs),
    Operations(commands::operations::OperationsArgs),
    Environment(commands::environment::EnvironmentArgs),
    Abi(commands::abi::AbiArgs),
    Cmake(commands::cmake::CmakeArgs),
    Store(commands::store::StoreArgs),
    Iron(commands::iron::IronArgs),
    HsaHeaders(commands::hsa_headers::HsaHeadersArgs),
    KernelHeaders(commands::kernel_headers::KernelHeadersArgs),
    KernelCalls(commands::kernel_calls::KernelCallsArgs),
    BlockFormats(commands::block_formats::BlockFormatsArgs),
    Formats(commands::formats::FormatsArgs),
    Xrt(commands::xrt::XrtArgs),
    Vm(commands::vm::VmArgs),
    Kld(commands::kld::KldArgs),
    Splits(commands::splits::SplitsArgs),
    Models(commands::models::ModelsArgs),
    Archs(commands::archs::ArchsArgs),
    Faults(commands::faults::FaultsArgs),
    Stress(commands::stress::StressArgs),
    Bench(commands::bench::BenchArgs),
    Rpc(commands::rpc::RpcArgs),
    BadInput(commands::bad_input::BadInputArgs),
    Test(commands::test::TestArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let options = &cli.options;
    let result = match &cli.command {
        Command::Demo(args) => commands::demo::run(args, options),
        Command::Testbed(args) => commands::testbed::run(args, options),
        Command::Conformance(args) => commands::conformance::run(args, options),
        Command::BackendOps(args) => commands::backend_ops::run(args, options),
        Command::Operations(args) => commands::operations::run(args, options),
        Command::Environment(args) => commands::environment::run(args, options),
        Command::HsaHeaders(args) => commands::hsa_headers::run(args, options),
        Command::KernelHeaders(args) => commands::kernel_headers::run(args, options),
        Command::KernelCalls(args) => commands::kernel_calls::run(args, options),
        Command::BlockFormats(args) => commands::block_formats::run(args, options),
        Command::Formats(args) => commands::formats::run(args, options),
        Command::Xrt(args) => commands::xrt::run(args, options),
        Command::Abi(args) => commands::abi::run(args, options),
        Command::Cmake(args) => commands::cmake::run(args, options),
        Command::Store(args) => commands::store::run(args, options),
        Command::Iron(args) => commands::iron::run(args, options),
        Command::Kld(args) => commands::kld::run(args, options),
        Command::Splits(args) => commands::splits::run(args, options),
        Command::Models(args) => commands::models::run(args, options),
        Command::Archs(args) => commands::archs::run(args, options),
        Command::Faults(args) => commands::faults::run(args, options),
        Command::Stress(args) => commands::stress::run(args, options),
        Command::Bench(args) => commands::bench::run(args, options),
        Command::Rpc(args) => commands::rpc::run(args, options),
        Command::BadInput(args) => commands::bad_input::run(args, options),
        // Its exit code is that of the program in the guest.
        Command::Vm(args) => match commands::vm::run(args, options) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        // It has said itself what failed, and its last line is the count.
        Command::Test(args) => match commands::test::run(args, options) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
