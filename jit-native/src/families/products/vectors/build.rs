//! Which nodes the machine takes, and what it does with them.

use super::dispatch;
use crate::families::elements::elementwise;
use crate::families::elements::format::Format;
use crate::families::elements::rows::Norm;
use crate::families::products::kernel::Purpose;
use crate::families::products::machine::machine;
use crate::kit::NativeError;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Node;

pub(super) const NAME: &str = "token";

/// The operations, by ggml's descriptions.
pub(super) const OPERATIONS: &[&str] = &[
    "ADD",
    "SUB",
    "MUL",
    "SCALE",
    "SQR",
    "RELU",
    "GELU",
    "GELU_QUICK",
    "SILU",
    "REGLU",
    "GEGLU",
    "SWIGLU",
    "GEGLU_QUICK",
    "SWIGLU_CLAMP",
    "RMS_NORM",
    "RMS_NORM_MUL",
    "NORM",
    "NORM_MUL",
    "L2_NORM",
];

/// Rows of a decoded token, or of a few of them; nodes with more are a prompt's, which has other products, unless they are small.
const MOST_ROWS: usize = 4;
const MOST_ELEMENTS: usize = 4096;

pub(super) fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let unsupported = |reason| NativeError::Unsupported { family: NAME, op: node.op.clone(), reason };
    let (rows, elements) = (node.output.rows(), node.output.elements());
    if rows > MOST_ROWS && elements > MOST_ELEMENTS {
        return Err(unsupported(format!("{rows} rows, {elements} elements; at most {MOST_ROWS} or {MOST_ELEMENTS}")));
    }
    let machine = machine(arch, Purpose::Token)?;
    let stream = if node.op.contains("NORM") {
        let norm = Norm::of(node)?;
        dispatch::norm(&machine, &norm, node.inputs().count() as u16).map_err(unsupported)?
    } else {
        let work = elementwise::work(node, None)?;
        if !work.each_b.is_empty() || work.formats != [Format::F32; 3] {
            return Err(unsupported("only functions of f32 whose operands do not repeat within a row".into()));
        }
        dispatch::elements(&machine, &work, node.inputs().count() as u16, &arch.cost).map_err(unsupported)?
    };
    let name = format!("native-{}", node.op);
    Ok(machine.product.configured().artifact(name, stream)?)
}
