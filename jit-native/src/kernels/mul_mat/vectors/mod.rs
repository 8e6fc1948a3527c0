//! Functions of elements and of rows for decoded tokens, by the machine that multiplies their columns.
//!
//! What a token computes between two products is small: sums, norms, gates. The [lanes](crate::kernels::lanes) have programs of
//! their own for these, so that PDIs would alternate. The machine for decoded tokens therefore has the lanes' functions and does
//! lists of their steps ([`Step`](crate::kernels::lanes::step::Step)), with the array of products:
//!
//! - *Elements* are cut into a slice for each core. Slices of both operands go the way of weights, one behind the other.
//! - *Rows* of norms are dealt over the columns. All cores of a column get the whole row, the way columns of products go, and
//!   each computes its sums, which takes as long as one core would need. Then each makes its slice of the result, for which a
//!   slice of the weights comes to it.
//!
//! ggml may give a result the memory of its source. A core reads its slices before it writes; a row goes to one column only,
//! whose cores begin when all of it has come.
//!
//! Larger nodes, other types, and operands that repeat within a row are left to the lanes.

mod dispatch;
mod program;
#[cfg(test)]
mod tests;

pub(super) use program::phase;

use super::program::Purpose;
use super::{GENERATION, machine};
use crate::kernels::lanes::elementwise;
use crate::kernels::lanes::format::Format;
use crate::kernels::lanes::rows::Norm;
use crate::kernels::{Family, NativeError};
use crate::selftest;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Node;

const NAME: &str = "token";

/// The family.
pub static FAMILY: Family = Family {
    name: NAME,
    operations: &[
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
    ],
    generations: &[GENERATION],
    cases: selftest::lanes::token,
    build,
};

/// Rows of a decoded token, or of a few of them; nodes with more are a prompt's, which has other products, unless they are small.
const MOST_ROWS: usize = 4;
const MOST_ELEMENTS: usize = 4096;

fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
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
        dispatch::elements(&machine, &work, node.inputs().count() as u16).map_err(unsupported)?
    };
    let name = format!("native-{}", node.op);
    Ok(KernelArtifact::new(name, &*arch.name, arch.dev_gen, machine.product.configured().pdi(), stream)?)
}
