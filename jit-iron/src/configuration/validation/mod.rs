//! What a configuration asks for: from entries to kernels.
//!
//! The same questions that the backend asks a node of a graph are asked here, with the same code, so that a kernel that is made
//! is one that will be looked for: the operation's rules, the normalisation from which the kernel's name follows, the
//! place where it runs, and the design's resources.

mod names;

pub use names::NameTable;

use super::advice::advice;
use super::document::quoted;
use super::exported_name::check_exported_name;
use super::file::Entry;
use super::nearest::{possible, suggestion};
use super::place::{Located, Place, Problem};
use crate::cache::same_kernel;
use crate::kernel_source::KernelSource;
use crate::stem::kernel_stem;
use aie_hal::{Arch, ArchRegistry};
use aie_ops::name::kernel_name;
use aie_ops::normalise::normalise;
use aie_ops::{F16Policy, Node, Operation, Placement, Unsupported, design, table};
use std::path::Path;
use std::sync::Arc;

/// What the answers depend on besides the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The known generations.
    pub arches: &'a ArchRegistry,
    /// What becomes of f16; decides the names of kernels, so it must be what the backend will be told.
    pub f16: F16Policy,
    /// Where the designs must be, when they are not those of this build.
    pub kernels_dir: Option<&'a Path>,
}

/// One kernel to make.
#[derive(Debug, Clone)]
pub struct KernelRequest {
    /// Who asked for it.
    pub place: Place,
    /// The operation.
    pub op: &'static dyn Operation,
    /// The normalised node.
    pub node: Node,
    /// The generation.
    pub arch: Arc<Arch>,
    /// The kernel's name, which the C++ backend looks for.
    pub name: String,
    /// The stem of the files that this backend looks for first; differs from the name where names are ambiguous or too long.
    pub stem: String,
    /// The name of the files.
    pub exported_name: String,
}

impl KernelRequest {
    /// Whether one artifact serves both.
    pub fn same_kernel(&self, other: &Self) -> bool {
        self.op.name() == other.op.name()
            && self.arch.name == other.arch.name
            && same_kernel(self.op, &self.node, &other.node)
    }

    /// The kernel of a normalised node that is fit to be made, under the name that is looked for.
    fn new(place: Place, op: &'static dyn Operation, node: Node, arch: Arc<Arch>) -> Self {
        let name = kernel_name(op, &node);
        let stem = kernel_stem(op, &node, &name);
        Self { place, op, node, arch, name, exported_name: stem.clone(), stem }
    }
}

/// A configuration without mistakes.
#[derive(Debug, Clone, Default)]
pub struct Validated {
    /// The kernels, in the order of the file, each once.
    pub kernels: Vec<KernelRequest>,
    /// What is worth knowing.
    pub notes: Vec<Problem>,
}

/// Turns entries into kernels.
///
/// # Errors
/// Every mistake of every entry.
pub fn validate(entries: &[Entry], rules: &Rules<'_>) -> Result<Validated, Vec<Problem>> {
    let (mut problems, mut names) = (Vec::new(), NameTable::default());
    for entry in entries {
        if let Some(kernel) = request(entry, rules, &mut problems)
            && let Err(problem) = names.add(kernel)
        {
            problems.push(problem);
        }
    }
    if problems.is_empty() { Ok(names.finish()) } else { Err(problems) }
}

/// The kernel of one entry; `None` when anything is wrong with it, all of which is then in `problems` or has been reported before.
fn request(entry: &Entry, rules: &Rules<'_>, problems: &mut Vec<Problem>) -> Option<KernelRequest> {
    let before = problems.len();
    let mut keep = |problem: Option<Problem>| problems.extend(problem);
    let op = entry.kernel_name.as_ref().and_then(|name| operation(name).map_err(|problem| keep(Some(problem))).ok());
    keep(entry.kernel_source.as_ref().and_then(|source| wrong_source(source, op, rules.kernels_dir).err()));
    let arch =
        entry.arch.as_ref().and_then(|name| arch(name, rules.arches).map_err(|problem| keep(Some(problem))).ok());
    if let Ok(Some(name)) = &entry.exported_name
        && let Err(error) = check_exported_name(&name.value)
    {
        keep(Some(Problem::new(&name.place, format!("'exported_name' cannot name files: {error}"))));
    }

    let op = op?;
    let normalised = match check(op, &node(entry, op)?, rules.f16) {
        Ok(normalised) => normalised,
        Err(message) => {
            keep(Some(Problem::new(&entry.place, message)));
            return None;
        }
    };
    let arch = arch?;
    if let Err(error) = design::plan(op, &normalised, &arch) {
        keep(Some(Problem::new(&entry.place, format!("{error}; use smaller extents or another arch"))));
    }
    let exported_name = entry.exported_name.as_ref().ok()?;
    if problems.len() > before || entry.kernel_source.is_none() {
        return None;
    }
    let mut kernel = KernelRequest::new(entry.place.clone(), op, normalised, arch);
    if let Some(name) = exported_name {
        kernel.exported_name.clone_from(&name.value);
    }
    Some(kernel)
}

/// The kernel of a node that is normalised already, as a run of the backend has recorded it.
///
/// # Errors
/// Why there is no such kernel.
pub fn check_request(place: Place, node: &Node, arch: &Arc<Arch>) -> Result<KernelRequest, String> {
    let unknown = || Unsupported::Operation { op: quoted(&node.op) }.to_string();
    let op = table::lookup(&node.op).ok_or_else(unknown)?;
    let tensors = node.sources.iter().flatten().map(|tensor| ("a source", tensor));
    for (what, tensor) in tensors.chain(node.outputs().map(|tensor| ("the output", tensor))) {
        tensor.validate().map_err(|reason| format!("{what} is not well formed: {reason}"))?;
    }
    runs_on_the_array(op, node)?;
    design::plan(op, node, arch).map_err(|error| error.to_string())?;
    Ok(KernelRequest::new(place, op, node.clone(), Arc::clone(arch)))
}

fn operation(name: &Located<String>) -> Result<&'static dyn Operation, Problem> {
    if let Some(op) = KernelSource::operation(&name.value) {
        return Ok(op);
    }
    let near = match table::lookup(&name.value) {
        Some(op) => format!("; did you mean {}?", KernelSource::of(op).function),
        None => suggestion(&name.value, table::all().map(|op| KernelSource::of(op).function)),
    };
    let separator = if near.is_empty() { ";" } else { "" };
    let forms = "kernels are named ggml_op_add, ggml_unary_op_relu, ggml_glu_op_swiglu, after ggml's operations";
    let message = format!("unknown kernel '{}'{near}{separator} {forms}", quoted(&name.value));
    Err(Problem::new(&name.place, message))
}

/// Whether `source` is where the design of `op` is (any design, when the operation is not known).
fn wrong_source(
    source: &Located<String>,
    op: Option<&'static dyn Operation>,
    folder: Option<&Path>,
) -> Result<(), Problem> {
    let shown = quoted(&source.value);
    let problem = |message: String| Err(Problem::new(&source.place, message));
    match op.map(KernelSource::of) {
        Some(expected) if expected.file != source.value => {
            return problem(format!(
                "Kernel source not found: {shown} has no {}; it is in {}",
                expected.function, expected.file
            ));
        }
        Some(_) => {}
        None => {
            let mut files: Vec<String> = table::all().map(|op| KernelSource::of(op).file).collect();
            files.sort();
            files.dedup();
            if !files.contains(&source.value) {
                return problem(format!("Kernel source not found: {shown}{}", possible(&source.value, &files)));
            }
        }
    }
    let Some(folder) = folder else { return Ok(()) };
    // The name is one of ours by now, so it does not leave the folder.
    let path = folder.join(&source.value);
    if path.is_file() {
        return Ok(());
    }
    let mut there: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".py"))
        .collect();
    there.sort();
    let there = if there.is_empty() { "no .py file".into() } else { there.join(", ") };
    problem(format!("Kernel source not found: {}; the folder has {there}; correct --kernels-dir", path.display()))
}

fn arch(name: &Located<String>, known: &ArchRegistry) -> Result<Arc<Arch>, Problem> {
    known.get(&name.value).ok_or_else(|| {
        let names: Vec<&str> = known.names().collect();
        let (shown, possible) = (quoted(&name.value), possible(&name.value, &names));
        let more = "further generations are files in the folders of AIE_HAL_ARCH_PATH";
        Problem::new(&name.place, format!("unknown arch '{shown}'{possible}; {more}"))
    })
}

/// The node as ggml would have it; `None` when a part of it could not be read.
fn node(entry: &Entry, op: &dyn Operation) -> Option<Node> {
    let mut sources: Vec<_> =
        entry.inputs.as_ref()?.iter().map(|input| input.as_ref().map(|input| input.value)).collect();
    while matches!(sources.last(), Some(None)) {
        sources.pop();
    }
    Some(Node::new(op.name(), entry.params.ok()?, entry.output.as_ref()?.value, sources))
}

/// The normalised node, if the operation takes `node` and has a kernel for it.
fn check(op: &dyn Operation, node: &Node, f16: F16Policy) -> Result<Node, String> {
    runs_on_the_array(op, node).map_err(|error| match advice(node) {
        Some(advice) => format!("{error}; {advice}"),
        None => error,
    })?;
    Ok(normalise(op, node, f16).map_err(|error| error.to_string())?.node)
}

fn runs_on_the_array(op: &dyn Operation, node: &Node) -> Result<(), String> {
    op.check(node).map_err(|error| error.to_string())?;
    match op.placement(node) {
        Placement::Array => Ok(()),
        Placement::Host(reason) => {
            Err(format!("{} is computed on the host ({reason}), so there is no kernel to make; remove it", op.name()))
        }
    }
}

#[cfg(test)]
mod tests;
