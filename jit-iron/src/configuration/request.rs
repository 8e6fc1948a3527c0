//! Kernels to make, and which of them has which name.
//!
//! A node is checked here with the same code as a node of a graph in the backend, so that a kernel that is generated
//! is one that will be looked for: the operation's rules, the normalisation from which the kernel's name follows, the
//! place where it runs, and the design's resources.
//!
//! A kernel has the name of its files, which a configuration may choose, and the names that backends look for. Within a
//! generation all must lead to one kernel: two kernels under one name would overwrite each other, and a kernel under the name
//! of another would silently compute wrong results.

use super::document::{Place, Problem, quoted};
use super::tensor_text::describe;
use crate::kernel_source::KernelSource;
use crate::manifest::Origin;
use crate::wanted::{Wanted, same_kernel};
use aie_hal::Arch;
use aie_hal::artifact::Digest;
use aie_ops::compiler::KernelCompiler;
use aie_ops::normalise::normalise;
use aie_ops::tensor::TensorError;
use aie_ops::{DataType, F16Policy, Node, Operation, Placement, Tensor, Unsupported, table};
use std::collections::HashMap;
use std::sync::Arc;
use thiserror::Error;

/// There is no kernel of a node.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The operation does not take it, or there is no such operation.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A tensor makes no sense.
    #[error("{0} is not well formed: {1}")]
    Tensor(&'static str, #[source] TensorError),
    /// Its operation runs on the CPU.
    #[error("{op} is computed on the CPU ({reason}), so it needs no kernel; remove it")]
    Host {
        /// The operation.
        op: &'static str,
        /// Why.
        reason: String,
    },
    /// As the source says, with more that may help.
    #[error("{0}; {1}")]
    Advised(#[source] Box<RequestError>, String),
}

/// One kernel to make.
#[derive(Debug, Clone)]
pub struct KernelRequest {
    /// Who requested it.
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
    /// The design, where it is not the operation's own.
    pub source: Option<KernelSource>,
}

impl KernelRequest {
    /// Whether its operation is in the table, so that there is a reference kernel and backends look for it.
    pub fn is_listed(&self) -> bool {
        table::lookup(self.op.name()).is_some()
    }

    /// The design that it is compiled from.
    pub fn design(&self) -> KernelSource {
        self.source.clone().unwrap_or_else(|| KernelSource::of(self.op))
    }

    /// What its kernel would be built from and by, if `compiler` built it.
    pub fn origin(&self, compiler: &dyn KernelCompiler) -> Origin {
        let origin = Origin::of(compiler);
        match &self.source {
            // The same files, and another design in them.
            Some(source) => {
                let sources = Digest::of(format!("{} {}", origin.sources, source.name()).as_bytes());
                Origin { sources: sources.to_string(), ..origin }
            }
            None => origin,
        }
    }

    /// Whether both compute the same, be it from different designs.
    pub fn same_kernel(&self, other: &Self) -> bool {
        self.op.name() == other.op.name()
            && self.arch.name == other.arch.name
            && same_kernel(self.op, &self.node, &other.node)
    }

    /// The kernel of a normalised node that can be generated, under the name that is looked for.
    pub(super) fn new(place: Place, op: &'static dyn Operation, node: Node, arch: Arc<Arch>) -> Self {
        let wanted = Wanted::of(op, &node, &arch);
        let (stem, name) = (wanted.stem(), wanted.name);
        Self { place, op, node, arch, name, exported_name: stem.clone(), stem, source: None }
    }
}

/// The kernel of a node that is normalised already, as a run of the backend has recorded it. `existed` tells that the run had one: then
/// the operation's usual place is no reason against it, since row transfers (GET_ROWS, SET_ROWS) run on the CPU only where they have no
/// kernel.
///
/// # Errors
/// Why there is no such kernel.
pub fn check_request(
    place: Place,
    node: &Node,
    arch: &Arc<Arch>,
    existed: bool,
) -> Result<KernelRequest, RequestError> {
    let unknown = || Unsupported::Operation { op: quoted(&node.op) };
    let op = table::lookup(&node.op).ok_or_else(unknown)?;
    let tensors = node.sources.iter().flatten().map(|tensor| ("a source", tensor));
    for (what, tensor) in tensors.chain(node.outputs().map(|tensor| ("the output", tensor))) {
        tensor.validate().map_err(|cause| RequestError::Tensor(what, cause))?;
    }
    match runs_on_the_array(op, node) {
        Err(RequestError::Host { .. }) if existed => {}
        checked => checked?,
    }
    Ok(KernelRequest::new(place, op, node.clone(), Arc::clone(arch)))
}

/// The normalised node, if the operation takes `node` and has a kernel for it.
pub(super) fn check(op: &dyn Operation, node: &Node, f16: F16Policy) -> Result<Node, RequestError> {
    runs_on_the_array(op, node).map_err(|error| match advice(node) {
        Some(advice) => RequestError::Advised(error.into(), advice),
        None => error,
    })?;
    Ok(normalise(op, node, f16)?.node)
}

fn runs_on_the_array(op: &dyn Operation, node: &Node) -> Result<(), RequestError> {
    op.check(node)?;
    match op.placement(node) {
        Placement::Array => Ok(()),
        Placement::Host(reason) => Err(RequestError::Host { op: op.name(), reason: reason.to_string() }),
    }
}

/// More about why `node` is rejected, if there is more to say. An operation reports the first rule that a node breaks, which is
/// enough for a graph that ggml has checked. People who write a product by hand think of matrices as rows by columns and of
/// results in the type of the sources, and break several rules of ggml's at once.
fn advice(node: &Node) -> Option<String> {
    match node.op.as_str() {
        "MUL_MAT" => product(node.source(0)?, node.source(1)?, &node.output),
        _ => None,
    }
}

fn product(a: &Tensor, b: &Tensor, out: &Tensor) -> Option<String> {
    let mut broken = Vec::new();
    if a.ne[0] != b.ne[0] {
        broken.push(format!(
            "src0.ne0 must equal src1.ne0, here {} and {} (ggml multiplies rows with rows, so that (k,m) with (k,n) gives (m,n))",
            a.ne[0], b.ne[0]
        ));
    }
    let ne = [a.ne[1], b.ne[1], b.ne[2], b.ne[3]];
    if out.ne != ne {
        broken.push(format!("the result has the extents {ne:?}, here {:?}", out.ne));
    }
    // Products of whole numbers have results of several types; which ones, the broken rule says.
    let whole = [DataType::I8, DataType::I16].contains(&a.dtype);
    if out.dtype != DataType::F32 && !whole {
        broken.push(format!("the result is f32, here {}", out.dtype));
    }
    if broken.is_empty() {
        return None;
    }
    let expected = describe(&Tensor { dtype: DataType::F32, ne, nb: Tensor::contiguous(DataType::F32, [1; 4]).nb });
    let (shape, _) = expected.split_once("/f32")?;
    let dtype = if whole { out.dtype } else { DataType::F32 };
    Some(format!("in a product {}; write the result as {shape}/{dtype}", broken.join("; ")))
}

/// Kernels to make, with distinct names.
#[derive(Debug, Default)]
pub struct KernelSet {
    /// The kernels, in the order in which they were added, each once.
    pub kernels: Vec<KernelRequest>,
    /// What is worth knowing.
    pub notes: Vec<Problem>,
    /// Kernel by generation and name of the files.
    exported: HashMap<(String, String), usize>,
    /// First kernel by generation and name that a backend looks for.
    looked_for: HashMap<(String, String), usize>,
}

impl KernelSet {
    /// Adds a kernel. A duplicate is noted and skipped.
    ///
    /// # Errors
    /// When its name leads to another kernel.
    pub fn add(&mut self, kernel: KernelRequest) -> Result<(), Problem> {
        let key = |name: &str| (kernel.arch.name.clone(), name.to_owned());
        let exported = key(&kernel.exported_name);
        if let Some(other) = self.find(&self.exported, &exported) {
            if other.same_kernel(&kernel) && other.source == kernel.source {
                let message = format!("the same kernel as {}; it is generated once", other.place);
                self.notes.push(Problem::new(&kernel.place, message));
                return Ok(());
            }
            let message = format!(
                "'{}' of {} is also the name of {} ({}), which is another kernel; choose another 'exported_name'",
                kernel.exported_name, kernel.arch.name, other.place, other.name
            );
            return Err(Problem::new(&kernel.place, message));
        }
        let looked_for = [key(&kernel.stem), key(&kernel.name)];
        let taken = self.find(&self.looked_for, &exported).map(|other| (&kernel, other));
        let takes = looked_for.iter().filter_map(|name| self.find(&self.exported, name)).map(|other| (other, &kernel));
        if let Some((named, other)) = taken.into_iter().chain(takes).find(|(named, other)| named.name != other.name) {
            let message = format!(
                "the 'exported_name' of {} is the name under which the backend looks for {}; choose another one",
                named.place, other.place
            );
            return Err(Problem::new(&kernel.place, message));
        }
        if let Some(other) = self.same_as(&kernel).filter(|other| other.source != kernel.source) {
            let message = format!("computes the same as {}, by another design; backends find that one", other.place);
            self.notes.push(Problem::new(&kernel.place, message));
        }
        let index = self.kernels.len();
        self.exported.insert(exported, index);
        for name in looked_for {
            self.looked_for.entry(name).or_insert(index);
        }
        self.kernels.push(kernel);
        Ok(())
    }

    /// The kernel in here that does what `kernel` does, under whatever name.
    pub fn same_as(&self, kernel: &KernelRequest) -> Option<&KernelRequest> {
        let key = (kernel.arch.name.clone(), kernel.stem.clone());
        self.find(&self.looked_for, &key).filter(|other| other.same_kernel(kernel))
    }

    fn find(&self, names: &HashMap<(String, String), usize>, name: &(String, String)) -> Option<&KernelRequest> {
        names.get(name).and_then(|index| self.kernels.get(*index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::OpParams;

    #[test]
    fn nothing_is_said_about_what_is_right() {
        let source = |ne| Some(Tensor::contiguous(DataType::BF16, ne));
        let out = Tensor::contiguous(DataType::F32, [8, 4, 1, 1]);
        let sources = vec![source([16, 8, 1, 1]), source([16, 4, 1, 1])];
        assert_eq!(advice(&Node::new("MUL_MAT", OpParams::default(), out, sources)), None);
        assert_eq!(advice(&Node::new("ADD", OpParams::default(), out, vec![Some(out); 2])), None);
    }
}
