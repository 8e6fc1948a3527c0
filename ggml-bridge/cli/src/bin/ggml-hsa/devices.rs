//! `ggml-hsa devices`: the NPUs of this machine with their states, the simulated ones, and what llama.cpp would be offered.
//!
//! The list is the library's own: [`requested`] chooses, [`outcomes`] opens, as they do when llama.cpp loads
//! `libggml-hsa.so` in the same environment, except that nothing runs on an NPU here. Nothing is compiled.

use crate::Ended;
use crate::surroundings::{arches, config};
use aie_driver_xdna::discovery::FoundNpu;
use aie_driver_xdna::selection::Inventory;
use aie_driver_xdna::settings::AIE_HAL_VISIBLE_DEVICES;
use aie_driver_xdna::{SCHEME, XdnaDriver, sysfs};
use aie_hal::{ArchRegistry, Device, DeviceUri, Environment};
use clap::Args;
use ggml_hsa::config::Config;
use ggml_hsa::device::drivers;
use ggml_hsa::device::requested::{Message, requested};
use ggml_hsa::kernels::kernel_store::KernelStores;
use ggml_hsa::kernels::outcome::{Outcome, outcomes};
use ggml_hsa::settings::{GGML_HSA, GGML_HSA_DEVICES};
use ggml_hsa_cli::output::{Shade, complain, say, shaded, show};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// List every NPU with the reason why it can or cannot be used, and the simulated ones
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ggml-hsa devices
  ggml-hsa devices --json
  GGML_HSA_DEVICES=mock:aie2p ggml-hsa devices     what llama.cpp gets with this setting

Each NPU that would be used is opened, unless --closed is given; nothing runs on it. `ggml-hsa doctor` runs an empty kernel, and so
does llama.cpp's start, before it gets the NPU. The URIs can be pasted into GGML_HSA_DEVICES and --device.

States of an NPU:
  offered    llama.cpp gets it, as HSA0 or another number
  idle       it works, but no source has kernels for it, so llama.cpp does not get it
  usable     nothing is in its way, but it is not requested, or was not opened
  unusable   the reasons follow
  hidden     a variable hides it
Simulated devices are `offered` when GGML_HSA_DEVICES names them, else `available`; an entry of the list that opens nothing is
`rejected`.

Exit code: 0 when llama.cpp would be offered a device, 1 when not, 2 when the command line cannot be used.")]
pub struct DevicesArguments {
    /// Print a JSON array with an object for each device
    #[arg(long)]
    json: bool,
    /// Open nothing: say what can be seen from outside
    #[arg(long)]
    closed: bool,
}

/// What a device can be used for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Offered,
    Idle,
    #[default]
    Usable,
    Unusable,
    Hidden,
    Available,
    Rejected,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            Self::Offered => "offered",
            Self::Idle => "idle",
            Self::Usable => "usable",
            Self::Unusable => "unusable",
            Self::Hidden => "hidden",
            Self::Available => "available",
            Self::Rejected => "rejected",
        }
    }

    fn shade(self) -> Shade {
        match self {
            Self::Offered => Shade::Good,
            Self::Usable | Self::Available => Shade::Strong,
            Self::Idle | Self::Hidden => Shade::Doubtful,
            Self::Unusable | Self::Rejected => Shade::Bad,
        }
    }
}

/// A device of the list.
#[derive(Debug, Clone, Default, Serialize)]
struct Row {
    /// To paste.
    uri: String,
    name: Option<String>,
    simulated: bool,
    state: State,
    /// The names that llama.cpp gets it under.
    offered_as: Vec<String>,
    generation: Option<String>,
    columns: Option<usize>,
    firmware: Option<String>,
    driver: Option<String>,
    node: Option<PathBuf>,
    /// Why it is in this state, each with what would change it.
    reasons: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: &DevicesArguments) -> Ended {
    let environment = Environment::process();
    let (config, arches) = (config(environment), arches());
    let requested = requested(&config, &arches);
    let inventory = XdnaDriver::new(arches.clone()).inventory(config.route).unwrap_or_else(|cause| {
        complain(&cause);
        Inventory { npus: Vec::new(), hidden: Vec::new() }
    });
    let stores = KernelStores::new(&config, environment);
    let opened = match arguments.closed {
        true => Vec::new(),
        false => outcomes(&requested.uris, &drivers::looking(arches.clone(), config.route), &stores),
    };
    let mut rows = rows(&inventory, &requested.uris, opened, &config);
    rows.extend(simulated(&arches, &rows));
    let offered = rows.iter().any(|row| row.state == State::Offered);
    show(arguments.json, &rows, |rows| {
        print(rows);
        if !offered && !arguments.closed {
            say(&"\nllama.cpp would be offered no device.");
            requested.messages.iter().for_each(explain);
        }
    });
    let enough = offered || (arguments.closed && rows.iter().any(|row| row.state == State::Usable));
    Ok(if enough { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A message of the choice that the list itself does not show.
fn explain(message: &Message) {
    match message {
        Message::Info(text) => say(text),
        Message::Error(text) => complain(text),
        Message::Notice(_) | Message::Warning(_) => {}
    }
}

/// The NPUs, then what else was requested.
fn rows(inventory: &Inventory, uris: &[String], opened: Vec<Outcome>, config: &Config) -> Vec<Row> {
    let module = sysfs::module(Path::new("/sys"));
    let driver = module.map(|module| match module.version {
        Some(version) => format!("amdxdna {version}"),
        None => "amdxdna".to_owned(),
    });
    let mut rows: Vec<Row> = inventory.npus.iter().map(|npu| npu_row(npu, driver.as_deref())).collect();
    let hidden = inventory.hidden.iter().map(|npu| {
        let row = npu_row(npu, driver.as_deref());
        let reason = format!("{AIE_HAL_VISIBLE_DEVICES} hides it; change or unset it");
        Row { state: State::Hidden, reasons: [vec![reason], row.reasons].concat(), ..row }
    });
    rows.extend(hidden);
    let mut offered = 0;
    for outcome in opened {
        match outcome {
            Outcome::Offered { device, .. } => {
                let row = row_of(&mut rows, &*device);
                row.state = State::Offered;
                row.offered_as.push(format!("HSA{offered}"));
                offered += 1;
            }
            Outcome::Idle { device, reason } | Outcome::WithoutStore { device, reason } => {
                let row = row_of(&mut rows, &*device);
                row.state = State::Idle;
                row.reasons.push(reason);
            }
            Outcome::Rejected { uri, cause } => reject(&mut rows, uri, cause.cause().to_string()),
        }
    }
    for row in rows.iter_mut().filter(|row| row.state == State::Usable && row.reasons.is_empty()) {
        row.reasons.extend(match (config.enabled, &config.devices) {
            (false, _) => Some(format!("not requested: {GGML_HSA} is off")),
            (_, Some(_)) if uris.iter().all(|uri| *uri != row.uri) => {
                Some(format!("not requested: {GGML_HSA_DEVICES} does not name it"))
            }
            _ => None,
        });
    }
    rows
}

fn npu_row(npu: &FoundNpu, driver: Option<&str>) -> Row {
    Row {
        uri: npu.uri().map_or_else(|_| format!("{SCHEME}:{}", npu.ordinal), |uri| uri.to_string()),
        name: Some(npu.name.clone()),
        state: if npu.usable() { State::Usable } else { State::Unusable },
        generation: npu.arch.as_ref().map(|arch| arch.name.clone()),
        columns: npu.arch.as_ref().map(|arch| arch.array.columns),
        firmware: npu.firmware.clone(),
        driver: driver.filter(|_| npu.node.is_some()).map(ToOwned::to_owned),
        node: npu.node.clone(),
        reasons: npu.obstacles.iter().map(ToString::to_string).collect(),
        ..Row::default()
    }
}

/// The row of an opened device: its NPU's, or a new one.
fn row_of<'a>(rows: &'a mut Vec<Row>, device: &dyn Device) -> &'a mut Row {
    let uri = &device.info().uri;
    let known = rows.iter().position(|row| same_npu(&row.uri, uri));
    let index = known.unwrap_or_else(|| {
        rows.push(Row {
            uri: uri.to_string(),
            name: Some(device.info().name.clone()),
            simulated: device.info().simulated,
            generation: Some(device.info().arch.clone()),
            columns: Some(device.arch().array.columns),
            ..Row::default()
        });
        rows.len() - 1
    });
    &mut rows[index]
}

/// Whether `row`, the URI of a listed NPU, and `uri` are the same NPU, whatever the parameters.
fn same_npu(row: &str, uri: &DeviceUri) -> bool {
    uri.scheme() == SCHEME && DeviceUri::parse(row).is_ok_and(|row| row.scheme() == SCHEME && row.path() == uri.path())
}

/// Notes that `uri` opens nothing, at its NPU when it names one that seemed usable.
fn reject(rows: &mut Vec<Row>, uri: String, reason: String) {
    let npu = DeviceUri::parse(&uri).ok().and_then(|uri| rows.iter_mut().find(|row| same_npu(&row.uri, &uri)));
    match npu {
        Some(row) if row.state == State::Unusable => {}
        Some(row) => {
            row.state = State::Unusable;
            row.reasons.push(reason);
        }
        None => rows.push(Row { uri, state: State::Rejected, reasons: vec![reason], ..Row::default() }),
    }
}

/// The simulated devices that could be requested.
fn simulated(arches: &ArchRegistry, rows: &[Row]) -> Vec<Row> {
    let listings = drivers::mock(arches.clone()).enumerate().unwrap_or_default();
    let others = listings.into_iter().filter(|listing| rows.iter().all(|row| row.uri != listing.uri.to_string()));
    let row = |listing: aie_hal::DeviceListing| Row {
        uri: listing.uri.to_string(),
        name: Some(listing.name),
        simulated: true,
        state: State::Available,
        columns: listing.arch.as_ref().and_then(|name| arches.get(name)).map(|arch| arch.array.columns),
        generation: listing.arch,
        reasons: listing.disabled.into_iter().collect(),
        ..Row::default()
    };
    others.map(row).collect()
}

fn print(rows: &[Row]) {
    let width = rows.iter().map(|row| row.uri.chars().count()).max().unwrap_or_default();
    let (simulated, real): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.simulated);
    say(&shaded(Shade::Strong, &"NPUs"));
    if real.is_empty() {
        say(&"  none that the kernel knows; `ggml-hsa doctor` says more");
    }
    real.iter().for_each(|row| print_row(row, width));
    say(&shaded(Shade::Strong, &"Simulated"));
    simulated.iter().for_each(|row| print_row(row, width));
}

fn print_row(row: &Row, width: usize) {
    let uri = format!("{:width$}", row.uri);
    let name = row.name.as_deref().unwrap_or_default();
    let offered = match &row.offered_as[..] {
        [] => String::new(),
        names => format!(" as {}", names.join(", ")),
    };
    say(&format!("  {uri}  {}{offered}  {name}", shaded(row.state.shade(), &row.state.text())));
    let facts = [
        row.generation.clone(),
        row.columns.map(|columns| format!("{columns} columns")),
        row.firmware.as_ref().map(|version| format!("firmware {version}")),
        row.driver.clone(),
        row.node.as_ref().map(|node| node.display().to_string()),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    if !facts.is_empty() && !row.simulated {
        say(&format!("      {}", shaded(Shade::Faint, &facts.join(", "))));
    }
    row.reasons.iter().for_each(|reason| say(&format!("      {reason}")));
}
