//! `ggml-hsa disassemble`: what a kernel's files configure and do, as text, JSON or a drawing.

use crate::Ended;
use crate::kernel_files::{self, in_file};
use crate::surroundings::arches;
use aie_emulator::design::{Design, Shown, Source, svg};
use aie_hal::Arch;
use aie_hal::format::instructions::InstructionStream;
use aie_hal::format::pdi::Pdi;
use clap::Args;
use ggml_hsa_cli::output::{say, show, write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Show what a compiled kernel configures: tiles, routes, buffers, locks, code, and its instruction stream
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa disassemble kernel.pdi kernel_insts.bin        everything, as text
  ggml-hsa disassemble final.xclbin insts.txt --no-code   the PDI of an xclbin, without listings
  ggml-hsa disassemble kernel.pdi --arch aie2p --tile 0,2 one tile
  ggml-hsa disassemble kernel.pdi insts.bin --svg k.svg   the array with routes and buffers
  ggml-hsa disassemble kernel.pdi insts.bin --json | jq '.routes[] | [.from, .to]'

A PDI does not say which generation it is for; a stream does. Nothing is executed.

Exit code: 0 when all was read, 1 when something in the kernel cannot work (listed under `problems`), 2 when a file or the command line cannot be used.")]
pub struct DisassembleArguments {
    #[command(flatten)]
    files: KernelFiles,
    /// Only this tile; can be given several times
    #[arg(long, value_name = "COLUMN,ROW", value_parser = tile, conflicts_with = "svg")]
    tile: Vec<(u8, u8)>,
    /// Leave out the listings of programs
    #[arg(long)]
    no_code: bool,
    /// Print everything as JSON
    #[arg(long, conflicts_with_all = ["tile", "no_code"])]
    json: bool,
    /// Draw the array into a file, instead of printing text; `-` is standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The files of a kernel that is looked at.
#[derive(Debug, Args)]
pub struct KernelFiles {
    /// The PDI, or an xclbin with it
    #[arg(value_name = "FILE")]
    pdi: PathBuf,
    /// Its instruction stream: binary, or text with a hexadecimal word a line
    #[arg(value_name = "INSTS")]
    stream: Option<PathBuf>,
    /// Generation of the NPU [default: that of the stream]
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    /// Which PDI of an xclbin that has several, counted from 0
    #[arg(long, value_name = "N")]
    pdi_index: Option<usize>,
}

fn tile(text: &str) -> Result<(u8, u8), String> {
    let numbers =
        text.split_once(',').and_then(|(column, row)| Some((column.trim().parse().ok()?, row.trim().parse().ok()?)));
    numbers.ok_or_else(|| format!("`{text}` is not a tile; possible: COLUMN,ROW, as in 0,2"))
}

/// Runs the command.
pub fn run(arguments: &DisassembleArguments) -> Ended {
    let read = |arch: &Arch, source: &Source<'_>| Design::read(arch, source).map_err(|cause| cause.to_string());
    let design = with_source(&arguments.files, read)?;
    if let Some((column, row)) = arguments.tile.iter().find(|(column, row)| design.tile(*column, *row).is_none()) {
        let tiles: Vec<String> = design.tiles.iter().map(|tile| tile.position.to_string()).collect();
        let tiles = tiles.join(", ");
        return Err(format!("the kernel does not configure a tile ({column},{row}); it does: {tiles}").into());
    }
    if let Some(path) = &arguments.svg {
        let pdi = &arguments.files.pdi;
        let name = pdi.file_name().unwrap_or(pdi.as_os_str());
        write(path, &svg(&design, &name.to_string_lossy()))?;
    }
    if arguments.json || arguments.svg.is_none() {
        show(arguments.json, &design, |design| {
            let shown = Shown { design, code: !arguments.no_code, tiles: &arguments.tile };
            say(&shown.to_string().trim_end());
        });
    }
    Ok(if design.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads the files, and hands them on with their generation.
///
/// # Errors
/// Those of `look`; a file cannot be read, or is not what it should be; there is no such generation.
pub fn with_source<T>(
    files: &KernelFiles,
    look: impl FnOnce(&Arch, &Source<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let file = kernel_files::read(&files.pdi)?;
    let stream = files.stream.as_deref().map(kernel_files::stream).transpose()?;
    let stream = stream.as_ref().zip(files.stream.as_ref());
    let stream = stream.map(|(bytes, path)| InstructionStream::parse(bytes).map_err(in_file(path))).transpose()?;
    let pdi = Pdi::parse(kernel_files::pdi(&files.pdi, &file, files.pdi_index)?).map_err(in_file(&files.pdi))?;
    let arch = arch(files, stream.as_ref())?;
    look(&arch, &Source { pdi, stream })
}

/// The generation that was asked for, or else the one that the stream is for.
fn arch(files: &KernelFiles, stream: Option<&InstructionStream<'_>>) -> Result<Arc<Arch>, String> {
    let arches = arches();
    let names = || arches.names().collect::<Vec<_>>().join(", ");
    if let Some(name) = &files.arch {
        return arches.get(name).ok_or_else(|| format!("there is no generation `{name}`; --arch can be: {}", names()));
    }
    let Some(stream) = stream else {
        return Err(format!(
            "a PDI does not say which generation it is for: add its instruction stream, or --arch with one of: {}",
            names()
        ));
    };
    let generation = stream.header().generation;
    let found = arches.names().filter_map(|name| arches.get(name)).find(|arch| arch.dev_gen == generation);
    found.ok_or_else(|| {
        format!("the stream is for device generation {generation}, which is none of {}; --arch names one", names())
    })
}
