//! `--simulate`: IRON designs on the simulator, beside the reference kernels and, if wanted, native kernels on the emulated array.

use super::{Arguments, Rejection, arches, processors, wanted};
use aie_driver_xdna::route::Route;
use aie_hal::{ArchRegistry, Environment, KernelArtifact};
use aie_jit_iron::configuration::KernelRequest;
use aie_jit_iron::iron;
use aie_jit_iron::pregeneration::simulation::{Difference, Other, OtherWay, Simulated, Simulator, Verdict};
use aie_jit_iron::settings::{GGML_HSA_IRON_DIR, GGML_HSA_JIT_PYTHON};
use aie_jit_native::kit::Material;
use aie_ops::compiler::{CompileError, KernelCompiler};
use ggml_hsa::device::drivers;
use ggml_hsa::kernels::selftest::dispatch::{Place, dispatch};
use ggml_hsa_cli::output::{say, show};
use serde_json::json;
use std::time::Duration;

/// Simulates, and prints what became of each kernel: the exit code.
pub fn run(arguments: &Arguments) -> Result<u8, Rejection> {
    let missing = |message: String| Rejection { code: 3, problems: Vec::new(), message };
    let wanted = wanted(arguments, &arches())?;
    let environment = Environment::process();
    let image = std::env::current_exe().ok();
    let directory = environment.path(&GGML_HSA_IRON_DIR).or_else(|| image.as_deref().and_then(iron::of_program));
    let Some(directory) = directory else {
        let message = "there is no simulator beside this program; name the folder with it with";
        return Err(missing(format!("{message} {GGML_HSA_IRON_DIR}")));
    };
    let (kernels, python) = (arguments.kernels_dir.clone(), environment.path(&GGML_HSA_JIT_PYTHON));
    let simulator = Simulator::new(&directory, kernels, python, Duration::from_secs(arguments.limit));
    let simulator = simulator.map_err(|error| missing(error.to_string()))?;
    let jobs = arguments.jobs.map_or_else(processors, usize::from);
    let other: Option<&OtherWay<'_>> = if arguments.native { Some(&native) } else { None };
    let simulated = simulator.run(&wanted, &arguments.arch, jobs, other);
    let right = simulated.iter().filter(|one| matches!(one.verdict, Verdict::Right { .. })).count();
    let ran = |one: &Simulated| matches!(one.verdict, Verdict::Right { .. } | Verdict::Unjudged);
    let is_good = simulated.iter().any(ran) && !simulated.iter().any(Simulated::is_bad);
    let report = json!({"version": 1, "right": right, "total": simulated.len(), "simulated": simulated});
    show(arguments.json, &report, |_| print(&simulated, right));
    Ok(u8::from(!is_good))
}

/// What the native kernel computes on the emulated array.
fn native(kernel: &KernelRequest, sources: &[&[u8]]) -> Result<Vec<u8>, Verdict> {
    let failed = |cause: String| Verdict::Failed { cause, place: None };
    let made = crate::native_compiler().compile(kernel.op, &kernel.node, &kernel.arch);
    let artifact = made.map_err(|error| match error {
        CompileError::Unsupported(cause) => Verdict::Unsupported { cause },
        other => failed(other.to_string()),
    })?;
    executed(kernel, sources, &artifact).map_err(failed)
}

fn executed(kernel: &KernelRequest, sources: &[&[u8]], artifact: &KernelArtifact) -> Result<Vec<u8>, String> {
    let uri = format!("{}:{}", aie_driver_mock::SCHEME, kernel.arch.name);
    let devices = drivers::registry(ArchRegistry::builtin(), Route::default(), true).open(&uri);
    let device = devices.map_err(|error| error.to_string())?.into_iter().next();
    let device = device.ok_or_else(|| format!("`{uri}` names no device"))?;
    let queue = device.create_queue().map_err(|error| error.to_string())?;
    let bytes = kernel.node.output.span_bytes();
    let material = Material {
        sources: sources.iter().map(|source| source.to_vec()).collect(),
        updated: None,
        before: vec![0; bytes],
        expected: vec![0; bytes],
    };
    let ended = dispatch(&*device, &*queue, &material, artifact, Place::Allocated);
    ended.and_then(|ended| ended.result()).map_err(|error| error.to_string())
}

fn print(simulated: &[Simulated], right: usize) {
    for Simulated { name, arch, verdict, cores, columns, other, .. } in simulated {
        let (word, text) = described(verdict);
        let used = match verdict {
            Verdict::Right { .. } | Verdict::Unjudged => format!(", {cores} core(s) of {columns} column(s)"),
            _ => String::new(),
        };
        say(&format!("{word} {arch}/{name}: {text}{used}"));
        if let Some(Other { verdict, beside, .. }) = other {
            let (word, text) = described(verdict);
            let beside = beside.as_ref().map_or_else(String::new, |Difference { elements, of, nmse, .. }| {
                format!("; {elements} of {of} elements differ from the design's, error {nmse:.1e}")
            });
            say(&format!("  native: {word}, {text}{beside}"));
        }
    }
    let unjudged = simulated.iter().filter(|one| one.verdict == Verdict::Unjudged).count();
    let more = if unjudged == 0 { String::new() } else { format!(", {unjudged} without a reference kernel") };
    say(&format!("Simulated {right}/{} kernel(s) with right results{more}", simulated.len()));
}

/// A word and more about a verdict.
fn described(verdict: &Verdict) -> (&'static str, String) {
    match verdict {
        Verdict::Right { nmse } => ("right", format!("error {nmse:.1e}")),
        Verdict::Unjudged => ("ran", "there is no reference kernel to compare it with".to_owned()),
        Verdict::Wrong { nmse, allowed, element, found, expected } => {
            let text = format!("error {nmse:.1e}, {allowed:.1e} allowed; element {element} is {found}, not {expected}");
            ("WRONG", text)
        }
        Verdict::Failed { cause, place } => {
            let place = place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
            ("FAILED", format!("{cause}{place}"))
        }
        Verdict::Unsupported { cause } => ("none", cause.clone()),
    }
}
